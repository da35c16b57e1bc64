"""Proofs of events, checked without the log that they are from.

In: what `supervise prove` wrote. Out: the event, and what was proved. The rule: the key is the caller's, or this home's
own; one that only the proof names vouches for nothing.
"""

from __future__ import annotations

import json

from supervisor.errors import UsageError
from supervisor.kept.reading import decoder
from supervisor.launch.runs.state import Home
from supervisor.log.keys import KeyStore
from supervisor.log.proof import key_of, verify_proof
from supervisor.log.reader import read_frame
from supervisor.report.events_json import to_line


def check_proof(data: bytes, home: Home, *, key: str | None) -> tuple[bytes, str]:
    """Check a proof; gives the event as a JSON line, and a sentence on what was proved.

    Args:
        data: what `supervise prove` wrote.
        home: whose keys are trusted when ``key`` is None.
        key: that must have signed.

    Raises:
        UsageError: no key was given, and the proof's is none of the home's.
        LogError: it proves nothing.
    """
    trusted = key or key_of(data)
    if key is None and not KeyStore(home.path).owns(trusted):
        message = f"expected a key to check the proof with: {trusted} is none of this home's"
        raise UsageError(message, place="--key", hint="name the public key that you know to be the signer's")
    proved = verify_proof(data, key=trusted)
    told = f"event {proved.event} of {proved.bound.run} is in the log of {proved.size} frames that {trusted} signed"
    manifest = json.loads(proved.manifest)
    events = read_frame(proved.frame, decoder(manifest))
    event = next(event for event in events if event.n == proved.event)
    return to_line(event, realtime_offset_ns=None), told
