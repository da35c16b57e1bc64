"""The first moments of the command: what is begun there, and what it costs before the rest is imported."""

from __future__ import annotations

import os
import subprocess
import sys


def test_the_beginning_imports_next_to_nothing() -> None:
    """What is imported before the kernel has begun to verify our programs delays that by as much."""
    heavy = {"dataclasses", "pathlib", "msgspec", "argparse", "json"}
    code = "import supervisor.command.beginning, probes.kernel.early, sys; print(*sys.modules)"
    started = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & {*started.stdout.split()}


def test_a_closed_stream_is_held_before_anything_is_opened() -> None:
    """The kernel's answers must not land in standard input: its number is taken first, and told as closed."""
    code = (
        "import os, sys; from supervisor.command.beginning import begin; closed = begin(['--', 'true'])\n"
        "from probes.kernel import early; early.wait_for_loading()\n"
        "print(sorted(closed), os.readlink('/proc/self/fd/0'))"
    )
    command = ["sh", "-c", 'exec "$0" "$@" <&-', sys.executable, "-P", "-c", code]
    started = subprocess.run(command, capture_output=True, text=True, check=True)
    assert started.stdout.strip() == f"[0] {os.devnull}"


def test_it_leaves_every_module_to_who_wants_it() -> None:
    """What is left out for a moment while msgspec is imported can be imported afterwards."""
    code = "from supervisor.command.beginning import begin; begin(['--']); import msgspec, typing_extensions"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_an_interrupt_before_anything_is_imported_says_nothing() -> None:
    """Ctrl-C in the first moments ends the command as it does later: with its exit code and without a traceback."""
    code = "import supervisor.__main__ as m\ndef begin(words): raise KeyboardInterrupt\nm.begin = begin\nm.entry()"
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")
