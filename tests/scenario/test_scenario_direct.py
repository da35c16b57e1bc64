"""Trials that write in place: what was there before is known, as far as a limit allows, and the rest is told."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from scenario_lab import Lab, Ran, python, wait_until

pytestmark = pytest.mark.kernel("witness", "overlay")

POLICY = """
schema = 1
name = "in-place"
[files]
mode = "direct"
before_limit = "64KiB"
"""
ACT = """
echo 2 > same; echo 1 > same
echo 2 > changed
mv moved away; mv away moved
rm gone
mkdir -p new/deep; echo n > new/deep/x
printf x >> big; truncate -s 200000 big
mv dir renamed
chmod 700 mode; chmod 644 mode
touch came; rm came
rm -r tree; ln -s /etc tree
"""


def make(lab: Lab) -> None:
    """Fill a workspace."""
    for name in ("same", "changed", "moved", "gone", "mode"):
        (lab.work / name).write_text("1\n")
        (lab.work / name).chmod(0o644)
    (lab.work / "big").write_bytes(b"b" * 200_000)
    for place in ("dir", "tree"):
        (lab.work / place).mkdir()
        (lab.work / place / "hostname").write_text("inside\n")


def new_lab(place: Path) -> Lab:
    """Make a lab in a directory."""
    home, work = place / "home", place / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    return Lab(home, work)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Ran]:
    """Run one trial that does a bit of everything in place."""
    lab = new_lab(tmp_path_factory.mktemp("direct"))
    make(lab)
    (lab.home.parent / "policy.toml").write_text(POLICY)
    ran = lab.sh(ACT, "-p", str(lab.home.parent / "policy.toml"))
    assert ran.code == 0, ran.err
    return lab, ran


def digest(text: str) -> str:
    """Give the digest of a content as reports have it."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_writes_are_made_in_place(done: tuple[Lab, Ran]) -> None:
    """Nothing is staged, and nothing is left to be committed."""
    lab, ran = done
    assert (lab.work / "changed").read_text() == "2\n"
    assert ran.report["stage"]["state"] == "direct"
    assert lab.call("commit", "last").returncode == 125


def test_what_was_put_back_is_known_to_be_restored(done: tuple[Lab, Ran]) -> None:
    """Content, name or mode, changed and put back; also what came and went."""
    _, ran = done
    for name in ("same", "moved", "mode", "came"):
        assert (ran.files[name]["net"], ran.files[name]["restored"]) == ("unchanged", True), name
        assert ran.files[name]["history"]


def test_both_digests_are_told(done: tuple[Lab, Ran]) -> None:
    """Of what changed, was made and was removed."""
    _, ran = done
    assert (ran.files["changed"]["before"], ran.files["changed"]["after"]) == (digest("1\n"), digest("2\n"))
    assert (ran.files["gone"]["net"], ran.files["gone"]["before"]) == ("deleted", digest("1\n"))
    assert (ran.files["new/deep/x"]["net"], ran.files["new/deep/x"]["before"]) == ("created", None)
    assert ran.files["renamed"]["net"] == "renamed"


def test_a_directory_that_became_a_symlink_leads_nowhere(done: tuple[Lab, Ran]) -> None:
    """What lies where it points is no file of the workspace."""
    _, ran = done
    assert ran.files["tree/hostname"]["net"] == "deleted"
    assert ran.files["tree/hostname"]["after"] is None


def test_what_is_beyond_the_limit_is_not_known(done: tuple[Lab, Ran]) -> None:
    """It is neither restored nor not, the scope is unresolved, and both are said."""
    _, ran = done
    assert (ran.files["big"]["restored"], ran.files["big"]["before"]) == (None, None)
    assert ran.scope == "unresolved"
    (reason,) = (one for one in ran.report["scope"]["reasons"] if one["rule"] == "unknown-before")
    assert "big" in reason["text"]
    assert "files.before_limit" in reason["text"]
    assert "same" not in reason["text"]


def test_the_difference_can_be_shown_afterwards(done: tuple[Lab, Ran]) -> None:
    """With the lines of a text that was removed, and without what was put back."""
    lab, _ = done
    shown = lab.call("diff", "last").stdout.decode()
    assert "--- a/changed\n+++ b/changed\n@@ -1 +1 @@\n-1\n+2\n" in shown
    assert "deleted   gone\n" in shown
    assert "created   new/deep/x\n" in shown
    assert "same" not in shown
    stat = lab.call("diff", "last", "--stat").stdout.decode()
    assert "modified  big (before: not recorded" in stat


def test_only_what_changed_is_kept(done: tuple[Lab, Ran]) -> None:
    """What was before of everything else is forgotten when the run is over."""
    lab, ran = done
    (kept,) = (lab.home / "runs").glob("*/before/content")
    assert 0 < kept.stat().st_size < 100
    assert lab.call("verify", ran.report["run"]).returncode == 0


def meanwhile(lab: Lab, act: Callable[[], object], *options: str, script: str = "true") -> Ran:
    """Run a trial in place, and do something in its workspace while it waits."""
    waits = f"echo > begun; until [ -e go ]; do sleep 0.02; done; {script}"
    with lab.start("--direct", *options, "--", "sh", "-c", waits) as trial:
        assert wait_until((lab.work / "begun").exists)
        act()
        (lab.work / "go").write_bytes(b"")
        trial.communicate(timeout=60)
    return Ran(code=trial.returncode, out=b"", err=b"", report=lab.report())


def gaps(ran: Ran) -> set[str]:
    """Give the rules of everything that is missing in the evidence."""
    return {gap["rule"] for route in ran.report["coverage"] for gap in route["gaps"]}


def foreign(lab: Lab) -> set[tuple[str, str]]:
    """Give what was told as somebody else's doing: name, and change."""
    events = lab.events("place.changed")
    assert {event["origin"] for event in events} <= {"service"}
    return {(os.path.relpath(event["path"], lab.work), event["change"]) for event in events}


def test_a_foreign_writer_is_not_the_trial(lab: Lab) -> None:
    """What somebody else wrote meanwhile is an event of theirs, no effect of the trial's, and it costs finality."""
    (lab.work / "theirs").write_text("1")

    def act() -> None:
        (lab.work / "theirs").write_text("22")
        (lab.work / "made").write_text("new")
        (lab.work / "theirs").chmod(0o600)

    ran = meanwhile(lab, act, script="echo ours > ours")
    assert not {"theirs", "made"} & set(ran.files)
    assert foreign(lab) == {
        ("theirs", "modified"),
        ("theirs", "closed"),
        ("theirs", "attributes"),
        ("made", "created"),
        ("made", "modified"),
        ("made", "closed"),
        ("go", "created"),
        ("go", "closed"),
    }
    assert "foreign-writer" in gaps(ran)
    assert ran.finality == "unresolved"


def test_without_a_foreign_writer_a_direct_run_can_be_final(lab: Lab) -> None:
    """The keeping twin: a bit of everything, a mapping among it, and nobody else."""
    make(lab)
    store = "import mmap; f = open('m', 'w+b'); f.truncate(9); mmap.mmap(f.fileno(), 9)[:1] = b'x'"
    ran = lab.sh(f'{ACT}\npython3 -c "{store}"', "--direct")
    assert ran.code == 0
    assert foreign(lab) == set()
    assert lab.events("place.unwatched") == []
    assert gaps(ran) == set()
    assert (ran.finality, ran.scope) == ("final", "clean")


HELD = """
mkdir -p h/d h/e; echo 1 > h/e/f; ln -s h/e way; exec 3<h/d 4>>h/e/f
rmdir h/d; mv h/e h/moved; ln -sfn h/moved way; chmod 700 way
sleep 0.5; echo 2 >&4; exec 3>&- 4>&-
mkdir h/new; mv h/moved h/new/; sleep 0.5
"""


def test_what_the_trial_holds_open_while_it_moves_and_removes_it_is_its_own(lab: Lab) -> None:
    """A removed directory ends when it is closed; a file is closed under another name than it was opened by."""
    make(lab)
    ran = lab.run("--direct", "--", "bash", "-ec", HELD)
    assert ran.code == 0, ran.err
    assert foreign(lab) == set()
    assert (ran.finality, ran.scope) == ("final", "clean")


WHITEOUT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.renameat2(-100, b"old", -100, b"new", 4):
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


def test_a_rename_that_leaves_a_whiteout_leaves_a_device(lab: Lab) -> None:
    """In place the file system itself makes it: an overlay takes no such call."""
    (lab.work / "old").write_text("1")
    ran = lab.run("--direct", "--", *python(WHITEOUT))
    assert ran.code == 0
    found = (lab.work / "old").lstat()
    assert (stat.S_ISCHR(found.st_mode), found.st_rdev) == (True, 0)
    assert (ran.files["old"]["history"], ran.files["new"]["history"]) == (["renamed", "created"], ["renamed"])
    assert gaps(ran) == set()
    assert (ran.finality, ran.scope) == ("final", "clean")


def test_a_stream_that_goes_to_a_file_of_the_workspace_is_told(lab: Lab) -> None:
    """It was written through a descriptor of the caller's, whose name is none of the trial's: nothing is claimed."""
    with (lab.work / "out").open("wb") as out:
        ran = lab.run("--direct", "--", "sh", "-c", "echo said; echo 2 > own", stdout=out)
    assert (lab.work / "out").read_text() == "said\n"
    assert ran.finality == "unresolved"


def test_a_foreign_mapping_is_noticed_when_it_is_given_up(lab: Lab) -> None:
    """Stores into it are seen by nobody; that the file was open for writing is."""
    path = lab.work / "theirs"
    path.write_bytes(b"1" * 4096)

    def act() -> None:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as page:
            page[:1] = b"2"

    ran = meanwhile(lab, act)
    assert ("theirs", "closed") in foreign(lab)
    assert "theirs" not in ran.files
    assert ran.finality == "unresolved"


def test_what_somebody_holds_open_at_the_end_may_still_change(lab: Lab) -> None:
    """Of a file that the trial wrote, too: it was open before, and nothing else of it is seen."""
    path = lab.work / "both"
    path.write_text("1")
    with path.open("r+b"):
        ran = lab.sh("echo 2 > both; echo 2 > own", "--direct")
    assert foreign(lab) == {("both", "held")}
    assert "foreign-writer" in gaps(ran)
    assert ran.finality == "unresolved"


def test_a_workspace_too_large_to_be_watched_is_a_gap(lab: Lab) -> None:
    """More directories than are watched: whoever writes there is not seen, so nothing is final."""
    for number in range(150):
        (lab.work / f"t{number}").mkdir()
        for inner in range(150):
            (lab.work / f"t{number}" / str(inner)).mkdir()
    ran = lab.sh("echo 2 > own", "--direct", "--outcome", "own")
    assert len(lab.events("place.unwatched")) == 1
    assert "unwatched-place" in gaps(ran)
    assert ran.finality == "unresolved"


@pytest.mark.parametrize("how", ["--direct", "--shared"])
def test_a_file_that_has_a_name_elsewhere_is_changed_there_too(lab: Lab, tmp_path: Path, how: str) -> None:
    """Nobody said that it may be: what was written in the workspace or in a shared place was written there."""
    place = lab.work if how == "--direct" else tmp_path / "place"
    place.mkdir(exist_ok=True)
    (tmp_path / "outside").write_text("1\n")
    (place / "name").hardlink_to(tmp_path / "outside")
    options = ("--direct",) if how == "--direct" else ("--shared", str(place))
    ran = lab.sh(f"cd {place} && mv name other && echo 2 >> other && mv other name", *options)
    assert (tmp_path / "outside").read_text() == "1\n2\n"
    assert "names-elsewhere" in ran.reasons("scope")
    assert ran.scope == "unresolved"


def test_what_is_alive_at_the_endpoint_is_captured_in_place(lab: Lab) -> None:
    """The snapshot has what was there then, and the workspace what was written later."""
    (lab.work / "a").write_text("1")
    script = "echo now > a; rm -f gone; mkdir d; echo x > d/y; (until [ -e go ]; do sleep 0.02; done; echo late > a) &"
    with lab.start("--direct", "--settle", "30s", "--", "sh", "-c", script) as trial:
        assert wait_until(lambda: bool(list(lab.home.glob("runs/*/snapshot/upper/d/y"))))
        (lab.work / "go").write_bytes(b"")
        trial.communicate(timeout=60)
    (upper,) = lab.home.glob("runs/*/snapshot/upper")
    assert (upper / "a").read_text() == "now\n"
    assert (lab.work / "a").read_text() == "late\n"
    assert any(reason["rule"] == "changed-since-captured" for reason in lab.report()["finality"]["reasons"])


def test_another_file_system_in_the_workspace_is_written_in_place_too(lab: Lab) -> None:
    """And what was there before is known of it as well."""
    (lab.work / "nested").mkdir()
    setup = "mount -t tmpfs none nested; echo 1 > nested/a; echo 1 > nested/same"
    act = "echo 2 > nested/a; echo 2 > nested/same; echo 1 > nested/same; echo n > nested/new"
    ended = lab.call_in(setup, "--direct", "--", "sh", "-c", act, then="cat nested/a nested/new")
    assert (ended.returncode, ended.stdout) == (0, b"2\nn\n"), ended.stderr
    files = lab.report()["effects"]["files"]
    nets = {file["path"]: (file["net"], file["restored"]) for file in files if "path" in file}
    assert nets["nested/a"] == ("modified", False)
    assert nets["nested/same"] == ("unchanged", True)
    assert nets["nested/new"] == ("created", False)


def test_without_room_for_what_was_before_nothing_runs(lab: Lab) -> None:
    """The place is named, with what can be done, and CMD was never started."""
    (lab.work / "a").write_bytes(os.urandom(8 << 20))
    setup = 'mount -t tmpfs -o size=4M,mode=700 none "$HOME_DIR"'
    ended = lab.call_in(setup, "--direct", "--", "touch", "ran")
    assert ended.returncode == 125
    assert b"/before: what files were before the trial cannot be kept: no space left" in ended.stderr.lower()
    assert b"files.before_limit" in ended.stderr
    assert not (lab.work / "ran").exists()
