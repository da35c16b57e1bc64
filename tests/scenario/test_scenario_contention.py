"""Want while others run: no time, space or memory, or a refusal, may be the doing of a trial that ran meanwhile."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scenario_lab import Lab, python, wait_until
from scenario_outside import Outside, outside

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

GET = """
import urllib.request as u
try: print(u.urlopen('https://api.test/', timeout=9).status)
except u.HTTPError as error: print(error.code)
"""
MEETS = {
    "timeout": "its time ran out",
    "space": "ENOSPC",
    "memory": "its limit of memory",
    "429": "api.test answered 429",
    "nothing": "",
}
"""What each trial meets, and the words of it."""


@contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    """Mount a file system that has next to no room."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


def trial(lab: Lab, what: str, disk: Path, server: Outside) -> str:
    """Run a trial that meets something; gives its id."""
    base = lab.work.parent
    small, stateless = base / "small.toml", base / "stateless.toml"
    small.write_text('schema = 1\n[limits]\nmemory = "64MiB"\n')
    stateless.write_text(
        f'schema = 1\n[network]\ninspect = true\ntrust = ["{server.certificate}"]\n'
        '[[services]]\nname = "api"\nat = "api.test:443"\nstate = "stateless"\n'
    )
    fill = f"head -c 1000000 /dev/zero > {disk}/{what}; rm {disk}/{what}"
    argv: dict[str, tuple[str, ...]] = {
        "timeout": ("--timeout", "200ms", "--", "sleep", "9"),
        "space": ("--shared", str(disk), "--", "sh", "-c", fill),
        "memory": ("-p", str(small), "--", *python("b = bytearray(1 << 28)")),
        "429": ("-p", str(stateless), *server.mapping, "--", *python(GET)),
        "nothing": ("--", "true"),
    }
    ran = lab.run("--commit", "never", *argv[what])
    if what == "429":
        assert ran.out == b"429\n", ran.err
    return str(ran.report["run"])


Trials = tuple[Lab, str, dict[tuple[str, bool], str]]
"""The lab, the run beside which some met something, and each of them by what it met and whether that one still ran."""


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    """One trial that lasts, and those that met something while it did, and after it."""
    base = tmp_path_factory.mktemp("contention")
    home, work = base / "home", base / "work"
    home.mkdir(mode=0o700)
    work.mkdir()
    (base / "begun").mkdir()
    lab = Lab(home, work)
    runs: dict[tuple[str, bool], str] = {}
    with small_disk(base / "disk") as disk, outside(base, status=429) as server:
        lasting = lab.start(
            "--commit", "never", "--shared", str(base / "begun"), "--json", "--",
            "sh", "-c", f"touch {base}/begun/now; read line", stdin=subprocess.PIPE,
        )  # fmt: skip
        assert wait_until((base / "begun" / "now").exists)
        runs |= {(what, True): trial(lab, what, disk, server) for what in MEETS}
        out, _ = lasting.communicate()
        runs |= {(what, False): trial(lab, what, disk, server) for what in MEETS}
    return lab, json.loads(out)["run"], runs


@pytest.mark.parametrize("meanwhile", [True, False])
@pytest.mark.parametrize("what", MEETS)
def test_want_is_unresolved_with_who_ran_meanwhile(trials: Trials, what: str, meanwhile: bool) -> None:  # noqa: FBT001
    """The edge says what it was, and cites its event; who had ended before had no part in it."""
    lab, lasting, runs = trials
    answer = lab.call("separate", lasting, runs[what, meanwhile], "--json")
    edges: list[dict[str, Any]] = json.loads(answer.stdout)["edges"]
    if what == "nothing" or not meanwhile:
        assert edges == []
        return
    (edge,) = edges
    assert (edge["verdict"], [reason["rule"] for reason in edge["reasons"]]) == ("unresolved", ["contention"])
    assert MEETS[what] in edge["reasons"][0]["text"]
    assert {event.partition(":")[0] for event in edge["reasons"][0]["events"]} == {runs[what, meanwhile]}
