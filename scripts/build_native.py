"""Build the artefacts that are no Python: kernel witness and gateway's diversion (BPF), the box's init (static C).

Used by `make` and by the package's own build (`setup.py`), so there is one recipe. Standard library only: it runs
before anything is installed. One rule: an artefact that is newer than its sources is kept, one that can be built is
built, one that cannot be built but is there is taken as it is, and when there is neither the build fails and says what
to install.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm64", "arm64": "arm64"}


class BuildError(Exception):
    """An artefact is missing and cannot be built here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """One thing to build.

    Attributes:
        name: for the command line.
        output: relative to the root of the project.
        sources: globs, relative too; the first one must exist.
        tools: programs that it takes.
        files: files of the machine that it takes, with the word for them.
        hint: what to do when one is missing.
    """

    name: str
    output: str
    sources: tuple[str, ...]
    tools: tuple[str, ...]
    files: tuple[tuple[Path, str], ...] = ()
    hint: str

    def newest_source(self) -> float:
        """Give the time of the newest source, this recipe among them."""
        found = [path for pattern in self.sources for path in ROOT.glob(pattern)]
        if not found:
            message = f"{self.sources[0]}: expected the source of {self.output}, found none"
            raise BuildError(message)
        return max(path.stat().st_mtime for path in (*found, Path(__file__)))

    def missing(self) -> tuple[str, ...]:
        """Name what this machine lacks to build it."""
        tools = tuple(tool for tool in self.tools if find_tool(tool) is None)
        return tools + tuple(word for path, word in self.files if not path.exists())


WITNESS = Artefact(
    name="witness",
    output="probes/kernel/witness.bpf.o",
    sources=("probes/kernel/*.bpf.c", "probes/kernel/*.h"),
    tools=("clang", "llvm-strip"),
    files=((Path("/usr/include/bpf/bpf_helpers.h"), "the headers of libbpf"),),
    hint="apt-get install clang llvm libbpf-dev libc6-dev",
)
WITNESS_BY_CALLS = Artefact(
    name="witness_by_calls",
    output="probes/kernel/witness_by_calls.bpf.o",
    sources=WITNESS.sources,
    tools=WITNESS.tools,
    files=WITNESS.files,
    hint=WITNESS.hint,
)
DIVERT = Artefact(
    name="divert",
    output="probes/gateway/divert.bpf.o",
    sources=("probes/gateway/divert.bpf.c", "probes/kernel/witness.h"),
    tools=WITNESS.tools,
    files=WITNESS.files,
    hint=WITNESS.hint,
)
BOXINIT = Artefact(
    name="boxinit",
    output="supervisor/launch/boxinit",
    sources=("supervisor/launch/boxinit.c",),
    tools=("cc",),
    hint="apt-get install gcc libc6-dev",
)
ARTEFACTS = {artefact.name: artefact for artefact in (WITNESS, WITNESS_BY_CALLS, DIVERT, BOXINIT)}


def find_tool(name: str) -> str | None:
    """Find a program, also in the places that only root's PATH names."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")))


def run(*argv: str) -> None:
    """Run one tool.

    Raises:
        BuildError: it failed; its own words went to stderr before.
    """
    program = find_tool(argv[0]) or argv[0]
    code = subprocess.run([program, *argv[1:]], cwd=ROOT, check=False).returncode
    if code:
        message = f"{argv[0]}: expected exit code 0, got {code}"
        raise BuildError(message)


def compile_bpf(source: str, target: Path, *defined: str) -> None:
    """Compile BPF programs; CO-RE fits them to the running kernel's types when they are loaded."""
    machine = platform.machine().lower()
    if machine not in ARCHITECTURES:
        message = f"machine: expected one of {', '.join(sorted(ARCHITECTURES))}, got {machine}"
        raise BuildError(message)
    # BPF_PROG makes a parameter of everything that a tracepoint tells, needed or not.
    warnings = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
    defines = (f"-D__TARGET_ARCH_{ARCHITECTURES[machine]}", *defined)
    flags = ("-g", "-O2", "-target", "bpf", "-mcpu=v3", *defines, *warnings)
    # Where Debian keeps <asm/...>: the bpf target does not look there by itself.
    headers = tuple(f"-isystem{path.parent}" for path in Path("/usr/include").glob("*-linux-gnu/asm"))
    run("clang", *flags, "-Iprobes/kernel", *headers, "-c", source, "-o", str(target))
    # Debug sections would triple the time it takes to load; BTF, which CO-RE needs, is not stripped with them.
    run("llvm-strip", "-g", str(target))


def compile_witness(target: Path) -> None:
    """Compile the witness."""
    compile_bpf("probes/kernel/witness.bpf.c", target)


def compile_witness_by_calls(target: Path) -> None:
    """Compile the witness for kernels before 6.2 (probes/kernel/direct.bpf.h)."""
    compile_bpf("probes/kernel/witness.bpf.c", target, "-DBY_CALLS")


def compile_divert(target: Path) -> None:
    """Compile what brings connections to the gateway."""
    compile_bpf("probes/gateway/divert.bpf.c", target)


def compile_boxinit(target: Path) -> None:
    """Compile the box's init: static, for it must start in a box that may hold no libc."""
    run("cc", "-static", "-Os", "-Wall", "-Wextra", "-Werror", "-o", str(target), "supervisor/launch/boxinit.c")


COMPILERS = {
    "witness": compile_witness,
    "witness_by_calls": compile_witness_by_calls,
    "divert": compile_divert,
    "boxinit": compile_boxinit,
}


def ensure(artefact: Artefact) -> str:
    """Have one artefact there, by the module's rule.

    Returns:
        What was done: ``kept``, ``built`` or ``taken``.

    Raises:
        BuildError: it is missing and cannot be built, or its compiler failed.
    """
    output = ROOT / artefact.output
    if output.exists() and output.stat().st_mtime >= artefact.newest_source():
        return "kept"
    missing = artefact.missing()
    if missing and output.exists():
        return "taken"
    if missing:
        message = (
            f"{artefact.output} is not there and cannot be built: missing {', '.join(missing)}\nhint: {artefact.hint}"
        )
        raise BuildError(message)
    artefact.newest_source()
    # Made beside its place and renamed: a build that is interrupted leaves no half an object.
    unfinished = output.with_name(output.name + ".unfinished")
    try:
        COMPILERS[artefact.name](unfinished)
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return "built"


def main(names: list[str]) -> int:
    """Build the named artefacts, or all of them."""
    for name in names or list(ARTEFACTS):
        try:
            done = ensure(ARTEFACTS[name])
        except BuildError as error:
            print(f"build: {error}", file=sys.stderr)
            return 1
        print(f"build: {ARTEFACTS[name].output} {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
