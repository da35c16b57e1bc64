"""What made-up credentials look like: the patterns of detect-secrets, applied to lines.

Only its patterns are used: its allowlist comments would let a trial hide what it wrote, and its verifiers ask the
network. It costs 200 ms to import, so it is not asked before a line holds one of the words that its patterns need.
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
    ("discord", "DiscordBotTokenDetector"),
    ("github_token", "GitHubTokenDetector"),
    ("gitlab_token", "GitLabTokenDetector"),
    ("jwt", "JwtTokenDetector"),
    ("mailchimp", "MailchimpDetector"),
    ("npm", "NpmDetector"),
    ("openai", "OpenAIDetector"),
    ("private_key", "PrivateKeyDetector"),
    ("pypi_token", "PypiTokenDetector"),
    ("sendgrid", "SendGridDetector"),
    ("slack", "SlackDetector"),
    ("square_oauth", "SquareOAuthDetector"),
    ("stripe", "StripeDetector"),
    ("telegram_token", "TelegramBotTokenDetector"),
    ("twilio", "TwilioKeyDetector"),
)


@cache
def _words() -> re.Pattern[bytes]:
    return re.compile(
        rb"PRIVATE KEY|A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA|aws|AccountKey|gh[oprsu]_|gl\w+-|eyJ|xox|hooks\.slack\.com|sk-"
        rb"|_live_|pypi-|_authToken|SG\.|AKC|AP[\dABCDEF]|sq0|-us\d|SK[0-9a-z]{32}|AC[0-9a-z]{32}|\d{8,10}:|[MNO][\w-]{23}"
        rb"|://[^\s/:@]+:[^\s/@]+@",
        re.IGNORECASE,
    )


_SHORTEST = 12
_LONGEST_LINE = 4096
_PRIVATE_KEY = b"PRIVATE KEY"
_KEY_END = b"-----END"


class Look(NamedTuple):
    """One thing that looks like a credential: which sort, the line from 1, and its value, which is never written."""

    sort: str
    line: int
    value: bytes


def find_looks(content: bytes) -> Iterator[Look]:
    """Find what looks like a credential in the content of one file."""
    if _words().search(content) is None:
        return
    lines = content.splitlines()
    for number, line in enumerate(lines):
        if len(line) <= _LONGEST_LINE and _words().search(line):
            for sort, value in _in_line(line.decode("latin-1")):
                whole = _block(lines[number:]) if _PRIVATE_KEY in value else value
                yield Look(sort, number + 1, whole)


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
