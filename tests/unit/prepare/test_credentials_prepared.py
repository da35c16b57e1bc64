"""What a run knows of its credentials before it begins."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from policies.types import CredentialsPolicy, Policy
from supervisor import events as ev
from supervisor.errors import UsageError
from supervisor.prepare.credentials import Credentials, prepare_credentials


def prepared(base: Path, environ: dict[str, str], run: str = "r1", **credentials: object) -> Credentials:
    """Prepare for a run in ``base/work`` by a user with the home ``base/user``."""
    for name in ("state", "work", "user"):
        (base / name).mkdir(exist_ok=True)
    return prepare_credentials(
        {"HOME": str(base / "user"), **environ},
        Policy(credentials=CredentialsPolicy(**credentials)),  # type: ignore[arg-type]
        run=run,
        state=base / "state",
        workspace=base / "work",
        user_home=None,
    )


def guarded(credentials: Credentials, *masked: bytes) -> dict[str, object]:
    """Give what the log is told of what is guarded."""
    return next(fields for kind, fields in credentials.events(masked) if kind is ev.CredentialGuarded)


def test_paths_are_no_secrets_whatever_their_variable_is_called(tmp_path: Path) -> None:
    """Nor is what is part of the workspace's own path; a value that only begins like a path is one."""
    environ = {
        "DEPLOY_KEY": str(tmp_path / "work"),
        "APP_SECRET": str(tmp_path / "work").split("/")[-2],
        "AWS_SECRET_ACCESS_KEY": "/no/such+path/7x9QvTz0",
        "A_TOKEN": "tok-5c1f0e77b2",
    }
    hide = prepared(tmp_path, environ).redactor
    for kept in (str(tmp_path / "work/file"), "plain"):
        assert hide.redact(kept.encode(), where="w") == kept.encode()
    for taken in (environ["AWS_SECRET_ACCESS_KEY"], environ["A_TOKEN"]):
        assert taken.encode() not in hide.redact(b"x " + taken.encode(), where="w")


def test_a_home_that_is_a_symlink_is_guarded_by_both_names(tmp_path: Path) -> None:
    """The kernel tells real paths."""
    (tmp_path / "real").mkdir()
    (tmp_path / "user").symlink_to(tmp_path / "real")
    found = guarded(prepared(tmp_path, {}))
    assert found["home"] == bytes(tmp_path / "user")
    assert bytes(tmp_path / "real") in found["homes"]  # type: ignore[operator]


def test_decoys_take_the_place_of_what_is_masked_and_of_no_real_variable(tmp_path: Path) -> None:
    """Their directories are not masked any more; a variable that is passed stays what it is."""
    credentials = prepared(tmp_path, {"DATABASE_URL": "postgres://real"}, canaries=True, env=("DATABASE_URL",))
    assert credentials.environ["DATABASE_URL"] == "postgres://real"
    assert credentials.environ["GITHUB_TOKEN"].startswith("ghp_")
    home = tmp_path / "user"
    found = guarded(credentials, bytes(home / ".ssh"), bytes(home / ".gnupg"))
    assert found["masked"] == (bytes(home / ".gnupg"),)
    placed = [fields for kind, fields in credentials.events(()) if kind is ev.CanaryPlaced]
    assert found["canaries"] == len(placed)
    assert {fields.get("name") for fields in placed} == {None, "GITHUB_TOKEN"}
    assert credentials.lookout() is not None


def seen(by: Credentials, text: bytes) -> list[str]:
    """Give whose decoys the gateway of a run would see in what is sent."""
    lookout = by.lookout()
    assert lookout is not None
    return [sighting.name for sighting in lookout.spotter.spot(text)]


def test_decoys_of_earlier_runs_are_looked_for_in_what_is_sent(tmp_path: Path) -> None:
    """Of the latest sixteen; its own encoded twice as well, which costs too much of more."""
    runs = [prepared(tmp_path, {}, run=f"r{number:02}", canaries=True) for number in range(18)]
    (netrc,) = [decoy for decoy in runs[1].decoys if decoy.form == "netrc"]
    latest, oldest = runs[17], runs[0]
    for text in (netrc.values[0], base64.b64encode(netrc.values[0])):
        assert seen(latest, b"x" + text) == ["r01 netrc"]
    twice = [base64.b64encode(base64.b64encode(value)) for decoy in (netrc, latest.decoys[0]) for value in decoy.values]
    assert seen(latest, b" ".join(twice)) == ["r17 aws"]
    assert seen(latest, oldest.decoys[0].values[0]) == []
    assert {run for run, _, _ in latest.known_decoys()} == {f"r{number:02}" for number in range(18)}


def test_a_run_without_decoys_has_nothing_looked_at_that_is_sent(tmp_path: Path) -> None:
    """Looking costs more than passing on; those of others are looked for in what is kept of it."""
    prepared(tmp_path, {}, run="r00", canaries=True)
    later = prepared(tmp_path, {}, run="r01")
    assert later.lookout() is None
    assert {run for run, _, _ in later.known_decoys()} == {"r00"}


def test_nothing_is_planted_where_it_would_be_staged(tmp_path: Path) -> None:
    """A home in the workspace, or the workspace itself, keeps only variables as decoys."""
    (tmp_path / "work/home").mkdir(parents=True)
    for home in (tmp_path / "work", tmp_path / "work/home"):
        credentials = prepared(tmp_path, {"HOME": str(home)}, canaries=True)
        assert credentials.planted == ()
        placed = [fields["form"] for kind, fields in credentials.events(()) if kind is ev.CanaryPlaced]
        assert sorted(placed) == ["database", "github"]


def test_nothing_is_planted_in_a_home_that_is_no_directory(tmp_path: Path) -> None:
    """There it could not be put."""
    (tmp_path / "file").touch()
    assert prepared(tmp_path, {"HOME": str(tmp_path / "file")}, canaries=True).planted == ()
    assert prepared(tmp_path, {"HOME": str(tmp_path / "absent")}, canaries=True).planted != ()


def test_a_fingerprint_is_told_for_a_secret_and_not_for_a_way_to_an_agent(tmp_path: Path) -> None:
    """Dropped ones by name; the socket that the variable leads to is guarded."""
    credentials = prepared(tmp_path, {"A_TOKEN": "tok-5c1f0e77b2", "SSH_AUTH_SOCK": "/x/agent"})
    dropped = {
        fields["name"]: fields["fingerprint"] for kind, fields in credentials.events(()) if kind is ev.CredentialDropped
    }
    assert dropped["SSH_AUTH_SOCK"] is None
    assert str(dropped["A_TOKEN"]).startswith("hmac-sha256:")
    assert "/x/agent" in guarded(credentials)["sockets"]  # type: ignore[operator]


def test_a_credential_that_is_to_be_passed_and_is_not_set_is_an_error(tmp_path: Path) -> None:
    """Before anything is made, with the key and the name."""
    with pytest.raises(UsageError, match="GONE") as caught:
        prepared(tmp_path, {}, passed=("GONE",))
    assert caught.value.place == "credentials.pass"
