"""Standard streams between runs: pipes, and files by other names. In: the heads of indexes; out: findings.

What two runs know by one path is told by their contacts. Here are a pipe or a socket that both were given, a file that
has another name by now, or none, and how far one had read in a file that the other reads on in.

The laws:

1. Two streams are one by device, inode and the moment at which it was made. Where that is not kept, and for pipes and
   sockets, it is the boot of the machine beside device and inode.
2. Who could write to a pipe or a file could change whoever was given it to read from, unless that one had ended before
   he began. Two who only write to one have met nothing.
3. What is read from a pipe or a socket is gone: of two that were given it to read from, either may have kept something
   from the other. Whether they did is not witnessed.
4. A position is shared by whoever has the same open file. Who begins at the beginning has none of another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supervisor.evidence.naming import show
from supervisor.verdict.runs.findings import Finding
from supervisor.verdict.runs.run_index import RunIndex, Stream

_FILE, _SOCKET = "file", "socket"


def stream_meetings(heads: Sequence[RunIndex], one: int, other: int) -> Iterator[Finding]:
    """Give what the streams of two runs say of them, each thing once."""
    told: set[tuple[str, bytes, int]] = set()
    for cause, effect in ((one, other), (other, one)):
        for mine in heads[cause].streams or ():
            for theirs in heads[effect].streams or ():
                if identity(heads[cause], mine) != identity(heads[effect], theirs):
                    continue
                found = _finding(heads, (cause, mine), (effect, theirs))
                if found is not None and (key := (found.rule, mine.path, cause)) not in told:
                    told.add(key)
                    yield found


def stream_keys(head: RunIndex) -> Iterator[tuple[str, bool, bool]]:
    """Give keys under which streams of runs may meet, and whether this one makes others meet it, and meets others."""
    for one in head.streams or ():
        name = identity(head, one)
        if one.what != _SOCKET:
            yield f"write {name}", one.writes, one.reads
        if _takes(one):
            yield f"take {name}", True, True
        if one.what == _FILE and one.reads:
            yield f"read on {name}", _moved(one), bool(one.start)


def identity(head: RunIndex, stream: Stream) -> str:
    """Give what is the same for two runs that were given the same thing."""
    when = str(stream.born_ns) if stream.born_ns else head.boot
    return f"{stream.what} {stream.device}:{stream.inode} {when}"


def _finding(heads: Sequence[RunIndex], cause: tuple[int, Stream], effect: tuple[int, Stream]) -> Finding | None:
    (one, mine), (other, theirs) = cause, effect
    earlier, later = heads[one], heads[other]
    in_time = earlier.released_ns < later.ended_ns
    if in_time and mine.writes and theirs.reads and mine.what != _SOCKET and not _told_by_path(mine, theirs):
        text = f"{earlier.run} was given {show(mine.path)} to write to, and {later.run} was given it to read from"
        renamed = "" if mine.path == theirs.path else f", as {show(theirs.path)}"
        return _made(heads, cause, effect, "connected", "met-a-stream", text + renamed)
    if one < other and _takes(mine) and _takes(theirs):
        text = (
            f"{earlier.run} and {later.run} were both given {show(mine.path)} to read from, and what one took the "
            "other did not get: what was taken is not witnessed"
        )
        return _made(heads, cause, effect, "unresolved", "read-from-one-stream", text)
    if in_time and mine.what == _FILE and _moved(mine) and theirs.reads and theirs.start:
        text = (
            f"{later.run} began to read {show(theirs.path)} at byte {theirs.start}, and {earlier.run}, which was given "
            "it too, read on in it: the one may have gone on where the other stopped"
        )
        return _made(heads, cause, effect, "unresolved", "read-on", text)
    return None


def _told_by_path(one: Stream, other: Stream) -> bool:
    """Tell whether both have the same name: then their contacts tell it, and what was there in between."""
    return one.named and other.named and one.path == other.path


def _takes(stream: Stream) -> bool:
    return stream.what != _FILE and stream.reads and not stream.ended


def _moved(stream: Stream) -> bool:
    return stream.reads and stream.reached is not None and stream.reached != stream.start


def _made(
    heads: Sequence[RunIndex],
    cause: tuple[int, Stream],
    effect: tuple[int, Stream],
    verdict: str,
    rule: str,
    text: str,
) -> Finding:
    return Finding(
        runs=(cause[0], effect[0]),
        verdict=verdict,
        rule=rule,
        text=text,
        events=tuple(f"{heads[run].run}:{n}" for run, stream in (cause, effect) for n in stream.events),
    )
