"""Finding known values in streams of bytes, whatever the form they travel in and however they are cut up.

In: values with names, then chunks. Out: which value was seen, each once a stream, with the form it was first seen in.

Laws:
    * How a stream is cut into chunks changes nothing of which values are seen in it.
    * A stream keeps fewer bytes than the longest form of a value has, however long it runs.
    * What it costs to look does not grow with the number of values: every eighth place of a stream is looked up in one
      set of the eight-byte pieces of all forms, and only a hit is compared.

A stream is looked at in three ways. *Compact*: without white space, quotes and punctuation that wrap or cut a value
(lines of base64, labels of a domain name, string literals), the two alphabets of base64 made one. *Folded*: the same in
lower case, for hex, base32 and names. *Unescaped*: compact, after URL-encoding was undone. UTF-16 is compact as well,
since NUL is dropped. Compression and encryption hide a value from it.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Mapping

from policies.encodings import Encoding, base32_forms, base64_forms, base64_twice, hex_twice, url_decoded
from supervisor.values import dataclass, field

VALUE_MIN_BYTES = 12
"""A shorter value would be met by chance in its shorter forms."""

_GRAM = 8
_SURE = 2 * _GRAM - 1
"""A form of so many bytes covers one aligned piece wherever it stands."""
_DROPPED = b" \t\r\n\0\"'`\\.,;:=|<>()[]{}"
_ONE_ALPHABET = bytes.maketrans(b"-_", b"+/")
_ESCAPE_BYTES = 3
_piece_at = struct.Struct("=Q").unpack_from


@dataclass(frozen=True, slots=True)
class Sighting:
    """One value that was seen: its name, and the form; the plainest when there were several at once."""

    name: str
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class _Form:
    """What one value looks like in one way of looking."""

    text: bytes
    sighting: Sighting


@dataclass(frozen=True, slots=True)
class _Index:
    """The forms of one way of looking: by their pieces, and those too short to have a sure one."""

    pieces: Mapping[int, list[_Form]]
    short: tuple[_Form, ...]
    longest: int

    @classmethod
    def of(cls, forms: Iterable[_Form]) -> _Index:
        pieces: dict[int, list[_Form]] = {}
        short: list[_Form] = []
        longest = 1
        for form in forms:
            longest = max(longest, len(form.text))
            if len(form.text) < _SURE:
                short.append(form)
                continue
            for start in range(_GRAM):
                pieces.setdefault(_piece_at(form.text, start)[0], []).append(form)
        return cls(pieces, tuple(short), longest)

    def find(self, text: bytes) -> set[Sighting]:
        """Give what is seen in a text."""
        found = {form.sighting for form in self.short if form.text in text}
        view = memoryview(text)[: len(text) // _GRAM * _GRAM].cast("Q")
        if not self.pieces.keys().isdisjoint(view):
            for piece in self.pieces.keys() & set(view):
                found |= {form.sighting for form in self.pieces[piece] if form.text in text}
        return found


class Spotter:
    """The values to look for. It is made once, and shared by any number of streams."""

    def __init__(self, values: Iterable[tuple[str, bytes]], *, twice: Container[str] = ()) -> None:
        """Write each value in its forms.

        Args:
            values: name and value; several values may have one name.
            twice: names of values that are looked for encoded twice, too; that is some forty forms more of each.

        Raises:
            ValueError: a value has fewer than `VALUE_MIN_BYTES`.
        """
        compact: list[_Form] = []
        folded: list[_Form] = []
        escaped: list[_Form] = []
        for name, value in values:
            plain = compacted(value)
            if len(value) < VALUE_MIN_BYTES or len(plain) < _GRAM:
                message = f"{name}: expected a value of at least {VALUE_MIN_BYTES} bytes, got {len(value)}"
                raise ValueError(message)
            compact.append(_Form(plain, Sighting(name, Encoding.PLAIN)))
            encoded = [compacted(text) for text in base64_forms(value)]
            compact += [_Form(text, Sighting(name, Encoding.BASE64)) for text in encoded]
            folded.append(_Form(plain.lower(), Sighting(name, Encoding.PLAIN)))
            folded.append(_Form(value.hex().encode(), Sighting(name, Encoding.HEX)))
            folded += [_Form(text, Sighting(name, Encoding.BASE32)) for text in base32_forms(value)]
            escaped.append(_Form(plain, Sighting(name, Encoding.URL)))
            if name in twice:
                both = Sighting(name, Encoding.TWICE)
                compact += [_Form(compacted(text), both) for text in base64_twice(value)]
                folded += [_Form(text, both) for text in hex_twice(value)]
                escaped += [_Form(text, both) for text in encoded]
        self.compact, self.folded, self.escaped = _Index.of(compact), _Index.of(folded), _Index.of(escaped)
        self.longest = max(self.compact.longest, self.folded.longest, self.escaped.longest)

    def stream(self) -> SpottingStream:
        """Begin to look at a stream."""
        return SpottingStream(self)

    def spot(self, whole: bytes) -> tuple[Sighting, ...]:
        """Look at something that is whole."""
        return self.stream().feed(whole)


def compacted(text: bytes) -> bytes:
    """Leave out what may wrap or cut a value, and write base64 in its standard letters."""
    return text.translate(_ONE_ALPHABET, _DROPPED)


@dataclass(slots=True)
class SpottingStream:
    """One stream: chunks in, sightings out. ``seen`` holds the names of what was seen so far."""

    spotter: Spotter
    seen: set[str] = field(default_factory=set)
    _tail: bytes = b""
    _unescaped_tail: bytes = b""
    _escape: bytes = b""

    def feed(self, chunk: bytes) -> tuple[Sighting, ...]:
        """Take the next bytes; gives what was seen now for the first time, by name."""
        spotter = self.spotter
        text = self._tail + compacted(chunk)
        found = spotter.compact.find(text) | spotter.folded.find(text.lower())
        unescaped = self._unescaped_tail + compacted(self._unescape(chunk))
        if unescaped != text:
            found |= spotter.escaped.find(unescaped)
        self._tail, self._unescaped_tail = (_last(kept, spotter.longest - 1) for kept in (text, unescaped))
        new: dict[str, Sighting] = {}
        for sighting in sorted(found, key=_plainest_first):
            if sighting.name not in self.seen:
                new.setdefault(sighting.name, sighting)
        self.seen.update(new)
        return tuple(new[name] for name in sorted(new))

    def _unescape(self, chunk: bytes) -> bytes:
        """Undo URL-encoding; an escape that the chunk cuts is kept for the next one."""
        text = self._escape + chunk
        cut = text.rfind(b"%", max(0, len(text) - _ESCAPE_BYTES + 1))
        self._escape = text[cut:] if cut >= 0 else b""
        whole = text[:cut] if cut >= 0 else text
        return url_decoded(whole) if b"%" in whole else whole


_ORDER = tuple(Encoding)


def _plainest_first(sighting: Sighting) -> int:
    return _ORDER.index(sighting.encoding)


def _last(text: bytes, count: int) -> bytes:
    return text[-count:] if count else b""
