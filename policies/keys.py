"""The keys of a policy file: one table from which parsing, printing and the JSON Schema are made.

Only keys and values that this version acts on are here. A key that is promised elsewhere but does nothing yet must be
refused: a policy that is silently ignored would let a verdict claim what nobody enforced.
"""

from __future__ import annotations

from policies.shapes import Key, Section, Shape
from policies.types import (
    AtEndpoint,
    Claim,
    Commit,
    CredentialsPolicy,
    DecidedBy,
    Expected,
    FilesMode,
    FilesPolicy,
    GradePolicy,
    LimitRole,
    Limits,
    LogPolicy,
    NetworkDefault,
    NetworkPolicy,
    OrderRule,
    Outside,
    PossibleState,
    Selftest,
    StopRule,
    ValidatePolicy,
)

SCHEMA_VERSION = 1
"""The value of the key ``schema``."""


EVENT_PATTERN = r"[a-z]+\.[a-z_]+( [a-z_]+=\S+)*"
EVENT_EXPECTS = "a kind of events and what its fields must be, such as `file.written path=notes/*.md`"

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
            name="decided_by",
            field="decided_by",
            shape=Shape.CHOICE,
            about="What decides the claim: the state of the outcome, one event, or the order of events.",
            choices=tuple(DecidedBy),
        ),
        Key(
            name="event",
            field="event",
            shape=Shape.TEXT,
            about="With decided_by = event: the pattern of the event (as in [[order]]) whose coming is the success.",
            pattern=EVENT_PATTERN,
            expects=EVENT_EXPECTS,
        ),
        Key(
            name="unit",
            field="unit",
            shape=Shape.TEXT,
            about="What counts as one observation: run, or stream:NAME for runs that are counted together.",
            pattern=r"run|stream:[^\s:]+",
            expects="run, or stream:NAME with a name without spaces and colons",
        ),
        Key(
            name="requirements",
            field="requirements",
            shape=Shape.TEXTS,
            about="Files that tell the trial what is asked of it; their digests are bound before it starts.",
            is_path=True,
        ),
        Key(
            name="depends_on",
            field="depends_on",
            shape=Shape.TEXTS,
            about="Ids of runs that this one builds on: it is counted together with each of them.",
            pattern=r"[0-9]{8}-[0-9]{6}-[0-9a-z]+",
            expects="the whole id of a run",
            spare=True,
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
            about="The directory that the trial works in; without it the current one. CMD starts where its caller is, "
            "if that lies in it.",
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
            about="When staged writes are applied to the workspace, on which verdicts all of them wait; never while "
            "the outcome is not what was judged.",
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
            about="What happens to traffic to addresses outside the trial; `hold` keeps back also what is allowed.",
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
            pattern=r"[^=\x00\s*?/\[\]]+",
            expects="the name of one variable, without = and *",
        ),
        Key(
            name="pass",
            field="passed",
            shape=Shape.TEXTS,
            about="Names of the environment that are passed as credentials; one that is not set is an error.",
            pattern=r"[^=\x00\s*?/\[\]]+",
            expects="the name of one variable, without = and *",
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

GRADE = Section(
    name="grade",
    type=GradePolicy,
    about="Who says whether the outcome is a success.",
    keys=(
        Key(
            name="command",
            field="command",
            shape=Shape.TEXT,
            about="A shell command, run in a box of its own: 0 is a success, 1 a failure, anything else no label.",
        ),
        Key(
            name="reads",
            field="reads",
            shape=Shape.TEXTS,
            about="Globs of its reference material beside files.read_deny: a trial that opened any gets no label.",
            is_path=True,
        ),
        Key(
            name="executes",
            field="executes",
            shape=Shape.TEXTS,
            about="Globs of files of the trial that the grader may run; running others voids the label.",
            is_path=True,
        ),
        Key(name="timeout", field="timeout_s", shape=Shape.DURATION, about="How long one run of it may take."),
        Key(
            name="repeats",
            field="repeats",
            shape=Shape.TIMES,
            about="How often it is run: when two runs differ, there is no label.",
        ),
        Key(
            name="states",
            field="states",
            shape=Shape.TABLES,
            about="How open effects may end: each combination is graded, and one label over all of them is final.",
            item=PossibleState,
            columns=(
                Key(
                    name="effect",
                    field="effect",
                    shape=Shape.TEXT,
                    about="The route of the effect, or route:GLOB for those whose description matches.",
                    pattern=r"(process|file|network|service|credential|ipc|schedule|container)(:.+)?",
                    expects="a route such as service, or service:GLOB",
                    required=True,
                ),
                Key(name="reason", field="reason", shape=Shape.TEXT, about="Why it can end so.", required=True),
                Key(name="script", field="script", shape=Shape.TEXT, about="Shell commands that make the copy so."),
                Key(name="overlay", field="overlay", shape=Shape.TEXT, about="A directory laid over the copy."),
            ),
        ),
        Key(
            name="selftest",
            field="selftest",
            shape=Shape.TABLES,
            about="Example outcomes and what the grader must say of them; it gives no label when it fails one.",
            item=Selftest,
            columns=(
                Key(
                    name="outcome",
                    field="outcome",
                    shape=Shape.TEXT,
                    about="A directory that stands for the workspace, or a file that stands for the outcome.",
                    required=True,
                ),
                Key(
                    name="expect",
                    field="expect",
                    shape=Shape.CHOICE,
                    about="What the grader must say.",
                    choices=tuple(Expected),
                    required=True,
                ),
            ),
        ),
    ),
)

ORDER = Section(
    name="order",
    type=OrderRule,
    about="Events that must come in this order, only where the order matters.",
    many=True,
    keys=(
        Key(
            name="first",
            field="first",
            shape=Shape.TEXT,
            about="The pattern of the event that must have come: a kind and what its fields must be.",
            pattern=EVENT_PATTERN,
            expects=EVENT_EXPECTS,
            required=True,
        ),
        Key(
            name="then",
            field="then",
            shape=Shape.TEXT,
            about="The pattern of the events that may only come after it.",
            pattern=EVENT_PATTERN,
            expects=EVENT_EXPECTS,
            required=True,
        ),
    ),
)

VALIDATE = Section(
    name="validate",
    type=ValidatePolicy,
    about="Who decides whether what the trial staged and sent is released, all of it or nothing.",
    keys=(
        Key(
            name="command",
            field="command",
            shape=Shape.TEXT,
            about="A shell command that is told of everything when the trial is over; exit 0 releases it.",
        ),
        Key(name="timeout", field="timeout_s", shape=Shape.DURATION, about="How long it may take to decide."),
    ),
)

SECTIONS = (CLAIM, STOP, FILES, NETWORK, CREDENTIALS, LIMITS, LOG, GRADE, ORDER, VALIDATE)
"""Every table of a policy file, in the order in which they are printed. Each is an attribute of `Policy` by name."""
