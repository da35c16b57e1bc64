"""Every door by which a file can change: a table of acts, all done in one trial, each in a directory of its own.

An act is Python source that runs with the names of `PROGRAM`. Beside it stands what must be told of each path that it
touches: the words of its history, its net effect, and whether it was restored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scenario_hostile import GUARD

CREATED, MODIFIED, DELETED, RENAMED = "created", "modified", "deleted", "renamed"
LINKED, ATTRIBUTES, MAPPED, UNCHANGED = "linked", "attributes", "mapped", "unchanged"


@dataclass(frozen=True, slots=True)
class Told:
    """What must be told of one path: the set of words, in order where it matters."""

    history: tuple[str, ...]
    net: str | None
    restored: bool | None = False
    renamed_from: str | None = None
    renamed_to: str | None = None


def told(*history: str, net: str | None, restored: bool | None = False, **names: str) -> Told:
    """Give what must be told of one path."""
    return Told(history, net, restored, **names)


@dataclass(frozen=True, slots=True)
class Door:
    """One way to change files.

    Attributes:
        act: Python source, run in the door's own directory.
        wants: what must be told, by path relative to that directory.
        files: what is there before, as text.
        links: hard links that are there before, new name to old.
        may: errors with which a file system may refuse the act: nothing is then told but attempts.
    """

    act: str
    wants: Mapping[str, Told]
    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    may: tuple[str, ...] = ()


F = {"f": "original content\n"}
BLOCKS = {"f": "a" * 4096 + "b" * 4096 + "c" * 4096}
NEW = told(CREATED, MODIFIED, net=CREATED)
MADE = told(CREATED, net=CREATED)
SET = told(MODIFIED, net=MODIFIED)
MOVED = {
    "f": told(RENAMED, net=RENAMED, renamed_to="n"),
    "n": told(RENAMED, net=RENAMED, renamed_from="f"),
}
ATTR = told(ATTRIBUTES, net=MODIFIED)

PROGRAM = (
    GUARD
    + r"""
import ctypes, errno, fcntl, json, mmap, os, signal, socket, stat, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    words = [a if isinstance(a, bytes) or a is None else ctypes.c_long(a) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
RW, NEW = os.O_RDWR, os.O_RDWR | os.O_CREAT
def new(name, data=b"new"):
    file = os.open(name, NEW, 0o644)
    if data:
        os.write(file, data)
    os.close(file)
def text(name):
    with open(name, "rb") as file:
        return file.read()
def rewrite(name, data):
    with open(name, "r+b", buffering=0) as file:
        file.write(data)
def filled():
    reading, writing = os.pipe()
    os.write(writing, b"piped")
    return reading
def forked(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the child failed")
    return pid
answers = {}
home = os.getcwd()
for name, source in json.load(sys.stdin).items():
    os.chdir(home + "/" + name)
    answers[name] = {"pid": os.getpid(), "error": None}
    try:
        exec(source, {**globals(), "other": lambda pid: answers[name].update(pid=pid)})
    except OSError as error:
        answers[name]["error"] = errno.errorcode[error.errno]
    except BaseException as error:
        answers[name]["error"] = repr(error)
print(json.dumps(answers))
"""
)

DOORS: dict[str, Door] = {
    # -- opens
    "open": Door("os.close(call(2, b'n', NEW, 0o644))", {"n": MADE}),
    "creat": Door("os.close(call(85, b'n', 0o644)); os.close(call(85, b'f', 0o644))", {"n": MADE, "f": SET}, F),
    "openat": Door("os.close(os.open('n', NEW | os.O_EXCL))", {"n": MADE}),
    "openat2": Door("os.close(call(437, -100, b'n', struct.pack('QQQ', NEW, 0o644, 0), 24))", {"n": MADE}),
    "openat-directory": Door("d = os.open('.', os.O_PATH); os.open('n', NEW, dir_fd=d)", {"n": MADE}),
    "truncate-by-open": Door("os.open('f', os.O_WRONLY | os.O_TRUNC)", {"f": SET}, F),
    "truncate-read-only": Door("os.open('f', os.O_RDONLY | os.O_TRUNC)", {"f": SET}, F),
    "truncate-empty": Door("os.open('f', os.O_WRONLY | os.O_TRUNC)", {}, {"f": ""}),
    "open-without-effect": Door("os.open('f', RW)", {}, F),
    # -- writes
    "write": Door("os.write(os.open('f', RW), b'O')", {"f": SET}, F),
    "pwrite": Door("os.pwrite(os.open('f', RW), b'O', 3)", {"f": SET}, F),
    "writev": Door("os.writev(os.open('f', RW), [b'O', b'R'])", {"f": SET}, F),
    "pwritev": Door("os.pwritev(os.open('f', RW), [b'O'], 1)", {"f": SET}, F),
    "pwritev2": Door("os.pwritev(os.open('f', RW), [b'O'], 1, os.RWF_DSYNC)", {"f": SET}, F),
    "append": Door("os.write(os.open('f', os.O_WRONLY | os.O_APPEND), b'more')", {"f": SET}, F),
    "append-by-flag": Door("os.pwritev(os.open('f', RW), [b'O'], 0, 0x10)", {"f": SET}, F),
    "direct": Door(
        "m = mmap.mmap(-1, 4096); os.writev(os.open('f', RW | os.O_DIRECT), [m])", {"f": SET}, F, may=("EINVAL",)
    ),
    "copy_file_range": Door(
        "os.copy_file_range(os.open('s', 0), os.open('f', RW), 3)", {"f": SET}, {**F, "s": "source"}
    ),
    "sendfile": Door("os.sendfile(os.open('f', RW), os.open('s', 0), 0, 3)", {"f": SET}, {**F, "s": "source"}),
    "splice": Door("os.splice(filled(), os.open('f', RW), 5)", {"f": SET}, F),
    "tee": Door("r, w = os.pipe(); call(276, filled(), w, 5, 0); os.splice(r, os.open('f', RW), 5)", {"f": SET}, F),
    "vmsplice": Door(
        """
r, w = os.pipe()
data = ctypes.create_string_buffer(b'vmspliced')
call(278, w, struct.pack('QQ', ctypes.addressof(data), 9), 1, 0)
os.splice(r, os.open('f', RW), 9)
""",
        {"f": SET},
        F,
    ),
    "sparse": Door("f = os.open('f', RW); os.lseek(f, 1 << 20, 0); os.write(f, b'x')", {"f": SET}, F),
    "write-and-put-back": Door(
        "rewrite('f', b'Original'); rewrite('f', b'original')",
        {"f": told(MODIFIED, MODIFIED, net=UNCHANGED, restored=True)},
        F,
    ),
    # -- sizes and ranges
    "truncate": Door("os.truncate('f', 3)", {"f": SET}, F),
    "ftruncate": Door("os.ftruncate(os.open('f', RW), 100)", {"f": SET}, F),
    "fallocate": Door("call(285, os.open('f', RW), 0, 0, 1 << 16)", {"f": SET}, F),
    "fallocate-keep-size": Door(
        "call(285, os.open('f', RW), 1, 0, 1 << 16)", {"f": told(MODIFIED, net=UNCHANGED, restored=True)}, F
    ),
    "punch": Door("call(285, os.open('f', RW), 3, 0, 4096)", {"f": SET}, BLOCKS),
    "zero": Door("call(285, os.open('f', RW), 0x10, 0, 4096)", {"f": SET}, BLOCKS, may=("ENOTSUP",)),
    "collapse": Door("call(285, os.open('f', RW), 8, 0, 4096)", {"f": SET}, BLOCKS, may=("ENOTSUP",)),
    "insert": Door("call(285, os.open('f', RW), 0x20, 4096, 4096)", {"f": SET}, BLOCKS, may=("ENOTSUP",)),
    "reflink": Door(
        "fcntl.ioctl(os.open('f', RW), 0x40049409, os.open('s', 0))",
        {"f": SET},
        {**F, "s": "source"},
        may=("ENOTSUP",),
    ),
    "reflink-range": Door(
        "s = os.open('s', 0); fcntl.ioctl(os.open('f', RW), 0x4020940d, struct.pack('qQQQ', s, 0, 4096, 0))",
        {"f": SET},
        {**BLOCKS, "s": "z" * 4096},
        may=("ENOTSUP",),
    ),
    # -- mappings
    "mapped": Door("m = mmap.mmap(os.open('f', RW), 0); m[0] = 79; m.flush()", {"f": told(MAPPED, net=MODIFIED)}, F),
    "mapped-and-put-back": Door(
        "m = mmap.mmap(os.open('f', RW), 0); m[0] = 79; m[0] = 111",
        {"f": told(MAPPED, net=UNCHANGED, restored=None)},
        F,
    ),
    "mapped-untouched": Door("mmap.mmap(os.open('f', RW), 0)", {"f": told(MAPPED, net=UNCHANGED, restored=None)}, F),
    "mapped-by-a-child": Door(
        "m = mmap.mmap(os.open('f', RW), 0); forked(lambda: m.__setitem__(0, 79))", {"f": told(MAPPED, net=MODIFIED)}, F
    ),
    "mapped-private": Door("m = mmap.mmap(os.open('f', RW), 0, mmap.MAP_PRIVATE); m[0] = 79", {}, F),
    "mapped-read-only": Door("mmap.mmap(os.open('f', 0), 0, prot=mmap.PROT_READ)", {}, F),
    # -- names
    "temporary": Door(
        """
f = os.open('.', os.O_TMPFILE | RW)
os.write(f, b'x')
call(265, -100, b'/proc/self/fd/%d' % f, -100, b'n', 0x400)
""",
        {"n": told(LINKED, net=CREATED)},
    ),
    "temporary-written-later": Door(
        """
f = os.open('.', os.O_TMPFILE | RW)
call(265, -100, b'/proc/self/fd/%d' % f, -100, b'n', 0x400)
os.write(f, b'x')
""",
        {"n": told(LINKED, MODIFIED, net=CREATED)},
    ),
    "rename": Door("os.rename('f', 'n')", MOVED, F),
    "rename-old-call": Door("call(82, b'f', b'n')", MOVED, F),
    "rename-noreplace": Door("call(316, -100, b'f', -100, b'n', 1)", MOVED, F),
    "rename-noreplace-refused": Door("call(316, -100, b'f', -100, b's', 1)", {}, {**F, "s": "s"}, may=("EEXIST",)),
    "rename-exchange": Door(
        "call(316, -100, b'f', -100, b's', 2)",
        {
            "f": told(RENAMED, net=MODIFIED, renamed_from="s", renamed_to="s"),
            "s": told(RENAMED, net=MODIFIED, renamed_from="f", renamed_to="f"),
        },
        {**F, "s": "other"},
    ),
    "rename-exchange-twice": Door(
        "call(316, -100, b'f', -100, b's', 2); call(316, -100, b'f', -100, b's', 2)",
        {
            "f": told(RENAMED, RENAMED, net=UNCHANGED, restored=True, renamed_from="s", renamed_to="s"),
            "s": told(RENAMED, RENAMED, net=UNCHANGED, restored=True, renamed_from="f", renamed_to="f"),
        },
        {**F, "s": "other"},
    ),
    "rename-whiteout": Door("call(316, -100, b'f', -100, b'n', 4)", MOVED, F, may=("EINVAL",)),
    "rename-over": Door(
        "new('n'); os.rename('n', 'f')",
        {
            "f": told(RENAMED, net=MODIFIED, renamed_from="n"),
            "n": told(CREATED, MODIFIED, RENAMED, net=UNCHANGED, restored=True, renamed_to="f"),
        },
        F,
    ),
    "rename-chain": Door(
        "os.rename('f', 'b'); os.rename('b', 'c'); rewrite('c', b'O'); os.rename('c', 'd')",
        {
            "b": told(RENAMED, RENAMED, net=UNCHANGED, restored=True, renamed_from="f", renamed_to="c"),
            "c": told(RENAMED, MODIFIED, RENAMED, net=UNCHANGED, restored=True, renamed_from="b", renamed_to="d"),
            "d": told(RENAMED, net=RENAMED, renamed_from="c"),
            "f": told(RENAMED, net=RENAMED, renamed_to="b"),
        },
        F,
    ),
    "rename-tree": Door(
        "rewrite('t/a/f', b'O'); os.rename('t', 'u'); rewrite('u/a/f', b'R')",
        {
            "t/a/f": told(MODIFIED, RENAMED, net=RENAMED, renamed_to="u/a/f"),
            "u/a/f": told(RENAMED, MODIFIED, net=RENAMED, renamed_from="t/a/f"),
            "t": told(RENAMED, net=RENAMED, renamed_to="u"),
            "u": told(RENAMED, net=RENAMED, renamed_from="t"),
        },
        {"t/a/f": "deep\n", "t/b": "untouched"},
    ),
    "rename-tree-and-back": Door(
        "os.rename('t', 'u'); rewrite('u/a/f', b'Deep'); rewrite('u/a/f', b'deep'); os.rename('u', 't')",
        {
            "t": told(RENAMED, RENAMED, net=UNCHANGED, restored=True, renamed_from="u", renamed_to="u"),
            "u": told(RENAMED, RENAMED, net=UNCHANGED, restored=True, renamed_from="t", renamed_to="t"),
            "t/a/f": told(RENAMED, RENAMED, net=UNCHANGED, restored=True, renamed_from="u/a/f", renamed_to="u/a/f"),
            "u/a/f": told(
                *(RENAMED, MODIFIED, MODIFIED, RENAMED),
                net=UNCHANGED,
                restored=True,
                renamed_from="t/a/f",
                renamed_to="t/a/f",
            ),
        },
        {"t/a/f": "deep\n", "t/b": "untouched"},
    ),
    "link": Door(
        "os.link('f', 'n')", {"n": told(LINKED, net=CREATED), "f": told(LINKED, net=UNCHANGED, restored=True)}, F
    ),
    "link-then-write": Door(
        "os.link('f', 'n'); rewrite('n', b'O')",
        {"n": told(LINKED, MODIFIED, net=CREATED), "f": told(LINKED, MODIFIED, net=MODIFIED)},
        F,
    ),
    "link-through-descriptor": Door(
        "f = os.open('f', RW); call(265, -100, b'/proc/self/fd/%d' % f, -100, b'n', 0x400); os.write(f, b'O')",
        {"n": told(LINKED, MODIFIED, net=CREATED), "f": told(LINKED, MODIFIED, net=MODIFIED)},
        F,
    ),
    "alias": Door(
        "rewrite('n', b'O')",
        {"n": SET, "f": SET},
        F,
        {"n": "f"},
    ),
    "alias-put-back": Door(
        "rewrite('n', b'O'); rewrite('n', b'o')",
        {
            "n": told(MODIFIED, MODIFIED, net=UNCHANGED, restored=True),
            "f": told(MODIFIED, MODIFIED, net=UNCHANGED, restored=True),
        },
        F,
        {"n": "f"},
    ),
    "alias-mode": Door("os.chmod('n', 0o600)", {"n": ATTR, "f": ATTR}, F, {"n": "f"}),
    "alias-removed-then-written": Door(
        "f = os.open('n', RW); os.unlink('n'); os.write(f, b'O')",
        {"n": told(DELETED, MODIFIED, net=DELETED), "f": told(MODIFIED, net=MODIFIED)},
        F,
        {"n": "f"},
    ),
    "alias-in-another-directory": Door("rewrite('d/n', b'O')", {"d/n": SET, "f": SET}, {**F, "d/x": ""}, {"d/n": "f"}),
    "symlink": Door("os.symlink('f', 'n')", {"n": told(LINKED, net=CREATED)}, F),
    "symlink-swap": Door(
        """
os.symlink('a', 'n'); rewrite('n', b'1')
os.unlink('n'); os.symlink('b', 'n'); rewrite('n', b'2')
""",
        {"a": SET, "b": SET, "n": told(LINKED, DELETED, LINKED, net=CREATED)},
        {"a": "aa", "b": "bb"},
    ),
    "unlink": Door("os.unlink('f')", {"f": told(DELETED, net=DELETED)}, F),
    "unlink-old-call": Door("call(87, b'f')", {"f": told(DELETED, net=DELETED)}, F),
    "came-and-went": Door(
        "new('n'); os.unlink('n')", {"n": told(CREATED, MODIFIED, DELETED, net=UNCHANGED, restored=True)}
    ),
    "deleted-while-open": Door(
        "f = os.open('f', RW); os.unlink('f'); os.write(f, b'lost')", {"f": told(DELETED, MODIFIED, net=DELETED)}, F
    ),
    "mkdir": Door("os.mkdir('n')", {"n": told(CREATED, net=CREATED)}),
    "mkdir-rmdir": Door("os.mkdir('n'); os.rmdir('n')", {"n": told(CREATED, DELETED, net=UNCHANGED, restored=True)}),
    "rmdir": Door(
        "os.unlink('d/x'); os.rmdir('d')",
        {"d": told(DELETED, net=DELETED), "d/x": told(DELETED, net=DELETED)},
        {"d/x": "x"},
    ),
    "mknod": Door("os.mknod('n', 0o100644)", {"n": MADE}),
    "mknod-device": Door("os.mknod('n', 0o20600, os.makedev(1, 3))", {}, may=("EPERM",)),
    "fifo": Door("os.mkfifo('n')", {"n": MADE}),
    "fifo-written": Door(
        "os.mkfifo('n'); f = os.open('n', os.O_RDWR); os.write(f, b'x')", {"n": told(CREATED, net=CREATED)}
    ),
    "socket": Door("s = socket.socket(socket.AF_UNIX); s.bind('n')", {"n": MADE}),
    # -- attributes
    "chmod": Door("os.chmod('f', 0o600)", {"f": ATTR}, F),
    "fchmod": Door("os.fchmod(os.open('f', 0), 0o600)", {"f": ATTR}, F),
    "fchmodat2": Door("call(452, -100, b'f', 0o600, 0)", {"f": ATTR}, F),
    "chmod-and-back": Door(
        "os.chmod('f', 0o600); os.chmod('f', 0o644)",
        {"f": told(ATTRIBUTES, ATTRIBUTES, net=UNCHANGED, restored=True)},
        F,
    ),
    "chown": Door("os.chown('f', 12, 13)", {}, F, may=("EPERM",)),
    "chown-to-itself": Door(
        "os.chown('f', os.getuid(), os.getgid())", {"f": told(ATTRIBUTES, net=UNCHANGED, restored=True)}, F
    ),
    "setxattr": Door("os.setxattr('f', 'user.a', b'1')", {"f": ATTR}, F),
    "utimes-put-back": Door(
        "s = os.stat('f'); rewrite('f', b'O'); rewrite('f', b'o'); os.utime('f', ns=(s.st_atime_ns, s.st_mtime_ns))",
        {"f": told(MODIFIED, MODIFIED, ATTRIBUTES, net=UNCHANGED, restored=True)},
        F,
    ),
    "fsetxattr": Door("os.setxattr(os.open('f', 0), 'user.a', b'1')", {"f": ATTR}, F),
    "setxattr-and-back": Door(
        "os.setxattr('f', 'user.a', b'1'); os.removexattr('f', 'user.a')",
        {"f": told(ATTRIBUTES, ATTRIBUTES, net=UNCHANGED, restored=True)},
        F,
    ),
    "acl": Door(
        """
acl = struct.pack('<I', 2) + b''.join(
    struct.pack('<HHI', *entry)
    for entry in ((1, 6, 2**32 - 1), (2, 7, 1234), (4, 4, 2**32 - 1), (16, 7, 2**32 - 1), (32, 4, 2**32 - 1))
)
os.setxattr('f', 'system.posix_acl_access', acl)
""",
        {"f": ATTR},
        F,
        may=("ENOTSUP",),
    ),
    "utimes": Door("os.utime('f', (1, 2))", {"f": told(ATTRIBUTES, net=UNCHANGED, restored=None)}, F),
    "futimens": Door("os.utime(os.open('f', 0), (1, 2))", {"f": told(ATTRIBUTES, net=UNCHANGED, restored=None)}, F),
    "directory-mode": Door("os.chmod('d', 0o700)", {"d": ATTR}, {"d/x": "x"}),
    # -- descriptors
    "reopened": Door("f = os.open('f', 0); os.write(os.open(f'/proc/self/fd/{f}', RW), b'O')", {"f": SET}, F),
    "own-memory": Door(
        """
m = mmap.mmap(os.open('f', 0), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
for line in open('/proc/self/maps'):
    if line.rstrip().endswith('/own-memory/f'):
        os.pwrite(os.open('/proc/self/mem', RW), b'O', int(line.split('-')[0], 16))
assert m[:1] == b'O'
""",
        {},
        F,
    ),
    "inherited": Door("f = os.open('f', RW); other(forked(lambda: os.write(f, b'O')))", {"f": SET}, F),
    "passed": Door(
        """
a, b = socket.socketpair()
socket.send_fds(a, [b'x'], [os.open('f', RW)])
def write():
    _, (got,), _, _ = socket.recv_fds(b, 1, 1)
    os.write(got, b'O')
other(forked(write))
""",
        {"f": SET},
        F,
    ),
    "duplicated": Door("f = os.open('f', RW); g = os.dup(f); os.close(f); os.write(g, b'O')", {"f": SET}, F),
    # -- names that are hard to tell
    "long-name": Door("new('l' * 255)", {"l" * 255: NEW}),
    "odd-names": Door("new('new\\nline'); new(' sp ace ')", {"new\nline": NEW, " sp ace ": NEW}),
}


def furnish(work: Path) -> None:
    """Make what is there before."""
    for name, door in DOORS.items():
        (work / name).mkdir()
        for file, content in door.files.items():
            path = work / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            path.chmod(0o644)
        for new, old in door.links.items():
            (work / name / new).hardlink_to(work / name / old)


def stdin() -> bytes:
    """Give what `PROGRAM` reads."""
    return json.dumps({name: door.act for name, door in DOORS.items()}).encode()
