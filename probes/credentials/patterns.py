"""What credentials look like: the patterns of detect-secrets, applied to lines.

Only its patterns are used: its allowlist comments would let a trial hide what it wrote, and its verifiers ask the
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


_INSIDE = (b"private key", b"aws", b"accountkey", b"_live_", b"_authtoken", b"t3blbkfj", b"://")
"""In lower case: words that stand anywhere in a line with a credential. A URL has an @ after it."""
_BEGIN = (
    b"akia", b"asia", b"abia", b"acca", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"glpat-", b"gldt-", b"glrt-",
    b"glcbt-", b"glptt-", b"glft-", b"glsoat-", b"eyj", b"xoxa", b"xoxb", b"xoxe", b"xoxo", b"xoxp", b"xoxr", b"xoxs",
    b"hooks.slack.com", b"pypi-", b"sg.", b"akc", b"sq0",
)  # fmt: skip
"""In lower case: what credentials begin with. Inside a word it is none."""
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
    return tuple(found)


def _block(lines: list[bytes]) -> bytes:
    """Give a private key from its first line to its last: the first line is the same for all."""
    for number, line in enumerate(lines[:200]):
        if line.startswith(_KEY_END):
            return b"\n".join(lines[: number + 1])
    return lines[0]
