"""Questions for names: what is answered, what is refused, and that nothing hostile breaks the reading."""

from __future__ import annotations

import subprocess
import sys
from ipaddress import ip_address

import dnslib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.network import NetworkRules
from policies.types import NetworkDefault
from probes.gateway.answers import Answers
from probes.gateway.questions import Code, Judged, judge_found, judge_question, name_in, read_question, write_answer

RULES = NetworkRules.from_texts(
    NetworkDefault.DENY,
    allow=("api.test", "*.wild.test", "mapped.test:80"),
    deny=("bad.wild.test",),
    maps=("mapped.test:80=127.0.0.1:8080",),
)


def asked(name: str, record: str = "A", *, rules: NetworkRules = RULES, answers: Answers | None = None) -> Judged:
    """Ask for a name."""
    question = read_question(dnslib.DNSRecord.question(name, record).pack())
    assert question is not None
    return judge_question(question, rules, answers or Answers(), hostname="trial")


_ALONE = """
import sys
from policies.network import NetworkRules
from policies.types import NetworkDefault
from probes.gateway import questions
from probes.gateway.answers import Answers

answers = Answers()
rules = NetworkRules.from_texts(NetworkDefault.DENY, allow=("api.test",), maps=("api.test:443=127.0.0.1:1",))
questions.load()

def refuse(event, args):
    if event == "import":
        raise ImportError(args[0])

sys.addaudithook(refuse)
for wire in map(bytes.fromhex, sys.argv[1:]):
    asked = questions.read_question(wire)
    judged = questions.judge_question(asked, rules, answers, hostname="trial")
    assert questions.write_answer(asked, judged, datagram=True)
"""


def test_nothing_is_imported_for_an_answer() -> None:
    """Whoever answers is nobody by then, and Python may be installed where nobody may read: a codec is read late."""
    names = ("api.test", "evil.test", "1.0.0.127.in-addr.arpa", "1.0.18.198.in-addr.arpa", "trial", "localhost")
    wires = [dnslib.DNSRecord.question(name, kind).pack() for name in names for kind in ("A", "AAAA", "PTR", "TXT")]
    wires.append(wires[0].replace(b"api", b"\xc3\xbcx"))
    alone = [sys.executable, "-c", _ALONE, *(wire.hex() for wire in wires)]
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_allowed_name_is_looked_up() -> None:
    """By its name, whatever its letters, or below a wildcard."""
    for name in ("api.test", "API.TEST", "a.wild.test", "a.b.wild.test"):
        assert asked(name).look_up
    assert asked("api.test", "AAAA").look_up


@pytest.mark.parametrize("name", ["evil.test", "wild.test", "bad.wild.test", "xapi.test", "api.test.evil.test"])
def test_a_name_that_no_rule_allows_gets_no_answer(name: str) -> None:
    """It does not exist, as far as the trial can tell."""
    judged = asked(name)
    assert (judged.decision, judged.code, judged.look_up) == ("refused", Code.ABSENT, False)


def test_a_refused_name_says_what_would_allow_it() -> None:
    """In the words of the option; for a denied one nothing would."""
    assert asked("evil.test").would_allow == "--allow evil.test:443"
    assert asked("bad.wild.test").would_allow is None


def test_no_service_binding_is_ever_answered() -> None:
    """HTTPS and SVCB could bring keys that hide a name, or other addresses: an allowed name has none."""
    for record in ("HTTPS", "SVCB", "MX", "TXT"):
        question = read_question(dnslib.DNSRecord.question("api.test", "A").pack())
        assert question is not None
        wire = dnslib.DNSRecord.question("api.test", "A")
        wire.q.qtype = {"HTTPS": 65, "SVCB": 64, "MX": 15, "TXT": 16}[record]
        read = read_question(wire.pack())
        assert read is not None
        judged = judge_question(read, RULES, Answers(), hostname="trial")
        assert (judged.decision, judged.code, judged.addresses, judged.look_up) == ("answered", Code.GOOD, (), False)


def test_a_mapped_name_gets_addresses_that_stand_for_it() -> None:
    """Nothing is looked up: where it leads is the policy's word."""
    answers = Answers()
    judged = asked("mapped.test", answers=answers)
    assert not judged.look_up
    assert answers.names_at(judged.addresses[0]) == ("mapped.test",)


def test_a_sinkhole_answers_every_name() -> None:
    """With an address that leads nowhere, so that the trial goes on to say what it would have sent."""
    rules = NetworkRules.from_texts(NetworkDefault.SINKHOLE)
    judged = asked("evil.test", rules=rules)
    assert judged.decision == "sinkholed"
    assert judged.addresses[0] in asked("evil.test", rules=rules).addresses


@pytest.mark.parametrize("name", ["localhost", "trial", "x.localhost", "ip6-localhost"])
def test_names_of_the_box_itself_are_answered_locally(name: str) -> None:
    """They need no rule and are no attempt."""
    for record in ("A", "AAAA"):
        judged = asked(name, record)
        assert judged.decision == "local"
        assert judged.addresses[0].is_loopback


def test_an_address_is_told_only_the_name_it_was_an_answer_for() -> None:
    """Reverse look-ups never leave: loopback is local, the rest is what was answered before."""
    answers = Answers()
    answers.note("api.test", (ip_address("203.0.113.7"),))
    assert asked("7.113.0.203.in-addr.arpa", "PTR", answers=answers).pointer == "api.test"
    assert asked("8.113.0.203.in-addr.arpa", "PTR", answers=answers).decision == "refused"
    assert asked("1.0.0.127.in-addr.arpa", "PTR").decision == "local"
    assert asked(f"1.{'0.' * 31}ip6.arpa", "PTR").decision == "local"


def test_an_allowed_name_that_leads_within_the_host_is_withheld() -> None:
    """Rebinding: loopback, private and the host's own addresses are left out of the answer."""
    question = read_question(dnslib.DNSRecord.question("api.test").pack())
    assert question is not None
    judged, own = asked("api.test"), ip_address("203.0.113.200")
    for bad in ("127.0.0.1", "10.0.0.5", "169.254.169.254", str(own)):
        found = judge_found(question, judged, (ip_address(bad),), frozenset({own}))
        assert (found.decision, found.addresses) == ("withheld", ())
    mixed = (ip_address("10.0.0.5"), ip_address("203.0.113.7"))
    assert judge_found(question, judged, mixed, frozenset()).addresses == mixed[1:]
    assert judge_found(question, judged, None, frozenset()).code is Code.FAILED
    assert judge_found(question, judged, (), frozenset()).code is Code.GOOD


def test_an_answer_can_be_read_and_says_the_same() -> None:
    """Id, question and addresses come back; what is too long for a datagram says so."""
    wire = dnslib.DNSRecord.question("api.test")
    question = read_question(wire.pack())
    assert question is not None
    some = Judged(decision="answered", addresses=(ip_address("203.0.113.7"),))
    reply = dnslib.DNSRecord.parse(write_answer(question, some, datagram=True))
    assert reply.header.id == wire.header.id
    assert [str(entry.rdata) for entry in reply.rr] == ["203.0.113.7"]
    absent = dnslib.DNSRecord.parse(write_answer(question, Judged(decision="refused", code=Code.ABSENT), datagram=True))
    assert dnslib.RCODE[absent.header.rcode] == "NXDOMAIN"
    many = Judged(decision="answered", addresses=tuple(ip_address(f"2001:db8::{n:x}") for n in range(1, 40)))
    assert dnslib.DNSRecord.parse(write_answer(question, many, datagram=True)).header.tc == 1
    assert len(dnslib.DNSRecord.parse(write_answer(question, many, datagram=False)).rr) == len(many.addresses)


def test_a_name_is_told_whole_whatever_its_bytes() -> None:
    """Long, random and binary labels are the very thing that must not be cut: they may carry what leaks."""
    label = "c2VjcmV0" * 7
    question = read_question(dnslib.DNSRecord.question(f"{label}.{label}.{label}.evil.test").pack())
    assert question is not None
    assert question.name == f"{label}.{label}.{label}.evil.test"
    wire = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04a.\xff\n\x04evil\x00\x00\x01\x00\x01"
    assert read_question(wire) is None
    assert name_in(wire) == "a\\.\\255\\010.evil"


@given(st.binary(max_size=120))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    """What is no question is None; what is one can be judged and answered."""
    question = read_question(data)
    if question is not None:
        judged = judge_question(question, RULES, Answers(), hostname="trial")
        assert write_answer(question, judged, datagram=True)
    assert isinstance(name_in(data), str)


def test_what_is_costly_to_read_is_no_question() -> None:
    """Records that only answers have, and more bytes than a question needs, are not even parsed."""
    head = b"\x12\x34\x01\x00\x00\x01"
    record = b"\xc0\x0c\0\1\0\1" + bytes(10)
    good = head + bytes(6) + b"\0\0\1\0\1"
    assert read_question(good) is not None
    assert read_question(head + b"\0\1\0\0\0\0" + b"\0\0\1\0\1" + record) is None
    assert read_question(head + b"\0\0\0\0\0\3" + b"\0\0\1\0\1" + 3 * record) is None
    assert read_question(good + bytes(5000)) is None
