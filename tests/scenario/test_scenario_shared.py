"""Places that a trial shares, places that it must not see, and writes that fail: each told by one real trial."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, Ran, wait_until

from probes.kernel.decode import decode_slab
from supervisor.evidence.collect import collect
from supervisor.evidence.facts import Facts
from supervisor.log.reader import read_events
from supervisor.prepare.declared import read_links
from supervisor.prepare.manifest import read_manifest

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

ACT = r"""
cat shared/read > /dev/null; ls shared/listed > /dev/null; test -e shared/stat; test -e shared/missing
cat link/through > /dev/null; test -e link/gone
shared/tool; echo 1 > shared/made; echo 2 >> shared/changed; mv shared/old shared/new; rm shared/removed
echo 2 > shared/restored; echo 1 > shared/restored
(cd shared/listed && test -e relative)
test -e /proc/self/root$PWD/shared/rooted
cat answers/key; ls answers; test -e answers/other; ln -s $PWD/answers $PWD/notes/found; cat notes/found/key
test -e notes/found/looked; test -e notes/found; ls -l notes >/dev/null; cat /proc/self/cwd/answers/magic
ln notes/found notes/second; cat notes/second/hard; mkdir notes/d; mv notes/second notes/d/; mv notes/d notes/e
cat notes/e/second/moved
echo ok > notes/allowed; echo no > draft; echo no > /usr/elsewhere; echo no >> existing; rm existing; mkdir made
chmod 600 existing; mv existing notes/; ln existing notes/hard; echo t > /tmp/own
touch shared/ready; while [ ! -e shared/go ]; do sleep 0.02; done
"""


@dataclass(frozen=True)
class Told:
    """One trial, and what its log adds up to."""

    lab: Lab
    ran: Ran
    facts: Facts
    events: list[dict[str, Any]]

    def touched(self, name: str) -> set[str]:
        """Give how a path of the shared place was met."""
        path = bytes(self.lab.work / "shared" / name)
        return {touch.how for touch in self.facts.touches if touch.path == path}

    def violations(self, rule: str) -> list[str]:
        """Give what the violations of a rule say, without who did it."""
        return [one["text"].split(", by ")[0] for one in self.ran.report["scope"]["violations"] if one["rule"] == rule]


def read_facts(lab: Lab) -> Facts:
    """Add up the log of the last run."""
    run = max((lab.home / "runs").iterdir())
    manifest = read_manifest(json.loads((run / "manifest.json").read_text()), place="manifest")
    return collect(
        read_events(run / "log", lambda slab, first: decode_slab(slab, first, os.uname().machine)),
        policy=manifest.policy,
        workspace=manifest.workspace,
        observe=lambda _paths: {},
        changed=lambda: (),
        links=read_links,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A trial that does everything at once, while somebody else writes to its shared place."""
    base = tmp_path_factory.mktemp("shared")
    lab = Lab(base / "home", base / "work", {"HOME": str(base / "user")})
    for name in ("home", "user", "work/notes", "work/shared/listed", "work/answers"):
        (base / name).mkdir(parents=True, mode=0o700)
    work = lab.work
    for name in ("read", "through", "changed", "old", "removed", "foreign"):
        (work / "shared" / name).write_text("1\n")
    (work / "shared" / "restored").write_text("1\n")
    (work / "shared" / "tool").write_text("#!/bin/sh\n")
    (work / "shared" / "tool").chmod(0o755)
    (work / "link").symlink_to("shared")
    (work / "answers" / "key").write_text("ANSWER\n")
    (work / "existing").write_text("1\n")
    (base / "policy.toml").write_text(
        'schema = 1\n[claim]\noutcome = "notes/allowed"\n'
        '[files]\nwrite = ["notes/**"]\noutside = "deny"\nread_deny = ["answers"]\n'
        'shared = [{path = "shared", reset = "removed and made again"}]\n'
    )
    with lab.start("-p", str(base / "policy.toml"), "--", "sh", "-c", ACT) as process:
        assert wait_until((work / "shared" / "ready").exists, 30)
        (work / "shared" / "foreign").write_text("2\n")
        (work / "shared" / "go").touch()
        out, err = process.communicate(timeout=60)
    return Told(lab, Ran(code=process.returncode, out=out, err=err, report=lab.report()), read_facts(lab), lab.events())


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("read", "read"),
        ("listed", "listed"),
        ("stat", "looked"),
        ("missing", "looked"),
        ("through", "read"),
        ("gone", "looked"),
        ("made", "changed"),
        ("changed", "changed"),
        ("old", "changed"),
        ("new", "changed"),
        ("removed", "changed"),
        ("restored", "changed"),
        ("listed/relative", "looked"),
        ("rooted", "looked"),
    ],
)
def test_every_contact_with_a_shared_place_is_a_touch(told: Told, name: str, how: str) -> None:
    """Whatever it was called by, and whether or not there was anything; the path is the host's."""
    assert how in told.touched(name)


def test_a_program_of_a_shared_place_is_read_by_whoever_runs_it(told: Told) -> None:
    """A script is opened by its interpreter."""
    assert told.touched("tool") & {"read", "executed"}


def test_shared_places_are_written_at_once(told: Told) -> None:
    """The host has it, whatever becomes of the stage."""
    shared = told.lab.work / "shared"
    assert (shared / "made").read_text() == "1\n"
    assert (shared / "changed").read_text() == "1\n2\n"
    assert (shared / "new").exists()
    assert not (shared / "old").exists()


def test_writes_to_a_shared_place_are_allowed_and_stay_open(told: Told) -> None:
    """They are no violation; the open-effects record has them, with the reset that was declared."""
    files = told.ran.files
    assert files["shared/made"]["allowed"]
    rules = {one["rule"] for one in told.ran.report["scope"]["violations"]}
    assert not [text for rule in rules for text in told.violations(rule) if "shared/" in text]
    (effect,) = [one for one in told.ran.report["open_effects"] if "shared places" in one["what"]]
    assert effect["could_affect"] == ["runs"]
    assert "removed and made again" in effect["bearing"]
    assert told.ran.separation == "unresolved"


def test_the_states_before_and_after_are_known_in_a_shared_place(told: Told) -> None:
    """What was changed and put back is restored, and what was changed has both digests; others' files are not told."""
    files = told.ran.files
    restored, changed, made = files["shared/restored"], files["shared/changed"], files["shared/made"]
    assert (restored["net"], restored["restored"]) == ("unchanged", True)
    assert restored["history"]
    assert changed["net"] == "modified"
    assert changed["before"] != changed["after"]
    assert (made["net"], made["before"]) == ("created", None)
    assert "shared/foreign" not in files
    assert not [gap for gap in told.ran.report["scope"]["reasons"] if gap["rule"].startswith("unexplained")]


def test_what_somebody_else_changes_in_a_shared_place_is_told_apart(told: Told) -> None:
    """One event of origin service a change, of that path alone: what the trial did itself is never among them."""
    changed = [event for event in told.events if event["kind"] == "place.changed"]
    assert {Path(event["path"]).name for event in changed} == {"foreign", "go"}
    assert {event["origin"] for event in changed} == {"service"}
    assert {Path(os.fsdecode(one.path)).name for one in told.facts.foreign} == {"foreign", "go"}


def test_hidden_places_show_nothing(told: Told) -> None:
    """Neither content nor names, through no link either."""
    assert b"ANSWER" not in told.ran.out + told.ran.err
    assert told.ran.err.count(b"Permission denied") >= 3


def test_every_attempt_on_a_hidden_place_is_a_violation(told: Told) -> None:
    """To open, to list and to look up, each with its event; also through a link that the trial made."""
    tried = {(Path(os.fsdecode(one.path)).name, one.how) for one in told.facts.denied}
    wanted = ("key", "answers", "other", "looked", "magic", "hard", "moved")
    assert tried >= {(name, "looked") for name in wanted}
    texts = [one for one in told.ran.report["scope"]["violations"] if one["rule"] == "read-denied"]
    assert any("answers/key" in one["text"] and one["events"] for one in texts)
    through = {number for one in told.facts.denied for number in one.events}
    (linked,) = [event["n"] for event in told.events if event.get("path", "").endswith("notes/found/key")]
    assert linked in through


def test_writes_elsewhere_fail_at_the_call_and_are_violations(told: Told) -> None:
    """In the workspace and out of it: nothing was written, everything was told."""
    refused = told.violations("refused-write")
    for name in ("draft", "/usr/elsewhere", "existing", "made"):
        assert any(f"{name} " in text and "EROFS" in text for text in refused), name
    assert told.ran.err.count(b"Read-only file system") >= 5
    assert (told.lab.work / "existing").read_text() == "1\n"
    assert not (told.lab.work / "draft").exists()


def test_what_may_be_written_is_written(told: Told) -> None:
    """The keeping side: allowed files are committed, and the trial's own places are as ever."""
    assert (told.lab.work / "notes" / "allowed").read_text() == "ok\n"
    assert told.ran.files["notes/allowed"]["allowed"]
    assert b"/tmp/own" not in told.ran.err


def test_places_are_told_before_the_trial_is_released(told: Told) -> None:
    """The log says what is shared and what is hidden, by the names of the host."""
    declared = [event for event in told.events if event["kind"] == "place.declared"]
    released = next(event["n"] for event in told.events if event["kind"] == "trial.released")
    assert {(Path(event["path"]).name, event["hidden"]) for event in declared} == {("shared", False), ("answers", True)}
    assert all(event["n"] < released for event in declared)


def test_options_share_and_hide_like_a_policy(lab: Lab) -> None:
    """Relative to the workspace; a trial that only reads is clean, and connects to nobody."""
    (lab.work / "place").mkdir()
    (lab.work / "secret").write_text("ANSWER")
    ran = lab.sh("ls place; echo a > mine", "--shared", "place", "--read-deny", "secret", "--commit", "never")
    assert (ran.scope, ran.separation) == ("clean", "separate")
    assert [touch.how for touch in read_facts(lab).touches].count("listed") == 1
    ran = lab.sh("cat secret", "--read-deny", "secret")
    assert (ran.scope, ran.code) == ("violated", 1)


def test_without_a_declaration_a_write_elsewhere_is_only_discarded(lab: Lab) -> None:
    """`stage` is the default: the same write works, and is no violation."""
    ran = lab.sh("echo no > /usr/elsewhere && cat /usr/elsewhere")
    assert (ran.out, ran.scope) == (b"no\n", "clean")
    assert not Path("/usr/elsewhere").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--shared", "nothing"), b"--shared: expected a file or a directory"),
        (("--shared", ""), b"--shared"),
        (("--read-deny", "a/../b"), b"--read-deny"),
        (("--read-deny", "nothing"), b"--read-deny: expected a file or a directory"),
        (("--shared", "."), b"the workspace is in it"),
    ],
)
def test_a_place_that_cannot_be_had_is_an_error_and_nothing_runs(
    lab: Lab, options: tuple[str, str], said: bytes
) -> None:
    """The message names the option; no run is left half-made."""
    ended: subprocess.CompletedProcess[bytes] = lab.call(*options, "--", "touch", "ran")
    assert ended.returncode == 125
    assert said in ended.stderr
    assert not (lab.work / "ran").exists()
    assert not list((lab.home / "runs").glob("*")) if (lab.home / "runs").exists() else True


HIDING = r"""
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static char path[4096];
static volatile int going = 1;
static void *swap(void *place)
{
    while (going) {
        strcpy(path, place);
        strcpy(path, "/etc/passwd");
    }
    return 0;
}
int main(int argc, char **argv)
{
    struct stat found;
    pthread_t thread;
    int met = 0;
    pthread_create(&thread, 0, swap, argv[1]);
    for (int i = 0; i < 200000 && !met; i++)
        met = stat(path, &found) == 0 && S_ISFIFO(found.st_mode);
    going = 0;
    pthread_join(thread, 0);
    return 0;
}
"""


def test_a_thread_that_swaps_names_does_not_come_out_separate(lab: Lab, tmp_path: Path) -> None:
    """The name that is told may be another one than was looked up: a touch is told, or separation stays open."""
    place = tmp_path / "place"
    place.mkdir()
    os.mkfifo(place / "fifo")
    build = ["cc", "-O1", "-pthread", "-xc", "-", "-o", str(lab.work / "hide")]
    subprocess.run(build, input=HIDING, text=True, check=True)
    ran = lab.run("--commit", "never", "--shared", str(place), "--", "./hide", str(place / "fifo"))
    touched = bool(read_facts(lab).touches)
    assert touched or (ran.separation == "unresolved" and "unverified-look-ups" in ran.reasons("separation"))
    assert touched or ran.code == 0


def test_one_thread_that_looks_elsewhere_is_separate(lab: Lab, tmp_path: Path) -> None:
    """The keeping twin: names that nobody could change prove that the place was not met."""
    place = tmp_path / "place"
    place.mkdir()
    ran = lab.sh("stat /etc/passwd; test -e /nowhere; cat /etc/hostname", "--commit", "never", "--shared", str(place))
    assert read_facts(lab).touches == ()
    assert ran.separation == "separate"


def test_a_workspace_that_is_written_in_place_is_met_like_a_shared_place(lab: Lab) -> None:
    """In direct mode others can meet whatever happens there: reads, look-ups and changes are touches."""
    (lab.work / "in").write_text("1")
    ran = lab.sh("cat in; test -e missing; echo 1 > made; ls > /dev/null", "--direct")
    touched = {(Path(os.fsdecode(touch.path)).name, touch.how) for touch in read_facts(lab).touches}
    assert touched >= {("in", "read"), ("missing", "looked"), ("made", "changed"), (lab.work.name, "listed")}
    assert ran.scope == "clean"
    assert not [one for one in ran.report["open_effects"] if "shared places" in one["what"]]
