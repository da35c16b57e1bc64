"""What a verified log is said to be, in one line."""

from __future__ import annotations

from supervisor.log.verify import Verified


def verified_line(run: str, verified: Verified, *, ours: bool) -> str:
    """Say what was verified.

    Args:
        run: id.
        verified: what the verifier gave.
        ours: the key is one of this home's.
    """
    parts = [f"{verified.frames} frames", f"{verified.events} events", f"root {verified.root}"]
    if verified.key is None:
        parts.append("not signed: whoever could write these files could have written others")
    else:
        parts += [
            f"{verified.checkpoints} checkpoints",
            f"key {verified.key} ({'ours' if ours else 'not of this home'})",
        ]
    if verified.witnessed:
        parts.append(f"extends {verified.witnessed} witnessed checkpoints")
    return f"{run}: good: {', '.join(parts)}"
