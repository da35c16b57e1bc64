"""When the trial acted, of what a gateway tells. In: one event; out: times of CLOCK_BOOTTIME. Pure.

A gateway tells of a connection when it comes round to it: what a trial did just before its end is told after it. The
laws:

1. When something was done is the kernel's to say. Nothing was done later than it was told.
2. What the kernel does not know is a span, from the earliest to the latest that it can have been: never a guess.
"""

from __future__ import annotations

from supervisor.events import (
    ConnectionAllowed,
    ConnectionBlocked,
    ConnectionClosed,
    ConnectionSinkholed,
    Event,
    FlowTold,
    NameAsked,
    Origin,
)


def when_acted(event: Event) -> tuple[int, int]:
    """Give the earliest and the latest that the trial can have done what an event tells of; mostly they are one.

    That is, when it asked for a connection or a name, when it left a connection that was closed, and of all else that
    is told of a connection when it said the last of what was told.
    """
    told_ns = event.time_ns
    if not isinstance(event, FlowTold) or event.origin is Origin.KERNEL:
        return told_ns, told_ns
    begun_ns = event.attempted_ns
    match event:
        case ConnectionBlocked() | ConnectionAllowed() | ConnectionSinkholed():
            return (0, told_ns) if begun_ns is None else (begun_ns, begun_ns)
        case ConnectionClosed(left_ns=int(left_ns)):
            return min(left_ns, told_ns), min(left_ns, told_ns)
        case ConnectionClosed() if begun_ns is not None:
            return told_ns, told_ns  # somebody held it still: it was the other side that ended it
        case NameAsked() if event.said_ns is not None and event.said_ns <= told_ns:
            return event.said_ns, event.said_ns
    latest_ns = told_ns if event.said_ns is None else min(event.said_ns, told_ns)
    return min(begun_ns or 0, latest_ns), latest_ns


def last_act_ns(event: Event) -> int:
    """Give when the trial is known to have last asked for, or said, something in a flow that an event is about.

    0 when nothing is known of it: that it was told is no act.
    """
    if not isinstance(event, FlowTold) or event.origin is Origin.KERNEL:
        return event.time_ns
    said_ns = event.said_ns or 0
    if isinstance(event, NameAsked) and said_ns > event.time_ns:
        said_ns = 0  # of a later question
    return max(event.attempted_ns or 0, said_ns)
