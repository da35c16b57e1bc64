"""Write the command's help texts into the README again, between their marks.

A mark is ``<!-- help: NAME -->``; what follows up to ``<!-- end of help -->`` is replaced by what
``supervise NAME --help`` prints. A test says when the two differ.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
MARKED = re.compile(r"<!-- help: (?P<name>\w+) -->\n.*?<!-- end of help -->", re.DOTALL)


def with_help_texts(text: str) -> str:
    """Give a manual with every marked help text as it is now."""
    from supervisor.arguments import help_text  # noqa: PLC0415 -- the package need not be there to read this module

    def written(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- help: {name} -->\n```text\n{help_text(name).rstrip()}\n```\n<!-- end of help -->"

    return MARKED.sub(written, text)


def main() -> int:
    """Rewrite the README in place."""
    before = README.read_text(encoding="utf-8")
    after = with_help_texts(before)
    README.write_text(after, encoding="utf-8")
    print("README.md: written again" if after != before else "README.md: as it was")
    return 0


if __name__ == "__main__":
    sys.exit(main())
