"""The replay as a picture: one tile a cell, in SVG, for papers and pages. In: rows; out: text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from supervisor.errors import UsageError
from supervisor.replay.replaying import SCORES, STATES, Row

_TILE_W, _TILE_H, _LEFT, _TOP = 330, 150, 110, 70
_GOOD, _OPEN, _BAD = "#d7efd9", "#fdf1cc", "#f8d7da"
_COLOURS = {"final": _GOOD, "separate": _GOOD, "connected": _BAD}


def write_plot(path: str, rows: Sequence[Row]) -> None:
    """Draw the rows into a file.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        Path(path).write_text(draw(rows), encoding="utf-8")
    except OSError as err:
        raise UsageError(f"cannot be written: {err.strerror}", place=f"--plot {path}") from err


def draw(rows: Sequence[Row]) -> str:
    """Draw the rows: when it was scored from left to right, whether state was shared from top to bottom."""
    width, height = _LEFT + _TILE_W * len(SCORES) + 10, _TOP + _TILE_H * len(STATES) + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
            _text(10, 24, "Two decisions on the same operations: is the label final, and may the runs be counted?", 15),
            *(_text(_LEFT + _TILE_W * at + 10, 56, f"scored: {score}", 14) for at, score in enumerate(SCORES)),
            *(_text(10, _TOP + _TILE_H * at + 70, f"state: {state}", 14) for at, state in enumerate(STATES)),
            *(line for row in rows for line in _tile(row)),
            "</svg>",
            "",
        ]
    )


def _tile(row: Row) -> Iterator[str]:
    x, y = _LEFT + _TILE_W * SCORES.index(row.score), _TOP + _TILE_H * STATES.index(row.state)
    half = _TILE_H // 2 - 6
    for verdict, top in ((row.finality, y + 4), (row.separation, y + _TILE_H // 2)):
        colour = _COLOURS.get(verdict, _OPEN)
        yield f'<rect x="{x + 4}" y="{top}" width="{_TILE_W - 8}" height="{half}" rx="6" fill="{colour}"/>'
    yield _text(x + 14, y + 26, f"finality: {row.finality}", 14)
    yield _text(x + 14, y + 50, f"observed {row.observed or 'nothing'}, label {row.label or 'none'}", 12)
    yield _text(x + 14, y + 97, f"separation: {row.separation}", 14)
    yield _text(x + 14, y + 121, f"next run: {row.next_start}", 12)


def _text(x: int, y: int, words: str, size: int) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}">{escape(words)}</text>'
