"""Locks of files, as the kernel witness tells them: had, waited for, refused and given back."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from witness_builder import Seen, WitnessLab

from probes.kernel.watching import Looks
from supervisor.events import FileLocked
from supervisor.launch.view.mounts import mount_of, read_mounts

pytestmark = pytest.mark.kernel("witness")

LOCKING = r"""
import fcntl
def take(name, act, flags, reading=False):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY if reading else os.O_RDWR)
    try: act(fd, flags)
    except BlockingIOError: print(name, 'refused')
    return fd
now = fcntl.LOCK_NB
take('flock', fcntl.flock, fcntl.LOCK_SH, reading=True)
fd = take('given-back', fcntl.flock, fcntl.LOCK_EX); fcntl.flock(fd, fcntl.LOCK_UN)
os.close(take('closed', fcntl.lockf, fcntl.LOCK_EX))
take('process', fcntl.lockf, fcntl.LOCK_SH)
ofd = os.open(os.path.join(sys.argv[1], 'description'), os.O_RDWR)
fcntl.fcntl(ofd, 37, struct.pack('hhlli', fcntl.F_WRLCK, 0, 0, 0, 0))
take('held-flock', fcntl.flock, fcntl.LOCK_EX | now)
take('held-process', fcntl.lockf, fcntl.LOCK_EX | now)
take('never-locked', lambda *_: None, 0)
def waiting(name, flags, *close):
    child = os.fork()
    if child == 0:
        for fd in close: os.close(fd)
        take(name, fcntl.flock, flags)
        os._exit(0)
    while not any('->' in line and f' {child} ' in line for line in open('/proc/locks')): time.sleep(0.005)
    return child
os.kill(waiting('held-waited', fcntl.LOCK_EX), signal.SIGKILL)
mine = take('own', fcntl.flock, fcntl.LOCK_EX)
child = waiting('own', fcntl.LOCK_SH, mine)
fcntl.flock(mine, fcntl.LOCK_UN)
os.waitpid(child, 0)
"""

FILES = (
    "flock", "given-back", "closed", "process", "description", "held-flock", "held-process", "held-waited", "own",
    "never-locked",
)  # fmt: skip


def watch(place: Path, *, watched: bool) -> Seen:
    """Watch the program while somebody outside holds some of the locks."""
    for name in FILES:
        (place / name).write_text("x")
    with ExitStack() as held, WitnessLab() as lab:
        for name, lock in (("held-flock", fcntl.flock), ("held-process", fcntl.lockf), ("held-waited", fcntl.flock)):
            lock(held.enter_context((place / name).open("r+")), fcntl.LOCK_EX)
        if watched:
            mount = mount_of(bytes(place), read_mounts())
            lab.witness.look_for(Looks(mounts=(mount.mount_id,), shared=True))
        seen = lab.finish(lab.python(LOCKING, place))
        assert lab.counters().losses == ()
    assert not seen.err, seen.err
    return seen


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files are."""
    return tmp_path_factory.mktemp("locks")


@pytest.fixture(scope="module")
def seen(place: Path) -> Seen:
    """The program, in a place that is watched."""
    return watch(place, watched=True)


def told(seen: Seen, place: Path, name: str) -> list[FileLocked]:
    """Give what was told of one file."""
    return seen.of(FileLocked, lambda event: event.path == bytes(place / name))


@pytest.mark.parametrize(
    ("name", "how", "locks"),
    [
        ("flock", "flock", ["shared", "unlocked"]),
        ("given-back", "flock", ["exclusive", "unlocked"]),
        ("closed", "process", ["exclusive", "unlocked"]),
        ("process", "process", ["shared", "unlocked"]),
        ("description", "description", ["exclusive", "unlocked"]),
        ("never-locked", "", []),
    ],
)
def test_a_lock_is_told_until_it_is_given_back(seen: Seen, place: Path, name: str, how: str, locks: list[str]) -> None:
    """By every call that can lock; given back in words, at the close, or at the end of the process."""
    events = told(seen, place, name)
    found = [event.lock for event in events]
    assert found[:1] == locks[:1]
    assert found[-1:] == locks[-1:]
    assert {event.how for event in events if event.lock != "unlocked"} <= {how}
    assert {(event.device, event.inode) for event in events} <= {
        (os.major(s.st_dev) << 20 | os.minor(s.st_dev), s.st_ino) for s in [(place / name).stat()]
    }
    assert all(event.each and event.verified for event in events)


@pytest.mark.parametrize(("name", "how"), [("held-flock", "flock"), ("held-process", "process")])
def test_a_refused_lock_is_told(seen: Seen, place: Path, name: str, how: str) -> None:
    """Somebody else has it."""
    (event, *_) = told(seen, place, name)
    assert (event.how, event.lock, event.error, event.waits) == (how, "exclusive", errno.EAGAIN, False)


def test_who_waits_is_told_although_he_is_killed_waiting(seen: Seen, place: Path) -> None:
    """The call never came back; the holder is known."""
    (event, *_) = told(seen, place, "held-waited")
    assert (event.waits, event.inside, event.holder, event.error) == (True, False, os.getpid(), None)


def test_who_waits_for_his_own_kind_is_told_so(seen: Seen, place: Path) -> None:
    """The holder is of the same trial; the wait ends with the lock."""
    events = [event for event in told(seen, place, "own") if event.lock == "shared"]
    assert [(event.waits, event.inside) for event in events] == [(True, True), (False, False)]
    assert events[0].process == events[1].process


def test_elsewhere_the_first_lock_is_told_and_whoever_waits(tmp_path: Path) -> None:
    """A file of the host can be locked through a read-only mount, but most locks are nobody's business."""
    seen = watch(tmp_path, watched=False)
    assert [event.lock for event in told(seen, tmp_path, "given-back")] == ["exclusive"]
    assert [event.error for event in told(seen, tmp_path, "held-flock")] == [errno.EAGAIN]
    assert [event.waits for event in told(seen, tmp_path, "held-waited")] == [True]
    assert not any(event.each for event in seen.of(FileLocked))
