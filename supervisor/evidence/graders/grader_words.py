"""What a grader says in JSON on stdout. In: the last of what it printed; out: `Words`.

The laws:

1. What is read can only lower a label, so a grader may print what the trial wrote. Reading never fails of it.
2. A verdict that may have been there and cannot be read is told as ``unread``: it is not taken for silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from supervisor.values import dataclass

_BEGINS = re.compile(r"^[ \t]*\{", re.MULTILINE)
_SURROGATES = re.compile("[\ud800-\udfff]")
_TRIED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What was read.

    Attributes:
        passed, reason: of the object, None where it has no such thing of the right kind.
        said: the object, None when there is none with ``passed``.
        unread: the end of something that may have been one was printed, and its beginning was not kept.
    """

    passed: bool | None = None
    reason: str | None = None
    said: str | None = None
    unread: bool = False


def read_words(stdout: bytes, *, cut: bool) -> Words:
    """Read the JSON object with ``passed``: all that was printed, the last line of it, or the last lines.

    Args:
        stdout: the last of what was printed.
        cut: more was printed before.
    """
    text = stdout.decode("utf-8", "replace").strip()
    for candidate in dict.fromkeys(_candidates(text)):
        try:
            found = json.loads(candidate)
            if not isinstance(found, dict) or "passed" not in found:
                continue
            said = json.dumps(found)
        except (ValueError, RecursionError):
            continue
        passed, reason = found["passed"], found.get("reason")
        return Words(
            passed=passed if isinstance(passed, bool) else None,
            reason=_SURROGATES.sub("\ufffd", reason) if isinstance(reason, str) else None,
            said=said,
        )
    return Words(unread=cut and text.endswith("}"))


def _candidates(text: str) -> Iterator[str]:
    yield text
    yield text.rpartition("\n")[2]
    if text.endswith("}"):
        yield from (text[begin.start() :] for begin in [*_BEGINS.finditer(text)][: -_TRIED - 1 : -1])
