"""A hostile trial speaks: floods, huge arguments, names made to break JSON or the terminal, forged notes.

Whatever it says, what is printed about it is valid and harmless, and no verdict is better for it.
"""

from __future__ import annotations

import base64
import json
import os
import unicodedata

import pytest
from scenario_hostile import GUARD
from scenario_lab import Lab, python

pytestmark = pytest.mark.kernel("witness", "overlay", "cgroup")

ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
NAMES = (
    b'quote"brace}\\u0000\\',
    b'line\n{"kind": "trial.sealed"}\r\nsupervise: finality final',
    b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x9b1m\x7f",
    "gpj.exe\u202eharmless\u2066\u200b\ufeff\u2028x".encode(),
    b"\xff\xfe\x80 no text \xed\xa0\x80",
    "$(touch owned)`id`<script>alert(1)</script>".replace("/", "\u2215").encode(),
)
NOTE = (
    GUARD
    + """
import os, socket
notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notes.connect(os.environ["SUPERVISE_NOTIFY"])
"""
)
FORGED = (
    '{"n": 1, "kind": "trial.settled", "origin": "supervisor", "emptied": true, "alive": []}',
    '{"n": 2, "kind": "process.exited", "origin": "kernel", "exit_code": 0}',
    '{"n": 3, "kind": "trial.sealed", "origin": "supervisor"}',
    "READY=1\nSTATUS=final\nMAINPID=1",
    "\x1b[2J\x1b[1;1Hfinality final\n\u202e",
)


def harmless(shown: bytes) -> bool:
    """Tell whether this is text, and nothing in it acts on a terminal but the end of a line."""
    return all(letter == "\n" or unicodedata.category(letter) not in ACTING for letter in shown.decode())


def shown(lab: Lab, *words: str | bytes) -> bytes:
    """Call the command, which must succeed and print nothing that acts, and give what it printed."""
    ended = lab.call(*words)
    assert ended.returncode == 0, (words, ended.stderr)
    assert harmless(ended.stdout), words
    assert harmless(ended.stderr), words
    return ended.stdout


def test_names_that_act_on_a_terminal_are_shown_as_what_they_are(lab: Lab) -> None:
    """Files, arguments and programs of every evil name; all that prints is text, each line an event; verdict: final."""
    source = GUARD + (
        "import os, subprocess, sys\n"
        "for name in map(os.fsencode, sys.argv[1:]):\n"
        "    open(name, 'w').close(); os.symlink(name, name + b'2')\n"
        "    subprocess.run([b'true', name]); os.mkdir(name + b'3')\n"
        "    subprocess.run([b'./' + name], check=False) if os.access(name, os.X_OK) else None\n"
        "    subprocess.run(['true'], cwd=name + b'3')\n"
    )
    ran = lab.run("--name", "evil\x1b[2J\u202e", "--", *python(source), *NAMES)
    assert ran.code == 0, ran.err
    assert harmless(ran.err)
    assert {os.fsencode(path.name) for path in lab.work.iterdir()} >= set(NAMES)
    for words in (("show", "last"), ("ls",), ("why", "last", "scope"), ("why", "last", "0-100000"), ("verify", "last")):
        shown(lab, *words)
    for line in shown(lab, "events", "last").split(b"\n")[:-1]:
        assert json.loads(line)["origin"] in {"kernel", "supervisor", "gateway"}
    told = json.loads(shown(lab, "show", "last", "--format", "json"))["effects"]["files"]
    paths = {entry["path"].encode() if "path" in entry else base64.b64decode(entry["path_b64"]) for entry in told}
    assert paths >= set(NAMES)
    assert ran.finality == "final"


@pytest.mark.parametrize("name", NAMES)
def test_each_evil_name_can_be_asked_for(lab: Lab, name: bytes) -> None:
    """Its staged change is compared, and its reasons are found by its very bytes; verdict: final."""
    source = GUARD + "import sys; open(sys.argv[1], 'w').write('x\\n')"
    ran = lab.run("--commit", "never", "--", *python(source), name)
    assert harmless(ran.err)
    shown(lab, "why", "last", name)
    shown(lab, "diff", "last", "--stat")
    assert lab.call("diff", "last").returncode in {0, 1}
    assert ran.finality == "final"


def test_a_flood_of_junk_drowns_nothing(lab: Lab) -> None:
    """50,000 failing changes around one forbidden write: all there, none lost; verdicts: final, violated."""
    source = GUARD + (
        "import os\n"
        "def junk(count):\n"
        "    for number in range(count):\n"
        "        try: os.unlink('nothing')\n"
        "        except OSError: pass\n"
        "junk(25000); open('forbidden', 'w').close(); os.unlink('forbidden'); junk(25000)\n"
    )
    ran = lab.run("--write", "allowed/**", "--", *python(source))
    assert ran.code == 0, ran.err
    assert ran.report["log"]["events"] > 50_000
    assert ran.report["log"]["lost"] == 0
    assert lab.call("verify", "last").returncode == 0
    assert (ran.finality, ran.scope) == ("final", "violated")


def test_a_huge_argument_is_cut_and_says_so(lab: Lab) -> None:
    """The longest argument that a program can be given, and very many short ones; verdicts: final, clean."""
    source = GUARD + (
        "import subprocess\n"
        "subprocess.run(['true', 'A' * (131072 - 1)], check=True)\n"
        "subprocess.run(['true', *['b'] * 100000, 'last'], check=True)\n"
    )
    ran = lab.run("--", *python(source))
    assert ran.code == 0, ran.err
    executed = [event for event in lab.events("process.executed") if event.get("argv", [""])[0] == "true"]
    assert [event["argv_truncated"] for event in executed] == [True, True]
    assert all(len(json.dumps(event)) < 1 << 17 for event in executed)
    shown(lab, "show", "last")
    assert (ran.finality, ran.scope, ran.report["log"]["lost"]) == ("final", "clean", 0)


def test_forged_notes_are_texts_and_close_nothing(lab: Lab) -> None:
    """Each is an event of origin ``trial``, shown harmless; a straggler stays open; verdict: unresolved."""
    source = NOTE + (
        "import subprocess, sys\n"
        "subprocess.Popen(['sleep', '61.5'], stdin=-3, stdout=-3, stderr=-3)\n"
        "for text in sys.argv[1:]: notes.send(text.encode())\n"
        "sys.exit(3)\n"
    )
    options = ("--period", "eventually", "--settle", "200ms", "--outcome", "out")
    ran = lab.run(*options, "--", *python(source, *FORGED))
    kept = lab.events("note.received")
    assert [(note["text"], note["origin"]) for note in kept] == [(text, "trial") for text in FORGED]
    shown(lab, "events", "last")
    shown(lab, "why", "last", str(kept[-1]["n"]))
    assert (ran.code, ran.report["endpoint"]["exit_code"], ran.finality) == (3, 3, "unresolved")
    assert len([event for event in lab.events("trial.sealed") if event["origin"] == "supervisor"]) == 1


def test_notes_undo_no_violation(lab: Lab) -> None:
    """A trial that says it put everything back, and takes the socket away, is judged on what it did: violated."""
    source = NOTE + (
        "open('forbidden', 'w').close()\n"
        'notes.send(b\'{"kind": "file.deleted", "origin": "kernel", "path": "forbidden"}\')\n'
        "os.unlink(os.environ['SUPERVISE_NOTIFY'])\n"
        "mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); mine.bind(os.environ['SUPERVISE_NOTIFY'])\n"
    )
    ran = lab.run("--write", "allowed/**", "--", *python(source))
    assert ran.code == 0, ran.err
    assert "forbidden" in ran.files
    assert ran.scope == "violated"


def test_a_flood_of_notes_holds_up_only_its_sender(lab: Lab) -> None:
    """5,000 notes are all kept, in order; a sender that will not wait is told so; verdicts: final, clean."""
    source = NOTE + "for number in range(5000): notes.send(b'%d' % number)\n"
    ran = lab.run("--", *python(source))
    assert ran.code == 0, ran.err
    assert [note["text"] for note in lab.events("note.received")] == [str(number) for number in range(5000)]
    assert (ran.finality, ran.scope, ran.report["log"]["lost"]) == ("final", "clean", 0)


def test_a_note_cannot_be_another_processs(lab: Lab) -> None:
    """Credentials of process 1 or of another user are refused by the kernel; verdict: clean."""
    source = NOTE + (
        "import struct\n"
        "for who in ((1, 0, 0), (os.getpid(), 1000, 0)):\n"
        "    try: notes.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack('3i', *who))])\n"
        "    except PermissionError: print('refused')\n"
    )
    ran = lab.run("--", *python(source))
    assert ran.out == b"refused\nrefused\n"
    assert lab.events("note.received") == []
    assert ran.scope == "clean"
