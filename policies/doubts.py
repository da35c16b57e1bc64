"""What a policy says that is probably not what its author meant: allowed, so no error, but worth a line."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator

from policies.globs import compile_globs
from policies.keys import CLAIM, FILES
from policies.shapes import Shape
from policies.types import NetworkDefault, Policy

_OTHER_GLOBS = frozenset("[]{}")
"""What means something in a shell's globs and stands for itself in ours."""
_WILDCARDS = frozenset("*?")


def doubts(policy: Policy, *, workspace: str | None = None) -> tuple[str, ...]:
    """Give one sentence for each path or glob that reads like something that it is not, or is good for nothing.

    Args:
        policy: whole and checked.
        workspace: where it will be used, absolute and free of symlinks; None where nobody knows yet.
    """
    paths = (f"{place}: {said}, got {text!r}" for place, text in _paths(policy) if (said := _doubt(text)) is not None)
    return (
        *paths,
        *_discarded(policy, workspace),
        *_unwritable_outcome(policy),
        *_useless_mappings(policy),
    )


def _discarded(policy: Policy, workspace: str | None) -> Iterator[str]:
    """Find what may be written and is thrown away: globs that name nothing of the workspace or of a shared place."""
    shared = [posixpath.normpath(posixpath.join(workspace or "/", one.path)) for one in policy.files.shared]
    for at, glob in enumerate(policy.files.write or ()):
        if not glob.startswith("/") or (workspace is not None and _is_below(glob, workspace)):
            continue
        root = _literal_part(glob)
        if any(_is_below(root, place) or _is_below(place, root) for place in shared):
            continue
        said = "outside the workspace" if workspace is not None else "outside the workspace, if it does not lie there"
        hint = "a place in files.shared (--shared) is written at once"
        yield f"files.write[{at}]: allowed, and discarded: {said}; {hint}, got {glob!r}"


def _literal_part(glob: str) -> str:
    """Give the part of an absolute glob before its first component with a wildcard."""
    parts = itertools.takewhile(lambda part: not _WILDCARDS.intersection(part), glob.split("/"))
    return posixpath.normpath("/".join(parts) or "/")


def _is_below(path: str, top: str) -> bool:
    return f"{path}/".startswith(top.rstrip("/") + "/")


def _unwritable_outcome(policy: Policy) -> Iterator[str]:
    """Find an outcome that nothing allows to be written: whatever makes it violates.

    Absolute paths are left alone, since nobody knows yet where the workspace is.
    """
    claim, files = policy.claim, policy.files
    allowed = (*(files.write or ()), *(place.path for place in files.shared))
    if not files.write or claim.service is not None or any(path.startswith("/") for path in allowed):
        return
    named = claim.outcome or "/"
    path = "/".join(part for part in named.split("/") if part not in {"", "."}).encode(errors="surrogateescape")
    if named.startswith("/") or not path:
        return
    globs = compile_globs(allowed)
    if not globs.match(path) and not globs.may_match_below(path):
        yield f"claim.outcome: nothing in files.write covers it, so writing it violates, got {named!r}"


def _useless_mappings(policy: Policy) -> Iterator[str]:
    """Find mappings of hosts that nothing allows: where the gateway would dial says not that it may."""
    network = policy.network
    if network.default is not NetworkDefault.DENY or not network.map:
        return
    from policies.addresses import parse_address  # noqa: PLC0415  (10 ms that hardly any policy needs)
    from policies.hosts import written  # noqa: PLC0415  (as above)
    from policies.network import Effect, parse_mapping, parse_rules  # noqa: PLC0415  (as above)

    rules = parse_rules(network.allow, Effect.ALLOW, place="network.allow")
    for text in network.map:
        mapping = parse_mapping(text, place="network.map")
        address = parse_address(mapping.host)
        met = (rule.meets_name(mapping.host) if address is None else rule.meets_address(address) for rule in rules)
        if not any(meets and rule.meets_port(mapping.port) for meets, rule in zip(met, rules, strict=True)):
            host = written(mapping.host, mapping.port)
            yield f"network.map: no rule allows {host}, so it is never dialled: add --allow {host}, got {text!r}"


def _paths(policy: Policy) -> Iterator[tuple[str, str]]:
    for section in (CLAIM, FILES):  # masks are the globs of Python, which have classes
        table = getattr(policy, section.name)
        for key in section.keys:
            value = getattr(table, key.field)
            if key.shape is Shape.PLACES:
                yield from ((f"{section.name}.{key.name}[{at}].path", one.path) for at, one in enumerate(value))
            elif key.is_path and key.shape is Shape.TEXTS:
                yield from ((f"{section.name}.{key.name}[{at}]", text) for at, text in enumerate(value or ()))
            elif key.is_path and value is not None:
                yield f"{section.name}.{key.name}", value


def _doubt(text: str) -> str | None:
    if found := sorted(_OTHER_GLOBS.intersection(text)):
        return f"{found[0]} stands for itself: the wildcards are *, ** and ?"
    if text.startswith("~"):
        return "~ stands for itself: paths begin at the workspace, or with / at the root"
    if text.startswith("!"):
        return "! stands for itself: nothing is taken out again"
    return None
