"""Indexes of runs as files: those of earlier versions are read, and mean no more than they can."""

from __future__ import annotations

from pathlib import Path

from supervisor.verdict.runs.pairs import separate_pairs
from supervisor.verdict.runs.run_index import Contact, RunIndex, Stream, decode_index, encode_index

DATA = Path(__file__).resolve().parents[2] / "data" / "run-index-v1"


def test_an_index_from_before_streams_is_read_and_proves_nothing_of_them() -> None:
    """All else of it is there; with any other run it is unresolved, because any file may have been redirected."""
    old = decode_index((DATA / "before-streams.msgpack").read_bytes())
    assert (old.run, old.released_ns, old.ended_ns) == ("20261130-112936-b6ay72", 10, 30)
    assert old.contacts[0] == Contact(
        b"/srv/board/note", "changed", 15, 20, (161,), None, "one", "two", (5, 20), given=False
    )
    assert [len(part) for part in (old.found, old.left, old.staged, old.servers, old.secrets, old.locks)] == [1] * 6
    other = RunIndex(run="other", released_ns=100, ended_ns=110, workspace=b"/elsewhere")
    (edge,) = separate_pairs((old, other), lambda: (old, other)).edges
    assert (edge.verdict, edge.reasons[0].rule) == ("unresolved", "streams-not-told")


def test_an_index_that_tells_streams_is_read_as_it_was_written() -> None:
    """Also when there were none: then nothing was redirected."""
    stream = Stream(0, "file", b"/srv/in", True, 1, 2, 3, True, False, start=4, reached=5, events=(6,))  # noqa: FBT003
    for streams in ((), (stream,)):
        index = RunIndex(run="a", boot="b", streams=streams)
        assert decode_index(encode_index(index)) == index
