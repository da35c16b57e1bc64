"""The system call filter as data and as a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.launch import seccomp


def test_names_have_the_kernels_numbers() -> None:
    """The refused calls are shared with others by number; those known everywhere are there."""
    numbers = seccomp.refused()
    assert (numbers["io_uring_setup"], numbers["pidfd_getfd"], numbers["mount_setattr"]) == (425, 438, 442)
    assert len(set(numbers.values())) == len(numbers)
    assert set(numbers) <= set(seccomp.REFUSED_NAMES)


def test_the_program_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached program is taken as it is, and a change of the rules is another program."""
    first = seccomp.load_filter(tmp_path / "cache")
    assert len(first) % 8 == 0
    monkeypatch.setattr(seccomp, "compile_filter", lambda **_: b"compiled")
    assert seccomp.load_filter(tmp_path / "cache") == first
    monkeypatch.setattr(seccomp, "CONDITIONAL", ())
    assert seccomp.load_filter(tmp_path / "cache") == b"compiled"
    assert seccomp.load_filter(None) == b"compiled"


def test_plain_copies_are_a_program_of_their_own(tmp_path: Path) -> None:
    """Both are kept side by side, and neither is taken for the other."""
    plain = seccomp.load_filter(tmp_path, plain_copies=True)
    assert plain != seccomp.load_filter(tmp_path)
    assert plain == seccomp.load_filter(tmp_path, plain_copies=True) == seccomp.compile_filter(plain_copies=True)


def test_only_families_with_a_namespace_are_allowed() -> None:
    """Every address family but unix, inet, inet6 and netlink has a rule, and so has everything above the last."""
    rules = [rule for rule in seccomp.CONDITIONAL if rule.name == "socket"]
    assert {rule.value for rule in rules if not rule.at_least} == set(range(46)) - {1, 2, 10, 16}
    assert [rule.value for rule in rules if rule.at_least] == [46]
