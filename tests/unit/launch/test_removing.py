"""Removing a tree: all of it, nothing beside it, and no complaint about what is not there."""

from __future__ import annotations

from pathlib import Path

from supervisor.launch.disk.removing import remove_tree


def test_a_tree_goes_and_what_its_symlinks_lead_to_stays(tmp_path: Path) -> None:
    """Directories, files and symlinks in it are gone; what they led to is untouched."""
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    kept.mkdir()
    (kept / "file").write_text("mine", encoding="utf-8")
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_text("", encoding="utf-8")
    (tree / "a" / "closed").mkdir(mode=0)
    (tree / "a" / "folder").symlink_to(kept)
    (tree / "file").symlink_to(kept / "file")
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "file").read_text(encoding="utf-8") == "mine"


def test_a_symlink_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """Whoever puts one there has nothing removed elsewhere."""
    (tmp_path / "kept" / "below").mkdir(parents=True)
    (tmp_path / "tree").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "tree")
    assert (tmp_path / "kept" / "below").is_dir()


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    """Cleaning twice is once."""
    remove_tree(tmp_path / "nothing")
