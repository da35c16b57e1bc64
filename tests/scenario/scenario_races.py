"""Calls that are held inside the kernel while somebody changes what they were given: the attack on names read at exit.

How a call is held: ``D/b<N>`` is locked by a splice from an empty pipe, so that removing it waits with its directory
locked, so that looking up ``D/s<N>`` (which nobody has done before) waits too. A call on ``D/s<N>/../../secret/x`` has
copied its name by then, and is on its way to the file. Then what it was given is changed, whoever changed it ends, and
the call goes on. What it is told with is an allowed name; what it changed is put back in the same way.
"""

from __future__ import annotations

import os
from pathlib import Path

from scenario_hostile import GUARD

NAMES = (
    "chmod", "chown", "mkdir", "mknod", "symlink", "link", "rename", "setxattr", "utimensat", "truncate", "empty",
    "memory file",
)  # fmt: skip
"""What each attack is called: the names of the files that are meant begin so, and those that are told."""

CALLS = 24
"""How many calls they make."""

PROGRAM = (
    GUARD
    + r"""
import ctypes, errno, itertools, json, mmap, os, signal, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
rounds = itertools.count()
def call(number, *arguments):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def child(act):
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
        os._exit(0)
    finally:
        os._exit(1)
def reap(*pids):
    for pid in pids:
        if os.waitpid(pid, 0)[1]:
            raise RuntimeError("a helper failed")
def state(of):
    with open(f"/proc/{of}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
def threads(of):
    return len(os.listdir(f"/proc/{of}/task"))
def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("nothing to wait for")
        time.sleep(0.002)

class Held:
    # Locks a directory for who looks up what lies `through` it, until the one who was told when to has ended.
    def __init__(self, directory):
        n = next(rounds)
        self.through = f"{directory}/s{n}/../../"
        locked = os.open(f"{directory}/b{n}", os.O_RDWR)
        reading, self.writing = os.pipe()
        def splice():
            os.close(self.writing)
            os.splice(reading, locked, 1)
        def remove():
            os.close(self.writing)
            os.unlink(f"{directory}/b{n}")
        splicer = child(splice)
        wait_for(lambda: state(splicer) == "S")
        time.sleep(0.02)
        remover = child(remove)
        wait_for(lambda: state(remover) == "D")
        self.pids = [splicer, remover]
        os.close(reading)
        os.close(locked)
    def freed_when(self, condition):
        self.pids.append(child(lambda: wait_for(condition)))
        os.close(self.writing)
    def end(self):
        reap(*self.pids)

def swapped_by_thread(held, act, swap):
    # A thread swaps, and ends, so that nobody shares the memory when the call ends.
    main, began = os.getpid(), []
    def over():
        began.append(1) if threads(main) == 2 else None
        return bool(began) and threads(main) == 1 and state(main) == "D"
    held.freed_when(over)
    def swap_then_end():
        wait_for(lambda: state(main) == "D")
        time.sleep(0.02)
        swap()
    thread = threading.Thread(target=swap_then_end)
    thread.start()
    act()
    thread.join()
    held.end()

def put(buffer, text):
    ctypes.memmove(buffer, text.encode() + b"\0", len(text) + 1)

def checked(condition):
    if not condition:
        raise RuntimeError("the file that was meant is as it was")

ME = os.getuid(), os.getgid()
def times(*moments):
    return b"".join(struct.pack("qq", *divmod(moment, 10**9)) for moment in moments)
def stat(name):
    return os.stat("secret/" + name)
CALLS = {
    "chmod": [
        lambda a, b: call(90, a, 0o600), lambda name: checked(stat(name).st_mode & 0o777 == 0o600),
        lambda a, b: call(90, a, 0o644),
    ],
    "chown": [lambda a, b: call(92, a, *ME)],
    "mkdir": [
        lambda a, b: call(83, b, 0o755), lambda name: stat(name + " 2"), lambda a, b: call(84, b),
    ],
    "mknod": [
        lambda a, b: call(133, b, 0o100644, 0), lambda name: stat(name + " 2"), lambda a, b: call(87, b),
    ],
    "symlink": [
        lambda a, b: call(88, b"text", b), lambda name: os.readlink(f"secret/{name} 2"), lambda a, b: call(87, b),
    ],
    "link": [lambda a, b: call(86, a, b), lambda name: stat(name + " 2"), lambda a, b: call(87, b)],
    "rename": [lambda a, b: call(82, a, b), lambda name: stat(name + " 2"), lambda a, b: call(82, b, a)],
    "setxattr": [
        lambda a, b: call(188, a, b"user.x", b"1", 1, 0), lambda name: os.getxattr("secret/" + name, "user.x"),
        lambda a, b: call(197, a, b"user.x"),
    ],
    "utimensat": [
        lambda a, b: call(280, -100, a, times(1, 1), 0), lambda name: checked(stat(name).st_mtime_ns == 1),
        lambda a, b: call(280, -100, a, times(MOMENT, MOMENT), 0),
    ],
    "truncate": [
        lambda a, b: call(76, a, 100), lambda name: checked(stat(name).st_size == 100),
        lambda a, b: call(76, a, 7), lambda a, b: call(280, -100, a, times(MOMENT, MOMENT), 0),
    ],
    "empty": [lambda a, b: call(76, a, 5), lambda name: checked(stat(name).st_size == 5), lambda a, b: call(76, a, 0)],
}
MOMENT = 1_700_000_000 * 10**9


def attack(name):
    one, two = ctypes.create_string_buffer(300), ctypes.create_string_buffer(300)
    for step in CALLS[name]:
        if step.__code__.co_argcount == 1:
            step(name)
            continue
        held = Held("allowed")
        put(one, f"{held.through}secret/{name}")
        put(two, f"{held.through}secret/{name} 2")
        def swap():
            put(one, f"allowed/{name}")
            put(two, f"allowed/{name} 2")
        swapped_by_thread(held, lambda: step(one, two), swap)

def attack_memory_file(name):
    # Another process writes into a memory file that both have mapped, unmaps it and ends.
    file = os.memfd_create("text")
    os.ftruncate(file, 4096)
    memory = mmap.mmap(file, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    main = os.getpid()
    for mode in (0o600, 0o644):
        held = Held("allowed")
        put(address, f"{held.through}secret/{name}")
        def swap():
            os.close(held.writing)
            wait_for(lambda: state(main) == "D")
            put(address, f"allowed/{name}")
        swapper = child(swap)
        held.freed_when(lambda: state(swapper) == "Z" and state(main) == "D")
        call(90, ctypes.c_void_p(address), mode)
        reap(swapper)
        held.end()

for name in sys.argv[1:]:
    (attack if name in CALLS else attack_memory_file)(name)
"""
)


def furnish(work: Path) -> None:
    """Make what is meant, what is told, and what holds."""
    for directory in ("allowed", "secret"):
        (work / directory).mkdir()
        for name in NAMES:
            (work / directory / name).write_text("" if name == "empty" else "content")
            (work / directory / name).chmod(0o644)
            os.utime(work / directory / name, (1_700_000_000, 1_700_000_000))
    for number in range(CALLS):
        (work / "allowed" / f"s{number}").mkdir()
        (work / "allowed" / f"b{number}").touch()
