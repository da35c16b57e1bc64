"""The text report: verdicts first, then why, shortened with counts, and harmless."""

from __future__ import annotations

import io

import pytest

from completions import completion, file, open_effect, process
from supervisor.report.colour import print_coloured
from supervisor.report.lines import plain
from supervisor.report.summary import summary
from supervisor.report.text import LIMIT, NOT_SAFE, render_text, report_lines

HOSTILE = "x\x1b[2J\rfinality    final\n\u202e"


def test_the_three_verdicts_are_the_first_three_lines() -> None:
    """Whatever there is to say, the answers come first, each line beginning with its question."""
    head = render_text(completion()).splitlines()[:3]
    assert [entry.split()[:2] for entry in head] == [
        ["finality", "final"],
        ["separation", "separate"],
        ["scope", "clean"],
    ]


def test_the_report_says_that_good_verdicts_do_not_mean_safe() -> None:
    """Final and clean are claims about what was witnessed."""
    assert NOT_SAFE in render_text(completion())


def test_an_unverified_report_says_so_before_anything_else() -> None:
    """A verdict that the log does not vouch for is never told without that."""
    lines = plain(report_lines(completion(), run="r", problem="frame 3: changed")).splitlines()
    assert lines[0] == "unverified  frame 3: changed"
    assert all("(unverified)" in entry for entry in lines[1:4])
    assert "sealed and verified" not in "\n".join(lines)


def test_a_run_that_was_never_judged_is_unresolved() -> None:
    """There is no completion argument, so there is no good verdict."""
    lines = plain(report_lines(None, run="r", problem="no seal")).splitlines()
    assert [entry.split()[:2] for entry in lines[1:4]] == [
        [n, "unresolved"] for n in ("finality", "separation", "scope")
    ]


def test_reasons_cite_their_events() -> None:
    """Why follows the verdicts, with the numbers that `why` takes."""
    text = render_text(
        completion(
            finality={
                "verdict": "unresolved",
                "reasons": [{"rule": "live-process", "text": "sleep 61.5 was alive", "events": list(range(9))}],
            }
        )
    )
    assert "finality: sleep 61.5 was alive [0, 1, 2, 3, 4, 5, … 3 more]" in text


def test_what_is_left_out_is_counted() -> None:
    """Of many processes the first are shown, those that outlived the endpoint before all others."""
    processes = [process(n) for n in range(1, 3000)] + [process(3000, outlived=True)]
    text = render_text(completion(effects={"processes": processes}))
    shown = text[text.index("processes (3,000)") :].splitlines()
    assert shown[1] == "  sleep 3000 (pid 3000, 3000@3000000), outlived the endpoint"
    assert shown[LIMIT + 1] == f"  … {3000 - LIMIT:,} more not shown: supervise show RUN --format json"


def test_files_that_are_not_allowed_come_first() -> None:
    """Among many changed files the violation is not left out."""
    files = [file(f"f{n}") for n in range(50)] + [file("draft.md", allowed=False, restored=True, net="unchanged")]
    text = render_text(completion(effects={"files": [*files, file("read-only", history=[], history_total=0)]}))
    first = text[text.index("files (51)") :].splitlines()[1]
    assert first == "  unchanged: draft.md, changed and put back, not allowed [41]"


def test_what_came_by_a_rename_and_was_deleted_came_and_went() -> None:
    """Nothing was put back there."""
    came = file("e/x", history=["renamed", "deleted"], net="unchanged", restored=False, renamed_from="d/x")
    text = render_text(completion(effects={"files": [came]}))
    assert text[text.index("files (1)") :].splitlines()[1] == "  came and went: e/x [41]"


def test_what_is_no_change_but_evidence_is_told() -> None:
    """A refused write, a contact outside the box, a refused call, and a private place after all others."""
    attempt = {"kind": "modified", "errno": 13, "process": None, "event": 5}
    effects = {
        "files": [file("/tmp/t", private=True), file("/etc/passwd", history=[], attempts=[attempt], events=[5])],
        "contacts": [{"what": "unix socket /x", "descriptor": False, "errno": None, "process": None, "events": [6]}],
        "refusals": [{"what": "mount", "errno": 1, "count": 2, "process": None, "events": [7]}],
    }
    text = render_text(completion(effects=effects))
    assert text[text.index("files (1)") :].splitlines()[1] == "  refused (EACCES): /etc/passwd [5]"
    own = text[text.index("private places and inherited descriptors (1)") :].splitlines()[1]
    assert own == "  modified: /tmp/t [41]"
    assert "  unix socket /x [6]" in text
    assert "  mount, 2 times [7]" in text


def test_names_that_are_no_text_are_shown_by_their_bytes() -> None:
    """Base64 is for machines."""
    odd = file("x", path_b64="/2JhZA==")
    del odd["path"]
    argv = process(1, argv_b64=["L2Jpbi9l", "/w=="], argv_truncated=True)
    del argv["argv"]
    text = render_text(completion(effects={"files": [odd], "processes": [argv]}))
    assert "modified: \\xffbad [41]" in text
    assert "/bin/e $'\\xff' … (pid 1, 1@1000)" in text


def test_open_effects_gaps_and_unwitnessed_routes_are_told() -> None:
    """What may still act, what is missing, and what nobody looks at."""
    gap = {"rule": "lost-events", "text": "3 events lost", "events": [7], "costs": ["scope"]}
    coverage = [{"route": "file", "witnesses": ["kernel"], "complete": False, "gaps": [gap]}]
    coverage += [{"route": "gpu memory", "witnesses": [], "complete": False, "gaps": []}]
    text = render_text(completion(open_effects=[open_effect("o1")], coverage=coverage))
    assert "o1 process: sleep 300 (pid 12): pending, observed, could affect outcome [88]" in text
    assert "file: 3 events lost [7]" in text
    assert "witnessed by nobody: gpu memory" in text


def test_names_that_were_made_visible_before_are_not_escaped_twice() -> None:
    """Sentences of the verdicts already show names harmlessly; a name itself is escaped once."""
    reasons = [{"rule": "r", "text": r"a\x1bb\n was written" + "\x1b", "events": []}]
    assert r"finality: a\x1bb\n was written\x1b" in render_text(completion(finality={"reasons": reasons}))


def hostile_completion() -> str:
    """Render an argument in which everything that the trial can name is hostile."""
    return render_text(
        completion(
            command=["sh", HOSTILE],
            claim={"outcome": HOSTILE},
            effects={
                "processes": [process(1, argv=[HOSTILE])],
                "files": [file(HOSTILE)],
                "network": [
                    {
                        "protocol": "tcp",
                        "host": HOSTILE,
                        "ip": None,
                        "port": 443,
                        "decision": "blocked",
                        "bytes_out": 0,
                        "bytes_in": 0,
                        "process": None,
                        "events": [],
                    }
                ],
                "credentials": [{"kind": "file", "name": HOSTILE, "action": "read", "process": None, "events": []}],
            },
            open_effects=[open_effect("o1", what=HOSTILE)],
            finality={"verdict": "unresolved", "reasons": [{"rule": "r", "text": HOSTILE, "events": []}]},
            scope={"verdict": "violated", "violations": [{"rule": "r", "text": HOSTILE, "events": []}]},
        )
    )


def test_hostile_names_neither_act_nor_forge_a_line() -> None:
    """No escape sequence, no reordering, and no line of the report that the trial wrote."""
    text = hostile_completion()
    assert not {"\x1b", "\r", "\u202e"} & set(text)
    assert [entry for entry in text.splitlines() if entry.startswith("finality")] == ["finality    unresolved"]


def test_colour_takes_no_markup_from_names() -> None:
    """Square brackets in a name are text."""
    out = io.StringIO()
    lines = list(report_lines(completion(effects={"files": [file("[red]x[/red] :smile:")]}), run="r"))
    print_coloured(lines, out)
    assert "[red]x[/red] :smile:" in out.getvalue()
    assert out.getvalue() == plain(lines)


@pytest.mark.parametrize("bad", [False, True])
def test_the_summary_is_short(bad: bool) -> None:  # noqa: FBT001  (a parameter of the test)
    """The verdicts, what speaks against them, counts, and where to read on."""
    reasons = [{"rule": "r", "text": HOSTILE * 20, "events": [1]}]
    argument = completion(
        finality={"verdict": "unresolved", "reasons": reasons},
        separation={"verdict": "unresolved", "reasons": reasons},
        scope={"verdict": "violated", "violations": reasons},
    )
    lines = list(summary(argument if bad else completion()))
    assert 3 <= len(lines) <= 6
    assert all(entry.startswith("supervise: ") and entry.isprintable() for entry in lines)
    assert "supervise show 20261130-080642-k3f9" in lines[-1]


def test_the_name_of_a_run_is_in_its_report_and_summary() -> None:
    """What the caller called it, harmlessly; a run without a name has no empty place for it."""
    named = completion(name="nightly 3\x1b[2J")
    assert "\nrun         20261130-080642-k3f9 (nightly 3\\x1b[2J), policy default\n" in render_text(named)
    assert list(summary(named))[-1].endswith("supervise show 20261130-080642-k3f9 (nightly 3\\x1b[2J)")
    assert "\nrun         20261130-080642-k3f9, policy default\n" in render_text(completion())
    assert list(summary(completion()))[-1].endswith("supervise show 20261130-080642-k3f9")


def test_a_long_reason_is_told_without_its_names_where_it_says_what_it_means_before_them() -> None:
    """No sentence of the summary ends in the middle; the report has the names beside the reason."""
    what = "changes that stay, which a later run can meet; about counting runs, not about this one's label"
    reason = {"rule": "open-route", "text": f"{what}: {'a/long/name, ' * 20}z", "events": [1]}
    argument = completion(separation={"verdict": "unresolved", "reasons": [reason]})
    assert f"supervise: separation: {what} [1]" in list(summary(argument))
    assert f"separation  unresolved: {what}\n" in render_text(argument)
    assert "a/long/name, z" in render_text(argument)
    other = completion(separation={"verdict": "unresolved", "reasons": [reason | {"rule": "gap"}]})
    assert any(entry.startswith("supervise: separation: changes") and "…" in entry for entry in summary(other))
