# ruff: noqa: PTH110, PTH112, PTH114, PTH115, PTH120
# Paths of the kernel are bytes, which pathlib does not take.
"""What a trial sees of the host's files: the plan as data, made before anything is mounted, and its execution.

Laws:
    * Everything the host shows is shown, through an overlay whose writes are thrown away; that of the workspace, and
      of mounts in it, writes into the stage. What an overlay cannot hold is shown read-only, and a note says so.
    * Kernel filesystems (proc, sysfs, cgroup, bpf, …) are never shown: the box brings its own.
    * The directory of our runs is masked under every path by which a mount shows it.
    * Shared places are shown in place, under every path by which a mount shows them.
    * /tmp, /run and /dev/shm are the trial's own and empty; a workspace below them still appears at its path.

The view is built on a tmpfs at the run's ``box`` directory, in a mount namespace that only the forked child has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from supervisor.errors import LaunchError
from supervisor.launch.libc import NO_FLAGS, MountFlag
from supervisor.launch.view.mounting import (
    Bind,
    Cover,
    KeepWritable,
    MakeDirectory,
    MakeFile,
    MakeLink,
    MakeReadOnly,
    Mask,
    MountOverlay,
    MountPrivate,
    MountTmpfs,
    Note,
    ReplaceFile,
    Step,
)
from supervisor.launch.view.mounts import (
    HostMount,
    aliases,
    is_below,
    is_visible,
    join,
    mount_of,
    place_in_filesystem,
    read_mounts,
)
from supervisor.values import dataclass

KERNEL_FILESYSTEMS = frozenset(
    b"proc sysfs cgroup cgroup2 bpf devtmpfs devpts tracefs debugfs securityfs configfs fusectl pstore efivarfs"
    b" selinuxfs smackfs mqueue hugetlbfs autofs binfmt_misc rpc_pipefs nfsd nsfs functionfs binder ramfs".split()
)
"""What no view shows: a box brings its own."""
_PRIVATE = {b"/tmp": 0o1777, b"/run": 0o755}
_SIZES_PERCENT = {b"/tmp": 50, b"/dev/shm": 25, b"/run": 5}
"""Of the memory limit. Files there count as the trial's memory, and no killing frees them: together they must stay
below it, or what is killed in the end is the box itself."""
_NEVER = (b"/proc", b"/sys", b"/dev")
_SHM = b"/dev/shm"
_FLAGS = {
    b"ro": MountFlag.RDONLY,
    b"noexec": MountFlag.NOEXEC,
    b"nosuid": MountFlag.NOSUID,
    b"nodev": MountFlag.NODEV,
}
_IN_PLACE = MountFlag.NOATIME
"""Of what others meet too: a trial that only reads must not leave behind when it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Files of ours at a path: ``files`` are names below it with their content; one without a name is the path."""

    path: bytes
    files: tuple[tuple[bytes, bytes], ...]

    def paths(self) -> tuple[bytes, ...]:
        """Give the path of every file."""
        return tuple(join(self.path, name) if name else self.path for name, _ in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpec:
    """What is asked of a view.

    Attributes:
        workspace: absolute path, symbolic links allowed.
        staged: writes to the workspace go into the stage; else in place.
        stage: directory of the run that gets the workspace's ``upper``.
        outside: directory of the run for writes elsewhere.
        box: directory of the run that is the mount point.
        state: the directory of all runs, masked.
        masks: credential paths, absolute; those that do not exist are ignored.
        shared: places that are written in place, absolute and free of symlinks.
        denied: what is there and must not be seen, likewise: unreadable to the trial, also its names.
        writable: the only places where writes do not fail, absolute; None when they fail nowhere.
        hostname: of the box.
        nameserver: address for the box's resolv.conf.
        uid, gid: the run user, who gets a /run/user directory.
        sockets: of services that the trial may reach, absolute; each is shown at its own path.
        memory_bytes: what the trial may use of memory, or None: what it may put into /tmp and the like.
        shown: files of ours, path and content, whatever the host has there.
        planted: what is put over the home instead of what is there.
    """

    workspace: bytes
    staged: bool
    stage: bytes
    outside: bytes
    box: bytes
    state: bytes
    masks: tuple[bytes, ...] = ()
    shared: tuple[bytes, ...] = ()
    denied: tuple[bytes, ...] = ()
    writable: tuple[bytes, ...] | None = None
    hostname: str = "trial"
    nameserver: str = "192.0.2.53"
    uid: int = 0
    gid: int = 0
    memory_bytes: int | None = None
    shown: tuple[tuple[bytes, bytes], ...] = ()
    planted: tuple[Planted, ...] = ()
    sockets: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A plan: where the view is built, and the steps in order.

    Attributes:
        root: what becomes ``/`` of the box.
        shm: what becomes ``/dev/shm``.
        empty_file: an unreadable empty file, for masks that bubblewrap makes in /proc.
        empty_directory: likewise a directory.
        workspace: the workspace without symbolic links.
    """

    root: bytes
    shm: bytes
    empty_file: bytes
    empty_directory: bytes
    workspace: bytes
    steps: tuple[Step, ...]

    def describe(self) -> tuple[str, ...]:
        """Give one line a step."""
        return tuple(step.describe() for step in self.steps)

    @property
    def layers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Give (path, upper directory) of every overlay, for the state of files that were written outside."""
        return tuple((step.lower, step.upper) for step in self.steps if isinstance(step, MountOverlay))

    def shown_at(self, source: bytes) -> tuple[bytes, ...]:
        """Give every path of the box at which a place of the host is bound."""
        steps = (step for step in self.steps if isinstance(step, Bind) and step.source == source)
        return tuple(dict.fromkeys(join(_SHM, step.path) if step.root == self.shm else step.path for step in steps))

    def execute(self, note: Note) -> None:
        """Build it, in the mount namespace of the caller.

        Raises:
            LaunchError: with the step and the path.
        """
        for step in self.steps:
            try:
                step.execute(note)
            except OSError as err:
                message = f"{step.describe()}: {err.strerror}"
                raise LaunchError(message, step=_name(step), place=_place(err), hint=_hint(step)) from err


def _name(step: Step) -> str:
    """``MountOverlay`` is ``mount overlay``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(step).__name__).lower()


def _place(err: OSError) -> str | None:
    return os.fsdecode(err.filename) if isinstance(err.filename, str | bytes) else None


def _hint(step: Step) -> str | None:
    if not isinstance(step, MountOverlay):
        return None
    if step.discarded:
        return "set SUPERVISE_HOME to a directory on a local disk (ext4, xfs, btrfs) or on a tmpfs"
    return "set SUPERVISE_HOME to a directory on a local disk, or run with --direct"


def plan_view(spec: ViewSpec, mounts: Sequence[HostMount] | None = None) -> View:
    """Look at the host and make the plan. Mounts nothing.

    Raises:
        LaunchError: the workspace is no directory, or lies where it cannot be shown.
    """
    try:
        return _Planner(spec, read_mounts() if mounts is None else mounts).plan()
    except OSError as err:
        message = f"the host's mounts cannot be looked at: {err.strerror}"
        raise LaunchError(message, step="plan view", place=_place(err)) from err
    except LookupError as err:
        message = "a path is on no mount that is listed; is this a chroot?"
        raise LaunchError(message, step="plan view", place=os.fsdecode(err.args[0])) from err


def nested_in_place(workspace: bytes, state: bytes, mounts: Sequence[HostMount] | None = None) -> tuple[bytes, ...]:
    """Give the directories below a workspace where another file system begins that is written in place with it.

    Args:
        workspace: free of symlinks.
        state: the directory of all runs.
        mounts: of the host; looked at when not given.
    """
    unused = ViewSpec(workspace=workspace, staged=False, stage=b"", outside=b"", box=b"", state=state)
    shown = _Planner(unused, read_mounts() if mounts is None else mounts).shown
    below = [mount.path for mount in shown if is_below(mount.path, workspace)]
    return tuple(dict.fromkeys(path for path in below if os.path.isdir(path)))


def place_not_shown(path: bytes, spec: ViewSpec) -> bytes | None:
    """Give the place in which a trial does not see what the host has at a path; None when it does.

    Args:
        path: free of symlinks.
        spec: what is asked of the view.
    """
    workspace = os.path.realpath(spec.workspace)
    own = (place for place in (*_PRIVATE, *_NEVER) if not is_below(workspace, place))
    hidden = (os.path.realpath(place) for place in (spec.state, *spec.masks, *spec.denied))
    if any(is_below(path, place) for place in spec.shared):
        return None
    inside = next((place for place in own if is_below(path, place) and path != place), None)
    return inside or next((place for place in hidden if is_below(path, place)), None)


class _Planner:
    """The host's mounts beside what was asked; each method gives the steps of one concern."""

    def __init__(self, spec: ViewSpec, mounts: Sequence[HostMount]) -> None:
        self.spec = spec
        self.workspace = _real_directory(spec.workspace)
        self.state = os.path.realpath(spec.state)
        self.root = join(spec.box, b"root")
        self.shm = join(spec.box, b"shm")
        self.host_mounts = mounts
        self._refuse_workspace()
        self.open: list[bytes] = []
        self.shown = [mount for mount in mounts if self._is_shown(mount) and is_visible(mount)]

    def plan(self) -> View:
        empty_file, empty_directory = join(self.spec.box, b"empty"), join(self.spec.box, b"void")
        layers = sorted(self._layers(), key=lambda step: step.path.rstrip(b"/").split(b"/"))
        return View(
            root=self.root,
            shm=self.shm,
            empty_file=empty_file,
            empty_directory=empty_directory,
            workspace=self.workspace,
            steps=(
                *self._scratch(),
                *layers,
                *self._writable(layers),
                *self._run_directories(),
                *self._links(),
                *self._masks(),
                *self._planted(),
                *self._files(),
                *self._sockets(),
                *self._read_only(layers),
            ),
        )

    def _refuse_workspace(self) -> None:
        if is_below(self.workspace, self.state):
            raise _unusable(self.workspace, "lies in the directory of our runs")
        if any(is_below(self.workspace, never) for never in _NEVER) and not is_below(self.workspace, _SHM):
            raise _unusable(self.workspace, "lies in a kernel filesystem")
        if self.workspace in {*_PRIVATE, _SHM}:
            raise _unusable(self.workspace, "is private to every trial", hint="choose a directory below it")

    def _is_shown(self, mount: HostMount) -> bool:
        if mount.fstype in KERNEL_FILESYSTEMS or mount.path in {b"/", self.workspace}:
            return False
        within = is_below(mount.path, self.workspace) and self.workspace != b"/"
        if within or any(is_below(mount.path, place) for place in self.spec.shared):
            return not is_below(mount.path, self.state)
        return not any(is_below(mount.path, hidden) for hidden in (*_NEVER, *_PRIVATE, self.state))

    def _scratch(self) -> Iterable[Step]:
        box = self.spec.box
        name = self.spec.hostname.encode()
        yield MountTmpfs(target=box)
        yield MakeDirectory(target=self.root)
        yield MakeDirectory(target=self.shm)
        yield MountTmpfs(target=self.shm, mode=0o1777, size_bytes=self._size(_SHM))
        yield MakeFile(target=join(box, b"empty"), mode=0)
        yield MakeDirectory(target=join(box, b"void"), mode=0)
        yield MakeDirectory(target=join(box, b"blank"), mode=0o555)
        yield MakeFile(target=join(box, b"resolv.conf"), content=b"nameserver %b\n" % self.spec.nameserver.encode())
        hosts = b"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %b\n" % name
        yield MakeFile(target=join(box, b"hosts"), content=hosts)
        yield MakeFile(target=join(box, b"hostname"), content=name + b"\n")
        for number, (_, content) in enumerate(self.spec.shown):
            yield MakeFile(target=join(box, b"shown-%d" % number), content=content)

    def _layers(self) -> Iterable[MountOverlay | Bind | MountPrivate]:
        yield from self._workspace_layer()
        if self.workspace != b"/":
            yield self._discarded(b"/", 0, NO_FLAGS)
        for path, mode in _PRIVATE.items():
            yield MountPrivate(root=self.root, path=path, mode=mode, size_bytes=self._size(path))
        for number, mount in enumerate(self.shown, 1):
            yield self._host_layer(number, mount)
        for place in self.spec.shared:
            flags = _mount_flags(mount_of(place, self.host_mounts))
            for path in self._appearances(place):
                root, inside = self._inside(path)
                yield Bind(root=root, path=inside, source=place, flags=flags | _IN_PLACE)

    def _writable(self, layers: Sequence[Step]) -> Iterable[Step]:
        """Give each place that stays writable a mount of its own, unless it is one; what is not there is in one."""
        mounted = {self._outside(layer) for layer in layers if isinstance(layer, MountOverlay | Bind)}
        for place in self.spec.writable or ():
            path = os.path.realpath(place)
            while not os.path.isdir(path):
                path = os.path.dirname(path)
            own = any(is_below(path, private) for private in (*_PRIVATE, _SHM))
            if own and not is_below(path, self.workspace):
                continue
            root, inside = self._inside(path)
            if path not in mounted:
                yield KeepWritable(root=root, path=inside)
            self.open.append(path)

    def _read_only(self, layers: Sequence[Step]) -> Iterable[Step]:
        """Close what was not kept open, and nothing of what is the trial's own or shared."""
        if self.spec.writable is None:
            return
        shared = {path for place in self.spec.shared for path in self._appearances(place)}
        for layer in layers:
            if not isinstance(layer, MountOverlay | Bind):
                continue
            if not any(is_below(self._outside(layer), path) for path in (*self.open, *shared)):
                yield MakeReadOnly(root=layer.root, path=layer.path, flags=layer.flags)

    def _size(self, path: bytes) -> int | None:
        """Give what a private place may hold; None is the kernel's default, half of the machine's memory."""
        limit = self.spec.memory_bytes
        return None if limit is None else limit * _SIZES_PERCENT[path] // 100

    def _workspace_layer(self) -> Iterable[MountOverlay | Bind]:
        root, path = self._inside(self.workspace)
        flags = _mount_flags(mount_of(self.workspace, self.host_mounts)) if self.workspace != b"/" else NO_FLAGS
        if not self.spec.staged:
            yield Bind(root=root, path=path, source=self.workspace, flags=flags | _IN_PLACE)
            return
        flags &= ~MountFlag.RDONLY
        yield MountOverlay(
            root=root, path=path, lower=self.workspace, layer=self.spec.stage, discarded=False, flags=flags
        )

    def _host_layer(self, number: int, mount: HostMount) -> MountOverlay | Bind:
        flags = _mount_flags(mount)
        root, path = self._inside(mount.path)
        in_place = not self.spec.staged and is_below(mount.path, self.workspace)
        in_place |= any(is_below(mount.path, place) for place in self.spec.shared)
        if in_place or MountFlag.RDONLY in flags or not os.path.isdir(mount.path):
            shown = flags | _IN_PLACE if in_place else flags | MountFlag.RDONLY
            return Bind(root=root, path=path, source=mount.path, flags=shown)
        if self.spec.staged and is_below(mount.path, self.workspace):
            layer = join(self.spec.stage, b"nested/%d" % number)
            return MountOverlay(
                root=root, path=path, lower=mount.path, layer=layer, discarded=False, required=False, flags=flags
            )
        return self._discarded(mount.path, number, flags)

    def _discarded(self, path: bytes, number: int, flags: MountFlag) -> MountOverlay:
        root, inside = self._inside(path)
        layer = join(self.spec.outside, b"%d" % number)
        return MountOverlay(root=root, path=inside, lower=path, layer=layer, discarded=True, flags=flags)

    def _inside(self, path: bytes) -> tuple[bytes, bytes]:
        """Give the tree and the path in it: /dev/shm is built beside the root, because bubblewrap makes /dev."""
        return (self.shm, path[len(_SHM) :]) if is_below(path, _SHM) else (self.root, path)

    def _outside(self, layer: MountOverlay | Bind) -> bytes:
        """Give the path of the box at which a layer is mounted."""
        return join(_SHM, layer.path) if layer.root == self.shm else layer.path

    def _run_directories(self) -> Iterable[Step]:
        run = join(self.root, b"/run")
        if not is_below(self.workspace, b"/run/lock"):
            yield MakeDirectory(target=join(run, b"lock"), mode=0o1777)
        if not is_below(self.workspace, b"/run/user"):
            yield MakeDirectory(target=join(run, b"user"))
            home = join(run, b"user/%d" % self.spec.uid)
            yield MakeDirectory(target=home, mode=0o700, uid=self.spec.uid, gid=self.spec.gid)

    def _sockets(self) -> Iterable[Step]:
        """The sockets of declared services: an overlay shows them, but nobody answers there."""
        for path in self.spec.sockets:
            root, inside = self._inside(path)
            yield Bind(root=root, path=inside, source=path)

    def _links(self) -> Iterable[Step]:
        """The links by which the workspace was named, where the view would have lost them."""
        done = b"/"
        for name in self.spec.workspace.split(b"/"):
            named = join(done, name)
            if os.path.islink(named) and any(is_below(done, private) for private in _PRIVATE):
                yield MakeLink(root=self.root, path=named, target=os.readlink(named))
            done = os.path.realpath(named)

    def _masks(self) -> Iterable[Step]:
        box = self.spec.box
        void, blank, empty = join(box, b"void"), join(box, b"blank"), join(box, b"empty")
        for path in self._appearances(self.state):
            root, inside = self._inside(path)
            yield Mask(root=root, path=inside, empty_file=empty, empty_directory=void)
        for secrets, directory in ((self.spec.masks, blank), (self.spec.denied, void)):
            for real in map(os.path.realpath, secrets):
                for path in self._appearances(real) if os.path.exists(real) else ():
                    root, inside = self._inside(path)
                    yield Mask(root=root, path=inside, empty_file=empty, empty_directory=directory)

    def _planted(self) -> Iterable[Step]:
        """Put what is planted into the box's own directory, and cover what is there with it."""
        uid, gid = self.spec.uid, self.spec.gid
        if self.spec.planted:
            yield MakeDirectory(target=join(self.spec.box, b"planted"))
        for number, planted in enumerate(self.spec.planted):
            source = join(self.spec.box, b"planted/%d" % number)
            whole = not planted.files[0][0]
            if not whole:
                yield MakeDirectory(target=source, mode=0o700, uid=uid, gid=gid)
            for name, content in planted.files:
                target = source if whole else join(source, name)
                yield MakeFile(target=target, content=content, mode=0o600, uid=uid, gid=gid)
            root, inside = self._inside(planted.path)
            yield Cover(root=root, path=inside, source=source)

    def _appearances(self, path: bytes) -> tuple[bytes, ...]:
        """Every path of the view that shows the host's ``path``: itself, and by other mounts of its filesystem."""
        home = mount_of(path, self.host_mounts)
        at_workspace = mount_of(self.workspace, self.host_mounts)
        visible = [mount_of(b"/", self.host_mounts), *self.shown]
        through_workspace = HostMount(
            mount_id=-1,
            device=at_workspace.device,
            root=place_in_filesystem(self.workspace, at_workspace),
            path=self.workspace,
        )
        found = aliases(home.device, place_in_filesystem(path, home), [*visible, through_workspace])
        return tuple(dict.fromkeys((path, *found)))

    def _files(self) -> Iterable[Step]:
        for name in (b"resolv.conf", b"hosts", b"hostname"):
            if name != b"hostname" or Path("/etc/hostname").exists():
                yield self._own(join(b"/etc", name), join(self.spec.box, name))
        for number, (path, _) in enumerate(self.spec.shown):
            yield self._own(path, join(self.spec.box, b"shown-%d" % number))

    def _own(self, path: bytes, source: bytes) -> ReplaceFile:
        flags = NO_FLAGS if self.spec.writable is None else MountFlag.RDONLY
        return ReplaceFile(root=self.root, path=path, source=source, flags=flags)


def _unusable(workspace: bytes, reason: str, hint: str | None = None) -> LaunchError:
    return LaunchError(f"the workspace {reason}", step="plan view", place=os.fsdecode(workspace), hint=hint)


def _real_directory(path: bytes) -> bytes:
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise _unusable(path, "is no directory")
    return real


def _mount_flags(mount: HostMount) -> MountFlag:
    flags = NO_FLAGS
    for option in mount.options:
        flags |= _FLAGS.get(option, NO_FLAGS)
    return flags
