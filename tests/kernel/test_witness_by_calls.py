"""The object for kernels before 6.2, which reads each field by a call, tells the same as the other one."""

from __future__ import annotations

from pathlib import Path

import pytest
from witness_builder import Seen, witnessed

from probes.kernel import pins
from supervisor.events import Event, FileEvent

pytestmark = pytest.mark.kernel("witness")

DEEDS = """
os.chdir(sys.argv[1])
os.mkdir('a-directory-with-a-name-of-more-than-thirty-two-letters')
os.chdir('a-directory-with-a-name-of-more-than-thirty-two-letters')
fd = os.open('eight888', os.O_CREAT | os.O_WRONLY, 0o644)
for _ in range(3): os.write(fd, b'ab')
other = os.open('../n', os.O_CREAT | os.O_WRONLY, 0o644)
os.write(other, b'c'); os.close(other); os.write(fd, b'd'); os.close(fd)
os.rename('eight888', 'x' * 255)
call(2, b'not/there', os.O_RDWR)
os.ftruncate(os.memfd_create('memory'), 7)
fork(lambda: os.execv('/bin/true', ['true', 'and more']))
"""


def told(seen: Seen) -> list[tuple[str, bytes, int | None, bool, bool]]:
    """Give what is the same each time of every event; how the program came into the cgroup is not."""
    return [found for event in seen.events if not (found := _told(event))[1].endswith(b"/cgroup.procs")]


def _told(event: Event) -> tuple[str, bytes, int | None, bool, bool]:
    if not isinstance(event, FileEvent):
        return (event.kind, b"", None, True, False)
    return (event.kind, event.path, event.error, event.reachable, event.unlinked)


def test_both_objects_tell_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long and short names, a memory file, failed calls, a fork and an exec: kind by kind and path by path."""
    (tmp_path / "w").mkdir()
    direct = told(witnessed(DEEDS, tmp_path / "w"))
    (tmp_path / "w").rename(tmp_path / "before")
    (tmp_path / "w").mkdir()
    monkeypatch.setattr(pins, "OBJECT", pins.OBJECT.with_name("witness_by_calls.bpf.o"))
    assert told(witnessed(DEEDS, tmp_path / "w")) == direct
    names = {path.rsplit(b"/")[-1] for _, path, *_ in direct}
    assert names >= {b"a-directory-with-a-name-of-more-than-thirty-two-letters", b"eight888", b"n", b"memfd:memory"}
