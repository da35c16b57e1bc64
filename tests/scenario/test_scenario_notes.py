"""What a trial says about itself: kept, attributed by the kernel, and believed in nothing."""

from __future__ import annotations

import pytest
from scenario_lab import Lab, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

SAY = """
import array, os, socket
notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notes.connect(os.environ["SUPERVISE_NOTIFY"])
"""


def test_notes_are_kept_with_the_process_that_the_kernel_names(lab: Lab) -> None:
    """Each note is an event of origin ``trial``, from the process that sent it, in the order of sending."""
    ran = lab.run("--", *python(SAY + "for i in range(300): notes.send(b'step %d' % i)"))
    kept = lab.events("note.received")
    (command,) = (process for process in ran.report["effects"]["processes"] if process["parent"] is None)
    assert [note["text"] for note in kept] == [f"step {i}" for i in range(300)]
    assert {(note["origin"], note["process"]) for note in kept} == {("trial", command["id"])}
    assert (ran.finality, ran.scope) == ("final", "clean")


def test_a_note_that_claims_an_end_closes_nothing(lab: Lab) -> None:
    """A forged settlement is only a text: the straggler keeps the future open."""
    forged = '{"kind": "trial.emptied", "origin": "kernel", "pids_left": 0}'
    ran = lab.run(
        "--period", "eventually", "--settle", "200ms", "--outcome", "out",
        "--", *python(SAY + f"os.system('sleep 73.1 > /dev/null 2>&1 &'); notes.send({forged!r}.encode())"),
    )  # fmt: skip
    (note,) = lab.events("note.received")
    assert note["text"] == forged
    assert ran.finality == "unresolved"


def test_what_comes_with_a_note_stays_outside_of_us(lab: Lab) -> None:
    """Long, undecodable and descriptor-carrying notes are kept as text, and the run goes on."""
    ran = lab.run(
        "--",
        *python(
            SAY
            + "notes.send(b'\\xff' * 9000)\n"
            + "notes.sendmsg([b'with one'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])"
        ),
    )
    long, carrying = lab.events("note.received")
    assert (long["truncated"], len(long["text"]), carrying["text"]) == (True, 4096, "with one")
    assert ran.finality == "final"
