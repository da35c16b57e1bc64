"""Plans of a box as data: the view, bubblewrap's options, init's configuration, the child's report."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.errors import LaunchError
from supervisor.launch.boxspec import STDIO_CLOSED, STDIO_PTY, BoxSpec, encode_config
from supervisor.launch.bubblewrap import bubblewrap_options, encode_options
from supervisor.launch.building import read_report
from supervisor.launch.view.mounting import Mask, MountOverlay, resolve_inside
from supervisor.launch.view.view import View, ViewSpec, place_not_shown, plan_view


def view_spec(base: Path) -> ViewSpec:
    """Build the specification of a view on directories below ``base``."""
    for name in ("work", "state/run/stage", "state/run/outside", "state/run/box"):
        (base / name).mkdir(parents=True, exist_ok=True)
    run = base / "state" / "run"
    return ViewSpec(
        workspace=bytes(base / "work"),
        staged=True,
        stage=bytes(run / "stage"),
        outside=bytes(run / "outside"),
        box=bytes(run / "box"),
        state=bytes(base / "state"),
    )


def view(base: Path) -> View:
    """Plan a view."""
    return plan_view(view_spec(base))


def test_the_plan_mounts_nothing_and_can_be_read(tmp_path: Path) -> None:
    """A plan is made without root, and describes the workspace, the private places and the masks."""
    planned = view(tmp_path)
    text = "\n".join(planned.describe())
    assert f"overlay {tmp_path}/work, staged writes in {tmp_path}/state/run/stage/upper" in text
    assert "overlay /, discarded writes" in text
    assert "private /tmp mode 1777" in text
    assert f"mask {tmp_path}/state" in text
    assert not (tmp_path / "state/run/stage/upper").exists()


def test_parents_are_mounted_before_children(tmp_path: Path) -> None:
    """In the order of the plan no layer hides an earlier one."""
    seen: list[bytes] = []
    for step in view(tmp_path).steps:
        if isinstance(step, MountOverlay):
            assert not any(later.startswith(step.path.rstrip(b"/") + b"/") for later in seen)
            seen.append(step.path)
    assert seen[0] == b"/"


def test_every_overlay_names_its_upper(tmp_path: Path) -> None:
    """The layers tell where to find what was written, the workspace's in the stage."""
    layers = dict(view(tmp_path).layers)
    assert layers[bytes(tmp_path / "work")] == bytes(tmp_path / "state/run/stage/upper")
    assert layers[b"/"] == bytes(tmp_path / "state/run/outside/0/upper")


def test_masks_of_what_does_not_exist_are_left_out(tmp_path: Path) -> None:
    """Only the directory of runs is masked then."""
    spec = replace(view_spec(tmp_path), masks=(bytes(tmp_path / "no-such-key"),))
    masked = {step.path for step in plan_view(spec).steps if isinstance(step, Mask)}
    assert bytes(tmp_path / "state") in masked
    assert bytes(tmp_path / "no-such-key") not in masked


@pytest.mark.parametrize("place", ["/proc/self", "/tmp"])
def test_a_workspace_that_cannot_be_shown(tmp_path: Path, place: str) -> None:
    """The error names the step and says what is wrong."""
    spec = replace(view_spec(tmp_path), workspace=os.fsencode(place))
    with pytest.raises(LaunchError, match="the workspace") as caught:
        plan_view(spec)
    assert caught.value.step == "plan view"


def test_links_are_followed_inside_only(tmp_path: Path) -> None:
    """An absolute link and one with too many .. end below the root that was given."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/resolv.conf").symlink_to("/run/x/../resolv.conf")
    (tmp_path / "etc/up").symlink_to("../../../../run")
    (tmp_path / "loop").symlink_to("loop")
    root = bytes(tmp_path)
    assert resolve_inside(root, b"/etc/resolv.conf") == b"/run/resolv.conf"
    assert resolve_inside(root, b"/etc/up/y") == b"/run/y"
    with pytest.raises(OSError, match="symbolic links"):
        resolve_inside(root, b"/loop")


def test_bubblewraps_options_protect_proc_and_drop_capabilities(tmp_path: Path) -> None:
    """/proc/sys is bound read-only after proc is mounted, and three capabilities are all that is left."""
    options = bubblewrap_options(view(tmp_path), hostname="h", seccomp_fd=9)
    assert options.index(b"--proc") < options.index(b"/proc/sys")
    assert options[options.index(b"/proc/sys") - 1] == b"--ro-bind-try"
    added = {options[index + 1] for index, word in enumerate(options) if word == b"--cap-add"}
    assert added == {b"CAP_SETUID", b"CAP_SETGID", b"CAP_SETPCAP"}
    assert encode_options((b"--a", b"")) == b"--a\0\0"


def test_the_configuration_keeps_every_byte(tmp_path: Path) -> None:
    """Words are in order, empty ones and newlines included, and each list is preceded by its length."""
    spec = BoxSpec(
        argv=(b"a b", b"", b"\xff\n"),
        environ=((b"N", b"v=w"),),
        cwd=b"/",
        view=view_spec(tmp_path),
        log_canary=b"/l",
        marker_canary=b"/m",
        uid=1,
        gid=2,
        groups=(3, 4),
    )
    encoded = encode_config(spec, init_socket=10, main_socket=11, stdio=(STDIO_PTY, 13, STDIO_CLOSED), cwd=b"/w")
    first = b"10 11 -1 13 -2 1 2 2 3 4 1 24 80 /w /l /m 3".split(b" ")
    assert encoded.split(b"\0")[:-1] == [*first, b"a b", b"", b"\xff\n", b"1", b"N=v=w"]


def test_a_report_has_notes_and_at_most_one_failure() -> None:
    """The child's lines become notes and an error with its step."""
    lines = [{"note": "read-only"}, {"step": "s", "errno": None, "message": "m", "place": "/p", "hint": None}]
    notes, failure = read_report(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert notes == ("read-only",)
    assert failure is not None
    assert (failure.step, failure.place, str(failure)) == ("s", "/p", "/p: m")
    assert read_report(b"") == ((), None)


def test_a_path_on_no_listed_mount_is_an_error(tmp_path: Path) -> None:
    """In a chroot the table does not list the root: that is said, instead of guessing what is where."""
    with pytest.raises(LaunchError, match="on no mount") as caught:
        plan_view(view_spec(tmp_path), mounts=())
    assert caught.value.step == "plan view"


def test_what_is_not_shown_is_known_before_anything_is_mounted(tmp_path: Path) -> None:
    """Of private places all but the place itself; what is masked with all that is in it; shared places are shown."""
    whole = replace(
        view_spec(tmp_path),
        workspace=b"/",
        masks=(b"/home/somebody/.ssh",),
        denied=(b"/srv/key",),
        shared=(b"/tmp/queue",),
    )
    for path, place in (
        (b"/tmp/repo", b"/tmp"),
        (b"/dev/shm/x", b"/dev"),
        (b"/proc/self", b"/proc"),
        (b"/home/somebody/.ssh", b"/home/somebody/.ssh"),
        (b"/srv/key/deep", b"/srv/key"),
    ):
        assert place_not_shown(path, whole) == place
    for path in (b"/", b"/opt/x", b"/tmp", b"/proc", b"/tmp/queue/in", b"/srv/keyring", b"/home/somebody"):
        assert place_not_shown(path, whole) is None
    within = replace(whole, workspace=b"/tmp/repo")
    assert place_not_shown(b"/tmp/repo/src", within) is None
