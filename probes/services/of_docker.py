"""Containers that a trial had dockerd start: which of them may still act.

The rules: a container counts as one of the run when it was made or started since the run began, whoever asked for it;
so does a command that runs in any container. What is over is what the daemon says has ended, and does not start again
by itself. Swarm starts containers by itself, elsewhere too: with it nothing is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from policies.types import ServiceStatus, Settle
from probes.services.answers import Answer, Question, bounded, unknown
from probes.services.over_http import UnixConnection, read_body, speaking

_MOST = 200
"""Containers that are looked at one by one; of a daemon with more nothing is known."""
_ENDED = frozenset({"exited", "dead"})
"""One that was made and never started may be about to be."""
_BY_ITSELF = frozenset({"always", "unless-stopped", "on-failure"})
_SLACK_S = 1.0
"""The daemon tells when a container was made in whole seconds."""


def ask(settle: Settle, question: Question) -> Answer:
    """Ask once.

    Raises:
        OSError: nobody answered, or not in time, or not what was asked.
    """
    daemon = _Daemon(settle, question)
    swarm = daemon.get("/info").get("Swarm") or {}
    if swarm.get("LocalNodeState", "inactive") != "inactive":
        return unknown("the daemon is part of a swarm, which starts containers by itself")
    listed = daemon.get("/containers/json?all=1")
    if len(listed) > _MOST:
        return unknown(f"the daemon has {len(listed)} containers: too many to look at")
    acting, ours = [], 0
    for container in filter(None, (daemon.inspect(one["Id"]) for one in listed)):
        is_ours = _is_ours(container, question.since_s)
        ours += is_ours
        why = _may_act(container) if is_ours else _executes(container)
        if why is not None:
            acting.append(f"{str(container.get('Name', '?')).lstrip('/')} {why}")
    if acting:
        return Answer(status=ServiceStatus.PENDING, detail=bounded("; ".join(acting)))
    return Answer(status=ServiceStatus.SETTLED, detail=f"containers of the run: {ours}, none of which can still act")


def _is_ours(container: Mapping[str, Any], since_s: float) -> bool:
    state = container.get("State") or {}
    moments = (container.get("Created"), state.get("StartedAt"))
    return any(_moment_s(moment) >= since_s - _SLACK_S for moment in moments)


def _moment_s(text: object) -> float:
    """Read a moment of the daemon; what never happened is the year 1 there. An unreadable one may be now."""
    if not isinstance(text, str):
        return float("inf")
    try:
        return datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()
    except ValueError:
        return float("inf")


def _may_act(container: Mapping[str, Any]) -> str | None:
    status = str((container.get("State") or {}).get("Status", "unknown"))
    if status not in _ENDED:
        return f"is {status}"
    restarts = str(((container.get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name", ""))
    return f"is {status}, and starts again ({restarts})" if restarts in _BY_ITSELF else None


def _executes(container: Mapping[str, Any]) -> str | None:
    return "runs a command that was started in it" if container.get("ExecIDs") else None


class _Daemon:
    """One daemon, asked over its socket."""

    def __init__(self, settle: Settle, question: Question) -> None:
        self._path = question.fill(settle.text("socket") or "")
        self._question = question

    def get(self, path: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
        status, body = self._request(path)
        if status != 200:  # noqa: PLR2004 - HTTP's
            message = f"{path}: status {status}"
            raise OSError(message)
        return json.loads(body)

    def inspect(self, name: str) -> Mapping[str, Any] | None:
        """Give what is known of a container; None when it has gone meanwhile."""
        status, body = self._request(f"/containers/{quote(name, safe='')}/json")
        if status == 404:  # noqa: PLR2004 - HTTP's
            return None
        if status != 200:  # noqa: PLR2004 - HTTP's
            message = f"container {name[:12]}: status {status}"
            raise OSError(message)
        found: Mapping[str, Any] = json.loads(body)
        return found

    def _request(self, path: str) -> tuple[int, bytes]:
        with speaking(UnixConnection(self._path, "docker", self._question.left_s())) as connection:
            connection.request("GET", path, headers={"Connection": "close"})
            response = connection.getresponse()
            return response.status, read_body(response, connection, self._question)
