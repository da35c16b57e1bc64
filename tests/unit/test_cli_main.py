"""The command: what it prints where, and its exit codes.

The machinery of a run is a stand-in that keeps its protocol.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from completions import completion
from supervisor.cli import main
from supervisor.errors import LaunchError
from supervisor.request import Outcome, Phase, Progress, RunRequest
from supervisor.verdict.completion import Completion

ROOT = Path(__file__).resolve().parents[2]


class Machinery:
    """Stands in for `supervisor.run`: keeps the requests, writes completion.json, tells progress."""

    def __init__(self, directory: Path, argument: Completion) -> None:
        """Begin with no requests."""
        self.requests: list[RunRequest] = []
        self.argument = argument
        self.directory = directory
        self.failure: Exception | None = None

    def run(self, request: RunRequest) -> Outcome:
        """Do what the line does, without doing anything."""
        self.requests.append(request)
        if self.failure is not None:
            raise self.failure
        request.on_progress(Progress(run="r", phase=Phase.HELD))
        request.on_progress(Progress(run="r", phase=Phase.SETTLING, elapsed_s=1.0, processes=1, events=9))
        (self.directory / "completion.json").write_bytes(b'{"run": "r"}\n')
        return Outcome(run="r", directory=self.directory, completion=self.argument)


@pytest.fixture
def machinery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machinery:
    """Put the stand-in where the command finds it, in an empty working directory."""
    stand_in, module = Machinery(tmp_path, completion()), ModuleType("supervisor.run")
    module.run = stand_in.run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "supervisor.run", module)
    monkeypatch.chdir(tmp_path)
    return stand_in


def test_a_run_is_asked_for_as_it_was_typed(machinery: Machinery, tmp_path: Path) -> None:
    """The request holds argv as bytes, the policy with the options, and where the caller is."""
    code = main(["--name", "n", "-t", "3s", "--env", "A=1", "--user", "u", "--", "sh", "-c", "\udcff x"])
    (request,) = machinery.requests
    assert code == 0
    assert request.argv == (b"sh", b"-c", b"\xff x")
    assert (request.name, request.user, request.cwd) == ("n", "u", tmp_path)
    assert request.policy.stop.wall_s == 3.0
    assert request.environ["A"] == "1"
    assert request.policy.credentials.env == ("A",)


def test_stdout_is_the_childs_and_the_summary_goes_to_stderr(
    machinery: Machinery, capfd: pytest.CaptureFixture[str]
) -> None:
    """We print nothing on stdout, and with -q nothing at all."""
    main(["--", "true"])
    told = capfd.readouterr()
    assert told.out == ""
    assert "finality final" in told.err
    main(["-q", "--", "true"])
    assert capfd.readouterr() == ("", "")
    assert machinery.requests[1].quiet


def test_json_prints_the_argument_as_it_was_written(machinery: Machinery, capfd: pytest.CaptureFixture[str]) -> None:
    """The bytes of completion.json, nothing else on stdout, no summary."""
    main(["--json", "--", "true"])
    assert capfd.readouterr() == ('{"run": "r"}\n', "")
    assert machinery.requests[0].json


def test_status_lines_are_json_objects(machinery: Machinery) -> None:
    """Each phase is a line, the last one says the exit code; a reader who has gone ends nothing."""
    reader, writer = os.pipe()
    assert main(["-q", "--status-fd", str(writer), "--", "true"]) == 0
    os.close(writer)
    with os.fdopen(reader, "rb") as lines:
        records = [json.loads(line) for line in lines]
    assert [record["phase"] for record in records] == ["held", "settling", "done"]
    assert records[-1] == {
        "phase": "done",
        "run": machinery.argument.run,
        "exit_code": 0,
        "endpoint": {"reason": "exit", "exit_code": 0, "signal": None},
        "executed": True,
        "exec_error": None,
    }
    assert machinery.requests[0].status_fd == writer


def test_progress_within_a_phase_is_passed_on_now_and_then(machinery: Machinery, tmp_path: Path) -> None:
    """However often the machinery tells, a reader is not flooded, and every change of phase is told."""
    with (tmp_path / "status").open("wb") as status:
        main(["-q", "--status-fd", str(status.fileno()), "--", "true"])
        tell = machinery.requests[0].on_progress
        for thousandth in range(1000):
            tell(Progress(run="r", phase=Phase.SETTLING, elapsed_s=1 + thousandth / 1000))
        tell(Progress(run="r", phase=Phase.SETTLED, elapsed_s=2.0))
    phases = [json.loads(line)["phase"] for line in (tmp_path / "status").read_bytes().splitlines()]
    assert phases[:3] == ["held", "settling", "done"]
    assert 4 <= phases.count("settling") <= 6
    assert phases[-1] == "settled"


def test_a_status_reader_that_has_gone_or_sleeps_holds_nothing(machinery: Machinery) -> None:
    """A closed pipe and a full one are both left alone."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    assert main(["-q", "--status-fd", str(writer), "--", "true"]) == 0
    os.close(reader)
    assert main(["-q", "--status-fd", str(writer), "--", "true"]) == 0
    os.close(writer)
    assert len(machinery.requests) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-option", "--", "true"],
        ["--settle", "2", "--", "true"],
        ["--status-fd", "999", "--", "true"],
        ["--workspace", "no-such-directory", "--", "true"],
        ["-p", "no-such-policy", "--", "true"],
        ["-p", "./no-such.toml", "--", "true"],
        ["--direct", "--commit", "never", "--", "true"],
    ],
)
def test_a_mistake_is_125_and_runs_nothing(
    machinery: Machinery, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """The option or its value is named on stderr, and nothing was asked of the machinery."""
    assert main(words) == 125
    told = capfd.readouterr()
    assert not machinery.requests
    assert told.out == ""
    assert words[0] in told.err or words[1] in told.err


def test_a_failure_of_the_machine_is_125_with_its_hint(machinery: Machinery, capfd: pytest.CaptureFixture[str]) -> None:
    """Message and hint are two lines; control characters in them do nothing."""
    machinery.failure = LaunchError("no bubblewrap\x1b[2J", hint="apt install bubblewrap")
    assert main(["--", "true"]) == 125
    assert capfd.readouterr().err == "supervise: no bubblewrap\\x1b[2J\n  apt install bubblewrap\n"


def test_a_bug_is_125_too(machinery: Machinery, capfd: pytest.CaptureFixture[str]) -> None:
    """Python's own exit code for an error, 1, could have been the child's."""
    machinery.failure = RuntimeError("boom")
    assert main(["--", "true"]) == 125
    assert "boom" in capfd.readouterr().err


def test_a_requirement_that_is_not_met_is_120_and_named(
    machinery: Machinery, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only the requirements asked for count."""
    machinery.argument = completion(separation={"verdict": "unresolved"})
    assert main(["-q", "--require", "final,clean", "--", "true"]) == 0
    assert main(["-q", "--require", "final,separate", "--", "true"]) == 120
    assert capfd.readouterr().err == "supervise: --require separate: not met\n"


def test_a_dry_run_shows_the_plan_and_runs_nothing(machinery: Machinery, capfd: pytest.CaptureFixture[str]) -> None:
    """Policy, digest and names that are left out; never a value of the environment."""
    assert main(["--dry-run", "--json", "--env", "X_TOKEN=s3cret", "--write", "a", "--", "sh", "-c", "x"]) == 0
    plan = json.loads(capfd.readouterr().out)
    assert plan["policy"]["document"]["files"]["write"] == ["a"]
    assert "X_TOKEN" in plan["environment"]["kept"]
    assert "s3cret" not in str(plan)
    assert main(["--dry-run", "--", "sh", "-c", "x\x1b"]) == 0
    assert "sh -c $'x\\x1b'" in capfd.readouterr().out
    assert not machinery.requests


def test_policy_commands_work_without_a_machine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """check, show and schema need no root and no home."""
    path = tmp_path / "p.toml"
    path.write_text('schema = 1\nname = "n"\n[stop]\nwall = "9s"\n')
    assert main(["policy", "check", str(path)]) == 0
    assert "good: policy n, sha256:" in capfd.readouterr().out
    assert main(["policy", "show", str(path)]) == 0
    assert 'wall = "9s"' in capfd.readouterr().out
    assert main(["policy", "schema"]) == 0
    assert json.loads(capfd.readouterr().out)["title"] == "supervise policy"
    path.write_text("schema = 1\n[network]\nallowed = []\n")
    assert main(["policy", "check", str(path)]) == 125
    assert "network.allowed: unknown key" in capfd.readouterr().err


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter of its own."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_importing_the_command_imports_nothing_heavy() -> None:
    """Start-up time is every trial's: what a subcommand needs, it imports itself."""
    code = "import sys, supervisor.cli; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = set(python(code).stdout.split())
    assert not loaded & {"msgspec", "rich", "psutil", "tomllib", "subprocess", "asyncio", "pyseccomp", "json"}


def test_the_package_keeps_its_function_when_the_module_of_that_name_is_imported() -> None:
    """`supervisor.run` is callable before and after `supervisor/run.py` is imported."""
    code = (
        "import sys, types, supervisor\n"
        "supervisor.run = types.ModuleType('supervisor.run')\n"
        "supervisor.other = 1\n"
        "print(callable(supervisor.run), supervisor.other, supervisor.Completion.__name__)"
    )
    assert python(code).stdout == "True 1 Completion\n"


def test_a_reader_that_leaves_early_ends_quietly() -> None:
    """`supervise policy schema | head -0` prints no traceback."""
    code = "import sys; from supervisor.cli import main; sys.exit(main(['policy', 'schema']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
