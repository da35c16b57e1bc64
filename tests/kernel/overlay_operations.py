"""What a trial might do to a directory: random operations from a seed, and a full description of the result.

Run as a program inside a private mount namespace::

    overlay_operations.py SEED COUNT LOWER UPPER WORK MERGED PLAIN DESCRIPTION

mounts the overlay, does the same operations in the merged view and in the plain directory, and writes down both.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH114, PTH115, PTH118, PTH123, PTH211 - paths are bytes here, which pathlib does not know

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

NAMES = [b"a", b"b", b"c", b"new\nline", b"not-utf8-\xff", b" lead", b"-rf", b"d.md", b"\\x"]
LONGEST = b"n" * 255
XATTRS = ["user.one", "user.two"]


def describe(top: bytes) -> dict[str, list[object]]:
    """Describe everything below a directory: kind, mode, owner, size, content, times of files, names of one inode."""
    found: dict[str, list[object]] = {}
    inodes: dict[tuple[int, int], list[str]] = {}
    for above, directories, files in os.walk(top):
        for name in [b".", *files, *(name for name in directories if os.path.islink(os.path.join(above, name)))]:
            path = os.path.join(above, name)
            relative = os.fsdecode(os.path.relpath(path, top))
            state = os.lstat(path)
            if not stat.S_ISDIR(state.st_mode):
                inodes.setdefault((state.st_dev, state.st_ino), []).append(relative)
            found[relative] = [
                state.st_mode,
                state.st_uid,
                state.st_gid,
                0 if stat.S_ISDIR(state.st_mode) else state.st_size,
                content(path, state),
                {
                    name: os.getxattr(path, name, follow_symlinks=False).hex()
                    for name in sorted(os.listxattr(path, follow_symlinks=False))
                },
                state.st_mtime_ns,
            ]
    for names in inodes.values():
        for name in names:
            found[name].append(sorted(names))
    return found


def content(path: bytes, state: os.stat_result) -> str:
    """Digest a file, or give the text of a symlink."""
    if stat.S_ISLNK(state.st_mode):
        return os.fsdecode(os.readlink(path))
    return hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest() if stat.S_ISREG(state.st_mode) else ""


def build(top: bytes, dice: random.Random) -> None:
    """Make the tree that a trial begins with."""
    Directory(top, dice).run(40, ["create", "create", "mkdir", "mkdir", "symlink", "link", "chmod", "sparse", "xattr"])


class Directory:
    """One directory on which operations are done."""

    def __init__(self, top: bytes, dice: random.Random) -> None:
        """Take the directory and the source of randomness."""
        self.top = top
        self.dice = dice
        self.done: list[str] = []

    def run(self, count: int, kinds: list[str] | None = None) -> list[str]:
        """Do `count` operations; returns what was done and what failed."""
        kinds = kinds or [name for name in dir(self) if name.startswith("do_")]
        for _ in range(count):
            kind = self.dice.choice(kinds).removeprefix("do_")
            try:
                getattr(self, f"do_{kind}")()
                self.done.append(kind)
            except OSError as err:
                self.done.append(f"{kind}: {err.errno}")
        return self.done

    def paths(self, *, directories: bool, files: bool) -> list[bytes]:
        """List what there is, sorted."""
        found = []
        for above, inner, other in os.walk(self.top):
            links = [name for name in inner if os.path.islink(os.path.join(above, name))]
            if files:
                found += [os.path.join(above, name) for name in other + links]
            if directories:
                found += [os.path.join(above, name) for name in inner if name not in links]
        return sorted(found)

    def some(self, *, directories: bool = True, files: bool = True) -> bytes:
        """Choose something that exists."""
        found = self.paths(directories=directories, files=files)
        if not found:
            raise FileNotFoundError(2, "nothing there")
        return self.dice.choice(found)

    def place(self, *, longest: bool = False) -> bytes:
        """Choose a name, in a directory that exists; the longest for files only, since no redirect can name it."""
        return os.path.join(
            self.dice.choice([self.top, *self.paths(directories=True, files=False)]),
            self.dice.choice([*NAMES, LONGEST] if longest else NAMES),
        )

    def regular(self) -> bytes:
        """Choose a regular file."""
        path = self.some(directories=False)
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(22, "no regular file")
        return path

    def fresh(self, path: bytes) -> BinaryIO:
        """Open for writing what is a regular file or nothing yet."""
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(22, "no regular file")
        return open(path, "wb")

    def do_create(self) -> None:
        """Create or overwrite."""
        with self.fresh(self.place(longest=True)) as file:
            file.write(self.dice.randbytes(self.dice.choice([0, 3, 5000])))

    def do_append(self) -> None:
        """Append to a file that exists."""
        with open(self.regular(), "ab") as file:
            file.write(b"appended")

    def do_truncate(self) -> None:
        """Cut a file."""
        os.truncate(self.regular(), 2)

    def do_touch_only(self) -> None:
        """Open for writing, and write nothing."""
        os.close(os.open(self.regular(), os.O_WRONLY))

    def do_sparse(self) -> None:
        """Write far behind the end."""
        with self.fresh(self.place()) as file:
            file.seek(300_000)
            file.write(b"end")
            file.truncate(400_000)

    def do_mkdir(self) -> None:
        """Make a directory."""
        os.mkdir(self.place())

    def do_symlink(self) -> None:
        """Make a symlink: to a sibling, out of the tree, to nothing."""
        os.symlink(self.dice.choice([b"a", b"../b", b"/etc", b"nowhere\xff"]), self.place())

    def do_link(self) -> None:
        """Make another name."""
        os.link(self.some(directories=False), self.place(), follow_symlinks=False)

    def do_fifo(self) -> None:
        """Make a fifo."""
        os.mkfifo(self.place())

    def do_delete(self) -> None:
        """Remove one name."""
        os.unlink(self.some(directories=False))

    def do_delete_tree(self) -> None:
        """Remove a directory with everything in it."""
        shutil.rmtree(self.some(files=False))

    def do_recreate(self) -> None:
        """Remove a directory and make it again, with something else in it."""
        path = self.some(files=False)
        shutil.rmtree(path)
        os.mkdir(path)
        Path(os.fsdecode(os.path.join(path, b"a"))).write_bytes(b"again")

    def do_rename(self) -> None:
        """Rename anything to anywhere, over what is there."""
        os.rename(self.some(), self.place())

    def do_rename_directory(self) -> None:
        """Move a directory."""
        os.rename(self.some(files=False), self.place())

    def do_swap(self) -> None:
        """Let two directories change places."""
        first, second = self.some(files=False), self.some(files=False)
        if first.startswith(second + b"/") or second.startswith(first + b"/") or first == second:
            raise OSError(22, "one in the other")
        between = os.path.join(self.top, b"between")
        os.rename(first, between)
        os.rename(second, first)
        os.rename(between, second)

    def do_file_for_directory(self) -> None:
        """Put a file where a directory was."""
        path = self.some(files=False)
        shutil.rmtree(path)
        Path(os.fsdecode(path)).write_bytes(b"file now")

    def do_directory_for_file(self) -> None:
        """Put a directory where a file was."""
        path = self.some(directories=False)
        os.unlink(path)
        os.mkdir(path)

    def do_replace(self) -> None:
        """Write beside, and rename over: as editors do."""
        path = self.some(directories=False)
        Path(os.fsdecode(path + b"~")).write_bytes(b"edited")
        os.rename(path + b"~", path)

    def do_chmod(self) -> None:
        """Change a mode, set-id and sticky bits included."""
        path = self.some()
        if not os.path.islink(path):
            os.chmod(path, self.dice.choice([0o600, 0o755, 0o4755, 0o2711, 0o1777]))

    def do_chown(self) -> None:
        """Change an owner, also of a symlink."""
        os.chown(self.some(), 1234, self.dice.choice([0, 5678]), follow_symlinks=False)

    def do_xattr(self) -> None:
        """Set or remove an attribute."""
        path, name = self.some(), self.dice.choice(XATTRS)
        if os.path.islink(path):
            raise OSError(22, "no attributes on symlinks")
        if name in os.listxattr(path) and self.dice.random() < 0.5:
            os.removexattr(path, name)
        else:
            os.setxattr(path, name, self.dice.randbytes(4))

    def do_times(self) -> None:
        """Set times, also of a symlink."""
        os.utime(self.some(), ns=(1, self.dice.randrange(10**18)), follow_symlinks=False)

    def do_mode_of_top(self) -> None:
        """Change the directory itself."""
        os.chmod(self.top, self.dice.choice([0o700, 0o755, 0o750]))


def main() -> None:
    """Do the operations in both directories and write down both."""
    seed, count, lower, upper, work, merged, plain, description = sys.argv[1:]
    options = f"lowerdir={lower},upperdir={upper},workdir={work},redirect_dir=on,index=on,metacopy=off"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged], check=True)
    try:
        if Path(count).is_file():
            logs = [subprocess.run(["bash", "-eu", count], cwd=top, check=False).returncode for top in (merged, plain)]
        else:
            logs = [Directory(os.fsencode(top), random.Random(seed)).run(int(count)) for top in (merged, plain)]  # noqa: S311 - repeatable on purpose
        result = {"done": logs, "merged": describe(os.fsencode(merged)), "plain": describe(os.fsencode(plain))}
    finally:
        subprocess.run(["umount", merged], check=True)
    Path(description).write_text(json.dumps(result), encoding="ascii")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
