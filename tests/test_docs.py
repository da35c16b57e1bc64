"""The manual says what the code does: help texts, events, policy keys and exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import policies.keys
import update_docs
from supervisor import errors, events
from supervisor.command.arguments import COMMANDS

ROOT = Path(__file__).resolve().parent.parent


def page(name: str) -> str:
    """One page of the manual."""
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", update_docs.PAGES)
def test_what_is_generated_is_as_the_code_is(name: str) -> None:
    """Writing a page again changes nothing; `make docs` mends it."""
    assert update_docs.written_again(page(name)) == page(name)


def test_the_manual_has_the_help_of_every_command() -> None:
    """Each stands once: that of a run in the README, of the others in docs/commands.md."""
    assert re.findall(r"<!-- help: (\w+) -->", page("README.md")) == ["run"]
    assert sorted(re.findall(r"<!-- help: (\w+) -->", page("docs/commands.md"))) == sorted({*COMMANDS} - {"run"})


def test_every_event_kind_is_documented() -> None:
    """Each kind that can be in a log stands in docs/events.md, under its wire name."""
    kinds = {events.wire_kind(one.__name__) for one in update_docs.event_types()}
    assert len(kinds) > 30
    assert not {kind for kind in kinds if f"| `{kind}` |" not in page("docs/events.md")}


def test_every_policy_key_is_documented() -> None:
    """Each key that a policy may have stands in docs/policy.md."""
    keys = {f"{section.name}.{key.name}" for section in policies.keys.SECTIONS for key in section.keys}
    assert not {key for key in keys if f"| `{key}` |" not in page("docs/policy.md")}


def test_every_exit_code_is_documented() -> None:
    """The codes that are ours stand in docs/exit-codes.md and in the README, those of every error among them."""
    ours = {one.exit_code for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "exit_code")}
    for code in {120, 124, 125, 126, 127} | ours:
        assert re.search(rf"\b{code}\b", page("docs/exit-codes.md")), code
    for code in (120, 124, 125, 126, 127):
        assert re.search(rf"\b{code}\b", page("README.md")), code


def test_links_lead_somewhere() -> None:
    """Every relative link of the manual names a file that is there."""
    for name in ("README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page(name)):
            assert ((ROOT / name).parent / target).exists(), f"{name}: {target}"
