"""What ``--dry-run`` prints: everything that would be fixed before CMD starts. Nothing is made."""

from __future__ import annotations

import json
from typing import Any

from policies.canonical import policy_digest, policy_to_mapping, render_whole
from policies.credentials import filter_environ
from supervisor.report.safe import safe, safe_command
from supervisor.request import RunRequest


def plan_as_json(request: RunRequest) -> str:
    """Give the plan as one JSON object."""
    return json.dumps(_plan(request), indent=1)


def plan_as_text(request: RunRequest) -> str:
    """Give the plan as text: the command, where it runs, what is left out of its environment, and the policy."""
    plan = _plan(request)
    rows = {
        "command": safe_command(request.argv),
        "workspace": safe(plan["workspace"]),
        "user": safe(plan["user"] or "the invoking user"),
        "not passed": safe(", ".join(plan["environment"]["dropped"])) or "nothing",
        "require": ", ".join(plan["require"]) or "nothing",
        "policy": f"{safe(request.policy.name)}, {plan['policy']['digest']}",
    }
    head = "".join(f"{name:<12}{text}\n" for name, text in rows.items())
    return f"{head}\n{render_whole(request.policy)}nothing was run"


def _plan(request: RunRequest) -> dict[str, Any]:
    kept, dropped = filter_environ(request.environ, request.policy)
    policy = request.policy
    return {
        "command": [word.decode(errors="surrogateescape") for word in request.argv],
        "name": request.name,
        "workspace": str(request.cwd / (policy.files.workspace or ".")),
        "user": request.user,
        "require": sorted(request.require),
        "environment": {"kept": sorted(kept), "dropped": list(dropped)},
        "policy": {"name": policy.name, "digest": policy_digest(policy), "document": policy_to_mapping(policy)},
    }
