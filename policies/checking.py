"""What each key of a policy allows but the whole does not.

In: a policy whose keys were read. Out: nothing, or one error that carries all that does not hold together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from policies.mistakes import Mistakes, read_each
from policies.releasing import check_release
from policies.types import Commit, DecidedBy, FilesMode, Policy
from supervisor.errors import PolicyError

MOST_STATES = 64
"""How many combinations of possible states may be graded."""


def check_policy(policy: Policy) -> None:
    """Refuse what each key allows but the whole does not; all of it is told.

    Raises:
        PolicyError: staged writes are asked for in direct mode, the limit is no time at all, servers are to be trusted
            whose TLS is not read, nobody could be asked what is claimed, or nothing could be taken back.
    """
    checks = (_check_stop, _check_network, _check_outcome, _check_files, check_release, _check_grade, _check_decision)
    read_each(lambda _, check: check(policy), checks)


def _check_stop(policy: Policy) -> None:
    if policy.stop.wall_s is not None and policy.stop.wall_s <= 0:
        message = "expected a duration above zero, got 0"
        raise PolicyError(message, place="stop.wall")


def _check_network(policy: Policy) -> None:
    if policy.network.trust and not policy.network.inspect:
        message = "expected inspect = true, got files that vouch for servers whose TLS is not read"
        raise PolicyError(message, place="network.trust")


def _check_outcome(policy: Policy) -> None:
    if policy.claim.service is not None and policy.claim.service not in {one.name for one in policy.services}:
        message = f"expected the name of one of the services, got {policy.claim.service!r}"
        raise PolicyError(message, place="claim.outcome", hint="[[services]] declares them")


def _check_files(policy: Policy) -> None:
    mistakes = Mistakes()
    for index, place in enumerate(policy.files.shared):
        with mistakes:
            if place.path in {other.path for other in policy.files.shared[:index]}:
                message = f"expected each place once, got {place.path!r} again"
                raise PolicyError(message, place=f"files.shared[{index}].path")
    with mistakes:
        if policy.files.mode is FilesMode.DIRECT and policy.files.commit is not Commit.ALWAYS:
            message = f"expected staged files, got mode = direct with commit = {policy.files.commit}"
            hint = "direct writes are made in place: nothing is committed"
            raise PolicyError(message, place="files.commit", hint=hint)
    mistakes.tell()


def _check_grade(policy: Policy) -> None:
    """Refuse what cannot give a label: parts of a grader without its command, too many states.

    Raises:
        PolicyError: with the key.
    """
    grade, mistakes = policy.grade, Mistakes()
    parts = (("states", grade.states), ("selftest", grade.selftest), ("executes", grade.executes))
    for name, value in parts if grade.command is None else ():
        with mistakes:
            if value:
                message = f"expected grade.command, got {name} without it"
                raise PolicyError(message, place=f"grade.{name}")
    for index, state in enumerate(grade.states):
        with mistakes:
            if state.script is not None and state.overlay is not None:
                message = "expected script or overlay, got both"
                raise PolicyError(message, place=f"grade.states[{index}]")
    with mistakes:
        combinations = math.prod(Counter(state.effect for state in grade.states).values())
        if combinations > MOST_STATES:
            message = f"expected at most {MOST_STATES} combinations of states, got {combinations}"
            raise PolicyError(message, place="grade.states", hint="every combination is graded: name fewer")
    mistakes.tell()


def _check_decision(policy: Policy) -> None:
    claim, mistakes = policy.claim, Mistakes()
    with mistakes:
        if (claim.decided_by is DecidedBy.EVENT) != (claim.event is not None):
            message = f"expected claim.event with decided_by = event only, got decided_by = {claim.decided_by}"
            raise PolicyError(message, place="claim.event")
    with mistakes:
        if claim.decided_by is DecidedBy.HISTORY and not policy.order:
            message = "expected [[order]] with decided_by = history, got none"
            raise PolicyError(message, place="claim.decided_by")
    with mistakes:
        if claim.decided_by is not DecidedBy.STATE and policy.grade.command is not None:
            message = f"expected no grader with decided_by = {claim.decided_by}: the log decides, got grade.command"
            raise PolicyError(message, place="grade.command")
    for place, text in _patterns(policy):
        with mistakes:
            _check_pattern(text, place)
    mistakes.tell()


def _patterns(policy: Policy) -> Iterator[tuple[str, str]]:
    if policy.claim.event is not None:
        yield "claim.event", policy.claim.event
    for index, rule in enumerate(policy.order):
        yield f"order[{index}].first", rule.first
        yield f"order[{index}].then", rule.then


def _check_pattern(text: str, place: str) -> None:
    """Refuse a pattern that no event could ever match."""
    from supervisor.events.kinds import kinds  # noqa: PLC0415  (a policy without patterns needs no event)

    name, *fields = text.split(" ")
    kind = kinds().get(name)
    if kind is None:
        message = f"expected a kind of events, got {name!r}"
        raise PolicyError(message, place=place, hint=suggest(name, tuple(kinds())))
    for field in fields:
        named = field.partition("=")[0]
        if named not in kind.__struct_fields__:
            message = f"expected a field of {name}, got {named!r}"
            raise PolicyError(message, place=place, hint=suggest(named, kind.__struct_fields__))


def suggest(key: str, names: Iterable[str]) -> str:
    """Say which of some names is nearest to one that is none of them, else name all."""
    import difflib  # noqa: PLC0415  (only an error needs it)

    known = tuple(names)
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
