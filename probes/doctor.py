"""What this machine can witness and enforce, and which verdicts what is missing costs.

Goes in: the machine, and the state directory. Comes out: an `Examination`, made of values, with its JSON and its table.
`require_machine` is the quick look that every run takes first; `examine` tries each thing for real and takes about a
second.
"""

from __future__ import annotations

import os
from pathlib import Path

from probes.doctor_findings import Answer, Examination, Finding, render_text, to_json
from probes.doctor_preflight import require_machine

__all__ = ["Answer", "Examination", "Finding", "examine", "render_text", "require_machine", "to_json"]


def examine(state_dir: Path | None = None) -> Examination:
    """Ask every question.

    Args:
        state_dir: where runs are kept; None for the place that a run would use.
    """
    # Imported here because `require_machine` must stay quick: the questions bring subprocess and ctypes with them.
    import platform  # noqa: PLC0415

    from probes import doctor_box, doctor_host, doctor_kernel  # noqa: PLC0415

    place = state_dir or default_state_dir()
    questions = (*doctor_kernel.QUESTIONS, *doctor_box.questions(place), *doctor_host.questions(place))
    return Examination(
        machine=f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} processors",
        state_dir=str(place),
        findings=tuple(question.ask() for question in questions),
    )


def default_state_dir() -> Path:
    """Give the place where a run would be kept; it is neither made nor checked here."""
    if named := os.environ.get("SUPERVISE_HOME"):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/lib/supervise")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "supervise"
