"""What doctor answers with: values, and their two renderings.

A finding is one question to the machine and one of three answers. ``no`` and ``could not be tested`` differ on purpose:
the second is a question that somebody with more rights must ask again, and it never stands in for a ``yes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from textwrap import wrap

SCHEMA = "examination/1"

FINALITY = "finality"
SEPARATION = "separation"
SCOPE = "scope"
EVERY_VERDICT = (FINALITY, SEPARATION, SCOPE)


class Answer(StrEnum):
    """The three answers."""

    YES = "yes"
    NO = "no"
    UNTESTED = "could not be tested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One question and its answer.

    Attributes:
        name: short and stable; tests name it as the capability they need.
        group: the heading it stands under.
        asks: the question in a few words.
        detail: what was found, in one line.
        hint: what to do when the answer is not yes, or None.
        costs: the verdicts that are ``unresolved``, or cannot be had, without it.
        needed: the main job cannot be done without it.
    """

    name: str
    group: str
    asks: str
    answer: Answer
    detail: str = ""
    hint: str | None = None
    costs: tuple[str, ...] = ()
    needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What one probe found; the question's own words are added by `Question.ask`.

    ``hint`` stands in for that of the question, where another way out is the right one.
    """

    answer: Answer
    detail: str = ""
    hint: str | None = None


def yes(detail: str = "") -> Answered:
    """It is there and was seen to work."""
    return Answered(answer=Answer.YES, detail=detail)


def no(detail: str) -> Answered:
    """It is not there, or was tried and refused."""
    return Answered(answer=Answer.NO, detail=detail)


def untested(detail: str) -> Answered:
    """It could not be asked here; ``detail`` says why."""
    return Answered(answer=Answer.UNTESTED, detail=detail)


def needs_root() -> Answered:
    """It could not be asked without root; asking again is all there is to do."""
    return Answered(
        answer=Answer.UNTESTED, detail="trying it takes root", hint="ask again as root: sudo supervise doctor"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question before it is asked: the fields of `Finding`, and the probe that answers."""

    name: str
    group: str
    asks: str
    probe: Callable[[], Answered]
    hint: str | None = None
    costs: tuple[str, ...] = ()
    needed: bool = False

    def ask(self) -> Finding:
        """Ask it. A probe that fails in a way nobody thought of has not answered ``no``: it could not be tested."""
        try:
            answered = self.probe()
        except Exception as error:  # noqa: BLE001 -- one broken probe must not hide the other answers
            answered = untested(f"{type(error).__name__}: {error}")
        return Finding(
            name=self.name,
            group=self.group,
            asks=self.asks,
            answer=answered.answer,
            detail=answered.detail,
            hint=None if answered.answer is Answer.YES else answered.hint or self.hint,
            costs=self.costs,
            needed=self.needed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings of one machine, in the order they were asked."""

    machine: str
    state_dir: str
    findings: tuple[Finding, ...]

    @property
    def able(self) -> bool:
        """The main job can be done here: every needed question was answered ``yes``."""
        return all(finding.answer is Answer.YES for finding in self.findings if finding.needed)

    @property
    def exit_code(self) -> int:
        """0 when the main job can be done here, else 1."""
        return 0 if self.able else 1

    def answer(self, name: str) -> Answer:
        """Give the answer to one question.

        Raises:
            KeyError: no question has that name.
        """
        return next_or_key_error(name, self.findings).answer

    @property
    def costs(self) -> tuple[str, ...]:
        """The verdicts that something missing here costs."""
        lost = {cost for finding in self.findings if finding.answer is not Answer.YES for cost in finding.costs}
        return tuple(verdict for verdict in EVERY_VERDICT if verdict in lost)


def next_or_key_error(name: str, findings: Iterable[Finding]) -> Finding:
    """Find one by name.

    Raises:
        KeyError: none has it.
    """
    for finding in findings:
        if finding.name == name:
            return finding
    raise KeyError(name)


def to_json(examination: Examination) -> dict[str, object]:
    """Give the form that ``supervise doctor --json`` prints."""
    return {
        "schema": SCHEMA,
        "able": examination.able,
        "costs": list(examination.costs),
        "machine": examination.machine,
        "state_dir": examination.state_dir,
        "answers": [
            {
                "name": finding.name,
                "group": finding.group,
                "asks": finding.asks,
                "answer": finding.answer.value,
                "detail": finding.detail,
                "hint": finding.hint,
                "costs": list(finding.costs),
                "needed": finding.needed,
            }
            for finding in examination.findings
        ],
    }


MARKS = {Answer.YES: "yes", Answer.NO: "NO", Answer.UNTESTED: "?"}
COLOURS = {Answer.YES: "\x1b[32m", Answer.NO: "\x1b[31m", Answer.UNTESTED: "\x1b[33m"}
NAME_WIDTH = 18
ANSWER_WIDTH = 5
INDENT = NAME_WIDTH + ANSWER_WIDTH + 2


def render_text(examination: Examination, *, width: int = 110, colour: bool = False) -> str:
    """Give the table that ``supervise doctor`` prints: the conclusion first, then every question under its heading."""
    lines = [*_conclusion(examination), f"machine: {examination.machine}", f"state: {examination.state_dir}"]
    group = ""
    for finding in examination.findings:
        if finding.group != group:
            group = finding.group
            lines += ["", group]
        lines += _rows(finding, width, colour=colour)
    lines += ["", "yes: seen to work here · NO: missing or refused · ?: could not be tested · *: the main job needs it"]
    return "\n".join(lines) + "\n"


def _conclusion(examination: Examination) -> list[str]:
    wanting = [finding for finding in examination.findings if finding.answer is not Answer.YES]
    lacking = [finding.name for finding in wanting if finding.needed]
    if lacking:
        return [f"The main job cannot be done here; it lacks: {', '.join(lacking)}."]
    first = "The main job can be done here."
    if examination.costs:
        names = ", ".join(finding.name for finding in wanting if finding.costs)
        first += f" What is not there ({names}) can cost: {', '.join(examination.costs)}."
    return [first]


def _rows(finding: Finding, width: int, *, colour: bool) -> list[str]:
    mark = MARKS[finding.answer].ljust(ANSWER_WIDTH)
    if colour:
        mark = f"{COLOURS[finding.answer]}{mark}\x1b[0m"
    name = finding.name + ("*" if finding.needed else "")
    body = wrap(f"{finding.asks}: {finding.detail}" if finding.detail else finding.asks, max(width - INDENT, 30))
    rows = [f"{name:<{NAME_WIDTH}} {mark} {body[0]}", *(" " * INDENT + line for line in body[1:])]
    return rows + [" " * INDENT + line for note in _notes(finding) for line in wrap(note, max(width - INDENT, 30))]


def _notes(finding: Finding) -> list[str]:
    if finding.answer is Answer.YES:
        return []
    notes = [f"-> {finding.hint}"] if finding.hint else []
    return notes + ([f"costs: {', '.join(finding.costs)}"] if finding.costs else [])
