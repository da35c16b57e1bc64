"""What credentials look like: the patterns of detect-secrets with a few of our own, applied to lines.

Of it only the patterns are used: its allowlist comments would let a trial hide what it wrote, and its verifiers ask the
network. It costs 200 ms to import, so it is not asked before a line holds one of the words that its patterns need;
those that need no word are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import NamedTuple

_PLUGINS = (
    ("artifactory", "ArtifactoryDetector"),
    ("aws", "AWSKeyDetector"),
    ("azure_storage_key", "AzureStorageKeyDetector"),
    ("basic_auth", "BasicAuthDetector"),
    ("github_token", "GitHubTokenDetector"),
    ("gitlab_token", "GitLabTokenDetector"),
    ("jwt", "JwtTokenDetector"),
    ("npm", "NpmDetector"),
    ("openai", "OpenAIDetector"),
    ("private_key", "PrivateKeyDetector"),
    ("pypi_token", "PypiTokenDetector"),
    ("sendgrid", "SendGridDetector"),
    ("slack", "SlackDetector"),
    ("square_oauth", "SquareOAuthDetector"),
    ("stripe", "StripeDetector"),
)


_MORE = (
    ("Anthropic API Key", r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    ("OpenAI API Key", r"\bsk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}"),
    ("Hugging Face Token", r"\bhf_[A-Za-z0-9]{30,}"),
    ("Google API Key", r"\bAIza[A-Za-z0-9_-]{35}"),
)
"""Sorts that agents are started with, and that detect-secrets 1.5 does not know, or not in this form."""

_INSIDE = (b"private key", b"aws", b"accountkey", b"_live_", b"_authtoken", b"t3blbkfj", b"://")
"""In lower case: words that stand anywhere in a line with a credential. A URL has an @ after it."""
_BEGIN = (
    b"akia", b"asia", b"abia", b"acca", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"glpat-", b"gldt-", b"glrt-",
    b"glcbt-", b"glptt-", b"glft-", b"glsoat-", b"eyj", b"xoxa", b"xoxb", b"xoxe", b"xoxo", b"xoxp", b"xoxr", b"xoxs",
    b"hooks.slack.com", b"pypi-", b"sg.", b"akc", b"sq0",
    b"sk-ant-", b"sk-proj-", b"sk-svcacct-", b"sk-admin-", b"hf_", b"aiza",
)  # fmt: skip
"""In lower case: what credentials begin with. Inside a word it is none."""
_LEADS = ("_FILE", "_PATH", "_DIR", "_ENV", "_NAME")
_SHORTEST = 12
_LONGEST_LINE = 4096
_HEAD_BYTES = 8192
_PRIVATE_KEY = b"PRIVATE KEY"
_KEY_END = b"-----END"


class Look(NamedTuple):
    """One thing that looks like a credential: which sort, the line from 1, and its value, which is never written."""

    sort: str
    line: int
    value: bytes


def find_looks(content: bytes) -> Iterator[Look]:
    """Find what looks like a credential in the content of one file."""
    if b"\0" in content[:_HEAD_BYTES]:
        return  # no text
    for number, line in _candidates(content):
        for sort, value in _in_line(line.decode("latin-1")):
            whole = _block(content.splitlines()[number:]) if _PRIVATE_KEY in value else value
            yield Look(sort, number + 1, whole)


_NAMED = re.compile(
    r"""(?:(?<![A-Za-z0-9_])(?P<name>[A-Za-z][A-Za-z0-9_-]*)\s*[=:]\s*|(?<!\S)--?(?P<option>[A-Za-z][A-Za-z0-9_-]*)\s+)"""
    r"""(?:(?:Bearer|Basic|Token)\s+)?(?:"([^"\n$]{8,})"|'([^'\n$]{8,})'"""
    r"""|((?=[^\s"']*[0-9])(?=[^\s"']*[A-Za-z])[A-Za-z0-9_+/.~=!@%^-]{8,}))"""
)
"""A name and what it is given, in a shell's words, an option, a header or a connection string; without quotes it is
told from code by a letter and a digit."""


def find_named(text: str) -> Iterator[tuple[str, str]]:
    """Find values that a text gives a name: the name in capitals, as a variable has it, and the value.

    Where a value is only a path, or the name says that it leads to one, it is none.
    """
    at = 0
    while found := _NAMED.search(text, at):
        name = found["name"] or found["option"]
        at = found.start() + max(len(name), 1)
        name = name.replace("-", "_").upper()
        value = found[3] or found[4] or found[5]
        if not value.startswith(("/", "./", "../", "~")) and not name.endswith(_LEADS):
            yield name, value


def _candidates(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Give the lines that hold one of the words, each with how many lines are before it."""
    folded = content.lower()
    places = {place for word in _INSIDE for place in _places(folded, word)}
    places |= {place for word in _BEGIN for place in _places(folded, word) if not folded[place - 1 : place].isalnum()}
    number, counted, after = 0, 0, -1
    for place in sorted(places):
        if place < after:
            continue  # in the line that was given
        start, end = content.rfind(b"\n", 0, place) + 1, content.find(b"\n", place)
        line = content[start : end if end >= 0 else None]
        if folded.startswith(b"://", place) and b"@" not in line:
            continue
        number, counted, after = number + content.count(b"\n", counted, start), start, start + len(line)
        if len(line) <= _LONGEST_LINE:
            yield number, line


def _places(text: bytes, word: bytes) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _in_line(line: str) -> Iterator[tuple[str, bytes]]:
    seen = set()
    for sort, pattern in _patterns():
        for found in pattern.finditer(line):
            group = found[found.lastindex] if found.lastindex else None
            text = group if group and len(group) >= _SHORTEST else found[0]
            if (sort, text) not in seen:
                seen.add((sort, text))
                yield sort, text.encode("latin-1")


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    found = []
    for module, name in _PLUGINS:
        plugin = getattr(import_module(f"detect_secrets.plugins.{module}"), name)()
        found += [(str(plugin.secret_type), pattern) for pattern in plugin.denylist]
    return (*found, *((sort, re.compile(pattern)) for sort, pattern in _MORE))


def _block(lines: list[bytes]) -> bytes:
    """Give a private key from its first line to its last: the first line is the same for all."""
    for number, line in enumerate(lines[:200]):
        if line.startswith(_KEY_END):
            return b"\n".join(lines[: number + 1])
    return lines[0]
