"""Where a name may have led: through links that the trial made, and through those of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from supervisor.evidence.paths.leading import Leading


def leading(host: Mapping[bytes, bytes] | None = None) -> Leading:
    """Give a follower over some symlinks of the host."""
    links = host or {}
    return Leading(lambda paths: {path: links[path] for path in paths if path in links})


def test_a_name_without_links_is_itself() -> None:
    """Nothing is made up."""
    assert leading().follow(b"/a/b") == ((b"/a/b",), True)


def test_links_of_the_host_are_followed_wherever_they_stand() -> None:
    """Absolute and relative ones, in the middle and at the end, one after the other."""
    found, known = leading({b"/a": b"/b", b"/b/c": b"../d", b"/d/e": b"f"}).follow(b"/a/c/e")
    assert found[-1] == b"/d/f"
    assert known


def test_a_link_that_the_trial_made_may_have_been_there_or_not() -> None:
    """Both meanings are given, also when the host has one further down."""
    follower = leading({b"/w/x/y": b"/host"})
    follower.made(b"/w/x", b"/shared")
    assert set(follower.follow(b"/w/x/y")[0]) == {b"/w/x/y", b"/shared/y", b"/host"}


def test_a_link_is_still_known_after_its_directory_was_renamed() -> None:
    """A rename takes along what lies below."""
    follower = leading()
    follower.made(b"/w/one/link", b"/shared")
    follower.moved(b"/w/one", b"/w/two")
    assert b"/shared/f" in follower.follow(b"/w/two/link/f")[0]


def test_a_link_of_the_host_is_known_after_its_directory_was_renamed() -> None:
    """It lies at the new name then, once or several times removed; what was there may be asked for later only."""
    follower = leading({b"/w/one/link": b"/shared"})
    follower.moved(b"/w/one", b"/w/two")
    follower.moved(b"/w/two", b"/three")
    follower.ask([b"/three/link/f"])
    found, known = follower.follow(b"/three/link/f")
    assert b"/shared/f" in found
    assert known
    assert b"/shared/f" not in follower.follow(b"/four/link/f")[0]


def test_a_link_that_went_away_may_have_been_there_or_not() -> None:
    """Both meanings are given: that of the link, and that of what came into its place."""
    follower = leading({b"/w/x": b"/shared", b"/w/x/y": b"/host"})
    follower.moved(b"/w/x", b"/elsewhere")
    assert set(follower.follow(b"/w/x/y")[0]) == {b"/w/x/y", b"/shared/y", b"/host"}


def test_directories_that_go_round_and_round_have_the_names_that_they_had() -> None:
    """A rename was done once, and what it brought had been moved before that: names do not grow for ever."""
    follower = leading({b"/t/q/f": b"/shared"})
    for _ in range(20):
        follower.moved(b"/b/x", b"/t")
        follower.moved(b"/t/q", b"/b")
    found, known = follower.follow(b"/b/f")
    assert known
    assert b"/shared" in found
    assert len(follower.names_of(b"/b/f")[0]) == 41


def test_whoever_renames_without_end_gets_no_answer_but_that_there_is_none() -> None:
    """It costs a few seconds in all, and not a few for each question."""
    follower = leading()
    for _ in range(5000):
        follower.moved(b"/b/x", b"/t")
        follower.moved(b"/t/q", b"/b")
    assert {follower.follow(b"/b/%d" % number)[1] for number in range(1000)} == {False}


def test_more_names_than_can_be_followed_are_said_to_be_more() -> None:
    """A file that is saved over and over by renames had the names of all that came there."""
    follower = leading()
    for number in range(100):
        follower.moved(b"/w/tmp%d" % number, b"/w/out")
    assert len(follower.names_of(b"/w/out")[0]) == 101
    assert follower.follow(b"/w/out")[1] is True
    for number in range(30_000):
        follower.moved(b"/w/tmp%d" % number, b"/w/out")
    assert follower.follow(b"/w/out")[1] is False


def test_what_proc_calls_the_root_is_the_root_and_the_rest_is_not_known() -> None:
    """/proc/PID/root leads to the box's own root; cwd and fd lead wherever that process was."""
    assert leading().follow(b"/proc/self/root/shared/x") == ((b"/proc/self/root/shared/x", b"/shared/x"), True)
    assert leading().follow(b"/proc/17/task/18/root/shared")[0][-1] == b"/shared"
    for magic in (b"cwd/x", b"fd/3/x", b"exe"):
        assert leading().follow(b"/proc/self/" + magic)[1] is False
    assert leading().follow(b"/proc/self/status") == ((b"/proc/self/status",), True)


def test_a_ring_of_links_ends() -> None:
    """Links that lead to each other are followed once each; what grows for ever is said to be not known."""
    assert set(leading({b"/a": b"/b", b"/b": b"/a"}).follow(b"/a/x")[0]) == {b"/a/x", b"/b/x"}
    assert leading({b"/a": b"/a/a"}).follow(b"/a/x")[1] is False


@given(
    links=st.dictionaries(
        st.sampled_from([b"/a", b"/a/b", b"/b", b"/c"]), st.sampled_from([b"/a", b"b", b"../c", b"/"])
    ),
    path=st.sampled_from([b"/a/b/c", b"/b/b", b"/c/a/b"]),
)
def test_following_always_ends_and_keeps_the_name(links: Mapping[bytes, bytes], path: bytes) -> None:
    """Whatever the links, an answer comes, absolute paths only, the name itself first."""
    found, _ = leading(links).follow(path)
    assert found[0] == path
    assert all(one.startswith(b"/") for one in found)


def test_the_host_is_asked_once_for_each_path() -> None:
    """A million look-ups in one directory ask about its parents once."""
    asked: list[bytes] = []

    def links(paths: Sequence[bytes]) -> Mapping[bytes, bytes]:
        asked.extend(paths)
        return {}

    follower = Leading(links)
    follower.ask([b"/a/b/c", b"/a/b/d"])
    follower.follow(b"/a/b/c")
    follower.follow(b"/a/b/d")
    assert sorted(asked) == [b"/a", b"/a/b", b"/a/b/c", b"/a/b/d"]
