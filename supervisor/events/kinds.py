"""Every kind of event that can be in a log, by its wire name."""

from __future__ import annotations

from functools import cache

from supervisor import events
from supervisor.events.base import Event


@cache
def kinds() -> dict[str, type[Event]]:
    """Give every class of event; those that only hold common fields are left out."""
    found = [value for value in vars(events).values() if isinstance(value, type) and issubclass(value, Event)]
    return {str(kind.__struct_config__.tag): kind for kind in found if not kind.__subclasses__()}
