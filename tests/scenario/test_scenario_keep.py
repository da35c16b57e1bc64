"""What was there in between: with ``files.keep`` a reader finds what a file held before it was put back."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab

pytestmark = pytest.mark.kernel("witness", "overlay")

POLICY = 'schema = 1\nname = "kept"\n[files]\nkeep = true\n'
ACT = """
cp a /tmp/aside
echo evil > a
echo draft > came; cp came copied; rm came copied
cat /tmp/aside > a
echo elsewhere > /tmp/private
echo stays > stays
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Run one trial that changes a file and puts it back, and makes two that it removes."""
    place = tmp_path_factory.mktemp("keep")
    (place / "home").mkdir(mode=0o700)
    (place / "work").mkdir()
    (place / "work/a").write_text("original\n")
    (place / "policy.toml").write_text(POLICY)
    lab = Lab(place / "home", place / "work")
    ended = lab.call("-p", str(place / "policy.toml"), "--", "sh", "-c", ACT)
    assert ended.returncode == 0, ended.stderr
    return lab


def kept(lab: Lab) -> dict[str, bytes]:
    """Give what was kept of each file, in the order of writing."""
    found: dict[str, bytes] = {}
    for event in lab.events("file.kept"):
        name = Path(event["path"]).name
        found[name] = found.get(name, b"") + b64decode(event["content_b64"])
    return found


def test_every_content_in_between_is_there(lab: Lab) -> None:
    """What was written and put back, what came and went, and what a copying program wrote: it goes through memory."""
    assert kept(lab) == {
        "a": b"evil\noriginal\n",
        "came": b"draft\n",
        "copied": b"draft\n",
        "stays": b"stays\n",
    }


def test_the_report_says_where_to_read_it(lab: Lab) -> None:
    """By the events that hold it, of what is not there any more."""
    files: dict[str, Any] = {file["path"]: file for file in lab.report()["effects"]["files"]}
    events = {event["n"]: Path(event["path"]).name for event in lab.events("file.kept")}
    assert {events[n] for n in files["a"]["kept"]} == {"a"}
    assert files["a"]["restored"] is True
    shown = lab.call("show", "last").stdout.decode().splitlines()
    (line,) = (line for line in shown if "unchanged: a," in line)
    assert f"what was in between is kept: [{', '.join(map(str, files['a']['kept']))}]" in line
    assert not any("stays" in line and "kept" in line for line in shown)


def test_a_trial_with_kept_content_verifies(lab: Lab) -> None:
    """The content is part of the signed log."""
    assert lab.call("verify", "last").returncode == 0


def in_log(lab: Lab, content: bytes) -> bool:
    """Tell whether some bytes stand in the log of a lab's only run."""
    segments = list(lab.home.glob("runs/*/log/*.seg"))
    assert segments
    return any(content in segment.read_bytes() for segment in segments)


def test_without_the_key_no_content_is_in_the_log(lab: Lab, tmp_path: Path) -> None:
    """Nothing of it; with the key it stands there as it was."""
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a").write_text("original\n")
    other = Lab(tmp_path / "home", tmp_path / "work")
    assert other.sh(ACT).code == 0
    assert not other.events("file.kept")
    assert in_log(lab, b"evil\n")
    assert not in_log(other, b"evil\n")
