"""What one run says to others: the short form of its facts from which pairs of runs are judged.

It is made when the run is sealed (`supervisor.verdict.runs.indexing`), and the seal binds it. Times are wall-clock
nanoseconds of the machine that ran it. Fields are only ever added, each with a default: an older index can be read.
"""

from __future__ import annotations

from functools import cache

import msgspec

from supervisor.evidence.facts import Route
from supervisor.evidence.file_facts import Ground, Sight

SCHEMA = "run-index/1"


class Contact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One way in which a run met a path of the host.

    Attributes:
        how: ``changed``, ``read``, ``listed``, ``looked``, ``executed`` or ``mapped``.
        error: errno of look-ups that failed.
        before, after: what the path was before the run and after it (`state_digest`), where that is known.
        times: when it was last touched before the run, and at its end (0: not known); None for neither.
        given: through a standard stream that was handed over: no name was looked for, and none was made or taken away;
            who only writes so has met nothing.
    """

    path: bytes
    how: str
    first_ns: int
    last_ns: int
    events: tuple[int, ...] = ()
    error: int | None = None
    before: str | None = None
    after: str | None = None
    times: tuple[int, int] | None = None
    given: bool = False


class Server(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One server that a run reached. ``state`` is what the policy declares of it, None for nothing.

    ``socket``: device and inode of the unix socket that it listens at, None where that is not known.
    """

    address: str
    name: str | None
    state: str | None
    first_ns: int
    last_ns: int
    events: tuple[int, ...] = ()
    socket: tuple[int, int] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """What tells that two runs had one server: every way to this machine itself is one, whatever it is called."""
        host, _, port = self.address.rpartition(":")
        address = self.address
        if not address.startswith("unix:") and _is_this_machine(host.strip("[]")):
            address = f"this machine:{port}"
        return (address,) if self.socket is None else (address, "socket {}:{}".format(*self.socket))


class Secret(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One use of a credential, by its fingerprint; ``action`` as in `supervisor.evidence.facts.CredentialUse`."""

    fingerprint: str
    name: str
    action: str
    events: tuple[int, ...] = ()


class Lock(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One span in which locks of one file were used; the fields are those of `supervisor.evidence.locks.LockUse`."""

    path: bytes
    device: int
    inode: int
    sort: str
    how: str
    first_ns: int
    last_ns: int
    events: tuple[int, ...] = ()
    own: bool = False
    exact: bool = True


class Stream(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One standard stream that a run was given; the fields are those of `supervisor.evidence.routes.Stream`.

    What is the same for two runs is told by device, inode and when it was made; see `supervisor.verdict.runs.streamed`.
    """

    number: int
    what: str
    path: bytes
    named: bool
    device: int
    inode: int
    born_ns: int
    reads: bool
    writes: bool
    ended: bool = False
    start: int | None = None
    reached: int | None = None
    events: tuple[int, ...] = ()


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something about the run as a whole, in words: a gap, a sign of contention, an effect that acts later."""

    rule: str
    text: str
    events: tuple[int, ...] = ()
    route: str = ""


class RunIndex(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that a pair is judged from.

    Attributes:
        problem: why this run proves nothing (missing, unsealed, not verified), None when it does.
        registered: digest of its line in the registry, None for a run from before there was one, or outside a home.
        unit: ``run``, or ``stream:NAME`` for runs that are declared to be one unit.
        depends_on: runs on which it is declared to build.
        released_ns, ended_ns: from its release until nothing of it was alive.
        workspace: of the host; empty where the run had none.
        places: shared places, mounted into the box as they are; free of symlinks.
        grounds: where these lie in their file systems, and what is mounted in them.
        found, left: of the paths of its places that it met, what was there before it; of those that it changed, and the
            directories that hold them, what was there at ``left_ns``.
        wrote: in which of its places it changed anything, and since when (`head_of`).
        reached: places of others in which it met anything, of those where something of theirs may be hidden.
        staged: changes that stayed staged: nobody's contact, unless they are applied later (`applied_later`).
        applied_ns: when they were, 0 for never.
        boot: of the machine, which alone makes the numbers of pipes and sockets mean something.
        streams: that it was given; None for a run from before they were told.
        gaps: those that cost separation. ``later``: effects of it that act, or may act, after its end.
    """

    schema: str = SCHEMA
    run: str
    problem: str | None = None
    registered: str | None = None
    unit: str = "run"
    depends_on: tuple[str, ...] = ()
    released_ns: int = 0
    ended_ns: int = 0
    workspace: bytes = b""
    places: tuple[bytes, ...] = ()
    grounds: tuple[Ground, ...] = ()
    contacts: tuple[Contact, ...] = ()
    found: tuple[Sight, ...] = ()
    left: tuple[Sight, ...] = ()
    left_ns: int = 0
    wrote: tuple[tuple[bytes, int], ...] = ()
    reached: tuple[bytes, ...] = ()
    staged: tuple[Contact, ...] = ()
    applied_ns: int = 0
    servers: tuple[Server, ...] = ()
    secrets: tuple[Secret, ...] = ()
    locks: tuple[Lock, ...] = ()
    boot: str = ""
    streams: tuple[Stream, ...] | None = None
    contention: tuple[Mark, ...] = ()
    gaps: tuple[Mark, ...] = ()
    later: tuple[Mark, ...] = ()
    assumptions: tuple[str, ...] = ()


_STREAMS_UNTOLD = Mark(
    "streams-not-told",
    "it was recorded before standard streams were: what was redirected from or to it is not known",
    route=Route.IPC.value,
)


def encode_index(index: RunIndex) -> bytes:
    """Write an index as the bytes of its file (MessagePack)."""
    return msgspec.msgpack.encode(index)


@cache
def _decoder() -> msgspec.msgpack.Decoder[RunIndex]:
    return msgspec.msgpack.Decoder(RunIndex)


def decode_index(data: bytes) -> RunIndex:
    """Read an index. One from before streams were told has a gap: any file may have been redirected from or to it.

    Raises:
        msgspec.DecodeError: it is none.
    """
    index = _decoder().decode(data)
    if index.streams is not None:
        return index
    return msgspec.structs.replace(index, gaps=(*index.gaps, _STREAMS_UNTOLD), streams=())


def applied_later(index: RunIndex, begun_ns: int, done_ns: int) -> RunIndex:
    """Give the index of a run whose stage was applied after it: then its staged changes are contacts.

    Args:
        index: as it was sealed.
        begun_ns: when somebody began to apply it.
        done_ns: when that was done.
    """
    changes = tuple(
        msgspec.structs.replace(contact, first_ns=begun_ns, last_ns=max(begun_ns, done_ns)) for contact in index.staged
    )
    return msgspec.structs.replace(index, contacts=(*index.contacts, *changes), staged=(), applied_ns=done_ns)


def head_of(index: RunIndex) -> RunIndex:
    """Give an index without its paths, which are many; in which places it changed any, and since when, is kept."""
    since: dict[bytes, int] = {}
    places = [(place, place.rstrip(b"/") + b"/") for place in (*index.places, index.workspace) if place]
    if places:
        for contact in index.contacts:
            if contact.how == "changed":
                for place, top in places:
                    if contact.path == place or contact.path.startswith(top):
                        since[place] = min(contact.first_ns, since.get(place, contact.first_ns))
    return msgspec.structs.replace(index, contacts=(), staged=(), found=(), left=(), wrote=tuple(sorted(since.items())))


def with_sights(
    index: RunIndex, *, found: tuple[Sight, ...], left: tuple[Sight, ...], left_ns: int, grounds: tuple[Ground, ...]
) -> RunIndex:
    """Add what the file system said of the paths of an index, and to its contacts what they met."""
    known = {contact.path: contact.before for contact in index.contacts if contact.before is not None}
    found = tuple(_with_state(sight, known.get(sight.path)) for sight in found)
    met = {sight.path: sight for sight in found if sight.state is not None}
    since = {sight.path: sight.ctime_ns for sight in left if sight.inode}

    def seen(contact: Contact) -> Contact:
        if contact.given:
            return contact
        sight = met.get(contact.path)
        after_ns = since.get(contact.path, 0) if contact.how == "changed" else 0
        if sight is None and not after_ns:
            return contact
        before = contact.before
        if before is None and contact.how != "changed" and sight is not None:
            before = sight.state
        times = (sight.ctime_ns if sight is not None and sight.inode else 0, after_ns)
        return msgspec.structs.replace(contact, before=before, times=times)

    return msgspec.structs.replace(
        index,
        contacts=tuple(map(seen, index.contacts)),
        found=found,
        left=left,
        left_ns=left_ns,
        grounds=grounds,
    )


def _is_this_machine(host: str) -> bool:
    mapped = host.removeprefix("::ffff:")
    return host in {"localhost", "::1", "::", "0.0.0.0"} or mapped.startswith("127.")  # noqa: S104 - nobody binds


def _with_state(sight: Sight, before: str | None) -> Sight:
    """Add the state that the facts have of a path; that of a directory does not tell what was in it."""
    if sight.state is not None or before is None or not sight.names:
        return sight
    return msgspec.structs.replace(sight, state=before)
