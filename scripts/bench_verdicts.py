"""Run trials with seeded faults and compare every verdict with the one that a careful human gives.

Prints the confusion table, every wrong final (there must be none: exit code 1 otherwise), and every needless unresolved
with the reasons that were given.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "scenario")]

from scenario_corpus import CASES, Case  # noqa: E402 - after the path
from scenario_lab import Lab, Ran  # noqa: E402 - likewise

WORDS = ("success", "failure", "unresolved")


def run_case(case: Case, top: Path) -> Ran:
    """Run one case in a lab of its own below ``top``."""
    home, work = top / "home", top / "work"
    home.mkdir(mode=0o700, parents=True)
    work.mkdir()
    for name, text in case.before:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    policy = top / "policy.toml"
    policy.write_text(f"schema = 1\n{case.policy}\n")
    grade = ("--grade", case.grade) if case.grade else ()
    return Lab(home, work).sh(case.script, "--policy", str(policy), "--outcome", "out", *case.options, *grade)


def given(ran: Ran) -> str:
    """Give the label of a final verdict, else ``unresolved``."""
    finality = ran.report["finality"]
    return str(finality["label"]) if finality["verdict"] == "final" else "unresolved"


def wanted(case: Case) -> str:
    """Give the same of the truth."""
    return case.truth or "unresolved"


def is_wrong(case: Case, said: str) -> bool:
    """Tell whether a final verdict is none, or has the other label: the one mistake that must not be made."""
    return said not in {"unresolved", wanted(case)}


def is_needless(case: Case, said: str) -> bool:
    """Tell whether an outcome that a human calls final was left open."""
    return said == "unresolved" and case.truth is not None


def table(found: Sequence[tuple[Case, str]]) -> Iterator[str]:
    """Give the confusion table: a line a truth, a column a verdict."""
    counts = Counter((wanted(case), said) for case, said in found)
    yield f"{'truth':<12}" + "".join(f"{word:>12}" for word in WORDS)
    for truth in WORDS:
        yield f"{truth:<12}" + "".join(f"{counts[truth, word]:>12}" for word in WORDS)


def main(words: Sequence[str]) -> int:
    """Run, print, and give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", metavar="TEXT", help="run only the cases whose name has this in it")
    options = parser.parse_args(words)
    chosen = [case for case in CASES if not options.only or any(text in case.name for text in options.only)]
    found: list[tuple[Case, str]] = []
    notes: list[str] = []
    for case in chosen:
        with tempfile.TemporaryDirectory(prefix="verdicts-") as top:
            ran = run_case(case, Path(top))
        said = given(ran)
        found.append((case, said))
        if is_wrong(case, said):
            notes.append(f"WRONG FINAL  {case.name}: {said}, but {case.why}")
        if is_needless(case, said):
            reasons = "; ".join(reason["text"] for reason in ran.report["finality"]["reasons"][:2])
            notes.append(f"needless     {case.name}: {case.why}; it said: {reasons}")
    wrong = sum(is_wrong(case, said) for case, said in found)
    needless = sum(is_needless(case, said) for case, said in found)
    print("\n".join(table(found)))
    print(f"{len(found)} trials: {wrong} wrong final, {needless} needless unresolved")
    print("\n".join(notes))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
