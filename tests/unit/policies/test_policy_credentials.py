"""What is taken for a credential, and what is not."""

from __future__ import annotations

from collections.abc import Iterable
from glob import glob
from ipaddress import ip_address
from pathlib import Path

import pytest

from policies.credentials import (
    Secret,
    credential_data,
    filter_environ,
    find_secrets,
    hidden_values,
    is_secret,
    masked_globs,
    masked_paths,
    missing_names,
)
from policies.types import CredentialsPolicy, Policy

ORDINARY = {
    "PATH": "/usr/bin",
    "HOME": "/home/u",
    "LANG": "C.UTF-8",
    "TERM": "xterm",
    "PWD": "/w",
    "OLDPWD": "/",
    "SHELL": "/bin/sh",
    "USER": "u",
    "EDITOR": "vi",
    "PYTHONPATH": ".",
    "CC": "gcc",
    "MAKEFLAGS": "-j2",
    "LS_COLORS": "di=01;34",
    "PIP_INDEX_URL": "https://pypi.example/simple",
    "http_proxy": "http://proxy.example:3128",
    "KEYBOARD": "de",
    "TOKENIZERS_PARALLELISM": "false",
    "NO_COLOR": "1",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_names_are_kept(name: str) -> None:
    """What programs need to behave as they do bare is not dropped."""
    assert not is_secret(name, ORDINARY[name])


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "GITHUB_TOKEN",
        "HF_TOKEN",
        "npm_config__authToken",
        "DB_PASSWORD",
        "PGPASSWORD",
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "SUPERVISE_SIGNING_KEY",
        "openai_api_key",
    ],
)
def test_secret_names_and_ways_to_an_agent_are_dropped(name: str) -> None:
    """Secrets by name, in any case, and sockets of agents."""
    assert is_secret(name, "x")


@pytest.mark.parametrize(
    "value", ["postgres://u:pw@db.example/x", "http://:t0ken@h", "-----BEGIN OPENSSH PRIVATE KEY-----\nx"]
)
def test_secret_values_are_dropped_whatever_they_are_called(value: str) -> None:
    """A URL with a password, and a private key."""
    assert is_secret("HARMLESS", value)


def test_a_name_that_the_policy_keeps_is_kept() -> None:
    """The caller has the last word, for exactly the name that was said."""
    environ = {"OPENAI_API_KEY": "sk-1", "OPENAI_API_KEY_2": "sk-2", "PATH": "/bin", "MY_SECRET_2": "x"}
    policy = Policy(credentials=CredentialsPolicy(env=("OPENAI_API_KEY",)))
    kept, dropped = filter_environ(environ, policy)
    assert kept == {"OPENAI_API_KEY": "sk-1", "PATH": "/bin"}
    assert dropped == ("MY_SECRET_2", "OPENAI_API_KEY_2")


def test_our_own_settings_are_left_out_and_no_credentials() -> None:
    """What only says where runs are kept is told as no credential; a key is; and what the policy keeps is kept."""
    environ = {"SUPERVISE_HOME": "/var/lib/s", "SUPERVISE_SIGNING_KEY": "/k", "SUPERVISED": "yes"}
    assert filter_environ(environ, Policy()) == ({"SUPERVISED": "yes"}, ("SUPERVISE_SIGNING_KEY",))
    policy = Policy(credentials=CredentialsPolicy(env=("SUPERVISE_HOME",)))
    assert filter_environ(environ, policy)[0] == {"SUPERVISE_HOME": "/var/lib/s", "SUPERVISED": "yes"}


def listing(*paths: str) -> dict[str, list[str]]:
    """Make a file system of literal globs."""
    return {path: [path] for path in paths}


def test_masked_paths_are_those_that_exist_without_those_below() -> None:
    """A masked directory hides what is in it, so that is not masked again."""
    there = listing("/home/u/.ssh", "/home/u/.aws", "/etc/shadow", "/home/u/.ssh/extra", "/w/secret")

    def exists(glob: str) -> Iterable[str]:
        return there.get(glob, [])

    found = masked_paths("/home/u", exists, workspace="/w", mask=("~/.ssh/extra", "secret", "gone"))
    assert found == ("/etc/shadow", "/home/u/.aws", "/home/u/.ssh", "/w/secret")


def test_a_home_with_glob_characters_means_itself() -> None:
    """A directory called ``[x]*`` is no pattern."""
    globs = masked_globs("/home/[x]*", workspace="/w", mask=())
    assert "/home/[[]x[]]*/.ssh" not in globs
    assert "/home/[[]x][*]/.ssh" in globs


def test_without_a_home_only_absolute_paths_are_masked() -> None:
    """A user without a home has no home to mask."""
    assert all(glob.startswith("/") for glob in masked_globs(None, workspace="/w"))


def test_the_data_is_well_formed() -> None:
    """Home paths are relative, the others absolute, names are in upper case, nothing is listed twice."""
    data = credential_data()
    assert not [path for path in data.home_paths if path.startswith(("/", "~"))]
    assert all(path.startswith("/") for path in (*data.absolute_paths, *data.sockets))
    assert all(glob == glob.upper() for glob in (*data.agents, *data.secrets))
    assert not [name for name in (*data.anywhere, *data.made, *data.metadata_names) if "/" in name]
    assert all(str(ip_address(address)) == address for address in data.metadata_addresses)
    names = (data.anywhere, data.made, data.metadata_addresses, data.metadata_names)
    for listed in (data.home_paths, data.absolute_paths, data.sockets, data.agents, data.secrets, *names):
        assert len(listed) == len(set(listed))


def test_credentials_of_other_homes_are_masked_too() -> None:
    """Whoever else has a home on the machine: the trial may be root, and read it."""
    globs = masked_globs("/home/u", workspace="/w", others=("/root", "/home/u"))
    assert {"/home/u/.ssh", "/root/.ssh"} <= set(globs)
    assert len(globs) == len(set(globs))


def test_a_passed_name_is_kept_and_told_when_it_is_missing() -> None:
    """``pass`` keeps a name as ``env`` does, and says that it must be there."""
    policy = Policy(credentials=CredentialsPolicy(passed=("A_TOKEN", "PLAIN", "GONE", "EMPTY")))
    environ = {"A_TOKEN": "t", "PLAIN": "x", "OTHER_TOKEN": "o", "EMPTY": ""}
    assert filter_environ(environ, policy)[1] == ("OTHER_TOKEN",)
    assert missing_names(environ, policy) == ("GONE", "EMPTY")


def test_the_credentials_of_an_environment_are_known_by_name_and_whether_they_are_passed() -> None:
    """Declared ones whatever they look like; not what only leads to an agent."""
    policy = Policy(credentials=CredentialsPolicy(env=("A_TOKEN", "LANG"), passed=("PLAIN",)))
    environ = {"A_TOKEN": "t", "PLAIN": "x", "B_TOKEN": "o", "SSH_AUTH_SOCK": "/tmp/s", "LANG": "C"}
    found = find_secrets(environ, policy)
    assert [(one.name, one.passed) for one in found] == [("A_TOKEN", True), ("B_TOKEN", False), ("PLAIN", True)]
    assert "zq-91" not in repr(Secret(name="N", value="zq-91", passed=True))


def hidden(value: str, *, passed: bool) -> list[bytes]:
    """Give what is hidden of one variable."""
    return [found for _, found in hidden_values([Secret(name="N", value=value, passed=passed)])]


def test_values_are_hidden_unless_any_text_may_hold_them() -> None:
    """Short ones are not, nor is a word that was dropped; the password of a URL is hidden by itself too."""
    assert hidden("sk-123456", passed=False) == [b"sk-123456"]
    assert hidden("hunter", passed=True) == [b"hunter"]
    assert hidden("hunt", passed=True) == []
    assert hidden("postgres", passed=False) == []
    assert hidden("abc", passed=False) == []
    assert hidden("postgres://u:s3cr3t-pw@db/x", passed=False) == [b"postgres://u:s3cr3t-pw@db/x", b"s3cr3t-pw"]
    assert hidden("  tok-123456\n", passed=True) == [b"tok-123456"]


def test_each_line_of_a_key_is_hidden_by_itself() -> None:
    """A program reads a key line by line; the lines around it are the same in every key."""
    body = ("b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE", "QyNTUxOQAA")
    key = "\n".join(("-----BEGIN OPENSSH PRIVATE KEY-----", *body, "-----END OPENSSH PRIVATE KEY-----"))
    assert hidden(key + "\n", passed=True) == [key.encode(), body[0].encode()]


def test_what_was_typed_is_masked(tmp_path: Path) -> None:
    """Histories of shells and clients hold passwords, whatever they are called."""
    home = tmp_path / "home"
    histories = (
        ".bash_history",
        ".psql_history",
        ".local/share/fish/fish_history",
        ".local/state/bash/history",
        ".env",
    )
    for name in histories:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    found = masked_paths(str(home), glob, workspace="/w", mask=())
    assert {str(home / name) for name in histories} <= set(found)
