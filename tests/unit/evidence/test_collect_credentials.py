"""What is told of credentials: attempts, uses and decoys, by name."""

from __future__ import annotations

import errno
import random

import pytest
from transcript import MAIN, Transcript

from policies.credentials import credential_data
from supervisor import events as ev
from supervisor.evidence.credentials import with_credentials
from supervisor.evidence.facts import CredentialUse

HOME = b"/home/me"


def guarded(*, canaries: int = 0, masked: tuple[bytes, ...] = (HOME + b"/.ssh", b"/etc/shadow")) -> dict[str, object]:
    """Give the fields of what is guarded: the data that comes with the program, for one home and root's."""
    data = credential_data()
    return {
        "process": None,
        "home": HOME,
        "homes": (b"/root",),
        "relative": data.home_paths,
        "absolute": data.absolute_paths,
        "anywhere": data.anywhere,
        "made": data.made,
        "sockets": data.sockets,
        "addresses": data.metadata_addresses,
        "names": data.metadata_names,
        "masked": masked,
        "canaries": canaries,
    }


def told(trial: Transcript) -> Transcript:
    """Begin a trial that says what is guarded."""
    trial.add(ev.CredentialGuarded, **guarded())
    trial.begin()
    return trial


def uses(trial: Transcript) -> set[tuple[str, str, str]]:
    """Give what was done with what."""
    return {(use.what, use.name, use.action) for use in finished(trial)}


def finished(trial: Transcript) -> tuple[CredentialUse, ...]:
    """End the trial and give the uses."""
    trial.exit()
    trial.endpoint()
    trial.end()
    return trial.facts().credentials


def read(trial: Transcript, path: bytes, **fields: object) -> None:
    """Open a file for reading."""
    trial.file(ev.FileOpened, path, reads=True, writes=False, **fields)


@pytest.mark.parametrize(
    ("path", "error", "expected"),
    [
        (b"/home/me/.ssh/id_ed25519", errno.ENOENT, ("file", "~/.ssh/id_ed25519", "denied")),
        (b"/home/me/.ssh", None, ("file", "~/.ssh", "denied")),
        (b"/etc/shadow", None, ("file", "/etc/shadow", "denied")),
        (b"/root/.aws/credentials", errno.EACCES, ("file", "/root/.aws/credentials", "denied")),
        (b"/home/me/.netrc", None, ("file", "~/.netrc", "read")),
        (b"/home/me/work/.env", None, ("file", "~/work/.env", "read")),
        (b"/etc/ssh/ssh_host_rsa_key", errno.ENOENT, ("file", "/etc/ssh/ssh_host_rsa_key", "denied")),
        (b"/run/user/0/bus", errno.ENOENT, ("agent", "/run/user/0/bus", "denied")),
    ],
)
def test_every_way_to_read_is_told(path: bytes, error: int | None, expected: tuple[str, str, str]) -> None:
    """Masked, absent and refused ones are denied; one that lies open is read."""
    trial = told(Transcript())
    read(trial, path, error=error)
    assert uses(trial) == {expected}


def test_looks_are_attempts_where_nothing_was_to_be_seen() -> None:
    """A stat of what lies open is none, nor is an attribute that it lacks; a listing of a masked directory is one."""
    trial = told(Transcript())
    trial.file(ev.FileLookedUp, HOME + b"/.netrc", how="newfstatat")
    trial.file(ev.FileLookedUp, HOME + b"/.netrc", how="lgetxattr", error=errno.ENODATA)
    trial.file(ev.FileLookedUp, HOME + b"/.pgpass", how="access", error=errno.ENOENT)
    trial.file(ev.FileListed, HOME + b"/.ssh")
    trial.file(ev.FileListed, HOME + b"/.aws")
    assert uses(trial) == {
        ("file", "~/.pgpass", "denied"),
        ("file", "~/.ssh", "denied"),
        ("file", "~/.aws", "read"),
    }


@pytest.mark.parametrize(
    "path", [b"/home/me/code/tool.py", b"/etc/ssl/certs/ca.pem", b"/home/me/.sshd", b"/etc/shadows", b"/home/me"]
)
def test_ordinary_reads_are_no_use_of_a_credential(path: bytes) -> None:
    """Names that only look alike, and certificate bundles."""
    trial = told(Transcript())
    read(trial, path)
    assert uses(trial) == set()


def test_what_is_made_or_written_is_told() -> None:
    """New keys, tokens put elsewhere by a rename, links; and a refused write."""
    trial = told(Transcript())
    trial.create("/home/me/.ssh/authorized_keys", error=errno.EROFS)
    trial.create("deploy.pem")
    trial.write("/home/me/.netrc")
    trial.rename("x", "/home/me/.kube/config")
    trial.file(ev.FileCreated, "/home/me/.gnupg", what=ev.Kind.DIRECTORY)
    assert uses(trial) == {
        ("file", "~/.ssh/authorized_keys", "denied"),
        ("file", "~/work/deploy.pem", "created"),
        ("file", "~/.netrc", "written"),
        ("file", "~/.kube/config", "created"),
        ("file", "~/.gnupg", "created"),
    }


def test_calls_for_keys_and_privileges_are_told() -> None:
    """What the box refuses to everybody; other refused calls are none of it."""
    trial = told(Transcript())
    for name in ("keyctl", "setuid", "unshare", "mount"):
        trial.add(ev.SyscallRefused, name=name, arguments=(0, 0), error=errno.EPERM)
    refused = {(use[0], use[1]) for use in uses(trial) if use[2] == "denied"}
    assert refused == {("keyring", "keyctl"), ("privilege", "setuid"), ("privilege", "unshare")}


def test_memory_and_environment_of_others_are_told_and_ones_own_are_not() -> None:
    """``/proc/PID/environ`` of another process holds what that one was passed."""
    trial = told(Transcript())
    child = trial.spawn("cat")
    own = child.pid - 100
    read(trial, b"/proc/%d/environ" % own, process=child)
    read(trial, b"/proc/1/environ", process=child, error=errno.EACCES)
    read(trial, b"/proc/7/task/7/mem", process=child)
    assert uses(trial) == {("env", "/proc/1/environ", "denied"), ("privilege", "/proc/7/mem", "read")}


@pytest.mark.parametrize("ip", ["169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254"])
def test_asking_a_cloud_for_credentials_is_told(ip: str) -> None:
    """By its addresses of both families."""
    trial = told(Transcript())
    trial.add(ev.ConnectionBlocked, transport="tcp", ip=ip, port=80)
    trial.add(ev.ConnectionBlocked, transport="tcp", ip="203.0.113.7", port=80)
    assert uses(trial) == {("metadata", ip, "denied")}


def test_agents_are_told_by_their_sockets() -> None:
    """Reached or not; sockets of the trial's own are none."""
    trial = told(Transcript())
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"/run/docker.sock", error=errno.ENOENT)
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"/tmp/ssh-x1/agent.7", outside=True)
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"@/tmp/dbus-Ab1", error=errno.ECONNREFUSED)
    trial.add(ev.ConnectionAttempted, transport="unix", path=b"/home/me/work/s")
    assert uses(trial) == {
        ("agent", "/run/docker.sock", "denied"),
        ("agent", "/tmp/ssh-x1/agent.7", "used"),
        ("agent", "/tmp/dbus-Ab1", "denied"),
    }


def test_names_of_the_environment_are_told_without_values() -> None:
    """Dropped, passed, and passed ones whose value was met."""
    trial = Transcript()
    trial.add(ev.CredentialGuarded, **guarded())
    trial.add(ev.CredentialDropped, process=None, name="A_TOKEN", fingerprint="hmac-sha256:1")
    trial.add(ev.CredentialPassed, process=None, name="B_TOKEN", fingerprint="hmac-sha256:2")
    trial.begin()
    trial.add(ev.CredentialRedacted, process=None, name="B_TOKEN", where="kernel", count=3, fingerprint="hmac-sha256:2")
    found = {(use.name, use.action, use.fingerprint, use.where) for use in finished(trial)}
    assert found == {
        ("A_TOKEN", "denied", "hmac-sha256:1", None),
        ("B_TOKEN", "passed", "hmac-sha256:2", None),
        ("B_TOKEN", "used", "hmac-sha256:2", "kernel"),
    }


def test_a_decoy_that_is_read_is_told_and_one_that_leaks_violates() -> None:
    """Reading it is what credentials are for; meeting it elsewhere is not. The run that placed it is named."""
    trial = Transcript()
    trial.add(ev.CredentialGuarded, **guarded(canaries=1))
    trial.add(ev.CanaryPlaced, process=None, form="aws", path=HOME + b"/.aws/credentials")
    trial.begin()
    read(trial, HOME + b"/.aws/credentials")
    trial.add(
        ev.CanaryLeaked, form="aws", placed_by="r1", seen_in="r2", where="sent to 203.0.113.9:80", encoding="base64"
    )
    placed, read_use, leaked = finished(trial)
    assert (placed.what, placed.name, placed.action) == ("canary", "decoys", "passed")
    assert (read_use.what, read_use.name, read_use.action, read_use.violates) == (
        "canary", "~/.aws/credentials", "read", False,
    )  # fmt: skip
    assert (leaked.what, leaked.name, leaked.action, leaked.violates) == ("canary", "aws", "leaked", True)
    assert (leaked.run, leaked.where) == ("r1", "sent to 203.0.113.9:80 (base64)")


def test_the_boxs_own_acts_are_no_uses() -> None:
    """Before its release CMD's process acts for the box."""
    trial = Transcript()
    trial.add(ev.CredentialGuarded, **guarded())
    read(trial, b"/etc/shadow", process=MAIN)
    trial.begin()
    assert uses(trial) == set()


def test_a_log_that_does_not_say_what_a_credential_is_tells_of_none() -> None:
    """Old logs are judged as they were; the route has no witness there."""
    trial = Transcript()
    trial.begin()
    read(trial, b"/etc/shadow")
    trial.add(ev.SyscallRefused, name="keyctl", arguments=(0, 0), error=errno.EPERM)
    trial.exit()
    trial.endpoint()
    trial.end()
    facts = trial.facts()
    assert facts.credentials == ()
    (route,) = (entry for entry in facts.coverage if entry.route == "credential")
    assert route.witnesses == ()
    assert route.note is not None


def test_any_order_of_delivery_tells_the_same() -> None:
    """Also when what is guarded is told last."""
    trial = Transcript()
    trial.add(ev.CredentialGuarded, **guarded(canaries=1))
    trial.add(ev.CanaryPlaced, process=None, form="aws", path=HOME + b"/.aws/credentials")
    trial.begin()
    child = trial.spawn("cat")
    for path in (b"/etc/shadow", HOME + b"/.aws/credentials", b"/proc/1/environ", HOME + b"/.netrc"):
        read(trial, path, process=child)
    trial.add(ev.ConnectionBlocked, transport="tcp", ip="169.254.169.254", port=80)
    expected = finished(trial)
    assert len(expected) == 6
    shuffled = list(trial.events)
    for seed in range(20):
        random.Random(seed).shuffle(shuffled)  # noqa: S311 - an order, no secret
        assert trial.facts(events=shuffled).credentials == expected
    assert trial.facts(events=reversed(trial.events)).credentials == expected


def looked(trial: Transcript, *, decoys: bool) -> ev.CredentialLooked:
    """End the search of a trial's files before all were searched."""
    event = trial.add(ev.CredentialLooked, process=None, files=3, left_out=2, reason="it took 1 s", decoys=decoys)
    assert isinstance(event, ev.CredentialLooked)
    return event


def test_files_that_were_not_searched_are_a_gap_where_a_decoy_may_lie_in_them() -> None:
    """It costs scope and separation; a search for what only looks like a credential costs nothing."""
    for decoys in (True, False):
        trial = told(Transcript())
        trial.exit()
        trial.endpoint()
        trial.end()
        before = trial.facts()
        event = looked(trial, decoys=decoys)
        added = with_credentials(before, [event])
        found = [(gap.rule, sorted(gap.costs)) for gap in added.gaps]
        assert found == ([("unsearched-files", ["scope", "separation"])] if decoys else [])
        assert added.gaps == trial.facts().gaps


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"device": 65024, "inode": 77}, True),
        ({"device": 46, "inode": 77}, True),  # an overlay has a device of no driver, and the inode below
        ({"device": 2065, "inode": 77}, False),
        ({"device": 65024, "inode": 78}, False),
        ({"device": 65024, "inode": 77, "error": 13}, False),
    ],
)
def test_a_masked_file_is_known_by_its_inode(fields: dict[str, int], expected: bool) -> None:  # noqa: FBT001 - a case
    """A read by another name is one of the masked file; another file system's inode of that number is none."""
    trial = Transcript()
    links = {"linked": (HOME + b"/.ssh/id_rsa",), "linked_inodes": (77,), "linked_devices": (65024,)}
    trial.add(ev.CredentialGuarded, **guarded() | links)
    trial.begin()
    read(trial, b"/w/copy", **fields)
    read(trial, b"/proc/self/maps", device=5, inode=77)
    found = {(use.name, use.action, use.where) for use in finished(trial)}
    assert found == ({("~/.ssh/id_rsa", "read", "by the name /w/copy")} if expected else set())
