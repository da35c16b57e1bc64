"""Services asked by HTTP, by a command and by a file, and what is made of every way not to answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from policies.types import Option, Service, ServiceStatus, Settle, SettleKind
from probes.services.answers import Answer, Question, read_count, together, unknown
from probes.services.asking import Asker, adapter, asks_by_operation
from probes.services.over_http import find

WORDS: dict[str, Option] = {
    "pending": ("queued",),
    "committed": ("done", "true"),
    "failed": ("refused",),
    "cancelled": ("cancelled",),
    "settled": ("0",),
}


def ask(kind: SettleKind, options: Mapping[str, Option], *, operation: str | None = None, **environ: str) -> Answer:
    """Ask once, with patience for a busy machine."""
    settle = Settle(kind=kind, options=tuple(options.items()))
    question = Question(run="r1", operation=operation, environ=environ, until_s=time.monotonic() + 30)
    return adapter(kind)(settle, question)


class _Pages(BaseHTTPRequestHandler):
    pages: ClassVar[dict[str, tuple[int, Any, dict[str, str]]]] = {}
    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        if self.path == "/hang":
            time.sleep(0.5)
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
            for _ in range(200):  # a drop at a time, so that no single read is late
                try:
                    self.wfile.write(b" ")
                    self.wfile.flush()
                except OSError:
                    return
                time.sleep(0.05)
            return
        code, body, headers = self.pages[self.path]
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve pages on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def of_page(site: str, body: object, code: int = 200, headers: dict[str, str] | None = None, **more: Option) -> Answer:
    """Ask for a page with this answer."""
    _Pages.pages["/x"] = (code, body, headers or {})
    return ask(SettleKind.HTTP, {"url": f"{site}/x", **WORDS, **more})


@pytest.mark.parametrize(
    ("word", "status"),
    [("queued", "pending"), ("done", "committed"), (True, "committed"), ("refused", "failed"), (0, "settled")],
)
def test_a_pointer_leads_to_a_word_with_a_meaning(site: str, word: object, status: str) -> None:
    """Texts, numbers and booleans, as JSON writes them."""
    assert of_page(site, {"a": [{"status": word}]}, pointer="/a/0/status").status == status


def test_the_whole_body_is_the_word_where_there_is_no_pointer(site: str) -> None:
    """White space around it does not count."""
    assert of_page(site, b"done\n").status is ServiceStatus.COMMITTED


@pytest.mark.parametrize(
    ("body", "code"),
    [({"status": "odd"}, 200), ({}, 200), (b"<html>", 200), ({"status": "done"}, 500), ({"status": "done"}, 302)],
)
def test_what_has_no_meaning_is_unknown(site: str, body: object, code: int) -> None:
    """An error, a redirect, no JSON, no such field or an odd word is no answer."""
    assert of_page(site, body, code, pointer="/status").status is ServiceStatus.UNKNOWN


def test_absence_means_what_the_policy_says(site: str) -> None:
    """Without a word about it, nothing is known."""
    assert of_page(site, {}, 404).status is ServiceStatus.UNKNOWN
    assert of_page(site, {}, 404, absent="failed").status is ServiceStatus.FAILED


def test_called_off_is_open_until_it_can_no_longer_be_done(site: str) -> None:
    """A cancellation settles delayed work only when the service confirms that."""
    said = {"status": "cancelled", "open": True}
    assert of_page(site, said, pointer="/status").status is ServiceStatus.PENDING
    assert of_page(site, said, pointer="/status", can_commit="/open").status is ServiceStatus.PENDING
    said["open"] = False
    assert of_page(site, said, pointer="/status", can_commit="/open").status is ServiceStatus.CANCELLED


@pytest.mark.parametrize(("header", "wait_s"), [("7", 7.0), ("nonsense", None), ("99999999", 3600.0)])
def test_patience_that_is_asked_for_is_given(site: str, header: str, wait_s: float | None) -> None:
    """In seconds, bounded; what is no time is passed over."""
    assert of_page(site, {}, 503, {"Retry-After": header}).wait_s == wait_s


def test_patience_may_be_asked_for_with_a_date(site: str) -> None:
    """One that is over asks for none."""
    answer = of_page(site, {"s": "queued"}, 200, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, pointer="/s")
    assert (answer.status, answer.wait_s) == (ServiceStatus.PENDING, 0.0)


def test_a_token_comes_from_our_environment(site: str) -> None:
    """And is in no answer; without it nothing is asked."""
    _Pages.pages["/x"] = (200, b"done", {})
    options: dict[str, Option] = {"url": f"{site}/x", "token_env": "SHOP_TOKEN", **WORDS}
    answer = ask(SettleKind.HTTP, options, SHOP_TOKEN="sesame")  # noqa: S106 - a test's
    assert _Pages.seen[-1] == "Bearer sesame"
    assert "sesame" not in answer.detail
    with pytest.raises(LookupError, match="SHOP_TOKEN"):
        ask(SettleKind.HTTP, options)


def test_a_body_without_end_is_no_answer(site: str) -> None:
    """It is read no further than is good for us."""
    with pytest.raises(OSError, match="longer"):
        of_page(site, b"x" * (3 << 20))


@pytest.mark.parametrize(("pointer", "found"), [("", {"a/b": {"~": [1, 2]}}), ("/a~1b/~0/1", 2)])
def test_a_pointer_is_followed_as_the_rfc_says(pointer: str, found: object) -> None:
    """RFC 6901: escapes, and indices of arrays."""
    assert find({"a/b": {"~": [1, 2]}}, pointer) == found


@pytest.mark.parametrize("pointer", ["a", "/a/2", "/a/-1", "/b", "/a/0/x"])
def test_a_pointer_that_leads_nowhere_is_an_error(pointer: str) -> None:
    """No element is guessed."""
    with pytest.raises(LookupError):
        find({"a": [1, 2]}, pointer)


# -- command and file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, "committed"),
        (1, "failed"),
        (2, "pending"),
        (3, "cancelled"),
        (4, "settled"),
        (5, "unknown"),
        (127, "unknown"),
    ],
)
def test_an_exit_code_is_an_answer(code: int, status: str) -> None:
    """And the first line of output is its detail; the run and the operation are in words and environment."""
    script = f'echo "$SUPERVISE_OPERATION $1"; echo more; exit {code}'
    options: dict[str, Option] = {"command": ("sh", "-c", script, "sh", "{run}")}
    answer = ask(SettleKind.COMMAND, options, operation="42", PATH=os.environ["PATH"])
    assert answer.status == status
    assert answer.detail == f"exit {code}: 42 r1"


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """Nothing of it is left behind."""
    pid = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}; wait"
    settle = Settle(kind=SettleKind.COMMAND, options=(("command", ("sh", "-c", script)),))
    question = Question(run="r1", environ=dict(os.environ), until_s=time.monotonic() + 2)
    with pytest.raises(TimeoutError):
        adapter(SettleKind.COMMAND)(settle, question)
    child = Path(f"/proc/{pid.read_text().strip()}/stat")
    until_s = time.monotonic() + 30
    while child.exists() and " Z " not in child.read_text() and time.monotonic() < until_s:
        time.sleep(0.02)
    assert not child.exists() or " Z " in child.read_text()


def test_a_file_says_a_word(tmp_path: Path) -> None:
    """Its text, by run; one that is not there is absence, and a FIFO is no file and is not waited for."""
    path = tmp_path / "r1"
    options: dict[str, Option] = {"path": f"{tmp_path}/{{run}}", **WORDS}
    assert ask(SettleKind.FILE, options).status is ServiceStatus.UNKNOWN
    assert ask(SettleKind.FILE, {**options, "absent": "pending"}).status is ServiceStatus.PENDING
    path.write_text("done\n")
    assert ask(SettleKind.FILE, options).status is ServiceStatus.COMMITTED
    path.unlink()
    os.mkfifo(path)
    assert ask(SettleKind.FILE, options).status is ServiceStatus.UNKNOWN


# -- asking ----------------------------------------------------------------------------------------------------------


def asker(kind: SettleKind, deadline_s: float = 30.0, **options: Option) -> Asker:
    """Give somebody who asks."""
    settle = Settle(kind=kind, deadline_s=deadline_s, options=tuple(options.items()))
    return Asker(Service(name="s", settle=settle), settle, run="r1", environ=dict(os.environ))


def test_a_service_that_does_not_answer_in_time_is_unknown_and_is_not_asked_twice(site: str) -> None:
    """A drop now and then does not stretch the deadline; a second question waits for the first."""
    slow = asker(SettleKind.HTTP, 0.2, url=f"{site}/hang", **WORDS)
    assert slow.ask(()).detail in {"no answer in 0.2 s", "TimeoutError: timed out"}  # whoever notices first
    assert slow.ask(()).status is ServiceStatus.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SettleKind.HTTP, {"url": "http://127.0.0.1:1/"}),
        (SettleKind.HTTP, {"url": "http://[::bad/"}),
        (SettleKind.REDIS, {"url": "unix:///nowhere.sock", "queue": ("q",)}),
        (SettleKind.REDIS, {"url": "nonsense", "queue": ("q",)}),
        (SettleKind.POSTGRES, {"dsn": "host=/nowhere", "query": "SELECT 1"}),
        (SettleKind.BEANSTALK, {"address": "127.0.0.1:1", "tubes": ("t",)}),
        (SettleKind.COMMAND, {"command": ("/no/such/program",)}),
        (SettleKind.RABBITMQ, {"url": "http://127.0.0.1:1", "queues": ("q",)}),
        (SettleKind.DOCKER, {"socket": "/nowhere.sock"}),
        (SettleKind.CGROUP, {"path": "/nowhere"}),
    ],
)
def test_whatever_goes_wrong_is_unknown(kind: SettleKind, options: dict[str, Option]) -> None:
    """No error of an adapter is an answer, and none gets out."""
    answer = asker(kind, **options).ask(())
    assert answer.status is ServiceStatus.UNKNOWN
    assert answer.detail


def test_all_that_was_announced_is_asked_about(tmp_path: Path) -> None:
    """One that is pending keeps the whole open; where nothing was announced there is nothing to ask."""
    by_file = asker(SettleKind.FILE, path=f"{tmp_path}/{{operation}}", **WORDS)
    assert by_file.ask(()).status is ServiceStatus.UNKNOWN
    (tmp_path / "1").write_text("done")
    assert by_file.ask(("1",)).status is ServiceStatus.COMMITTED
    (tmp_path / "2").write_text("queued")
    assert by_file.ask(("1", "2")).status is ServiceStatus.PENDING
    assert by_file.ask(tuple(map(str, range(200)))).status is ServiceStatus.UNKNOWN


def test_whether_announcements_matter_is_seen_from_the_options() -> None:
    """Also inside a list."""
    assert asks_by_operation(Settle(kind=SettleKind.COMMAND, options=(("command", ("x", "{operation}")),)))
    assert not asks_by_operation(Settle(kind=SettleKind.COMMAND, options=(("command", ("x",)),)))


def test_of_several_answers_the_one_that_is_most_open_counts() -> None:
    """Unknown before pending before every end."""
    done = Answer(status=ServiceStatus.COMMITTED, detail="a", wait_s=1.0)
    assert together([done, read_count(0, "q")]).status is ServiceStatus.COMMITTED
    assert together([done, read_count(1, "q")]).status is ServiceStatus.PENDING
    assert together([done, read_count(1, "q"), unknown("x")]).status is ServiceStatus.UNKNOWN
    assert together([done, unknown("x")]).wait_s == 1.0
    assert together([]).status is ServiceStatus.UNKNOWN


def test_words_of_others_are_bounded_and_on_one_line() -> None:
    """A service may be as hostile as a trial."""
    assert len(unknown("x" * 9999).detail) == 200
    assert unknown("a\n\x00b\tc").detail == "a \x00b c"


def test_the_interpreter_is_not_asked_to_import_what_no_policy_needs() -> None:
    """Clients of databases are imported when they are first needed."""
    source = "import probes.services.asking, sys; sys.exit(any(m in sys.modules for m in ('redis', 'psycopg')))"
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0


@pytest.mark.parametrize(
    "operation", ["../done", "..", "-h", "$(id)", "a b", "a/b", "a?b", "a#b", "a%2fb", "\u0663", "a\n"]
)
def test_what_the_trial_announced_is_an_id_and_nothing_more(tmp_path: Path, operation: str) -> None:
    """It would lead the question to another file, address or option, of which the answer is nothing: unknown."""
    (tmp_path / "done").write_text("done")
    (tmp_path / "orders").mkdir()
    by_file = asker(SettleKind.FILE, path=f"{tmp_path}/orders/{{operation}}", absent="failed", **WORDS)
    assert by_file.ask([operation]).status is ServiceStatus.UNKNOWN
    assert by_file.ask(["a-1_b:2"]).status is ServiceStatus.FAILED
    by_command = asker(SettleKind.COMMAND, command=("sh", "-c", "test {operation}"))
    assert by_command.ask([operation]).status is ServiceStatus.UNKNOWN
