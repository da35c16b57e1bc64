"""The whole finality table, over the full product of what may be open at once, for every period.

The answer is worked out here from the table of the design alone, route by route: final only if every route is (law 2).
What the engine says must be that, and nothing else: no wrong final, and none withheld without need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pytest
from transcript import ENDPOINT, EVENTUALLY, MS, OFFSET_NS, WITHIN, Transcript, ordinary, policy_for, straggler

from policies.types import (
    AtEndpoint,
    DecidedBy,
    FilesPolicy,
    GradePolicy,
    OrderRule,
    PeriodKind,
    Policy,
    PossibleState,
    Service,
    ServiceState,
)
from supervisor import events as ev
from supervisor.verdict.judge import Judgement, judge

S = 1_000_000_000
D_S = 10.0
SOCKET = b"/srv/shop.sock"

# -- situations ------------------------------------------------------------------------------------------------------

HANDLINGS = ("none", "ended", "cut", "cancel", "freeze", "isolate", "isolation failed", "unseen")
"""What became of a process that ran after the endpoint, ``none`` when there was none; it was over within D."""
CAPTURES = ("good", "written", "missing")
"""The state at the endpoint: captured, captured after somebody wrote it, not captured."""
SERVICES = ("none", "undeclared", "settled", "pending", "never asked", "stateless")
SCHEDULES = ("none", "fires", "fires after D", "dormant", "discarded")
BOUNDS = ("none", "one label", "one label, restricted", "differ", "another label", "not all made", "not these")
DECIDED = ("event came", "event absent", "order kept", "order broken")
LOSSES = ("nothing", "file events", "membership")

_HANDLED = {"cancel": AtEndpoint.CANCEL, "freeze": AtEndpoint.FREEZE, "isolate": AtEndpoint.ISOLATE,
            "isolation failed": AtEndpoint.ISOLATE}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """One cell."""

    period: PeriodKind
    handling: str = "none"
    capture: str = "good"
    service: str = "none"
    schedule: str = "none"
    bound: str = "none"
    decided: str = "by state"
    loss: str = "nothing"


# -- the laws --------------------------------------------------------------------------------------------------------


def process_row(case: Case) -> bool:
    """Say whether a process that ran after the endpoint leaves the claim final."""
    if case.handling == "none":
        return True
    if case.period is ENDPOINT:
        return case.capture == "good"
    match case.handling:
        case "ended" | "cancel":
            return True
        case "isolate":
            return case.capture == "good"
        case _:
            return False


def service_row(case: Case) -> bool:
    """Say whether a service that was reached does."""
    if case.service in {"none", "stateless"}:
        return True
    if case.period is ENDPOINT:  # the claim is about files
        return case.handling == "none" or case.capture == "good"
    return case.service == "settled"


def schedule_row(case: Case) -> bool:
    """Say whether what was left to run later does."""
    if case.schedule in {"none", "dormant", "discarded"} or case.period is ENDPOINT:
        return True
    return case.schedule == "fires after D" and case.period is WITHIN


def bounds(case: Case, route: str) -> bool:
    """Say whether the possible states of an open route were declared and all give the label that was seen."""
    if route == "process":  # one that may write everywhere is bounded by no list; nor is one that had its own end
        return case.bound == "one label, restricted" and case.handling in {"cut", "freeze", "unseen"}
    return case.bound in {"one label", "one label, restricted"}


def is_final(case: Case) -> bool:
    """Say it for a claim that a state decides."""
    if case.loss == "membership":
        return False
    rests_on_capture = case.handling == "isolate" or (case.handling != "none" and case.period is ENDPOINT)
    if case.loss == "file events" and rests_on_capture:
        return False  # they were lost around it
    rows = {"process": process_row(case), "service": service_row(case), "schedule": schedule_row(case)}
    return all(final or bounds(case, route) for route, final in rows.items())


def decided_label(case: Case) -> str:
    """Give what the log says of a claim that it decides."""
    return "success" if case.decided in {"event came", "order kept"} else "failure"


def is_decided(case: Case) -> bool:
    """Say whether that is final."""
    if case.decided in {"event came", "order broken"}:
        return True  # it was witnessed, and nothing takes it back
    if case.loss != "nothing":
        return False  # it may have come, or been broken, among what was lost
    return case.period is ENDPOINT or is_final(case)


# -- transcripts -----------------------------------------------------------------------------------------------------


def tell(case: Case) -> Transcript:
    """Tell of the trial."""
    trial = _processes(case)
    _add_service(trial, case)
    _add_schedule(trial, case)
    if case.loss != "nothing":
        hook = "cgroup" if case.loss == "membership" else "syscall"
        endpoint_ns = next(event.time_ns for event in trial.events if isinstance(event, ev.TrialEndpoint))
        span = {"first_ns": endpoint_ns, "last_ns": endpoint_ns + 1}
        trial.add(ev.EventsLost, process=None, count=1, hook=hook, **span)
    return trial


def _processes(case: Case) -> Transcript:
    if case.handling == "none":
        return ordinary()
    isolated = case.handling.startswith("isolat")
    trial = straggler(
        handling={"freeze": "cut"}.get(case.handling, "cut" if isolated else case.handling),
        snapshot=case.capture != "missing",
        gap_write=case.capture == "written",
    )
    if isolated:
        at = next(place for place, event in enumerate(trial.events) if isinstance(event, ev.TrialSettled))
        error = None if case.handling == "isolate" else "EBUSY"
        own = {"process": None, "origin": ev.Origin.SUPERVISOR, "error": error}
        trial.events.insert(at, ev.TrialIsolated(n=900, time_ns=trial.events[at].time_ns - 1, **own))
    return trial


def _add_service(trial: Transcript, case: Case) -> None:
    if case.service == "none":
        return
    if case.service == "undeclared":
        trial.add(ev.ConnectionAttempted, transport="unix", path=b"/srv/other.sock", outside=True)
        return
    trial.add(ev.ServiceShown, process=None, service="shop", path=SOCKET, device=8, inode=77)
    trial.add(ev.ConnectionAttempted, transport="unix", path=SOCKET, outside=True, device=8, inode=77)
    if case.service in {"settled", "pending"}:
        said = {"status": case.service, "detail": case.service, "asked_ns": trial.now_ns + MS}
        own = {"process": None, "origin": ev.Origin.SERVICE}
        trial.add(ev.ServiceAnswered, service="shop", moment="settling", **said, **own)


def _add_schedule(trial: Transcript, case: Case) -> None:
    if case.schedule == "none":
        return
    endpoint_ns = next(event.time_ns for event in trial.events if isinstance(event, ev.TrialEndpoint))
    after_ns = endpoint_ns + OFFSET_NS + round(D_S * S) + S
    trial.add(
        ev.ScheduleFound,
        process=None,
        path=b"/var/spool/cron/crontabs/me",
        what="crontab of a user",
        when="dormant" if case.schedule == "dormant" else "autonomous",
        route="schedule",
        kept=case.schedule != "discarded",
        next_ns=after_ns if case.schedule == "fires after D" else None,
    )


def _graded(trial: Transcript, case: Case) -> Transcript:
    """Tell of the grader: of the outcome a success, of the possible states what the case says."""
    labels = {"differ": (0, 1, 0), "another label": (1, 1, 1), "not all made": (0, 0), "none": ()}
    captured = case.handling != "none" and case.capture != "missing" and case.period is ENDPOINT
    runs = [("endpoint" if captured else "settled", 0)]
    runs += [(f"bound:{number}", code) for number, code in enumerate(labels.get(case.bound, (0, 0, 0)))]
    for number, (state, code) in enumerate(runs):
        trial.add(ev.GradeStarted, process=None, number=number, state=state, digest="sha256:x", applied=())
        trial.add(ev.GradeFinished, process=None, number=number, exit_code=code, signal=None)
    return trial


def policy_of(case: Case) -> Policy:
    """Give the policy of a case."""
    state = ServiceState.STATELESS if case.service == "stateless" else ServiceState.PER_RUN
    files = FilesPolicy(write=("log",)) if case.bound == "one label, restricted" else FilesPolicy()
    policy = policy_for(period=case.period, at_endpoint=_HANDLED.get(case.handling, AtEndpoint.FOLLOW), files=files)
    service = Service(name="shop", at=f"unix:{SOCKET.decode()}", state=state)
    policy = replace(policy, services=(service,) if case.service not in {"none", "undeclared"} else ())
    if case.decided == "by state":
        return replace(policy, grade=GradePolicy(command="check", states=_states(case)))
    if case.decided.startswith("event"):
        wanted = "file.opened path=out created=true" if case.decided == "event came" else "file.written path=never"
        return replace(policy, claim=replace(policy.claim, decided_by=DecidedBy.EVENT, event=wanted))
    first = "file.opened path=out created=true" if case.decided == "order kept" else "file.opened path=grant"
    order = (OrderRule(first=first, then="file.written path=out"),)
    return replace(policy, claim=replace(policy.claim, decided_by=DecidedBy.HISTORY), order=order)


def _states(case: Case) -> tuple[PossibleState, ...]:
    if case.bound == "none":
        return ()
    routes = ("network",) * 3 if case.bound == "not these" else ("process", "service", "schedule")
    names = [f"{route}:mail" for route in routes] if case.bound == "not these" else routes
    if case.bound == "not these":
        return tuple(PossibleState(effect=names[0], reason=f"state {number}") for number in range(3))
    # Three states of one effect each would be one combination: the second and third are of the last route.
    first = [PossibleState(effect=name, reason="as it is") for name in names]
    return (*first, *(PossibleState(effect=names[-1], reason=f"otherwise {number}") for number in range(2)))


def judged(case: Case) -> Judgement:
    """Judge a case."""
    policy, trial = policy_of(case), tell(case)
    if case.decided == "by state":
        _graded(trial, case)
    return judge(trial.facts(policy), policy)


def captures_of(handling: str) -> tuple[str, ...]:
    """Give the captures that there can be: where nothing ran, none was due."""
    return CAPTURES if handling != "none" else CAPTURES[:1]


# -- the products ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("period", list(PeriodKind))
@pytest.mark.parametrize("handling", HANDLINGS)
def test_what_a_state_decides_is_final_exactly_where_every_route_is(handling: str, period: PeriodKind) -> None:
    """Processes by captures by services by schedules by bounds."""
    for capture, service, schedule, bound in product(captures_of(handling), SERVICES, SCHEDULES, BOUNDS):
        case = Case(period=period, handling=handling, capture=capture, service=service, schedule=schedule, bound=bound)
        found, right = judged(case).finality, is_final(case)
        assert (found.verdict == "final") is right, (case, found.reasons)
        assert (found.label, found.observed.label) == ("success" if right else None, "success"), case
        assert bool(found.reasons)
        assert right is not any(reason.keeps_open for reason in found.reasons), case
        intervenes = handling in {"cancel", "isolate"} and period is not ENDPOINT
        assert found.intervened is intervenes, case


@pytest.mark.parametrize("period", list(PeriodKind))
@pytest.mark.parametrize("decided", DECIDED)
def test_what_the_log_decides_is_final_whatever_else_is_open_once_it_was_witnessed(
    decided: str, period: PeriodKind
) -> None:
    """Events and histories by processes, captures, services, schedules and losses."""
    for handling, service, schedule, loss in product(HANDLINGS, SERVICES, SCHEDULES, LOSSES):
        for capture in captures_of(handling):
            case = Case(
                period=period, handling=handling, capture=capture, service=service, schedule=schedule, loss=loss,
                decided=decided,
            )  # fmt: skip
            found, right = judged(case).finality, is_decided(case)
            assert (found.verdict == "final") is right, (case, found.reasons)
            assert found.label == (decided_label(case) if right else None), case
            assert found.observed.label == decided_label(case), case
            assert found.reasons[0].rule == "decided" or not right, case


@pytest.mark.parametrize("period", list(PeriodKind))
@pytest.mark.parametrize("loss", LOSSES)
def test_a_gap_costs_finality_only_where_it_could_hide_a_route(loss: str, period: PeriodKind) -> None:
    """Lost file events cost a capture that they surround; a loss where processes leave costs everything."""
    for handling, service, schedule in product(HANDLINGS, SERVICES, SCHEDULES):
        for capture in captures_of(handling):
            case = Case(
                period=period, handling=handling, capture=capture, service=service, schedule=schedule, loss=loss
            )
            found, right = judged(case).finality, is_final(case)
            assert (found.verdict == "final") is right, (case, found.reasons)


@pytest.mark.parametrize("period", list(PeriodKind))
def test_every_open_effect_that_keeps_a_claim_open_says_so(period: PeriodKind) -> None:
    """What could affect the outcome and is not handled is listed; what was cancelled or isolated has both proofs."""
    for handling, service, schedule in product(HANDLINGS, SERVICES, SCHEDULES):
        case = Case(period=period, handling=handling, service=service, schedule=schedule)
        found = judged(case)
        for effect in found.open_effects:
            if effect.handling in {"cancelled", "isolated"}:
                assert effect.proof.prevented, case
                assert effect.proof.checked, case
        unhandled = [
            one for one in found.open_effects if one.handling == "unresolved" and "outcome" in one.could_affect
        ]
        if period is EVENTUALLY and not unhandled:
            assert found.finality.verdict == "final" or handling == "isolation failed", (case, found.finality.reasons)
