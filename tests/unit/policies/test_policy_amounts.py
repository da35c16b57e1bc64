"""Amounts of a policy's limits: what is read, what is refused, and that writing loses nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.amounts import (
    LEAST_BYTES,
    format_size,
    parse_bytes,
    parse_count,
    parse_cpus,
    parse_memory,
    plain_amount,
    plain_bytes,
)
from policies.canonical import policy_digest, policy_to_mapping, render_toml
from policies.options import PolicyOptions, apply_options
from policies.parse import parse_policy, policy_from_mapping
from policies.types import Limits, Memory, Policy
from supervisor.errors import PolicyError, UsageError


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("512MiB", Memory(size_bytes=512 << 20)),
        ("100MB", Memory(size_bytes=100_000_000)),
        ("1.5G", Memory(size_bytes=3 << 29)),
        ("80%", Memory(percent=80)),
        ("none", None),
    ],
)
def test_memory_is_a_size_or_a_share(text: str, memory: Memory | None) -> None:
    """Every unit means its bytes, a lone letter the power of two."""
    assert parse_memory(text, place="--memory") == memory


@pytest.mark.parametrize(
    "value", ["", "2", "0%", "101%", "1 GiB", "-1GiB", "1gib", "1e3MB", "8MiB", "inf", 5, True, None]
)
def test_other_amounts_of_memory_are_refused(value: object) -> None:
    """A bare number, a share of nothing or more than all, and what no box fits into are refused."""
    with pytest.raises(PolicyError, match="expected") as caught:
        parse_memory(value, place="limits.memory")
    assert caught.value.place == "limits.memory"


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("1KiB", 1024), ("256MiB", 256 << 20), ("2GB", 2 * 10**9), ("none", None)]
)
def test_content_is_a_size_nothing_or_all_of_it(text: str, size: int | None) -> None:
    """And it is written as it was read."""
    assert parse_bytes(text, place="files.before_limit") == size
    assert parse_bytes(plain_bytes(size), place="") == size


@pytest.mark.parametrize("value", ["", "2", "80%", "1 GiB", "-1GiB", 0, 5, True, None])
def test_other_amounts_of_content_are_refused(value: object) -> None:
    """A bare number could mean anything, and there is no whole of which it could be a share."""
    with pytest.raises(PolicyError, match="expected a size"):
        parse_bytes(value, place="files.before_limit")


@pytest.mark.parametrize("value", ["true", 1, 0, [], "yes"])
def test_a_flag_is_a_boolean(value: object) -> None:
    """TOML has a word for it."""
    with pytest.raises(PolicyError, match="expected a boolean") as caught:
        policy_from_mapping({"schema": 1, "files": {"keep": value}})
    assert caught.value.place == "files.keep"
    assert policy_from_mapping({"schema": 1, "files": {"keep": True}}).files.keep


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "", "x", "-1", "1.0", "٣", None])
def test_a_number_of_processes_is_whole_and_above_zero(value: object) -> None:
    """No trial runs with none."""
    with pytest.raises(PolicyError, match="whole number above 0"):
        parse_count(value, place="limits.pids")


@pytest.mark.parametrize("value", [0, 0.001, -1, float("inf"), float("nan"), True, "", "x", "1e3", "nan", None])
def test_processors_are_a_number_that_the_kernel_can_grant(value: object) -> None:
    """Its least quota is a hundredth of a processor."""
    with pytest.raises(PolicyError, match="number of processors"):
        parse_cpus(value, place="limits.cpu")


def test_a_text_means_what_the_number_means() -> None:
    """Options and files agree."""
    assert (parse_count("7", place=""), parse_cpus("2", place="")) == (
        parse_count(7, place=""),
        parse_cpus(2, place=""),
    )


@given(st.integers(min_value=LEAST_BYTES, max_value=1 << 46))
def test_a_size_that_is_written_is_read_back(size_bytes: int) -> None:
    """No byte is lost, whatever the unit."""
    assert parse_memory(format_size(size_bytes), place="") == Memory(size_bytes=size_bytes)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(pids=None, memory=None, cpu=None),
        Limits(pids=1, memory=Memory(size_bytes=100_000_000), cpu=0.5),
        Limits(pids=99999, memory=Memory(percent=100), cpu=2.0),
    ],
)
def test_limits_survive_both_written_forms(limits: Limits) -> None:
    """A lifted limit is written down, so that the digest cannot mean a default of later."""
    policy = Policy(limits=limits)
    assert policy_from_mapping(policy_to_mapping(policy)) == policy
    assert parse_policy(render_toml(policy), place="x") == policy
    assert policy_digest(policy) == policy_digest(policy_from_mapping(policy_to_mapping(policy)))
    assert policy_to_mapping(policy)["limits"].keys() == {"pids", "memory", "cpu"}


def test_options_replace_limits_and_lift_them() -> None:
    """Each option sets its own limit; `none` lifts it."""
    changed = apply_options(Policy(), PolicyOptions(pids="100", memory="50%", cpus="1.5"))
    assert changed.limits == Limits(pids=100, memory=Memory(percent=50), cpu=1.5)
    lifted = apply_options(changed, PolicyOptions(pids="none", memory="none", cpus="none"))
    assert lifted.limits == Limits(pids=None, memory=None, cpu=None)


@pytest.mark.parametrize("name", ["pids", "memory", "cpus"])
def test_a_wrong_amount_is_told_by_its_option(name: str) -> None:
    """The place is the option as it was typed."""
    with pytest.raises(UsageError) as caught:
        apply_options(Policy(), PolicyOptions(**{name: "much"}))
    assert caught.value.place == f"--{name}"


@pytest.mark.parametrize("read", [parse_count, parse_cpus, parse_memory])
def test_none_lifts_every_limit(read: Callable[..., object]) -> None:
    """And is written as it is read."""
    assert read("none", place="") is None
    assert plain_amount(None) == "none"
