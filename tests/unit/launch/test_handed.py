"""What a descriptor that a caller hands over says of itself."""

from __future__ import annotations

import os
import pty
import socket
from pathlib import Path

import pytest

from supervisor.events import Kind
from supervisor.launch.handed import MOST_DIGESTED_BYTES, look_again, look_at, stat_device


def handed(path: Path, flags: int) -> tuple[object, ...]:
    """Open a path and tell what can be done with it."""
    fd = os.open(path, flags)
    try:
        found = look_at(fd)
    finally:
        os.close(fd)
    assert found is not None
    return found.what, found.path, found.named, found.reads, found.writes


@pytest.mark.parametrize(
    ("flags", "reads", "writes"),
    [(os.O_RDONLY, True, False), (os.O_WRONLY | os.O_APPEND, False, True), (os.O_RDWR, True, True)],
)
def test_a_file_has_a_name_and_what_it_is_open_for(tmp_path: Path, flags: int, *, reads: bool, writes: bool) -> None:
    """The name is the host's."""
    path = tmp_path / "given"
    path.write_text("x")
    assert handed(path, flags) == (Kind.FILE, bytes(path), True, reads, writes)


def test_a_file_that_was_made_anew_is_another_one(tmp_path: Path) -> None:
    """Its inode may be used again at once, the moment at which it was made is not."""
    born = set()
    for _ in range(2):
        path = tmp_path / "given"
        path.write_text("x")
        with path.open("rb") as file:
            found = look_at(file.fileno())
        assert found is not None
        assert stat_device(found.device) == path.stat().st_dev
        born.add((found.device, found.inode, found.born_ns))
        path.unlink()
    assert len(born) == 2


def test_a_file_that_lost_its_name_has_none(tmp_path: Path) -> None:
    """Another file of that name is not it; a further name of it still counts."""
    path, other = tmp_path / "given", tmp_path / "other"
    path.write_text("x")
    with path.open("rb") as file:
        os.link(path, other)
        path.unlink()
        path.write_text("y")
        found = look_at(file.fileno())
    assert found is not None
    assert (found.named, found.names, found.state) == (False, 1, None)


def test_the_state_of_a_small_file_is_kept(tmp_path: Path) -> None:
    """Of content and mode; a large file is not read, for CMD would wait."""
    path = tmp_path / "given"
    states = []
    for content, mode in (("x", 0o644), ("y", 0o644), ("x", 0o600), ("x", 0o644), ("z" * (MOST_DIGESTED_BYTES + 1), 0)):
        path.write_text(content)
        path.chmod(mode)
        with path.open("ab") as file:
            found = look_at(file.fileno())
        assert found is not None
        states.append(found.state)
    assert states[0] == states[3] is not None
    assert len({*states[:3]}) == 3
    assert states[4] is None


def test_a_position_is_told_and_not_moved(tmp_path: Path) -> None:
    """Nothing is read through the descriptor."""
    path = tmp_path / "given"
    path.write_text("one\ntwo\n")
    with path.open("rb", buffering=0) as file:
        file.seek(4)
        found = look_at(file.fileno())
        assert found is not None
        assert found.position == 4
        assert file.read() == b"two\n"
        assert look_again(file.fileno(), shared=file.fileno()).position == 8


def test_a_pipe_is_at_its_end_once_nobody_writes_and_nothing_is_left() -> None:
    """What was written before is still there to be read."""
    read, write = os.pipe()
    os.write(write, b"x")
    found = [look_at(read), look_at(write)]
    os.close(write)
    found.append(look_at(read))
    os.read(read, 1)
    found.append(look_at(read))
    os.close(read)
    assert [(one.what, one.named, one.reads, one.ended) for one in found if one is not None] == [
        (Kind.FIFO, False, True, False),
        (Kind.FIFO, False, False, False),
        (Kind.FIFO, False, True, False),
        (Kind.FIFO, False, True, True),
    ]
    assert len({one.inode for one in found if one is not None}) == 1


def test_a_fifo_has_a_name_and_a_socket_has_none(tmp_path: Path) -> None:
    """The two ends of a pair of sockets have nothing in common."""
    os.mkfifo(tmp_path / "fifo")
    assert handed(tmp_path / "fifo", os.O_RDWR) == (Kind.FIFO, bytes(tmp_path / "fifo"), True, True, True)
    one, other = socket.socketpair()
    with one, other:
        found = [look_at(one.fileno()), look_at(other.fileno())]
    assert [(end.what, end.named) for end in found if end is not None] == [(Kind.SOCKET, False)] * 2
    assert len({end.inode for end in found if end is not None}) == 2


def test_what_keeps_nothing_for_another_run_is_not_told() -> None:
    """A terminal, and ``/dev/null``."""
    master, terminal = pty.openpty()
    with Path(os.devnull).open("rb") as null:
        assert [look_at(terminal), look_at(null.fileno())] == [None, None]
    os.close(master)
    os.close(terminal)
