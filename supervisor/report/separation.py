"""The answer about several runs, as JSON, as text, and as a graph for Graphviz or for a browser."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import cos, pi, sin
from typing import TYPE_CHECKING, Any

from supervisor.report.lines import Line, line

if TYPE_CHECKING:
    from supervisor.verdict.findings import Edge
    from supervisor.verdict.pairs import Separated

_COLOURS = {"connected": "#b3261e", "unresolved": "#b06f00", "separate": "#8a8a8a"}
_STYLES = {"connected": "solid", "unresolved": "dashed", "separate": "dotted"}
_DOT = 26
_GAP = 90
_THROUGH = 3
"""Up to how many pairs that only others join are told one by one: they grow with the square of a unit."""
_NAMED = 12
"""From how many runs a unit is drawn as a wide circle, with names beside the dots."""


def separation_json(names: list[str], found: Separated) -> dict[str, Any]:
    """Give ``units`` and ``edges``; above the bound of full telling also how many edges were left out."""
    answer: dict[str, Any] = {
        "units": [[names[run] for run in unit] for unit in found.units],
        "units_at_least": found.fewest,
        "units_at_most": found.most,
        "edges": [_edge(names, edge) for edge in found.edges],
    }
    return answer | ({"edges_omitted": found.omitted} if found.omitted else {})


def _edge(names: list[str], edge: Edge) -> dict[str, Any]:
    return {
        "a": names[edge.runs[0]],
        "b": names[edge.runs[1]],
        "verdict": edge.verdict,
        "via": [names[run] for run in edge.via],
        "assumptions": edge.assumptions,
        "reasons": [
            {"rule": reason.rule, "text": reason.text, "events": list(reason.events)} for reason in edge.reasons
        ],
    }


def separation_lines(names: list[str], found: Separated) -> Iterator[Line]:
    """Give the answer in words: the units, then why runs belong together, then what is taken for granted."""
    count = len(found.units)
    bound = f" (at most {found.most})" if found.most != found.fewest else ""
    yield line(f"{len(names)} runs, {count} analysis unit{'s' if count != 1 else ''}{bound}")
    for unit in found.units:
        yield line(f"  {', '.join(names[run] for run in unit)}")
    through = [edge for edge in found.edges if edge.via]
    for edge in found.edges if len(through) <= _THROUGH else [edge for edge in found.edges if not edge.via]:
        between = f" through {', '.join(names[run] for run in edge.via)}" if edge.via else ""
        yield line(f"{names[edge.runs[0]]} and {names[edge.runs[1]]}: {edge.verdict}{between}")
        for reason in edge.reasons:
            cited = f" [{', '.join(reason.events)}]" if reason.events else ""
            yield line(f"  {reason.rule}: {reason.text}{cited}")
        for assumption in edge.assumptions:
            yield line(f"  assumed: {assumption}")
    if len(through) > _THROUGH:
        yield line(f"{len(through)} more pairs are joined through the runs in between (--json names them)")
    if found.omitted:
        yield line(f"{found.omitted} findings join what is joined already and are not told")


def separation_dot(names: list[str], found: Separated) -> str:
    """Give the graph in the language of Graphviz: a cluster a unit, an edge a pair that shares something."""
    lines = ["graph separation {", "  node [shape=box, style=rounded];"]
    for number, unit in enumerate(found.units):
        members = " ".join(_quoted(names[run]) + ";" for run in unit)
        lines.append(f'  subgraph cluster_{number} {{ label="unit {number + 1}"; {members} }}')
    for edge in found.edges:
        one, other = (_quoted(names[run]) for run in edge.runs)
        why = _quoted(edge.reasons[0].rule if edge.reasons else edge.verdict)
        lines.append(f"  {one} -- {other} [style={_STYLES[edge.verdict]}, label={why}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def separation_svg(names: list[str], found: Separated) -> str:
    """Draw the graph: each unit a ring of runs, edges by what they are; the reasons are shown on pointing at one."""
    places: dict[int, tuple[float, float]] = {}
    left = top = _GAP / 2
    row = width = 0.0
    for unit in found.units:
        radius = 0.0 if len(unit) == 1 else max(_GAP * 0.75, len(unit) * _DOT / pi)
        size = 2 * radius + _GAP * 1.6
        if left > _GAP and left + size > _GAP * _NAMED:
            left, top, row = _GAP / 2, top + row, 0.0
        for place, run in enumerate(unit):
            angle = 2 * pi * place / len(unit) - pi / 2
            places[run] = (left + size / 2 + radius * cos(angle), top + size / 2 + radius * sin(angle))
        left, row = left + size, max(row, size)
        width = max(width, left)
    height = top + row + _GAP / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">',
        "<title>Runs, and what joins them</title>",
    ]
    parts += [_drawn_edge(names, edge, places) for edge in found.edges]
    parts += [_drawn_run(names[run], *places[run]) for run in sorted(places)]
    return "\n".join([*parts, _legend(height), "</svg>", ""])


def _drawn_edge(names: list[str], edge: Edge, places: dict[int, tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = (places[run] for run in edge.runs)
    dash = {"solid": "none", "dashed": "7 5", "dotted": "2 5"}[_STYLES[edge.verdict]]
    why = "\n".join(reason.text for reason in edge.reasons)
    title = escape(f"{names[edge.runs[0]]} and {names[edge.runs[1]]}: {edge.verdict}\n{why}")
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{_COLOURS[edge.verdict]}" '
        f'stroke-width="2" stroke-dasharray="{dash}"><title>{title}</title></line>'
    )


def _drawn_run(name: str, x: float, y: float) -> str:
    label = escape(name)
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="#2f4b7c"/>'
        f'<text x="{x:.1f}" y="{y + 24:.1f}" font-size="11" text-anchor="middle">{label}</text>'
    )


def _legend(height: float) -> str:
    entries = (
        f'<text x="{20 + 130 * place}" y="{height - 10:.0f}" font-size="12" fill="{colour}">{verdict}</text>'
        for place, (verdict, colour) in enumerate(_COLOURS.items())
    )
    return "".join(entries)
