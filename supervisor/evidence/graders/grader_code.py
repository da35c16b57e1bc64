"""Which files a grader ran as code, beside those that the kernel executed. Pure: words and paths in, paths out.

The laws:

1. What an interpreter or a shell was started with is code, whatever options stand before it.
2. What an interpreter loads by itself is code: a module of Python (told by its look for the compiled one, which nobody
   who reads a module as text makes), a shared object of an interpreter.
3. What a program carries out that is known for it is code: a makefile by make, the settings of a repository by git.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from supervisor.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Letters of options: ``inline`` give the program itself, ``valued`` take the next word when they stand last."""

    inline: bytes = b""
    valued: bytes = b""
    long: frozenset[bytes] = frozenset()
    code: bytes = b""


_SHELL = _Options(inline=b"c", valued=b"oO", long=frozenset({b"--rcfile", b"--init-file"}))
_SHELLS = frozenset({b"sh", b"bash", b"dash", b"ash", b"ksh", b"mksh", b"zsh"})
_INTERPRETERS = {
    b"python": _Options(inline=b"cm", valued=b"WX", long=frozenset({b"--check-hash-based-pycs"})),
    b"pypy": _Options(inline=b"cm", valued=b"WX"),
    b"perl": _Options(inline=b"eE", valued=b"I"),
    b"ruby": _Options(inline=b"e", valued=b"ICr"),
    b"node": _Options(inline=b"ep", valued=b"r", long=frozenset({b"--require", b"--import", b"--loader"})),
    b"deno": _Options(),
    b"bun": _Options(inline=b"e", valued=b"r"),
    b"php": _Options(inline=b"r", valued=b"cdz"),
    b"lua": _Options(valued=b"el"),
    b"Rscript": _Options(inline=b"e"),
    b"tclsh": _Options(),
    b"awk": _Options(code=b"f"),
    b"gawk": _Options(code=b"f"),
    b"mawk": _Options(code=b"f"),
    b"sed": _Options(code=b"f"),
}
_COMPILED = re.compile(
    rb"^(?P<folder>(?:.*/)?)__pycache__/(?P<name>[^/]+?)\.(?:cpython|pypy|graalpy)[^/]*\.pyc$", re.DOTALL
)
_LOADED = (b".so", b".node", b".pyc", b".pth")
_MAKE = re.compile(rb"^(?:.*/)?(?:GNUmakefile|makefile|Makefile|[^/]*\.mk)$", re.DOTALL)
_CARRIED_OUT = {
    b"make": _MAKE,
    b"gmake": _MAKE,
    b"bmake": _MAKE,
    b"ninja": re.compile(rb"^(?:.*/)?[^/]*\.ninja$", re.DOTALL),
    b"cmake": re.compile(rb"^(?:.*/)?(?:CMakeLists\.txt|[^/]*\.cmake)$", re.DOTALL),
    b"git": re.compile(rb"^(?:.*/)?(?:config|config\.worktree|\.gitmodules)$", re.DOTALL),
}


def scripts(exe: bytes, argv: Sequence[bytes]) -> Iterator[bytes]:
    """Give the files among the words of a command that are programs to its interpreter.

    Args:
        exe: path of what the kernel executed.
        argv: its words, the name first.
    """
    name = posixpath.basename(exe)
    words = list(argv[1:])
    if name == b"busybox":
        called = posixpath.basename(argv[0]) if argv else b""
        name = posixpath.basename(words.pop(0)) if called == b"busybox" and words else called
    options = _options(name)
    if options is not None:
        yield from _programs(options, words)


def loaded(exe: bytes, path: bytes, *, opened: bool) -> Iterator[bytes]:
    """Give what it means was run that a program opened a file, or tried to.

    Args:
        exe: path of the program.
        path: absolute.
        opened: it was there.
    """
    found = _COMPILED.match(path)
    if found is not None:
        yield found["folder"] + found["name"] + b".py"
    if not opened:
        return
    name = posixpath.basename(exe)
    carried_out = _CARRIED_OUT.get(name)
    named = carried_out is not None and carried_out.match(path) is not None
    if found is not None or named or (_options(name) is not None and path.endswith(_LOADED)):
        yield path


def _options(name: bytes) -> _Options | None:
    if name in _SHELLS:
        return _SHELL
    # python3.11 is python; but sedate is no sed, and awk is named in full.
    plain = name.rstrip(b"0123456789.-")
    return _INTERPRETERS.get(name) or _INTERPRETERS.get(plain)


def _programs(options: _Options, words: list[bytes]) -> Iterator[bytes]:
    while words:
        word = words.pop(0)
        if word == b"--":
            yield from words[:1] if not options.code else ()
            return
        if word[:1] not in {b"-", b"+"} or word in {b"-", b"+"}:
            if not options.code:
                yield word
                return
            continue
        if word.startswith(b"--"):
            if word in options.long and words:
                yield words.pop(0)  # a file that is run, or a word that is the name of none
            continue
        if _is_inline(options, word, words):
            return
        if options.code and (place := word.find(options.code, 1)) > 0:
            rest = word[place + 1 :] or (words.pop(0) if words else b"")
            yield rest


def _is_inline(options: _Options, word: bytes, words: list[bytes]) -> bool:
    """Read a cluster of letters; True when the program is among the words themselves."""
    for place in range(1, len(word)):
        letter = word[place : place + 1]
        if letter in options.inline:
            return True
        if letter in options.valued:
            if place == len(word) - 1 and words:
                words.pop(0)
            return False
    return False
