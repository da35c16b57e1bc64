"""What stands for the service of a gateway where one connection is tried alone."""

from __future__ import annotations

from typing import Any

from policies.network import NetworkRules
from policies.types import NetworkDefault
from probes.gateway.loop import Loop
from supervisor.events import Event, Origin


class Listening:
    """Stands for the service of a gateway, and keeps what it is told."""

    origin = Origin.GATEWAY

    def __init__(self, *, rules: NetworkRules | None = None, inspecting: Any = None) -> None:
        """Begin with nothing told.

        Args:
            rules: what is allowed; nothing when left out.
            inspecting: what reads inside TLS, or stands for it.
        """
        self.loop, self.inspecting = Loop(), inspecting
        self.rules = NetworkRules.from_texts(NetworkDefault.DENY) if rules is None else rules
        self.received_bytes = 0
        self.told: list[Event] = []

    def tell(self, told: Any, *_: object) -> None:
        """Keep what is told."""
        self.told.append(told if isinstance(told, Event) else told())

    def look_at(self, *_: object) -> None:
        """Look for no decoys."""

    def ended(self, _: object) -> None:
        """Stop, since the one connection has ended."""
        self.loop.stop()
