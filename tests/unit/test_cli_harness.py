"""The Python interface and the manifest: both say what the command line says."""

from __future__ import annotations

import io
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from policies.options import PolicyOptions
from policies.types import FilesMode, Policy
from supervisor import harness
from supervisor.errors import LogUnreadableError, UsageError
from supervisor.harness import make_request
from supervisor.prepare.manifest import Started, describe_run, read_manifest
from supervisor.request import RunRequest, check_request


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


def test_python_has_its_own_words_beside_those(tmp_path: Path) -> None:
    """Numbers are seconds, paths are paths, `direct=True` is `--direct`, None is not given, a home is a directory."""
    home = tmp_path / "home"
    asked = {"timeout": 5, "settle": 0.25, "direct": True, "stage": False, "name": None, "home": home, "cwd": b"/"}
    request = make_request([Path("/bin/true")], None, asked | {"workspace": tmp_path, "outcome": Path("a")})
    assert (request.argv, request.cwd) == ((b"/bin/true",), Path("/"))
    assert (request.policy.stop.wall_s, request.policy.stop.settle_s) == (5.0, 0.25)
    assert (request.policy.files.mode, request.policy.files.workspace) == (FilesMode.DIRECT, str(tmp_path))
    assert request.home is not None
    assert (request.home.path, request.policy.claim.outcome) == (home, "a")


@pytest.mark.parametrize("command", ["true", b"true", [], (), {"a"}, None, 3])
def test_a_command_is_a_list_of_words(command: Any) -> None:
    """A string would have to be split by somebody's rules."""
    with pytest.raises(UsageError, match="command: expected a list of words"):
        make_request(command, None, {})


@pytest.mark.parametrize(
    ("command", "place"), [([1], "command[0]"), (["a", None], "command[1]"), (["sh", "x\0y"], "command[1]")]
)
def test_a_word_of_another_type_or_with_nul_is_refused(command: Any, place: str) -> None:
    """The kernel would end the word at its NUL: another command would run than the one that is reported."""
    with pytest.raises(UsageError) as caught:
        make_request(command, None, {})
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("keywords", "place"),
    [
        ({"write": "*.md"}, "write"),
        ({"write": b"*.md"}, "write"),
        ({"write": {"a": 1}}, "write"),
        ({"write": ["a", 1]}, "write[1]"),
        ({"write": ["a\0"]}, "write[0]"),
        ({"write": ["a", "../a"]}, "write[1]"),
        ({"allow": ["api.test", "http://x/"]}, "allow[1]"),
        ({"map": ["x"]}, "map[0]"),
        ({"scope": "a"}, "scope"),
        ({"env": {"A": "b"}}, "env"),
        ({"env": "A=b"}, "env"),
        ({"env": ["A=b", 2]}, "env[1]"),
        ({"env": ["=b"]}, "env[0]"),
        ({"env": ["A=\0"]}, "env[0]"),
        ({"environ": ["A=b"]}, "environ"),
        ({"environ": {"A": 1}}, "environ['A']"),
        ({"environ": {"A": "\0"}}, "environ['A']"),
        ({"environ": {"A=": "b"}}, "environ"),
        ({"timeout": True}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"timeout": [5]}, "timeout"),
        ({"settle": "soon"}, "settle"),
        ({"period": 10}, "period"),
        ({"period": "soon"}, "period"),
        ({"limit_role": "boss"}, "limit_role"),
        ({"at_endpoint": "leave"}, "at_endpoint"),
        ({"commit": True}, "commit"),
        ({"mode": "x"}, "mode"),
        ({"direct": 1}, "direct"),
        ({"direct": True, "stage": True}, "stage"),
        ({"mode": "direct", "stage": True}, "stage"),
        ({"direct": True, "commit": "never"}, "commit"),
        ({"workspace": "/no-such-directory"}, "workspace"),
        ({"workspace": "a\0b"}, "workspace"),
        ({"outcome": ["a"]}, "outcome"),
        ({"name": 3}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"user": 0}, "user"),
        ({"cwd": 3}, "cwd"),
        ({"home": 3}, "home"),
        ({"home": "a\0"}, "home"),
        ({"on_progress": "print"}, "on_progress"),
        ({"stdin": True}, "stdin"),
        ({"stdout": -3}, "stdout"),
        ({"stdout": 987}, "stdout"),
        ({"stderr": "log"}, "stderr"),
        ({"stderr": io.StringIO()}, "stderr"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_keyword(keywords: dict[str, Any], place: str) -> None:
    """Nothing is taken apart, converted or dropped in silence: `write="*.md"` would allow everything."""
    with pytest.raises(UsageError) as caught:
        make_request(["true"], None, keywords)
    assert caught.value.place == place


def test_every_option_of_a_policy_is_a_keyword() -> None:
    """What the command line can say, a call can say, and by the same name."""
    assert {field.name for field in fields(PolicyOptions)} <= harness._READERS.keys()
    assert {field.name for field in fields(RunRequest)} >= harness._OF_THE_REQUEST


def test_the_manual_has_every_keyword() -> None:
    """docs/python.md lists them all, and no other."""
    page = (Path(__file__).resolve().parents[2] / "docs/python.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", page)) == harness._READERS.keys() | harness._MODES.keys()


def test_an_unknown_keyword_is_refused() -> None:
    """As an unknown option is, also without a value; the nearest one is named."""
    with pytest.raises(UsageError, match="colour: unknown keyword"):
        make_request(["true"], Policy(), {"colour": None})
    with pytest.raises(UsageError) as caught:
        make_request(["true"], Policy(), {"time_out": 3})
    assert caught.value.hint == "did you mean timeout?"


@pytest.mark.parametrize("policy", [3, {"stop": {}}, b"default", "a\0.toml"])
def test_a_policy_is_a_name_a_file_or_a_policy(policy: Any) -> None:
    """Plain values are no policy: nobody checked them."""
    with pytest.raises(UsageError) as caught:
        make_request(["true"], policy, {})
    assert caught.value.place == "policy"


def test_a_request_that_somebody_else_made_is_checked_too() -> None:
    """`RunRequest` can be made by hand; no NUL gets past the start of a run."""
    for request in (
        RunRequest(argv=(b"a\0b",), cwd=Path("/")),
        RunRequest(argv=(b"a",), cwd=Path("/\0")),
        RunRequest(argv=(b"a",), cwd=Path("/"), environ={"A": "\0"}),
    ):
        with pytest.raises(UsageError, match="expected no NUL byte"):
            check_request(request)


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


def test_a_stream_is_a_descriptor_or_what_has_one(tmp_path: Path) -> None:
    """What a file holds back is written before the command writes; None is the same as not given."""
    with (tmp_path / "log").open("w") as log:
        log.write("before")
        request = make_request(["true"], None, {"stdout": log, "stderr": log.fileno(), "stdin": None})
        assert (tmp_path / "log").read_text() == "before"
        assert (request.stdin, request.stdout, request.stderr) == (None, log.fileno(), log.fileno())
