"""Workspaces in all sorts of places: what is staged there is seen, judged and committed as anywhere else."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, wait_until

pytestmark = pytest.mark.kernel("witness", "overlay")

FILL = 'cd "$WORK"; echo 1 > a; echo 1 > gone; mkdir dir; echo i > dir/i; echo 1 > same'
ACT = "echo 2 > a; echo n > new; rm gone; mkdir d; echo x > d/x; mv dir moved; echo 2 > same; echo 1 > same"
SHOWN = "find . -type f -name '[a-z]*' -printf '%P=' -exec cat '{}' ';' | sort"
AFTER = "a=2\nd/x=x\nmoved/i=i\nnew=n\nsame=1\n"
NETS = {
    "a": "modified", "new": "created", "gone": "deleted", "d/x": "created", "moved": "renamed", "same": "unchanged",
}  # fmt: skip

PLACES = {
    "a tmpfs": 'mount -t tmpfs none "$WORK"',
    "another disk": (
        'truncate -s 16M "$WORK/../disk"; mkfs.ext4 -q -E lazy_itable_init=1 "$WORK/../disk";'
        ' mount -o loop "$WORK/../disk" "$WORK"; rmdir "$WORK/lost+found"'
    ),
    "an overlay": (
        'cd "$WORK/.."; mkdir low up wk; echo 0 > low/a;'
        ' mount -t overlay -o lowerdir=low,upperdir=up,workdir=wk none "$WORK"'
    ),
    "a bind mount of itself": 'mount --bind "$WORK" "$WORK"',
}


def nets(report: dict[str, Any]) -> dict[str, str]:
    """Give what became of each path."""
    return {file["path"]: file["net"] for file in report["effects"]["files"] if "path" in file}


@pytest.mark.parametrize("mode", ["--stage", "--direct"])
@pytest.mark.parametrize("place", PLACES)
def test_a_workspace_on_other_file_systems(lab: Lab, place: str, mode: str) -> None:
    """The same effects are told and arrive, whatever the workspace lies on."""
    ended = lab.call_in(f"{PLACES[place]}; {FILL}", mode, "--", "sh", "-c", ACT, then=SHOWN)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.decode() == AFTER
    report = lab.report()
    assert NETS.items() <= nets(report).items()
    assert report["scope"]["verdict"] == "clean", report["scope"]
    assert report["finality"]["verdict"] == "final"


TOGETHER = {
    "a tmpfs": 'mount -t tmpfs none "$HOME_DIR/.."',
    "another disk": (
        'truncate -s 16M "$HOME_DIR/../disk"; mkfs.ext4 -q -E lazy_itable_init=1 "$HOME_DIR/../disk";'
        ' mount -o loop "$HOME_DIR/../disk" "$HOME_DIR/.."'
    ),
}


@pytest.mark.parametrize("place", TOGETHER)
def test_a_workspace_with_its_runs_on_another_file_system(lab: Lab, place: str) -> None:
    """There the stage gives its files away, and the same effects arrive: each file is the one that the trial wrote."""
    setup = f'{TOGETHER[place]}; mkdir -m 700 "$HOME_DIR"; mkdir "$WORK"; {FILL}'
    then = f"{SHOWN}; test ! -e \"$HOME_DIR\"/runs/*/stage/upper/a; supervise show last | grep -c '^finality *final'"
    ended = lab.call_in(setup, "--", "sh", "-c", ACT, then=then)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.decode() == f"{AFTER}1\n"


def test_a_mount_in_the_workspace_is_staged_and_committed_too(lab: Lab) -> None:
    """What is written there is compared, shown and applied like everything else, and nothing of it before."""
    (lab.work / "n").mkdir()
    setup = f"{FILL}; mount -t tmpfs none n; echo 1 > n/a; echo 1 > n/gone"
    act = f"{ACT}; echo 2 > n/a; echo n > n/new; rm n/gone"
    then = f"cat n/a; ls n; supervise diff last --stat | grep ' n/'; supervise commit last; {SHOWN}"
    ended = lab.call_in(setup, "--commit", "never", "--", "sh", "-c", act, then=then)
    assert ended.returncode == 0, ended.stderr
    before, shown, after = ended.stdout.decode().partition("modified  n/a, +1 -1\ndeleted   n/gone, +0 -1\n")
    assert before == "1\na\ngone\n"
    assert shown
    assert after == f"created   n/new, +1 -0\n{AFTER.replace('new=n', 'n/a=2@n/new=n@new=n').replace('@', chr(10))}"
    assert nets(lab.report())["n/gone"] == "deleted"


def test_a_workspace_under_a_symlink(lab: Lab) -> None:
    """The name that leads to it works inside, and the paths told are relative to it."""
    alias = lab.work.parent / "alias"
    alias.symlink_to(lab.work)
    ended = lab.call_in(FILL, "--workspace", str(alias), "--", "sh", "-c", f"cd {alias}; {ACT}", then=SHOWN)
    assert (ended.returncode, ended.stdout.decode()) == (0, AFTER), ended.stderr
    assert NETS.items() <= nets(lab.report()).items()


@pytest.fixture
def top_level(lab: Lab) -> Iterator[Lab]:
    """A lab whose workspace is a directory right below the root."""
    place = Path(tempfile.mkdtemp(prefix="supervise-test-", dir="/"))
    yield Lab(lab.home, place)
    shutil.rmtree(place)


def test_a_workspace_right_below_the_root(top_level: Lab) -> None:
    """It is a workspace like another one."""
    ended = top_level.call_in(FILL, "--", "sh", "-c", ACT, then=SHOWN)
    assert (ended.returncode, ended.stdout.decode()) == (0, AFTER), ended.stderr
    assert NETS.items() <= nets(top_level.report()).items()


def test_a_workspace_on_a_read_only_mount_is_left_as_it_is(lab: Lab) -> None:
    """Staged writes are seen; that none of them could be applied is said with the place, and costs finality."""
    setup = f'{FILL}; cd /; mount --bind "$WORK" "$WORK"; mount -o remount,ro,bind "$WORK"'
    ended = lab.call_in(setup, "--", "sh", "-c", ACT, then="cat a; ls")
    assert ended.stdout.decode() == "1\na\ndir\ngone\nsame\n"
    assert (
        f"{lab.work}: staged writes cannot be copied, the workspace is as it was: read-only file system"
        in ended.stderr.decode()
    )
    assert lab.report()["finality"]["verdict"] == "unresolved"


def test_a_read_only_mount_refuses_direct_writes(lab: Lab) -> None:
    """Each refused write is an attempt."""
    setup = f'{FILL}; cd /; mount --bind "$WORK" "$WORK"; mount -o remount,ro,bind "$WORK"'
    ended = lab.call_in(setup, "--direct", "--", "sh", "-c", "echo 2 > a", then="cat a")
    assert ended.stdout == b"1\n"
    (file,) = (one for one in lab.report()["effects"]["files"] if one["path"] == "a")
    assert (file["history"], [attempt["errno"] for attempt in file["attempts"]]) == ([], [30])


def test_two_trials_on_one_workspace_do_not_see_each_other(lab: Lab) -> None:
    """Each has its own stage; who commits last finds what the other one changed, and leaves it alone."""
    (lab.work / "a").write_text("1\n")
    script = "echo $0 > a; echo $0 > of-$0; sleep 0.5; cat a > seen-$0; ls > list-$0"
    started = [lab.start("--commit", "never", "--", "sh", "-c", script, name) for name in ("one", "two")]
    for trial in started:
        with trial:
            trial.communicate(timeout=60)
    assert (lab.work / "a").read_text() == "1\n"
    runs = sorted(path.name for path in (lab.home / "runs").iterdir())
    assert lab.call("commit", runs[0]).returncode == 0
    first = (lab.work / "a").read_text()
    ended = lab.call("commit", runs[1])
    assert ended.returncode == 125
    assert b"changed on the host meanwhile: a" in ended.stderr
    assert (lab.work / "a").read_text() == first
    for name in ("one", "two"):
        assert (lab.work / f"of-{name}").read_text() == f"{name}\n" == (lab.work / f"seen-{name}").read_text()
        assert (lab.work / f"list-{name}").read_text().split() == ["a", f"list-{name}", f"of-{name}", f"seen-{name}"]
    assert lab.call("commit", "--force", runs[1]).returncode == 0
    assert {first, (lab.work / "a").read_text()} == {"one\n", "two\n"}


def test_nothing_that_lives_on_reaches_the_host(lab: Lab) -> None:
    """A process that is alive at the endpoint and goes on writing writes into the stage, and is gone with the run."""
    script = "echo end > a; (setsid sh -c 'until [ -e go ]; do sleep 0.01; done; echo late > a; sleep 60' &)"
    ended = lab.call("--at-endpoint", "cancel", "--", "sh", "-c", script)
    assert ended.returncode == 0, ended.stderr
    assert (lab.work / "a").read_text() == "end\n"
    (lab.work / "go").touch()
    assert not wait_until(lambda: (lab.work / "a").read_text() != "end\n", patience_s=0.3)


def test_isolation_covers_mounts_in_the_workspace(lab: Lab) -> None:
    """What lives on cannot write to another file system there either: the proof is about all of the workspace."""
    (lab.work / "n").mkdir()
    setup = "mount -t tmpfs none n; echo 1 > n/a"
    script = "(setsid sh -c 'sleep 1; echo late > n/a; echo late > b' 2> /dev/null &)"
    ended = lab.call_in(setup, "--at-endpoint", "isolate", "--settle", "20s", "--", "sh", "-c", script, then="cat n/a")
    assert (ended.returncode, ended.stdout) == (0, b"1\n"), ended.stderr
    assert not (lab.work / "b").exists()
    files = {file["path"]: file for file in lab.report()["effects"]["files"] if "path" in file}
    assert [attempt["errno"] for attempt in files["n/a"]["attempts"]] == [30]
    assert [attempt["errno"] for attempt in files["b"]["attempts"]] == [30]


def test_without_room_a_commit_does_nothing(lab: Lab) -> None:
    """The workspace is as it was, its place is named, and with room again the commit is made."""
    setup = 'mount -t tmpfs -o size=4M none "$WORK"; cd "$WORK"; echo 1 > a; head -c 2000000 /dev/zero > old'
    then = "cat a; ls; rm old; supervise commit last; cat a; stat -c %s big"
    script = "head -c 3000000 /dev/zero > big; echo 2 > a; rm old"
    ended = lab.call_in(setup, "--", "sh", "-c", script, then=then)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.decode() == "1\na\nold\n2\n3000000\n"
    assert (
        f"{lab.work}: staged writes cannot be copied, the workspace is as it was: no space left"
        in ended.stderr.decode().lower()
    )


def test_a_full_stage_is_told_with_its_place(lab: Lab) -> None:
    """The trial meets the full disk, the run ends, the workspace is as it was and nothing of it is half-done."""
    (lab.work / "a").write_text("1\n")
    lab.environ["SUPERVISE_WAIT_FOR_ROOM"] = "0s"
    setup = 'mount -t tmpfs -o size=16M,mode=700 none "$HOME_DIR"'
    script = "echo 2 > a; head -c 100000000 /dev/zero > big; echo 3 > a"
    ended = lab.call_in(setup, "--", "sh", "-c", script, then="cat a; ls")
    assert ended.returncode == 125
    assert ended.stdout == b"1\na\n"
    assert str(lab.home) in ended.stderr.decode()
    assert b"no room" in ended.stderr


def test_a_workspace_that_is_not_there_is_named(lab: Lab) -> None:
    """Before anything runs."""
    for place in ("absent", "file"):
        (lab.work / "file").write_text("")
        ended = lab.call("--workspace", place, "--", "true")
        assert ended.returncode == 125
        assert f"--workspace: expected a directory, got '{place}'" in ended.stderr.decode()
    assert not list(lab.home.glob("runs/*"))
