"""`supervise learn`: what a command did becomes the policy under which it is clean."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from scenario_lab import Lab, python

from policies.parse import parse_policy

pytestmark = pytest.mark.kernel("trials")

SCRIPT = """
import os, socket, tempfile
open("result.txt", "w").write("done")
os.makedirs("build", exist_ok=True)
for n in range(4):
    open(f"build/{n}", "w").write("x")
handle, path = tempfile.mkstemp(dir="scratch")
os.close(handle)
os.unlink(path)
for host, port in (("api.test", 443), ("db.test", 5432), ("203.0.113.9", 8080)):
    try:
        with socket.create_connection((host, port), 20) as end:
            end.sendall(b"secret question")
    except OSError:
        pass
try:
    socket.gethostbyname("only-asked.test")
except OSError:
    pass
print("the output of the command")
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab whose workspace has a directory."""
    base = tmp_path_factory.mktemp("learn")
    made = Lab(base / "home", base / "work", {"MY_API_TOKEN": "s3cret-value"})
    made.home.mkdir(mode=0o700)
    (made.work / "scratch").mkdir(parents=True)
    return made


@pytest.fixture(scope="module")
def learned(lab: Lab) -> tuple[str, bytes]:
    """What `learn` printed on both streams."""
    ended = lab.call("learn", "--", *python(SCRIPT))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode(), ended.stderr


def test_what_was_done_is_allowed_and_no_more(learned: tuple[str, bytes]) -> None:
    """Hosts by name and port, files one by one, directories for what is made, a pattern for what comes and goes."""
    policy = parse_policy(learned[0], place="learned")
    assert set(policy.network.allow) == {"api.test:443", "db.test:5432", "203.0.113.9:8080", "only-asked.test:443"}
    assert policy.network.default == "deny"
    assert set(policy.files.write or ()) == {"result.txt", "build", "scratch/tmp*"}


def test_it_says_what_it_saw_and_what_it_left_out(learned: tuple[str, bytes]) -> None:
    """Comments beside each line; credentials by name only."""
    assert '"api.test:443",  # 1 connection, 15 bytes sent' in learned[0]
    assert '"only-asked.test:443",  # looked up only' in learned[0]
    assert "MY_API_TOKEN" in learned[0]
    assert "s3cret-value" not in learned[0]


def test_only_the_policy_is_on_stdout(learned: tuple[str, bytes]) -> None:
    """So that it can be redirected into a file; the command's own output goes to stderr."""
    assert tomllib.loads(learned[0])["name"] == "learned"
    assert b"the output of the command" in learned[1]


def test_nothing_of_the_trial_is_left(lab: Lab, learned: tuple[str, bytes]) -> None:
    """Its writes are gone, also from the stage."""
    assert learned[0]
    assert [path.name for path in lab.work.iterdir()] == ["scratch"]
    assert b"discarded" in lab.call("diff", "last").stderr


def test_the_same_command_is_clean_under_what_was_learned(lab: Lab, learned: tuple[str, bytes], tmp_path: Path) -> None:
    """The round trip: nothing of it violates the policy that was printed."""
    policy = tmp_path / "learned.toml"
    policy.write_text(learned[0])
    ran = lab.run("-p", str(policy), "--commit", "never", "--", *python(SCRIPT))
    assert ran.report["scope"]["violations"] == []
    assert ran.scope == "clean"


GIT = "git -c user.name=x -c user.email=x@x.test"
COMMANDS = {
    "a first commit": (f"git init -q r && cd r && echo b > b && git add b && {GIT} commit -qm b", {"r"}),
    "a further commit": (f"cd kept && echo $$ > b && git add b && {GIT} commit -qm $$", None),
    "written aside and renamed": ("sed -i s/a/b/ a.txt", {"a.txt", "sed*"}),
    "a directory for a while": (
        "d=$(mktemp -d ./work.XXXXXX); mkdir $d/x; echo > $d/x/y; mv $d/x/y out; rm -r $d",
        {"out", "work.*/**"},
    ),
    "a directory moved": ("mv d e; echo > e/x", {"d", "e"}),
    "a directory removed": ("rm -r d", {"d"}),
    "a directory made anew": ("rm -r d; mkdir -m 700 d; echo > d/x", {"d"}),
    "the mode of a directory": ("chmod 711 d; echo > d/x", {"d"}),
    "an archive": ("tar cf d.tar d; mkdir u; tar xf d.tar -C u", {"d.tar", "u/d"}),
    "many results": ("for i in 1 2 3 4 5 6 7 8 9 10 11; do echo > f$i.txt; done; echo > README", {"README", "f*.txt"}),
    "compiled files": ("python3 -m compileall -fq py", {"py/__pycache__/m*.pyc*"}),
}


@pytest.fixture(scope="module")
def furnished(lab: Lab) -> Lab:
    """A lab whose workspace has a repository, compiled files and a directory; nothing is ever applied in it."""
    place = lab.work.parent / "commands"
    (place / "d").mkdir(parents=True)
    (place / "d" / "old").touch()
    (place / "a.txt").write_text("a\n")
    (place / "py").mkdir()
    for number in range(9):
        (place / "py" / f"m{number}.py").write_text("x = 1\n")
    words = f"python3 -m compileall -q py; git init -q kept; cd kept; echo > a; git add a; {GIT} commit -qm a"
    subprocess.run(["sh", "-c", words], cwd=place, check=True)
    return Lab(lab.home, place)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_ordinary_commands_write_is_learned_narrowly_and_is_clean_the_next_time(
    furnished: Lab, tmp_path: Path, name: str
) -> None:
    """Never all of the workspace's top; and names that are drawn, or that hold a digest, are others the next time."""
    words, expected = COMMANDS[name]
    ended = furnished.call("learn", "--", "sh", "-c", words)
    write = set(parse_policy(ended.stdout.decode(), place="learned").files.write or ())
    assert not {"*", "**"} & write
    assert expected is None or write == expected
    assert expected is not None or "kept/.git/objects/??/*" in write
    policy = tmp_path / "learned.toml"
    policy.write_bytes(ended.stdout)
    ran = furnished.run("-p", str(policy), "--commit", "never", "--", "sh", "-c", words)
    assert ran.report["scope"]["violations"] == []
    assert ran.scope == "clean"


def test_a_policy_that_was_given_is_added_to(lab: Lab, tmp_path: Path) -> None:
    """What it says is kept."""
    base = tmp_path / "base.toml"
    base.write_text('schema = 1\nname = "base"\n[claim]\noutcome = "result.txt"\n[network]\nallow = ["base.test"]\n')
    ended = lab.call("learn", "-p", str(base), "--", "sh", "-c", "echo x > result.txt")
    policy = parse_policy(ended.stdout.decode(), place="learned")
    assert policy.claim.outcome == "result.txt"
    assert policy.network.allow == ("base.test:443",)
    assert policy.files.write == ("result.txt",)


def test_a_command_that_does_not_exist_teaches_nothing(lab: Lab) -> None:
    """No policy is printed, and the exit code says why."""
    ended = lab.call("learn", "--", "/no/such/program")
    assert (ended.returncode, ended.stdout) == (127, b"")


def test_a_client_that_waits_for_an_answer_is_let_go(lab: Lab) -> None:
    """Nobody answers what is swallowed: once the client says no more its connection is closed, and it goes on."""
    script = (
        "import http.client\nconnection = http.client.HTTPConnection('api.test')\nconnection.request('GET', '/x')\n"
        "try: connection.getresponse()\nexcept http.client.RemoteDisconnected: print('went on')"
    )
    ended = lab.call("learn", "--", *python(script))
    assert b"went on" in ended.stderr
    assert parse_policy(ended.stdout.decode(), place="learned").network.allow == ("api.test:80",)
