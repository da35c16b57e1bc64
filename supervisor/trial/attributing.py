"""What the kernel knows of a flow that the gateway tells of: whose it is, and when the trial did its part.

The rule it keeps: a port is used again and again. What the kernel knows of a socket that was begun after the gateway
had accepted, or been asked, is about another flow, and is left out.
"""

from __future__ import annotations

from msgspec import structs

from probes.kernel.witness import Dial
from supervisor.events import Event, FlowTold, NameAsked


def attribute(event: Event, dial: Dial | None) -> Event:
    """Give an event of the gateway with its process, and with the times of the trial's part in it.

    Args:
        event: as the gateway told it.
        dial: what the kernel knows of the socket that last began to send from the trial's end of the flow.
    """
    if dial is None:
        return event
    known = structs.replace(event, process=dial.process)
    taken_ns = getattr(event, "opened_ns", 0) or event.time_ns
    if not isinstance(known, FlowTold) or dial.begun_ns is None or dial.begun_ns > taken_ns:
        return known
    if isinstance(known, NameAsked) and known.transport == "udp":
        return known  # one socket may have asked again since: the moment of each question came with it
    return structs.replace(known, attempted_ns=dial.begun_ns, said_ns=dial.said_ns, left_ns=dial.left_ns)
