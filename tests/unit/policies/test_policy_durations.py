"""Durations and periods: what is read, what is refused, and that both forms are each other's inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.durations import format_duration, format_period, parse_duration, parse_period
from policies.types import Period, PeriodKind
from supervisor.errors import PolicyError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("500ms", 0.5), ("2m", 120.0), ("1.5h", 5400.0), ("1d", 86400.0), ("0s", 0.0), ("90s", 90.0)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    """Every unit means its seconds."""
    assert parse_duration(text, place="--settle") == seconds


@pytest.mark.parametrize("text", ["", "2", "s", "-1s", "1 s", "1s ", "1m30s", "inf", "nan", "1e3s", "1S", ".5s", "٢s"])
def test_anything_else_is_refused_with_its_place(text: str) -> None:
    """A bare number, a sign, spaces, exponents and digits of other scripts are no durations."""
    with pytest.raises(PolicyError, match="expected a duration such as") as caught:
        parse_duration(text, place="--settle")
    assert caught.value.place == "--settle"


@given(st.integers(min_value=0, max_value=10**9))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    """Formatting loses nothing that a policy can hold."""
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds), place="x") == seconds


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("endpoint", Period()),
        ("eventually", Period(kind=PeriodKind.EVENTUALLY)),
        ("within:10s", Period(kind=PeriodKind.WITHIN, within_s=10.0)),
        ("within 10s", Period(kind=PeriodKind.WITHIN, within_s=10.0)),
    ],
)
def test_a_period_is_read_in_both_forms_and_written_in_one(text: str, period: Period) -> None:
    """What reports print can be given back as an option."""
    assert parse_period(text, place="--period") == period
    assert parse_period(format_period(period), place="--period") == period


@pytest.mark.parametrize("text", ["", "within", "within:", "within:0s", "within:x", "endpoint:1s", "never", "Endpoint"])
def test_no_other_period_is_accepted(text: str) -> None:
    """A period without its duration, or with none, is refused."""
    with pytest.raises(PolicyError):
        parse_period(text, place="--period")
