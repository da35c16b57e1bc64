"""What is a credential: the data of ``credentials.toml`` applied to an environment and to a home directory.

The rule: what looks secret is left out unless somebody named it. Names decide, and for URLs with a password and private
keys the value does; a name that the policy keeps is kept whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

from policies.types import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialData:
    """The data file. Paths are globs; names of the environment are globs in upper case; values are a pattern.

    ``names`` is all of ``agents`` and ``secrets`` in one, because compiling sixty patterns takes 10 ms at every start.
    ``sockets`` are not masked: the box has a /run and /tmp of its own. They name what a contact outside would be with.
    """

    home_paths: tuple[str, ...]
    absolute_paths: tuple[str, ...]
    sockets: tuple[str, ...]
    agents: tuple[str, ...]
    secrets: tuple[str, ...]
    names: re.Pattern[str]
    values: re.Pattern[str]


@lru_cache(maxsize=1)
def credential_data() -> CredentialData:
    """Read the data file that comes with the program, once."""
    import tomllib  # noqa: PLC0415  (only what starts a trial needs it)

    data = tomllib.loads(Path(__file__).with_name("credentials.toml").read_text(encoding="utf-8"))
    names = data["environment"]
    return CredentialData(
        home_paths=tuple(data["paths"]["home"]),
        absolute_paths=tuple(data["paths"]["absolute"]),
        sockets=tuple(data["sockets"]["absolute"]),
        agents=tuple(names["agents"]),
        secrets=tuple(names["secrets"]),
        names=re.compile("|".join(map(translate, (*names["agents"], *names["secrets"])))),
        values=re.compile("|".join(names["values"])),
    )


def filter_environ(environ: Mapping[str, str], policy: Policy) -> tuple[dict[str, str], tuple[str, ...]]:
    """Leave out what looks secret, and what leads to an agent or a session of the host.

    Args:
        environ: the environment of the caller, with what ``--env NAME=VALUE`` set.
        policy: ``credentials.env`` names what is kept all the same.

    Returns:
        What is kept, and the sorted names (never the values) of what is not.
    """
    dropped = {name for name, value in environ.items() if name not in policy.credentials.env and is_secret(name, value)}
    return {name: value for name, value in environ.items() if name not in dropped}, tuple(sorted(dropped))


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable looks like a credential, or leads to one."""
    data = credential_data()
    return data.names.match(name.upper()) is not None or data.values.search(value) is not None


def masked_globs(home: str | None, *, workspace: str, mask: Iterable[str] = ()) -> tuple[str, ...]:
    """Give the absolute globs of everything that the trial must not see.

    Args:
        home: absolute, of the user that the trial runs as; None when there is none.
        workspace: absolute; what the relative globs of the policy start from.
        mask: ``credentials.mask`` of the policy.
    """
    data = credential_data()
    own = tuple(f"{_literal(home)}/{path}" for path in data.home_paths) if home else ()
    added = tuple(_absolute(glob, home, workspace) for glob in mask)
    return tuple(dict.fromkeys((*own, *data.absolute_paths, *added)))


def masked_paths(
    home: str | None, exists: Callable[[str], Iterable[str]], *, workspace: str = "/", mask: Iterable[str] = ()
) -> tuple[str, ...]:
    """Give the paths to mask, those below a masked directory left out.

    Args:
        home: as for `masked_globs`.
        exists: gives the existing paths that an absolute glob means, e.g. `glob.glob`.
        workspace: as for `masked_globs`.
        mask: as for `masked_globs`.

    Returns:
        Absolute paths, sorted, each existing when it was looked up.
    """
    found = sorted({path for glob in masked_globs(home, workspace=workspace, mask=mask) for path in exists(glob)})
    kept: list[str] = []
    for path in found:
        if not any(path.startswith(f"{above}/") for above in kept):
            kept.append(path)
    return tuple(kept)


def _absolute(glob: str, home: str | None, workspace: str) -> str:
    if glob.startswith("~/") and home:
        return f"{_literal(home)}/{glob[2:]}"
    return glob if glob.startswith("/") else f"{_literal(workspace)}/{glob}"


def _literal(directory: str) -> str:
    """Make a directory a glob that means only itself."""
    return re.sub(r"([*?[])", r"[\1]", directory.rstrip("/"))
