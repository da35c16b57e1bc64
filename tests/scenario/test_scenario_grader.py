"""Labels, end to end: what a grader sees, what it may say, and what costs its label."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from scenario_lab import Lab, Ran, runs_on_host, wait_until

pytestmark = [pytest.mark.kernel("bpf", "cgroup", "bubblewrap", "overlayfs")]

Policed = Callable[..., Ran]


@pytest.fixture
def policed(lab: Lab) -> Policed:
    """Run a shell script under a policy that is written for the test."""

    def run(script: str, policy: str, *options: str) -> Ran:
        file = lab.home.parent / "policy.toml"
        file.write_text(f"schema = 1\n{policy}\n")
        return lab.sh(script, "--policy", str(file), *options)

    return run


def label(ran: Ran) -> tuple[str, str | None, str | None]:
    """Give verdict, label and what was observed."""
    finality = ran.report["finality"]
    return finality["verdict"], finality["label"], finality["observed"]["label"]


def cause(ran: Ran) -> str:
    """Give the rule and the text of why there is no label."""
    finality = ran.report["finality"]
    assert (finality["verdict"], finality["label"], finality["cause"]) == ("unresolved", None, "grader")
    return f"{finality['reasons'][0]['rule']}: {finality['reasons'][0]['text']}"


def test_the_grader_has_the_last_word_on_a_final_outcome(lab: Lab) -> None:
    """Exit 0 is a success, also for names and contents that look like options or commands: final, success."""
    script = "printf -- '-e x; exit 1\\n--help' > ./--quiet; echo '{\"passed\": false}' > ./-v"
    ran = lab.sh(script, "--grade", "ls -A && grep -q -e --help -- *quiet && test ! -e nothing")
    assert label(ran) == ("final", "success", "success")
    assert ran.report["result"]["passed"] is True
    finished = lab.events("grade.finished")[0]
    assert (finished["exit_code"], finished["listed"]) == (0, ["."])
    assert "--quiet" in finished["footprint"]


def test_json_can_lower_a_label_and_tells_its_reason(lab: Lab) -> None:
    """``passed: false`` beside exit 0 is a failure, and its reason is quoted: final, failure."""
    said = json.dumps({"passed": False, "reason": "no source named", "score": 0.5})
    ran = lab.sh("echo a > out", "--outcome", "out", "--grade", f"echo thinking; echo '{said}'")
    assert label(ran) == ("final", "failure", "failure")
    assert ran.report["result"]["passed"] is False
    assert any("no source named" in reason["text"] for reason in ran.report["finality"]["reasons"])
    assert json.loads(lab.events("grade.finished")[0]["said"])["score"] == 0.5


def test_a_grader_that_crashes_is_quoted_in_the_report(lab: Lab) -> None:
    """It says failure as it would of a bad outcome; how it ended and what it wrote tell the two apart."""
    ran = lab.sh("echo a > out", "--outcome", "out", "--grade", "python3 -c 'open(\"/nonexistent/answers\")'")
    assert label(ran) == ("final", "failure", "failure")
    shown = lab.call("show", "last").stdout
    assert b"grader      exit code 1; it wrote" in shown
    assert b"FileNotFoundError" in shown
    lab.sh("echo a > out", "--outcome", "out", "--grade", "echo nothing new in out; exit 1")
    assert b"            nothing new in out" in lab.call("show", "last").stdout


def test_the_grader_sees_the_host_and_changes_nothing(lab: Lab) -> None:
    """Everything is read-only to it but its TMPDIR, /tmp is the host's, our home is hidden: final, success."""
    reference = lab.home.parent / "reference"
    reference.write_text("42")
    acts = (
        f"grep -q 42 {reference}",
        f"test ! -e {lab.home}/runs",
        *(f"! touch {place} 2>/dev/null" for place in ("new", reference, "/etc/new")),
        "echo a > $TMPDIR/a",
        "! bash -c 'echo > /dev/tcp/192.0.2.1/80' 2>/dev/null",
    )
    script = " && ".join(acts)
    ran = lab.sh("echo a > out", "--grade", script)
    assert label(ran) == ("final", "success", "success")
    assert reference.read_text() == "42"
    assert not (lab.work / "new").exists()


def test_a_grader_that_takes_too_long_or_leaves_somebody_gives_no_label(policed: Policed) -> None:
    """A time-out costs the label and ends the grader; so does a process that is left behind: unresolved."""
    ran = policed("echo a > out", '[grade]\ncommand = "sleep 61.7 & yes"\ntimeout = "300ms"')
    assert "did not end within 0.3 s" in cause(ran)
    assert not runs_on_host("sleep", "61.7")
    left = policed("echo a > out", '[grade]\ncommand = "setsid sleep 62.7 >/dev/null 2>&1 & exit 0"')
    assert "left 1 process behind" in cause(left)
    assert not runs_on_host("sleep", "62.7")


def test_two_runs_that_differ_are_flaky(lab: Lab, policed: Policed) -> None:
    """The same state, another answer: unresolved, flaky."""
    flip = lab.home.parent / "flip"

    def flip_it() -> None:
        wait_until(lambda: runs_on_host("sleep", "0.71"), patience_s=50)
        flip.touch()

    thread = threading.Thread(target=flip_it)
    thread.start()
    command = f"test ! -e {flip} && while test ! -e {flip}; do sleep 0.71; done"
    ran = policed("echo a > out", f'[grade]\ncommand = "{command}"\nrepeats = 2')
    thread.join()
    assert "flaky: flaky: run 2 times on one state it said success and failure" in cause(ran).replace(
        "the grader gave no label: ", ""
    )


def test_a_trial_that_opened_the_reference_gets_no_label(lab: Lab, policed: Policed) -> None:
    """Reading what only the grader should is a violation and costs the label; a failed attempt costs neither."""
    (lab.work / "answers").mkdir()
    (lab.work / "answers" / "key").write_text("42\n")
    policy = '[grade]\ncommand = "cmp answers/key out"\nreads = ["answers/**"]'
    ran = policed("cat answers/key > out", policy)
    assert "reference-opened" in cause(ran)
    assert ran.scope == "violated"
    assert ran.report["scope"]["violations"][0]["rule"] == "reference-opened"
    honest = policed("cat answers/none 2>/dev/null; echo 42 > out", policy)
    assert label(honest) == ("final", "success", "success")
    masked = policed(
        "ls answers; cat answers/key; cat answers/* > out 2>/dev/null; echo 42 > out",
        '[files]\nread_deny = ["answers"]\n[grade]\ncommand = "cmp answers/key out"',
    )
    assert b"42" not in masked.out
    assert label(masked)[:2] == ("final", "success")


@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_reference_material_is_known_by_any_name_that_it_has(lab: Lab, policed: Policed, mode: str) -> None:
    """A hard link of before the trial is the same file, however it is met; one with the same content is none."""
    (lab.work / "answers").mkdir()
    (lab.work / "answers" / "key").write_text("42\n")
    (lab.work / "notes").hardlink_to(lab.work / "answers" / "key")
    (lab.work / "alias").symlink_to("notes")
    (lab.work / "beside").write_text("42\n")
    policy = f'[files]\nmode = "{mode}"\n[grade]\ncommand = "cmp answers/key out"\nreads = ["answers/**"]'
    for name in ("notes", "alias"):
        ran = policed(f"cat {name} > out", policy)
        assert "answers/key" in cause(ran)
        assert ran.report["scope"]["violations"][0]["rule"] == "reference-opened"
        assert ran.report["scope"]["violations"][0]["events"]
    kept = policed("cat beside > out", policy)
    assert (kept.scope, kept.report["finality"]["observed"]["label"]) == ("clean", "success")


def test_a_grader_that_runs_what_the_trial_wrote_must_say_so(policed: Policed) -> None:
    """Code of the trial answers for the trial: no label, unless the policy declares that it is run."""
    script = "printf '#!/bin/sh\\nexit 0\\n' > check; chmod +x check"
    assert "ran-trial-code" in cause(policed(script, '[grade]\ncommand = "./check"'))
    assert "it ran what the trial wrote: check" in cause(policed(script, '[grade]\ncommand = "sh check"'))
    declared = policed(script, '[grade]\ncommand = "./check"\nexecutes = ["check"]')
    assert label(declared) == ("final", "success", "success")


def test_examples_come_before_the_trial_and_a_grader_that_fails_one_gives_no_label(lab: Lab, policed: Policed) -> None:
    """A grader that calls a bad example good is not believed about anything: unresolved."""
    for name, text in (("good", "Sources: x"), ("fluent", "It is well known."), ("absent", "")):
        (lab.home.parent / name).mkdir()
        if text:
            (lab.home.parent / name / "note").write_text(text)
    alone = lab.home.parent / "alone.txt"
    alone.write_text("Sources: y")

    def selftest(command: str) -> Ran:
        table = ", ".join(
            f'{{ outcome = "{lab.home.parent / name}", expect = "{expect}" }}'
            for name, expect in (
                ("good", "success"),
                ("fluent", "failure"),
                ("absent", "failure"),
                ("alone.txt", "success"),
            )
        )
        return policed(
            "echo 'Sources: z' > note",
            f'[claim]\noutcome = "note"\n[grade]\ncommand = "{command}"\nselftest = [{table}]',
        )

    ran = selftest("test -e note && grep -q Sources note")
    assert label(ran) == ("final", "success", "success")
    order = [event["kind"] for event in lab.events() if event["kind"] in {"grade.finished", "trial.released"}]
    assert order == ["grade.finished"] * 4 + ["trial.released", "grade.finished"]
    assert not (lab.work / "alone.txt").exists()
    lenient = selftest("test -e note")
    assert "selftest-failed" in cause(lenient)
    assert "fluent: expected failure, got success" in cause(lenient)


def test_an_example_that_is_not_there_is_told_before_anything_runs(lab: Lab) -> None:
    """A missing example is the caller's mistake: 125, and CMD never ran."""
    file = lab.home.parent / "policy.toml"
    file.write_text('schema = 1\n[grade]\ncommand = "true"\nselftest = [{ outcome = "nowhere", expect = "success" }]\n')
    ended = lab.call("--policy", str(file), "--", "touch", "out")
    assert ended.returncode == 125
    assert b"grade.selftest[0].outcome" in ended.stderr
    assert not (lab.work / "out").exists()


def test_the_log_of_a_grader_is_verified_with_the_run(lab: Lab) -> None:
    """A changed, missing or added log of a grader is found by both verifiers."""
    lab.sh("echo a > out", "--grade", "test -s out")
    (run,) = (lab.home / "runs").iterdir()
    assert lab.call("verify", "last").returncode == 0
    assert lab.call("verify", str(run / "grades" / "0")).returncode == 0
    segment = run / "grades" / "0" / "log" / "000000.seg"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    bad = lab.call("verify", "last")
    assert bad.returncode == 1
    segment.write_bytes(whole)
    (run / "grades" / "1").mkdir()
    added = lab.call("verify", "last")
    assert (added.returncode, b"does not tell of" in added.stdout + added.stderr) == (1, True)
    (run / "grades" / "1").rmdir()
    (run / "grades").rename(run / "elsewhere")
    assert lab.call("verify", "last").returncode != 0


def test_what_the_grader_opened_is_part_of_the_footprint(lab: Lab) -> None:
    """The claim names one file; what the grader reads beside it counts too, and what it does not read does not."""
    ran = lab.sh(
        "mkdir sub; for f in out sub/source other flag; do echo a > $f; done",
        "--outcome",
        "out",
        "--grade",
        "cat out sub/source; test ! -e absent; test -e flag",
    )
    scope = {path: file["in_scope"] for path, file in ran.files.items()}
    assert scope == {"out": True, "sub": True, "sub/source": True, "flag": True, "other": False}
    assert "absent" in lab.events("grade.finished")[0]["footprint"]


def test_the_captured_state_is_graded_not_what_became_of_it(lab: Lab) -> None:
    """A straggler changes the outcome after the endpoint, also by deleting and adding: final, as captured."""
    later = "sleep 1; rm -r d; echo 2 > out; touch late"
    script = f"echo 1 > out; mkdir d; echo x > d/a; (setsid sh -c '{later}' >/dev/null 2>&1 &)"
    ran = lab.sh(script, "--settle", "5s", "--grade", "grep -qx 1 out && test -e d/a && test ! -e late")
    assert label(ran) == ("final", "success", "success")
    assert (lab.work / "out").read_text() == "2\n"
    assert ran.report["finality"]["observed"]["digest"] == lab.events("trial.snapshotted")[0]["digest"]


def test_a_workspace_with_odd_names_is_shown_to_the_grader(tmp_path: Path) -> None:
    """Colons, commas, backslashes and line feeds in the path of the workspace are no options of a mount."""
    home, work = tmp_path / "home", tmp_path / "a:b,c\\d\ne"
    home.mkdir(mode=0o700)
    work.mkdir()
    ran = Lab(home, work).sh("echo a > out", "--grade", "grep -qx a out")
    assert label(ran) == ("final", "success", "success")


def test_possible_states_are_made_of_copies_and_graded(lab: Lab, policed: Policed) -> None:
    """A live process that may only write one file is bounded by what that file can say: final; else unresolved."""
    (lab.home.parent / "laid").mkdir()
    (lab.home.parent / "laid" / "log").write_text("late\n")
    effect = '{ effect = "process", reason = '
    states = (
        f'{effect}"nothing more" }}, {effect}"it writes its log", script = "echo more >> log" }}, '
        f'{effect}"it replaces its log", overlay = "{lab.home.parent / "laid"}" }}'
    )
    script = "echo 1 > out; echo begun > log; (setsid sleep 64.9 >/dev/null 2>&1 &)"

    def run(command: str) -> Ran:
        return policed(
            script,
            f'[claim]\nperiod = "eventually"\n[stop]\nsettle = "0s"\n[files]\nwrite = ["out", "log"]\n'
            f"[grade]\ncommand = '{command}'\nstates = [{states}]",
        )

    ran = run("grep -qx 1 out")
    assert label(ran) == ("final", "success", "success")
    (effect_left,) = [one for one in ran.report["open_effects"] if one["route"] == "process"]
    assert effect_left["handling"] == "bounded"
    assert (lab.work / "log").read_text() == "begun\n"
    differing = run("grep -qx 1 out; ! grep -q late log")
    assert label(differing) == ("unresolved", None, "success")
    text = next(r["text"] for r in differing.report["finality"]["reasons"] if r["rule"] == "states-differ")
    assert "it replaces its log: failure" in text
    assert "it writes its log: success" in text


def test_an_event_decides_a_claim_whatever_else_is_open(policed: Policed) -> None:
    """The file was written, and a straggler still lives: final eventually, by the event."""
    script = "echo 1 > out; (setsid sleep 65.9 >/dev/null 2>&1 &)"
    policy = (
        '[claim]\nperiod = "eventually"\ndecided_by = "event"\nevent = "file.written path={}"\n[stop]\nsettle = "0s"'
    )
    assert label(policed(script, policy.format("out"))) == ("final", "success", "success")
    assert label(policed(script, policy.format("other"))) == ("unresolved", None, "failure")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_grader_does_not_outlive_its_supervisor(lab: Lab, number: signal.Signals) -> None:
    """Killed, it takes the grader with it and leaves an unsealed run; told to stop, it seals one without a label."""
    seconds = f"66.{number.value}"
    process = lab.start("--grade", f"sleep {seconds}", "--", "true")
    assert wait_until(lambda: runs_on_host("sleep", seconds), patience_s=60)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert wait_until(lambda: not runs_on_host("sleep", seconds), patience_s=60)
    if number is signal.SIGINT:
        assert lab.report()["finality"]["cause"] == "grader"
    else:
        assert lab.call("verify", "last").returncode == 1


def test_a_file_that_somebody_else_changed_meanwhile_costs_the_label(lab: Lab) -> None:
    """What the grader reads beside the trial's writes must be what it was when the trial began."""
    (lab.work / "given").write_text("1")
    process = lab.start("--grade", "cat given out", "--", "sh", "-c", "echo 1 > out; sleep 2.67")
    assert wait_until(lambda: runs_on_host("sleep", "2.67"), patience_s=60)
    (lab.work / "given").write_text("2")
    process.communicate(timeout=60)
    finality = lab.report()["finality"]
    assert (finality["label"], finality["cause"]) == (None, "grader")
    assert "somebody else changed what it looked at while the trial ran: given" in finality["reasons"][0]["text"]


def test_what_the_trial_has_a_grader_print_ends_nothing(lab: Lab) -> None:
    """JSON too deep to read, and halves of characters in it, are words like others: final."""
    (lab.work / "half").write_text('{"passed": false, "reason": "\\ud800!"}')
    (lab.work / "deep").write_text("[" * 30_000)
    ran = lab.sh("cp deep out; cp half end", "--grade", "cat out; echo; cat end")
    assert label(ran) == ("final", "failure", "failure")
    assert any("\ufffd!" in reason["text"] for reason in ran.report["finality"]["reasons"])
    assert label(lab.sh("cp deep out", "--grade", "cat out")) == ("final", "success", "success")


def test_a_module_that_the_trial_wrote_is_code_and_a_text_is_none(policed: Policed) -> None:
    """Python loads a module of its working directory; reading the same file as a text gives a label."""
    load, read = ("/usr/bin/python3 -c 'import solved'", "/usr/bin/python3 -c 'open(1 and \"solved.py\").read()'")
    ran = policed("echo pass > solved.py", f'[grade]\ncommand = """{load}"""')
    assert "ran what the trial wrote: solved.py" in cause(ran)
    assert label(policed("echo 1 > solved.py", f'[grade]\ncommand = """{read}"""'))[1] == "success"


def test_a_symlink_to_the_reference_is_no_outcome(lab: Lab, policed: Policed) -> None:
    """The trial cannot open what its grader would find behind it: unresolved, and no label."""
    (lab.work / "answers").mkdir()
    (lab.work / "answers" / "key").write_text("42\n")
    policy = '[files]\nread_deny = ["answers"]\n[grade]\ncommand = "grep -q 42 out"'
    ran = policed("ln -s answers/key out", policy)
    assert "out leads to what only the grader should see" in cause(ran)
    assert ran.report["result"]["passed"] is None
