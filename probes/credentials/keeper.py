"""The machine's own key for credentials, and which runs had decoys. What is kept: one key, and names of runs.

Laws:
    * ``<home>/credentials/key`` (0600) is made once and never changed: a fingerprint is worth what it can be compared
      with. It is not the key that signs the log, which may be changed, and may be somebody else's.
    * No value is stored. A decoy is derived from the key and the name of its run, so that a later run can tell whose
      decoy it meets as long as ``<home>/credentials/canaries/<run>`` says that there was one.
"""

from __future__ import annotations

import hmac
import os
from contextlib import suppress
from pathlib import Path

from supervisor.errors import MachineError
from supervisor.launch.disk.durable import write_whole

_KEY_BYTES = 32
_SHOWN_BYTES = 16
_KEPT_RUNS = 1000
PREFIX = "hmac-sha256:"
KNOWN_RUNS = 64
"""How many of the latest runs with decoys are looked for in what a run leaves: each costs a millisecond."""


class Keeper:
    """The key of one state directory."""

    def __init__(self, key: bytes, canaries: Path) -> None:
        """Use `Keeper.open`."""
        self._key = key
        self._canaries = canaries

    @classmethod
    def open(cls, home: Path) -> Keeper:
        """Read the key; make it on first use.

        Args:
            home: the state directory, which is private already.

        Raises:
            MachineError: it cannot be read or made, or is not what we wrote.
        """
        directory = home / "credentials"
        path = directory / "key"
        try:
            with suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            key = _read(path) or _make(path)
        except OSError as err:
            message = f"the key for credentials cannot be used: {err.strerror}"
            raise MachineError(message, place=str(path)) from err
        if len(key) != _KEY_BYTES:
            message = f"expected a key of {_KEY_BYTES} bytes, got {len(key)}"
            raise MachineError(message, place=str(path), hint="move it away: a new one will be made")
        return cls(key, directory / "canaries")

    def fingerprint(self, value: bytes) -> str:
        """Give the same short text for the same value on this machine, and nothing to try values against elsewhere."""
        return PREFIX + self._derive(b"fingerprint", value)[:_SHOWN_BYTES].hex()

    def derive(self, run: str, form: str, size: int) -> bytes:
        """Give the bytes that the decoys of a run are made of: the same ones for the same run and form.

        Args:
            run: its id.
            form: which decoy.
            size: how many bytes.
        """
        blocks = (
            self._derive(b"canary", run.encode(), form.encode(), str(number).encode())
            for number in range(-(-size // _KEY_BYTES))
        )
        return b"".join(blocks)[:size]

    def _derive(self, purpose: bytes, *parts: bytes) -> bytes:
        # Each part is hashed first: what stands between parts could otherwise be in one of them.
        digest = hmac.new(self._key, purpose, "sha256")
        for part in parts:
            digest.update(hmac.digest(self._key, part, "sha256"))
        return digest.digest()

    def register(self, run: str) -> None:
        """Note that a run has decoys."""
        self._canaries.mkdir(mode=0o700, exist_ok=True)
        (self._canaries / run).touch(mode=0o600)
        for old in sorted(os.listdir(self._canaries))[:-_KEPT_RUNS]:  # noqa: PTH208 - names, not paths
            (self._canaries / old).unlink(missing_ok=True)

    def known_runs(self) -> tuple[str, ...]:
        """Give the latest runs that had decoys, the newest first; ids sort by time."""
        try:
            names = os.listdir(self._canaries)  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return ()
        return tuple(sorted(names, reverse=True)[:KNOWN_RUNS])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _make(path: Path) -> bytes:
    """Make a key. Of two runs that begin together one writes it, and both use that one."""
    fresh = path.with_name(f"key.{os.getpid()}")
    write_whole(fresh, os.urandom(_KEY_BYTES))
    try:
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
    return path.read_bytes()
