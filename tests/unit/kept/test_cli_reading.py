"""Kept runs, read again by the command: sealed, unsealed and altered ones."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from completions import GOOD
from supervisor.cli import main
from supervisor.events import FileDeleted, Origin, ProcessKey, TrialHeld, TrialReleased, TrialSealed
from supervisor.launch.runs.owner import Owner
from supervisor.launch.runs.registry import register
from supervisor.launch.runs.state import Home, RunDir
from supervisor.log.writer import LogWriter

RUN = "20261130-080642-k3f9"
MAIN = ProcessKey(412, 8000)
DEAD = Owner(pid=2**22 - 1, start_ticks=1, boot_id="another")
"""A supervisor that is not there any more."""


def digest(data: bytes) -> str:
    """Give a digest as documents write it."""
    return f"sha256:{sha256(data).hexdigest()}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Make an empty home, which the command finds by the environment."""
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("SUPERVISE_HOME", str(place))
    return Home.open({"SUPERVISE_HOME": str(place)}, uid=place.stat().st_uid)


def make_run(home: Home, run_id: str = RUN, *, sealed: bool = True) -> RunDir:
    """Keep a run of three events, as a supervisor would; a run that is not sealed has lost its supervisor."""
    run = home.create(run_id)
    manifest = run.write_manifest({"schema": "manifest/1", "command": ["rm", "x\x1b[2J"], "name": "n"})
    log = LogWriter.create(run.log, manifest_digest=digest(manifest))
    held = {"process": MAIN, "init": MAIN, "helpers": (), "cgroup": 1, "realtime_offset_ns": 10**18}
    log.record(lambda n: TrialHeld(n=n, time_ns=1, origin=Origin.SUPERVISOR, **held))  # type: ignore[arg-type]
    log.record(lambda n: TrialReleased(n=n, time_ns=2, origin=Origin.SUPERVISOR))
    log.record(lambda n: FileDeleted(n=n, time_ns=3, process=MAIN, path=b"/w/\xff\x1b"))
    if not sealed:
        run.owner_file.unlink()
        return run
    evidence = log.checkpoint()
    state = {"frames": evidence.frames, "events": evidence.events, "root": evidence.root}
    completion = json.dumps(GOOD | {"run": run_id, "log": GOOD["log"] | state}).encode()
    run.completion.write_bytes(completion)
    log.seal(
        lambda n: TrialSealed(
            n=n,
            time_ns=4,
            origin=Origin.SUPERVISOR,
            evidence_frames=evidence.frames,
            evidence_root=evidence.root,
            completion=digest(completion),
            stage="sha256:" + "0" * 64,
        )
    )
    return run


def test_a_sealed_run_is_listed_shown_and_verified(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """The ordinary case, in both formats."""
    run = make_run(home)
    assert main(["ls"]) == 0
    assert capfd.readouterr().out == f"{RUN}  final      separate   clean       n: rm $'x\\x1b[2J'\n"
    assert main(["show", "last"]) == 0
    assert capfd.readouterr().out.startswith("finality    final\nseparation  separate\nscope       clean\n")
    assert main(["show", "last", "--format", "json"]) == 0
    assert capfd.readouterr().out.encode() == run.completion.read_bytes()
    assert main(["verify", "last", str(run.path)]) == 0
    assert capfd.readouterr().out.count(f"{RUN}: good: ") == 2


def test_the_list_is_the_same_as_json(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """One object, every run in it with what the table shows; what the registry misses is there and on stderr."""
    make_run(home)
    make_run(home, "20261130-090000-aaaa", sealed=False)
    register(home.path, "20261130-070000-gone", at="2026-11-30T07:00:00Z", manifest="sha256:" + "0" * 64)
    assert main(["ls", "--json"]) == 0
    told = capfd.readouterr()
    shown = json.loads(told.out)
    command = {"commit_unfinished": False, "name": "n", "command": ["rm", "x\x1b[2J"]}
    verdicts = {"finality": "final", "separation": "separate", "scope": "clean"}
    assert shown["runs"] == [
        {"run": RUN, "state": "sealed"} | verdicts | command,
        {"run": "20261130-090000-aaaa", "state": "unsealed"} | dict.fromkeys(verdicts) | command,
    ]
    assert shown["registry"] == {"missing": ["20261130-070000-gone"], "problems": []}
    assert "1 run of 1 that were started here is not there any more: 20261130-070000-gone" in told.err
    assert "\x1b" not in told.out


@pytest.mark.usefixtures("home")
def test_a_home_without_runs_is_an_empty_list(capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever reads JSON reads no word instead of it."""
    assert main(["ls", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["runs"] == []


def test_a_command_that_is_no_text_is_in_base64(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """All of its words, under a name that says so."""
    home.create(RUN).write_manifest({"schema": "manifest/1", "command": ["rm", "\udcff"]})
    assert main(["ls", "--json"]) == 0
    (run,) = json.loads(capfd.readouterr().out)["runs"]
    assert [b64decode(word) for word in run["command_b64"]] == [b"rm", b"\xff"]
    assert "command" not in run


def test_a_run_whose_supervisor_died_is_unsealed_and_never_final(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """It is listed as such, nothing is resolved in text or JSON, `show` exits as `verify` does; events are there."""
    run = make_run(home, sealed=False)
    run.completion.write_text(json.dumps(GOOD))
    main(["ls"])
    assert "unsealed" in capfd.readouterr().out
    assert main(["show", "last"]) == 1
    assert "final\n" not in capfd.readouterr().out
    assert main(["show", "last", "--format", "json"]) == 1
    shown = json.loads(capfd.readouterr().out)
    assert {shown[name]["verdict"] for name in ("finality", "separation", "scope")} == {"unresolved"}
    assert main(["verify", "last"]) == 1
    run.completion.unlink()
    assert main(["show", "last"]) == 1
    assert capfd.readouterr().out.count("unresolved") == 3
    assert main(["show", "last", "--format", "json"]) == 1
    assert capfd.readouterr().out == ""
    assert main(["events", "last"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 3


def test_an_altered_verdict_is_shown_as_unverified_and_fails(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever reads only the first line reads that it does not hold."""
    run = make_run(home)
    run.completion.write_bytes(run.completion.read_bytes().replace(b'"clean"', b'"dirty"'))
    assert main(["show", "last"]) == 1
    told = capfd.readouterr()
    assert told.out.startswith("unverified  ")
    assert "does not verify" in told.err
    assert main(["show", "last", "--format", "json"]) == 1
    assert capfd.readouterr().out == ""
    assert main(["verify", "last"]) == 1


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (lambda run: run.completion.write_text("{}"), "completion.json was altered and cannot be read"),
        (lambda run: run.completion.write_bytes(b"\0"), "completion.json was altered and cannot be read"),
        (lambda run: run.completion.unlink(), "completion.json is not there"),
    ],
)
def test_a_sealed_run_whose_argument_cannot_be_read_was_judged(
    home: Home, capfd: pytest.CaptureFixture[str], alter: Callable[[RunDir], object], why: str
) -> None:
    """It is told as one whose verdicts are not shown, with the reason; only one without a seal was never judged."""
    run = make_run(home)
    alter(run)
    assert main(["show", "last"]) == 1
    told = capfd.readouterr().out
    assert told.count(f"unresolved (not shown: {why})") == 3
    assert "never judged" not in told
    main(["ls"])
    assert f"{run.id}  unreadable" in capfd.readouterr().out


@pytest.mark.parametrize("cut_bytes", [0, 7])
def test_a_run_without_a_seal_was_never_judged(home: Home, capfd: pytest.CaptureFixture[str], cut_bytes: int) -> None:
    """Also where its supervisor was killed in the middle of a frame."""
    segment = make_run(home, sealed=False).log / "000000.seg"
    with segment.open("r+b") as log:
        log.truncate(segment.stat().st_size - cut_bytes)
    assert main(["show", "last"]) == 1
    told = capfd.readouterr().out
    assert told.count("(never judged: the run was not sealed)") == 3
    assert "not shown" not in told


def test_an_altered_frame_is_named(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """`verify` says which frame, with exit code 1."""
    run = make_run(home)
    segment = run.log / "000000.seg"
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    assert main(["verify", RUN]) == 1
    assert "frame 0" in capfd.readouterr().err


def test_verify_tells_bad_from_unreadable(home: Home) -> None:
    """1 for a log that is not as it was, 125 for one that cannot be read, and the worst of several."""
    good = make_run(home)
    empty = home.create("20261130-090000-aaaa")
    empty.write_manifest({})
    assert main(["verify", "20261130-090000-aaaa"]) == 125
    assert main(["verify", good.id, empty.id]) == 125


def test_all_runs_are_verified_a_line_each_and_counted(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """The worst of them gives the code, whatever stands before or after it, and none is left out of the count."""
    make_run(home)
    make_run(home, "20261130-080643-zzzz")
    assert main(["verify", "all"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "2 runs: 2 good"
    altered = make_run(home, "20261130-080641-aaaa")
    altered.completion.write_bytes(b"{}")
    assert main(["verify", "all"]) == 1
    told = capfd.readouterr()
    assert [line.split(":")[0] for line in told.out.splitlines()] == [RUN, "20261130-080643-zzzz", "3 runs"]
    assert told.out.endswith("3 runs: 2 good, 1 bad\n")
    assert len(told.err.splitlines()) == 1
    assert told.err.startswith(f"{altered.id}: bad: ")
    home.create("20261130-090000-aaaa", owner=DEAD).write_manifest({})
    assert main(["verify", "all"]) == 125
    assert capfd.readouterr().out.endswith("4 runs: 2 good, 1 bad, 1 unreadable\n")
    assert main(["verify", RUN, altered.id]) == 1
    assert capfd.readouterr().out.endswith("2 runs: 1 good, 1 bad\n")


def test_of_all_runs_one_that_still_runs_is_told_and_is_not_bad(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """Its log goes on while it is read. Whose supervisor died is bad, and so is one that is asked about by name."""
    make_run(home)
    running = home.create("20261130-090000-aaaa")
    manifest = running.write_manifest({"schema": "manifest/1", "command": ["true"]})
    log = LogWriter.create(running.log, manifest_digest=digest(manifest))
    log.record(lambda n: TrialReleased(n=n, time_ns=2, origin=Origin.SUPERVISOR))
    assert main(["verify", "all"]) == 0
    told = capfd.readouterr()
    assert told.out.endswith("2 runs: 1 good, 1 still running\n")
    assert told.err == f"{running.id}: still running: not verified\n"
    assert main(["verify", running.id]) == 1
    running.write_owner(DEAD)
    assert main(["verify", "all"]) == 1
    assert capfd.readouterr().out.endswith("2 runs: 1 good, 1 bad\n")


def test_all_of_no_runs_is_not_good(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """A home that was emptied, or the wrong one, verifies nothing; a run that is gone from others is named."""
    assert main(["verify", "all"]) == 125
    assert "expected at least one run, got none" in capfd.readouterr().err
    make_run(home)
    register(home.path, "20261130-070000-gone", at="2026-11-30T07:00:00Z", manifest="sha256:" + "0" * 64)
    assert main(["verify", "all"]) == 0
    assert "1 run of 1 that were started here is not there any more" in capfd.readouterr().err


def test_a_reference_that_means_nothing_is_told_before_the_first_answer(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody takes the lines before it for the whole answer."""
    make_run(home)
    assert main(["verify", "last", "nothing"]) == 125
    assert capfd.readouterr().out == ""


def test_events_are_filtered_by_kind_or_by_subject(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """One JSON object a line, with its time, and bad bytes as base64."""
    make_run(home)
    assert main(["events", "last", "--kind", "file.deleted"]) == 0
    (event,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (event["n"], event["kind"], event["t"]) == (2, "file.deleted", "2001-09-09T01:46:40.000000003Z")
    assert "path_b64" in event
    main(["events", "last", "--kind", "trial"])
    assert [json.loads(line)["n"] for line in capfd.readouterr().out.splitlines()] == [0, 1, 3]


def test_why_prints_the_conclusion_and_the_events(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """By number, by process and by verdict."""
    make_run(home)
    assert main(["why", "last", "2"]) == 0
    assert "file.deleted" in capfd.readouterr().out
    assert main(["why", "last", "finality"]) == 0
    assert capfd.readouterr().out.startswith("finality: final\n")
    assert main(["why", "last", "no-such-path"]) == 125
    assert "no-such-path" in capfd.readouterr().err


def test_why_of_a_range_counts_what_built_the_box(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """The log tells when CMD was let go, and which processes are the box's."""
    run = home.create(RUN)
    log = LogWriter.create(run.log, manifest_digest=digest(run.write_manifest({"schema": "manifest/1"})))
    box = ProcessKey(411, 7000)
    held = {"process": MAIN, "init": box, "helpers": (box,), "cgroup": 1, "realtime_offset_ns": 10**18}
    log.record(lambda n: TrialHeld(n=n, time_ns=1, origin=Origin.SUPERVISOR, **held))  # type: ignore[arg-type]
    log.record(lambda n: FileDeleted(n=n, time_ns=2, process=MAIN, path=b"/canary"))
    log.record(lambda n: TrialReleased(n=n, time_ns=3, origin=Origin.SUPERVISOR))
    log.record(lambda n: FileDeleted(n=n, time_ns=4, process=MAIN, path=b"/w/x"))
    log.record(lambda n: FileDeleted(n=n, time_ns=5, process=box, path=b"/canary"))
    log.checkpoint()
    assert main(["why", "last", "0-9"]) == 0
    shown = capfd.readouterr().out.splitlines()
    assert [entry.split()[0] for entry in shown] == ["0", "2", "3", "4", "…"]
    assert ["(the box)" in entry for entry in shown] == [False, False, False, True, False]
    assert "1 of the box being built" in shown[-1]


def test_show_exits_as_verify_does(home: Home) -> None:
    """However a log is bad, a script that asks for the report learns it from the exit code."""
    run = make_run(home)
    segment = run.log / "000000.seg"
    whole = segment.read_bytes()
    for data in (whole[:-1], whole[: len(whole) // 2], bytes([whole[0] ^ 1]) + whole[1:], b"", None):
        segment.unlink(missing_ok=True)
        if data is not None:
            segment.write_bytes(data)
        verified = main(["verify", RUN])
        assert verified in {1, 125}
        assert main(["show", RUN]) == verified
        assert main(["show", RUN, "--format", "json"]) == verified
    segment.write_bytes(whole)
    assert main(["show", RUN]) == main(["verify", RUN]) == 0


def test_a_path_that_nothing_was_concluded_about_is_looked_for_in_the_log(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    """What was only read or refused is in no argument, but it happened; what never happened is an error."""
    make_run(home)
    assert main(["why", "last", "/w/\udcff\x1b"]) == 0
    told = capfd.readouterr().out
    assert "nothing was concluded about it" in told
    assert "file.deleted" in told
    assert "\x1b" not in told
    assert main(["why", "last", "/w/never"]) == 125


def test_what_names_nothing_is_an_error(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """An event that is not there, a kind that does not exist: nothing printed would read as `nothing happened`."""
    make_run(home)
    assert main(["why", "last", "9999"]) == 125
    assert "it has 4 events" in capfd.readouterr().err
    assert main(["why", "last", "3-9999"]) == 0
    assert main(["events", "last", "--kind", "file.deletd"]) == 125
    assert "did you mean file.deleted?" in capfd.readouterr().err
    assert main(["events", "last", "--kind", "socket"]) == 0


def test_what_was_done_with_the_stage_afterwards_is_told(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """The verdicts were given before it, and one of them does not know of it."""
    run = make_run(home)
    assert main(["show", "last"]) == 0
    assert capfd.readouterr().err == ""
    (run.path / "afterwards.json").write_text('{"what": "committed", "at": "2026-11-30T08:07:00Z"}')
    assert main(["show", "last", "--format", "json"]) == 0
    assert "2026-11-30T08:07:00Z, its staged writes were applied" in capfd.readouterr().err
    assert main(["show", "last"]) == 0
    told = capfd.readouterr()
    assert "2026-11-30T08:07:00Z, its staged writes were applied" in told.out
    assert told.err == ""
    (run.path / "afterwards.json").write_text('{"what": "discarded", "at": "2026-11-30T08:07:00Z"}')
    assert main(["show", "last"]) == 0
    assert "were discarded" in capfd.readouterr().out


def test_a_run_that_is_not_there_is_125(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    """An empty home has no last run, and says so in ls."""
    assert home.all() == ()
    assert main(["show", "last"]) == 125
    assert "last" in capfd.readouterr().err
    assert main(["ls"]) == 0
    assert capfd.readouterr().out == "no runs\n"
