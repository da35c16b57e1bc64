"""Opens, reads, and what happens to names and attributes, as the kernel witness tells it."""

from __future__ import annotations

import errno
import mmap
import subprocess
from pathlib import Path

import pytest
from witness_builder import WitnessLab, witnessed

from supervisor.events import (
    Event,
    FileChanged,
    FileCreated,
    FileDeleted,
    FileLinked,
    FileMapped,
    FileOpened,
    FileRenamed,
    FileTruncated,
    Kind,
)

pytestmark = pytest.mark.kernel("witness")

IN_PLACE = "os.chdir(sys.argv[1])\n"


@pytest.mark.parametrize(
    ("act", "created", "truncates", "reads"),
    [
        ("os.close(call(2, b'f', os.O_CREAT | os.O_RDWR, 0o644))", True, False, True),
        ("os.close(call(85, b'f', 0o644))", True, True, False),
        ("os.close(os.open('f', os.O_WRONLY | os.O_CREAT | os.O_TRUNC))", True, True, False),
        ("os.close(call(437, -100, b'f', struct.pack('QQQ', 0o102, 0o644, 0), 24))", True, False, True),
    ],
)
def test_every_way_to_open_is_told(act: str, *, created: bool, truncates: bool, reads: bool, tmp_path: Path) -> None:
    """open, creat, openat and openat2 are told with the kernel's path and identity, and what they did."""
    seen = witnessed(IN_PLACE + act, tmp_path)
    opened = seen.one(FileOpened, lambda e: e.path == bytes(tmp_path / "f"))
    assert (opened.created, opened.truncates, opened.reads, opened.writes) == (created, truncates, reads, True)
    assert opened.inode == (tmp_path / "f").stat().st_ino
    assert opened.verified
    assert opened.reachable
    assert opened.what is Kind.FILE


def test_open_of_what_is_there_creates_nothing(tmp_path: Path) -> None:
    """O_CREAT on an existing file is no creation, and O_TRUNC is told as such."""
    (tmp_path / "f").write_text("x")
    seen = witnessed(IN_PLACE + "open('f', 'w').close()", tmp_path)
    (opened,) = seen.at(tmp_path / "f")
    assert isinstance(opened, FileOpened)
    assert not opened.created
    assert opened.truncates


@pytest.mark.parametrize(
    "link",
    [
        "call(265, -100, b'/proc/self/fd/%d' % fd, -100, b'named', 0x400)",
        "call(265, -100, b'/dev/fd/%d' % fd, -100, b'named', 0x400)",
        "call(265, fd, b'', -100, b'named', 0x1000)",
    ],
)
def test_named_temporary_file_is_created_then_linked(link: str, tmp_path: Path) -> None:
    """O_TMPFILE is told as a creation in its directory, the link that names it with its new name and its identity."""
    seen = witnessed(IN_PLACE + f"fd = os.open('.', os.O_TMPFILE | os.O_RDWR); {link}", tmp_path)
    made = seen.one(FileOpened, lambda e: e.created and e.path.startswith(bytes(tmp_path)))
    linked = seen.one(FileLinked)
    assert linked.new_path == bytes(tmp_path / "named")
    assert linked.verified
    assert linked.unlinked
    assert linked.path == made.path
    assert linked.inode == made.inode == (tmp_path / "named").stat().st_ino


def test_path_only_open_neither_reads_nor_hides_a_read(tmp_path: Path) -> None:
    """O_PATH is told as neither reading nor writing, and a later read of the file is told all the same."""
    (tmp_path / "f").touch()
    code = "os.open('f', os.O_PATH); os.open('f', os.O_RDONLY); os.open('f', os.O_PATH); os.open('f', os.O_RDONLY)"
    seen = witnessed(IN_PLACE + code, tmp_path)
    opened = seen.of(FileOpened, lambda e: e.path == bytes(tmp_path / "f"))
    assert [(e.reads, e.writes) for e in opened] == [(False, False), (True, False)]


def test_reads_are_told_once_for_the_whole_trial(tmp_path: Path) -> None:
    """However often and by whomever a file is opened for reading, the trial tells it once; for writing, each time."""
    (tmp_path / "f").touch()
    code = """
for _ in range(5):
    os.close(os.open('f', os.O_RDONLY)); os.close(os.open('f', os.O_WRONLY))
fork(lambda: os.open('f', os.O_RDONLY))
"""
    opened = witnessed(IN_PLACE + code, tmp_path).of(FileOpened, lambda e: e.path == bytes(tmp_path / "f"))
    assert [event.writes for event in opened] == [False, True, True, True, True, True]


def test_reads_of_files_that_came_later_are_told(tmp_path: Path) -> None:
    """Files that one after the other have the same name, and maybe the same inode number, are told apart."""
    code = """
for i in range(20):
    fork(lambda: (os.rename(f'/proc/self/cwd/in/{i}', 'f')))
    os.close(os.open('f', os.O_RDONLY))
    os.unlink('f')
"""
    (tmp_path / "in").mkdir()
    for i in range(20):
        (tmp_path / "in" / str(i)).touch()
    opened = witnessed(IN_PLACE + code, tmp_path).of(FileOpened, lambda e: e.path == bytes(tmp_path / "f"))
    assert len(opened) == 20


def test_another_trial_is_told_its_own_reads(tmp_path: Path) -> None:
    """What one trial has read is told to the next one again."""
    (tmp_path / "f").touch()
    for _ in range(2):
        assert len(witnessed(IN_PLACE + "open('f')", tmp_path).at(tmp_path / "f")) == 1


@pytest.mark.parametrize(
    ("act", "writes"),
    [
        ("call(2, b'f', os.O_RDONLY)", False),
        ("call(2, b'f', os.O_WRONLY)", True),
        ("call(85, b'f', 0o644)", True),
        ("call(257, -100, b'f', os.O_RDWR)", True),
        ("call(437, -100, b'f', struct.pack('QQQ', os.O_WRONLY, 0, 0), 24)", True),
    ],
)
def test_refused_opens_are_told_with_their_error(act: str, *, writes: bool, tmp_path: Path) -> None:
    """An open that is refused is told by name, with its errno and what it was to be for."""
    tmp_path.chmod(0o755)
    (tmp_path / "f").touch(mode=0o600)
    seen = witnessed(f"os.chdir(sys.argv[1]); os.setuid(65534); {act}", tmp_path)
    opened = seen.one(FileOpened, lambda e: e.error is not None and e.path == bytes(tmp_path / "f"))
    assert (opened.error, opened.writes) == (errno.EACCES, writes)
    assert opened.verified


def test_lookups_of_what_is_not_there_are_not_told(tmp_path: Path) -> None:
    """Opening for reading what does not exist is no event; opening it for writing is a refused attempt."""
    code = "call(2, b'none', os.O_RDONLY); call(2, b'none/x', os.O_WRONLY)"
    seen = witnessed(IN_PLACE + code, tmp_path)
    assert seen.at(tmp_path / "none") == []
    (opened,) = seen.at(tmp_path / "none" / "x")
    assert opened.error == errno.ENOENT


NAMES: list[tuple[str, type[Event], bytes, dict[str, object]]] = [
    ("os.unlink('f')", FileDeleted, b"f", {"what": Kind.UNKNOWN}),
    ("call(263, -100, b'f', 0)", FileDeleted, b"f", {}),
    ("call(84, b'd')", FileDeleted, b"d", {"what": Kind.DIRECTORY}),
    ("call(263, -100, b'd', 0x200)", FileDeleted, b"d", {"what": Kind.DIRECTORY}),
    ("os.mkdir('n')", FileCreated, b"n", {"what": Kind.DIRECTORY}),
    ("call(258, -100, b'n', 0o755)", FileCreated, b"n", {"what": Kind.DIRECTORY}),
    ("os.mkfifo('n')", FileCreated, b"n", {"what": Kind.FIFO}),
    ("os.mknod('n', 0o100644)", FileCreated, b"n", {"what": Kind.FILE}),
    ("call(259, -100, b'n', 0o20600, os.makedev(1, 3))", FileCreated, b"n", {"what": Kind.DEVICE}),
    ("os.truncate('f', 7)", FileTruncated, b"f", {"size_bytes": 7, "how": "truncate"}),
    ("os.truncate(os.open('f', os.O_RDWR), 7)", FileTruncated, b"f", {"size_bytes": 7, "how": "ftruncate"}),
    ("os.posix_fallocate(os.open('f', os.O_RDWR), 0, 9)", FileTruncated, b"f", {"how": "fallocate"}),
    ("os.chmod('f', 0o640)", FileChanged, b"f", {"attribute": "mode", "value": 0o640}),
    ("os.fchmod(os.open('f', os.O_RDONLY), 0o604)", FileChanged, b"f", {"attribute": "mode", "value": 0o604}),
    ("call(452, -100, b'f', 0o600, 0)", FileChanged, b"f", {"attribute": "mode"}),
    ("os.chown('f', 1, 2)", FileChanged, b"f", {"attribute": "owner", "value": 1}),
    ("os.lchown('f', 1, 2)", FileChanged, b"f", {"attribute": "owner"}),
    ("os.fchown(os.open('f', os.O_RDONLY), 1, 2)", FileChanged, b"f", {"attribute": "owner"}),
    ("os.setxattr('f', 'user.a', b'1')", FileChanged, b"f", {"attribute": "xattr"}),
    ("os.setxattr(os.open('f', os.O_RDONLY), 'user.a', b'1')", FileChanged, b"f", {"attribute": "xattr"}),
    ("os.utime('f', (1, 2))", FileChanged, b"f", {"attribute": "times"}),
    ("os.utime(os.open('f', os.O_RDONLY), (1, 2))", FileChanged, b"f", {"attribute": "times"}),
    ("call(235, b'f', None)", FileChanged, b"f", {"attribute": "times"}),
]


@pytest.mark.parametrize(("act", "kind", "name", "wanted"), NAMES, ids=[row[0][:40] for row in NAMES])
def test_changes_of_names_and_attributes_are_told(
    act: str, kind: type[Event], name: bytes, wanted: dict[str, object], tmp_path: Path
) -> None:
    """Each call that changes a name or an attribute is told with its path, and nothing could have changed that."""
    (tmp_path / "f").write_text("x")
    (tmp_path / "d").mkdir()
    event = witnessed(IN_PLACE + act, tmp_path).one(kind)
    assert event.path == bytes(tmp_path) + b"/" + name  # type: ignore[attr-defined]
    assert event.verified  # type: ignore[attr-defined]
    assert event.error is None  # type: ignore[attr-defined]
    assert {key: getattr(event, key) for key in wanted} == wanted


def test_refused_changes_are_told(tmp_path: Path) -> None:
    """A refused change of a name or an attribute is told with its errno."""
    tmp_path.chmod(0o755)
    (tmp_path / "f").touch()
    code = """
os.setuid(65534)
call(87, b'f'); call(82, b'f', b'g'); call(90, b'f', 0o777); call(83, b'n', 0o755); call(76, b'f', 0)
"""
    seen = witnessed(IN_PLACE + code, tmp_path)
    kinds = (FileDeleted, FileRenamed, FileChanged, FileCreated, FileTruncated)
    assert [seen.one(kind).error for kind in kinds] == [
        errno.EACCES, errno.EACCES, errno.EPERM, errno.EACCES, errno.EACCES,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("act", "exchange"),
    [
        ("os.rename('f', 'd/g')", False),
        ("call(264, -100, b'f', os.open('d', os.O_PATH), b'g')", False),
        ("open('d/g', 'w').close(); call(316, -100, b'f', -100, b'd/g', 2)", True),
    ],
)
def test_renames_are_told_with_both_names(act: str, *, exchange: bool, tmp_path: Path) -> None:
    """rename, renameat and an exchange name where it came from and where it went."""
    (tmp_path / "f").touch()
    (tmp_path / "d").mkdir()
    renamed = witnessed(IN_PLACE + act, tmp_path).one(FileRenamed)
    assert (renamed.path, renamed.new_path) == (bytes(tmp_path / "f"), bytes(tmp_path / "d" / "g"))
    assert renamed.exchange is exchange
    assert renamed.verified


@pytest.mark.parametrize("act", ["os.link('f', 'g')", "call(265, -100, b'f', os.open('.', os.O_RDONLY), b'g', 0)"])
def test_links_are_told_with_both_names(act: str, tmp_path: Path) -> None:
    """A hard link names the file and its new name."""
    (tmp_path / "f").touch()
    linked = witnessed(IN_PLACE + act, tmp_path).one(FileLinked)
    assert (linked.path, linked.new_path) == (bytes(tmp_path / "f"), bytes(tmp_path / "g"))
    assert not linked.symbolic


def test_link_by_descriptor_alone_names_the_file(tmp_path: Path) -> None:
    """A linkat with AT_EMPTY_PATH is told with the path of the descriptor's file."""
    (tmp_path / "f").touch()
    linked = witnessed(IN_PLACE + "call(265, os.open('f', 0), b'', -100, b'g', 0x1000)", tmp_path).one(FileLinked)
    assert (linked.path, linked.new_path) == (bytes(tmp_path / "f"), bytes(tmp_path / "g"))


@pytest.mark.parametrize("act", ["os.symlink('../x/./y', 'l')", "call(266, b'../x/./y', -100, b'l')"])
def test_symlinks_are_told_with_their_text(act: str, tmp_path: Path) -> None:
    """A symlink's text is told as it was given, where it stands as a path."""
    linked = witnessed(IN_PLACE + act, tmp_path).one(FileLinked)
    assert (linked.path, linked.new_path, linked.symbolic) == (b"../x/./y", bytes(tmp_path / "l"), True)


def test_attributes_by_descriptor_of_an_unlinked_file(tmp_path: Path) -> None:
    """A file that has no name any more is told with its last one."""
    code = "fd = os.open('f', os.O_CREAT | os.O_RDWR); os.unlink('f'); os.fchmod(fd, 0o600)"
    changed = witnessed(IN_PLACE + code, tmp_path).one(FileChanged)
    assert changed.path == bytes(tmp_path / "f")


def test_shared_writable_mapping_is_told_even_when_it_cannot_be_written_yet(tmp_path: Path) -> None:
    """A shared mapping of a file open for writing is told, also a read-only one: mprotect can open it later."""
    (tmp_path / "f").write_bytes(b"x" * 4096)
    code = """
sys.path.append(sys.argv[2])
import mmap
fd = os.open('f', os.O_RDWR)
mmap.mmap(fd, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE)
mmap.mmap(os.open('f', os.O_RDONLY), 4096, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
"""
    mapped = witnessed(IN_PLACE + code, tmp_path, Path(mmap.__file__).parent).one(FileMapped)
    assert (mapped.path, mapped.size_bytes) == (bytes(tmp_path / "f"), 4096)


def test_failed_mapping_is_not_told(tmp_path: Path) -> None:
    """A mapping that the kernel refused is no mapping."""
    (tmp_path / "f").touch()
    code = "fd = os.open('f', os.O_RDWR); print(call(9, 0, 0, 3, 1, fd, 0), call(9, 0, 4096, 3, 1, 99, 0))"
    assert witnessed(IN_PLACE + code, tmp_path).of(FileMapped) == []


def test_reopened_descriptor_is_an_open_of_its_file(tmp_path: Path) -> None:
    """Opening /proc/self/fd/N is told with the file's own path."""
    (tmp_path / "f").touch()
    code = "fd = os.open('f', os.O_RDONLY); os.open(f'/proc/self/fd/{fd}', os.O_RDWR)"
    opened = witnessed(IN_PLACE + code, tmp_path).of(FileOpened, lambda e: e.path == bytes(tmp_path / "f"))
    assert [event.writes for event in opened] == [False, True]


def test_memory_of_a_process_is_opened_like_a_file() -> None:
    """/proc/PID/mem opened for writing is told as an open."""
    seen = witnessed("os.open('/proc/self/mem', os.O_RDWR); print(os.getpid())")
    assert seen.one(FileOpened, lambda e: e.path == f"/proc/{seen.out.strip()}/mem".encode()).writes


def test_files_of_others_are_not_told(tmp_path: Path) -> None:
    """What a process outside the trial does meanwhile is not told."""
    with WitnessLab() as lab:
        process = lab.python("time.sleep(0.2)")
        subprocess.run(["/bin/sh", "-c", 'echo x > "$0/outside"; rm "$0/outside"', tmp_path], check=True)
        seen = lab.finish(process)
    assert seen.at(tmp_path / "outside") == []
