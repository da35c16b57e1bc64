"""What counts as code that a grader ran, and what it said: pure, from words, paths and output."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.evidence.graders.grader_code import loaded, scripts
from supervisor.evidence.graders.grader_words import Words, read_words


@pytest.mark.parametrize(
    ("exe", "words", "code"),
    [
        (b"/bin/sh", b"sh run.sh", b"run.sh"),
        (b"/bin/bash", b"bash -e ./run.sh", b"./run.sh"),
        (b"/bin/bash", b"bash -xeo pipefail run.sh", b"run.sh"),
        (b"/bin/bash", b"bash -- run.sh", b"run.sh"),
        (b"/bin/bash", b"bash --rcfile rc -i", b"rc"),
        (b"/bin/sh", b"sh -ec run.sh", None),
        (b"/usr/bin/python3.11", b"python3 -W ignore run.py", b"run.py"),
        (b"/usr/bin/python3.11", b"python3 -Wignore -X dev run.py out.py", b"run.py"),
        (b"/usr/bin/python3.11", b"python3 -Im pytest tests", None),
        (b"/usr/bin/python3.11", b"python3 /reference/check.py out.py", b"/reference/check.py"),
        (b"/usr/bin/perl", b"perl -I lib run.pl", b"run.pl"),
        (b"/usr/bin/perl", b"perl -ne print notes", None),
        (b"/bin/busybox", b"busybox sh run.sh", b"run.sh"),
        (b"/usr/bin/mawk", b"awk -f run.awk notes", b"run.awk"),
        (b"/usr/bin/mawk", b"awk {print} notes", None),
        (b"/bin/sed", b"sed -n -f edit.sed notes", b"edit.sed"),
        (b"/bin/grep", b"grep -f words notes", None),
    ],
)
def test_what_an_interpreter_is_started_with_is_code(exe: bytes, words: bytes, code: bytes | None) -> None:
    """Whatever options stand before it; data after it, and programs among the words themselves, are none."""
    assert list(scripts(exe, words.split())) == ([] if code is None else [code])


@pytest.mark.parametrize(
    ("exe", "path", "opened", "code"),
    [
        (b"/usr/bin/python3", b"/w/__pycache__/json.cpython-311.pyc", False, [b"/w/json.py"]),
        (b"/usr/bin/python3", b"/w/__pycache__/conftest.cpython-311-pytest-8.2.pyc", False, [b"/w/conftest.py"]),
        (
            b"/usr/bin/python3",
            b"/w/__pycache__/a.cpython-311.pyc",
            True,
            [b"/w/a.py", b"/w/__pycache__/a.cpython-311.pyc"],
        ),
        (b"/usr/bin/python3", b"/w/json.py", True, []),
        (b"/usr/bin/python3", b"/w/_speedups.so", True, [b"/w/_speedups.so"]),
        (b"/usr/bin/nm", b"/w/_speedups.so", True, []),
        (b"/usr/bin/make", b"/w/Makefile", True, [b"/w/Makefile"]),
        (b"/usr/bin/make", b"/w/Makefile", False, []),
        (b"/bin/grep", b"/w/Makefile", True, []),
        (b"/usr/bin/git", b"/w/.git/config", True, [b"/w/.git/config"]),
    ],
)
def test_what_a_program_loads_by_itself_is_code(exe: bytes, path: bytes, *, opened: bool, code: list[bytes]) -> None:
    """A module is told from a text by the look for its compiled form; a makefile is code to make alone."""
    assert list(loaded(exe, path, opened=opened)) == code


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (b'{"passed": true, "reason": "so"}', Words(passed=True, reason="so", said='{"passed": true, "reason": "so"}')),
        (b'looking\n{\n "passed": false\n}\n', Words(passed=False, said='{"passed": false}')),
        (b'{"passed": "yes"}', Words(said='{"passed": "yes"}')),
        (b'{"passed": 1, "reason": "\\ud800"}', Words(reason="\ufffd", said='{"passed": 1, "reason": "\\ud800"}')),
        (b"[" * 60_000, Words()),
        (b'{"a":' * 60_000, Words()),
        (b"fine", Words()),
    ],
)  # fmt: skip
def test_what_a_grader_says_in_json(printed: bytes, words: Words) -> None:
    """All that it printed, the last line or the last lines; nothing that can be printed is too much to read."""
    assert read_words(printed, cut=False) == words


def test_a_verdict_that_was_cut_off_is_not_taken_for_silence() -> None:
    """The end of an object whose beginning was not kept may have said anything; the end of a text said nothing."""
    assert read_words(b'aaaa"}\n', cut=True).unread
    assert not read_words(b"aaaa", cut=True).unread
    assert not read_words(b'aaaa\n{"passed": true}', cut=True).unread


@given(before=st.binary(max_size=200), passed=st.booleans(), cut=st.booleans())
def test_a_verdict_is_found_behind_whatever_was_printed(before: bytes, *, passed: bool, cut: bool) -> None:
    """What the trial wrote, printed first, hides no verdict."""
    found = read_words(before + b"\n" + json.dumps({"passed": passed}).encode(), cut=cut)
    assert found.passed is passed
