"""Questions of the domain name system: bytes to a `Question`, and its answer back to bytes (dnslib has the format).

Pure but for the import. Only names that may be connected to are looked up; who asks for a service binding (HTTPS, SVCB)
of such a name is told that there is none, so that no key for an encrypted hello and no other address comes that way.
"""

from __future__ import annotations

import codecs
from enum import StrEnum
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from policies.addresses import Address, forbidden_class
from policies.hosts import normal_name
from policies.network import Action, NetworkRules
from probes.gateway.answers import Answers
from supervisor.values import dataclass, replace

_TTL_S = 30
_MAX_ADDRESSES = 16
_UDP_BYTES = 512
_MAX_UDP_BYTES = 4096
_MAX_QUESTION_BYTES = 4096
_MAX_ADDITIONAL = 2
_HEADER_BYTES = 12
_COUNTS = slice(4, 12)
_LABEL_BYTES = 63
_LOOPBACK = {"A": (ip_address("127.0.0.1"),), "AAAA": (ip_address("::1"),)}
_OWN_HOST = {"A": (ip_address("127.0.1.1"),), "AAAA": (ip_address("::1"),)}
_LOCAL_NAMES = ("localhost", "localdomain", "ip6-localhost", "ip6-loopback")
_HIDDEN = (ip_address("192.0.2.2"), ip_address("2001:db8::2"), ip_address("192.0.2.53"))


class Code(StrEnum):
    """Response codes, by their names in dnslib."""

    GOOD = "NOERROR"
    MALFORMED = "FORMERR"
    FAILED = "SERVFAIL"
    ABSENT = "NXDOMAIN"
    UNKNOWN = "NOTIMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question.

    Attributes:
        name: as in `supervisor.events.NameAsked`.
        host: its one spelling as a host, None when it is none.
        record: the name of the type, or ``TYPE65280``.
        limit_bytes: how long an answer by datagram may be.
        wire: dnslib's record, for the answer.
    """

    name: str
    host: str | None
    record: str
    limit_bytes: int
    wire: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What becomes of a question: the words of the event, and the answer unless ``look_up`` says to ask the host."""

    decision: str
    rule: str | None = None
    reason: str | None = None
    would_allow: str | None = None
    code: Code = Code.GOOD
    addresses: tuple[Address, ...] = ()
    pointer: str | None = None
    look_up: bool = False


@cache
def _dns() -> Any:  # noqa: ANN401 - it ships no types
    import dnslib  # noqa: PLC0415 - 30 ms, which a start does not wait for

    return dnslib


def load() -> None:
    """Import all that an answer takes, also what Python imports by itself: names of pointers are encoded by a codec.

    Call it before the first question, as somebody who may still read it.
    """
    codecs.lookup("idna")
    _dns()


def read_question(data: bytes) -> Question | None:
    """Read a query; None for what is none.

    One question, nothing that only answers have, and at most an OPT and a signature: what more there is costs time.
    """
    if (
        len(data) > _MAX_QUESTION_BYTES
        or data[_COUNTS][:-1] != b"\0\1\0\0\0\0\0"
        or data[_COUNTS][-1] > _MAX_ADDITIONAL
    ):
        return None
    dns = _dns()
    try:
        record = dns.DNSRecord.parse(data)
        if record.header.qr or record.header.opcode != 0 or len(record.questions) != 1:
            return None
        asked = record.questions[0]
        labels = [bytes(label) for label in asked.qname.label]
        extended = next((entry for entry in record.ar if entry.rtype == dns.QTYPE.OPT), None)
        limit = max(_UDP_BYTES, min(_MAX_UDP_BYTES, extended.rclass)) if extended is not None else _UDP_BYTES
        kind = dns.QTYPE.forward.get(asked.qtype, f"TYPE{asked.qtype}")
    except Exception:  # noqa: BLE001 - whatever a parser makes of hostile bytes, they are no question
        return None
    return Question(
        name=".".join(map(_shown, labels)) or ".",
        host=normal_name(b".".join(labels)) if all(b"." not in label for label in labels) else None,
        record=str(kind),
        limit_bytes=limit,
        wire=record,
    )


def name_in(data: bytes) -> str:
    """Give the name in what is no good question, as far as it is one: labels of bytes that no host has, most likely."""
    labels, at = [], _HEADER_BYTES
    while at < len(data) and 0 < (size := data[at]) <= _LABEL_BYTES:
        labels.append(data[at + 1 : at + 1 + size])
        at += 1 + size
    return ".".join(map(_shown, labels))


def _shown(label: bytes) -> str:
    """Write a label as a zone file does."""
    return "".join(
        f"\\{byte:03d}" if not 0x21 <= byte <= 0x7E else f"\\{chr(byte)}" if byte in b'.\\"();@$' else chr(byte)  # noqa: PLR2004
        for byte in label
    )


def judge_question(question: Question, rules: NetworkRules, answers: Answers, *, hostname: str) -> Judged:
    """Decide what becomes of a question."""
    by_itself = _local(question, hostname)
    if by_itself is None and question.record == "PTR" and (address := _reversed(question.name)) is not None:
        by_itself = _pointer(address, answers)
    if by_itself is not None:
        return by_itself
    host = question.host
    if host is None:
        reason = f"{question.name} is no name of a host"
        return Judged(decision="refused", rule="names", reason=reason, code=Code.ABSENT)
    decided = rules.decide_name(host)
    refused = Judged(
        decision="refused",
        rule=decided.rule,
        reason=decided.reason,
        would_allow=decided.would_allow,
        code=Code.ABSENT,
    )
    if decided.action is Action.BLOCKED:
        return refused
    swallowed = decided.action is Action.SINKHOLED
    good = replace(refused, decision="sinkholed" if swallowed else "answered", code=Code.GOOD)
    if question.record not in ("A", "AAAA"):
        return good
    # What is held must not leave as a question for a name either: it is looked up when it is released.
    if swallowed or rules.holds or any(mapping.host == host for mapping in rules.mappings):
        first, second = answers.synthetic(host)
        return replace(good, addresses=(first if question.record == "A" else second,))
    return replace(good, look_up=True)


def _local(question: Question, hostname: str) -> Judged | None:
    name = question.name.lower()
    table = None
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        table = _LOOPBACK
    elif name == hostname.lower():
        table = _OWN_HOST
    elif question.record == "PTR" and (address := _reversed(name)) is not None:
        if address.is_loopback or address in _HIDDEN:
            return Judged(decision="local", pointer="localhost" if address.is_loopback else hostname)
        return None
    if table is None:
        return None
    return Judged(decision="local", addresses=table.get(question.record, ()))


def _pointer(address: Address, answers: Answers) -> Judged:
    """An address is only told the name that it was an answer for."""
    names = answers.names_at(address)
    if names:
        return Judged(decision="answered", pointer=names[0])
    return Judged(decision="refused", rule="names", reason=f"{address} was no answer for any name", code=Code.ABSENT)


def _reversed(name: str) -> Address | None:
    """Read ``4.3.2.1.in-addr.arpa`` or its form for IPv6."""
    labels = name.lower().split(".")
    try:
        if labels[-2:] == ["in-addr", "arpa"]:
            return IPv4Address(".".join(reversed(labels[:-2])))
        if labels[-2:] == ["ip6", "arpa"]:
            return IPv6Address(int("".join(reversed(labels[:-2])), 16)) if len(labels) == 34 else None  # noqa: PLR2004
    except ValueError:
        return None
    return None


def judge_found(
    question: Question, judged: Judged, found: tuple[Address, ...] | None, own: frozenset[Address]
) -> Judged:
    """Complete the judgement of an allowed name by what the host's resolver found.

    Args:
        question: that was asked.
        judged: that it may be looked up.
        found: addresses of the family that was asked for; empty when the name has none, None when nobody could tell.
        own: those of them that are the host's own.
    """
    if found is None:
        return Judged(decision="failed", rule=judged.rule, reason="the host could not look it up", code=Code.FAILED)
    reached = tuple(address for address in found if forbidden_class(address, own) is None)[:_MAX_ADDRESSES]
    if found and not reached:
        bad = found[0]
        reason = f"{question.name} leads to {bad}, {forbidden_class(bad, own)}"
        host, where = question.host, f"[{bad}]" if bad.version == 6 else str(bad)  # noqa: PLR2004
        would_allow = f"--map {host}:443={where}:443"
        return Judged(decision="withheld", rule="address", reason=reason, would_allow=would_allow, code=Code.ABSENT)
    return Judged(decision=judged.decision, rule=judged.rule, reason=judged.reason, addresses=reached)


def write_answer(question: Question, judged: Judged, *, datagram: bool) -> bytes:
    """Write the answer; a datagram that would be too long says so instead (the client then asks over TCP)."""
    dns = _dns()
    record = question.wire
    reply = record.reply()  # type: ignore[attr-defined]
    reply.header.rcode = dns.RCODE.reverse[judged.code.value]
    reply.header.ra = 1
    for address in judged.addresses:
        data = dns.A(str(address)) if address.version == 4 else dns.AAAA(str(address))  # noqa: PLR2004
        kind = dns.QTYPE.A if address.version == 4 else dns.QTYPE.AAAA  # noqa: PLR2004
        reply.add_answer(dns.RR(record.q.qname, kind, rdata=data, ttl=_TTL_S))  # type: ignore[attr-defined]
    if judged.pointer is not None:
        reply.add_answer(dns.RR(record.q.qname, dns.QTYPE.PTR, rdata=dns.PTR(judged.pointer), ttl=_TTL_S))  # type: ignore[attr-defined]
    packed = bytes(reply.pack())
    if datagram and len(packed) > question.limit_bytes:
        packed = bytes(reply.truncate().pack())
    return packed
