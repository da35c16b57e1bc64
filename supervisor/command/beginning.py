"""The first moments of the command, before it has imported what it is made of.

In: the words of the command line. The rule it keeps: what takes long and needs none of us is begun here, so that it is
done when the rest of us has been imported. So it imports next to nothing itself.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from supervisor.streams import hold_streams, replace_missing

GARBAGE_OBJECTS = 50_000
"""How many new objects make Python look for garbage in cycles. We leave little; its own 700 cost a start 12 ms."""


def begin(words: Sequence[str]) -> frozenset[int]:
    """Hold the standard streams for good, and let the kernel verify our programs if there is a command.

    Args:
        words: of the command line, without the program's name.

    Returns:
        The standard streams that the caller had closed.
    """
    gc.set_threshold(GARBAGE_OBJECTS)
    closed = hold_streams()
    replace_missing()
    if "--" in words:
        from probes.kernel.early import begin_loading  # noqa: PLC0415 - only a trial needs it

        begin_loading()
        _import_msgspec()
    return closed


def _import_msgspec() -> None:
    """Import it without typing_extensions, of which it takes only what `typing` has too since 3.11, at 9 ms.

    Here alone: no other thread imports yet, which could miss it.
    """
    name = "typing_extensions"
    if name in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]  # as the language reference has it: importing it fails
    try:
        import msgspec  # noqa: F401, PLC0415
    except ImportError:
        return  # whoever needs it says so
    finally:
        del sys.modules[name]
