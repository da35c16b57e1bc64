"""Write again what the manual takes from the code: help texts, event kinds, policy keys.

Between ``<!-- WHAT: NAME -->`` and ``<!-- end of WHAT -->`` stands what is generated; the rest is written by hand.
``tests/test_docs.py`` says when the two differ.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import policies.keys
import policies.services
from supervisor import events
from supervisor.command.arguments import help_text

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/commands.md", "docs/events.md", "docs/policy.md", "docs/services.md")
_KINDS = "help|events|policy|services"
MARKED = re.compile(rf"<!-- (?P<what>{_KINDS}): (?P<name>[\w.]+) -->\n.*?<!-- end of (?P=what) -->", re.DOTALL)


def help_block(name: str) -> str:
    """Give what ``supervise NAME --help`` prints."""
    return f"```text\n{help_text(name).rstrip()}\n```"


def event_types(top: type[events.Event] = events.Event) -> Iterator[type[events.Event]]:
    """Give every kind of event that can be in a log, by subject."""
    found = [value for value in vars(events).values() if isinstance(value, type) and issubclass(value, top)]
    yield from (one for one in found if not one.__subclasses__())


def events_table(_name: str) -> str:
    """Give every kind with what it says and its own fields; those that all files have are told above the table."""
    common = set(events.Event.__struct_fields__) | set(events.FileEvent.__struct_fields__)
    rows = ["| kind | what it says | fields |", "|---|---|---|"]
    for one in event_types():
        said = (one.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("``", "`").strip()
        fields = ", ".join(f"`{field}`" for field in one.__struct_fields__ if field not in common)
        rows.append(f"| `{events.wire_kind(one.__name__)}` | {re.sub(' +', ' ', said)} | {fields} |")
    return "\n".join(rows)


def policy_table(name: str) -> str:
    """Give every key of one table of a policy."""
    (section,) = (one for one in policies.keys.SECTIONS if one.name == name)
    rows = ["| key | value | what it means |", "|---|---|---|"]
    for key in section.keys:
        value = " \\| ".join(f"`{choice}`" for choice in key.choices) if key.choices else key.shape.value
        rows.append(f"| `{section.name}.{key.name}` | {value} | {key.about} |")
    return f"{section.about}\n\n" + "\n".join(rows)


def services_table(name: str) -> str:
    """Give the keys of a service, or with ``settle`` the options of every kind of it."""
    if name == "keys":
        rows = ["| key | what it means |", "|---|---|"]
        return "\n".join([*rows, *(f"| `{key}` | {about} |" for key, about in policies.services.ABOUT.items())])
    rows = ["| kind | option | value | what it means |", "|---|---|---|---|"]
    for kind, options in policies.services.KINDS.items():
        own = [option for option in options if option not in policies.services.WORDS]
        rows += [f"| `{kind}` | `{one.name}` | {one.shape} | {one.about} |" for one in own]
    rows += [f"| those with words | `{one.name}` | {one.shape} | {one.about} |" for one in policies.services.WORDS]
    return "\n".join(rows)


WRITERS: dict[str, Callable[[str], str]] = {
    "help": help_block,
    "events": events_table,
    "policy": policy_table,
    "services": services_table,
}


def written_again(text: str) -> str:
    """Give a page with everything generated as it is now."""

    def block(found: re.Match[str]) -> str:
        what, name = found["what"], found["name"]
        return f"<!-- {what}: {name} -->\n{WRITERS[what](name)}\n<!-- end of {what} -->"

    return MARKED.sub(block, text)


def main() -> int:
    """Rewrite the pages in place."""
    for page in PAGES:
        before = (ROOT / page).read_text(encoding="utf-8")
        after = written_again(before)
        (ROOT / page).write_text(after, encoding="utf-8")
        print(f"{page}: {'written again' if after != before else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
