"""The answer about several runs, as JSON, as text, and as a graph for Graphviz or for a browser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from math import cos, pi, sin
from typing import TYPE_CHECKING, Any

from supervisor.report.lines import Line, line, verdict_span
from supervisor.report.safe import harmless
from supervisor.verdict.runs.run_marks import DECLARED_DEPENDENCE

if TYPE_CHECKING:
    from supervisor.verdict.runs.findings import Edge
    from supervisor.verdict.runs.pairs import Separated

_ID = re.compile(r"\d{8}-\d{6}-([0-9a-z]+)")
_IN_TEXT = re.compile(r"\d{8}-\d{6}-[0-9a-z]+")
_CLOSING = {
    "met-a-change": "a place of its own for each run; for a workspace also `--commit never`, which keeps it staged",
    "workspace-reused": "`--commit never`, or a workspace of its own for each run",
    "met-a-lock": "a file of its own for each run to lock, or one run after the other",
    "met-a-stream": "a file or a pipe of its own for what each run writes, and another one for what it reads",
    "read-from-one-stream": "a standard input of its own for each run, or none: `< /dev/null`",
    "read-on": "a file of its own for each run to read, or the same one opened anew",
    "streams-not-told": "the run again: what was redirected from or to it cannot be known any more",
    "contention": "more room or time, or one run after the other",
    "service-shared": 'a server for each, or a [[services]] entry with state = "stateless" or "per-run" that is true',
    "service-not-per-run": "a server for each run, as was declared",
    "credential-met": "a credential for each run, that ends with it",
    "acts-later": "the schedule or container taken away before the next run, or a policy that lets none be left",
    "run-without-proof": "the run again: what it did cannot be known any more",
    "declared-stream": 'unit = "run", if they are separate',
    "declared-dependence": "no `depends_on`, if the one does not build on the other",
    "unknown-writer": "a place of its own for each run, with what it is to find there before any run changes it",
    "foreign-writer": "a place that nobody but the runs writes to",
}
"""What closes a route, by the rule that found it open."""
SAMPLES = "several samples inside one run are one unit: give each its own `supervise`, and with it a cgroup"
"""What no log can tell, and is said beside every answer."""
_COLOURS = {"connected": "#b3261e", "unresolved": "#b06f00", "separate": "#8a8a8a"}
_STYLES = {"connected": "solid", "unresolved": "dashed", "separate": "dotted"}
_ALIKE = 4
_FIRST = 2
"""Of more than so many pairs that are alike, so many are told."""
_DOT = 26
_GAP = 90
_NAMED = 12
"""From how many runs a unit is drawn as a wide circle, with names beside the dots."""


def separation_json(names: list[str], found: Separated) -> dict[str, Any]:
    """Give ``units`` and ``edges``; above the bound of full telling also how many edges were left out."""
    answer: dict[str, Any] = {
        "units": [[names[run] for run in unit] for unit in found.units],
        "units_at_least": found.fewest,
        "units_at_most": found.most,
        "edges": [_edge(names, edge) for edge in found.edges],
        "samples": SAMPLES,
    }
    return answer | ({"edges_omitted": found.omitted} if found.omitted else {})


def _edge(names: list[str], edge: Edge) -> dict[str, Any]:
    return {
        "a": names[edge.runs[0]],
        "b": names[edge.runs[1]],
        "verdict": edge.verdict,
        "via": [names[run] for run in edge.via],
        "modelled": any(finding.rule == DECLARED_DEPENDENCE for finding in edge.findings),
        "assumptions": edge.assumptions,
        "reasons": [
            {"rule": reason.rule, "text": reason.text, "events": list(reason.events)} for reason in edge.reasons
        ],
    }


def separation_lines(names: list[str], found: Separated) -> Iterator[Line]:
    """Give the answer in words: the units, then why runs belong together, and what would part them.

    Units have the whole ids; the rest calls a run by the end of its id, where that is enough to know it.
    """
    count = len(found.units)
    bound = f" (at most {found.most})" if found.most != found.fewest else ""
    yield line(f"{sum(map(len, found.units))} runs, {count} analysis unit{'s' if count != 1 else ''}{bound}")
    for unit in found.units:
        yield line(f"  {', '.join(harmless(names[run]) for run in unit)}")
    labels = _Labels(names)
    asked = {run for unit in found.units for run in unit}
    direct = [edge for edge in found.edges if not edge.via or not asked.issuperset(edge.via)]
    yield from _edges(labels, direct)
    if len(direct) < len(found.edges):
        more = len(found.edges) - len(direct)
        pairs = "one more pair is" if more == 1 else f"{more} more pairs are"
        yield line(f"{pairs} joined through runs in between (`--json` names them)")
    if found.omitted:
        yield line(f"{found.omitted} findings join what is joined already and are not told")
    yield line(SAMPLES)
    rules = dict.fromkeys(reason.rule for edge in direct if edge.verdict != "separate" for reason in edge.reasons)
    closing = [(rule, _CLOSING[rule]) for rule in rules if rule in _CLOSING]
    if closing:
        yield line("what would part them:")
        yield from (line(f"  {rule}: {what}") for rule, what in closing)


def _edges(labels: _Labels, edges: list[Edge]) -> Iterator[Line]:
    """Tell each pair; of many that one and the same rule is about, the first, and how many more there are."""
    alike: dict[tuple[str, tuple[str, ...]], list[Edge]] = {}
    for edge in edges:
        rules = tuple(sorted({reason.rule for reason in edge.reasons}))
        alike.setdefault((edge.verdict, rules), []).append(edge)
    for (verdict, rules), group in alike.items():
        shown = group if len(group) <= _ALIKE else group[:_FIRST]
        for edge in shown:
            yield from _edge_lines(labels, edge)
        if left := len(group) - len(shown):
            told = f"{left} more pairs: "
            yield line(
                told, verdict_span(verdict), f" likewise, by {', '.join(rules) or 'nothing'} (`--json` names them)"
            )


def _edge_lines(labels: _Labels, edge: Edge) -> Iterator[Line]:
    one, other = (labels.of[run] for run in edge.runs)
    through = f" through {', '.join(labels.of[run] for run in edge.via)}, which nobody asked about" if edge.via else ""
    yield line(f"{one} and {other}: ", verdict_span(edge.verdict), through)
    for reason in edge.reasons:
        cited = f" [{', '.join(map(labels.short, reason.events))}]" if reason.events else ""
        yield line(f"  {reason.rule}: {labels.short(reason.text)}{cited}")
    for assumption in edge.assumptions:
        yield line(f"  assumed: {harmless(assumption)}")


class _Labels:
    """Short names of runs: ``k7s29w`` for ``20261130-124148-k7s29w``, where no other run has it."""

    def __init__(self, names: list[str]) -> None:
        ends = [match[1] if (match := _ID.fullmatch(name)) else name for name in names]
        times = Counter(ends)
        self.of = [harmless(end if times[end] == 1 else name) for end, name in zip(ends, names, strict=True)]
        self._by_name = dict(zip(names, self.of, strict=True))

    def short(self, text: str) -> str:
        """Shorten the ids in a sentence."""
        return _IN_TEXT.sub(lambda found: self._by_name.get(found[0], found[0]), harmless(text))


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
    return '"' + harmless(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


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
    parts += [_drawn_edge(names, edge, places) for edge in found.edges if places.keys() >= {*edge.runs}]
    parts += [_drawn_run(names[run], *places[run]) for run in sorted(places)]
    return "\n".join([*parts, _legend(height), "</svg>", ""])


def _drawn_edge(names: list[str], edge: Edge, places: dict[int, tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = (places[run] for run in edge.runs)
    dash = {"solid": "none", "dashed": "7 5", "dotted": "2 5"}[_STYLES[edge.verdict]]
    why = "\n".join(harmless(reason.text) for reason in edge.reasons)
    one, other = (harmless(names[run]) for run in edge.runs)
    title = escape(f"{one} and {other}: {edge.verdict}\n{why}")
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{_COLOURS[edge.verdict]}" '
        f'stroke-width="2" stroke-dasharray="{dash}"><title>{title}</title></line>'
    )


def _drawn_run(name: str, x: float, y: float) -> str:
    label = escape(harmless(name))
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
