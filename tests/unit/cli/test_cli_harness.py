"""The Python interface and the manifest: both say what the command line says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies.types import FilesMode, Policy
from supervisor.errors import LogUnreadableError, UsageError
from supervisor.harness import make_request
from supervisor.manifest import Started, describe_run, read_manifest


def test_keywords_mean_what_the_options_mean(tmp_path: Path) -> None:
    """Lists, durations and NAME=V are written as on the command line."""
    request = make_request(
        ["sh", b"\xff"],
        None,
        {"write": ["a"], "settle": "1s", "env": ["A=1"], "mode": "direct", "cwd": tmp_path, "environ": {"B": "2"}},
    )
    assert request.argv == (b"sh", b"\xff")
    assert (request.policy.files.write, request.policy.files.mode) == (("a",), FilesMode.DIRECT)
    assert request.policy.stop.settle_s == 1.0
    assert (request.cwd, request.environ) == (tmp_path, {"B": "2", "A": "1"})


@pytest.mark.parametrize("command", ["true", b"true", [], ()])
def test_a_command_is_a_list_of_words(command: str) -> None:
    """A string would have to be split by somebody's rules."""
    with pytest.raises(UsageError, match="expected a list of words"):
        make_request(command, None, {})


def test_an_unknown_keyword_is_refused() -> None:
    """As an unknown option is."""
    with pytest.raises(UsageError, match="colour: unknown keyword"):
        make_request(["true"], Policy(), {"colour": 1})


STARTED = Started(run="r", at="t", workspace=b"/w/\xff", user=(1000, 1000), dropped=("Z", "A"), host={}, versions={})


def test_a_manifest_is_read_back_whole() -> None:
    """Command, workspace and policy survive JSON, bytes that are no text among them."""
    request = make_request(["sh", b"\xff"], None, {"write": ["a"], "name": "n", "env": ["K=s3cret"]})
    written = json.dumps(describe_run(request, STARTED))
    manifest = read_manifest(json.loads(written), place="m")
    assert (manifest.name, manifest.command, manifest.workspace) == ("n", (b"sh", b"\xff"), b"/w/\xff")
    assert manifest.policy == request.policy
    assert "s3cret" not in written


@pytest.mark.parametrize(
    "manifest", [{}, {"command": 1}, {"command": ["a"], "workspace": "/", "policy": {"document": {}}}]
)
def test_a_manifest_that_lacks_something_is_an_error(manifest: dict[str, object]) -> None:
    """Nothing is guessed."""
    with pytest.raises(LogUnreadableError, match="m: expected a manifest"):
        read_manifest(manifest, place="m")
