"""Services that a trial reached: every standing for every period, the label, and what other runs can meet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transcript import ENDPOINT, EVENTUALLY, MS, WITHIN, Transcript, ordinary, policy_for, straggler, without_commit

from policies.types import PeriodKind, Policy, Service, ServiceState, Settle, SettleKind
from supervisor import events as ev
from supervisor.verdict.judge import Judgement, judge

SOCKET = "/srv/shop.sock"
SHOP = Service(name="shop", at=f"unix:{SOCKET}", settle=Settle(kind=SettleKind.FILE))


def policy(
    period: PeriodKind = EVENTUALLY,
    *,
    state: ServiceState = ServiceState.SHARED,
    outcome: str | None = "service:shop",
    **options: object,
) -> Policy:
    """Give a policy with the shop."""
    whole = policy_for(period=period, outcome=outcome, **options)  # type: ignore[arg-type]
    return without_commit(replace(whole, services=(replace(SHOP, state=state),)))


def reached(trial: Transcript | None = None) -> Transcript:
    """Tell of a trial that reached the shop."""
    trial = trial or ordinary()
    trial.add(ev.ServiceShown, process=None, service="shop", path=SOCKET.encode(), device=8, inode=77)
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"any/../name", outside=True, device=8, inode=77)
    return trial


def answer(trial: Transcript, status: str, moment: str = "settling", *, took_ms: int = 0) -> Transcript:
    """Tell what the shop said."""
    asked_ns = trial.now_ns + MS
    trial.now_ns += took_ms * MS
    trial.add(
        ev.ServiceAnswered,
        process=None,
        origin=ev.Origin.SERVICE,
        service="shop",
        moment=moment,
        status=status,
        detail=f"it said {status}",
        asked_ns=asked_ns,
    )
    return trial


def judged(trial: Transcript, whole: Policy) -> Judgement:
    """Judge a transcript."""
    return judge(trial.facts(whole), whole)


def rules(found: Judgement) -> set[str]:
    """Give the rules of the reasons for finality."""
    return {reason.rule for reason in found.finality.reasons}


@pytest.mark.parametrize(
    ("status", "label"), [("committed", "success"), ("failed", "failure"), ("cancelled", "failure")]
)
def test_what_the_service_says_for_good_is_the_label(status: str, label: str) -> None:
    """It was asked after the last client had ended: followed until its effect is known."""
    found = judged(answer(reached(), status), policy())
    assert "service-settled" in rules(found)
    assert (found.finality.verdict, found.finality.label) == ("final", label)


@pytest.mark.parametrize("status", ["pending", "unknown"])
def test_a_service_that_may_still_act_leaves_the_label_open(status: str) -> None:
    """The observed state is kept; it is no label."""
    found = judged(answer(reached(), status), policy())
    (effect,) = [one for one in found.open_effects if one.route == "service"]
    assert (effect.status, effect.handling, effect.settled) == (status, "unresolved", False)
    assert found.finality.observed.label == {"pending": "failure"}.get(status)
    assert (found.finality.verdict, found.finality.label) == ("unresolved", None)


def test_a_service_that_was_never_asked_is_open() -> None:
    """Nobody knows what became of it."""
    found = judged(reached(), policy())
    assert "service-open" in rules(found)
    assert found.finality.verdict == "unresolved"


def test_nothing_left_to_act_is_no_outcome() -> None:
    """A claim about the service then has no label; a claim about files is settled."""
    assert judged(answer(reached(), "settled"), policy()).finality.verdict == "unresolved"
    assert judged(answer(reached(), "settled"), policy(outcome="out")).finality.verdict == "final"


def test_an_answer_counts_only_when_no_client_was_left() -> None:
    """What was said while a process of the trial was alive may have been overtaken by another request of it."""
    early = reached(straggler(handling="ended"))
    told = [event for event in early.events if not isinstance(event, ev.TrialSettled)]
    endpoint_at = next(at for at, event in enumerate(told) if isinstance(event, ev.TrialEndpoint))
    stamp = told[endpoint_at].time_ns
    said = ev.ServiceAnswered(
        n=900,
        time_ns=stamp + 1,
        origin=ev.Origin.SERVICE,
        service="shop",
        moment="settling",
        status="committed",
        detail="x",
        asked_ns=stamp,
    )
    early.events.append(said)
    assert judged(early, policy()).finality.verdict == "unresolved"
    assert judged(answer(early, "committed", "last"), policy()).finality.verdict == "final"


DESK = replace(SHOP, name="desk", at="desk.test:80")


def filed(*, passed_ms: int | None) -> Transcript:
    """Tell of a request whose client ended at once; the last of it was passed on in ms after the endpoint."""
    trial = Transcript()
    trial.begin()
    trial.now_ns += 100 * MS
    trial.exit()
    ended_ns = trial.now_ns
    trial.endpoint()
    passed_ns = None if passed_ms is None else ended_ns + passed_ms * MS
    place = {"connection": 1, "ip": "198.18.0.1", "port": 80, "host": "desk.test"}
    trial.add(ev.ConnectionAllowed, attempted_ns=ended_ns - 2, **place)
    trial.add(
        ev.ConnectionClosed, decision="allowed", bytes_out=5, opened_ns=ended_ns - 1, passed_ns=passed_ns,
        attempted_ns=ended_ns - 2, said_ns=ended_ns - 1, left_ns=ended_ns, **place,
    )  # fmt: skip
    trial.settled()
    trial.end()
    trial.now_ns = ended_ns + 200 * MS
    trial.add(
        ev.ServiceAnswered, process=None, origin=ev.Origin.SERVICE, service="desk", moment="last", status="committed",
        detail="x", asked_ns=ended_ns + 50 * MS,
    )  # fmt: skip
    return trial


@pytest.mark.parametrize("period", [EVENTUALLY, WITHIN])
@pytest.mark.parametrize(("passed_ms", "verdict"), [(-1, "final"), (49, "final"), (51, "unresolved"), (None, "final")])
def test_an_answer_counts_only_when_nothing_was_on_its_way_to_the_service(
    period: PeriodKind, passed_ms: int | None, verdict: str
) -> None:
    """A client that ended may have said what the gateway passes on after the service was asked about it."""
    options: dict[str, object] = {"within_s": 10.0} if period is WITHIN else {}
    whole = replace(policy(period, outcome="service:desk", **options), services=(DESK,))
    found = judged(filed(passed_ms=passed_ms), whole)
    assert found.finality.verdict == verdict
    if verdict == "unresolved" and period is EVENTUALLY:
        assert "still on its way" in found.finality.reasons[0].text


def test_at_the_endpoint_the_first_answer_after_it_decides() -> None:
    """What is pending at the endpoint was not done by the endpoint, whatever comes later."""
    for status, label in (("pending", "failure"), ("committed", "success")):
        trial = answer(answer(reached(), status, "endpoint"), "committed", "last")
        found = judged(trial, policy(ENDPOINT))
        assert (found.finality.verdict, found.finality.label) == ("final", label)
    assert judged(answer(reached(), "unknown", "endpoint"), policy(ENDPOINT)).finality.verdict == "unresolved"
    assert judged(answer(reached(), "committed", "last"), policy(ENDPOINT)).finality.verdict == "unresolved"


def test_files_at_the_endpoint_do_not_depend_on_a_service() -> None:
    """The claim is about files then; the service stays listed as open."""
    found = judged(answer(reached(), "pending"), policy(ENDPOINT, outcome="out"))
    assert "service-later" in rules(found)
    assert [one.status for one in found.open_effects if one.route == "service"] == ["pending"]
    assert found.finality.verdict == "final"


def test_within_a_period_the_answer_must_come_in_time() -> None:
    """Done by D is success; still pending at D is failure; done some time around D is not known."""
    in_time = answer(reached(), "committed")
    assert judged(in_time, policy(WITHIN)).finality.label == "success"
    late = answer(reached(), "pending")
    assert judged(late, policy(WITHIN, within_s=10.0)).finality.verdict == "unresolved"
    late.now_ns += 10_000 * MS
    assert judged(answer(late, "committed", "deadline"), policy(WITHIN)).finality.verdict == "unresolved"
    still = answer(reached(), "pending")
    still.now_ns += 10_000 * MS
    found = judged(answer(still, "pending", "deadline"), policy(WITHIN))
    assert (found.finality.verdict, found.finality.label) == ("final", "failure")


@pytest.mark.parametrize(
    ("state", "verdict", "assumed"),
    [
        (ServiceState.SHARED, "unresolved", False),
        (ServiceState.PER_RUN, "separate", True),
        (ServiceState.STATELESS, "separate", True),
    ],
)
def test_what_is_left_at_a_shared_service_can_be_met(state: ServiceState, verdict: str, *, assumed: bool) -> None:
    """Also when it is settled: the two decisions are two. What is only declared is listed as assumed."""
    found = judged(answer(reached(), "committed"), policy(state=state))
    assert any("service shop" in text for text in found.separation.assumptions) is assumed
    assert found.separation.verdict == verdict
    assert found.finality.verdict == "final"


def test_a_stateless_service_starts_nothing() -> None:
    """That rests on the declaration, and says so."""
    found = judged(reached(), policy(state=ServiceState.STATELESS, outcome="out"))
    (reason,) = [one for one in found.finality.reasons if one.rule == "service-stateless"]
    assert reason.basis == "declared"
    assert found.finality.verdict == "final"


def test_a_declared_service_may_be_reached_and_an_undeclared_one_may_not() -> None:
    """Reaching what the policy names is no violation; another socket still is, whatever the caller called it."""
    assert judged(answer(reached(), "committed"), policy()).scope.verdict == "clean"
    trial = answer(reached(), "committed")
    trial.add(ev.ConnectionAttempted, transport="unix", path=SOCKET.encode(), outside=True, device=8, inode=78)
    found = judged(trial, policy())
    assert found.scope.verdict == "violated"
    assert found.finality.verdict == "unresolved"


def test_a_descriptor_passed_to_a_declared_service_is_still_a_way_out() -> None:
    """It may be a file of the outcome."""
    trial = answer(reached(), "committed")
    trial.add(ev.DescriptorPassed, received=False, outside=True, path=SOCKET.encode())
    found = judged(trial, policy())
    assert found.scope.verdict == "violated"
    assert found.finality.verdict == "unresolved"


def test_a_service_that_was_not_reached_is_no_route() -> None:
    """It is declared, and nothing more."""
    found = judged(ordinary(), policy(outcome="out"))
    assert not [one for one in found.open_effects if one.route == "service"]
    assert found.separation.verdict == "separate"
    assert found.finality.verdict == "final"


def test_a_cancellation_by_the_service_needs_both_proofs() -> None:
    """We asked for it, and it says that it was called off for good: cancelled, final, an intervention."""
    trial = reached()
    trial.add(ev.ServiceCancelled, process=None, service="shop", problem=None)
    found = judged(answer(trial, "cancelled"), policy())
    (effect,) = [one for one in found.open_effects if one.route == "service"]
    assert effect.handling == "cancelled"
    assert effect.proof.prevented
    assert effect.proof.checked
    assert (found.finality.verdict, found.finality.label, found.finality.intervened) == ("final", "failure", True)


def test_a_request_to_call_off_is_no_cancellation() -> None:
    """Only taken, and not confirmed; or confirmed without our asking; or not taken: no handling of ours."""
    asked = reached()
    asked.add(ev.ServiceCancelled, process=None, service="shop", problem=None)
    assert judged(answer(asked, "pending"), policy()).finality.verdict == "unresolved"
    by_others = judged(answer(reached(), "cancelled"), policy())
    assert [one.handling for one in by_others.open_effects if one.route == "service"] == ["observed"]
    assert by_others.finality.intervened is False
    refused = reached()
    refused.add(ev.ServiceCancelled, process=None, service="shop", problem="status 500")
    assert judged(answer(refused, "cancelled"), policy()).finality.intervened is False
