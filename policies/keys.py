"""The keys of a policy file: one table from which parsing, printing and the JSON Schema are made.

Only keys and values that this version acts on are here. A key that is promised elsewhere but does nothing yet must be
refused: a policy that is silently ignored would let a verdict claim what nobody enforced.
"""

from __future__ import annotations

from enum import StrEnum

from policies.types import (
    AtEndpoint,
    Claim,
    Commit,
    CredentialsPolicy,
    FilesMode,
    FilesPolicy,
    LimitRole,
    Limits,
    LogPolicy,
    NetworkDefault,
    NetworkPolicy,
    Outside,
    StopRule,
)
from supervisor.values import dataclass

SCHEMA_VERSION = 1
"""The value of the key ``schema``."""


class Shape(StrEnum):
    """How the value of a key is written."""

    TEXT = "text"
    TEXTS = "texts"
    PLACES = "places"
    DURATION = "duration"
    PERIOD = "period"
    CHOICE = "choice"
    COUNT = "count"
    CPUS = "number"
    SIZE = "size"
    BYTES = "bytes"
    FLAG = "flag"
    ALLOW = "hosts"
    DENY = "denied hosts"
    MAPPINGS = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    Attributes:
        name: in the file.
        field: of the section's type.
        about: one sentence for people.
        choices: the values that are accepted, for `Shape.CHOICE`.
        pattern: what a text must look like, whole, or None.
        expects: the same for people.
        is_path: a path or a glob: ``..`` would never match what the kernel says, so it is refused.
    """

    name: str
    field: str
    shape: Shape
    about: str
    choices: tuple[StrEnum, ...] = ()
    pattern: str | None = None
    expects: str = "a text"
    is_path: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the file, and the type that holds it."""

    name: str
    type: type[Claim | StopRule | FilesPolicy | NetworkPolicy | CredentialsPolicy | Limits | LogPolicy]
    about: str
    keys: tuple[Key, ...]


CLAIM = Section(
    name="claim",
    type=Claim,
    about="What the label is about, fixed before the run.",
    keys=(
        Key(
            name="outcome",
            field="outcome",
            shape=Shape.TEXT,
            about="The path that names the outcome; without it the outcome is the exit code and the whole workspace.",
            is_path=True,
        ),
        Key(
            name="scope",
            field="scope",
            shape=Shape.TEXTS,
            about="Globs of the files the claim is about; empty: the outcome, else the whole workspace.",
            is_path=True,
        ),
        Key(
            name="period",
            field="period",
            shape=Shape.PERIOD,
            about="How long the outcome is judged: endpoint, within:D or eventually.",
        ),
        Key(
            name="unit",
            field="unit",
            shape=Shape.TEXT,
            about="What counts as one observation: run, or stream:NAME for runs that are counted together.",
            pattern=r"run|stream:[^\s:]+",
            expects="run, or stream:NAME with a name without spaces and colons",
        ),
    ),
)

STOP = Section(
    name="stop",
    type=StopRule,
    about="What ends the trial, and what happens then.",
    keys=(
        Key(name="wall", field="wall_s", shape=Shape.DURATION, about="Wall time after which the trial is ended."),
        Key(
            name="tool_calls",
            field="tool_calls",
            shape=Shape.COUNT,
            about="Calls of tools; the one after them ends the trial.",
        ),
        Key(name="tokens", field="tokens", shape=Shape.COUNT, about="Tokens that the trial may say that it used."),
        Key(
            name="role",
            field="role",
            shape=Shape.CHOICE,
            about="Whether the limit is part of the task, or only ends the watching of actions.",
            choices=tuple(LimitRole),
        ),
        Key(
            name="at_endpoint",
            field="at_endpoint",
            shape=Shape.CHOICE,
            about="What is done with what is still alive at the endpoint.",
            choices=tuple(AtEndpoint),
        ),
        Key(
            name="settle",
            field="settle_s",
            shape=Shape.DURATION,
            about="How long what is still alive is followed; what is alive after it is killed.",
        ),
    ),
)

FILES = Section(
    name="files",
    type=FilesPolicy,
    about="What may be written, and where it goes.",
    keys=(
        Key(
            name="workspace",
            field="workspace",
            shape=Shape.TEXT,
            about="The directory that the trial works in; without it the current one.",
        ),
        Key(
            name="mode",
            field="mode",
            shape=Shape.CHOICE,
            about="Whether writes to the workspace are staged and committed, or made in place.",
            choices=tuple(FilesMode),
        ),
        Key(
            name="commit",
            field="commit",
            shape=Shape.CHOICE,
            about="When staged writes are applied to the workspace.",
            choices=tuple(Commit),
        ),
        Key(
            name="write",
            field="write",
            shape=Shape.TEXTS,
            about="Globs of what may be written; without it the workspace, and writes elsewhere are only discarded.",
            is_path=True,
        ),
        Key(
            name="before_limit",
            field="before_limit",
            shape=Shape.BYTES,
            about="Content copied before a direct trial, or of shared places, smallest files first; `none` lifts it.",
        ),
        Key(
            name="keep",
            field="keep",
            shape=Shape.FLAG,
            about="Whether the first 4 KiB of each burst of writes to a file of the workspace are kept in the log.",
        ),
        Key(
            name="outside",
            field="outside",
            shape=Shape.CHOICE,
            about="What becomes of writes elsewhere: staged and discarded, or refused at the call.",
            choices=tuple(Outside),
        ),
        Key(
            name="read_deny",
            field="read_deny",
            shape=Shape.TEXTS,
            about="Globs of what the trial must not see; every attempt is a violation.",
            is_path=True,
        ),
        Key(
            name="shared",
            field="shared",
            shape=Shape.PLACES,
            about="Places that are written in place and shared with other runs: tables of path and reset.",
            is_path=True,
        ),
    ),
)

NETWORK = Section(
    name="network",
    type=NetworkPolicy,
    about="What may be sent. Loopback inside the trial always works.",
    keys=(
        Key(
            name="default",
            field="default",
            shape=Shape.CHOICE,
            about="What happens to traffic to addresses outside the trial.",
            choices=tuple(NetworkDefault),
        ),
        Key(
            name="allow",
            field="allow",
            shape=Shape.ALLOW,
            about="HOST[:PORT] each that may be reached: a name, *.example.com, an address, a network or a bundle.",
        ),
        Key(
            name="deny",
            field="deny",
            shape=Shape.DENY,
            about="The same for what may not be reached, at any port without one; it wins over what is allowed.",
        ),
        Key(
            name="map",
            field="map",
            shape=Shape.MAPPINGS,
            about="Where the gateway dials for a HOST:PORT, ADDR:PORT; the only way to an address within the host.",
        ),
        Key(
            name="inspect",
            field="inspect",
            shape=Shape.FLAG,
            about="Whether TLS is ended by the gateway, so that requests are judged and recorded one by one.",
        ),
        Key(
            name="trust",
            field="trust",
            shape=Shape.TEXTS,
            about="Files of certificates that vouch for inspected servers, beside the host's own list.",
        ),
    ),
)

CREDENTIALS = Section(
    name="credentials",
    type=CredentialsPolicy,
    about="What the trial may hold that identifies somebody.",
    keys=(
        Key(
            name="env",
            field="env",
            shape=Shape.TEXTS,
            about="Names of the environment that are kept although they look secret.",
            pattern=r"[^=\x00]+",
            expects="the name of a variable, without =",
        ),
        Key(
            name="pass",
            field="passed",
            shape=Shape.TEXTS,
            about="Names of the environment that are passed as credentials; one that is not set is an error.",
            pattern=r"[^=\x00]+",
            expects="the name of a variable, without =",
        ),
        Key(
            name="mask",
            field="mask",
            shape=Shape.TEXTS,
            about="Globs of further paths that the trial must not see; ~/ is the home of the user.",
            is_path=True,
        ),
        Key(
            name="canaries",
            field="canaries",
            shape=Shape.FLAG,
            about="Whether decoys lie where credentials usually do; one that is met again elsewhere is a violation.",
        ),
    ),
)

LOG = Section(
    name="log",
    type=LogPolicy,
    about="What is done for the log beside keeping it.",
    keys=(
        Key(
            name="checkpoint_to",
            field="checkpoint_to",
            shape=Shape.TEXTS,
            about="Second places that get every signed checkpoint as it is made: files, directories or https URLs.",
        ),
    ),
)

LIMITS = Section(
    name="limits",
    type=Limits,
    about="How much of the machine a trial may use; `none` lifts a limit.",
    keys=(
        Key(name="pids", field="pids", shape=Shape.COUNT, about="Processes and threads at any one time."),
        Key(
            name="memory",
            field="memory",
            shape=Shape.SIZE,
            about="Memory, its own /tmp and /dev/shm among it: a size such as 2GiB, or a share of the machine's.",
        ),
        Key(name="cpu", field="cpu", shape=Shape.CPUS, about="Processors' worth of time, such as 0.5 or 2."),
    ),
)

SECTIONS = (CLAIM, STOP, FILES, NETWORK, CREDENTIALS, LIMITS, LOG)
"""Every table of a policy file, in the order in which they are printed. Each is an attribute of `Policy` by name."""
