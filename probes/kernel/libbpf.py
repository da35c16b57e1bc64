"""The one module that speaks to libbpf (through ctypes), and to the bpf maps and pins behind it.

Every function raises `MachineError` with the errno and the last lines that libbpf itself said.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from supervisor.errors import MachineError

if TYPE_CHECKING:  # it is imported before anything else of a start, and pathlib costs 6 ms
    from pathlib import Path

MAP_TYPE_RINGBUF = 27
_PROGRAM_INFO_BYTES = 256
#: offset of ``recursion_misses`` in ``struct bpf_prog_info`` (include/uapi/linux/bpf.h, since 5.12)
_RECURSION_MISSES_AT = 208
_LINES_KEPT = 40
_BATCH = 512

_said: list[str] = []


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as err:
        message = "libbpf.so.1 cannot be loaded"
        raise MachineError(message, hint="install it: apt-get install libbpf1") from err
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("bpf_object__open_file", pointer, (text, pointer)),
        ("bpf_object__load", ctypes.c_int, (pointer,)),
        ("bpf_object__close", None, (pointer,)),
        ("bpf_object__next_program", pointer, (pointer, pointer)),
        ("bpf_object__find_map_by_name", pointer, (pointer, text)),
        ("bpf_program__name", text, (pointer,)),
        ("bpf_program__fd", ctypes.c_int, (pointer,)),
        ("bpf_program__section_name", text, (pointer,)),
        ("bpf_program__attach", pointer, (pointer,)),
        ("bpf_program__attach_cgroup", pointer, (pointer, ctypes.c_int)),
        ("bpf_program__attach_netns", pointer, (pointer, ctypes.c_int)),
        ("bpf_link__pin", ctypes.c_int, (pointer, text)),
        ("bpf_link__destroy", ctypes.c_int, (pointer,)),
        ("bpf_map__fd", ctypes.c_int, (pointer,)),
        ("bpf_obj_pin", ctypes.c_int, (ctypes.c_int, text)),
        ("bpf_obj_get", ctypes.c_int, (text,)),
        ("bpf_obj_get_info_by_fd", ctypes.c_int, (ctypes.c_int, pointer, pointer)),
        ("bpf_map_create", ctypes.c_int, (ctypes.c_int, text, *(ctypes.c_uint32,) * 3, pointer)),
        ("bpf_map_update_elem", ctypes.c_int, (ctypes.c_int, pointer, pointer, ctypes.c_uint64)),
        ("bpf_map_lookup_elem", ctypes.c_int, (ctypes.c_int, pointer, pointer)),
        ("bpf_map_delete_elem", ctypes.c_int, (ctypes.c_int, pointer)),
        ("bpf_map_get_next_key", ctypes.c_int, (ctypes.c_int, pointer, pointer)),
        ("bpf_map_lookup_and_delete_elem", ctypes.c_int, (ctypes.c_int, pointer, pointer)),
        ("bpf_map_lookup_batch", ctypes.c_int, (ctypes.c_int, *(pointer,) * 5, pointer)),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    library.libbpf_set_print.restype = ctypes.c_void_p
    library.libbpf_set_print(None)
    return library


def _listen(_level: int, template: bytes, arguments: int) -> int:
    """Keep what libbpf prints instead of letting it reach the user's stderr."""
    line = ctypes.create_string_buffer(4096)
    ctypes.CDLL(None).vsnprintf(line, len(line), template, ctypes.c_void_p(arguments))
    _said.append(line.value.decode(errors="replace").rstrip())
    del _said[:-_LINES_KEPT]
    return 0


_listener = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_listen)


@contextmanager
def _listening() -> Iterator[None]:
    _said.clear()
    _lib().libbpf_set_print(_listener)
    try:
        yield
    finally:
        _lib().libbpf_set_print(None)


_library: ctypes.CDLL | None = None


def _lib() -> ctypes.CDLL:
    global _library  # noqa: PLW0603 - loaded once, on first use: starting without a witness need not have it
    if _library is None:
        _library = _load()
    return _library


def _failed(what: str, *, place: str | None = None) -> MachineError:
    number = ctypes.get_errno()
    said = "\n".join(_said[-12:])
    reason = os.strerror(number) if number else "unknown error"
    return MachineError(f"{what} failed: {reason}", place=place, hint=f"libbpf said:\n{said}" if said else None)


class BpfObject:
    """An object file whose programs and maps are loaded into the kernel; close it when all that is needed is pinned."""

    def __init__(self, path: Path | str) -> None:
        """Open and load ``path``; raises `MachineError` with the end of the verifier's log."""
        self._path = path
        self._handle = None
        if not self._load():
            # libbpf says a lot even when all is well, and each line costs a call into Python: ask only after a failure.
            with _listening():
                if not self._load():
                    raise _failed("loading the BPF object", place=str(path))

    def _load(self) -> bool:
        self._handle = _lib().bpf_object__open_file(os.fsencode(self._path), None)
        if not self._handle:
            return False
        if _lib().bpf_object__load(self._handle):
            self.close()
            return False
        return True

    def close(self) -> None:
        """Let go of the object; what is pinned stays."""
        if self._handle:
            _lib().bpf_object__close(self._handle)
            self._handle = None

    def programs(self) -> Iterator[tuple[str, str, int]]:
        """Yield name, section and handle of every program."""
        handle = _lib().bpf_object__next_program(self._handle, None)
        while handle:
            name = _lib().bpf_program__name(handle).decode()
            yield name, _lib().bpf_program__section_name(handle).decode(), handle
            handle = _lib().bpf_object__next_program(self._handle, handle)

    def attach_pinned(self, handle: int, link: Path, program: Path, *, cgroup_fd: int | None = None) -> None:
        """Attach one program (to a cgroup, or where its section says) and pin the link and the program."""
        attached = (
            _lib().bpf_program__attach(handle)
            if cgroup_fd is None
            else _lib().bpf_program__attach_cgroup(handle, cgroup_fd)
        )
        if not attached:
            raise _failed(f"attaching {link.name}")
        if _lib().bpf_link__pin(attached, os.fsencode(link)):
            error = _failed("pinning a link", place=str(link))
            _lib().bpf_link__destroy(attached)
            raise error
        _lib().bpf_link__destroy(attached)
        if _lib().bpf_obj_pin(_lib().bpf_program__fd(handle), os.fsencode(program)):
            raise _failed("pinning a program", place=str(program))

    def attach_to_namespace(self, handle: int, namespace: int) -> None:
        """Attach one program to a network namespace, for as long as this process lives."""
        if not _lib().bpf_program__attach_netns(handle, namespace):
            raise _failed("attaching to a network namespace")

    def map_fd(self, name: str) -> int:
        """Give the descriptor of the map called ``name``; it closes with the object."""
        found = _lib().bpf_object__find_map_by_name(self._handle, name.encode())
        if not found:
            raise _failed(f"finding map {name}")
        return int(_lib().bpf_map__fd(found))

    def pin_map(self, name: str, path: Path) -> None:
        """Pin the map called ``name``."""
        found = _lib().bpf_object__find_map_by_name(self._handle, name.encode())
        if not found or _lib().bpf_obj_pin(_lib().bpf_map__fd(found), os.fsencode(path)):
            raise _failed(f"pinning map {name}", place=str(path))


def open_pin(path: Path) -> int:
    """Open a pinned map, program or link; returns a descriptor the caller closes."""
    ctypes.set_errno(0)
    fd: int = _lib().bpf_obj_get(os.fsencode(path))
    if fd < 0:
        raise _failed("opening a pin", place=str(path))
    return fd


def update_map(fd: int, key: bytes, value: bytes) -> None:
    """Set one entry of a map by its descriptor; one of sockets takes their descriptors, as 8 bytes."""
    ctypes.set_errno(0)
    if _lib().bpf_map_update_elem(fd, key, value, 0):
        raise _failed("updating a map")


def create_ring(size_bytes: int) -> int:
    """Make a ring buffer; ``size_bytes`` is a power of two and at least a page. Returns its descriptor."""
    ctypes.set_errno(0)
    fd: int = _lib().bpf_map_create(MAP_TYPE_RINGBUF, b"trial_ring", 0, 0, size_bytes, None)
    if fd < 0:
        raise _failed(f"making a ring of {size_bytes} bytes")
    return fd


class BpfMap:
    """One map by its descriptor; keys and values are bytes of the map's own sizes."""

    def __init__(self, fd: int, value_bytes: int) -> None:
        """Own ``fd``; ``value_bytes`` is the size of a value as user space sees it."""
        self.fd = fd
        self._value_bytes = value_bytes

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def update(self, key: bytes, value: bytes) -> None:
        """Set ``key`` to ``value``."""
        update_map(self.fd, key, value)

    def lookup(self, key: bytes) -> bytes | None:
        """Give the value of ``key``, or None."""
        value = ctypes.create_string_buffer(self._value_bytes)
        if _lib().bpf_map_lookup_elem(self.fd, key, value):
            return None
        return value.raw

    def delete(self, key: bytes) -> bool:
        """Remove ``key``; False when it was not there."""
        return bool(_lib().bpf_map_delete_elem(self.fd, key) == 0)

    def take(self, key: bytes) -> bytes | None:
        """Remove ``key`` and give its last value, or None: nothing is added to it in between."""
        value = ctypes.create_string_buffer(self._value_bytes)
        if _lib().bpf_map_lookup_and_delete_elem(self.fd, key, value):
            return None
        return value.raw

    def entries(self, key_bytes: int) -> list[tuple[bytes, bytes]]:
        """Give all entries of a hash that others write to: bucket by bucket, so that it ends whatever they do."""
        found: list[tuple[bytes, bytes]] = []
        keys = ctypes.create_string_buffer(key_bytes * _BATCH)
        values = ctypes.create_string_buffer(self._value_bytes * _BATCH)
        begin, end, count = ctypes.c_uint32(), ctypes.c_uint32(), ctypes.c_uint32(_BATCH)
        first: object = None
        failed = 0
        while not failed:
            count.value = _BATCH
            failed = _lib().bpf_map_lookup_batch(
                self.fd, first, ctypes.byref(end), keys, values, ctypes.byref(count), None
            )
            if failed and ctypes.get_errno() != errno.ENOENT:
                raise _failed("reading a map")
            raw_keys, raw_values, step = keys.raw, values.raw, self._value_bytes
            found.extend(
                (raw_keys[i * key_bytes : (i + 1) * key_bytes], raw_values[i * step : (i + 1) * step])
                for i in range(count.value)
            )
            begin.value = end.value
            first = ctypes.byref(begin)
        return found

    def keys(self, key_bytes: int) -> list[bytes]:
        """Give all keys of a map that nobody writes to meanwhile."""
        found: list[bytes] = []
        key: bytes | None = None
        slot = ctypes.create_string_buffer(key_bytes)
        while _lib().bpf_map_get_next_key(self.fd, key, slot) == 0:
            key = slot.raw
            found.append(key)
        if ctypes.get_errno() not in (0, errno.ENOENT):
            raise _failed("reading the keys of a map")
        return found


def recursion_misses(program_fd: int) -> int:
    """Count how often the program was not run since it was running on that processor already."""
    info = ctypes.create_string_buffer(_PROGRAM_INFO_BYTES)
    size = ctypes.c_uint32(_PROGRAM_INFO_BYTES)
    if _lib().bpf_obj_get_info_by_fd(program_fd, info, ctypes.byref(size)):
        raise _failed("reading a program's counters")
    if size.value < _RECURSION_MISSES_AT + 8:
        return 0
    return int.from_bytes(info.raw[_RECURSION_MISSES_AT : _RECURSION_MISSES_AT + 8], "little")
