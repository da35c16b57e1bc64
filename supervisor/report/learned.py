"""What a trial did, written as the smallest policy that would have let it through.

In: a completion argument of a run in which nothing was refused for want of a rule, and the names that it looked up.
Out: a `Lesson`, which is a policy and what to say about each line of it. The rules:

* What was done once is allowed as it was done: one host and port, one file. What is different in each run is allowed
  by what stays the same of its name (`supervisor.report.learned_globs`).
* Credentials are left out, and so is what no policy could allow: datagrams, raw sockets, metadata services. It is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UnsetType

from policies.addresses import METADATA, forbidden_class, parse_address
from policies.canonical import policy_to_mapping, toml_tables, toml_value
from policies.hosts import normal_name, written
from policies.keys import SECTIONS
from policies.network import DEFAULT_PORT
from policies.types import Commit, FilesMode, NetworkDefault, Policy, ValidatePolicy
from supervisor.report.learned_globs import learn_globs
from supervisor.report.safe import safe
from supervisor.report.words import flow_words
from supervisor.values import dataclass, field, replace
from supervisor.verdict.completion import Completion, CredentialSeen
from supervisor.verdict.doings import FileSeen
from supervisor.verdict.exchanges import FlowSeen

_DNS = "dns"
_TOP = frozenset({b"", b"."})
_OWN_NAMES = "SUPERVISE_"
_REACHED_BY_MAPPING = frozenset({"a private address", "an address of this host"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A policy and what is to be said about it.

    Attributes:
        policy: what would have let the trial through.
        remarks: by table, key and item (``network``, ``allow``, ``api.test:443``): what was seen.
        left_out: what was seen and is not allowed, one sentence each.
    """

    policy: Policy
    remarks: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def learn(completion: Completion, base: Policy, *, asked: Iterable[str] = (), dropped: Iterable[str] = ()) -> Lesson:
    """Make the lesson of a run.

    Args:
        completion: of the run, under `watching` of the base policy.
        base: what was asked for; the lesson adds to it.
        asked: names that were looked up, whole.
        dropped: names that were left out of the environment.
    """
    rules, maps, left_out = _hosts(completion.effects.network, asked)
    made = tuple(one.name for one in completion.effects.credentials if one.action in _MADE and one.fingerprint is None)
    globs = learn_globs((path, one) for path, one in _written(completion.effects.files) if not _is_one_of(path, made))
    network = replace(
        base.network,
        default=NetworkDefault.DENY,
        allow=tuple(dict.fromkeys((*base.network.allow, *rules))),
        map=tuple(dict.fromkeys((*base.network.map, *maps))),
    )
    write = tuple(dict.fromkeys((*(base.files.write or ()), *globs)))
    remarks = {("network", "allow", rule): words for rule, words in rules.items()}
    remarks |= {("network", "map", text): words for text, words in maps.items()}
    remarks |= {("files", "write", glob): words for glob, words in globs.items()}
    names = ", ".join(sorted(safe(name) for name in dropped if not name.startswith(_OWN_NAMES)))
    if names:
        left_out.append(f"a variable that looks like a credential, to be named if it is needed: {names}")
    met = {f"a credential: {one.name} was {one.action}" for one in completion.effects.credentials if not _dropped(one)}
    left_out += sorted(met)
    return Lesson(
        policy=replace(base, name="learned", network=network, files=replace(base.files, write=write)),
        remarks=remarks,
        left_out=tuple(left_out),
    )


def _dropped(one: CredentialSeen) -> bool:
    """Tell whether it is a variable that was left out, which is told by its name."""
    return one.kind == "env" and one.action == "denied"


def watching(base: Policy, *, default: NetworkDefault = NetworkDefault.SINKHOLE) -> Policy:
    """Give the policy under which a lesson is learned: everything is let happen, nothing of it reaches anybody.

    Args:
        base: what was asked for.
        default: ``allow`` lets traffic out, to see what comes after the first answer.
    """
    return replace(
        base,
        network=replace(base.network, default=default),
        files=replace(base.files, mode=FilesMode.STAGED, write=None, commit=Commit.NEVER),
        validate=ValidatePolicy(),
    )


def _hosts(flows: Sequence[FlowSeen], asked: Iterable[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Give rules and mappings with what was seen of each, and what no rule can allow."""
    rules: dict[str, str] = {}
    maps: dict[str, str] = {}
    left_out: dict[str, None] = {}
    reached: set[str] = set()
    connections: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    left_out |= dict.fromkeys(
        f"refused under every policy: {flow_words(flow)}" for flow in flows if not isinstance(flow.unread, UnsetType)
    )
    for flow in (one for one in flows if one.protocol != _DNS):  # names that were asked for come by themselves
        host = flow.host or flow.ip
        name = normal_name(host) if host and parse_address(host) is None else None
        address = parse_address(flow.ip) if flow.ip else None
        if flow.protocol != "tcp" or not host or not flow.port or (name is None and address is None):
            left_out[f"refused under every policy: {_shown(flow)}"] = None
            continue
        words = forbidden_class(address) if address is not None and name is None else None
        if words is not None and words not in _REACHED_BY_MAPPING:
            kind = "a credential" if words == METADATA else "refused under every policy"
            left_out[f"{kind}: {_shown(flow)}, {words}"] = None
            continue
        rule = written(name or str(address), flow.port)
        if words is not None:
            maps[f"{rule}={rule}"] = words
        reached.add(name or "")
        connections[rule] += max(1, flow.connections)
        sent[rule] += flow.bytes_out + flow.kept_bytes
    for rule, count in connections.items():
        rules[rule] = f"{count} connection{'' if count == 1 else 's'}, {sent[rule]:,} bytes sent"
    for text in asked:
        known = normal_name(text)
        if known is None or known.endswith(".arpa"):
            left_out[f"refused under every policy: a look-up of {safe(text)}"] = None
        elif known not in reached:
            rules.setdefault(written(known, DEFAULT_PORT), "looked up only")
    return dict(sorted(rules.items())), dict(sorted(maps.items())), list(left_out)


def _shown(flow: FlowSeen) -> str:
    where = written(flow.host or flow.ip or "an unknown address", flow.port or 0).removesuffix(":*")
    return f"{flow.protocol} to {safe(where)}"


def _written(files: Iterable[FileSeen]) -> Iterator[tuple[bytes, FileSeen]]:
    """Give what was written and can be met by others, with its path; the workspace itself is none of it."""
    for one in files:
        path = _path_bytes(one)
        if one.history and not one.private and one.reachable and path not in _TOP:
            yield path, one


def _is_one_of(path: bytes, credentials: tuple[str, ...]) -> bool:
    """Tell whether a file is one of the credentials that were made or written, by their whole paths or below ``~``."""
    text = path.decode("utf-8", "surrogateescape")
    return any(
        name == text or name.endswith(f"/{text}") or (name.startswith("~/") and text.endswith(name[1:]))
        for name in credentials
    )


def _path_bytes(one: FileSeen) -> bytes:
    if isinstance(one.path, str):
        return one.path.encode()
    import base64  # noqa: PLC0415  (hardly any path needs it)

    return base64.b64decode(one.path_b64) if isinstance(one.path_b64, str) else b""


def render(lesson: Lesson, *, command: str) -> str:
    """Write a lesson as a policy file, with what was seen as comments.

    Args:
        lesson: to write.
        command: what was run, for the first line.
    """
    mapping, usual = policy_to_mapping(lesson.policy), policy_to_mapping(Policy())
    lines = [f"# Learned from: {safe(command)}", "# It allows what was seen, once. Read it before you use it."]
    lines += [f"# Not allowed: {words}" for words in lesson.left_out]
    lines += [f"{key} = {toml_value(mapping[key])}" for key in ("schema", "name")]
    for section in (section for section in SECTIONS if not section.many):
        told = {
            name: value
            for name, value in mapping[section.name].items()
            if value != usual[section.name].get(name) or (section.name, name) in _ALWAYS
        }
        if told:
            lines += ["", f"[{section.name}]"]
            lines += [line for name, value in told.items() for line in _key_lines(lesson, section.name, name, value)]
    for name in (*(section.name for section in SECTIONS if section.many), "services"):
        lines += toml_tables(name, mapping.get(name, ()))
    return "\n".join(lines) + "\n"


_MADE = frozenset({"written", "created"})
_ALWAYS = frozenset({("network", "default"), ("files", "write")})


def _key_lines(lesson: Lesson, section: str, name: str, value: object) -> list[str]:
    if not isinstance(value, list | dict) or not value:
        return [f"{name} = {toml_value(value)}"]
    if isinstance(value, dict):
        told = [remark for key, one in value.items() if (remark := _remark(lesson, section, name, f"{key}={one}"))]
        return [f"{name} = {toml_value(value)}{''.join(told)}"]
    rows = [f"    {toml_value(item)},{_remark(lesson, section, name, item)}" for item in value]
    return [f"{name} = [", *rows, "]"]


def _remark(lesson: Lesson, section: str, name: str, item: str) -> str:
    words = lesson.remarks.get((section, name, item))
    return f"  # {safe(words)}" if words else ""
