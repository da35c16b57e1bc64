"""The search of touched files: what it finds, where it does not go, and what it leaves out."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from policies.credentials import holds_secret
from probes.credentials.patterns import find_looks, find_named
from probes.credentials.search import Bounds, Hit, Search, spotter_of
from supervisor.launch.disk.tree import Tree

DECOY = b"wJalrXUtnFEMIqK7MDENGabPxRfiCYzz93kQ"
TOKEN = "ghp_" + "zQ81mfYYxpLmnd83nAk3ncsOxzAAb26d4Klp"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nxyz\n-----END RSA PRIVATE KEY-----\n"


def searching(passed: Mapping[str, bytes] | None = None, **bounds: float) -> Search:
    """Begin a search for one decoy of run r1."""
    return Search(spotter_of([("r1", "aws", DECOY)]), passed or {}, bounds=Bounds(**bounds))


def found(top: Path, search: Search, *names: str) -> list[Hit]:
    """Search some files of a directory, all without names."""
    listed = names or tuple(sorted(os.listdir(top)))  # noqa: PTH208 - names
    with Tree(top) as tree:
        return list(search.run(tree, map(os.fsencode, listed)))


def test_a_decoy_is_found_in_any_form_with_its_run(tmp_path: Path) -> None:
    """Plain and encoded; the form is told."""
    (tmp_path / "a").write_bytes(b"key = " + DECOY)
    (tmp_path / "b").write_bytes(base64.b64encode(b"x" + DECOY))
    (tmp_path / "c").write_bytes(b"nothing")
    hits = found(tmp_path, searching())
    assert [(hit.name, hit.run, hit.form, hit.encoding) for hit in hits] == [
        (b"a", "r1", "aws", "plain"),
        (b"b", "r1", "aws", "base64"),
    ]


def test_a_passed_credential_that_was_kept_is_found_by_name_and_line(tmp_path: Path) -> None:
    """Also a short one, and not a second time for what it looks like."""
    (tmp_path / "a").write_text(f"\n\nt = {TOKEN}\n")
    (tmp_path / "b").write_text("pw=hunter2")
    hits = found(tmp_path, searching({"GH": TOKEN.encode(), "PW": b"hunter2"}))
    told = [(hit.name, hit.sort, hit.line, hit.passed) for hit in hits]
    assert told == [(b"a", "GH", 3, True), (b"b", "PW", 1, True)]


@pytest.mark.parametrize(
    ("text", "sort", "value"),
    [
        (f"token: {TOKEN}", "GitHub Token", TOKEN),
        ("id = AKIAQ3EGRTOJQXYZ2345", "AWS Access Key", "AKIAQ3EGRTOJQXYZ2345"),
        (KEY, "Private Key", KEY.rstrip("\n")),
        ("u = postgres://me:s3cr3t-pass-1@db/x", "Basic Auth Credentials", "s3cr3t-pass-1"),
        (f"{TOKEN}  # pragma: allowlist secret", "GitHub Token", TOKEN),
    ],
    ids=["github", "aws", "key", "url", "allowlisted"],
)
def test_what_looks_like_a_credential_is_found_whole(text: str, sort: str, value: str) -> None:
    """The value is all of it, so that its fingerprint means it; a comment that asks for silence is not heard."""
    (look,) = find_looks(f"first\n{text}\n".encode())
    assert (look.sort, look.line, look.value) == (sort, 2, value.encode())


@pytest.mark.parametrize(
    "text",
    ["import os\n", "password = input()\n", "https://example.test/a:b@c\n", "task-runner sk-1\n", "PRIVATE KEYS\n"],
)
def test_ordinary_text_looks_like_none(text: str) -> None:
    """Code that talks of credentials holds none."""
    assert list(find_looks(text.encode())) == []


@pytest.mark.parametrize(
    ("sort", "value"),
    [
        ("Anthropic API Key", "sk-ant-" + "api03-Zx8Qw3Er5Ty7Ui9Op1As2Df4"),
        ("OpenAI API Key", "sk-proj-" + "abcdefghijklmnopqrstuvwx0123"),
        ("Hugging Face Token", "hf_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH"),
        ("Google API Key", "AIza" + "SyA0123456789abcdefghijklmnopqrstuv"),
    ],
)
def test_keys_of_models_are_known(sort: str, value: str) -> None:
    """They are what agents are started with."""
    (look,) = find_looks(f"agent --key={value}\n".encode())
    assert (look.sort, look.value) == (sort, value.encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("host=x password=hunter2hunter2 dbname=y", "hunter2hunter2"),
        ("DB_PASSWORD='correct horse battery' psql", "correct horse battery"),
        ("curl -H 'Authorization: Bearer abcdef0123456789' x", "abcdef0123456789"),
        ("curl -H 'X-Api-Key: abcdef0123456789' x", "abcdef0123456789"),
        ("agent --api-key abcdef0123456789 run", "abcdef0123456789"),
        ("agent\n--token\nabcdef0123456789", "abcdef0123456789"),
    ],
)
def test_a_value_under_the_name_of_a_credential_is_found(text: str, value: str) -> None:
    """In a shell's words, a connection string, a header or an option."""
    assert [found for name, found in find_named(text) if holds_secret(name, "")] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "TOKEN=os.environ['X1']",
        "PASSWORD_FILE=secrets/db1.txt",
        "API_KEY=$KEY1234567",
        "API_KEY=/etc/keys/number1",
        "grep -q password out.txt1",
        "agent --max-tokens 100000000",
        "for token in tokens1234: pass",
    ],
)
def test_code_and_paths_under_such_a_name_are_no_values(text: str) -> None:
    """What is taken out of a log by mistake is evidence that nobody can read."""
    assert [found for name, found in find_named(text) if holds_secret(name, "")] == []


def test_nothing_is_read_outside_the_tree_and_nothing_but_files(tmp_path: Path) -> None:
    """Symlinks at the end and on the way, fifos, directories, names that are gone."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/secret").write_bytes(DECOY)
    top = tmp_path / "top"
    (top / "dir").mkdir(parents=True)
    (top / "link").symlink_to(tmp_path / "real/secret")
    (top / "way").symlink_to(tmp_path / "real")
    os.mkfifo(top / "fifo")
    search = searching()
    assert found(top, search, "link", "way/secret", "fifo", "dir", "gone") == []
    assert (search.files, search.left_out) == (0, 0)


def test_what_is_beyond_the_bounds_is_said_to_be_left_out(tmp_path: Path) -> None:
    """Files, bytes of one, bytes of all, time, and how much is told."""
    for name in "abcd":
        (tmp_path / name).write_bytes(b"." * 100 + DECOY)
    for bounds, seen, left in (
        ({"files": 2}, 2, 2),
        ({"file_bytes": 50}, 0, 4),
        ({"all_bytes": 200}, 2, 2),
        ({"time_s": -1.0}, 0, 4),
        ({"hits": 1}, 1, 3),
    ):
        search = searching(**bounds)
        assert len(found(tmp_path, search)) == seen, bounds
        assert search.left_out == left, bounds
        assert search.reason
