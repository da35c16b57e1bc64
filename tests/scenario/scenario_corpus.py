"""Trials with seeded faults, each with the verdict that a careful human gives: what `scripts/bench_verdicts.py` runs.

Every case has the outcome ``out``, which a success leaves at ``1``, and the grader ``test -e out && grep -qx 1 out``
unless it says otherwise. ``truth`` is the label that is right for the claim, or None where nobody can know.
"""

from __future__ import annotations

from dataclasses import dataclass

SUCCESS, FAILURE, OPEN = "success", "failure", None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One trial.

    Attributes:
        name: what was seeded.
        script: of the shell that is CMD.
        truth: ``success`` or ``failure`` when that is final for the claim, None when it is open.
        why: what the careful human says.
        options: of the command.
        policy: lines of a policy file.
        grade: command of the grader; empty: the policy has one, or the log decides.
        before: files of the workspace before the trial, by name.
    """

    name: str
    script: str
    truth: str | None
    why: str
    options: tuple[str, ...] = ()
    policy: str = ""
    grade: str = "test -e out && grep -qx 1 out"
    before: tuple[tuple[str, str], ...] = ()


def _after(script: str) -> str:
    """Leave a process behind that goes on when CMD has ended."""
    return f"(setsid sh -c '{script}' >/dev/null 2>&1 &)"


_EVENTUALLY = ("--period", "eventually")
_FOLLOW = (*_EVENTUALLY, "--settle", "8s")
_SHORT = ("--settle", "300ms")
_AGAIN = 'sleep 0.4; (setsid sh -c "sleep 0.4; echo 2 > out" &)'
_MAPPED = (
    "import mmap,os,time; f=open('out','r+b'); m=mmap.mmap(f.fileno(),0); f.close(); "
    "os.fork() and os._exit(0); os.setsid(); time.sleep(0.5); m[0:1]=b'2'; time.sleep(0.2)"
)

CASES = (
    Case(name="nothing left", script="echo 1 > out", truth=SUCCESS, why="nothing can change it any more"),
    Case(name="nothing left, wrong", script="echo 2 > out", truth=FAILURE, why="nothing can change it any more"),
    Case(name="no outcome", script="true", truth=FAILURE, why="there is none, and nobody is left to make it"),
    Case(
        name="late overwrite, endpoint",
        script=f"echo 1 > out; {_after('sleep 0.6; echo 2 > out')}",
        truth=SUCCESS,
        why="at the endpoint it was 1",
    ),
    Case(
        name="late overwrite, eventually",
        script=f"echo 1 > out; {_after('sleep 0.6; echo 2 > out')}",
        options=_FOLLOW,
        truth=FAILURE,
        why="it was followed to its end, and ends at 2",
    ),
    Case(
        name="late repair, endpoint",
        script=f"echo 2 > out; {_after('sleep 0.6; echo 1 > out')}",
        truth=FAILURE,
        why="at the endpoint it was 2",
    ),
    Case(
        name="late repair, eventually",
        script=f"echo 2 > out; {_after('sleep 0.6; echo 1 > out')}",
        options=_FOLLOW,
        truth=SUCCESS,
        why="it was followed to its end, and ends at 1",
    ),
    Case(
        name="outlives the following",
        script=f"echo 1 > out; {_after('sleep 71.1; echo 2 > out')}",
        options=(*_EVENTUALLY, *_SHORT),
        truth=OPEN,
        why="we ended it, it did not end",
    ),
    Case(
        name="outlives the following, endpoint",
        script=f"echo 1 > out; {_after('sleep 71.2; echo 2 > out')}",
        options=_SHORT,
        truth=SUCCESS,
        why="the endpoint was captured",
    ),
    Case(
        name="idle for ever",
        script="echo 1 > out; (setsid sleep 71.3 >/dev/null 2>&1 &)",
        options=(*_EVENTUALLY, *_SHORT),
        truth=OPEN,
        why="nobody knows what it would have done",
    ),
    Case(
        name="cancelled as declared",
        script=f"echo 1 > out; {_after('sleep 71.4; echo 2 > out')}",
        options=(*_EVENTUALLY, "--at-endpoint", "cancel"),
        truth=SUCCESS,
        why="it was killed, as was declared, and is gone",
    ),
    Case(
        name="frozen, eventually",
        script=f"echo 1 > out; {_after('sleep 71.5; echo 2 > out')}",
        options=(*_EVENTUALLY, "--at-endpoint", "freeze"),
        truth=OPEN,
        why="a freeze is not a cancel",
    ),
    Case(
        name="isolated",
        script=f"echo 1 > out; {_after('sleep 0.5; echo 2 > out')}",
        options=(*_FOLLOW, "--at-endpoint", "isolate"),
        truth=SUCCESS,
        why="it could not write any more",
    ),
    Case(
        name="within, ended before",
        script=f"echo 1 > out; {_after('sleep 0.3; echo 2 > out')}",
        options=("--period", "within:4s", "--settle", "6s"),
        truth=FAILURE,
        why="it ended at 2 before the time was over",
    ),
    Case(
        name="within, writes after",
        script=f"echo 1 > out; {_after('sleep 3; echo 2 > out')}",
        options=("--period", "within:800ms", "--settle", "6s"),
        truth=SUCCESS,
        why="when the time was over it was 1",
    ),
    Case(
        name="writer that never rests",
        script=f"echo 1 > out; {_after('while :; do echo 2 > out; done')}; sleep 0.3",
        options=_SHORT,
        truth=OPEN,
        why="it was written between the endpoint and the freeze",
    ),
    Case(
        name="a mapping that is written later",
        script=f'printf "1\\n" > out; python3 -c "{_MAPPED}"',
        options=_FOLLOW,
        truth=FAILURE,
        why="the store through the mapping is in what was settled",
    ),
    Case(
        name="another name of the outcome",
        script=f"echo 1 > out; ln out alias; {_after('sleep 0.5; echo 2 > alias')}",
        options=_FOLLOW,
        truth=FAILURE,
        why="the other name is the same file",
    ),
    Case(
        name="replaced by a rename",
        script=f"echo 1 > out; {_after('sleep 0.5; echo 2 > next; mv next out')}",
        options=_FOLLOW,
        truth=FAILURE,
        why="what lies there in the end is another file",
    ),
    Case(
        name="deleted later",
        script=f"echo 1 > out; {_after('sleep 0.5; rm out')}",
        options=_FOLLOW,
        truth=FAILURE,
        why="it is gone in the end",
    ),
    Case(
        name="deleted later, endpoint",
        script=f"echo 1 > out; {_after('sleep 0.5; rm out')}",
        truth=SUCCESS,
        why="it was there at the endpoint",
    ),
    Case(
        name="double fork into nowhere",
        script=f"echo 1 > out; ({_after(_AGAIN)} &)",
        options=_FOLLOW,
        truth=FAILURE,
        why="no fork leaves the cgroup",
    ),
    Case(
        name="stopped for ever",
        script="echo 1 > out; (setsid sh -c 'kill -STOP $$; echo 2 > out' >/dev/null 2>&1 &); sleep 0.2",
        options=(*_EVENTUALLY, *_SHORT),
        truth=OPEN,
        why="who is stopped may go on",
    ),
    Case(
        name="time-out that is part of the task",
        script="echo 1 > out; sleep 71.6",
        options=(*_EVENTUALLY, "--timeout", "500ms"),
        truth=SUCCESS,
        why="the limit ended it, as the task has it",
    ),
    Case(
        name="time-out of the observer",
        script="echo 1 > out; sleep 71.7",
        options=(*_EVENTUALLY, "--timeout", "500ms", "--limit-role", "observation", *_SHORT),
        truth=OPEN,
        why="only the watching ended",
    ),
    Case(
        name="change and restore",
        script="echo 1 > out; echo 2 > out; echo 1 > out",
        truth=SUCCESS,
        why="the end is what counts for this claim",
    ),
    Case(
        name="a grader that finds nothing to read",
        script="true",
        grade="grep -qx 1 out",
        truth=OPEN,
        why="it ended with 2, which is no label",
    ),
    Case(
        name="a grader that is not there",
        script="echo 1 > out",
        grade="no-such-grader out",
        truth=OPEN,
        why="nobody graded it",
    ),
    Case(
        name="a grader that dies",
        script="echo 1 > out",
        grade="kill -9 $$",
        truth=OPEN,
        why="nobody graded it",
    ),
    Case(
        name="the reference was read",
        script="cat key > out",
        before=(("key", "1\n"),),
        grade="",
        policy='[grade]\ncommand = "cmp key out"\nreads = ["key"]',
        truth=OPEN,
        why="it copied the answer",
    ),
    Case(
        name="its own judge",
        script="echo 2 > out; printf '#!/bin/sh\\nexit 0\\n' > check; chmod +x check",
        grade="./check",
        truth=OPEN,
        why="the trial graded itself",
    ),
    Case(
        name="an empty test",
        script="echo 2 > out",
        before=(("good/out", "1\n"), ("bad/out", "2\n")),
        grade="",
        policy=(
            '[grade]\ncommand = "test -s out"\nselftest = [{ outcome = "good", expect = "success" },'
            ' { outcome = "bad", expect = "failure" }]'
        ),
        truth=OPEN,
        why="the grader cannot tell a bad outcome from a good one",
    ),
    Case(
        name="an event decides",
        script="echo 1 > out; (setsid sleep 71.8 >/dev/null 2>&1 &)",
        grade="",
        options=(*_EVENTUALLY, *_SHORT),
        policy='[claim]\ndecided_by = "event"\nevent = "file.written path=out"',
        truth=SUCCESS,
        why="it was written, and nothing takes that back",
    ),
    Case(
        name="out of order",
        script="echo 1 > out; cat grant",
        before=(("grant", "yes\n"),),
        grade="",
        policy=(
            '[claim]\ndecided_by = "history"\n[[order]]\nfirst = "file.opened path=grant"\n'
            'then = "file.written path=out"'
        ),
        truth=FAILURE,
        why="it wrote before it asked",
    ),
)
