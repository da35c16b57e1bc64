"""The places that a policy names, looked up on a host; and the plan of a view that shares, hides and refuses."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from test_box_plan import view_spec

from policies.types import FilesPolicy, Policy, SharedPlace
from supervisor.errors import UsageError
from supervisor.launch.libc import MountFlag
from supervisor.launch.view.mounting import Bind, KeepWritable, MakeReadOnly, Mask, MountOverlay
from supervisor.launch.view.mounts import HostMount, read_mounts
from supervisor.launch.view.view import View, _Planner, plan_view
from supervisor.prepare.declared import Declared, find_declared, read_links


def declared(base: Path, *, shared: tuple[str, ...] = (), read_deny: tuple[str, ...] = ()) -> Declared:
    """Look up places beside a workspace below ``base``."""
    for name in ("work/sub", "state", "shared", "answers"):
        (base / name).mkdir(parents=True, exist_ok=True)
    policy = Policy(files=FilesPolicy(shared=tuple(SharedPlace(path=path) for path in shared), read_deny=read_deny))
    return find_declared(policy, workspace=bytes(base / "work"), state=bytes(base / "state"), secret=())


def test_places_are_found_free_of_symlinks_with_the_name_they_were_given(tmp_path: Path) -> None:
    """Relative ones begin at the workspace; both names are kept."""
    (tmp_path / "link").symlink_to("shared")
    found = declared(tmp_path, shared=(str(tmp_path / "link"), "sub"), read_deny=(str(tmp_path / "answers"),))
    assert found.shared == {
        bytes(tmp_path / "shared"): bytes(tmp_path / "link"),
        bytes(tmp_path / "work/sub"): bytes(tmp_path / "work/sub"),
    }
    assert found.denied == {bytes(tmp_path / "answers"): bytes(tmp_path / "answers")}
    assert bytes(tmp_path / "answers") in found.hidden


def test_a_glob_hides_whatever_it_means_and_may_mean_nothing(tmp_path: Path) -> None:
    """Leading dots and brackets too; what is not there needs no hiding."""
    (tmp_path / "work").mkdir()
    for name in ("a.key", ".b.key", "[c].key", "a.txt"):
        (tmp_path / "work" / name).touch()
    assert {Path(os.fsdecode(path)).name for path in declared(tmp_path, read_deny=("*.key",)).denied} == {
        "a.key", ".b.key", "[c].key",
    }  # fmt: skip
    assert set(declared(tmp_path, read_deny=("[c].key",)).denied) == {bytes(tmp_path / "work/[c].key")}
    assert declared(tmp_path, read_deny=("*.pem",)).denied == {}


def test_a_file_that_could_be_read_by_another_name_is_not_said_to_be_hidden(tmp_path: Path) -> None:
    """Unless that name is hidden too."""
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/a").touch()
    (tmp_path / "other").hardlink_to(tmp_path / "answers/a")
    for name in ("answers", "answers/a", "answers/*"):
        with pytest.raises(UsageError, match="a hard link"):
            declared(tmp_path, read_deny=(str(tmp_path / name),))
    both = (str(tmp_path / "answers"), str(tmp_path / "answers/a"), str(tmp_path / "other"))
    assert set(declared(tmp_path, read_deny=both).denied) == set(map(os.fsencode, both))


@pytest.mark.parametrize(
    ("shared", "why"),
    [
        ("{base}/nothing", "found none"),
        ("{base}/work", "the workspace is in it"),
        ("/", "the workspace is in it"),
        ("{base}/state/x", "found none"),
        ("{base}/state", "the directory of our runs is there"),
        ("/tmp", "the workspace is in it|each trial has its own"),
        ("/run", "each trial has its own"),
        ("/proc/sys", "the kernel's"),
        ("{base}/answers", "files.read_deny hides it"),
    ],
)
def test_what_cannot_be_shared_is_an_error_that_names_the_key(tmp_path: Path, shared: str, why: str) -> None:
    """Nothing has run yet, and the message says which place and why."""
    with pytest.raises(UsageError, match=why) as raised:
        declared(tmp_path, shared=(shared.format(base=tmp_path),), read_deny=(str(tmp_path / "answers"),))
    assert raised.value.place == "files.shared[0].path"


@pytest.mark.parametrize(
    ("denied", "why"), [("nothing", "found nothing at"), ("..x/../..", "found nothing"), ("{base}", "its workspace")]
)
def test_what_cannot_be_hidden_is_an_error_that_names_the_key(tmp_path: Path, denied: str, why: str) -> None:
    """To hide nothing, or the workspace itself, is a mistake."""
    with pytest.raises(UsageError, match=why) as raised:
        declared(tmp_path, read_deny=(denied.format(base=tmp_path),))
    assert raised.value.place == "files.read_deny[0]"


def test_links_of_the_host_are_read(tmp_path: Path) -> None:
    """Only symlinks have a text; what is not there has none."""
    (tmp_path / "link").symlink_to("to")
    (tmp_path / "file").touch()
    paths = [bytes(tmp_path / name) for name in ("link", "file", "nothing")]
    assert read_links(paths) == {paths[0]: b"to"}


def planned(base: Path, **asked: object) -> View:
    """Plan a view with some places."""
    (base / "work" / "notes").mkdir(parents=True, exist_ok=True)
    (base / "shared").mkdir(exist_ok=True)
    spec = view_spec(base)
    return plan_view(type(spec)(**{name: getattr(spec, name) for name in spec.__dataclass_fields__} | asked))


def test_a_shared_place_is_bound_in_place_above_what_it_lies_in(tmp_path: Path) -> None:
    """It is written at once, and no layer is mounted over it later."""
    place = bytes(tmp_path / "shared")
    view = planned(tmp_path, shared=(place,))
    steps = [step for step in view.steps if isinstance(step, Bind | MountOverlay)]
    (at,) = [n for n, step in enumerate(steps) if isinstance(step, Bind) and step.source == place]
    assert not [step for step in steps[at + 1 :] if place.startswith(step.path.rstrip(b"/") + b"/")]
    assert view.shown_at(place) == (place,)


def test_hidden_places_are_masked_so_that_not_even_names_are_seen(tmp_path: Path) -> None:
    """The mask is unreadable, unlike that of a credential directory."""
    place = bytes(tmp_path / "shared")
    (mask,) = [
        step for step in planned(tmp_path, denied=(place,)).steps if isinstance(step, Mask) and step.path == place
    ]
    assert mask.empty_directory.endswith(b"/void")


def test_what_is_not_kept_open_is_closed_after_all_else_stands(tmp_path: Path) -> None:
    """Every layer of the host becomes read-only but what may be written, what is shared, and the trial's own places."""
    place, notes = bytes(tmp_path / "shared"), bytes(tmp_path / "work" / "notes")
    view = planned(tmp_path, shared=(place,), writable=(notes,))
    kept = [step.path for step in view.steps if isinstance(step, KeepWritable)]
    closed = [step.path for step in view.steps if isinstance(step, MakeReadOnly)]
    assert kept == [notes]
    assert {b"/", bytes(tmp_path / "work")} <= set(closed)
    assert not {place, notes, b"/tmp", b"/run"} & set(closed)
    assert isinstance(view.steps[-1], MakeReadOnly)
    assert not [step for step in planned(tmp_path).steps if isinstance(step, MakeReadOnly | KeepWritable)]


def test_a_place_that_is_not_there_yet_is_made_in_what_stays_open(tmp_path: Path) -> None:
    """The nearest directory above it stays writable: the workspace, which then needs no closing."""
    work = bytes(tmp_path / "work")
    view = planned(tmp_path, writable=(work + b"/new/er",))
    assert work not in {step.path for step in view.steps if isinstance(step, MakeReadOnly)}


def test_what_is_mounted_in_a_shared_place_is_shared_too(tmp_path: Path) -> None:
    """Also where the place lies in a directory of which each trial has its own."""
    spec = view_spec(tmp_path)
    place = bytes(tmp_path / "shared")
    (tmp_path / "shared" / "inner").mkdir(parents=True)
    inner = HostMount(mount_id=-7, device=b"0:99", root=b"/", path=place + b"/inner", fstype=b"tmpfs")
    planner = _Planner(replace(spec, shared=(place,)), read_mounts())
    assert planner._is_shown(inner)
    (step,) = (planner._host_layer(1, inner),)
    assert isinstance(step, Bind)
    assert MountFlag.RDONLY not in step.flags
