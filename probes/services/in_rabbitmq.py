"""What is left in queues of RabbitMQ: messages that are ready, and those that a consumer has not acknowledged.

Only its management interface tells the latter. What that says of one queue is counted now and then, and may be from
before a message came (tried: a queue with a message was empty for seconds); of the list of queues, asked without
statistics and with totals, each queue itself is asked. A server that cannot do that gives no counts: unknown.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from policies.types import ServiceStatus, Settle
from probes.services.answers import Answer, Question, bounded, read_absence, together, unknown
from probes.services.over_http import connect, read_body, speaking

_COUNTS = ("messages_ready", "messages_unacknowledged")
_LIVE = "disable_stats=true&enable_queue_totals=true"


def ask(settle: Settle, question: Question) -> Answer:
    """Ask once.

    Raises:
        OSError: nobody answered, or not in time.
        LookupError: the password is not there.
    """
    vhost = question.fill(settle.text("vhost") or "/")
    status, body = _get(settle, question, f"/api/queues/{quote(vhost, safe='')}?{_LIVE}")
    if status != 200:  # noqa: PLR2004 - HTTP's
        return unknown(f"queues of {vhost}: status {status}")
    try:
        listed = {queue["name"]: queue for queue in json.loads(body)}
    except (ValueError, LookupError, TypeError, RecursionError):
        return unknown(f"queues of {vhost}: no list")
    return together(_queue(settle, question.fill(name), listed) for name in settle.texts("queues"))


def _queue(settle: Settle, name: str, listed: Mapping[str, Mapping[str, object]]) -> Answer:
    about = f"queue {name}"
    if name not in listed:
        return read_absence(settle, about)
    counts = [listed[name].get(word) for word in _COUNTS]
    if not all(type(count) is int for count in counts):
        return unknown(f"{about}: the server does not count it at once")
    told = f"{about}: ready {counts[0]}, unacknowledged {counts[1]}"
    return Answer(status=ServiceStatus.PENDING if any(counts) else ServiceStatus.SETTLED, detail=bounded(told))


def _get(settle: Settle, question: Question, path: str) -> tuple[int, bytes]:
    url = question.fill(settle.text("url") or "")
    with speaking(connect(settle, question, url)) as connection:
        connection.request("GET", urlsplit(url).path.rstrip("/") + path, headers=_headers(settle, question))
        response = connection.getresponse()
        return response.status, read_body(response, connection, question)


def _headers(settle: Settle, question: Question) -> dict[str, str]:
    user = settle.text("user") or "guest"
    password = question.secret(settle, "password_env")
    pair = f"{user}:{'guest' if password is None else password}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}", "Connection": "close"}
