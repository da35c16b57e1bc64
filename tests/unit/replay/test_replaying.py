"""How a row of the replay is read, and printed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from completions import completion
from supervisor.errors import UsageError
from supervisor.evidence.routes import ServiceAnswer
from supervisor.replay.plot import draw, write_plot
from supervisor.replay.replaying import SCORES, STATES, Row, read_row, table, to_json


def said(shop: str) -> ServiceAnswer:
    """Give what a shop said at the start of a run."""
    return ServiceAnswer(
        moment="start", status="failed", detail=f"/status: absent; {shop}", asked_ns=1, at_ns=2, event=3
    )


def separation(first: ServiceAnswer | None, second: ServiceAnswer | None) -> str:
    """Read a row of two runs whose own verdicts are good."""
    return read_row("settled", "shared", (completion(), completion()), (first, second)).separation


def test_two_runs_are_connected_when_the_second_starts_with_something_else() -> None:
    """What differs is what the first one left."""
    assert separation(said("stock 1"), said("stock 0")) == "connected"


def test_two_runs_that_start_alike_are_as_separate_as_each_is() -> None:
    """Their own verdicts decide then; without an answer nothing is known."""
    alike = separation(said("stock 1"), said("stock 1"))
    assert alike == completion().separation.verdict
    assert separation(said("stock 1"), None) == "unresolved"


def rows() -> tuple[Row, ...]:
    """Give a table with one row a cell."""
    return tuple(
        Row(
            score=score,
            state=state,
            label=None,
            observed="failure",
            finality="unresolved",
            separation="separate",
            next_start="stock <1>",
            runs=("a", "b"),
            because="x",
        )
        for score in SCORES
        for state in STATES
    )


def test_the_table_and_the_json_have_every_row() -> None:
    """People and programs get the same."""
    assert len(list(table(rows()))) == 2 + len(rows())
    assert [row["score"] for row in to_json(rows())["rows"]] == ["endpoint", "endpoint", "settled", "settled"]


def test_the_picture_is_well_formed_whatever_a_service_said() -> None:
    """Its words are escaped."""
    assert ET.fromstring(draw(rows())).tag.endswith("svg")  # noqa: S314 - our own


def test_a_picture_that_cannot_be_written_names_the_option(tmp_path: Path) -> None:
    """The mistake is in the arguments."""
    with pytest.raises(UsageError, match="cannot be written") as raised:
        write_plot(str(tmp_path / "no" / "x.svg"), rows())
    assert raised.value.place is not None
    assert raised.value.place.startswith("--plot")
