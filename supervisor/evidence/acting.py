r"""Characters that act on whoever reads a text, as escapes of JSON: JSON in, the same values in harmless JSON out.

The rule: what is written shows as what it is, also to who prints it on a terminal. C0 controls are escaped by every
writer of JSON; here DEL and C1 controls (ECMA-48), line and paragraph separators, and the format characters that hide
or reorder (Unicode category Cf; CVE-2021-42574).
"""

from __future__ import annotations

import json
import re

_ACTING = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)


def escape_acting(encoded: bytes) -> bytes:
    """Escape them in JSON, where they can only stand inside of strings."""
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    return _ACTING.sub(lambda match: json.dumps(match[0])[1:-1].replace("\x7f", "\\u007f"), encoded.decode()).encode()
