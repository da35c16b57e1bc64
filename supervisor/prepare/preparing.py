"""What is fixed before anything runs: who, where, with which environment, under which policy; and its record.

In: a `RunRequest`. Out: `Prepared`, whose manifest is on disk. Nothing of the trial exists yet.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from policies.credentials import masked_paths
from policies.globs import writable_roots
from policies.types import FilesMode, Outside, Policy
from supervisor import clock
from supervisor.errors import UsageError
from supervisor.launch import trial_notes
from supervisor.launch.boxspec import BoxSpec
from supervisor.launch.cgroup import find_root
from supervisor.launch.leftovers import forget_run, unfinished_commits
from supervisor.launch.limits import Limit, Resource, plan_limits
from supervisor.launch.runs.owner import Owner
from supervisor.launch.runs.state import Home, RunDir, make_run_id
from supervisor.launch.stage.stage import Stage
from supervisor.launch.streams import Standard
from supervisor.launch.terminal import Terminal, find_ttys
from supervisor.launch.view.view import ViewSpec, place_not_shown
from supervisor.log.bound import claim_digest
from supervisor.log.keys import ENVIRONMENT, KeyStore, SigningKey, parse_signing_key, read_signing_key
from supervisor.log.room import find_wait_s
from supervisor.prepare.canary import Canary
from supervisor.prepare.credentials import Credentials, prepare_credentials
from supervisor.prepare.declared import Declared, device_number, find_declared
from supervisor.prepare.globbing import existing
from supervisor.prepare.machine import boot_id, machine_id
from supervisor.prepare.manifest import Started, describe_run
from supervisor.prepare.masking import require_maskable
from supervisor.prepare.redacting import redact_policy
from supervisor.request import RunRequest, check_request
from supervisor.streams import is_open
from supervisor.values import dataclass, replace
from supervisor.version import VERSION

if TYPE_CHECKING:
    from supervisor.launch.stage.inplace import InPlace
    from supervisor.prepare.inspected import Inspection

_TOKEN_BYTES = 4

ShownSocket = tuple[str, bytes, int, int]
"""A service, and the path, device and inode of its socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who CMD runs as; ``home`` is None for a uid without an entry."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str | None
    home: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that is decided before the box is built.

    ``told_policy`` is the policy as it is kept with the run, and judged by: without values of credentials.
    """

    request: RunRequest
    home: Home
    run: RunDir
    workspace: Path
    user: User
    spec: BoxSpec
    limits: tuple[Limit, ...]
    canary: Canary
    terminal: Terminal | None
    manifest_digest: str
    room_wait_s: float
    claim_digest: str
    told_policy: Policy
    key: SigningKey
    sockets: tuple[ShownSocket, ...]
    credentials: Credentials
    declared: Declared
    inspection: Inspection | None = None


def prepare(request: RunRequest, unstarted: ExitStack) -> Prepared:
    """Make the run directory and its manifest.

    Args:
        request: what is asked for.
        unstarted: gets what removes the run directory, for as long as the trial has not been released.

    Raises:
        UsageError: the workspace or the user does not exist.
        MachineError: the state directory cannot be used.
    """
    check_request(request)
    home = request.home or Home.open(request.environ, uid=os.geteuid())
    room_wait_s = find_wait_s(request.environ) if request.room_wait_s is None else request.room_wait_s
    named = _workspace(request)
    workspace = named.resolve()
    for unfinished in unfinished_commits(home, os.fsencode(workspace)):
        request.on_notice(
            [f"supervise: {workspace}: the commit of run {unfinished} was not finished: supervise commit {unfinished}"]
        )
    user = find_user(request.user, request.environ)
    run_id = make_run_id(clock.now_s(), os.urandom(_TOKEN_BYTES))
    credentials = prepare_credentials(
        _environ_of(user, request.environ),
        request.policy,
        run=run_id,
        state=home.path,
        workspace=workspace,
        user_home=user.home,
        command=tuple(word.decode("utf-8", "surrogateescape") for word in request.argv),
    )
    require_maskable(credentials.mask, workspace=credentials.workspace, home=credentials.home)
    told_policy = redact_policy(request.policy, credentials.redactor)
    environ = {**credentials.environ, trial_notes.VARIABLE: trial_notes.PATH}
    key, key_file = _signing_key(request, home)
    declared = find_declared(
        request.policy,
        workspace=os.fsencode(workspace),
        state=os.fsencode(home.path),
        secret=credentials.watched(),
    )
    limits = plan_limits(request.policy.limits, find_root())
    inspection = _inspection(request, run_id)
    environ |= inspection.variables if inspection else {}
    run = home.create(run_id, owner=Owner.current())
    unstarted.callback(forget_run, run)
    started = Started(
        run=run.id,
        at=clock.now_rfc3339(),
        workspace=os.fsencode(workspace),
        user=(user.uid, user.gid),
        dropped=credentials.dropped,
        kept=tuple(environ),
        limits={limit.resource.value: limit.describe() for limit in limits},
        host=_host(),
        versions=_versions(),
        key=key.public,
        requirements=_digest_requirements(request, workspace),
    )
    described = describe_run(request, started, told=told_policy, hide=credentials.redactor)
    manifest = run.write_manifest(described)
    canary = Canary(log=os.fsencode(run.log / "canary"), marker=b"/.supervise-canary-" + run.id.encode())
    stdio = _stdio(request)
    if request.relay is not None:
        stdio = (request.relay.stdin, request.relay.stdout, stdio[2])
    terminal = Terminal.find(stdio)
    rows, columns = terminal.size if terminal else (24, 80)
    view = _view(request, home, run, named, user, credentials, key_file, declared)
    cache = home.path / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    spec = BoxSpec(
        argv=request.argv,
        environ=tuple((os.fsencode(name), os.fsencode(value)) for name, value in environ.items()),
        cwd=_cwd(request, workspace, view),
        view=replace(
            view,
            memory_bytes=_memory(limits),
            shown=inspection.files if inspection else (),
        ),
        log_canary=canary.log,
        marker_canary=canary.marker,
        uid=user.uid,
        gid=user.gid,
        groups=user.groups,
        stdio=stdio,
        ttys=find_ttys(stdio),
        foreground=terminal is not None and terminal.eager,
        rows=rows,
        columns=columns,
        cache=cache,
        plain_copies=request.policy.files.keep,
    )
    return Prepared(
        request=request,
        home=home,
        run=run,
        workspace=workspace,
        user=user,
        spec=spec,
        limits=limits,
        canary=canary,
        terminal=terminal,
        manifest_digest=f"sha256:{hashlib.sha256(manifest).hexdigest()}",
        room_wait_s=room_wait_s,
        claim_digest=claim_digest(described["claim"]),
        told_policy=told_policy,
        key=key,
        sockets=_sockets(request),
        inspection=inspection,
        credentials=credentials,
        declared=declared,
    )


def _inspection(request: RunRequest, run_id: str) -> Inspection | None:
    if not request.policy.network.inspect:
        return None
    from supervisor.prepare.inspected import prepare_inspection  # noqa: PLC0415 - with ssl and cryptography's x509, 60 ms

    return prepare_inspection(request.policy.network, run=run_id, cwd=request.cwd, now=clock.now_utc())


def prepare_writes(prepared: Prepared) -> Stage | InPlace:
    """Make ready what takes the writes to the workspace, or records what it was before they are made in place.

    Raises:
        MachineError: there is no room for it.
    """
    files = prepared.request.policy.files
    if files.mode is FilesMode.STAGED:
        stage = Stage(prepared.run, prepared.workspace)
        stage.prepare()
        return stage
    from supervisor.launch.stage.inplace import InPlace  # noqa: PLC0415 - staged trials need none of it
    from supervisor.launch.view.view import nested_in_place  # noqa: PLC0415 - likewise

    home, workspace = os.fsencode(prepared.home.path), os.fsencode(prepared.workspace)
    writes = InPlace(prepared.run, prepared.workspace)
    writes.prepare(limit_bytes=files.before_limit, nested=nested_in_place(workspace, home), hidden=home)
    return writes


def _signing_key(request: RunRequest, home: Home) -> tuple[SigningKey, Path | None]:
    """Give the key that signs, and its file when the trial could otherwise see it (the home is masked anyway)."""
    given = request.environ.get(ENVIRONMENT)
    if request.signing_key is not None:
        path = Path(request.signing_key)
        return read_signing_key(path, place=f"--key {path}"), path.resolve()
    if not given:
        return KeyStore(home.path).current(), None
    if given.startswith("-----BEGIN"):
        return parse_signing_key(given.encode(), place=ENVIRONMENT), None
    return read_signing_key(Path(given), place=ENVIRONMENT), Path(given).resolve()


def _workspace(request: RunRequest) -> Path:
    asked = request.cwd / (request.policy.files.workspace or ".")
    if not asked.is_dir():
        raise UsageError("expected a directory", place=str(asked), hint="name another one with --workspace")
    return asked  # by the caller's name for it: the view keeps symlinks that lead to it


def _digest_requirements(request: RunRequest, workspace: Path) -> dict[str, str]:
    """Digest the files that tell the trial what is asked of it.

    Raises:
        UsageError: one cannot be read.
    """
    digests = {}
    for index, name in enumerate(request.policy.claim.requirements):
        try:
            content = (workspace / name).read_bytes()
        except OSError as err:
            message = f"expected a file, got: {err.strerror}"
            raise UsageError(message, place=f"claim.requirements[{index}]") from err
        digests[name] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return digests


def _cwd(request: RunRequest, workspace: Path, view: ViewSpec) -> bytes:
    """Where CMD starts: where the caller is, if that is in the workspace; else the workspace itself.

    Raises:
        UsageError: it is in the workspace, and the trial does not see it.
    """
    here = request.cwd.resolve()
    if not here.is_relative_to(workspace):
        return os.fsencode(workspace)
    if (place := place_not_shown(os.fsencode(here), view)) is not None:
        unseen = f"what the host has in {os.fsdecode(place)} is not there"
        message = f"expected a directory that the trial sees, got {here}: {unseen}"
        hint = f"change to another directory of the workspace {workspace}, or out of it"
        raise UsageError(message, place="the working directory", hint=hint)
    return os.fsencode(here)


def _view(
    request: RunRequest,
    home: Home,
    run: RunDir,
    workspace: Path,
    user: User,
    credentials: Credentials,
    key_file: Path | None,
    declared: Declared,
) -> ViewSpec:
    masks = masked_paths(
        credentials.home,
        existing,
        workspace=credentials.workspace,
        mask=credentials.mask,
        others=credentials.others,
    )
    masks = (*masks, *([str(key_file)] if key_file else []))
    return ViewSpec(
        workspace=os.fsencode(workspace),
        staged=request.policy.files.mode is FilesMode.STAGED,
        stage=os.fsencode(run.stage),
        outside=os.fsencode(run.outside),
        box=os.fsencode(run.box),
        state=os.fsencode(home.path),
        masks=tuple(os.fsencode(path) for path in masks),
        shared=tuple(declared.shared),
        denied=tuple(declared.denied),
        writable=_writable(request, workspace.resolve()),
        uid=user.uid,
        gid=user.gid,
        planted=credentials.planted,
        sockets=tuple(path for _, path, _, _ in _sockets(request)),
    )


def _sockets(request: RunRequest) -> tuple[ShownSocket, ...]:
    """Give the sockets of services that the box must show: name, path, and the kernel's device and inode.

    Raises:
        UsageError: one is no socket.
    """
    found = []
    for at, service in enumerate(request.policy.services):
        if service.socket is not None:
            path = Path(service.socket)
            if not path.is_socket():
                raise UsageError(f"expected a unix socket, got {service.socket}", place=f"services[{at}].at")
            there = path.stat()
            device = device_number(there.st_dev)
            found.append((service.name, os.fsencode(service.socket), device, there.st_ino))
    return tuple(found)


def _writable(request: RunRequest, workspace: Path) -> tuple[bytes, ...] | None:
    """Give the places where writes do not fail; None where they fail nowhere."""
    files = request.policy.files
    if files.outside is Outside.STAGE:
        return None
    return writable_roots(
        ("**",) if files.write is None else files.write,
        workspace=os.fsencode(workspace),
        is_directory=lambda path: Path(os.fsdecode(path)).is_dir(),
    )


def _memory(limits: tuple[Limit, ...]) -> int | None:
    return next((int(limit.amount) for limit in limits if limit.resource is Resource.MEMORY), None)


def _stdio(request: RunRequest) -> Standard:
    """Give descriptors for CMD's 0, 1 and 2; one that we were started without stays closed, unless one was given."""
    given = (request.stdin, request.stdout, request.stderr)
    own = (fd if fd not in request.closed and is_open(fd) else None for fd in range(3))
    first, second, third = (ours if instead is None else instead for ours, instead in zip(own, given, strict=True))
    return first, third if request.json else second, third


# -- who -------------------------------------------------------------------------------------------------------------


def find_user(asked: str | None, environ: Mapping[str, str]) -> User:
    """Find who CMD runs as: ``--user``, else whoever called sudo, else ourselves.

    Args:
        asked: ``USER`` or ``UID``, each with ``:GROUP`` (name or number) if wanted.
        environ: of the caller.

    Raises:
        UsageError: no such user or group.
    """
    if asked is None:
        asked = environ.get("SUDO_UID") if os.geteuid() == 0 else None
    if asked is None:
        return _entry(os.getuid(), os.getgid(), groups=tuple(os.getgroups()))
    name, _, group = asked.partition(":")
    user = _by_name(name)
    if not group:
        return user
    gid = _group(group)
    return User(uid=user.uid, gid=gid, groups=(gid,), name=user.name, home=user.home)


def _by_name(name: str) -> User:
    if name.isdecimal():
        return _entry(int(name), None, groups=None)
    try:
        found = pwd.getpwnam(name)
    except KeyError as err:
        raise UsageError(f"expected a user, got {name!r}", place="--user") from err
    return _entry(found.pw_uid, None, groups=None)


def _entry(uid: int, gid: int | None, *, groups: tuple[int, ...] | None) -> User:
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        gid = uid if gid is None else gid
        return User(uid=uid, gid=gid, groups=groups or (gid,), name=None, home=None)
    gid = found.pw_gid if gid is None else gid
    groups = tuple(os.getgrouplist(found.pw_name, gid)) if groups is None else groups
    return User(uid=uid, gid=gid, groups=groups, name=found.pw_name, home=found.pw_dir)


def _group(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError as err:
        raise UsageError(f"expected a group, got {name!r}", place="--user") from err


def _environ_of(user: User, environ: Mapping[str, str]) -> dict[str, str]:
    """Give the caller's environment; for another user than ourselves with that one's name and home, as su does."""
    changed = dict(environ)
    if user.uid != os.getuid():
        changed |= {"USER": user.name or str(user.uid), "LOGNAME": user.name or str(user.uid), "HOME": user.home or "/"}
    return changed


# -- for the record --------------------------------------------------------------------------------------------------


def _host() -> dict[str, object]:
    uname = os.uname()
    return {
        "name": uname.nodename,
        "kernel": uname.release,
        "machine": uname.machine,
        "processors": os.cpu_count(),
        "boot": boot_id(),
        "id": machine_id(),
    }


def _versions() -> dict[str, object]:
    from probes.kernel.pins import digest  # noqa: PLC0415 - only when a run starts

    return {"supervise": VERSION, "python": ".".join(map(str, sys.version_info[:3])), "witness": f"sha256:{digest()}…"}
