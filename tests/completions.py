"""Completion arguments for the tests of the report: one that is good, from which each test makes its own."""

from __future__ import annotations

import json
from typing import Any

from supervisor.verdict.completion import Completion, from_json

GOOD: dict[str, Any] = {
    "schema": "completion-argument/1",
    "run": "20261130-080642-k3f9",
    "command": ["sh", "-c", "echo hi > out"],
    "policy": {"name": "default", "digest": "sha256:00"},
    "claim": {"outcome": "out", "scope": [], "period": "endpoint", "unit": "run"},
    "stop_rule": {"wall_s": None, "role": "task", "at_endpoint": "follow", "settle_s": 2.0},
    "endpoint": {"reason": "exit", "at": "2026-11-30T08:06:42.000000001Z", "exit_code": 0, "signal": None},
    "coverage": [
        {"route": "file", "witnesses": ["kernel"], "complete": True, "gaps": []},
        {"route": "gpu memory", "witnesses": [], "complete": False, "gaps": []},
    ],
    "effects": {"processes": [], "files": [], "network": [], "credentials": []},
    "open_effects": [],
    "finality": {
        "verdict": "final",
        "label": None,
        "observed": {"label": None, "at": None, "digest": None},
        "intervened": False,
        "reasons": [{"rule": "nothing-alive", "text": "nothing was alive at the endpoint", "events": [90]}],
    },
    "separation": {"verdict": "separate", "routes": [], "assumptions": [], "reasons": []},
    "scope": {"verdict": "clean", "violations": []},
    "result": {"passed": None, "because": []},
    "log": {"frames": 12, "events": 912, "lost": 0, "root": "sha256:01", "sealed": True, "key": None},
}


def process(number: int, **changes: Any) -> dict[str, Any]:
    """Make one process entry."""
    entry = {
        "id": f"{number}@{number}000",
        "pid": number,
        "argv": ["sleep", str(number)],
        "exe": "/bin/sleep",
        "parent": None,
        "alive_at_endpoint": False,
        "outlived": False,
    }
    return entry | changes


def file(path: str, **changes: Any) -> dict[str, Any]:
    """Make one file entry."""
    entry = {
        "path": path,
        "net": "modified",
        "restored": False,
        "history": ["modified"],
        "history_total": 1,
        "in_scope": True,
        "allowed": True,
        "private": False,
        "reachable": True,
        "writers": [],
        "before": None,
        "after": None,
        "attempts": [],
        "events": [41],
    }
    return entry | changes


def open_effect(identity: str, **changes: Any) -> dict[str, Any]:
    """Make one open effect."""
    entry = {
        "id": identity,
        "route": "process",
        "what": "sleep 300 (pid 12)",
        "status": "pending",
        "could_affect": ["outcome"],
        "handling": "observed",
        "settled": False,
        "proof": {"prevented": [], "checked": [], "supports": ["finality"]},
        "events": [88],
    }
    return entry | changes


def completion(**changes: Any) -> Completion:
    """Make a completion argument: the good one with whole top-level parts, or keys in them, replaced."""
    made = json.loads(json.dumps(GOOD))
    for name, change in changes.items():
        made[name] = made[name] | change if isinstance(change, dict) and isinstance(made.get(name), dict) else change
    return from_json(json.dumps(made).encode())
