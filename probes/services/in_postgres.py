"""What is left in a PostgreSQL: a query's answer, prepared transactions, open ones of a role, locks, notifications.

All is read in one read-only transaction with a time limit of its own; the session is named, so that it does not count
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.types import Settle
from probes.services.answers import Answer, Question, read_absence, read_count, read_word, together, unknown

_PREPARED = "SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE %s"
_ACTIVE = (
    "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND pid <> pg_backend_pid()"
    " AND (xact_start IS NOT NULL OR state IN ('active', 'idle in transaction', 'idle in transaction (aborted)'))"
)
_LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_NOTIFY = "SELECT CASE WHEN pg_notification_queue_usage() > 0 THEN 1 ELSE 0 END"
_MOST_ROWS = 1000


def ask(settle: Settle, question: Question) -> Answer:
    """Ask once.

    Raises:
        OSError: not in time.
        LookupError: the password is not there.
    """
    import psycopg  # noqa: PLC0415 - 100 ms that only a policy with such a service needs

    left_s = question.left_s()
    options: dict[str, Any] = {
        "connect_timeout": max(2, int(left_s)),  # libpq takes less for 2
        "application_name": "supervise",
        "options": f"-c default_transaction_read_only=on -c statement_timeout={max(1, int(left_s * 1000))}",
    }
    password = question.secret(settle, "password_env")
    if password is not None:
        options["password"] = password
    try:
        with psycopg.connect(question.fill(settle.text("dsn") or ""), **options) as connection:
            return together(_parts(connection, settle, question))
    except psycopg.Error as err:
        return unknown(f"{type(err).__name__}: {err}")


def _parts(connection: Any, settle: Settle, question: Question) -> Iterator[Answer]:  # noqa: ANN401
    if query := settle.text("query"):
        yield _word(connection, settle, query, question)
    if pattern := settle.text("prepared"):
        yield read_count(_count(connection, _PREPARED, question.fill(pattern)), f"prepared transactions like {pattern}")
    if user := settle.text("user"):
        yield read_count(_count(connection, _ACTIVE, user), f"transactions of {user}")
    if settle.flag("locks"):
        yield read_count(_count(connection, _LOCKS), "advisory locks")
    if settle.flag("notify"):
        yield read_count(_count(connection, _NOTIFY), "queue of notifications")


def _count(connection: Any, statement: str, *parameters: str) -> int:  # noqa: ANN401
    return int(connection.execute(statement, parameters or None).fetchone()[0])


def _word(connection: Any, settle: Settle, query: str, question: Question) -> Answer:  # noqa: ANN401
    """Read a query's answer. ``{operation}`` and ``{run}`` become parameters, never text of the statement."""
    statement = query.replace("%", "%%").replace("{operation}", "%(operation)s").replace("{run}", "%(run)s")
    names = {"operation": question.operation or "", "run": question.run}
    rows = connection.execute(statement, names).fetchmany(_MOST_ROWS)
    if not rows:
        return read_absence(settle, "query")
    return together(read_word(settle, "" if row[0] is None else str(row[0]), "query") for row in rows)
