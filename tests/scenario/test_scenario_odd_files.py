"""Files that are hard to tell of: deep paths, names that are no text, content that nobody can read to its end."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from scenario_lab import Lab, Ran, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

ODD = r"""
import os
def new(name):
    with open(name, "wb") as file:
        file.write(b"x")
new(b"\377\376 no text")
os.rename(b"\377\376 no text", b"\377 moved")
os.mkdir("quite"); os.chdir("quite")
for _ in range(15):
    os.mkdir("d" * 250); os.chdir("d" * 250)
new("deep")
os.chdir("/proc/self/cwd")
os.chmod("deep", 0o600)
with open("sparse", "wb") as file:
    file.truncate(65 << 30)
    file.write(b"x")
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One trial with all of them."""
    base = tmp_path_factory.mktemp("odd")
    lab = Lab(base / "home", base / "w")
    lab.home.mkdir(mode=0o700)
    lab.work.mkdir()
    ended = lab.run("--write", "**", "--commit", "never", "--", *python(ODD))
    assert ended.code == 0, ended.err
    return ended


def file_of(ran: Ran, name: bytes) -> dict[str, Any]:
    """Give the entry of a name that is no text."""
    encoded = base64.b64encode(name).decode()
    (found,) = (file for file in ran.report["effects"]["files"] if file.get("path_b64") == encoded)
    return dict(found)


def test_a_name_that_is_no_text_is_told_in_its_bytes(ran: Ran) -> None:
    """Its history is whole, and each name of it knows the other."""
    assert file_of(ran, b"\377\376 no text")["history"] == ["created", "modified", "renamed"]
    moved = file_of(ran, b"\377 moved")
    assert (moved["history"], moved["net"]) == (["renamed"], "created")
    assert moved["after"]


def test_a_path_of_nearly_4096_bytes_is_told_whole(ran: Ran) -> None:
    """Created, written, and its mode changed by a name that begins at the current directory."""
    (deep,) = (file for path, file in ran.files.items() if path.endswith("/deep"))
    assert deep["path"] == "/".join(["quite", *["d" * 250] * 15, "deep"])
    assert (deep["history"], deep["net"]) == (["created", "modified", "attributes"], "created")


def test_content_that_is_too_large_to_read_is_left_open(ran: Ran) -> None:
    """A sparse file costs nothing to make: its digest is not known, and nothing is claimed of it."""
    (sparse,) = (file for path, file in ran.files.items() if path.endswith("/sparse"))
    assert sparse["history"][0] == "created"
    assert sparse["after"] is None


def test_the_trial_is_judged_all_the_same(ran: Ran) -> None:
    """Everything that was told fits what is there."""
    assert ran.scope == "clean"


BEYOND = r"""
import os
for _ in range(20):
    os.mkdir("d" * 250); os.chdir("d" * 250)
with open("deeper", "wb") as file:
    file.write(b"x")
os.unlink("deeper")
"""


def test_a_path_beyond_4096_bytes_is_a_gap_or_told_whole(lab: Lab) -> None:
    """Nobody can name it by one string; a change of it is never overlooked."""
    ended = lab.run("--write", "allowed/**", "--commit", "never", "--", *python(BEYOND))
    assert ended.code == 0, ended.err
    assert ended.scope != "clean"
    told = [path for path in ended.files if path.endswith("/deeper")]
    assert told or ended.reasons("scope")


def test_a_path_beyond_4096_bytes_that_nothing_tells_whole_is_unresolved(lab: Lab) -> None:
    """Where everything may be written, what happened at the end of such a path is still not known."""
    ended = lab.run("--write", "**", "--commit", "never", "--", *python(BEYOND))
    assert ended.scope == "unresolved"
    assert ended.code == 0
