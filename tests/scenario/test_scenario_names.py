"""Names that are not what they say: whatever a file outside the scope is called, it is told by its real name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from scenario_doors import PROGRAM
from scenario_lab import Lab, Ran, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

LINKED = "os.symlink('../secret/{name}', 'l')"
THERE_AND_BACK = "os.chmod({path}, 0o600); os.chmod({path}, 0o644)"


@dataclass(frozen=True, slots=True)
class Attack:
    """What is done in ``allowed`` that changes ``secret/<name>``, and puts it back; ``before``: links of before."""

    act: str
    symlink: str | None = None
    hard: bool = False
    what: str = "attributes"


def there_and_back(path: str) -> str:
    """Give a change of a file's mode that is put back."""
    return f"os.chmod({path}, 0o600); os.chmod({path}, 0o644)\n"


ATTACKS: Mapping[str, Attack] = {
    "symlink": Attack("os.symlink('../secret/symlink', 'l1')\n" + there_and_back("'l1'")),
    "symlink-of-before": Attack(there_and_back("'symlink-of-before'"), symlink="../secret/symlink-of-before"),
    "absolute-symlink": Attack("os.symlink(home + '/secret/absolute-symlink', 'l2')\n" + there_and_back("'l2'")),
    "two-symlinks": Attack(
        "os.symlink('../secret', 'l3'); os.symlink('l3/two-symlinks', 'l4')\n" + there_and_back("'l4'")
    ),
    "directory": Attack("os.symlink('../secret', 'l5')\n" + there_and_back("'l5/directory'")),
    "up": Attack("os.symlink('../secret/deep', 'l6')\n" + there_and_back("'l6/../up'")),
    "moved-symlink": Attack(
        "os.mkdir('m1'); os.symlink('../../secret/moved-symlink', 'm1/l'); os.rename('m1', 'm2')\n"
        + there_and_back("'m2/l'")
    ),
    "moved-directory-of-before": Attack(
        "os.rename('d-moved', 'm3')\n" + there_and_back("'m3/moved-directory-of-before'"),
        symlink="../../secret/moved-directory-of-before",
    ),
    "exchanged": Attack(
        "os.symlink('../secret/exchanged', 'l7'); new('x7'); call(316, -100, b'l7', -100, b'x7', 2)\n"
        + there_and_back("'x7'")
    ),
    "renamed-over": Attack(
        "os.symlink('nowhere', 'l8'); os.symlink('../secret/renamed-over', 'l9'); os.rename('l9', 'l8')\n"
        + there_and_back("'l8'")
    ),
    "descriptor": Attack("f = os.open('../secret/descriptor', os.O_PATH)\n" + there_and_back("f'/proc/self/fd/{f}'")),
    "device": Attack("f = os.open('../secret/device', os.O_PATH)\n" + there_and_back("f'/dev/fd/{f}'")),
    "attribute": Attack(
        "os.symlink('../secret/attribute', 'l10'); os.setxattr('l10', 'user.x', b'1'); os.removexattr('l10', 'user.x')"
    ),
    "hard-link": Attack(there_and_back("'hard-link'"), hard=True),
    "hard-link-written": Attack(
        "rewrite('hard-link-written', b'C'); rewrite('hard-link-written', b'c')", hard=True, what="modified"
    ),
    "hard-link-mapped": Attack("mmap.mmap(os.open('hard-link-mapped', RW), 0)", hard=True, what="mapped"),
    "made": Attack(
        "os.symlink('../secret', 'l11'); os.mkdir('l11/made-1'); os.rmdir('l11/made-1')", what="created, deleted"
    ),
    "node": Attack(
        "os.symlink('../secret', 'l12'); os.mkfifo('l12/node-1'); os.unlink('l12/node-1')", what="created, deleted"
    ),
    "linked": Attack("os.symlink('../secret', 'l13'); os.link('l13/linked', 'h13'); os.unlink('h13')", what="linked"),
    "away": Attack(
        "os.symlink('../secret', 'l14'); os.rename('l14/away', 'a14'); os.rename('a14', 'l14/away')", what="renamed"
    ),
}


@pytest.fixture(scope="module", params=["--stage", "--direct"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One trial that changes files outside its scope under other names, and puts them back."""
    base = tmp_path_factory.mktemp("names")
    lab = Lab(base / "home", base / "work")
    lab.home.mkdir(mode=0o700)
    for directory in ("allowed/d-moved", "secret/deep"):
        (lab.work / directory).mkdir(parents=True)
    for name, attack in ATTACKS.items():
        secret = lab.work / "secret" / name
        secret.write_text("content")
        secret.chmod(0o644)
        other = lab.work / "allowed" / ("d-moved" if "d-moved" in attack.act else "") / name
        if attack.hard:
            other.hardlink_to(secret)
        elif attack.symlink:
            other.symlink_to(attack.symlink)
    acts = {name: f"os.chdir('../allowed')\n{attack.act}" for name, attack in ATTACKS.items()}
    (base / "stdin").write_text(json.dumps(acts))
    program = PROGRAM.replace('os.chdir(home + "/" + name)', 'os.chdir(home + "/secret")')
    with (base / "stdin").open("rb") as given:
        ended = lab.run(request.param, "--write", "allowed/**", "--", *python(program), stdin=given)
    assert ended.code == 0, ended.err
    assert {name: answer["error"] for name, answer in json.loads(ended.out).items() if answer["error"]} == {}
    return ended


@pytest.mark.parametrize("name", ATTACKS)
def test_a_file_outside_the_scope_is_told_by_its_own_name(ran: Ran, name: str) -> None:
    """The change is a violation, whatever name the call was given, and though it was put back."""
    told = [v["text"] for v in ran.report["scope"]["violations"] if v["text"].startswith(f"secret/{name}")]
    assert [text for text in told if f" was {ATTACKS[name].what} outside the declared scope" in text]


def test_the_log_explains_all_of_it(ran: Ran) -> None:
    """No difference is left over, written in place or staged."""
    (route,) = (entry for entry in ran.report["coverage"] if entry["route"] == "file")
    assert {gap["rule"] for gap in route["gaps"]} <= {"unwatched-writers"}


def test_a_symlink_itself_is_not_its_target(lab: Lab) -> None:
    """Whatever is done to a symlink that leads outside is done to the symlink: a trial that unpacks one is clean."""
    (lab.work / "secret").write_text("content")
    (lab.work / "allowed").mkdir()
    act = """
import os
os.symlink('../secret', 'allowed/l')
os.utime('allowed/l', (1, 1), follow_symlinks=False)
os.chown('allowed/l', os.getuid(), os.getgid(), follow_symlinks=False)
os.rename('allowed/l', 'allowed/m')
os.unlink('allowed/m')
"""
    ended = lab.run("--write", "allowed/**", "--", *python(act))
    assert ended.code == 0, ended.err
    assert ended.scope == "clean"
