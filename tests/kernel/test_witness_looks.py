"""Reads, listings and look-ups of watched places, which the kernel witness tells only where it was asked to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from witness_builder import Seen, WitnessLab, compile_c

from probes.kernel import abi, libbpf, pins
from probes.kernel.watching import Looks
from supervisor.events import FileEvent, FileListed, FileLookedUp, FileMapped, FileOpened, FileRead
from supervisor.launch.view.mounts import mount_of, read_mounts

pytestmark = pytest.mark.kernel("witness")

DOORS = r"""
import fcntl, mmap
os.chdir(sys.argv[1])
def act(name, number, *arguments): print(name, call(number, *arguments))
fd = os.open('read', os.O_RDONLY)
for again in range(2):
    os.read(os.open('again', os.O_RDONLY), 1)
os.read(fd, 1); os.pread(os.open('pread', os.O_RDONLY), 1, 0); os.readv(os.open('readv', os.O_RDONLY), [bytearray(1)])
os.preadv(os.open('preadv', os.O_RDONLY), [bytearray(1)], 0)
os.lseek(os.open('lseek', os.O_RDONLY), 0, 2)
os.sendfile(os.open('/dev/null', os.O_WRONLY), os.open('sendfile', os.O_RDONLY), 0, 1)
os.copy_file_range(os.open('copied', os.O_RDONLY), os.open('copy', os.O_WRONLY | os.O_CREAT), 1)
r, w = os.pipe(); os.splice(os.open('splice', os.O_RDONLY), w, 1)
mmap.mmap(os.open('mapped', os.O_RDONLY), 1, mmap.MAP_PRIVATE, mmap.PROT_READ)
os.fstat(os.open('fstat', os.O_RDONLY))
fcntl.flock(os.open('flock', os.O_RDONLY), fcntl.LOCK_SH)
fcntl.lockf(os.open('lockf', os.O_RDWR), fcntl.LOCK_EX)
os.listdir('directory')
place = ctypes.create_string_buffer(4096)
at = -100
for number, name in ((4, 'stat'), (6, 'lstat')): act(name, number, name.encode(), place)
act('newfstatat', 262, at, b'newfstatat', place, 0)
act('statx', 332, at, b'statx', 0, 0x7ff, place)
act('access', 21, b'access', 4); act('faccessat', 269, at, b'faccessat', 4, 0)
act('faccessat2', 439, at, b'faccessat2', 4, 0)
act('readlink', 89, b'readlink', place, 100); act('readlinkat', 267, at, b'readlinkat', place, 100)
act('statfs', 137, b'statfs', place); act('chdir', 80, b'chdir'); os.chdir('..')
for number, name in ((191, 'getxattr'), (192, 'lgetxattr')): act(name, number, name.encode(), b'user.a', place, 100)
for number, name in ((194, 'listxattr'), (195, 'llistxattr')): act(name, number, name.encode(), place, 100)
act('inotify_add_watch', 254, call(253), b'inotify_add_watch', 2)
act('name_to_handle_at', 303, at, b'name_to_handle_at', struct.pack('II', 128, 0) + b' ' * 128, place, 0)
act('missing', 262, at, b'missing', place, 0)
try: os.open('not-there', os.O_RDONLY)
except OSError: pass
os.stat('/etc/passwd')
"""

FILES = (
    "read", "again", "pread", "readv", "preadv", "lseek", "sendfile", "copied", "splice", "mapped", "fstat", "flock",
    "lockf", "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "statfs", "getxattr",
    "lgetxattr", "listxattr", "llistxattr", "inotify_add_watch", "name_to_handle_at",
)  # fmt: skip


def watch(code: str, place: Path, looks: Looks) -> Seen:
    """Watch one program in Python with some looks asked for."""
    with WitnessLab() as lab:
        lab.witness.look_for(looks)
        seen = lab.finish(lab.python(code, place))
        assert lab.counters().losses == ()
        assert not seen.err, seen.err
        return seen


def shared(place: Path) -> Looks:
    """Share everything on the mount of a place."""
    mount = mount_of(bytes(place), read_mounts())
    major, minor = os.major(place.stat().st_dev), os.minor(place.stat().st_dev)
    return Looks(mounts=(mount.mount_id,), shared=True, devices=(major << 20 | minor,))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a file for each way to look."""
    made = tmp_path_factory.mktemp("looks")
    for name in FILES:
        (made / name).write_text("x")
        os.setxattr(made / name, "user.a", b"x")
    for name in ("directory", "chdir"):
        (made / name).mkdir()
    for name in ("readlink", "readlinkat"):
        (made / name).symlink_to("target")
    return made


@pytest.fixture(scope="module")
def doors(place: Path) -> Seen:
    """One program that looks in every way."""
    return watch(DOORS, place, shared(place))


@pytest.mark.parametrize("name", ["read", "pread", "readv", "preadv", "sendfile", "splice"])
def test_every_way_to_read_is_told_by_the_kernels_path(doors: Seen, place: Path, name: str) -> None:
    """What reads content through a descriptor is told with the call, and the path that the kernel has."""
    call = {"pread": "pread64", "preadv": "preadv2"}.get(name, name)
    told = doors.of(FileRead, lambda e: e.path == bytes(place / name))
    assert [event.how for event in told] == [call]
    assert told[0].inode == (place / name).stat().st_ino
    assert told[0].verified


def test_copying_is_a_read_of_its_source(doors: Seen, place: Path) -> None:
    """copy_file_range reads what it copies from."""
    assert doors.one(FileRead, lambda e: e.path == bytes(place / "copied")).how == "copy_file_range"


def test_a_mapping_that_only_reads_is_a_read(doors: Seen, place: Path) -> None:
    """A private mapping shows content as long as it lasts; it is no change."""
    assert doors.one(FileRead, lambda e: e.path == bytes(place / "mapped")).how == "mmap"
    assert not doors.of(FileMapped)


def test_each_open_is_told_not_only_the_first(doors: Seen, place: Path) -> None:
    """A file of a watched place that is opened twice is told twice."""
    assert len(doors.of(FileOpened, lambda e: e.path == bytes(place / "again"))) == 2


@pytest.mark.parametrize(
    ("name", "call"), [("fstat", "fstat"), ("lseek", "lseek"), ("flock", "flock"), ("lockf", "fcntl")]
)
def test_what_asks_an_open_file_is_told(doors: Seen, place: Path, name: str, call: str) -> None:
    """The size and the locks of an open file are looked up through its descriptor."""
    told = doors.of(FileLookedUp, lambda e: e.path == bytes(place / name))
    assert {call, "newfstatat"} >= {event.how for event in told}
    assert told


def test_listing_is_told(doors: Seen, place: Path) -> None:
    """Reading a directory's names is told with its path."""
    assert doors.of(FileListed, lambda e: e.path == bytes(place / "directory"))


@pytest.mark.parametrize("name", ["stat", "lstat", "newfstatat", "statx"])
def test_look_ups_that_answer_with_an_inode_are_told_with_it(doors: Seen, place: Path, name: str) -> None:
    """What stat and its like found is known by device and inode, whatever it was called."""
    told = doors.one(FileLookedUp, lambda e: e.path == bytes(place / name) and e.how == name)
    assert (told.inode, told.error) == ((place / name).stat().st_ino, None)
    assert told.device
    assert told.verified


@pytest.mark.parametrize(
    "name",
    ["access", "faccessat", "faccessat2", "readlink", "readlinkat", "statfs", "chdir", "getxattr", "lgetxattr",
     "listxattr", "llistxattr", "inotify_add_watch", "name_to_handle_at"],
)  # fmt: skip
def test_every_other_look_up_is_told_by_name(doors: Seen, place: Path, name: str) -> None:
    """Calls that take a name and open nothing are told with the name."""
    assert doors.one(FileLookedUp, lambda e: e.path == bytes(place / name) and e.how == name).error is None


def test_look_ups_of_what_is_not_there_are_told(doors: Seen, place: Path) -> None:
    """A failed stat and a failed open are contacts too: who looks in vain would have met what another run made."""
    assert doors.one(FileLookedUp, lambda e: e.path == bytes(place / "missing")).error == errno.ENOENT
    assert doors.one(FileOpened, lambda e: e.path == bytes(place / "not-there")).error == errno.ENOENT


def test_without_being_asked_no_look_is_told(place: Path) -> None:
    """A trial that shares nothing is not slowed down by its looks."""
    seen = watch(DOORS, place, Looks())
    assert not seen.of(FileEvent, lambda e: isinstance(e, FileRead | FileListed | FileLookedUp))
    assert not seen.of(FileOpened, lambda e: e.error == errno.ENOENT)


def test_a_stat_that_led_elsewhere_is_not_told(place: Path) -> None:
    """Where the device that the kernel answered with is that of no shared place, the look-up is left out."""
    looks = shared(place)
    other = Looks(mounts=looks.mounts, shared=True, devices=(1,))
    code = "os.stat(sys.argv[1]); os.access(sys.argv[1], 4)"
    seen = watch(code, place, other)
    assert [event.how for event in seen.at(place) if isinstance(event, FileLookedUp)] == ["access"]


def test_hidden_places_are_known_by_one_component_of_a_name(place: Path) -> None:
    """A look-up that names a hidden place is told, though nothing is shared; others are not."""
    code = """
for name in ('/nowhere/answers/key', 'answers', '/nowhere/answersheet', '/nowhere/key'):
    os.path.exists(name)
    try: os.open(name, os.O_RDONLY)
    except OSError: pass
"""
    seen = watch(code, place, Looks(names=(b"answers", b".ssh")))
    told = [event for event in seen.of(FileEvent) if isinstance(event, FileLookedUp | FileOpened)]
    named = [event.path for event in told if b"answers" in event.path and event.error == errno.ENOENT]
    here = bytes(Path.cwd() / "answers")
    assert named == [b"/nowhere/answers/key", b"/nowhere/answers/key", here, here]
    assert not [event for event in told if event.path == b"/nowhere/key"]


def test_of_what_is_hidden_each_attempt_is_told_whatever_its_name(place: Path) -> None:
    """Refusals, and answers with the device of the mask; not what is absent, what is elsewhere, or open already."""
    code = """
os.symlink(sys.argv[1] + '/stat', sys.argv[2]); os.chdir('/')
for name in (sys.argv[1] + '/stat', sys.argv[2], sys.argv[2] + '/below', '/proc/version', '/nowhere'):
    os.path.exists(name)
os.fstat(0); os.open(sys.argv[2] + '/below', os.O_PATH)
"""
    looks = Looks(names=(b"answers",), devices=(), masks=shared(place).devices or ())
    link = place / "to-a-mask"
    with WitnessLab() as lab:
        lab.witness.look_for(looks)
        seen = lab.finish(lab.python(code, place, link))
    told = [event for event in seen.of(FileEvent) if isinstance(event, FileLookedUp | FileOpened) and event.error != 2]
    named = [event.path for event in told if event.path.startswith(bytes(place))]
    assert named == [bytes(place / "stat"), bytes(link), bytes(link / "below"), bytes(link / "below")]
    assert not [event for event in told if event.path in {b"/proc/version", b"/nowhere"}]


def test_a_name_that_the_answer_was_written_over_is_not_believed(place: Path) -> None:
    """stat(p, p): the string is gone when the call returns, and what stands there is not taken for it."""
    code = """
both = ctypes.create_string_buffer(os.fsencode(sys.argv[1]) + b'/stat', 4096)
call(4, both, both)
both = ctypes.create_string_buffer(os.fsencode(sys.argv[1]) + b'/readlink', 4096)
call(89, both, both, 100)
"""
    seen = watch(code, place, shared(place))
    told = seen.of(FileLookedUp, lambda e: e.how in {"stat", "readlink"} and not e.verified)
    assert {event.how for event in told} == {"stat", "readlink"}
    (asked,) = [event for event in told if event.how == "stat"]
    assert asked.inode == (place / "stat").stat().st_ino


def test_names_that_another_thread_could_change_are_told_unverified(place: Path, tmp_path: Path) -> None:
    """With a second thread neither the name nor the answer proves anything: the look-up is told, and marked."""
    source = r"""
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
static void *idle(void *unused) { pause(); return unused; }
int main(void)
{
    pthread_t thread;
    struct stat found;
    pthread_create(&thread, 0, idle, 0);
    return stat("/etc/passwd", &found);
}
"""
    program = compile_c(source, tmp_path)
    looks = Looks(mounts=shared(place).mounts, shared=True, devices=(1,))
    with WitnessLab() as lab:
        lab.witness.look_for(looks)
        seen = lab.finish(lab.start(program))
    told = [event for event in seen.at(b"/etc/passwd") if isinstance(event, FileLookedUp)]
    assert [event.verified for event in told] == [False]


def test_nothing_stays_of_a_trial_that_was_watched() -> None:
    """What was watched for one trial is forgotten with it, while another one goes on."""
    with WitnessLab() as going_on:
        with WitnessLab() as lab:
            lab.witness.look_for(Looks(mounts=(1, 2), shared=True, devices=(3,), names=(b"a",)))
            ended = lab.cgroup.id
            assert {abi.WATCHED.unpack(key)[0] for key in watched_now()} >= {ended}
        assert ended not in {abi.WATCHED.unpack(key)[0] for key in watched_now()}
        assert going_on.counters().losses == ()


def watched_now() -> list[bytes]:
    """Give the keys of everything that is watched on this machine."""
    (place,) = [
        found for base in (pins.SYSTEM_BPFFS, pins.OWN_BPFFS) for found in base.glob(f"*{pins.digest()}/watched")
    ]
    watched = libbpf.BpfMap(libbpf.open_pin(place), 4)
    try:
        return list(watched.keys(abi.WATCHED.size))
    finally:
        watched.close()


def test_reads_in_quick_succession_are_told_once(place: Path) -> None:
    """A loop over one open file is one record in each window, not thousands."""
    code = """
fd = os.open(sys.argv[1] + '/read', os.O_RDONLY)
for _ in range(5000): os.pread(fd, 1, 0)
time.sleep(0.05)
os.pread(fd, 1, 0)
"""
    seen = watch(code, place, shared(place))
    told = seen.of(FileRead, lambda e: e.path == bytes(place / "read"))
    assert 2 <= len(told) < 2500
