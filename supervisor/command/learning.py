"""`supervise learn`: one trial in which everything is let happen and nothing gets out, then the policy that it needed.

In: the request of a trial. Out: the text of a policy file. The rule: what is printed reads back as the policy that was
meant, and the trial itself leaves nothing: its writes are staged and never applied.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from policies.parse import parse_policy
from policies.types import NetworkDefault
from probes.kernel.decode import decode_slab
from supervisor.errors import InternalError
from supervisor.events import NameAsked
from supervisor.kept.staged import discard_staged
from supervisor.launch.runs.state import RunDir
from supervisor.log.reader import read_events
from supervisor.report.learned import learn, render, watching
from supervisor.report.safe import safe_command
from supervisor.request import Outcome, RunRequest
from supervisor.run import run
from supervisor.values import replace

_OWN_NAMES = frozenset({"local", "malformed"})


def learn_policy(request: RunRequest, *, default: NetworkDefault = NetworkDefault.SINKHOLE) -> tuple[Outcome, str]:
    """Run the trial, and write what it needed as a policy.

    Args:
        request: of the trial; its policy is what the printed one adds to.
        default: what happens to traffic that the policy does not allow: ``sinkhole`` or ``allow``.

    Raises:
        MachineError, LaunchError, LogError: as `supervisor.run.run`.
    """
    base = request.policy
    outcome = run(replace(request, policy=watching(base, default=default)))
    directory = RunDir(outcome.directory)
    lesson = learn(outcome.completion, base, asked=tuple(_names_asked(directory)), dropped=_names_dropped(directory))
    text = render(lesson, command=safe_command(request.argv))
    if parse_policy(text, place="the learned policy") != lesson.policy:
        message = "the learned policy does not read back as what was learned"
        raise InternalError(message)
    discard_staged(directory)
    return outcome, text


def _names_asked(run: RunDir) -> Iterator[str]:
    machine = os.uname().machine
    for event in read_events(run.log, lambda slab, first: decode_slab(slab, first, machine)):
        if isinstance(event, NameAsked) and event.decision not in _OWN_NAMES:
            yield event.name


def _names_dropped(run: RunDir) -> tuple[str, ...]:
    environment = json.loads(run.manifest.read_bytes()).get("environment", {})
    return tuple(environment.get("dropped", ()))
