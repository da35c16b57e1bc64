"""Budgets of tool calls and tokens: claimed by the trial, or counted outside the box by ``supervise tool``."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from scenario_lab import Lab, python, runs_on_host

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

NOTE = """
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for note in sys.argv[1:]:
    s.sendto(note.encode(), os.environ["SUPERVISE_NOTIFY"])
time.sleep(73.5)
"""
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "tools/call":
        name = asked["params"]["name"]
        if name == "hang":
            continue
        open("calls", "a").write(name + "\\n")
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"isError": name == "bad"}}), flush=True)
print("bye", file=sys.stderr)
"""


def policy(lab: Lab, limits: str) -> tuple[str, str]:
    """Write a policy with limits."""
    path = lab.home / "policy.toml"
    path.write_text(f'schema = 1\n[stop]\nsettle = "0s"\n{limits}\n')
    return "-p", str(path)


def used(lab: Lab) -> dict[str, Any]:
    """Read what was used."""
    return dict(lab.report()["usage"])


@pytest.mark.parametrize(
    ("limits", "notes", "budget"),
    [
        ("tokens = 100", ['{"tokens": 60}', '{"tokens": 60}'], "tokens"),
        ("tool_calls = 1", ['{"tool_calls": 1}', '{"tool_calls": 1}'], "tool_calls"),
    ],
)
def test_a_budget_that_the_trial_says_it_used_up_ends_it(lab: Lab, limits: str, notes: list[str], budget: str) -> None:
    """The count is marked as claimed, the endpoint says why, and what was still running is listed."""
    ran = lab.run(*policy(lab, limits), "--", *python(NOTE, *notes))
    assert (ran.code, ran.report["endpoint"]["reason"]) == (124, "budget")
    reached = used(lab)["reached"]
    assert (reached["name"], reached["claimed"]) == (budget, True)
    assert [event["budget"] for event in lab.events("budget.reached")] == [budget]
    assert not runs_on_host(*python(NOTE, *notes))


def talk(lab: Lab, *options: str, calls: list[tuple[int, str]]) -> tuple[int, list[dict[str, Any]]]:
    """Call tools of a server in a box, one after the other, and end."""
    with lab.start("tool", *options, "--", *python(SERVER), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for number, name in calls:
            asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}
            process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
        out, _ = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()]


def test_a_tool_server_is_a_trial_whose_calls_are_counted_outside(lab: Lab) -> None:
    """Its answers reach the client and nothing else does; calls are events of the supervisor."""
    code, answers = talk(lab, calls=[(1, "write"), (2, "bad"), (3, "write"), (4, "hang")])
    assert code == 0
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    told = lab.events("tool.called")
    assert [(one["tool"], one["origin"]) for one in told][:2] == [("write", "supervisor"), ("bad", "supervisor")]
    usage = used(lab)
    assert (usage["tool_calls"], usage["failed"], usage["retries"]) == (4, 1, 1)
    assert usage["unanswered"] == ["hang (4)"]
    assert (lab.work / "calls").read_text() == "write\nbad\nwrite\n"


def test_the_call_after_the_budget_is_never_made(lab: Lab) -> None:
    """The client gets an error from us, and the trial ends; what the calls before it did is there."""
    code, answers = talk(lab, *policy(lab, "tool_calls = 2"), calls=[(1, "a"), (2, "b"), (3, "c")])
    assert code == 124
    assert "budget" in next(answer for answer in answers if answer["id"] == 3)["error"]["message"]
    report = lab.report()
    assert report["endpoint"]["reason"] == "budget"
    assert report["usage"]["reached"] | {"events": []} == {
        "name": "tool_calls", "limit": 2, "counted": 3, "claimed": False, "events": [],
    }  # fmt: skip
    calls = lab.work / "calls"
    assert "c" not in (calls.read_text() if calls.exists() else "")


def test_the_messages_of_a_tool_need_its_standard_streams(lab: Lab) -> None:
    """--json would put something else between them."""
    ended = lab.call("tool", "--json", "--", "true")
    assert ended.returncode == 125
    assert not (lab.home / "runs").exists()
