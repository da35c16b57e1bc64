"""The architecture, read from the imports: what may import what, and who may touch the system.

Nothing is executed: the sources are parsed, imports inside functions and `importlib` calls with a literal included.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

STAGES = (
    ("policies",),
    ("supervisor.launch.libc",),
    ("supervisor.launch.view",),
    ("supervisor.launch.disk",),
    ("supervisor.launch.runs",),
    ("supervisor.launch.stage",),
    ("supervisor.launch",),
    ("probes",),
    ("supervisor.log",),
    ("supervisor.evidence",),
    ("supervisor.evidence.paths", "supervisor.evidence.graders"),
    ("supervisor.evidence.collect",),
    ("supervisor.verdict",),
    ("supervisor.verdict.runs",),
    ("supervisor.report",),
    ("supervisor.campaign",),
    ("supervisor.clock", "supervisor.request", "supervisor.signals", "supervisor.streams", "supervisor.version"),
    ("supervisor.prepare",),
    ("supervisor.trial",),
    ("supervisor.grade",),
    ("supervisor.conclude",),
    ("supervisor.run",),
    ("supervisor.kept",),
    ("supervisor.settle",),
    ("supervisor.replay",),
    ("supervisor.harness",),
    ("supervisor.command", "supervisor.cli", "supervisor.__main__"),
)
"""In the order of the straight line: a stage imports earlier ones only. A stage is a room, or a few modules.

What lies in a room and is named for itself is a stage of its own, and not of the room's.
"""

SHARED = frozenset({"supervisor", "supervisor.events", "supervisor.errors", "supervisor.values"})
"""What every stage may import, with the modules below them; they import no stage."""

LAYER_EXCEPTIONS = {
    ("supervisor.launch", "supervisor.evidence.file_facts"): "what was found on disk is said in the words of the facts",
    ("supervisor.request", "supervisor.trial.tool_relay"): "names the type of what a caller passes to the trial",
    ("supervisor.trial.trial", "supervisor.conclude"): "imports it ahead, beside the kernel's work on the box",
}

SYSTEM_MODULES = frozenset({"os", "socket", "subprocess", "ctypes", "time", "random", "secrets", "pty", "mmap"})

SYSTEM_ACCESS = {
    "supervisor.clock": "the trusted clocks",
    "supervisor.prepare.inspected": "names paths in bytes",
    "supervisor.command.learning": "asks for the architecture",
    "supervisor.prepare.credentials": "looks for the homes of the machine, and names paths in bytes",
    "supervisor.conclude.searching": "names paths in bytes",
    "supervisor.prepare.preparing": "fixes who runs, where and under which id: users, groups, environment, randomness",
    "supervisor.trial.watching": "names the directory of all runs in bytes",
    "supervisor.prepare.masking": "looks up what a policy wants masked on this host",
    "supervisor.prepare.globbing": "walks the directories of this host",
    "supervisor.prepare.declared": "looks up the places that a policy names on this host",
    "supervisor.conclude.concluding": "names paths in bytes and asks for the architecture",
    "supervisor.grade.grade_box": "holds the descriptors of a grader's box",
    "supervisor.grade.grading": "names paths in bytes",
    "supervisor.conclude.validating": "writes the description where the validator reads it",
    "supervisor.kept.judging": "names paths in bytes",
    "supervisor.trial.tape": "asks for the architecture",
    "supervisor.trial.following": "polls the descriptors that a trial's end is seen by",
    "supervisor.trial.trial": "holds the descriptors of one trial",
    "supervisor.settle.settling": "locks the directory of addenda, and names paths in bytes",
    "supervisor.prepare.machine": "asks for the name of the machine",
    "supervisor.settle.resumed": "waits for answers and signals, by their descriptors",
    "supervisor.settle.schedule_watch": "looks for what a trial left on the host, and asks systemd",
    "supervisor.settle.outcome_check": "names paths in bytes",
    "supervisor.trial.budget": "wakes up whoever waits for the end of a budget, by a descriptor",
    "supervisor.trial.tool_relay": "passes messages on between descriptors",
    "supervisor.trial.service_watch": "wakes up whoever waits for an answer, by a descriptor",
    "supervisor.replay.replaying": "starts the services of the replay and finds a program that the box shows",
    "supervisor.replay.worker": "is a program of its own that needs a clock",
    "supervisor.replay.shop": "is a service of its own: a socket and a clock",
    "supervisor.signals": "waits for the signals that the supervisor gets",
    "supervisor.command.asking": "takes over the words and the environment of a caller, and where he is",
    "supervisor.conclude.differing": "reads both sides of a file by descriptor",
    "supervisor.command.status": "writes to the descriptor that a caller named",
    "supervisor.streams": "holds the standard streams",
    "supervisor.command.unseen": "looks for the program that a caller named",
    "supervisor.command.unwritable": "looks at whose a workspace is",
    "supervisor.cli": "reads the environment and the terminal, and exits",
    "supervisor.command.commands": "takes over the environment of its caller",
    "supervisor.command.printing": "the one module that prints, and asks the terminal how",
    "supervisor.__main__": "ends the process",
    "supervisor.harness": "takes the caller's environment where none is given",
    "probes.credentials.keeper": "keeps a key in the state directory",
    "probes.credentials.search": "reads what a trial left, by descriptor and within bounds",
    "probes.gateway.authority": "hands a certificate to OpenSSL in a file that has no name",
    "probes.gateway.datagrams": "reads what the kernel says beside a datagram, by both clocks",
    "probes.gateway.ground": "makes the sockets that serve a namespace",
    "probes.gateway.loop": "waits for descriptors and reads the clock of events",
    "probes.gateway.netlink": "speaks to the kernel's routing",
    "probes.gateway.porter": "accepts connections and holds them",
    "probes.gateway.process": "forks the gateway, holds its socket, gives up its privileges",
    "probes.gateway.side": "owns one socket of a connection",
    "probes.gateway.relay": "passes bytes between sockets",
    "probes.gateway.holding": "reads a connection, and keeps it in memory",
    "probes.gateway.releasing": "dials for what was accepted",
    "probes.gateway.sinkhole": "reads a connection, and passes nothing on",
    "probes.gateway.telling": "sends to the supervisor",
    "probes.gateway.service": "accepts, answers, and asks the host for names",
    "probes.shared": "watches places of the host",
    "probes.doctor": "reads the environment for the state directory",
    "probes.doctor_box": "tries what a box needs",
    "probes.doctor_host": "looks at limits, disks and neighbours",
    "probes.doctor_kernel": "loads the witness, opens a pidfd",
    "probes.doctor_preflight": "looks whether root, programs and files are there",
    "probes.doctor_trials": "runs the programs that doctor tries things with",
}
"""Every module that may import one of `SYSTEM_MODULES`, and why that is its job."""

SYSTEM_ROOMS = ("supervisor.launch", "probes.kernel", "probes.services", "supervisor.log")
"""Rooms whose whole job is the system; single modules elsewhere are listed above."""

PURE_ROOMS = ("supervisor.evidence", "supervisor.verdict", "supervisor.events", "supervisor.errors", "policies.types")
"""No I/O of any kind, not even a clock."""

INPUT_OUTPUT = SYSTEM_MODULES | {"asyncio", "fcntl", "io", "logging", "multiprocessing", "shutil", "tempfile"}

LIBRARY_LOADERS = {"supervisor.launch.libc": "libc", "probes.kernel.libbpf": "libbpf"}
"""The modules that load a C library for everybody. Others may use ctypes for the layout of structs only."""

LATER_BINDINGS = ("pyroute2", "docker")
"""Bindings that no stage needs yet; the module that first does is named here."""


def module_name(path: Path) -> str:
    """Give the dotted name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources() -> list[Path]:
    """Every source file of the three packages."""
    return sorted(path for room in ("policies", "probes", "supervisor") for path in (ROOT / room).rglob("*.py"))


def imports(tree: ast.AST, name: str, *, package: bool) -> Iterator[str]:
    """Give every module that a parsed source imports; ``from a import b`` gives ``a`` and ``a.b``."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = _resolve(name, module, level, package=package)
                yield base
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(target)), *_]):
                yield target


def _resolve(name: str, module: str | None, level: int, *, package: bool) -> str:
    if not level:
        return module or ""
    parts = name.split(".")
    kept = parts[: len(parts) - level + (1 if package else 0)]
    return ".".join([*kept, *([module] if module else [])])


def imported_by(path: Path) -> set[str]:
    """Give what one file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return set(imports(tree, module_name(path), package=path.name == "__init__.py"))


def within(name: str, room: str) -> bool:
    """Tell whether a module is a room or lies in it."""
    return name == room or name.startswith(room + ".")


def stage_of(name: str) -> int | None:
    """Give the place of a module on the straight line, or None for what all share."""
    places = {room: place for place, rooms in enumerate(STAGES) for room in rooms if within(name, room)}
    return places[max(places, key=len)] if places else None


def layer_faults(name: str, imported: set[str]) -> list[str]:
    """Say which imports of one module point forward. Of a package and what is imported from it, the latter counts."""
    # `supervisor` itself is the face of the whole: it may name every stage, and does so lazily.
    fallback = len(STAGES) if name == "supervisor" else -1
    mine = stage_of(name)
    limit = fallback if mine is None else mine
    return [
        f"{name} imports {target}"
        for target in sorted(imported)
        if (theirs := stage_of(target)) is not None and theirs > limit
        if not excepted(name, target) and not any(within(other, target) for other in imported - {target})
    ]


def excepted(name: str, target: str) -> bool:
    """Tell whether an import is one of the stated exceptions."""
    return any(within(name, room) and within(target, allowed) for room, allowed in LAYER_EXCEPTIONS)


@pytest.mark.parametrize("path", sources(), ids=module_name)
def test_a_stage_imports_earlier_stages_only(path: Path) -> None:
    """No module imports a stage that comes after its own on the straight line."""
    assert not layer_faults(module_name(path), imported_by(path))


def test_every_module_has_its_place() -> None:
    """No module lies beside the line: each is of a stage, or of what all share."""
    names = {module_name(path) for path in sources()}
    placeless = {name for name in names if stage_of(name) is None and name != "supervisor"}
    assert not {name for name in placeless if not any(within(name, room) for room in SHARED - {"supervisor"})}
    assert stage_of("supervisor.beside") is None


@pytest.mark.parametrize("path", sources(), ids=module_name)
def test_the_system_is_touched_where_that_is_the_job(path: Path) -> None:
    """Only rooms and modules whose job it is import os, sockets, processes, clocks or randomness."""
    name = module_name(path)
    if name in SYSTEM_ACCESS or any(within(name, room) for room in SYSTEM_ROOMS):
        return
    used = {target.partition(".")[0] for target in imported_by(path)} & SYSTEM_MODULES
    assert not used, f"{name} imports {', '.join(sorted(used))}; give it as an argument, or state why in SYSTEM_ACCESS"


@pytest.mark.parametrize(
    "path", [path for path in sources() if any(within(module_name(path), room) for room in PURE_ROOMS)], ids=module_name
)
def test_evidence_and_verdict_do_no_input_or_output(path: Path) -> None:
    """The pure rooms import nothing that reaches out, and open nothing."""
    used = {target.partition(".")[0] for target in imported_by(path)} & INPUT_OUTPUT
    tree = ast.parse(path.read_text(encoding="utf-8"))
    opened = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input"}
    ]
    assert not used
    assert not opened


def loads_a_library(path: Path) -> bool:
    """Tell whether a file names one of the loaders of ctypes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return bool(named & {"CDLL", "PyDLL", "LibraryLoader", "cdll"})


def test_each_binding_has_one_home() -> None:
    """One module loads libc, one libbpf, and no module imports pyroute2 or docker before a stage needs them."""
    loaders = {module_name(path) for path in sources() if loads_a_library(path)}
    assert loaders <= set(LIBRARY_LOADERS), f"loaded elsewhere: {', '.join(sorted(loaders - set(LIBRARY_LOADERS)))}"
    imported = {target.partition(".")[0] for path in sources() for target in imported_by(path)}
    assert not imported & set(LATER_BINDINGS)


def test_the_stated_reasons_are_about_modules_that_exist() -> None:
    """No exception outlives the import that it was made for."""
    using = {
        module_name(path)
        for path in sources()
        if {target.partition(".")[0] for target in imported_by(path)} & SYSTEM_MODULES
    }
    assert set(SYSTEM_ACCESS) <= using


def test_a_forward_import_is_found() -> None:
    """The check is not blind: an import that points forward is named, the same backward is not."""
    assert layer_faults("supervisor.log.writer", {"supervisor.verdict.laws"})
    assert not layer_faults("supervisor.verdict.laws", {"supervisor.log.writer", "supervisor.events"})
    assert layer_faults("supervisor.events", {"policies.types"})
    assert layer_faults("supervisor.launch.disk.tree", {"supervisor.launch.box"})
    assert layer_faults("supervisor.launch.disk.tree", {"supervisor.launch", "supervisor.launch.box"})
    assert not layer_faults("supervisor.launch.disk.tree", {"supervisor.launch", "supervisor.launch.libc"})
    assert not layer_faults("supervisor.launch.box", {"supervisor.launch.disk.tree"})


def test_imports_inside_functions_and_relative_ones_are_seen() -> None:
    """The check reads the whole tree, not only the head of a file."""
    tree = ast.parse("def f():\n    from . import writer\n    import os.path\n")
    assert {"supervisor.log.writer", "os.path"} <= set(imports(tree, "supervisor.log.reader", package=False))


DISTRIBUTIONS = {"detect_secrets": "detect-secrets", "psycopg": "psycopg[binary]"}
"""Of modules that are not called as what brings them; what is brought by one of ours is named by that one."""


def test_what_is_imported_is_installed_with_us() -> None:
    """Every module from elsewhere is one of the dependencies, so that they are enough for all of it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[<>=]", line)[0].lower().replace("_", "-") for line in project["dependencies"]}
    ours = {"supervisor", "probes", "policies", ""}
    imported = {target.partition(".")[0] for path in sources() for target in imported_by(path)}
    foreign = imported - ours - sys.stdlib_module_names
    named = {DISTRIBUTIONS.get(module, module).lower().replace("_", "-") for module in foreign}
    assert named <= declared, f"not among the dependencies: {', '.join(sorted(named - declared))}"
