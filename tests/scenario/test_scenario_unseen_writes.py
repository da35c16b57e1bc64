"""Writes that are made so that the witness does not see them, and put back: never a clean trial."""

from __future__ import annotations

import pytest
from scenario_lab import Lab, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

SWAP = """
import os, threading, time
null = os.open("/dev/null", os.O_WRONLY)
def write(data):
    file, (reading, writing) = os.open("target", os.O_RDWR), os.pipe()
    thread = threading.Thread(target=os.splice, args=(reading, file, 1), kwargs={"offset_dst": 0})
    thread.start()
    time.sleep(0.2)
    os.dup2(null, file)
    os.write(writing, data)
    thread.join()
write(b"X")
assert open("target").read() == "Xello"
write(b"h")
"""


def test_a_write_through_a_descriptor_that_was_swapped_is_not_overlooked(lab: Lab) -> None:
    """At the end of the call its number names another file; that the file itself was written shows in its times."""
    (lab.work / "target").write_text("hello")
    ran = lab.run("--write", "elsewhere/**", "--", *python(SWAP))
    assert ran.code == 0, ran.err
    assert (lab.work / "target").read_text() == "hello"
    assert ran.scope != "clean"
