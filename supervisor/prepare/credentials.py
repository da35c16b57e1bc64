"""The credentials of one run: which there are, what is passed, what takes their place, and what is never written.

In: the caller's environment and the policy. Out: `Credentials`, which holds values in memory only. Everything that the
log says of them is made here, before the trial is released.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.canonical import policy_to_mapping
from policies.credentials import (
    Secret,
    absolute_glob,
    credential_data,
    filter_environ,
    find_secrets,
    hidden_values,
    holds_secret,
    masked_globs,
    missing_names,
)
from policies.redaction import Redactor
from policies.types import Policy
from probes.credentials.keeper import Keeper
from supervisor.errors import UsageError
from supervisor.events import CanaryPlaced, CredentialDropped, CredentialGuarded, CredentialPassed, Event
from supervisor.launch.view.view import Planted
from supervisor.prepare.masking import linked_files
from supervisor.values import dataclass

if TYPE_CHECKING:  # only runs with decoys need these, and each module costs a millisecond or two
    from probes.credentials.canaries import Decoy
    from probes.gateway.lookout import Lookout

_HOMES_MAX = 200
_WILD = frozenset("*?[")
_SOCKET_NAMES = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "CONTAINER_HOST")
_SENT_RUNS = 16
"""Of how many runs before it a run with decoys looks for theirs in what is sent: each costs its start a millisecond."""
_NEVER = (b"/", b"/proc", b"/sys", b"/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What is known of the credentials of one run.

    Attributes:
        run: its id.
        environ: of CMD, with the decoys' variables.
        dropped: names that are left out of it.
        secrets: the caller's, passed or dropped.
        redactor: takes their values out of what is written.
        decoys: of this run; empty without ``credentials.canaries``.
        planted: the decoys' files, for the view.
        home: of CMD's user, or None.
        others: further homes of the machine that exist.
        sockets: globs of agents' sockets, those that the caller's environment names among them.
    """

    run: str
    environ: Mapping[str, str]
    dropped: tuple[str, ...]
    secrets: tuple[Secret, ...]
    redactor: Redactor
    keeper: Keeper
    decoys: tuple[Decoy, ...]
    planted: tuple[Planted, ...]
    home: str | None
    others: tuple[str, ...]
    sockets: tuple[str, ...]
    mask: tuple[str, ...]
    workspace: str

    def fingerprint(self, name: str) -> str | None:
        """Give the fingerprint of one of the secrets."""
        value = next((secret.value for secret in self.secrets if secret.name == name), None)
        return None if value is None else self.keeper.fingerprint(os.fsencode(value))

    def known_decoys(self, most: int | None = None) -> Iterator[tuple[str, str, bytes]]:
        """Give run, form and value of the decoys of this run, if it has any, and of the latest ones before it.

        Args:
            most: how many of these; all that are known when left out.
        """
        earlier = [run for run in self.keeper.known_runs() if run != self.run][:most]
        for run in (*([self.run] if self.decoys else []), *earlier):
            decoys = self.decoys if run == self.run else decoys_of(self.keeper, run)
            # A token may stand in a file and in a variable.
            yield from dict.fromkeys((run, decoy.form, value) for decoy in decoys for value in decoy.values)

    def lookout(self) -> Lookout | None:
        """Give what the gateway looks for in what is sent: the decoys of this run, and of some before it.

        A run without decoys looks for none: it would have all that it sends looked at, which costs more than passing
        it on.
        """
        if not self.decoys:
            return None
        from probes.credentials.search import spotter_of  # noqa: PLC0415 - see above
        from probes.gateway.lookout import Lookout  # noqa: PLC0415 - see above

        spotter = spotter_of(self.known_decoys(_SENT_RUNS), twice=self.run)
        return Lookout(self.run, spotter) if spotter else None

    def globs(self) -> tuple[str, ...]:
        """Give the absolute globs of what the trial must not see."""
        return masked_globs(self.home, workspace=self.workspace, mask=self.mask, others=self.others)

    def watched(self) -> tuple[str, ...]:
        """Give the same with the names that mean a credential wherever they lie: looks for them are told too."""
        names = (name for name in credential_data().anywhere if not _WILD.intersection(name))
        return (*self.globs(), *(f"**/{name}" for name in names))

    def events(self, masked: tuple[bytes, ...]) -> Iterator[tuple[type[Event], dict[str, Any]]]:
        """Give what the log is told of them before the trial is released: each event's class and fields.

        Args:
            masked: paths that exist and are masked.
        """
        data = credential_data()
        placed = tuple(self._placed())
        hidden = [path for path in masked if path not in {planted.path for planted in self.planted}]
        linked = tuple(linked_files(hidden))
        mask = tuple(absolute_glob(glob, self.home, self.workspace) for glob in self.mask)
        own = masked_globs(None, workspace=self.workspace, mask=mask)
        yield (
            CredentialGuarded,
            {
                "home": os.fsencode(self.home or ""),
                "homes": tuple(map(os.fsencode, self._further_homes())),
                "relative": data.home_paths,
                "absolute": own,
                "anywhere": data.anywhere,
                "made": data.made,
                "sockets": self.sockets,
                "addresses": data.metadata_addresses,
                "names": data.metadata_names,
                "masked": tuple(dict.fromkeys((*hidden, *map(os.path.realpath, hidden)))),
                "linked": tuple(path for path, _ in linked),
                "linked_inodes": tuple(found.st_ino for _, found in linked),
                "linked_devices": tuple(found.st_dev for _, found in linked),
                "canaries": len(placed),
            },
        )
        for name in self.dropped:
            yield CredentialDropped, {"name": name, "fingerprint": self.fingerprint(name)}
        for secret in self.secrets:
            if secret.passed:
                yield CredentialPassed, {"name": secret.name, "fingerprint": self.fingerprint(secret.name)}
        for fields in placed:
            yield CanaryPlaced, fields

    def _further_homes(self) -> Iterator[str]:
        """Give the other homes, and where each leads that is named by a symlink: the kernel tells real paths."""
        real = (os.path.realpath(home) for home in (*([self.home] if self.home else []), *self.others))
        yield from (home for home in dict.fromkeys((*self.others, *real)) if home != self.home)

    def _placed(self) -> Iterator[dict[str, Any]]:
        files = {path for planted in self.planted for path in planted.paths()}
        for decoy in self.decoys:
            if decoy.path is not None and (path := os.fsencode(f"{self.home}/{decoy.path}")) in files:
                yield {"form": decoy.form, "path": path}
            if decoy.name is not None and self.environ.get(decoy.name) == decoy.value:
                yield {"form": decoy.form, "name": decoy.name}


def prepare_credentials(
    environ: Mapping[str, str],
    policy: Policy,
    *,
    run: str,
    state: Path,
    workspace: Path,
    user_home: str | None,
    command: Sequence[str] = (),
) -> Credentials:
    """Look at what the caller has, and decide what the trial gets.

    Args:
        environ: of the caller, with the name and home of CMD's user.
        policy: what is kept, passed and masked.
        run: the id of the run.
        state: the state directory.
        workspace: absolute, without symbolic links.
        user_home: of CMD's user, by the machine's own account.
        command: of the trial; what was typed into it is kept nowhere either.

    Raises:
        UsageError: a credential is to be passed and is not set.
        MachineError: the key for fingerprints cannot be used.
    """
    if missing := missing_names(environ, policy):
        hint = "set it, or take it out of the policy"
        raise UsageError(f"not set in the environment: {', '.join(missing)}", place="credentials.pass", hint=hint)
    kept, dropped = filter_environ(environ, policy)
    secrets = find_secrets(environ, policy)
    keeper = Keeper.open(state)
    home = environ.get("HOME") or None
    decoys = _make_decoys(keeper, run) if policy.credentials.canaries else ()
    kept |= {decoy.name: decoy.value for decoy in decoys if decoy.name and decoy.name not in kept}
    return Credentials(
        run=run,
        environ=kept,
        dropped=dropped,
        secrets=secrets,
        redactor=hide_secrets((*secrets, *typed_secrets(policy, command)), workspace=workspace, home=home, state=state),
        keeper=keeper,
        decoys=decoys,
        planted=tuple(_plant(decoys, home, workspace)),
        home=home,
        others=_other_homes(home, user_home),
        sockets=(*credential_data().sockets, *_named_sockets(environ)),
        mask=policy.credentials.mask,
        workspace=str(workspace),
    )


def typed_secrets(policy: Policy, command: Sequence[str] = ()) -> tuple[Secret, ...]:
    """List what looks like a credential in what was typed, named by its sort or by the name that it was given.

    Args:
        policy: whose words, a grader's command among them, are looked at.
        command: of the trial.
    """
    from probes.credentials.patterns import find_looks, find_named  # noqa: PLC0415 - see above

    words = "\n".join((*_texts(policy_to_mapping(policy)), *command))
    looks = find_looks(words.encode("utf-8", "surrogateescape"))
    alike = (Secret(name=look.sort, value=os.fsdecode(look.value), passed=True) for look in looks)
    named = (
        Secret(name=name, value=value, passed=False) for name, value in find_named(words) if holds_secret(name, "")
    )
    return (*alike, *named)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from (text for one in value.values() for text in _texts(one))
        case list():
            yield from (text for one in value for text in _texts(one))


def hide_secrets(secrets: tuple[Secret, ...], *, workspace: Path, home: str | None, state: Path) -> Redactor:
    """Make what takes credentials out of everything that is written.

    A variable that only says where something lies holds no secret, whatever it is called; and a value that is part of
    the workspace's own path, or of a home's, would be met in every path, and is known to all anyway.
    """
    values = (secret for secret in secrets if not _names_path(secret.value))
    known = (bytes(workspace), os.fsencode(home or ""), bytes(state))
    return Redactor((name, value) for name, value in hidden_values(values) if not any(value in path for path in known))


def _names_path(value: str) -> bool:
    return value.startswith("/") and "\0" not in value and os.path.lexists(value)


def _make_decoys(keeper: Keeper, run: str) -> tuple[Decoy, ...]:
    keeper.register(run)
    return decoys_of(keeper, run)


def decoys_of(keeper: Keeper, run: str) -> tuple[Decoy, ...]:
    """Make the decoys of a run, this one or an earlier one."""
    from probes.credentials.canaries import make_decoys  # noqa: PLC0415 - see above

    return make_decoys(lambda form, size: keeper.derive(run, form, size))


def _plant(decoys: tuple[Decoy, ...], home: str | None, workspace: Path) -> Iterator[Planted]:
    """Say what is put over the home: whole directories, so that nothing real shows beside a decoy.

    A home that holds the workspace, or lies in it, is left alone: what is made there would be staged. So is one that is
    no directory.
    """
    if home is None or not home.startswith("/") or os.fsencode(os.path.normpath(home)) in _NEVER:
        return
    place = Path(home).resolve()
    if place.is_relative_to(workspace) or (place.exists() and not place.is_dir()):
        return
    tops: dict[str, list[tuple[bytes, bytes]]] = {}
    for decoy in decoys:
        if decoy.path is not None:
            top, _, rest = decoy.path.partition("/")
            tops.setdefault(top, []).append((os.fsencode(rest), decoy.content))
    for top, files in tops.items():
        yield Planted(path=os.fsencode(f"{home}/{top}"), files=tuple(files))


def _other_homes(home: str | None, user_home: str | None) -> tuple[str, ...]:
    """Find the homes of the machine that exist, but for CMD's own."""
    found = {"/root", *([user_home] if user_home else [])}
    found |= {entry.pw_dir for entry in _entries(os.getuid(), os.geteuid())}
    try:
        with os.scandir("/home") as entries:
            found |= {entry.path for entry in islice(entries, _HOMES_MAX) if entry.is_dir(follow_symlinks=False)}
    except OSError:
        pass
    return tuple(sorted(path for path in found - {home, "/"} if path.startswith("/") and Path(path).is_dir()))


def _entries(*uids: int) -> Iterator[pwd.struct_passwd]:
    for uid in dict.fromkeys(uids):
        try:
            yield pwd.getpwuid(uid)
        except KeyError:
            continue


def _named_sockets(environ: Mapping[str, str]) -> Iterator[str]:
    """Give the paths of agents' sockets that the caller's environment names: ``unix:path=/x,guid=…``, ``/x``."""
    for name in _SOCKET_NAMES:
        value = environ.get(name, "")
        path = value.removeprefix("unix:").removeprefix("path=").removeprefix("//").split(",")[0]
        if path.startswith("/"):
            yield path
