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
    return completions.file(path, history=["created"], net="created", **{"after": "sha256:1", **changes})


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


def test_what_comes_and_goes_is_allowed_by_its_directory() -> None:
    """Its name is another one the next time."""
    files = [
        completions.file("d/.tmp8x1", history=["created", "deleted"], net="unchanged", restored=True),
        completions.file("d/kept", before="sha256:0", after="sha256:1"),
        completions.file("top.1", history=["created", "deleted"], net="unchanged", restored=True),
    ]
    assert lesson(files=files).policy.files.write == ("*", "d/*")


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


def test_many_files_of_one_directory_are_allowed_by_it() -> None:
    """A list of hundreds would not be read."""
    files = [completions.file(f"data/{n}", before="sha256:0", after="sha256:1") for n in range(20)]
    assert lesson(files=files).policy.files.write == ("data/*",)


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
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)


@given(st.lists(st.tuples(PATHS, st.booleans()), max_size=12))
def test_every_path_that_was_written_is_allowed(found: list[tuple[bytes, bool]]) -> None:
    """Whatever the names hold: the policy reads back, and its globs match all of them."""
    import base64  # noqa: PLC0415

    entries = []
    for path, passing in found:
        entry = created("x", **({"after": None} if passing else {}))
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
