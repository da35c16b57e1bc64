"""Taking known values out of what is about to be written. In: bytes or text; out: the same length, without them.

Laws:
    * What stands instead has the length of what was taken out, so that records whose parts are told by their length
      stay what they are, and says so: ``[redacted NAME]``, filled up with stars, or stars alone where there is no room.
    * What was taken out is counted by name: that a value was met is evidence.
    * Taken out are the forms in which a value is one piece: as it is, in lower case, base64, base32, hex, URL-encoded,
      and as a path of the kernel, whose components stand leaf first.
    * Where a value is in something that was sent or said all the same, cut up by lines, labels or escapes, the whole of
      that is taken out (`Redactor.sweep`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from policies.credentials import REDACTED_MIN_BYTES
from supervisor.values import dataclass

if TYPE_CHECKING:  # what most runs have nothing to do with costs them no import
    from policies.spotting import Spotter

CUT_MIN_BYTES = 12
"""A value that is shorter is not recognised in pieces: `policies.spotting` would meet it by chance."""

_GRAM = 8
_SURE = 2 * _GRAM - 1
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_WORD = b"[redacted]"


class Redactor:
    """The values of one run. It may be used from any thread."""

    def __init__(self, values: Iterable[tuple[str, bytes]]) -> None:
        """Write each value in its forms.

        Args:
            values: name and value, as `policies.credentials.hidden_values` gives them.
        """
        forms: dict[bytes, str] = {}
        listed = tuple(values)
        for name, value in listed:
            for form in _forms(value):
                if len(form) >= REDACTED_MIN_BYTES:
                    forms.setdefault(form, name)
        # A longer form may hold a shorter one, and is taken out first.
        self._forms = tuple(sorted(forms.items(), key=lambda item: (-len(item[0]), item[0])))
        self._short = tuple(form for form in forms if len(form) < _SURE)
        self._pieces = frozenset(piece for form in forms if len(form) >= _SURE for piece in _first_pieces(form))
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()
        self._values = tuple((name, value) for name, value in listed if len(value) >= CUT_MIN_BYTES)
        self._paths = tuple(_Path.of(name, value) for name, value in listed if value.strip(b"/").count(b"/"))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take out of anything."""
        return not self._forms

    @property
    def met(self) -> bool:
        """Whether anything was taken out since the counts were taken."""
        return bool(self._counts)

    def may_hold(self, data: bytes) -> bool:
        """Tell cheaply whether there may be something to take out; False is certain."""
        if any(form in data for form in self._short) or any(path.probe in data for path in self._paths):
            return True
        whole = memoryview(data)[: len(data) // _GRAM * _GRAM].cast("Q")
        return bool(self._pieces) and not self._pieces.isdisjoint(whole)

    def redact(self, data: bytes, *, where: str) -> bytes:
        """Take every value out of some bytes.

        Args:
            data: any bytes.
            where: what it is counted under; empty for what was counted already.
        """
        if not self._forms or not self.may_hold(data):
            return data
        for form, name in self._forms:
            if count := data.count(form):
                data = data.replace(form, _marker(name, len(form)))
                self._count(name, where, count)
        for path in self._paths:
            if path.probe in data:
                data, count = path.form.subn(path.replace, data)
                self._count(path.name, where, count)
        return data

    def sweep(self, data: bytes, *, where: str) -> bytes:
        """Take every value out of some bytes, and all of them where a value is cut up in them."""
        clean = self.redact(data, where=where)
        if len(clean) < CUT_MIN_BYTES or not self._values:
            return clean
        for sighting in self._spotter.spot(clean):
            self._count(sighting.name, where, 1)
            return _marker(sighting.name, len(clean))
        return clean

    @cached_property
    def _spotter(self) -> Spotter:
        from policies.spotting import Spotter, compacted  # noqa: PLC0415 - see above

        known = {compacted(value): (name, value) for name, value in self._values}
        return Spotter(pair for plain, pair in known.items() if len(plain) >= CUT_MIN_BYTES)

    def redact_text(self, text: str, *, where: str) -> str:
        """Take every value out of a text as `sweep` does; the length in UTF-8 stays the same."""
        raw = text.encode("utf-8", "surrogatepass")
        found = self.sweep(raw, where=where)
        return text if found is raw else found.decode("utf-8", "surrogatepass")

    def _count(self, name: str, where: str, count: int) -> None:
        if where and count:
            with self._lock:
                self._counts[name, where] += count

    def take_counts(self) -> Iterator[tuple[str, str, int]]:
        """Give and forget what was counted: name, where, how often."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        for (name, where), count in sorted(counts.items()):
            yield name, where, count


@dataclass(frozen=True, slots=True)
class _Path:
    """A value with slashes as a path of the kernel has it: components leaf first, with something before and behind.

    What stands instead is what the path would be without the value, so that it is found again.
    """

    name: str
    size: int
    probe: bytes
    form: re.Pattern[bytes]

    @classmethod
    def of(cls, name: str, value: bytes) -> _Path:
        first, *between, last = [part for part in value.split(b"/") if part]
        middle = b"".join(re.escape(part) + rb"\0" for part in reversed(between))
        form = re.escape(last) + rb"([^\0]{0,255})\0" + middle + rb"([^\0]{0,255})" + re.escape(first)
        return cls(name, len(b"/".join((first, *between, last))), max(first, last, *between, key=len), re.compile(form))

    def replace(self, found: re.Match[bytes]) -> bytes:
        return found[2] + _marker(self.name, self.size) + found[1]


NOTHING_HIDDEN = Redactor(())
"""Takes nothing out of anything."""


def _forms(value: bytes) -> Iterator[bytes]:
    from policies.encodings import base32_forms, base64_forms, url_encoded  # noqa: PLC0415 - see above

    # Without slashes at its ends, and once: a path has them between components only, and must be hidden in one way.
    stripped = value.strip(b"/")
    value = stripped if len(stripped) >= REDACTED_MIN_BYTES else value
    for text in (value, b"/".join(filter(None, value.split(b"/")))):
        yield text
        yield text.lower()
    for text in base64_forms(value):
        yield text
        yield text.translate(_URL_SAFE)
    for text in base32_forms(value):
        yield text
        yield text.upper()
    yield value.hex().encode()
    yield value.hex().upper().encode()
    yield value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")  # in a string of JSON
    escaped = url_encoded(value)
    for text in (escaped, escaped.replace(b"%2F", b"/")):
        yield text
        yield _lower_escapes(text)


def _lower_escapes(text: bytes) -> bytes:
    first, *rest = text.split(b"%")
    return b"%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _first_pieces(form: bytes) -> Iterator[int]:
    """Give the pieces of which every occurrence covers one that is aligned."""
    for start in range(_GRAM):
        yield from memoryview(form[start : start + _GRAM]).cast("Q")


def _marker(name: str, size: int) -> bytes:
    text = f"[redacted {name}]".encode("utf-8", "replace")
    for word in (text, _WORD):
        if len(word) <= size:
            return word.ljust(size, b"*")
    return b"*" * size
