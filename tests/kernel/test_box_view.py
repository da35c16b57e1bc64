"""What a trial sees of the host's files, and where its writes go."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_builder import PYTHON, BoxLab, box_lab

from supervisor.errors import LaunchError

pytestmark = pytest.mark.kernel("box")


@pytest.fixture
def lab() -> Iterator[BoxLab]:
    """Give a lab."""
    with box_lab() as made:
        yield made


def in_private_mounts(lab: BoxLab, setup: list[tuple[str, ...]], *argv: str, **changes: str) -> str:
    """Run a command in a box that is made where some more mounts exist, and give what it printed."""
    source = """
import sys, subprocess, json, os
from dataclasses import replace
from box_builder import BoxLab
from supervisor.launch import namespaces
namespaces.enter_mounts()
base, setup, argv, changes = json.loads(sys.argv[1])
for command in setup:
    subprocess.run(command, check=True)
lab = BoxLab.__new__(BoxLab)
from pathlib import Path
lab.base = Path(base)
lab.state = lab.base / "state"
lab.run_dir = lab.state / "runs/r1"
lab.workspace = lab.base / "work"
outcome = lab.run(*argv, view=lab.view(**{k: os.fsencode(v) for k, v in changes.items()}))
sys.stdout.buffer.write(outcome.out); sys.stderr.buffer.write(outcome.err)
"""
    import json  # noqa: PLC0415 - beside its use

    words = json.dumps([str(lab.base), setup, argv, changes])
    done = subprocess.run(
        [PYTHON, "-c", source, words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), *sys.path))},
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.stdout


def test_writes_to_the_workspace_are_staged(lab: BoxLab) -> None:
    """The host's file keeps its content; the stage has the new one, with the root's owner and mode."""
    (lab.workspace / "kept").write_text("old")
    lab.workspace.chmod(0o2750)
    os.setxattr(lab.workspace, "user.mark", b"x")
    lab.run("sh", "-c", 'echo new > kept; mkdir d; mv d e; test "$(stat -c %a .)" = 2750').text  # noqa: B018 - asserts no error
    assert (lab.workspace / "kept").read_text() == "old"
    assert (lab.upper / "kept").read_text() == "new\n"
    assert (lab.upper / "e").is_dir()
    assert os.getxattr(lab.upper, "user.mark") == b"x"


def test_writes_in_place_reach_the_host(lab: BoxLab) -> None:
    """In direct mode the workspace is the host's."""
    assert lab.run("sh", "-c", "echo new > made", view=lab.view(staged=False)).code == 0
    assert (lab.workspace / "made").read_text() == "new\n"


def test_writes_elsewhere_work_and_are_discarded(lab: BoxLab) -> None:
    """A new file in /var and a changed one in /etc exist inside only; the run keeps them apart."""
    text = lab.run(
        "sh", "-c", f"echo x > /var/lib/boxtest-{os.getpid()}; echo y >> /etc/passwd; tail -n1 /etc/passwd"
    ).text
    assert text == "y\n"
    assert not Path(f"/var/lib/boxtest-{os.getpid()}").exists()
    assert not Path("/etc/passwd").read_text().endswith("y\n")
    assert (lab.run_dir / f"outside/0/upper/var/lib/boxtest-{os.getpid()}").read_text() == "x\n"


def test_private_places_are_empty_and_writable(lab: BoxLab) -> None:
    """/tmp, /run and /dev/shm are the trial's own, with nothing of the host in them."""
    with tempfile.NamedTemporaryFile(dir="/tmp"), tempfile.NamedTemporaryFile(dir="/dev/shm"):
        text = lab.run(
            "sh", "-c", "ls -A /tmp /dev/shm; ls /run; echo x > /tmp/x; echo x > /dev/shm/x; echo x >/run/x"
        ).text
    assert text == "/dev/shm:\n\n/tmp:\nlock\nsupervise\nuser\n"


@pytest.mark.parametrize("name", ["a b", "a:b,c\\d", "a,upperdir=x", "ü\n'\"", "-x", "\udcff", "$HOME", "\\040"])
def test_odd_workspace_names(lab: BoxLab, name: str) -> None:
    """No character of a path means anything on the way to the mount."""
    workspace = lab.base / name
    workspace.mkdir()
    (workspace / "there").write_text("x")
    outcome = lab.run(
        PYTHON, "-c", "import os; print(os.listdir(), os.getcwdb()); open('made','w')",
        view=lab.view(workspace=os.fsencode(workspace)),
    )  # fmt: skip
    assert outcome.text == f"['there'] {os.fsencode(workspace)}\n"
    assert (lab.upper / "made").exists()


@pytest.mark.parametrize("place", ["/tmp", "/run", "/dev/shm", "/"])
def test_workspaces_in_private_places_and_at_the_top(lab: BoxLab, place: str) -> None:
    """A workspace appears at its path wherever it is, and so do its parents with their modes."""
    with tempfile.TemporaryDirectory(dir=place, prefix="boxtest") as outer:
        Path(outer).chmod(0o751)
        workspace = Path(outer, "in", "work")
        workspace.mkdir(parents=True)
        (workspace / "there").write_text("x")
        view = lab.view(workspace=bytes(workspace))
        outcome = lab.run("sh", "-c", "pwd; ls; stat -c %a ../..; echo y > made", view=view)
        assert outcome.text == f"{workspace}\nthere\n751\n"
        assert (lab.upper / "made").exists()
        assert not (workspace / "made").exists()


def test_a_workspace_named_by_a_link_in_a_private_place(lab: BoxLab) -> None:
    """The link by which the workspace was named exists inside."""
    with tempfile.TemporaryDirectory(dir="/tmp") as outer:
        link = Path(outer, "link")
        link.symlink_to(lab.workspace)
        text = lab.run("sh", "-c", f"cd {link} && pwd -P", view=lab.view(workspace=bytes(link))).text
    assert text == f"{lab.workspace}\n"


def test_a_workspace_on_another_filesystem_and_nested_mounts(lab: BoxLab) -> None:
    """A workspace on a tmpfs works; a mount inside it is shown and its writes are discarded."""
    text = in_private_mounts(
        lab,
        [
            ("mount", "-t", "tmpfs", "tmpfs", str(lab.workspace)),
            ("mkdir", str(lab.workspace / "inner")),
            ("mount", "-t", "tmpfs", "tmpfs", str(lab.workspace / "inner")),
            ("touch", str(lab.workspace / "inner" / "there")),
        ],
        "sh", "-c", "echo x > made; ls inner; echo x > inner/made; ls inner",
    )  # fmt: skip
    assert text == "there\nmade\nthere\n"
    assert (lab.upper / "made").exists()
    assert not (lab.upper / "inner").exists()


def test_the_directory_of_runs_is_hidden_under_every_path(lab: BoxLab) -> None:
    """Neither its own path, nor a bind of a parent, nor a bind of a part of it shows a run."""
    binds = [lab.base / name for name in ("whole", "parent", "part")]
    setup: list[tuple[str, ...]] = [("mkdir", *map(str, binds))]
    for source, bind in zip((lab.state, lab.base.parent, lab.run_dir), binds, strict=True):
        setup.append(("mount", "--bind", str(source), str(bind)))
    (lab.run_dir / "boxtest-secret").write_text("secret")
    look = f"find {lab.base} /var/tmp /mnt -name boxtest-secret"
    text = in_private_mounts(
        lab, setup, "sh", "-c",
        f"{{ cd {lab.base}; {look}; chmod 777 state; ls state whole;"
        f" cat */runs/r1/boxtest-secret; {look}; }} 2>/dev/null",
    )  # fmt: skip
    assert text == ""


def test_runs_inside_the_workspace_are_hidden(lab: BoxLab) -> None:
    """A state directory inside the workspace is masked there too, and can be neither read nor removed."""
    text = lab.run(
        "sh", "-c", "ls; cat state/runs/r1/manifest.json 2>/dev/null; rm -rf state 2>/dev/null; ls -d state; true",
        view=lab.view(workspace=bytes(lab.base)),
    ).text  # fmt: skip
    assert text == "state\nwork\nstate\n"


def test_mounts_do_not_tell_where_the_run_is(lab: BoxLab) -> None:
    """The trial's own mount table names neither the directory of runs nor an upper directory."""
    text = lab.run("cat", "/proc/self/mountinfo").text
    assert str(lab.state) not in text.replace(f" {lab.state} ", " ")
    assert "runs" not in text


def test_credentials_are_masked(lab: BoxLab) -> None:
    """A file is unreadable, a directory empty, also through a link; what does not exist is no failure."""
    (lab.base / "key").write_text("secret")
    (lab.base / "dir").mkdir()
    (lab.base / "dir" / "key").write_text("secret")
    (lab.workspace / ".env").write_text("secret")
    (lab.base / "link").symlink_to("key")
    paths = [lab.base / "link", lab.base / "dir", lab.workspace / ".env", lab.base / "missing"]
    outcome = lab.run(
        "sh", "-c", "cat ../key .env ../link; ls -A ../dir; chmod 777 .env; cat .env; echo x > ../dir/new",
        view=lab.view(masks=tuple(map(bytes, paths))),
    )  # fmt: skip
    assert b"secret" not in outcome.out
    assert outcome.out == b""
    assert outcome.err.count(b"Permission denied") == 4
    assert outcome.err.count(b"Read-only file system") == 2


def test_names_are_the_boxs_own(lab: BoxLab) -> None:
    """Resolver, hosts and host name are ours, and are writable like the host's."""
    text = lab.run("sh", "-c", "cat /etc/resolv.conf; hostname; grep trial /etc/hosts; echo x >> /etc/hosts").text
    assert text == "nameserver 192.0.2.53\ntrial\n127.0.1.1 trial\n"


def test_a_resolver_file_that_is_a_link_into_run(lab: BoxLab) -> None:
    """/etc/resolv.conf may be a link into a place that is private in the box."""
    etc = lab.base / "etc"
    text = in_private_mounts(
        lab,
        [
            ("cp", "-a", "/etc", str(etc)),
            ("ln", "-sf", "../run/systemd/resolve/stub-resolv.conf", str(etc / "resolv.conf")),
            ("mount", "--bind", str(etc), "/etc"),
        ],
        "cat", "/etc/resolv.conf",
    )  # fmt: skip
    assert text == "nameserver 192.0.2.53\n"


def test_kernel_filesystems_of_the_host_are_not_shown(lab: BoxLab) -> None:
    """No cgroup, sysfs or bpf filesystem is in the trial's mount table, wherever the host has one."""
    text = in_private_mounts(
        lab,
        [("mkdir", str(lab.base / "cg")), ("mount", "-t", "cgroup2", "none", str(lab.base / "cg"))],
        "sh", "-c", f"ls {lab.base}/cg; grep -cE ' - (cgroup2?|sysfs|bpf|tracefs) ' /proc/self/mountinfo; true",
    )  # fmt: skip
    assert text == "0\n"


@pytest.mark.parametrize("workspace", ["/proc", "/sys/kernel", "/tmp", "/dev", "/no-such-directory"])
def test_impossible_workspaces_are_refused_by_name(lab: BoxLab, workspace: str) -> None:
    """A workspace that cannot be shown is an error with its path, before anything is made."""
    with pytest.raises(LaunchError) as caught:
        lab.run("true", view=lab.view(workspace=workspace.encode()))
    assert caught.value.place == workspace
    assert caught.value.step == "plan view"


def test_a_workspace_among_the_runs_is_refused(lab: BoxLab) -> None:
    """The directory of runs can be no workspace."""
    with pytest.raises(LaunchError, match="directory of our runs"):
        lab.run("true", view=lab.view(workspace=bytes(lab.run_dir / "log")))


def test_nothing_is_mounted_on_the_host(lab: BoxLab) -> None:
    """The view exists in the trial's mount namespace only."""
    before = Path("/proc/self/mountinfo").read_text()
    with lab.hold(lab.spec("true")):
        assert Path("/proc/self/mountinfo").read_text() == before
    assert list((lab.run_dir / "box").iterdir()) == []


def test_the_whole_host_as_the_workspace(lab: BoxLab) -> None:
    """With / as the workspace everything is staged, and the runs are still hidden."""
    outcome = lab.run(
        "sh", "-c", f"echo x > /boxtest-made; ls {lab.state} 2>/dev/null; ls /tmp", view=lab.view(workspace=b"/")
    )
    assert outcome.text == ""
    assert (lab.upper / "boxtest-made").exists()
    assert not Path("/boxtest-made").exists()


def test_a_stage_that_cannot_hold_an_overlay_is_an_error_with_a_hint(lab: BoxLab) -> None:
    """An overlay cannot be the upper layer of another: the error names the step and the place, and says what to do."""
    with pytest.raises(LaunchError) as caught:
        lab.run("true", view=lab.view(stage=b"/proc/self"))
    assert caught.value.step == "mount overlay"
    assert "SUPERVISE_HOME" in (caught.value.hint or "")
    assert (caught.value.place or "").startswith("/proc/self")


def stacked_overlays(lab: BoxLab, at: Path) -> list[tuple[str, ...]]:
    """Give commands that mount as deep a stack of overlays as the kernel takes, so that ours cannot go on top."""
    layers = lab.base / "layers"
    options = "lowerdir={lower},upperdir={layers}/u{n},workdir={layers}/w{n}"
    return [
        ("mkdir", "-p", *(f"{layers}/{name}" for name in ("l0", "m0", "u0", "w0", "u1", "w1")), str(at)),
        ("mount", "-t", "tmpfs", "none", f"{layers}/l0"),
        ("touch", f"{layers}/l0/there"),
        ("mount", "-t", "overlay", "-o", options.format(lower=f"{layers}/l0", layers=layers, n=0), "o", f"{layers}/m0"),
        ("mount", "-t", "overlay", "-o", options.format(lower=f"{layers}/m0", layers=layers, n=1), "o", str(at)),
    ]


def test_what_cannot_be_part_of_an_overlay_is_shown_read_only(lab: BoxLab) -> None:
    """A filesystem on which no overlay can be put is visible, and writes to it are refused."""
    deep = lab.base / "deep"
    text = in_private_mounts(
        lab, stacked_overlays(lab, deep), "sh", "-c", f"ls {deep}; touch {deep}/new 2>/dev/null || echo refused"
    )
    assert text == "there\nrefused\n"


def test_a_workspace_that_cannot_be_part_of_an_overlay_works_in_place_only(lab: BoxLab) -> None:
    """There the staged mode fails by name before anything runs."""
    with pytest.raises(AssertionError, match=r"LaunchError: .*overlay .*/work, staged"):
        in_private_mounts(lab, stacked_overlays(lab, lab.workspace), "touch", "made")
