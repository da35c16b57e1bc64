"""What a trial did, as the smallest policy: what is allowed, how it is generalised, and that it reads back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import completions
from policies.globs import compile_globs
from policies.parse import parse_policy
from policies.types import FilesPolicy, NetworkDefault, NetworkPolicy, Policy
from supervisor.report.learned import Lesson, learn, render, watching


def flow(**changes: Any) -> dict[str, Any]:
    """Make one flow that was swallowed."""
    entry = {
        "protocol": "tcp",
        "host": "api.test",
        "ip": "198.18.0.1",
        "port": 443,
        "decision": "sinkholed",
        "bytes_out": 0,
        "bytes_in": 0,
        "process": None,
        "events": [1],
    }
    return entry | changes


def lesson(*, base: Policy | None = None, asked: tuple[str, ...] = (), **effects: Any) -> Lesson:
    """Learn from a run with these effects."""
    made = completions.completion(effects=effects)
    return learn(made, base or Policy(), asked=asked, dropped=effects.pop("dropped", ()))


def read_back(made: Lesson) -> Policy:
    """Write a lesson, and read the text."""
    return parse_policy(render(made, command="cmd"), place="learned")


def test_nothing_done_is_the_smallest_policy() -> None:
    """Nothing may be written and nothing reached."""
    made = lesson()
    assert made.policy.network == NetworkPolicy(default=NetworkDefault.DENY)
    assert made.policy.files.write == ()
    assert read_back(made) == made.policy


def test_hosts_are_allowed_by_name_and_port() -> None:
    """Each once, however often it was reached; an address where there was no name."""
    flows = [
        flow(), flow(bytes_out=5), flow(port=80), flow(host=None, ip="203.0.113.9", port=25),
        flow(host=None, ip="2001:db8::9", port=80),
    ]  # fmt: skip
    made = lesson(network=flows)
    assert made.policy.network.allow == ("203.0.113.9:25", "[2001:db8::9]:80", "api.test:443", "api.test:80")
    assert made.remarks["network", "allow", "api.test:443"] == "2 connections, 5 bytes sent"
    assert read_back(made) == made.policy


def test_a_name_that_was_only_looked_up_is_allowed_too() -> None:
    """A look-up of a name that is not allowed would be a violation; one that was reached needs nothing more."""
    made = lesson(network=[flow(port=8443)], asked=("api.test", "Other.Test", "1.2.0.192.in-addr.arpa"))
    assert made.policy.network.allow == ("api.test:8443", "other.test:443")
    assert any("in-addr.arpa" in words for words in made.left_out)


def test_a_private_address_is_mapped_to_itself() -> None:
    """A rule alone does not reach it."""
    made = lesson(network=[flow(host=None, ip="10.0.0.5", port=5432)])
    assert made.policy.network.map == ("10.0.0.5:5432=10.0.0.5:5432",)
    assert read_back(made) == made.policy


@pytest.mark.parametrize(
    "one",
    [
        flow(protocol="udp", ip="203.0.113.9", host=None),
        flow(host=None, ip="169.254.169.254", port=80),
        flow(host=None, ip="fe80::1", port=80),
        flow(host=None, ip=None),
        flow(protocol="dns", host=None, ip="203.0.113.5", port=53, server="203.0.113.5:53", unread="udp"),
    ],
)
def test_what_no_policy_allows_is_said(one: dict[str, Any]) -> None:
    """Datagrams, metadata services, what is out of reach."""
    made = lesson(network=[one])
    assert made.policy.network.allow == ()
    assert len(made.left_out) == 1
    assert f"# Not allowed: {made.left_out[0]}" in render(made, command="cmd")


def test_credentials_are_left_out() -> None:
    """They are named in a comment, and in no rule."""
    use = {"kind": "file", "name": "~/.ssh/id", "action": "read", "process": None, "events": [1]}
    made = learn(completions.completion(effects={"credentials": [use]}), Policy(), dropped=("MY_TOKEN",))
    text = render(made, command="cmd")
    assert "# Not allowed: a credential: ~/.ssh/id was read" in text
    assert "MY_TOKEN" in text
    assert made.policy.credentials == Policy().credentials


def created(path: str, **changes: Any) -> dict[str, Any]:
    """Make a file that the trial made."""
    return completions.file(path, **{"history": ["created"], "net": "created", "after": "sha256:1", **changes})


def passed(path: str, **changes: Any) -> dict[str, Any]:
    """Make a file that was there only for a while."""
    gone = {"history": ["created", "deleted"], "net": "unchanged", "after": None, "restored": True}
    return created(path, **{**gone, **changes})


def written(path: str, **changes: Any) -> dict[str, Any]:
    """Make a file that was there before."""
    return completions.file(path, **{"before": "sha256:0", "after": "sha256:1", **changes})


def globs(*files: dict[str, Any]) -> tuple[str, ...]:
    """Give what a lesson lets be written, which has to read back."""
    made = lesson(files=files)
    assert read_back(made) == made.policy
    return made.policy.files.write or ()


def test_files_are_allowed_as_they_were_written() -> None:
    """One by one, parents left out; outside the workspace too; private places never."""
    files = [
        completions.file("a.txt", before="sha256:0", after="sha256:1"),
        created("out"),
        created("out/one"),
        completions.file("/var/lib/thing", before="sha256:0", after="sha256:1"),
        created("/tmp/x", private=True),
        completions.file("unread.txt", history=[]),
    ]
    assert lesson(files=files).policy.files.write == ("/var/lib/thing", "a.txt", "out/one")


@pytest.mark.parametrize(
    ("name", "glob"),
    [
        ("sedAbC9eF", "sed*"),
        ("tmpab12cd_x", "tmp*"),
        (".tmp8x1", ".tmp*"),
        ("work.For6pY", "work.*"),
        ("out_ab12cd_4", "out_*"),
        ("outab_12cd34", "*"),
        ("index.lock", "*.lock"),
        ("3f2a91c0", "*"),
        ("pip-build-x8d2.tmp", "pip-*.tmp"),
    ],
)
def test_what_comes_and_goes_is_allowed_by_what_is_not_drawn_of_its_name(name: str, glob: str) -> None:
    """Its name is another one the next time; where nothing of it is surely the same, its directory stands for it."""
    assert globs(passed(name)) == (glob,)
    assert globs(passed(f"d/{name}")) == (f"d/{glob}",)


@pytest.mark.parametrize(
    ("name", "glob"),
    [
        ("out.txt.x7Gh2k", "out.txt*"),
        (".out.txt.swp", ".out.txt*"),
        ("out.txt~", "out.txt*"),
        ("k3j2-out.txt", "*out.txt*"),
        ("about.txt", "*.txt"),
    ],
)
def test_what_comes_and_goes_beside_what_stays_is_allowed_by_its_name(name: str, glob: str) -> None:
    """Programs write beside a file and rename; a name that only ends like it is another one."""
    assert set(globs(written("out.txt"), passed(name, history=["created", "renamed"]))) == (
        {glob} if glob == "out.txt*" else {glob, "out.txt"}
    )


def test_many_that_come_and_go_are_allowed_by_their_directory() -> None:
    """A line for each would not be read."""
    names = ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op")
    assert globs(*[passed(f"d/{name}-1.x") for name in names]) == ("d/*",)
    assert len(globs(*[passed(f"d/{name}-1.x") for name in names[:-1]])) == len(names) - 1


def test_a_directory_that_comes_and_goes_is_allowed_with_all_that_is_in_it() -> None:
    """`mktemp -d`, filled and removed; renamed as a whole it must be allowed itself, too."""
    inside = [passed("work.For6pY/x"), passed("work.For6pY/x/a", history=["created", "renamed"])]
    assert globs(passed("work.For6pY"), *inside, created("out")) == ("out", "work.*/**")
    assert globs(passed("work.For6pY", history=["created", "renamed"]), *inside) == ("work.*", "work.*/**")


def test_a_name_that_holds_a_digest_is_another_one_the_next_time() -> None:
    """Content and random ids; directories that part digests are known by them. What was there before stays as it is."""
    digest = "83f870be446c7cc05ffaef9fa06415276e1828"
    uuid = "0190d4a5-7c1e-4b2a-9d55-f0c0a1b2c3d4"
    assert globs(created(f"o/3d/{digest}"), passed("o/3d/tmp_obj_x"), created(f"o/fa/{digest}")) == ("o/??/*",)
    assert globs(created(f"run-{uuid}.json")) == ("run-*.json",)
    assert globs(created(f"db/{uuid}{digest}.json")) == ("db/*.json",)
    assert globs(written(f"o/3d/{digest}")) == (f"o/3d/{digest}",)


def test_a_directory_that_was_changed_itself_is_allowed_whole() -> None:
    """Making parents is all that is allowed anyway: not their mode, nor that they were moved, removed or made anew."""
    leaf = written("d/x")
    directory = {"before": None, "after": None}
    for history in (["attributes"], ["deleted"], ["renamed"], ["deleted", "created"]):
        assert globs(completions.file("d", history=history, net="unchanged", **directory), leaf) == ("d",)
    assert globs(created("d", history=["created", "attributes"], after=None), leaf) == ("d",)
    assert globs(created("d", after=None), leaf) == ("d/x",)


def test_directories_that_were_moved_are_listed_however_many() -> None:
    """A glob with wildcards would not cover what lies in them."""
    moved = [completions.file(f"d{n}", history=["renamed"], net="renamed", renamed_to=f"e{n}") for n in range(9)]
    assert globs(*moved, *[written(f"f{n}") for n in range(9)]) == (*[f"d{n}" for n in range(9)], "f*")


def test_a_directory_that_was_made_and_stays_empty_is_allowed_by_its_name() -> None:
    """It has no digest, and is no passing file for that."""
    assert globs(created("d", after=None)) == ("d",)


def test_a_directory_that_was_made_and_filled_is_allowed_whole() -> None:
    """Build trees, caches."""
    files = [
        created("build"),
        *[created(f"build/{n}") for n in range(2)],
        created("build/deep"),
        created("build/deep/x"),
    ]
    made = lesson(files=files)
    assert made.policy.files.write == ("build",)
    assert made.remarks["files", "write", "build"] == "5 paths"


def test_many_files_of_one_directory_are_allowed_by_what_they_have_in_common() -> None:
    """A list of hundreds would not be read; what differs is listed still, until that is many too."""
    assert globs(*[written(f"data/{n}") for n in range(20)]) == ("data/*",)
    assert globs(*[written(f"f{n}.txt") for n in range(8, 20)], written("README")) == ("README", "f*.txt")
    few = [written(f"f{n}.txt") for n in range(7)]
    assert globs(*few) == tuple(f"f{n}.txt" for n in range(7))
    ends = ("a.a", "b.b", "c.c", "d.d", "e.e", "f.f", "g.g")
    assert globs(*few, *map(written, ends)) == (*ends[:5], "f*.txt", *ends[5:])
    assert globs(*map(written, (*ends, "h.h"))) == ("*",)


def test_what_comes_and_goes_beside_many_that_stay_has_one_line_with_them() -> None:
    """Compiled files, each written beside itself first."""
    names = [f"m{n}.pyc" for n in range(9)]
    assert globs(
        *map(written, names), *[passed(f"{name}.13902", history=["created", "renamed"]) for name in names]
    ) == ("m*.pyc*",)


def test_the_lesson_adds_to_what_was_asked_for() -> None:
    """Rules and keys of the base policy are kept."""
    base = Policy(network=NetworkPolicy(allow=("base.test:443",)), files=FilesPolicy(write=("x",)))
    made = lesson(base=base, network=[flow()], files=[created("y")])
    assert made.policy.network.allow == ("base.test:443", "api.test:443")
    assert made.policy.files.write == ("x", "y")
    assert read_back(made) == made.policy


def test_the_trial_to_learn_from_leaves_nothing() -> None:
    """Nothing is refused, nothing leaves, nothing is applied."""
    policy = watching(Policy(files=FilesPolicy(write=("x",))))
    assert (policy.network.default, policy.files.write, policy.files.commit) == ("sinkhole", None, "never")


NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in {b".", b".."}
)
TELLING = st.from_regex(
    rb"\.?(tmp|out|work|m)[._-]?([0-9]{1,3}|[0-9a-f]{16,40}|[A-Za-z0-9_]{6,8})?(\.(txt|lock|pyc))?|[0-9a-f]{2,3}",
    fullmatch=True,
)
PATHS = st.lists(NAMES | TELLING, min_size=1, max_size=3).map(b"/".join)


@given(st.lists(st.tuples(PATHS, st.booleans()), max_size=24))
def test_every_path_that_was_written_is_allowed(found: list[tuple[bytes, bool]]) -> None:
    """Whatever the names hold: the policy reads back, and its globs match all of them."""
    import base64  # noqa: PLC0415

    entries = []
    for path, passing in found:
        entry = passed("x") if passing else created("x")
        entry.pop("path")
        entries.append(entry | {"path_b64": base64.b64encode(path).decode()})
    made = lesson(files=entries)
    globs = compile_globs(read_back(made).files.write or ())
    assert all(globs.match(path) or any(other.startswith(path + b"/") for other, _ in found) for path, _ in found)


@pytest.mark.parametrize("name", ["/w/.ssh/authorized_keys", "~/.ssh/authorized_keys"])
def test_a_credential_that_was_made_is_not_allowed(name: str) -> None:
    """What a comment says is not allowed is in no rule; what only looks like one inside is an ordinary file."""
    use = {"kind": "file", "name": name, "action": "created", "process": None, "events": [1]}
    found = {**use, "name": "/w/lock.json", "action": "written", "fingerprint": "hmac-sha256:x"}
    path = ".ssh/authorized_keys" if name.startswith("/") else "/root/.ssh/authorized_keys"
    made = lesson(files=[created(path), created("lock.json")], credentials=[use, found])
    assert made.policy.files.write == ("lock.json",)
