"""The answer about several runs as text, as a graph and as a picture: readable, and harmless whatever names hold."""

from __future__ import annotations

import json
import re
import xml.dom.minidom
from pathlib import Path

import pytest

from supervisor.report.lines import plain
from supervisor.report.separation import SAMPLES, separation_dot, separation_json, separation_lines, separation_svg
from supervisor.verdict.runs.pairs import Separated, separate_pairs
from supervisor.verdict.runs.run_index import Contact, RunIndex

A, B, C = "20261130-112936-aaaaaa", "20261130-112937-bbbbbb", "20261130-112938-cccccc"
HOSTILE = b'/s/\x1b[31m"]; evil -- "x\n<script>\xff\xe2\x80\xae&--]]>\\'


def found(names: tuple[str, ...] = (A, B, C), path: bytes = b"/s/x") -> tuple[list[str], Separated]:
    """Three runs: the second meets the first, the third the second."""
    first = RunIndex(run=names[0], ended_ns=10, contacts=(Contact(path, "changed", 5, 5, (1,)),))
    second = RunIndex(
        run=names[1], released_ns=20, ended_ns=30,
        contacts=(Contact(path, "read", 25, 25, (2,)), Contact(b"/s/y", "changed", 26, 26, (3,))),
    )  # fmt: skip
    third = RunIndex(run=names[2], released_ns=40, ended_ns=50, contacts=(Contact(b"/s/y", "read", 45, 45, (4,)),))
    runs = (first, second, third)
    return list(names), separate_pairs(runs, lambda: runs)


def test_the_text_names_units_whole_and_the_rest_briefly() -> None:
    """Why, with both sides' events; pairs that only others join are counted; and what would part them."""
    assert plain(separation_lines(*found())).splitlines() == [
        "3 runs, 1 analysis unit",
        f"  {A}, {B}, {C}",
        "aaaaaa and bbbbbb: connected",
        "  met-a-change: aaaaaa changed /s/x, and bbbbbb read it afterwards [aaaaaa:1, bbbbbb:2]",
        "bbbbbb and cccccc: connected",
        "  met-a-change: bbbbbb changed /s/y, and cccccc read it afterwards [bbbbbb:3, cccccc:4]",
        "one more pair is joined through runs in between (`--json` names them)",
        SAMPLES,
        "what would part them:",
        "  met-a-change: a place of its own for each run; for a workspace also `--commit never`, which keeps it staged",
    ]


def test_an_end_that_two_ids_have_is_not_enough() -> None:
    """Then the whole ids stand for the two."""
    twin = "20261130-112937-aaaaaa"
    text = plain(separation_lines(*found((A, twin, C))))
    assert f"{A} changed /s/x, and {twin} read it" in text


@pytest.mark.parametrize("where", ["path", "run"])
def test_names_are_harmless_in_every_form(where: str) -> None:
    """No escape, no end of a line, nothing that reorders; XML reads the picture, and the graph has its lines."""
    name = HOSTILE.decode(errors="surrogateescape").replace("/", "")
    names, answer = found((name, B, C)) if where == "run" else found(path=HOSTILE)
    texts = (plain(separation_lines(names, answer)), separation_dot(names, answer), separation_svg(names, answer))
    for text in texts:
        assert not set(text) & {"\x1b", "\u202e", "\r"}
        assert "\n<script>" not in text
        text.encode()
    assert len(texts[0].splitlines()) == 10
    xml.dom.minidom.parseString(texts[2])  # noqa: S318 - it is ours
    assert "<script" not in texts[2]
    assert texts[1].count("\n") == 7
    told = json.dumps(separation_json(names, answer))
    assert SAMPLES in told
    told.encode()


def readers(count: int) -> tuple[list[str], Separated]:
    """One run that changes a file, and some that read it afterwards."""
    names = [f"20261130-112936-{n:06d}" for n in range(count + 1)]
    runs = [RunIndex(run=names[0], ended_ns=10, contacts=(Contact(b"/s/x", "changed", 5, 5, (1,)),))]
    runs += [
        RunIndex(run=name, released_ns=20 + n, ended_ns=90, contacts=(Contact(b"/s/x", "read", 30 + n, 30 + n, (2,)),))
        for n, name in enumerate(names[1:])
    ]
    return names, separate_pairs(tuple(runs), lambda: tuple(runs))


def test_many_pairs_of_one_rule_are_told_by_the_first() -> None:
    """The rest is counted; few are told one by one."""
    lines = plain(separation_lines(*readers(24))).splitlines()
    assert sum(": connected" in entry for entry in lines) == 3
    assert "22 more pairs: connected likewise, by met-a-change (`--json` names them)" in lines
    few = plain(separation_lines(*readers(4))).splitlines()
    assert sum(": connected" in entry for entry in few) == 4
    assert not any("likewise" in entry for entry in few)


def test_the_page_quotes_what_is_printed() -> None:
    """The sample of docs/separation.md has the lines that its rule gives, in their order."""
    page = (Path(__file__).resolve().parents[3] / "docs/separation.md").read_text().splitlines()
    printed = plain(separation_lines(*readers(1))).splitlines()
    quoted = [entry[4:] for entry in page if entry.startswith("    ")][1:]
    assert quoted[-3:] == printed[-3:]
    assert re.fullmatch(
        r"  met-a-change: (\w+) changed /srv/board/note, and (\w+) read it .*\[\1:\d+, \2:\d+\]", quoted[4]
    )
    assert re.fullmatch(r"  met-a-change: (\w+) changed /s/x, and (\w+) read it .*\[\1:\d+, \2:\d+\]", printed[-4])
