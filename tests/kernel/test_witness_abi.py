"""The Python mirror of the records against the BTF of the object that was built."""

from __future__ import annotations

import ctypes
import json
import struct
import subprocess
from enum import IntEnum, IntFlag
from typing import Any

import pytest

from probes.kernel import abi
from probes.kernel.pins import OBJECT


@pytest.fixture(scope="module")
def types() -> dict[str, dict[str, Any]]:
    """The object's types by name."""
    dump = subprocess.run(
        ["bpftool", "-j", "btf", "dump", "file", str(OBJECT)], capture_output=True, check=True, text=True
    )
    found = json.loads(dump.stdout)["types"]
    return {entry["name"]: entry for entry in found if entry["kind"] in {"STRUCT", "ENUM"}}


@pytest.mark.parametrize(("name", "mirror"), [("w_record", abi.Record), ("w_trial", abi.Trial)])
def test_structures_have_the_same_members_at_the_same_places(
    types: dict[str, dict[str, Any]], name: str, mirror: type[ctypes.Structure]
) -> None:
    """Every member of the C structure stands at the same offset in the mirror, and both have the same size."""
    layout = {member["name"]: member["bits_offset"] // 8 for member in types[name]["members"]}
    assert layout == {field[0]: getattr(mirror, field[0]).offset for field in mirror._fields_}
    assert types[name]["size"] == ctypes.sizeof(mirror)


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("w_record", abi.RECORD),
        ("w_writer", abi.WRITER),
        ("w_writer_key", abi.WRITER_KEY),
        ("w_settings", abi.SETTINGS),
        ("w_orders", abi.ORDERS),
        ("w_member", abi.MEMBER),
        ("w_port", abi.PORT),
        ("w_owner", abi.OWNER),
        ("w_dial", abi.DIAL),
        ("w_looks", abi.LOOKS),
        ("w_watched", abi.WATCHED),
    ],
)
def test_packed_forms_have_the_size_of_their_structure(
    types: dict[str, dict[str, Any]], name: str, packed: struct.Struct
) -> None:
    """A packed form that is read or written as a whole is as large as the structure."""
    assert packed.size == types[name]["size"]


@pytest.mark.parametrize(
    ("name", "prefix", "mirror"),
    [
        ("w_kind", "W_", abi.RecordKind),
        ("w_flag", "W_F_", abi.RecordFlag),
        ("w_network", "W_NET_", abi.Network),
        ("w_look", "W_LOOK_", abi.Look),
        ("w_watch", "W_WATCH_", abi.Watch),
    ],
)
def test_enumerations_have_the_same_names_and_values(name: str, prefix: str, mirror: type[IntEnum | IntFlag]) -> None:
    """Every constant of the header stands in the mirror with the same value (enums are not kept in BTF unless used)."""
    header = OBJECT.with_name("witness.h").read_text(encoding="ascii")
    body = header.split(f"enum {name} {{", 1)[1].split("};", 1)[0]
    pairs = [line.split("/*")[0].strip().rstrip(",") for line in body.splitlines() if "=" in line.split("/*")[0]]
    values = {text.split("=")[0].strip().removeprefix(prefix): int(text.split("=")[1]) for text in pairs}
    assert values == {member.name: int(member) for member in mirror}


def test_the_process_of_a_record_is_where_it_is_looked_for() -> None:
    """Records of other processes are passed over by this number alone."""
    assert abi.Record.pid.offset == abi.RECORD_PID_AT


def test_hooks_have_the_names_of_the_header() -> None:
    """The names that losses are told under stand in the order of ``enum w_hook``."""
    header = OBJECT.with_name("witness.h").read_text(encoding="ascii")
    body = header.split("enum w_hook {", 1)[1].split("};", 1)[0]
    names = [
        line.split("=")[0].strip().removeprefix("W_HOOK_").lower() for line in body.splitlines() if "W_HOOK_" in line
    ]
    assert tuple(names) == abi.HOOKS[: len(names)]


def test_the_window_of_reads_is_that_of_the_header() -> None:
    """Evidence allows for as long a time as the programs leave reads out."""
    header = OBJECT.with_name("witness.h").read_text(encoding="ascii")
    assert f"#define W_READ_WINDOW_NS {abi.READ_WINDOW_NS}\n" in header
