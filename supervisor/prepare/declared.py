# ruff: noqa: PTH112, PTH113, PTH115, PTH118
# Paths of the kernel are bytes, which pathlib does not take.
"""The places that a policy names beside its workspace, found on this host: shared ones, and those not to be seen.

In: a policy and a workspace. Out: absolute paths. The rule it keeps: a place that cannot be given what was asked for is
an error that names its key, before anything runs.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence

from policies.globs import literal
from policies.types import Policy
from supervisor.errors import UsageError
from supervisor.launch.view.mounts import is_below
from supervisor.prepare.globbing import KERNEL, existing
from supervisor.values import dataclass, field

_OWN = (b"/tmp", b"/run", b"/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What was found; each place with the absolute name that it was declared by.

    Attributes:
        shared: shared places, free of symlinks.
        denied: what is there of `files.read_deny`, free of symlinks.
        hidden: absolute paths and globs (of Python's kind) of everything that the trial must not see, credentials too.
        linked: files of the grader's reference material that have several names, each with device and inode.
    """

    shared: Mapping[bytes, bytes] = field(default_factory=dict)
    denied: Mapping[bytes, bytes] = field(default_factory=dict)
    hidden: tuple[bytes, ...] = ()
    linked: tuple[tuple[bytes, int, int], ...] = ()


def find_declared(policy: Policy, *, workspace: bytes, state: bytes, secret: Sequence[str]) -> Declared:
    """Look up what a policy names.

    Args:
        policy: whole and checked.
        workspace: absolute, free of symlinks; where relative paths begin.
        state: the directory of all runs.
        secret: absolute globs of credentials.

    Raises:
        UsageError: its place is the key.
    """
    globs = tuple(_absolute(text, workspace) for text in policy.files.read_deny)
    denied = {path: named for at, text in enumerate(globs) for path, named in _existing(text, at, workspace)}
    _require_hidden_whole(denied)
    shared = dict(_shared(policy, workspace, os.path.realpath(state), denied))
    named = (*map(os.fsencode, (*globs, *secret)), *denied)
    linked = tuple(_linked(policy, workspace))
    return Declared(shared=shared, denied=denied, hidden=tuple(dict.fromkeys(named)), linked=linked)


def _absolute(text: str, workspace: bytes) -> str:
    """Give an absolute glob of Python's kind: ours has no classes."""
    whole = text if text.startswith("/") else f"{os.fsdecode(workspace)}/{text}"
    return literal(whole).rstrip("/") or "/"


def _existing(text: str, index: int, workspace: bytes) -> Iterator[tuple[bytes, bytes]]:
    found = tuple(existing(text, place=f"files.read_deny[{index}]"))
    if not found and not any(wild in text for wild in "*?"):
        message = f"expected a file or a directory, found nothing at {text}: nothing would be hidden"
        hint = "make it before the trial, or name it by a glob"
        raise UsageError(message, place=f"files.read_deny[{index}]", hint=hint)
    for named in map(os.fsencode, found):
        path = os.path.realpath(named)
        if is_below(workspace, path):
            message = f"expected a place that the trial can do without, got {os.fsdecode(path)}: its workspace is in it"
            raise UsageError(message, place=f"files.read_deny[{index}]")
        yield path, named


def _require_hidden_whole(denied: Mapping[bytes, bytes]) -> None:
    """Refuse to hide a file that has another name which is not hidden: by that it could be read all the same."""
    names: dict[tuple[int, int], tuple[int, list[bytes]]] = {}
    for path in denied:
        if not any(is_below(path, above) for above in (*KERNEL, *(denied.keys() - {path}))):
            for name, found in _files_of(path):
                if found.st_nlink > 1:
                    names.setdefault((found.st_dev, found.st_ino), (found.st_nlink, []))[1].append(name)
    for count, hidden in names.values():
        if count > len(hidden):
            message = f"expected files that have no other names, got {os.fsdecode(hidden[0])}, a hard link"
            hint = "it could be read by a name that is not hidden: hide all of them, or put a copy in its place"
            raise UsageError(message, place="files.read_deny", hint=hint)


def _linked(policy: Policy, workspace: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Find the files of the reference material that could be opened by a name which no glob means."""
    if policy.grade.command is None:
        return
    found = set()
    for at, text in enumerate(policy.grade.reads):
        for named in existing(_absolute(text, workspace), place=f"grade.reads[{at}]"):
            for path, state in _files_of(os.fsencode(named)):
                if state.st_nlink > 1 and (state.st_dev, state.st_ino) not in found:
                    found.add((state.st_dev, state.st_ino))
                    yield path, device_number(state.st_dev), state.st_ino


def device_number(device: int) -> int:
    """Give the number of a device as the kernel has it, MKDEV of kdev_t.h, which events have."""
    return os.major(device) << 20 | os.minor(device)


def _files_of(path: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Give the file at a path, or those below it; what vanishes meanwhile is left out."""
    waiting = [path]
    while waiting:
        above = waiting.pop()
        with contextlib.suppress(OSError):
            found = os.lstat(above)
            if stat.S_ISREG(found.st_mode):
                yield above, found
            elif stat.S_ISDIR(found.st_mode):
                with os.scandir(above) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        elif entry.is_file(follow_symlinks=False):
                            yield entry.path, entry.stat(follow_symlinks=False)


def _shared(
    policy: Policy, workspace: bytes, state: bytes, denied: Mapping[bytes, bytes]
) -> Iterator[tuple[bytes, bytes]]:
    for index, place in enumerate(policy.files.shared):
        named = os.path.join(workspace, os.fsencode(place.path))
        path, key = os.path.realpath(named), f"files.shared[{index}].path"
        if not os.path.isdir(path) and not os.path.isfile(path):
            message = f"expected a file or a directory, found none at {os.fsdecode(named)}"
            raise UsageError(message, place=key, hint="make it before the trial: what is shared must be there")
        if wrong := _unfit(path, workspace, state, denied):
            message = f"expected a place that can be shared, got {os.fsdecode(path)}: {wrong}"
            raise UsageError(message, place=key)
        yield path, named


def _unfit(path: bytes, workspace: bytes, state: bytes, denied: Mapping[bytes, bytes]) -> str | None:
    if is_below(workspace, path):
        return "the workspace is in it"
    if path in _OWN:
        return "each trial has its own; name a directory below it"
    if any(is_below(path, kernel) for kernel in KERNEL) and not is_below(path, b"/dev/shm"):
        return "it is the kernel's"
    if is_below(path, state) or is_below(state, path):
        return "the directory of our runs is there"
    if any(is_below(path, hidden) for hidden in denied):
        return "files.read_deny hides it"
    return None


def read_links(paths: Sequence[bytes]) -> dict[bytes, bytes]:
    """Give the text of each path that is a symlink on this host."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found[path] = os.readlink(path)
    return found
