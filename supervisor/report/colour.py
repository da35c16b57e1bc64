"""Lines with tones on a terminal, by rich. Imported only when a terminal is there: it costs 10 ms and more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from rich.console import Console
from rich.text import Text

from supervisor.report.lines import Line, Tone

STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "bold green",
    Tone.BAD: "bold red",
    Tone.OPEN: "bold yellow",
    Tone.HEADING: "bold",
    Tone.FAINT: "dim",
}
"""How each tone looks."""


def print_coloured(lines: Iterable[Line], file: IO[str]) -> None:
    """Print lines in colour, wrapped by the terminal and not by us, so that what is copied is whole."""
    console = Console(file=file, highlight=False, soft_wrap=True, markup=False, emoji=False)
    for spans in lines:
        # Text objects, never markup: a name such as `[red]` stays what it is.
        console.print(Text.assemble(*((span.text, STYLES[span.tone]) for span in spans)))
