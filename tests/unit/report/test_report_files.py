"""Files and processes of the text report: what matters first, what there is much of in one line, all of it counted."""

from __future__ import annotations

import re
from typing import Any

from completions import completion, file, process
from supervisor.report.summary import summary
from supervisor.report.text import LIMIT, render_text


def scratch(path: str, **changes: Any) -> dict[str, Any]:
    """Make a file that was created and deleted again."""
    return file(path, net="unchanged", restored=True, history=["created", "deleted"]) | changes


def shown(title: str, **effects: list[dict[str, Any]]) -> list[str]:
    """Give the lines of a section, its heading first; the claim names nothing."""
    text = render_text(completion(claim={"outcome": None, "scope": ["**"]}, effects=effects))
    return text[text.index(f"\n{title} (") + 1 :].split("\n\n")[0].splitlines()


def told(lines: list[str]) -> int:
    """Count the files or processes that lines are about."""
    total = 0
    for entry in lines[1:]:
        many = re.search(r": (\d+) files: |… ([\d,]+) more not shown", entry)
        named = re.fullmatch(r"  came and went: .*? and (\d+) more.*", entry)
        if many:
            total += int((many[1] or many[2]).replace(",", ""))
        else:
            total += int(named[1]) + 3 if named else 1
    return total


def test_an_edit_is_shown_beside_what_git_keeps() -> None:
    """`.git/` is one line with counts, temporary files another; the edited file is told by name, before both."""
    git = [file(f".git/objects/{n:02x}", net="created", history=["created"]) for n in range(20)]
    locks = [scratch(f".git/{n}.lock") for n in range(5)]
    lines = shown("files", files=[*git, *locks, file(".git/index"), file("src/calc.py")])
    assert lines[:3] == [
        "files (27)",
        "  modified: src/calc.py [41]",
        "  .git/: 21 files: 20 created, 1 modified [41, 41, 41, 41, 41, 41, … 15 more]",
    ]
    assert lines[3].startswith("  came and went: .git/0.lock, .git/1.lock, .git/2.lock and 2 more")
    assert told(lines) == 27


def test_what_is_not_allowed_is_never_folded() -> None:
    """Neither among many files of a tree nor among many that came and went; nor is what was not compared."""
    git = [file(f".git/{n}") for n in range(20)] + [scratch(f".git/{n}.lock") for n in range(20)]
    bad = [file(".git/hooks/pre-commit", allowed=False), scratch(".git/x.lock", allowed=False)]
    lines = shown("files", files=[*git, *bad, file(".git/unknown", net=None)])
    assert lines[1] == "  modified: .git/hooks/pre-commit, not allowed [41]"
    assert lines[2] == "  came and went: .git/x.lock, not allowed [41]"
    assert lines[3] == "  modified (not compared with before): .git/unknown [41]"
    assert told(lines) == 43


def test_what_the_claim_names_is_never_folded() -> None:
    """An outcome in a hidden directory is told by name; with a claim about everything it is one of many."""
    files = [file(f".cache/{n}", in_scope=n == 3) for n in range(20)]
    about = {"outcome": ".cache/3", "scope": []}
    text = render_text(completion(claim=about, effects={"files": files}))
    assert "\n  modified: .cache/3 [41]\n  .cache/: 19 files: 19 modified" in text
    assert shown("files", files=files)[1].startswith("  .cache/: 20 files: 20 modified")


def test_few_files_have_a_line_each() -> None:
    """Three of a tree and three that came and went are told by name."""
    lines = shown("files", files=[file(f".git/{n}") for n in range(3)] + [scratch(f"t{n}") for n in range(3)])
    assert [entry.split(" [")[0] for entry in lines[1:]] == [
        *(f"  modified: .git/{n}" for n in range(3)),
        *(f"  came and went: t{n}" for n in range(3)),
    ]


def test_a_directory_with_very_many_files_makes_room_for_the_others() -> None:
    """Below the directory that all have in common; with nothing else to show, its files are shown."""
    built = [file(f"app/build/{n}.o", net="created") for n in range(40)]
    lines = shown("files", files=[*built, file("app/src/main.c"), file("app/README")])
    assert [entry.split(" [")[0] for entry in lines[1:]] == [
        "  modified: app/src/main.c",
        "  modified: app/README",
        "  app/build/: 40 files: 40 created",
    ]
    alone = shown("files", files=built)
    assert len(alone) == LIMIT + 2
    assert told(alone) == 40


def test_changed_and_put_back_comes_after_what_changed() -> None:
    """It is told even where many files changed for good."""
    lines = shown("files", files=[file(f"f{n}") for n in range(50)] + [file("draft", net="unchanged", restored=True)])
    assert lines[LIMIT + 1] == "  unchanged: draft, changed and put back [41]"
    assert told(lines) == 51


def test_names_that_are_no_text_are_grouped_too() -> None:
    """By their bytes, which a reader sees escaped."""
    odd = [file("x", path_b64=f"/2cv{'ABCD'[n]}Q==") for n in range(4)]
    for one in odd:
        del one["path"]
    lines = shown("files", files=odd)
    assert told(lines) == 4
    assert all("\\xffg/" in entry for entry in lines[1:])


def test_processes_that_ran_the_same_share_a_line() -> None:
    """CMD and what it started come first; what outlived the endpoint is told one by one, before all."""
    main = process(1)
    shims = [process(n, argv=["shim"], parent=main["id"]) for n in range(2, 30)]
    deep = process(40, argv=["deep"], parent=shims[0]["id"])
    late = process(41, argv=["late"], parent=main["id"])
    left = [process(n, argv=["shim"], outlived=True, parent=main["id"]) for n in (50, 51)]
    lines = shown("processes", processes=[main, *shims, deep, late, *left])
    assert lines == [
        "processes (33)",
        "  shim (pid 50, 50@50000), outlived the endpoint",
        "  shim (pid 51, 51@51000), outlived the endpoint",
        "  sleep 1 (pid 1, 1@1000)",
        "  shim (pid 2, 2@2000) and 27 others that ran the same",
        "  late (pid 41, 41@41000)",
        "  deep (pid 40, 40@40000)",
    ]


def test_the_summary_counts_what_stayed_apart_from_what_passed() -> None:
    """A scratch file is no changed file beside the number of changes that were applied."""
    stage = {"state": "applied", "changes": 2, "conflicts": [], "left_out": [], "why": None}
    files = [file("a"), file("b"), scratch("t"), file("c", net="unchanged", restored=True)]
    lines = list(summary(completion(effects={"files": files}, stage=stage)))
    assert "2 changed files (2 changes applied) and 2 put back or gone again," in "\n".join(lines)
    without = list(summary(completion(effects={"files": files[:2]}, stage=stage)))
    assert "2 changed files (2 changes applied), 0 connection" in "\n".join(without)
