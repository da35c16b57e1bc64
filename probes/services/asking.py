"""One question to one service, whatever its kind. In: what the policy says of it; out: an answer, in time.

Laws:
    * An adapter that errs, or does not answer in time, is ``unknown``. Nothing that it raises gets further than here.
    * A question ends at its deadline whatever the service does: what does not come back by itself is left alone, and no
      second question is put to the same service before the first one has come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from policies.types import Service, Settle, SettleKind
from probes.services.answers import Answer, Question, bounded, together, unknown

Ask = Callable[[Settle, Question], Answer]

_MODULES = {
    SettleKind.HTTP: "over_http",
    SettleKind.REDIS: "in_redis",
    SettleKind.POSTGRES: "in_postgres",
    SettleKind.BEANSTALK: "in_beanstalk",
    SettleKind.RABBITMQ: "in_rabbitmq",
    SettleKind.COMMAND: "by_command",
    SettleKind.FILE: "by_file",
    SettleKind.DOCKER: "of_docker",
    SettleKind.CGROUP: "of_cgroup",
}
"""Where each kind is; imported when it is first asked, because clients of databases are dear to import."""

_CLIENTS = {SettleKind.REDIS: "redis", SettleKind.POSTGRES: "psycopg"}
"""Client libraries, which take up to a second to import: no part of the time that a service has to answer."""

_OPERATION = "{operation}"
MOST_OPERATIONS = 100
"""Of more than so many announced operations the rest is not asked about, which keeps the service open."""


def adapter(kind: SettleKind) -> Ask:
    """Give the function that asks services of a kind."""
    ask: Ask = _module(kind).ask
    return ask


def _module(kind: SettleKind) -> Any:  # noqa: ANN401 - what each kind's module has is said above
    import importlib  # noqa: PLC0415 - only here

    return importlib.import_module(f"probes.services.{_MODULES[kind]}")


def asks_by_operation(settle: Settle) -> bool:
    """Tell whether a service is asked about what the trial announced."""
    texts = (text for _, value in settle.options for text in (value if isinstance(value, tuple) else (str(value),)))
    return any(_OPERATION in text for text in texts)


def warm_up(kind: SettleKind) -> None:
    """Import what asking services of a kind needs; what cannot be imported is told by the first question."""
    import importlib  # noqa: PLC0415 - only here

    adapter(kind)
    if kind in _CLIENTS:
        with suppress(ImportError):
            importlib.import_module(_CLIENTS[kind])


class Asker:
    """Asks one service. Use it from one thread."""

    def __init__(
        self, service: Service, settle: Settle, *, run: str, environ: Mapping[str, str], since_s: float = 0.0
    ) -> None:
        """Keep what every question needs; ``environ`` is the supervisor's, and the run began at ``since_s``."""
        self.service, self._settle, self._run, self._environ = service, settle, run, dict(environ)
        self._since_s = since_s
        self._running: threading.Thread | None = None

    def ask(self, operations: Sequence[str]) -> Answer:
        """Ask once, about all that was announced if that is how it is asked."""
        if self._running is not None and self._running.is_alive():
            return unknown("it has not answered the question before")
        answers: list[Answer] = []
        thread = threading.Thread(target=lambda: answers.append(self._ask(operations)), daemon=True)
        self._running = thread
        thread.start()
        thread.join(self._settle.deadline_s)
        return answers[0] if answers else unknown(f"no answer in {self._settle.deadline_s:g} s")

    def cancel(self, operations: Sequence[str]) -> str | None:
        """Have it called off; gives why that could not be asked for, None when it was taken."""
        problems: list[str | None] = []
        thread = threading.Thread(target=lambda: problems.append(self._cancel(operations)), daemon=True)
        thread.start()
        thread.join(self._settle.deadline_s)
        return problems[0] if problems else f"not taken in {self._settle.deadline_s:g} s"

    def _cancel(self, operations: Sequence[str]) -> str | None:
        until_s = time.monotonic() + self._settle.deadline_s
        module = _module(self._settle.kind)
        try:
            for operation in operations or (None,):
                module.cancel(self._settle, self._question(operation, until_s))
        except Exception as err:  # noqa: BLE001 - as for a question
            return bounded(f"{type(err).__name__}: {err}")
        return None

    def _ask(self, operations: Sequence[str]) -> Answer:
        until_s = time.monotonic() + self._settle.deadline_s
        try:
            ask = adapter(self._settle.kind)
            if not asks_by_operation(self._settle):
                return ask(self._settle, self._question(None, until_s))
            if not operations:
                return unknown("the trial announced no operation to ask about")
            if len(operations) > MOST_OPERATIONS:
                return unknown(f"the trial announced {len(operations)} operations: too many to ask about")
            return together(ask(self._settle, self._question(operation, until_s)) for operation in operations)
        except Exception as err:  # noqa: BLE001 - whatever a client library raises: nothing is known then
            return unknown(bounded(f"{type(err).__name__}: {err}"))

    def _question(self, operation: str | None, until_s: float) -> Question:
        return Question(
            run=self._run, operation=operation, environ=self._environ, until_s=until_s, since_s=self._since_s
        )
