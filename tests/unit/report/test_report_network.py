"""How what was sent, and what was held back, is told in the report."""

from __future__ import annotations

from typing import Any

import pytest

from completions import completion
from supervisor.report.text import render_text

API: dict[str, Any] = {
    "protocol": "tcp", "host": "api.test", "ip": "203.0.113.7", "port": 443, "decision": "allowed", "bytes_out": 1200,
    "bytes_in": 7, "process": None, "events": [4],
}  # fmt: skip
QUESTION = {"protocol": "dns", "ip": None, "port": 53, "decision": "blocked", "bytes_out": 0, "bytes_in": 0}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "allowed: tcp api.test (203.0.113.7) port 443, 1,200 bytes out, 7 in [4]"),
        ({"after_endpoint": True}, "1,200 bytes out, 7 in, after the endpoint [4]"),
        (
            {"decision": "sinkholed", "bytes_out": 0, "bytes_in": 0, "kept_bytes": 9000},
            "sinkholed: tcp api.test (203.0.113.7) port 443, 9,000 bytes held back [4]",
        ),
        ({"unfinished": 1}, "at least 1,200 bytes out, 7 in, 1 connection never seen ending [4]"),
        ({"unfinished": 2, "bytes_out": 0, "bytes_in": 0}, "at least 0 bytes out, 0 in, 2 connections never"),
        (
            {"decision": "sinkholed", "bytes_out": 0, "bytes_in": 0, "unfinished": 1},
            "sinkholed: tcp api.test (203.0.113.7) port 443, at least 0 bytes held back, 1 connection never",
        ),
        (
            {"protocol": "dns", "ip": None, "port": 53, "decision": "blocked", "bytes_out": 0, "bytes_in": 0},
            "blocked: dns api.test port 53 [4]",
        ),
        (QUESTION | {"server": "203.0.113.5:53"}, "blocked: dns api.test port 53, asked of 203.0.113.5:53 [4]"),
        (
            QUESTION | {"host": None, "ip": "203.0.113.5", "server": "203.0.113.5:53", "unread": "udp"},
            "blocked: dns 203.0.113.5 port 53, a datagram that is no question [4]",
        ),
        (
            QUESTION | {"host": r"a\010", "ip": "2001:db8::5", "server": "[2001:db8::5]:53", "unread": "tcp"},
            r"blocked: dns 2001:db8::5 port 53, bytes that are no question, with the name a\010 [4]",
        ),
    ],
)
def test_a_flow_is_one_line_with_its_bytes(changed: dict[str, Any], told: str) -> None:
    """Where it went, what became of it, and whether it went on after the end."""
    assert told in render_text(completion(effects={"network": [API | changed]}))


@pytest.mark.parametrize(
    ("rule", "hinted"), [("forbidden-lookup", True), ("blocked-connection", True), ("write-outside-scope", False)]
)
def test_what_tools_send_of_their_own_accord_is_hinted_at(rule: str, *, hinted: bool) -> None:
    """Whoever finds a host that the command does not need is told what that often is, and how it is left."""
    violation = {"rule": rule, "text": "the name registry.example got no answer", "events": [4]}
    text = render_text(completion(scope={"verdict": "violated", "violations": [violation], "reasons": []}))
    assert ("of their own accord; most have a variable against it, which `--env NAME=VALUE` sets" in text) == hinted
