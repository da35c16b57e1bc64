"""The record of a commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.errors import MachineError
from supervisor.launch.stage.journal import (
    Copy,
    Delete,
    Give,
    Identity,
    Journal,
    Left,
    Link,
    MakeDirectory,
    Phase,
    Place,
    Plan,
    SetAttributes,
    Source,
    Strip,
    Take,
)

SEEN = Identity(inode=7, size_bytes=3, mtime_ns=5)
DATA = Path(__file__).parents[2] / "data"

PLAN = Plan(
    workspace=(1, 2),
    quarantine=".supervise-x-0",
    prepare=(Copy(source=Source.LOWER, path="a\udcff\n", slot="t0"), Link(first="t0", slot="t1")),
    take=(Take(path="d", slot="k0", inode=9),),
    delete=(Delete(path="x", slot="k0", directory=False, identity=SEEN),),
    place=(MakeDirectory(path="n"), Place(path="n/a", slot="t0", over=SEEN), Place(path="n/b", slot="t1", over=None)),
    attributes=(SetAttributes(path="n", source=Source.QUARANTINE, source_path="a0"),),
    left=(Left(path=b"no\xff", why="not allowed"),),
)
GIVING = replace(
    PLAN,
    place=(*PLAN.place, Give(path="given\udcff", over=SEEN), Give(path="whole", over=None, entries=3)),
    strip=(Strip(path="whole", inode=4), Strip(path="n", inode=5, staged=True)),
    attributes=(
        SetAttributes(path="", source=Source.UPPER, source_path="", differs=False, times_ns=(1, 2)),
        *PLAN.attributes,
    ),
)


@pytest.mark.parametrize("durable", [False, True])
def test_a_plan_is_read_as_it_was_written(tmp_path: Path, durable: bool) -> None:  # noqa: FBT001 - a parameter
    """Every kind of step, and every byte of a path, comes back; the phase begins with the preparation."""
    journal = Journal(tmp_path, durable=durable)
    assert not journal.exists
    journal.begin(GIVING)
    assert journal.exists
    assert journal.plan() == GIVING
    assert isinstance(journal.plan().attributes[0].source, Source)
    assert journal.phase() is Phase.PREPARE
    journal.advance(Phase.PLACE)
    assert journal.phase() is Phase.PLACE


@pytest.mark.parametrize(("version", "plan"), [(1, PLAN), (2, GIVING)])
def test_what_an_earlier_version_began_is_read(version: int, plan: Plan) -> None:
    """It is the same plan, and the commit is finished: newer steps are only missing, and nothing is exchanged."""
    journal = Journal(DATA / f"commit-v{version}", durable=False)
    assert journal.plan() == plan
    assert journal.coming() == {}


def test_what_is_exchanged_is_kept(tmp_path: Path) -> None:
    """A commit that goes on knows what is its own, by path."""
    journal = Journal(tmp_path, durable=False)
    journal.note_coming({})
    assert journal.coming() == {}
    journal.note_coming({"a\udcff\n": 7})
    assert journal.coming() == {"a\udcff\n": 7}


def test_what_comes_with_a_directory_is_counted_with_it() -> None:
    """One that is given alone, and three that come as one."""
    assert GIVING.changes == PLAN.changes + 4
    assert GIVING.changes_without([Left(path=b"whole", why="changed on the host")]) == PLAN.changes + 1


def test_what_phases_left_is_kept(tmp_path: Path) -> None:
    """A resumed commit still knows what an earlier attempt could not apply."""
    journal = Journal(tmp_path, durable=False)
    left = (Left(path=b"a\xff", why="changed on the host"),)
    journal.leave((), Phase.TAKE)
    journal.leave(left, Phase.PLACE)
    assert journal.left() == left


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 99}', b"[]"])
def test_a_journal_of_another_form_is_refused(tmp_path: Path, content: bytes) -> None:
    """A damaged or newer journal is an error that names the file, never a guess."""
    (tmp_path / "commit.json").write_bytes(content)
    with pytest.raises(MachineError, match="cannot be read"):
        Journal(tmp_path, durable=False).plan()
