"""The envelope of a signed statement: ``completion.dsse.json``. Statement in, signed JSON out, and back.

Laws (DSSE 1.0, https://github.com/secure-systems-lab/dsse):
    * What is signed is ``DSSEv1 LEN(type) type LEN(payload) payload``, lengths in ASCII decimals.
    * ``keyid`` is a hint for people and is not believed: who signed is what verifies.
"""

from __future__ import annotations

import base64
import binascii
import json

import msgspec

from supervisor.errors import LogError
from supervisor.log.keys import SigningKey, verify_signature

PAYLOAD_TYPE = "application/vnd.in-toto+json"
NAME = "completion.dsse.json"


class _Signature(msgspec.Struct):
    sig: str
    keyid: str = ""


class _Envelope(msgspec.Struct):
    payloadType: str  # noqa: N815 - the name in the format
    payload: str
    signatures: list[_Signature]


class _Statement(msgspec.Struct):
    predicate: msgspec.Raw


def encode_pae(payload: bytes) -> bytes:
    """Give the bytes that are signed (pre-authentication encoding)."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload: bytes, key: SigningKey) -> bytes:
    """Put a statement into a signed envelope."""
    signature = base64.b64encode(key.sign(encode_pae(payload))).decode()
    envelope = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key.public, "sig": signature}],
    }
    return json.dumps(envelope, indent=1).encode() + b"\n"


def open_envelope(raw: bytes, public: bytes, *, place: str) -> bytes:
    """Give the statement in an envelope.

    Raises:
        LogError: it is no such envelope, or the key did not sign it.
    """
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
        payload = base64.b64decode(envelope.payload, validate=True)
        signatures = [base64.b64decode(one.sig, validate=True) for one in envelope.signatures]
    except (msgspec.DecodeError, binascii.Error, ValueError) as err:
        raise LogError(f"expected a signed statement, got: {err}", place=place) from err
    if envelope.payloadType != PAYLOAD_TYPE:
        raise LogError(f"expected a payload of type {PAYLOAD_TYPE}, got {envelope.payloadType[:100]}", place=place)
    if not any(verify_signature(public, signature, encode_pae(payload)) for signature in signatures):
        raise LogError("expected a signature of the run's key, got none that fits", place=place)
    return payload


def check_predicate(payload: bytes, completion: bytes, *, place: str) -> None:
    """Check that a statement is about this completion argument, word for word.

    Raises:
        LogError: it is about another one.
    """
    try:
        predicate = bytes(msgspec.json.decode(payload, type=_Statement).predicate)
    except msgspec.DecodeError as err:
        raise LogError(f"expected an in-toto statement, got: {err}", place=place) from err
    if predicate.strip() != completion.strip():
        raise LogError("expected completion.json as its predicate, got something else", place=place)
