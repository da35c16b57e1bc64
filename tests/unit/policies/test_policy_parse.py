"""Policy files: nothing in them is ignored, and errors say where they are."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from policies.canonical import canonical_bytes, policy_digest, policy_to_mapping, render_toml, render_whole
from policies.doubts import doubts
from policies.keys import SECTIONS
from policies.parse import load_policy, parse_policy, policy_from_mapping
from policies.schema import json_schema
from policies.types import (
    AtEndpoint,
    Claim,
    Commit,
    CredentialsPolicy,
    FilesMode,
    FilesPolicy,
    LimitRole,
    NetworkDefault,
    NetworkPolicy,
    Outside,
    Period,
    PeriodKind,
    Policy,
    SharedPlace,
    StopRule,
)
from supervisor.errors import PolicyError

WHOLE = Policy(
    name='research "note" \x7f é',
    claim=Claim(
        outcome="notes/a.md",
        scope=("notes/*.md", "b\\c"),
        period=Period(kind=PeriodKind.WITHIN, within_s=10.0),
        unit="stream:s",
        depends_on=("20261130-124148-k7s29w",),
    ),
    stop=StopRule(wall_s=90.0, role=LimitRole.OBSERVATION, at_endpoint=AtEndpoint.CANCEL, settle_s=0.25),
    files=FilesPolicy(
        workspace="/w",
        mode=FilesMode.STAGED,
        commit=Commit.FINAL,
        write=("notes/**",),
        outside=Outside.DENY,
        read_deny=("/srv/answers", "*.key"),
        shared=(SharedPlace(path="/srv/queue", reset='emptied "by hand"'), SharedPlace(path="cache")),
    ),
    credentials=CredentialsPolicy(env=("OPENAI_API_KEY",), mask=("~/x",)),
)


def parse(body: str) -> Policy:
    """Read a policy with the lines that every one has."""
    return parse_policy(f"schema = 1\n{body}", place="p.toml")


def test_the_built_in_default_is_what_the_types_say() -> None:
    """A bare command and `-p default` are one policy."""
    assert load_policy("default") == Policy()


@pytest.mark.parametrize("policy", [Policy(), WHOLE], ids=["default", "whole"])
def test_what_is_written_is_read_back(policy: Policy) -> None:
    """TOML, plain values and the policy itself say the same."""
    assert parse_policy(render_toml(policy), place="p") == policy
    assert policy_from_mapping(policy_to_mapping(policy)) == policy


def test_a_policy_that_writes_nothing_is_not_one_that_does_not_say() -> None:
    """`write = []` forbids every write; no `write` allows the workspace."""
    assert parse("[files]\nwrite = []\n").files.write == ()
    assert parse("[files]\n").files.write is None


def test_the_digest_tells_policies_apart_and_nothing_else() -> None:
    """Equal policies have equal digests, however they were written; one changed value is another digest."""
    spaced = parse('name = "default"\n[stop]\nsettle =   "2000ms"\n')
    assert policy_digest(spaced) == policy_digest(Policy())
    assert policy_digest(Policy()).startswith("sha256:")
    assert policy_digest(WHOLE) != policy_digest(replace(WHOLE, claim=replace(WHOLE.claim, unit="run")))
    assert policy_digest(WHOLE) != policy_digest(replace(WHOLE, claim=replace(WHOLE.claim, depends_on=())))
    assert canonical_bytes(WHOLE).isascii()


def test_a_policy_without_a_later_key_keeps_its_digest() -> None:
    """It was given before there was `claim.depends_on`, and is in logs."""
    assert b"depends_on" not in canonical_bytes(Policy())
    assert b'"depends_on":["' in canonical_bytes(WHOLE)


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ("colour = 1", "colour", "unknown key"),
        ("[claim]\ndecided_by = 'event'", "claim.event", "expected claim.event with decided_by = event only"),
        ("[claim]\ndecided_by = 'history'", "claim.decided_by", "expected [[order]]"),
        ("[[order]]\nfirst = 'file.written path=a'", "order[0]", "expected then, got nothing"),
        ("[[order]]\nfirst = 'a'\nthen = 'file.written'", "order[0].first", "expected a kind of events"),
        (
            "[[order]]\nfirst = 'file.wrote path=a'\nthen = 'file.written'",
            "order[0].first",
            "expected a kind of events, got 'file.wrote'",
        ),
        (
            "[claim]\ndecided_by = 'event'\nevent = 'file.written name=a'",
            "claim.event",
            "expected a field of file.written, got 'name'",
        ),
        ("[order]\nfirst = 'a'", "order", "expected an array of tables, got a table"),
        ("[grade]\nrepeats = 0", "grade.repeats", "expected 1 to 100, got 0"),
        ("[grade]\nrepeats = true", "grade.repeats", "expected an integer, got a boolean True"),
        ("[grade]\nselftest = [{outcome = 'a'}]", "grade.selftest[0]", "expected expect, got nothing"),
        ("[grade]\nselftest = [{outcome = 'a', expect = 'good'}]", "grade.selftest[0].expect", "success or failure"),
        ("[grade]\nselftest = [{outcome = 'a', expect = 'success'}]", "grade.selftest", "expected grade.command"),
        ("[grade]\nstates = [{effect = 'wind', reason = 'x'}]", "grade.states[0].effect", "expected a route"),
        (
            "[grade]\ncommand = 'a'\nstates = [{effect = 'service', reason = 'x', script = 'a', overlay = 'b'}]",
            "grade.states[0]",
            "expected script or overlay, got both",
        ),
        (
            "[grade]\ncommand = 'a'\nstates = [" + "{effect = 'service', reason = 'x'}," * 65 + "]",
            "grade.states",
            "expected at most 64 combinations of states, got 65",
        ),
        ("[network]\nallowed = []", "network.allowed", "unknown key"),
        ("[network]\nallow = ['http://x']", "network.allow[0]", "expected a host, got the URL"),
        (
            "[network]\nmap = {'A.test:1' = '[::1]:1', 'a.test:1' = '[::1]:2'}",
            "network.map.a.test:1",
            "one mapping",
        ),
        ("[credentials]\nenv = ['AWS_*']", "credentials.env[0]", "the name of one variable"),
        ("[network]\nmap = ['a:1=b:2']", "network.map", "expected a table of"),
        ("[network]\nmap = {'a.test:80' = 'b.test:80'}", "network.map.a.test:80", "expected an address to dial"),
        ("[claim]\nscope = ['a', 2]", "claim.scope[1]", "expected a string, got an integer 2"),
        ("[claim]\nscope = 'a'", "claim.scope", "expected an array of strings, got a string 'a'"),
        ("[stop]\nwall = 90", "stop.wall", "expected a string, got an integer 90"),
        ("[stop]\nwall = '0s'", "stop.wall", "expected a duration above zero"),
        ("[stop]\nsettle = true", "stop.settle", "expected a string, got a boolean True"),
        ("[stop]\nrole = 'boss'", "stop.role", "expected task or observation, got 'boss'"),
        ("stop = 'never'", "stop", "expected a table, got a string 'never'"),
        ("name = 1979-05-27", "name", "expected a string, got a date or time"),
        ("[claim]\nperiod = 'soon'", "claim.period", "expected endpoint, eventually or within:D"),
        (
            "[claim]\nunit = 'stream:'",
            "claim.unit",
            "expected run, or stream:NAME with a name without spaces and colons",
        ),
        ("[claim]\ndepends_on = ['last']", "claim.depends_on[0]", "expected the whole id of a run, got 'last'"),
        ("[claim]\ndepends_on = 'x'", "claim.depends_on", "expected an array"),
        ("[claim]\noutcome = '../a'", "claim.outcome", "expected a path without .., got '../a'"),
        ("[claim]\nscope = ['a/..']", "claim.scope[0]", "expected a path without .."),
        ("[files]\nwrite = ['a', 'b/../*']", "files.write[1]", "expected a path without .."),
        ('[files]\nworkspace = "a\\u0000b"', "files.workspace", "expected a string without NUL"),
        ("[network]\ndefault = 'some'", "network.default", "expected deny or sinkhole or allow or hold, got 'some'"),
        ("[credentials]\nenv = ['A=b']", "credentials.env[0]", "got 'A=b'"),
        ("[files]\nworkspace = ''", "files.workspace", "got an empty one"),
        ("[files]\nmode = 'direct'\ncommit = 'never'", "files.commit", "expected staged files"),
        ("[files]\nwrite = ['']", "files.write[0]", "got an empty one"),
        ("[files]\nread_deny = ['a', '']", "files.read_deny[1]", "got an empty one"),
        ("[files]\noutside = 'refuse'", "files.outside", "expected stage or deny, got 'refuse'"),
        ("[files]\nshared = ['/a']", "files.shared[0]", "expected a table with path, got a string '/a'"),
        ("[files]\nshared = '/a'", "files.shared", "expected an array of tables"),
        ("[files]\nshared = [{}]", "files.shared[0].path", "expected a path, got nothing"),
        ("[files]\nshared = [{path = ''}]", "files.shared[0].path", "got an empty one"),
        ("[files]\nshared = [{path = 'a/../b'}]", "files.shared[0].path", "expected a path without .."),
        ("[files]\nshared = [{path = 'a', rest = 1}]", "files.shared[0].rest", "unknown key"),
        ("[files]\nshared = [{path = 'a', reset = 1}]", "files.shared[0].reset", "expected a string"),
        ("[files]\nshared = [{path = 'a'}, {path = 'a'}]", "files.shared[1].path", "expected each place once"),
    ],
)
def test_a_mistake_is_named_with_its_path(body: str, place: str, message: str) -> None:
    """Unknown keys, wrong types and values that do nothing in this version are all errors."""
    with pytest.raises(PolicyError) as caught:
        parse(body)
    assert caught.value.place == f"p.toml: {place}"
    assert message in caught.value.message


def test_every_mistake_is_told_at_once() -> None:
    """Whoever mends a policy mends it in one go: the first mistake carries the others, each with its place."""
    with pytest.raises(PolicyError) as caught:
        parse_policy("colour = 1\n[claim]\nunit = 'x'\nscope = 1\nsope = 2\n[stop]\nwall = 3\n", place="p.toml")
    places = [err.place for err in (caught.value, *caught.value.others)]
    assert sorted(place.removeprefix("p.toml: ") for place in places if place) == [
        "claim.scope",
        "claim.sope",
        "claim.unit",
        "colour",
        "schema",
        "stop.wall",
    ]


def test_what_is_not_set_is_shown_as_such() -> None:
    """`policy show` prints every key: one that has no value as a comment, so that the file still says the same."""
    shown = render_whole(Policy())
    assert parse_policy(shown, place="p") == Policy()
    for section in SECTIONS:
        if section.many:
            assert f"\n# [[{section.name}]] is not set. " in shown
            continue
        for key in section.keys:
            assert f"\n{key.name} = " in shown or f"\n# {key.name} is not set. " in shown


@pytest.mark.parametrize("text", ["no[tes", "{a,b}", "~/notes", "!notes"])
def test_what_another_program_would_read_otherwise_is_doubted(text: str) -> None:
    """It is allowed, because files may be called so, and said, because it is hardly meant."""
    assert doubts(replace(Policy(), files=FilesPolicy(write=("notes/**", text)))) != ()
    assert doubts(Policy(claim=Claim(outcome=text)))[0].startswith("claim.outcome: ")
    assert doubts(WHOLE) == ()


@pytest.mark.parametrize(
    ("allow", "met"),
    [((), False), (("api.test",), False), (("api.test:80",), True), (("*.test:*",), True), (("192.0.2.1:80",), False)],
)
def test_a_mapping_that_no_rule_allows_is_doubted(*, allow: tuple[str, ...], met: bool) -> None:
    """It says where the gateway dials, and not that it may; a rule without a port means 443."""
    network = NetworkPolicy(allow=allow, map=("api.test:80=127.0.0.1:8080",))
    found = doubts(Policy(network=network))
    assert [text.split(":")[0] for text in found] == ([] if met else ["network.map"])
    assert doubts(Policy(network=replace(network, default=NetworkDefault.ALLOW))) == ()


def test_a_misspelt_key_is_answered_with_the_one_that_was_meant() -> None:
    """The hint names the nearest key."""
    with pytest.raises(PolicyError) as caught:
        parse("[stop]\nsetle = '1s'")
    assert caught.value.hint == "did you mean settle?"


@pytest.mark.parametrize(
    "text", ["", "schema = 2", "schema = true", "schema = '1'", "name = 'x'", "[", "schema = 1\nname = ''"]
)
def test_a_file_without_its_version_or_its_form_is_refused(text: str) -> None:
    """A later version is not read as this one."""
    with pytest.raises(PolicyError):
        parse_policy(text, place="p.toml")


def test_a_name_is_no_path_and_a_path_is_no_name(tmp_path: Path) -> None:
    """A bare word never reads a file; what has a slash or ends with .toml always does."""
    with pytest.raises(PolicyError, match="or the built-in policy default, got 'credentials'"):
        load_policy("credentials")
    with pytest.raises(PolicyError, match="cannot read the policy: No such file"):
        load_policy(str(tmp_path / "default.toml"))
    (tmp_path / "bad.toml").write_bytes(b"schema = 1\nname = '\xff'")
    with pytest.raises(PolicyError, match="expected UTF-8"):
        load_policy(str(tmp_path / "bad.toml"))


def test_every_field_of_the_types_has_a_key() -> None:
    """A field that no file can set, or a key without a field, would be a promise that nobody keeps."""
    for section in SECTIONS:
        assert is_dataclass(section.type)
        assert [key.field for key in section.keys] == [field.name for field in fields(section.type)]
    assert {section.name for section in SECTIONS} == {field.name for field in fields(Policy)} - {"name", "services"}


def test_the_schema_knows_every_key_and_refuses_others() -> None:
    """The JSON Schema is as strict as the parser."""
    schema = json_schema()
    assert schema["additionalProperties"] is False
    for section in SECTIONS:
        table = schema["properties"][section.name]
        table = table["items"] if section.many else table
        assert table["additionalProperties"] is False
        assert set(table["properties"]) == {key.name for key in section.keys}
    assert schema["properties"]["network"]["properties"]["default"]["enum"] == ["deny", "sinkhole", "allow", "hold"]
    assert schema["properties"]["stop"]["properties"]["settle"]["default"] == "2s"


ASKED = """
validate.command = "x"
network.default = "hold"
[[services]]
name = "s"
at = "a.test:80"
settle = { kind = "file", path = "/s", committed = ["x"] }
"""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[network]\ndefault = 'hold'", "network.default"),
        ("[validate]\ncommand = ' '", "validate.command"),
        ("[validate]\ncommand = 'x'\ntimeout = '0s'", "validate.timeout"),
        ("[validate]\ncommand = 'x'\n[files]\nmode = 'direct'", "validate.command"),
        ("[validate]\ncommand = 'x'\n[files]\ncommit = 'never'", "validate.command"),
        (
            ASKED,
            "services[0].settle",
        ),
    ],
)
def test_what_nobody_could_release_or_take_back_is_refused(text: str, place: str) -> None:
    """Held traffic needs a validator, a validator something to discard, and an answer of a service its question."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"schema = 1\n{text}", place="p")
    assert place in str(caught.value.place)


def test_a_validator_with_held_traffic_is_read() -> None:
    """The whole of it, and its command changes the digest."""
    read = parse_policy("schema = 1\n[validate]\ncommand = 'x'\ntimeout = '5s'\n[network]\ndefault = 'hold'", place="p")
    assert (read.validate.command, read.validate.timeout_s) == ("x", 5.0)
    assert policy_digest(read) != policy_digest(replace(read, validate=replace(read.validate, command="y")))
    assert policy_from_mapping(policy_to_mapping(read)) == read


@pytest.mark.parametrize(
    ("glob", "told"),
    [("/etc/out.conf", True), ("/**", False), ("/workshop/x", True), ("/work/notes/**", False),
     ("/work", False), ("notes/**", False), ("**", False), ("/srv/queue/job", False), ("/srv/**", False),
     ("/srv/queue2/**", True), ("/work2", True)],
)  # fmt: skip
def test_a_glob_whose_writes_are_thrown_away_is_doubted(glob: str, told: bool) -> None:  # noqa: FBT001
    """Only the workspace is committed and only shared places are written at once; where nobody knows it, it may be."""
    policy = Policy(files=FilesPolicy(write=("a", glob), shared=(SharedPlace(path="/srv/queue"),)))
    found = doubts(policy, workspace="/work")
    assert [text.partition(",")[0] for text in found] == (["files.write[1]: allowed"] if told else [])
    unknown = doubts(policy)
    assert bool(unknown) is (told or glob.startswith("/work"))
    assert all("if it does not lie there" in text for text in unknown)


MANY = """
[claim]
outcome = "src/a"
scope = ["../a", "ok", "../b"]
decided_by = "wind"
[stop]
wall = 90
[files]
read_deny = ["../x", "../y"]
shared = [{path = "../q", rest = 1}, {reset = 2}]
[network]
allow = ["http://x/", "api.test", "foo:99999", "a b"]
map = {"api.test:80" = "x", "b.test:80" = "127.0.0.1"}
[grade]
selftest = [{outcome = 1, expect = "good"}, {expect = "success"}]
[[services]]
name = "a b"
state = "mine"
colour = 1
settle = {kind = "ftp"}
[[services]]
name = "s"
settle = {kind = "http", url = 1, every = 1, deadline = 2, colour = 1, absent = "x", committed = [1, "a", 2]}
[[order]]
first = 1
then = 2
"""


def test_all_mistakes_of_a_file_are_told_at_once() -> None:
    """Of lists every element, of tables every key, of services every key of every one; what is good is not named."""
    with pytest.raises(PolicyError) as caught:
        parse(MANY)
    told = [str(one.place).removeprefix("p.toml: ") for one in (caught.value, *caught.value.others)]
    assert told == [
        "claim.scope[0]",
        "claim.scope[2]",
        "claim.decided_by",
        "stop.wall",
        "files.read_deny[0]",
        "files.read_deny[1]",
        "files.shared[0].rest",
        "files.shared[0].path",
        "files.shared[1].path",
        "files.shared[1].reset",
        "network.allow[0]",
        "network.allow[2]",
        "network.allow[3]",
        "network.map.api.test:80",
        "network.map.b.test:80",
        "grade.selftest[0].outcome",
        "grade.selftest[0].expect",
        "grade.selftest[1]",
        "order[0].first",
        "order[0].then",
        "services[0].colour",
        "services[0].name",
        "services[0].state",
        "services[0].settle.kind",
        "services[1].settle.colour",
        "services[1].settle.url",
        "services[1].settle.absent",
        "services[1].settle.committed[0]",
        "services[1].settle.committed[2]",
        "services[1].settle.every",
        "services[1].settle.deadline",
    ]


def test_all_that_does_not_hold_together_is_told_at_once() -> None:
    """Keys that are good by themselves, and not beside others, of every section."""
    body = """
    [claim]
    outcome = "service:none"
    decided_by = "event"
    [stop]
    wall = "0s"
    [files]
    mode = "direct"
    commit = "clean"
    shared = [{path = "a"}, {path = "a"}]
    [network]
    trust = ["ca.pem"]
    [validate]
    command = "x"
    [grade]
    selftest = [{outcome = "a", expect = "success"}]
    [[order]]
    first = "file.wrote"
    then = "file.written name=a"
    """
    with pytest.raises(PolicyError) as caught:
        parse(body)
    told = [str(one.place).removeprefix("p.toml: ") for one in (caught.value, *caught.value.others)]
    assert told == [
        "stop.wall",
        "network.trust",
        "claim.outcome",
        "files.shared[1].path",
        "files.commit",
        "validate.command",
        "grade.selftest",
        "claim.event",
        "order[0].first",
        "order[0].then",
    ]


@pytest.mark.parametrize("body", ["[stop]\nwall = 90", "[[services]]\nname='s'\nsettle={kind='file', every=90}"])
def test_a_number_without_a_unit_is_told_what_is_most_likely_meant(body: str) -> None:
    """The hint says how to write so many seconds."""
    with pytest.raises(PolicyError) as caught:
        parse(body)
    errors = (caught.value, *caught.value.others)
    assert 'for seconds write "90s"' in [one.hint for one in errors]


@pytest.mark.parametrize(
    ("outcome", "write", "told"),
    [
        ("src/a", ["docs/**"], True),
        ("./src/a", ["docs/**", "src/b"], True),
        ("src/a", ["src/**"], False),
        ("src", ["src/a"], False),
        ("src/a", ["*"], True),
        ("src/a", ["**/a"], False),
        ("src/a", ["/w/**"], False),
        ("/w/src/a", ["docs/**"], False),
        ("src/a", [], False),
    ],
)
def test_an_outcome_that_may_not_be_written_is_a_doubt(outcome: str, write: list[str], told: bool) -> None:  # noqa: FBT001
    """Writing it would violate; where only the workspace's place tells, nothing is said, nor of `write = []`."""
    policy = Policy(claim=Claim(outcome=outcome), files=FilesPolicy(write=tuple(write)))
    said = [one for one in doubts(policy) if "nothing in files.write covers it" in one]
    assert bool(said) == told
    assert not doubts(replace(policy, files=replace(policy.files, write=None)))
