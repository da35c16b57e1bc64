"""What is a credential: the data of ``credentials.toml`` applied to an environment and to a home directory.

The rule: what looks secret is left out unless somebody named it. Names decide, and for URLs with a password and private
keys the value does; a name that the policy keeps is kept whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from pathlib import Path

from policies.types import Policy
from supervisor.values import dataclass

REDACTED_MIN_BYTES = 6
"""A passed value that is shorter is no secret worth hiding: it would be met everywhere by chance."""
_DROPPED_MIN_BYTES = 8
_LINE_MIN, _LINES_MAX = 32, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialData:
    """The data file. Paths are globs; names of the environment are globs in upper case; values are a pattern.

    Attributes:
        sockets: not masked, since the box has a /run and /tmp of its own. They name what a contact would be with.
        anywhere: globs of file names that mean a credential wherever the file lies.
        made: the same for files that are made or written.
        metadata_addresses, metadata_names: where clouds answer with credentials of the machine.
        agents: names that lead to an agent or a session of the host.
        own: names of our own settings.
        secrets, secret_names: names that hold a secret, as globs and as one pattern.
        values: what holds a secret whatever its name is.
    """

    home_paths: tuple[str, ...]
    absolute_paths: tuple[str, ...]
    sockets: tuple[str, ...]
    anywhere: tuple[str, ...]
    made: tuple[str, ...]
    metadata_addresses: tuple[str, ...]
    metadata_names: tuple[str, ...]
    agents: tuple[str, ...]
    own: tuple[str, ...]
    secrets: tuple[str, ...]
    secret_names: re.Pattern[str]
    values: re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A credential of the environment. ``value`` is for the supervisor's memory only: it is never written."""

    name: str
    value: str
    passed: bool

    def __repr__(self) -> str:
        """Leave the value out: this text ends up in tracebacks."""
        return f"Secret(name={self.name!r}, passed={self.passed})"


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
        anywhere=tuple(data["names"]["anywhere"]),
        made=tuple(data["names"]["made"]),
        metadata_addresses=tuple(data["metadata"]["addresses"]),
        metadata_names=tuple(data["metadata"]["names"]),
        agents=tuple(names["agents"]),
        own=tuple(names["own"]),
        secrets=tuple(names["secrets"]),
        secret_names=re.compile("|".join(map(translate, names["secrets"]))),
        values=re.compile("|".join(names["values"])),
    )


def filter_environ(environ: Mapping[str, str], policy: Policy) -> tuple[dict[str, str], tuple[str, ...]]:
    """Leave out what looks secret, what leads to an agent or a session of the host, and our own settings.

    Args:
        environ: the environment of the caller, with what ``--env NAME=VALUE`` set.
        policy: ``credentials.env`` and ``credentials.pass`` name what is kept all the same.

    Returns:
        What is kept, and the sorted names (never the values) of the credentials that are not.
    """
    named = {*policy.credentials.env, *policy.credentials.passed}
    dropped = {name for name, value in environ.items() if name not in named and is_secret(name, value)}
    gone = dropped | {name for name in environ if name not in named and _is_own(name)}
    return {name: value for name, value in environ.items() if name not in gone}, tuple(sorted(dropped))


def _is_own(name: str) -> bool:
    return any(fnmatchcase(name.upper(), own) for own in credential_data().own)


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable looks like a credential, or leads to one."""
    return _leads_to_agent(name.upper()) or holds_secret(name, value)


def _leads_to_agent(upper: str) -> bool:
    return upper in credential_data().agents


def holds_secret(name: str, value: str) -> bool:
    """Tell whether the value of a variable looks like a credential; one that only leads to an agent does not."""
    data, upper = credential_data(), name.upper()
    named = not _leads_to_agent(upper) and data.secret_names.match(upper) is not None
    return named or data.values.search(value) is not None


def missing_names(environ: Mapping[str, str], policy: Policy) -> tuple[str, ...]:
    """List the credentials that are to be passed and are not there, or empty."""
    return tuple(name for name in policy.credentials.passed if not environ.get(name))


def find_secrets(environ: Mapping[str, str], policy: Policy) -> tuple[Secret, ...]:
    """List the credentials in the caller's environment by name, those that are passed and those that are dropped."""
    kept = {*policy.credentials.env, *policy.credentials.passed}
    return tuple(
        Secret(name=name, value=value, passed=name in kept)
        for name, value in sorted(environ.items())
        if value and (name in policy.credentials.passed or holds_secret(name, value))
    )


def hidden_values(secrets: Iterable[Secret]) -> Iterator[tuple[str, bytes]]:
    """Give what must be in nothing that is written, with the name it is redacted to; the longest first.

    The password of a URL is such a value of its own, and so is each long line of a key. Left alone is what any text may
    hold by chance: passed values below `REDACTED_MIN_BYTES`, and dropped ones that are short or a plain word.
    """
    found: dict[bytes, str] = {}
    for secret in secrets:
        lines = secret.value.splitlines()[:_LINES_MAX] if "\n" in secret.value else []
        long = [line for line in lines if len(line) >= _LINE_MIN and "-----" not in line]
        parts = [secret.value, *(part for part in _URL_PASSWORD.findall(secret.value) if part), *long]
        for part in parts:
            value = part.strip().encode("utf-8", "surrogateescape")
            least = REDACTED_MIN_BYTES if secret.passed else _DROPPED_MIN_BYTES
            if len(value) >= least and (secret.passed or not value.isalpha()):
                found.setdefault(value, secret.name)
    for value in sorted(found, key=lambda one: (-len(one), one)):
        yield found[value], value


_URL_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@")


def masked_globs(
    home: str | None, *, workspace: str, mask: Iterable[str] = (), others: Iterable[str] = ()
) -> tuple[str, ...]:
    """Give the absolute globs of everything that the trial must not see.

    Args:
        home: absolute, of the user that the trial runs as; None when there is none.
        workspace: absolute; what the relative globs of the policy start from.
        mask: ``credentials.mask`` of the policy.
        others: further homes on the machine, absolute.
    """
    data = credential_data()
    homes = dict.fromkeys((*([home] if home else []), *others))
    own = tuple(f"{_literal(one)}/{path}" for one in homes for path in data.home_paths)
    added = tuple(absolute_glob(glob, home, workspace) for glob in mask)
    return tuple(dict.fromkeys((*own, *data.absolute_paths, *added)))


def masked_paths(
    home: str | None,
    exists: Callable[[str], Iterable[str]],
    *,
    workspace: str = "/",
    mask: Iterable[str] = (),
    others: Iterable[str] = (),
) -> tuple[str, ...]:
    """Give the paths to mask, those below a masked directory left out.

    Args:
        home: as for `masked_globs`.
        exists: gives the existing paths that an absolute glob means, e.g. `glob.glob`.
        workspace: as for `masked_globs`.
        mask: as for `masked_globs`.
        others: as for `masked_globs`.

    Returns:
        Absolute paths, sorted, each existing when it was looked up.
    """
    globs = masked_globs(home, workspace=workspace, mask=mask, others=others)
    found = sorted({path for glob in globs for path in exists(glob)})
    kept: list[str] = []
    for path in found:
        if not any(path.startswith(f"{above}/") for above in kept):
            kept.append(path)
    return tuple(kept)


def absolute_glob(glob: str, home: str | None, workspace: str) -> str:
    """Give the absolute glob of one of ``credentials.mask``: ``~/`` is the home, relative ones begin at the workspace.

    A ``/`` at its end is left out: a file is masked like a directory.
    """
    whole = glob if glob.startswith("/") else f"{_literal(workspace)}/{glob}"
    if (glob == "~" or glob.startswith("~/")) and home:
        whole = f"{_literal(home)}{glob[1:]}"
    return whole.rstrip("/") or "/"


def _literal(directory: str) -> str:
    """Make a directory a glob that means only itself."""
    return re.sub(r"([*?[])", r"[\1]", directory.rstrip("/"))
