"""A call aside: what it gives and raises is its caller's."""

from __future__ import annotations

import threading

import pytest

from supervisor.launch.aside import Aside


def test_it_runs_beside_its_caller() -> None:
    """The caller goes on while it waits, and gets what it gave; no thread is left."""
    open_now = threading.Event()
    aside = Aside(lambda: open_now.wait(10))
    open_now.set()
    assert aside.result() is True
    assert not [thread for thread in threading.enumerate() if thread.name == "supervise-aside"]


def test_what_it_raises_is_raised_by_the_caller() -> None:
    """Nothing that goes wrong there is lost."""
    aside = Aside(lambda: 1 // 0)
    aside.wait()
    with pytest.raises(ZeroDivisionError):
        aside.result()
