"""Options of the command line over a policy."""

from __future__ import annotations

import pytest

from policies.called import Called, Caller, as_keyword, as_option
from policies.canonical import policy_digest
from policies.options import PolicyOptions, apply_options, names_not_set, set_environ
from policies.types import AtEndpoint, Commit, FilesMode, FilesPolicy, LimitRole, Policy, SharedPlace
from supervisor.errors import UsageError


def test_no_option_changes_nothing() -> None:
    """Without options the policy keeps its digest."""
    assert apply_options(Policy(), PolicyOptions()) == Policy()


def test_every_option_lands_in_its_field() -> None:
    """Each option sets what it says and nothing else."""
    options = PolicyOptions(
        workspace="w",
        mode="direct",
        write=("a",),
        env=("A=1", "B"),
        outcome="o",
        scope=("s",),
        period="within:1m",
        timeout="3s",
        limit_role="observation",
        at_endpoint="cancel",
        settle="0s",
    )
    policy = apply_options(Policy(), options)
    assert (policy.files.workspace, policy.files.mode, policy.files.write) == ("w", FilesMode.DIRECT, ("a",))
    assert (policy.claim.outcome, policy.claim.scope, str(policy.claim.period)) == ("o", ("s",), "within 60s")
    assert (policy.stop.wall_s, policy.stop.settle_s) == (3.0, 0.0)
    assert (policy.stop.role, policy.stop.at_endpoint) == (LimitRole.OBSERVATION, AtEndpoint.CANCEL)
    assert policy.credentials.env == ("A", "B")
    assert apply_options(Policy(), PolicyOptions(commit="never")).files.commit is Commit.NEVER
    for text in ("final,clean", "clean,final"):
        assert apply_options(Policy(), PolicyOptions(commit=text)).files.commit is Commit.FINAL_CLEAN


def test_options_that_repeat_add_to_the_policy() -> None:
    """`--write` widens what the policy lists, and repeating what it lists leaves its digest alone."""
    policy = Policy(files=FilesPolicy(write=("a",)))
    assert apply_options(policy, PolicyOptions(write=("b", "a"))).files.write == ("a", "b")
    assert policy_digest(apply_options(policy, PolicyOptions(write=("a",)))) == policy_digest(policy)


def test_a_value_reaches_the_environment_and_never_the_policy() -> None:
    """The log keeps names only."""
    options = PolicyOptions(env=("TOKEN=s3cret=x", "OTHER"))
    assert set_environ({"OTHER": "o"}, options) == {"OTHER": "o", "TOKEN": "s3cret=x"}
    assert "s3cret" not in str(apply_options(Policy(), options))


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (PolicyOptions(settle="2"), "--settle"),
        (PolicyOptions(timeout="0s"), "--timeout"),
        (PolicyOptions(period="soon"), "--period"),
        (PolicyOptions(commit="maybe"), "--commit"),
        (PolicyOptions(commit="final,never"), "--commit"),
        (PolicyOptions(limit_role="boss"), "--limit-role"),
        (PolicyOptions(at_endpoint="leave"), "--at-endpoint"),
        (PolicyOptions(env=("=x",)), "--env"),
        (PolicyOptions(write=("",)), "--write"),
        (PolicyOptions(outcome=""), "--outcome"),
        (PolicyOptions(outcome="../a"), "--outcome"),
        (PolicyOptions(scope=("a/../b",)), "--scope"),
        (PolicyOptions(workspace=""), "--workspace"),
        (PolicyOptions(mode="direct", commit="never"), "--commit"),
    ],
)
def test_a_mistake_is_the_options(options: PolicyOptions, place: str) -> None:
    """The error names the option, not the key that it would set."""
    with pytest.raises(UsageError) as caught:
        apply_options(Policy(), options)
    assert caught.value.place == place
    with pytest.raises(UsageError) as caught:
        apply_options(Policy(), options, called=as_keyword)
    keyword, _, number = str(caught.value.place).partition("[")
    assert keyword == place.removeprefix("--").replace("-", "_")
    assert number in {"", "0]"}


def test_a_name_that_is_not_set_is_known() -> None:
    """`--env NAME` of a name that nobody set does nothing, which the caller is told."""
    assert names_not_set({"A": "1"}, PolicyOptions(env=("A", "B", "C=2"))) == ("B",)


def caller(source: str | None, called: Called, **options: object) -> Caller:
    """Make a caller whose file hides one place, and shares one."""
    file = Policy(files=FilesPolicy(read_deny=("key",), shared=(SharedPlace(path="q"),)))
    return Caller(file=file, options=options, source=source, called=called)


@pytest.mark.parametrize(
    ("key", "shell", "harness"),
    [
        ("files.read_deny[0]", "p.toml: files.read_deny[0]", "p.toml: files.read_deny[0]"),
        ("files.read_deny[1]", "--read-deny", "read_deny[0]"),
        ("files.read_deny[2]", "--read-deny", "read_deny[3]"),
        ("files.shared[0].path", "p.toml: files.shared[0].path", "p.toml: files.shared[0].path"),
        ("files.shared[1].path", "--shared", "shared[0]"),
        ("claim.outcome", "--outcome", "outcome"),
        ("claim.requirements[0]", "p.toml: claim.requirements[0]", "p.toml: claim.requirements[0]"),
        ("services[1].at", "p.toml: services[1].at", "p.toml: services[1].at"),
        ("stop.wall", "p.toml: stop.wall", "p.toml: stop.wall"),
        ("--user", "--user", "--user"),
        ("the working directory", "the working directory", "the working directory"),
    ],
)
def test_a_place_is_told_as_its_caller_wrote_it(key: str, shell: str, harness: str) -> None:
    """By the option that gave it, without a number on a command line; else by the file and its key; else as it is."""
    given = {"read_deny": ("a", "key", "a", "b"), "shared": ("r",), "outcome": "o", "timeout": None}
    assert caller("p.toml", as_option, **given).place(key) == shell
    assert caller("p.toml", as_keyword, **given).place(key) == harness
    assert caller(None, as_option).place(key) == key


def test_several_options_that_are_wrong_are_told_at_once() -> None:
    """Each by its own place."""
    with pytest.raises(UsageError) as caught:
        apply_options(Policy(), PolicyOptions(write=("../a", "b", "../c")), called=as_keyword)
    assert [caught.value.place, *(one.place for one in caught.value.others)] == ["write[0]", "write[2]"]
