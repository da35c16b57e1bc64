"""A cgroup of the host in which a service has all its processes: the kernel says whether any is left."""

from __future__ import annotations

from pathlib import Path

from policies.types import ServiceStatus, Settle
from probes.services.answers import Answer, Question, bounded, read_absence, unknown


def ask(settle: Settle, question: Question) -> Answer:
    """Read it once; the cgroups below count too.

    Raises:
        OSError: it cannot be read.
    """
    path = Path(question.fill(settle.text("path") or ""))
    try:
        lines = (path / "cgroup.events").read_text().splitlines()
    except FileNotFoundError:
        return unknown(f"{path}: no cgroup of v2") if path.exists() else read_absence(settle, str(path))
    said = dict(line.split(" ", 1) for line in lines if " " in line)
    if said.get("populated") not in {"0", "1"}:
        return unknown(f"{path}: does not tell whether it is populated")
    populated = said["populated"] == "1"
    status = ServiceStatus.PENDING if populated else ServiceStatus.SETTLED
    return Answer(status=status, detail=bounded(f"{path}: populated {said['populated']}"))
