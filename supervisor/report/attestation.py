"""The completion argument as an in-toto statement: subject = the outcome's digests, predicate = the argument.

Laws (https://github.com/in-toto/attestation, Statement v1):
    * The first subject is ``outcome``: one digest over every file in scope that has content after the trial, as lines
      ``path NUL sha256-hex LF`` sorted by path. So the statement is about all of them, however many there are.
    * A file that changed after it was captured is what it was then, where the verdict is about that.
    * Then come the files themselves, at most `MAX_FILES`, in the same order.
    * The predicate is ``completion.json`` as it was written, byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from supervisor.verdict.completion import Completion
from supervisor.verdict.doings import FileSeen

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:supervise-eval:completion-argument:1"
MAX_FILES = 1000
_SHA256 = "sha256:"


def make_statement(completion: Completion, raw: bytes) -> bytes:
    """Write the statement about a completion argument.

    Args:
        completion: the argument.
        raw: its bytes in ``completion.json``.
    """
    files = sorted(_outcome(completion))
    head = {
        "_type": STATEMENT_TYPE,
        "subject": [_whole(files), *(_subject(path, digest) for path, digest in files[:MAX_FILES])],
        "predicateType": PREDICATE_TYPE,
    }
    return json.dumps(head).encode()[:-1] + b', "predicate": ' + raw.strip() + b"}"


def _outcome(completion: Completion) -> Iterator[tuple[bytes, str]]:
    for file in completion.effects.files:
        content = file.after if isinstance(file.captured, UnsetType) else file.captured
        if file.in_scope and not file.private and content is not None and content.startswith(_SHA256):
            yield _path(file), content.removeprefix(_SHA256)


def _path(file: FileSeen) -> bytes:
    if file.path is not UNSET:
        return str(file.path).encode(errors="surrogateescape")
    return base64.b64decode(str(file.path_b64))


def _whole(files: list[tuple[bytes, str]]) -> dict[str, object]:
    digest = hashlib.sha256()
    for path, content in files:
        digest.update(path + b"\0" + content.encode() + b"\n")
    return {
        "name": "outcome",
        "digest": {"sha256": digest.hexdigest()},
        "annotations": {"files": len(files), "listed": min(len(files), MAX_FILES)},
    }


def _subject(path: bytes, digest: str) -> dict[str, object]:
    try:
        return {"name": path.decode(), "digest": {"sha256": digest}}
    except UnicodeDecodeError:
        name = base64.b64encode(path).decode()
        return {"name": name, "digest": {"sha256": digest}, "annotations": {"name_is": "base64"}}
