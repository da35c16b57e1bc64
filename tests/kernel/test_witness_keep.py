"""What is written is kept as it was in the writer's memory: the beginning of each burst, where it was asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from witness_builder import Seen, WitnessLab, witnessed

from supervisor.events import FileKept, FileWritten

pytestmark = pytest.mark.kernel("witness")

SCRIPT = """
from pathlib import Path
top = Path(sys.argv[1])
def fd(name): return os.open(top / name, os.O_RDWR | os.O_CREAT)
a = fd("bursts")
for part in (b"one ", b"two ", b"x" * 5000, b"not kept"):
    os.write(a, part)
os.close(a)
a = fd("bursts")
os.write(a, b"again")
os.close(a)
b = fd("places")
os.pwrite(b, b"far", 4096)
os.writev(b, [b"vec", b"", b"tor"])
os.pwritev(b, [b"p", b"q"], 70000)
c = fd("copy")
os.copy_file_range(b, c, 6, 0, 0)
os.copy_file_range(b, c, 6, 0, 6)
r, w = os.pipe()
os.write(w, b"pipes hold no content")
def held():
    held.go = True
    while held.go: pass
thread = threading.Thread(target=held)
thread.start()
d = fd("threads")
os.write(d, b"shared")
held.go = False
thread.join()
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Watch one program that writes in every way, with its content kept."""
    place = tmp_path_factory.mktemp("kept")
    with WitnessLab() as lab:
        lab.witness.keep_content(place.stat().st_dev)
        found = lab.finish(lab.python(SCRIPT, place))
        assert lab.counters().losses == ()
        assert not found.err, found.err
        return found


def kept(seen: Seen, name: str) -> list[FileKept]:
    """Give what was kept of one file."""
    return seen.of(FileKept, lambda event: event.path.endswith(b"/" + name.encode()))


def test_the_beginning_of_each_burst_is_kept(seen: Seen) -> None:
    """4 KiB in all, in as many events as it took; what comes after a close is a burst of its own."""
    told = kept(seen, "bursts")
    assert [(event.content, event.offset, event.size_bytes) for event in told] == [
        (b"one ", 0, 4),
        (b"two ", 4, 4),
        (b"x" * 4088, 8, 5000),
        (b"again", 0, 5),
    ]
    assert all(event.verified and event.inode for event in told)


def test_vectors_and_places_are_followed(seen: Seen) -> None:
    """Pieces are put together, and the offset is the one that the call named, or that the file had."""
    told = [(event.content, event.offset, event.how.rstrip("2")) for event in kept(seen, "places")]  # as libc has it
    assert told == [(b"far", 4096, "pwrite64"), (b"vector", 0, "writev"), (b"pq", 70000, "pwritev")]


def test_what_moves_inside_the_kernel_is_told_without_content(seen: Seen) -> None:
    """Once a burst: nobody's memory held it."""
    assert [(event.content, event.size_bytes, event.how) for event in kept(seen, "copy")] == [
        (b"", 6, "copy_file_range")
    ]


def test_memory_that_others_share_is_not_verified(seen: Seen) -> None:
    """Another thread could have changed it between the call and our look."""
    assert [(event.content, event.verified) for event in kept(seen, "threads")] == [(b"shared", False)]


def test_only_files_of_that_file_system_are_kept(seen: Seen) -> None:
    """A pipe is none."""
    assert {event.path.rpartition(b"/")[2] for event in seen.of(FileKept)} == {
        b"bursts",
        b"places",
        b"copy",
        b"threads",
    }


def test_nothing_is_kept_unless_it_was_asked_for(tmp_path: Path) -> None:
    """The same writes are told, their content is not."""
    found = witnessed(SCRIPT, tmp_path)
    assert found.of(FileWritten)
    assert not found.of(FileKept)


def test_another_file_system_is_not_kept(tmp_path: Path) -> None:
    """The device that was named decides."""
    with WitnessLab() as lab:
        lab.witness.keep_content(os.makedev(0, 1 << 19))
        found = lab.finish(lab.python(SCRIPT, tmp_path))
    assert found.of(FileWritten)
    assert not found.of(FileKept)


def test_a_boundary_begins_a_new_burst(tmp_path: Path) -> None:
    """What is written after it is kept again, through the same descriptor."""
    code = "f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT); os.write(f, b'x' * 5000); print(flush=True)\n"
    code += "sys.stdin.readline(); os.write(f, b'after')"
    with WitnessLab() as lab:
        lab.witness.keep_content(tmp_path.stat().st_dev)
        read, write = os.pipe()
        process = lab.python("os.dup2(int(sys.argv[2]), 0)\n" + code, tmp_path / "a", str(read), pass_fds=(read,))
        assert process.stdout is not None
        process.stdout.readline()
        lab.witness.next_epoch()
        os.write(write, b"\n")
        found = lab.finish(process)
        os.close(read)
        os.close(write)
    assert [event.content for event in found.of(FileKept)] == [b"x" * 4096, b"after"]
