"""A tree that cannot be left, and files that are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.launch.disk.durable import write_whole
from supervisor.launch.disk.observe import Observer
from supervisor.launch.disk.tree import Tree


def test_no_symlink_and_no_dots_lead_out_of_a_tree(tmp_path: Path) -> None:
    """A symlink is no directory, whatever it points to, and `..` is no name."""
    (tmp_path / "top").mkdir()
    (tmp_path / "secret").write_text("x", encoding="ascii")
    (tmp_path / "top/out").symlink_to(tmp_path)
    with Tree(tmp_path / "top") as tree:
        assert tree.lstat(b"out/secret") is None
        assert not tree.is_directory(b"out")
        with pytest.raises(NotADirectoryError), tree.directory(b"out"):
            pass
        with pytest.raises(OSError, match="Invalid"), tree.directory(b"../top"):
            pass


def test_a_tree_has_no_limit_of_depth_and_few_descriptors(tmp_path: Path) -> None:
    """A path of 120 long components is entered, listed and left with a bounded number of open files."""
    name = b"n" * 100
    path = b""
    with Tree(tmp_path) as tree:
        for _ in range(120):
            with tree.directory(path) as directory:
                os.mkdir(name, dir_fd=directory)
            path = path + b"/" + name if path else name
        assert tree.is_directory(path)
        assert tree.names(path) == []
        assert len(list(tree.below(b""))) == 120
        assert len(list(Path("/proc/self/fd").iterdir())) < 120
        for depth in range(120, 0, -1):
            with tree.parent(b"/".join([name] * depth)) as (directory, last):
                os.rmdir(last, dir_fd=directory)


def test_a_whole_file_replaces_another_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """After writing there is the new content, with its mode, and no temporary file."""
    for content in (b"one", b"two"):
        write_whole(tmp_path / "f", content)
        assert (tmp_path / "f").read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_a_state_says_what_cannot_be_read_and_reads_nothing_but_files(tmp_path: Path) -> None:
    """A fifo is not opened (that would hang), a too large file is a problem, a missing one is None."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    observer = Observer()
    with Tree(tmp_path) as tree:
        fifo, link, huge = (observer.state(tree, name) for name in (b"fifo", b"link", b"huge"))
        assert observer.state(tree, b"missing") is None
    assert fifo is not None
    assert fifo.digest is None
    assert fifo.problem is None
    assert link is not None
    assert link.size_bytes == len("/etc/passwd")
    assert huge is not None
    assert huge.problem is not None
    assert "is not read" in huge.problem


def test_a_directory_that_is_kept_open_is_listed_as_it_is_now(tmp_path: Path) -> None:
    """Also where the file system remembers what was there when it was opened."""
    (tmp_path / "d").mkdir()
    with Tree(tmp_path) as tree:
        assert tree.names(b"d") == []
        for number in range(3):
            (tmp_path / "d" / str(number)).mkdir()
            (tmp_path / str(number)).touch()
        assert tree.names(b"d") == tree.directory_names(b"d") == [b"0", b"1", b"2"]
        assert tree.names(b"") == [b"0", b"1", b"2", b"d"]
        assert list(tree.paths_below(b"d")) == [b"d/0", b"d/1", b"d/2"]


def test_a_root_that_may_be_gone_is_empty_then(tmp_path: Path) -> None:
    """Nothing is found in it, and nothing can be put into it; where it must be there, that is an error."""
    for gone in (tmp_path / "nothing", tmp_path / "file"):
        (tmp_path / "file").touch()
        with Tree(gone, may_be_gone=True) as tree:
            assert tree.names(b"") == []
            assert tree.lstat(b"x") is None
            with tree.directory(b"") as root, pytest.raises(FileNotFoundError):
                os.mkdir("x", dir_fd=root)
        with pytest.raises(OSError, match=r"No such file|Not a directory"):
            Tree(gone)
