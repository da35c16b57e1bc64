"""Calls that Python has no name for: file handles and syncfs, through the C library.

Loaded only when they are used: most trials copy no lower file that had several names.
"""

from __future__ import annotations

import ctypes
import os

from supervisor.launch.whiteouts import HandleKey

_MAX_HANDLE = 128
_libc = ctypes.CDLL(None, use_errno=True)


class _FileHandle(ctypes.Structure):
    """``struct file_handle`` of name_to_handle_at(2)."""

    _fields_ = (
        ("handle_bytes", ctypes.c_uint),
        ("handle_type", ctypes.c_int),
        ("f_handle", ctypes.c_ubyte * _MAX_HANDLE),
    )


def name_to_handle(directory: int, name: bytes) -> HandleKey | None:
    """Ask the kernel for the handle of an entry of an open directory; None when its file system gives none."""
    handle = _FileHandle(handle_bytes=_MAX_HANDLE)
    mount = ctypes.c_int()
    failed = _libc.name_to_handle_at(directory, name, ctypes.byref(handle), ctypes.byref(mount), 0)
    if failed:
        return None
    return handle.handle_type, bytes(handle.f_handle[: handle.handle_bytes])


def syncfs(descriptor: int) -> None:
    """Make the whole file system that holds the descriptor survive a power cut."""
    if _libc.syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
