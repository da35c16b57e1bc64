"""Values of credentials are taken out of what is written, and nothing else changes."""

from __future__ import annotations

import base64
import json
import os
import struct
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.redaction import Redactor
from probes.kernel.abi import RECORD, RecordKind
from probes.kernel.decode import decode_slab
from probes.kernel.slabs import redact_slab
from supervisor import events as ev
from supervisor.prepare.redacting import redact_event

KEY = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYzz93kQ"
SHORT = b"hunter2"
secrets = st.binary(min_size=6, max_size=60).filter(lambda value: b"[" not in value and b"*" not in value)


def redactor(*values: bytes) -> Redactor:
    """Know some values by numbers."""
    return Redactor((f"N{number}", value) for number, value in enumerate(values))


@given(secrets, st.binary(max_size=80), st.binary(max_size=80))
def test_the_value_is_gone_and_the_length_stays(value: bytes, before: bytes, after: bytes) -> None:
    """At any place, with anything around it."""
    clean = redactor(value).redact(before + value + after, where="w")
    assert len(clean) == len(before + value + after)
    assert value not in clean


@pytest.mark.parametrize(
    "written",
    [
        base64.b64encode(b"u:" + KEY),
        base64.b64encode(b"xu:" + KEY + b"!"),
        base64.urlsafe_b64encode(KEY),
        KEY.hex().encode(),
        KEY.hex().upper().encode(),
        quote_from_bytes(KEY, safe="").encode(),
        quote_from_bytes(KEY).encode(),
        KEY.lower(),
        b"K7MDENG+bPxRfiCYzz93kQ\0wJalrXUtnFEMI",
    ],
)
def test_its_other_forms_are_taken_out_too(written: bytes) -> None:
    """Base64 at each alignment, hex, URL-encoding, lower case, and the components of a path leaf first."""
    clean = redactor(KEY).redact(b"<" + written + b">", where="w")
    assert len(clean) == len(written) + 2
    assert b"redacted N0" in clean


@pytest.mark.parametrize(
    "written",
    [
        b"\r\n".join((base64.b64encode(b"u:" + KEY)[:30], base64.b64encode(b"u:" + KEY)[30:])),
        KEY.hex().encode()[:40] + b"." + KEY.hex().encode()[40:] + b".evil.test",
        b"".join(b"%%%02x" % byte for byte in KEY),
        b":".join(b"%02x" % byte for byte in KEY),
    ],
    ids=["lines", "labels", "escapes", "colons"],
)
def test_what_holds_a_value_in_pieces_is_taken_out_whole(written: bytes) -> None:
    """Of what was sent or said nothing is left but its length, and whose value it was."""
    clean = redactor(KEY)
    assert clean.redact(written, where="w") == written
    assert clean.sweep(written, where="w") == b"[redacted N0]".ljust(len(written), b"*")
    assert list(clean.take_counts()) == [("N0", "w", 1)]


def test_a_key_of_many_lines_is_taken_out_of_a_string_of_json() -> None:
    """Line ends and quotes are escaped there."""
    key = b'first "line" of it\nsecond line of it\n'
    written = json.dumps({"key": key.decode()}).encode()
    assert b"line of it" not in redactor(key).redact(written, where="w")


def test_what_stands_instead_says_so_where_there_is_room() -> None:
    """The name, the word, or stars."""
    clean = Redactor([("API_KEY", b"x" * 12 + b"q" * 12), ("P", b"abcdefghijkl"), ("S", SHORT)])
    assert clean.redact(b"x" * 12 + b"q" * 12, where="w") == b"[redacted API_KEY]******"
    assert clean.redact(b"abcdefghijkl", where="w") == b"[redacted P]"
    assert clean.redact(SHORT, where="w") == b"*" * len(SHORT)


def test_what_was_taken_out_is_counted() -> None:
    """By name and place, once."""
    clean = redactor(KEY, SHORT)
    assert not clean.met
    clean.redact(KEY + b" " + KEY, where="kernel")
    assert clean.met
    clean.redact_text(f"so {SHORT.decode()}", where="records")
    assert list(clean.take_counts()) == [("N0", "kernel", 2), ("N1", "records", 1)]
    assert list(clean.take_counts()) == []


@given(st.binary(max_size=500))
def test_nothing_else_is_touched(data: bytes) -> None:
    """Bytes without a value come back as they are."""
    clean = redactor(KEY, b"\xff\xfe\xfd-no-such-value")
    assert clean.redact(data, where="w") is data
    assert clean.sweep(data, where="w") is data


def record(kind: RecordKind, text: bytes, *, cut: int = 0) -> bytes:
    """Give one record of the ring; ``cut`` is the length of its first part."""
    body = RECORD.pack(1, 2, 3, kind, 1, 0, 0, cut, 0, int.from_bytes(SHORT[:7], "little"), 0, 0) + text
    return struct.pack("<II", len(body), 0) + body + bytes(-len(body) % 8)


def test_a_slab_stays_whole_without_the_value() -> None:
    """Arguments and paths are cleaned; numbers that happen to be equal to a value, and other records, are not."""
    exe = b"curl\0bin\0usr\0"
    argv = b"curl\0-H\0Bearer " + KEY + b"\0https://api.test/?k=" + SHORT
    slab = (
        record(RecordKind.FILE_OPENED, b"plain\0")
        + record(RecordKind.PROC_EXECUTED, exe + argv, cut=len(exe))
        + record(RecordKind.FILE_OPENED, SHORT + b".txt\0tmp\0")
    )
    clean = redact_slab(slab, redactor(KEY, SHORT))
    assert len(clean) == len(slab)
    assert KEY not in clean
    opened, executed, named = decode_slab(clean, 0)
    assert isinstance(opened, ev.FileOpened)
    assert isinstance(executed, ev.ProcessExecuted)
    assert isinstance(named, ev.FileOpened)
    assert executed.argv[2].startswith(b"Bearer [redacted N0]*")
    assert executed.argv[3] == b"https://api.test/?k=*******"
    assert named.path == b"/tmp/*******.txt"
    assert named.inode == int.from_bytes(SHORT[:7], "little")


texts = st.binary(max_size=60).map(lambda text: text.replace(b"\0", b"."))


@given(st.lists(st.tuples(texts, st.booleans(), texts), min_size=1, max_size=12), secrets)
def test_every_slab_keeps_its_records(parts: list[tuple[bytes, bool, bytes]], value: bytes) -> None:
    """Whatever the records hold, their bounds and numbers stay, and the value is in none of their texts."""
    whole = [before + (value if holds else b"") + after for before, holds, after in parts]
    slab = b"".join(record(RecordKind.FILE_OPENED, text.replace(b"\0", b".") + b"\0") for text in whole)
    clean = redact_slab(slab, redactor(value))
    assert len(clean) == len(slab)
    events = list(decode_slab(clean, 0))
    assert len(events) == len(parts)
    for event, text in zip(events, whole, strict=True):
        assert isinstance(event, ev.FileOpened)
        assert len(event.path) == len(text) + 1
        assert value not in event.path


def test_a_slab_without_a_value_is_not_copied() -> None:
    """The usual case costs one look."""
    slab = record(RecordKind.FILE_OPENED, os.urandom(40))
    assert redact_slab(slab, redactor(KEY)) is slab


def test_events_are_cleaned_in_every_field_of_text() -> None:
    """Texts, bytes and lists of them; one without a value is the same object."""
    note = ev.NoteReceived(n=1, time_ns=1, text=f"my key is {KEY.decode()}")
    assert KEY.decode() not in redact_event(note, redactor(KEY)).text
    left = ev.StageCommitted(n=1, time_ns=1, state="applied", entries=1, left_out=(b"a", b"x/" + SHORT))
    assert redact_event(left, redactor(SHORT)).left_out == (b"a", b"x/*******")
    assert redact_event(left, redactor(KEY)) is left


def test_an_event_that_was_counted_is_not_counted_again() -> None:
    """What is given back to who recorded it is cleaned like what was written."""
    note, clean = ev.NoteReceived(n=1, time_ns=1, text=KEY.decode()), redactor(KEY)
    assert redact_event(note, clean, where="") == redact_event(note, clean)
    assert list(clean.take_counts()) == [("N0", "records", 1)]


@pytest.mark.parametrize(
    "value", [b"K7MDENG+b/PxRfiCYzz", b"/leading/K7MDENG", b"trailing/K7MDENG/", b"double//K7MDENG"]
)
@given(before=st.sampled_from([b"", b"q", b"some"]), behind=st.sampled_from([b"", b".txt"]))
def test_a_path_is_hidden_in_one_way_whoever_tells_it(value: bytes, before: bytes, behind: bytes) -> None:
    """The kernel gives components leaf first, system calls and the disk the path: it must be found again."""
    redactor = Redactor([("KEY", value)])
    parts = [part for part in (b"/tmp/" + before + value + behind + b"/x").split(b"/") if part]
    path = b"/" + b"/".join(parts)
    told = redactor.redact(b"\0".join(reversed(parts)) + b"\0", where="")
    hidden = redactor.redact(path, where="")
    assert len(hidden) == len(path)
    assert b"K7MDENG" not in hidden
    assert b"/" + b"/".join(reversed(told.split(b"\0")[:-1])) == hidden
