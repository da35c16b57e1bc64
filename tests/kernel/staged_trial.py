"""A workspace with a stage over it, and a plain copy on which the same operations are done."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from overlay_operations import build, describe

from supervisor.launch.runs.state import RunDir
from supervisor.launch.stage.stage import Stage

OPERATIONS = Path(__file__).parent / "overlay_operations.py"
TIMES, NAMES = 6, 7
_OPTIONS = "redirect_dir=on,index=on,metacopy=off"


class Trial:
    """One workspace, a plain copy of it, and a stage over it."""

    def __init__(self, path: Path, *, seed: int | None = None, script: str | None = None) -> None:
        """Make the workspace from a seed or a shell script."""
        self.path = path
        self.host, self.plain = path / "host", path / "plain"
        self.host.mkdir(parents=True)
        if seed is not None:
            build(os.fsencode(self.host), random.Random(seed))  # noqa: S311 - repeatable on purpose
        if script is not None:
            subprocess.run(["bash", "-euc", script], cwd=self.host, check=True)
        subprocess.run(["cp", "-a", self.host, self.plain], check=True)
        self.run = RunDir(path / "20300101-000000-test")
        self.run.path.mkdir()
        self.stage = Stage(self.run, self.host)
        self.stage.prepare()

    def act(self, *, seed: int = 0, count: int | None = None, script: str | None = None) -> dict[str, Any]:
        """Do operations in the overlay and in the plain copy; returns what both looked like afterwards."""
        merged, said, shell = self.path / "merged", self.path / "said.json", self.path / "script"
        merged.mkdir(exist_ok=True)
        if script is not None:
            shell.write_text(script, encoding="utf-8")
        arguments = [seed, shell if script is not None else count, self.host, self.stage.upper, self.stage.work]
        private = ["unshare", "--mount", "--propagation", "private", sys.executable, OPERATIONS]
        subprocess.run([*map(str, [*private, *arguments, merged, self.plain, said])], check=True)
        result: dict[str, Any] = json.loads(said.read_bytes())
        assert result["done"][0] == result["done"][1]
        assert without(result["merged"]) == without(result["plain"])
        return result

    def write(self, script: str) -> None:
        """Run a shell script in the overlay alone, which is sooner done."""
        merged = self.path / "merged"
        merged.mkdir(exist_ok=True)
        options = f"lowerdir={self.host},upperdir={self.stage.upper},workdir={self.stage.work},{_OPTIONS}"
        mounted = f'mount -t overlay overlay -o "$1" "$2"; cd "$2"; {script}'
        private = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", mounted, "sh", options]
        subprocess.run([*private, str(merged)], check=True)

    def looks(self) -> dict[str, Any]:
        """Describe the host's workspace."""
        found: dict[str, Any] = json.loads(json.dumps(describe(os.fsencode(self.host))))
        return found


def without(description: dict[str, Any]) -> dict[str, Any]:
    """Leave out times, which differ between the overlay and its plain copy."""
    return {path: state[:TIMES] + state[NAMES:] for path, state in description.items()}


def everything(_: bytes) -> bool:
    """Allow every path."""
    return True
