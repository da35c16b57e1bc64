"""One call in a thread of its own, while its caller does something else: for waiting inside the kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """A call that has begun. Whoever makes one asks for its `result`, whatever happens in between."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Begin."""
        self._call = call
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="supervise-aside")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made.append(self._call())
        except BaseException as err:  # noqa: BLE001 - it is the caller's
            self._error = err

    def wait(self) -> None:
        """Wait for its end; no thread is left then."""
        self._thread.join()

    def result(self) -> T:
        """Wait for its end, and give what it gave or raise what it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._made[0]
