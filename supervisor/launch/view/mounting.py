# ruff: noqa: PTH101, PTH102, PTH103, PTH112, PTH115, PTH116, PTH119, PTH120, PTH211
# Paths of the kernel are bytes, which pathlib does not take.
"""The steps that make a view: each is data that can be described, and can be executed in the trial's mount namespace.

A step's paths are bytes; nothing here interprets options out of them. Layers of an overlay are handed to the kernel as
``/proc/self/fd/N``: no character of a path needs escaping, no option line outgrows a page, and the trial's own
``/proc/self/mounts`` does not tell where its layers are kept. Steps are msgspec structs, as events are: as many
dataclasses would cost every start 6 ms.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

import msgspec

from supervisor.launch import libc
from supervisor.launch.libc import NO_FLAGS, MountFlag
from supervisor.launch.view.mounts import join

Note = Callable[[str], None]

_OVERLAY_OPTIONS = (
    b"redirect_dir=on,index=on,metacopy=off,volatile",
    b"redirect_dir=on,index=on,metacopy=off",
    b"redirect_dir=on,index=off,metacopy=off",
)
_UNSUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ELOOP, errno.EBUSY, errno.ENOSYS, errno.EPERM, errno.ENODEV)


class MountTmpfs(msgspec.Struct, frozen=True, kw_only=True):
    """A fresh tmpfs at ``target``."""

    target: bytes
    mode: int = 0o755
    size_bytes: int | None = None

    def describe(self) -> str:
        """Say it in one line."""
        return f"tmpfs {os.fsdecode(self.target)} mode {self.mode:o}"

    def execute(self, _note: Note) -> None:
        """Mount it."""
        flags = MountFlag.NOSUID | MountFlag.NODEV
        size = b"" if self.size_bytes is None else b",size=%d" % self.size_bytes
        libc.mount(b"tmpfs", self.target, b"tmpfs", flags, b"mode=%o%b" % (self.mode, size))


class MakeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A small file of ours."""

    target: bytes
    content: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0

    def describe(self) -> str:
        """Say it in one line."""
        return f"file {os.fsdecode(self.target)} mode {self.mode:o}, {len(self.content)} bytes"

    def execute(self, _note: Note) -> None:
        """Write it, whatever the umask."""
        fd = os.open(self.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, self.content)
            os.fchown(fd, self.uid, self.gid)
            os.fchmod(fd, self.mode)
        finally:
            os.close(fd)


class MakeDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of ours."""

    target: bytes
    mode: int = 0o755
    uid: int = 0
    gid: int = 0

    def describe(self) -> str:
        """Say it in one line."""
        return f"directory {os.fsdecode(self.target)} mode {self.mode:o}"

    def execute(self, _note: Note) -> None:
        """Make it, whatever the umask."""
        os.mkdir(self.target)
        os.chown(self.target, self.uid, self.gid)
        os.chmod(self.target, self.mode)


class MountOverlay(msgspec.Struct, frozen=True, kw_only=True):
    """An overlay of a host directory at ``path`` of the view.

    Attributes:
        lower: the host's directory.
        layer: directory of ours that gets ``upper`` and ``work``.
        discarded: what is written is thrown away, so a lower that cannot be part of an overlay may be shown read-only.
        required: it may not be shown so.

    Mounted ``volatile`` (Linux 5.10): a trial's fsync has nothing to promise, and unmounting would otherwise write back
    the whole filesystem of ``layer``, of which the host may have gigabytes dirty. So whoever keeps what was staged has
    to sync it (`libc.syncfs`) before relying on it.
    """

    root: bytes
    path: bytes
    lower: bytes
    layer: bytes
    discarded: bool
    required: bool = True
    flags: MountFlag = NO_FLAGS

    @property
    def upper(self) -> bytes:
        """Where the writes go."""
        return join(self.layer, b"upper")

    def describe(self) -> str:
        """Say it in one line."""
        kind = "discarded" if self.discarded else "staged"
        return f"overlay {os.fsdecode(self.path)}, {kind} writes in {os.fsdecode(self.upper)}"

    def execute(self, note: Note) -> None:
        """Mount it with the strictest options that the kernel takes."""
        work = join(self.layer, b"work")
        for directory in (self.upper, work):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        copy_attributes(self.lower, self.upper)
        target = make_mountpoint(self.root, self.path, beside=self.lower.removesuffix(self.path))
        with _opened(self.lower) as lower, _opened(self.upper) as upper, _opened(work) as worker:
            layers = b"lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d," % (
                lower, upper, worker,
            )  # fmt: skip
            self._mount(target, layers, note)

    def _mount(self, target: bytes, layers: bytes, note: Note) -> None:
        failure: OSError | None = None
        for options in _OVERLAY_OPTIONS:
            try:
                libc.mount(b"overlay", target, b"overlay", self.flags, layers + options)
            except OSError as err:
                if err.errno not in _UNSUPPORTED:
                    raise
                failure = err
                continue
            if failure is not None:
                note(f"overlay {os.fsdecode(self.path)}: mounted with {options.decode()} ({failure.strerror})")
            return
        if (self.required and not self.discarded) or self.path == b"/":
            raise failure or OSError(errno.EINVAL, "no overlay options")
        note(f"{os.fsdecode(self.path)}: shown read-only, it cannot be part of an overlay")
        Bind(root=self.root, path=self.path, source=self.lower, flags=self.flags | MountFlag.RDONLY).execute(note)


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """A host file or directory shown as it is at ``path`` of the view, read-only or not."""

    root: bytes
    path: bytes
    source: bytes
    flags: MountFlag = NO_FLAGS

    def describe(self) -> str:
        """Say it in one line."""
        kind = "read-only" if MountFlag.RDONLY in self.flags else "in place"
        return f"bind {os.fsdecode(self.source)} at {os.fsdecode(self.path)}, {kind}"

    def execute(self, _note: Note) -> None:
        """Bind, then set the flags: one call cannot do both."""
        directory = stat.S_ISDIR(os.stat(self.source).st_mode)
        beside = self.source.removesuffix(self.path)
        target = make_mountpoint(self.root, self.path, directory=directory, beside=beside)
        libc.mount(self.source, target, b"", MountFlag.BIND)
        if self.flags:
            libc.mount(b"none", target, b"", MountFlag.REMOUNT | MountFlag.BIND | self.flags)


class MountPrivate(msgspec.Struct, frozen=True, kw_only=True):
    """An empty tmpfs of the trial's own at ``path`` of the view."""

    root: bytes
    path: bytes
    mode: int
    size_bytes: int | None = None

    def describe(self) -> str:
        """Say it in one line."""
        return f"private {os.fsdecode(self.path)} mode {self.mode:o}"

    def execute(self, note: Note) -> None:
        """Mount it."""
        place = resolve_inside(self.root, self.path)  # some hosts have /tmp elsewhere
        target = make_mountpoint(self.root, place)
        MountTmpfs(target=target, mode=self.mode, size_bytes=self.size_bytes).execute(note)


class Mask(msgspec.Struct, frozen=True, kw_only=True):
    """Something empty on top of ``path``, when the view has such a path."""

    root: bytes
    path: bytes
    empty_file: bytes
    empty_directory: bytes

    def describe(self) -> str:
        """Say it in one line."""
        return f"mask {os.fsdecode(self.path)}"

    def execute(self, _note: Note) -> None:
        """Bind the empty file or directory over it, read-only."""
        target = join(self.root, self.path)
        try:
            directory = stat.S_ISDIR(os.lstat(target).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return
        libc.mount(self.empty_directory if directory else self.empty_file, target, b"", MountFlag.BIND)
        flags = MountFlag.REMOUNT | MountFlag.BIND | MountFlag.RDONLY | MountFlag.NOSUID | MountFlag.NODEV
        libc.mount(b"none", target, b"", flags)


class KeepWritable(msgspec.Struct, frozen=True, kw_only=True):
    """A mount of its own at ``path``, so that it stays writable when what it lies in is made read-only."""

    root: bytes
    path: bytes

    def describe(self) -> str:
        """Say it in one line."""
        return f"keep writable {os.fsdecode(self.path)}"

    def execute(self, _note: Note) -> None:
        """Bind it over itself, with what is mounted in it."""
        target = resolve_inside(self.root, self.path)
        whole = join(self.root, target)
        libc.mount(whole, whole, b"", MountFlag.BIND | MountFlag.REC)


class MakeReadOnly(msgspec.Struct, frozen=True, kw_only=True):
    """The mount at ``path`` refuses writes from here on; what is mounted in it does as before."""

    root: bytes
    path: bytes
    flags: MountFlag = NO_FLAGS

    def describe(self) -> str:
        """Say it in one line."""
        return f"read-only {os.fsdecode(self.path)}"

    def execute(self, _note: Note) -> None:
        """Set the flag."""
        target = join(self.root, self.path)
        libc.mount(b"none", target, b"", MountFlag.REMOUNT | MountFlag.BIND | MountFlag.RDONLY | self.flags)


class ReplaceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of ours at ``path`` of the view, wherever a symbolic link there may lead."""

    root: bytes
    path: bytes
    source: bytes
    flags: MountFlag = NO_FLAGS

    def describe(self) -> str:
        """Say it in one line."""
        return f"own {os.fsdecode(self.path)}"

    def execute(self, _note: Note) -> None:
        """Follow links inside the view only, make what is missing, and bind."""
        target = make_mountpoint(self.root, resolve_inside(self.root, self.path), directory=False)
        libc.mount(self.source, target, b"", MountFlag.BIND)
        if self.flags:
            libc.mount(b"none", target, b"", MountFlag.REMOUNT | MountFlag.BIND | self.flags)


class Cover(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of ours on top of ``path`` of the view, read-only, whether or not there was such a path."""

    root: bytes
    path: bytes
    source: bytes

    def describe(self) -> str:
        """Say it in one line."""
        return f"cover {os.fsdecode(self.path)}"

    def execute(self, note: Note) -> None:
        """Follow links inside the view only, make what is missing, and bind; something of another kind is left."""
        directory = stat.S_ISDIR(os.stat(self.source).st_mode)
        place = resolve_inside(self.root, self.path)
        target = join(self.root, place)
        if os.path.lexists(target) and os.path.isdir(target) is not directory:
            note(f"{os.fsdecode(self.path)}: not covered, it is {'no' if directory else 'a'} directory")
            return
        if not os.path.lexists(target):
            make_mountpoint(self.root, place, directory=directory)
        libc.mount(self.source, target, b"", MountFlag.BIND)
        flags = MountFlag.REMOUNT | MountFlag.BIND | MountFlag.RDONLY | MountFlag.NOSUID | MountFlag.NODEV
        libc.mount(b"none", target, b"", flags)


class MakeLink(msgspec.Struct, frozen=True, kw_only=True):
    """A symbolic link of the host that leads to the workspace through a place that is private in the view."""

    root: bytes
    path: bytes
    target: bytes

    def describe(self) -> str:
        """Say it in one line."""
        return f"link {os.fsdecode(self.path)} to {os.fsdecode(self.target)}"

    def execute(self, _note: Note) -> None:
        """Make it with its parents, unless it is there."""
        parent = make_mountpoint(self.root, os.path.dirname(self.path))
        with contextlib.suppress(FileExistsError):
            os.symlink(self.target, join(parent, os.path.basename(self.path)))


class MountOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Captured layers over a directory, at ``path`` of the view; read-only unless ``write_to`` takes the writes.

    Attributes:
        layers: directories in the form of an overlay's upper tree, the topmost first.
        base: the directory that they are laid over.
        write_to: directory of ours with ``upper`` and ``work``, or None.
    """

    root: bytes
    path: bytes
    layers: tuple[bytes, ...]
    base: bytes
    write_to: bytes | None = None

    def describe(self) -> str:
        """Say it in one line."""
        kind = "read-only" if self.write_to is None else "a copy"
        return f"outcome {os.fsdecode(self.path)}, {kind}, {len(self.layers)} layers over {os.fsdecode(self.base)}"

    def execute(self, note: Note) -> None:
        """Mount it: layers are handed over as descriptors, so that no character of a path needs escaping."""
        if not self.layers and self.write_to is None:
            flags = MountFlag.RDONLY | MountFlag.NOSUID | MountFlag.NODEV
            Bind(root=self.root, path=self.path, source=self.base, flags=flags).execute(note)
            return
        target = make_mountpoint(self.root, self.path, beside=self.base.removesuffix(self.path))
        with contextlib.ExitStack() as stack:
            lower = b":".join(self._named(path, stack) for path in (*self.layers, self.base))
            options = b"lowerdir=%b,index=off,metacopy=off,redirect_dir=" % lower
            flags = MountFlag.NOSUID | MountFlag.NODEV
            if self.write_to is None:
                options, flags = options + b"follow", flags | MountFlag.RDONLY
            else:
                upper, work = (self._named(join(self.write_to, name), stack) for name in (b"upper", b"work"))
                options += b"on,upperdir=%b,workdir=%b" % (upper, work)
            libc.mount(b"overlay", target, b"overlay", flags, options)

    @staticmethod
    def _named(path: bytes, stack: contextlib.ExitStack) -> bytes:
        return b"/proc/self/fd/%d" % stack.enter_context(_opened(path))


Step = (
    MountOutcome |
    MountTmpfs | MakeFile | MakeDirectory | MountOverlay | Bind | MountPrivate | Mask | ReplaceFile | Cover | MakeLink |
    KeepWritable | MakeReadOnly
)  # fmt: skip


@contextlib.contextmanager
def _opened(path: bytes) -> Iterator[int]:
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def copy_attributes(source: bytes, target: bytes) -> None:
    """Give a directory the owner, mode, times and extended attributes of another.

    The root of an overlay shows those of its upper directory, so a trial would otherwise see ours.
    """
    state = os.stat(source)
    os.chown(target, state.st_uid, state.st_gid)
    os.chmod(target, stat.S_IMODE(state.st_mode))
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            if not name.startswith("trusted.overlay."):
                with contextlib.suppress(OSError):  # a label the other filesystem does not know
                    os.setxattr(target, name, os.getxattr(source, name))
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def make_mountpoint(root: bytes, path: bytes, *, directory: bool = True, beside: bytes = b"") -> bytes:
    """Make what is missing of ``path`` below ``root``, and give the whole.

    Directories get the mode and owner that the host has for ``path`` below ``beside``.
    """
    whole = root
    *parents, last = path.strip(b"/").split(b"/")
    host = beside
    for name in [*parents, last] if directory else parents:
        whole, host = join(whole, name), host + b"/" + name
        with contextlib.suppress(FileExistsError):
            os.mkdir(whole)
            _copy_owner(host, whole)
    if not directory:
        whole = join(whole, last)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    return whole


def _copy_owner(host: bytes, made: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        state = os.stat(host)
        os.chown(made, state.st_uid, state.st_gid)
        os.chmod(made, stat.S_IMODE(state.st_mode))


def resolve_inside(root: bytes, path: bytes) -> bytes:
    """Follow the symbolic links of ``path`` as if ``root`` were ``/``; missing parts are kept as they are.

    Raises:
        OSError: ELOOP after 40 links, as the kernel does.
    """
    done, todo, links = b"/", path.split(b"/"), 0
    while todo:
        name = todo.pop(0)
        if name in {b"", b"."}:
            continue
        if name == b"..":
            done = os.path.dirname(done)
            continue
        try:
            target = os.readlink(join(root, join(done, name)))
        except OSError:
            done = join(done, name)
            continue
        links += 1
        if links > 40:  # noqa: PLR2004 - MAXSYMLINKS of the kernel
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(path))
        done, todo = (b"/" if target.startswith(b"/") else done), target.split(b"/") + todo
    return done
