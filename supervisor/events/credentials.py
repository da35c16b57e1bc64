"""What was done with credentials, and which there were: names and keyed fingerprints, never values.

A fingerprint is ``hmac-sha256:…`` under a key of the machine: the same secret in two runs has the same one, and nobody
without the key can try values against it.
"""

from __future__ import annotations

from supervisor.events.base import Event


class CredentialGuarded(Event, frozen=True, kw_only=True):
    """What counted as a credential in this run, fixed before it began.

    Attributes:
        home: of the trial's user, absolute; what ``~/`` stands for.
        homes: further homes on the machine.
        relative: globs below a home; a directory covers what is below it.
        absolute: the same for absolute paths.
        anywhere: globs of file names that mean a credential wherever the file lies.
        made: the same for files that are made or written.
        sockets: globs of sockets whose peer acts for somebody.
        addresses, names: where clouds answer with credentials of the machine.
        masked: paths that existed and were masked.
        linked: files among them, or below them, that have another name; ``linked_inodes`` and ``linked_devices`` are
            theirs on the host, in the same order.
        canaries: how many `CanaryPlaced` belong to it.
    """

    home: bytes
    homes: tuple[bytes, ...]
    relative: tuple[str, ...]
    absolute: tuple[str, ...]
    anywhere: tuple[str, ...]
    made: tuple[str, ...]
    sockets: tuple[str, ...]
    addresses: tuple[str, ...]
    names: tuple[str, ...]
    masked: tuple[bytes, ...]
    linked: tuple[bytes, ...] = ()
    linked_inodes: tuple[int, ...] = ()
    linked_devices: tuple[int, ...] = ()
    canaries: int = 0


class CredentialDropped(Event, frozen=True, kw_only=True):
    """A variable of the caller was left out of the environment. What only leads to an agent has no fingerprint."""

    name: str
    fingerprint: str | None = None


class CredentialPassed(Event, frozen=True, kw_only=True):
    """A credential was passed to the trial in its environment, because the policy names it."""

    name: str
    fingerprint: str


class CredentialRedacted(Event, frozen=True, kw_only=True):
    """The value of a credential was met ``count`` times in what was about to be written, and taken out.

    ``where`` is ``manifest`` (the command line), ``kernel`` (what processes did: arguments, paths) or ``records`` (what
    was sent or said). What was written instead has the same length.
    """

    name: str
    where: str
    count: int
    fingerprint: str | None = None


class CredentialFound(Event, frozen=True, kw_only=True):
    """A file that the trial touched holds what looks like a credential.

    Attributes:
        path: absolute, as the trial sees it.
        sort: what it looks like (``AWS Access Key``), or the name of a passed one.
        line: from 1.
        passed: it is one that was passed, and so not made by the trial.
    """

    path: bytes
    sort: str
    line: int
    fingerprint: str
    passed: bool = False


class CredentialLooked(Event, frozen=True, kw_only=True):
    """Touched files were searched for credentials and canaries; ``left_out`` were not, or not to their end.

    ``decoys`` tells whether this run had some, which may then lie in what was left out.
    """

    files: int
    left_out: int
    reason: str | None = None
    decoys: bool = False


class CanaryPlaced(Event, frozen=True, kw_only=True):
    """A decoy was put where a credential usually lies: the ``path`` of a file, or the ``name`` of a variable."""

    form: str
    path: bytes = b""
    name: str = ""


class CanaryLeaked(Event, frozen=True, kw_only=True):
    """A decoy was met where it had no business.

    Attributes:
        form: which one: ``aws``, ``ssh``, …
        placed_by: the run whose decoy it is.
        seen_in: this run.
        where: in words: ``sent to 203.0.113.9:80``, ``the name that was asked``, a path.
        encoding: ``plain``, ``base64``, ``base32``, ``hex``, ``url``, or ``twice`` for one inside another.
        path: of the file that holds it, absolute as the trial sees it; empty for what was sent.
        connection: its number at the gateway, for what was sent.
    """

    form: str
    placed_by: str
    seen_in: str
    where: str
    encoding: str
    path: bytes = b""
    connection: int | None = None
