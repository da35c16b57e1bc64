"""Names that share a file, against a directory of inodes as a file system keeps one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.evidence.file_facts import SharedNames
from supervisor.evidence.paths.aliases import Aliases

NAMES = [bytes([letter]) for letter in b"abcde"]
ACTS = st.tuples(st.sampled_from(["create", "link", "remove", "move", "exchange"]), *[st.integers(0, 4)] * 2)


def number(name: bytes) -> int:
    """Number the names as a fold would."""
    return NAMES.index(name)


def others(inodes: dict[int, int], name: int) -> tuple[int, ...]:
    """Give the other names of an inode."""
    return tuple(other for other in sorted(inodes) if other != name and inodes[other] == inodes[name])


@given(shared=st.lists(st.integers(0, 2), min_size=5, max_size=5), acts=st.lists(ACTS, max_size=30))
def test_the_names_of_a_file_are_those_that_a_file_system_has(
    shared: list[int], acts: list[tuple[str, int, int]]
) -> None:
    """Whatever is made, linked, removed, moved and exchanged, the other names of each file are known."""
    inodes = dict(enumerate(shared))
    groups = [tuple(NAMES[name] for name in inodes if inodes[name] == inode) for inode in set(shared)]
    aliases = Aliases(SharedNames(before=tuple(group for group in groups if len(group) > 1)), number)
    for turn, (act, one, two) in enumerate(acts):
        if act == "create":
            inodes[one] = 100 + turn
            aliases.drop(one)
        elif act == "link" and one in inodes and two not in inodes:
            inodes[two] = inodes[one]
            aliases.link(one, two, lambda _: True)
        elif act == "remove" and one in inodes:
            left = others(inodes, one)
            del inodes[one]
            aliases.drop(one)
            if left:
                assert aliases.others(one, gone=True) == left
        elif act == "move" and one in inodes and one != two:
            if inodes.get(two) != inodes[one]:
                inodes[two] = inodes.pop(one)
            aliases.move(one, two)
        elif act == "exchange" and one in inodes and two in inodes:
            inodes[one], inodes[two] = inodes[two], inodes[one]
            aliases.exchange(one, two)
        for name in inodes:
            assert aliases.others(name) == others(inodes, name)


def test_the_disk_adds_the_name_that_a_link_did_not_say() -> None:
    """Two names that share a file at the end were joined when the later one was linked, whatever name the call gave."""
    aliases = Aliases(SharedNames(after=((b"a", b"b", b"c"),)), number)
    aliases.link(number(b"d"), number(b"b"), lambda name: name == number(b"a"))
    assert aliases.others(number(b"a")) == (number(b"b"), number(b"d"))
    assert aliases.others(number(b"c")) == ()
