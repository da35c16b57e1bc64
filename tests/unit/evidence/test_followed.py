"""Names that went through symlinks: where they led at that time, and when nobody knows."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcript import WORK, Transcript, absolute, ordinary, policy_for

from policies.types import FilesPolicy
from supervisor import events as ev
from supervisor.evidence.paths.files import FileFold
from supervisor.evidence.paths.followed import Followed

ATTRIBUTE = {"attribute": "mode"}


def symlink(trial: Transcript, name: str, text: str, **fields: object) -> None:
    """Make a symlink."""
    trial.add(ev.FileLinked, path=text.encode(), new_path=absolute(name), symbolic=True, **fields)


def changed(trial: Transcript) -> dict[str, list[bool]]:
    """Give what was changed by name: for each path whether its changes are verified."""
    return {
        history.path.decode(): [change.verified for change in history.changes]
        for history in trial.facts().files
        if history.path != b"out" and any(change.kind == "attributes" for change in history.changes)
    }


def test_a_symlink_of_before_is_followed() -> None:
    """The disk says where it led."""
    trial = ordinary()
    trial.beginning[absolute("link")] = b"real"
    trial.file(ev.FileChanged, "link/f", **ATTRIBUTE)
    trial.file(ev.FileChanged, "link", **ATTRIBUTE)
    assert changed(trial) == {"real/f": [True], "real": [True]}


def test_what_is_meant_itself_is_not_followed() -> None:
    """Of ``lchown`` and its like the name is the symlink's own."""
    trial = ordinary()
    trial.beginning[absolute("link")] = b"real"
    trial.file(ev.FileChanged, "link", follows=False, **ATTRIBUTE)
    assert changed(trial) == {"link": [True]}


def test_another_name_of_a_symlink_leads_where_it_leads() -> None:
    """A symlink can have several names as a file can, those of before and those of the trial."""
    trial = ordinary()
    trial.beginning[absolute("link")] = b"real"
    trial.file(ev.FileLinked, "link", new_path="d/second")
    symlink(trial, "own", "real")
    trial.file(ev.FileLinked, "own", new_path="third")
    trial.file(ev.FileLinked, "file", new_path="fourth")
    for name in ("d/second", "third", "fourth"):
        trial.file(ev.FileChanged, f"{name}/f", **ATTRIBUTE)
    assert changed(trial) == {"d/real/f": [True], "real/f": [True], "fourth/f": [True]}


@pytest.mark.parametrize("follows", [True, False])
def test_a_link_to_a_symlink_is_one_to_its_target_where_that_was_meant(*, follows: bool) -> None:
    """``AT_SYMLINK_FOLLOW``: the target has got another name, and what is changed by that is the target."""
    trial = ordinary()
    trial.beginning[absolute("link")] = b"real"
    trial.file(ev.FileLinked, "link", new_path="name", follows=follows)
    trial.file(ev.FileChanged, "name", follows=False, **ATTRIBUTE)
    assert changed(trial).keys() == {"name", "real" if follows else "link"}


def test_up_is_from_where_the_symlink_led() -> None:
    """``link/../f`` is beside the target, though by its letters it is beside the link."""
    trial = ordinary()
    trial.beginning[absolute("link")] = b"there/deep"
    trial.file(ev.FileChanged, "f", given=WORK + b"/link/../f", **ATTRIBUTE)
    assert changed(trial) == {"there/f": [True]}


def test_the_symlink_of_the_moment_counts() -> None:
    """Removed and made anew by the same process, it leads elsewhere: each name is followed as it was then."""
    trial = ordinary()
    symlink(trial, "link", "one")
    trial.file(ev.FileChanged, "link", **ATTRIBUTE)
    trial.delete("link")
    symlink(trial, "link", "two")
    trial.file(ev.FileChanged, "link", **ATTRIBUTE)
    assert changed(trial) == {"one": [True], "two": [True]}


@pytest.mark.parametrize("how", ["made anew", "renamed over", "before and after"])
def test_a_symlink_that_another_process_swapped_proves_nothing(how: str) -> None:
    """Who was on his way meanwhile may have followed either: in whatever order both are told."""
    trial = ordinary()
    other = trial.fork()
    if how == "before and after":
        trial.beginning[absolute("link")] = b"one"
    else:
        symlink(trial, "link", "one", process=other)
    if how == "made anew":
        trial.delete("link", process=other)
        symlink(trial, "link", "two", process=other)
    elif how == "renamed over":
        symlink(trial, "aside", "two", process=other)
        trial.rename("aside", "link", process=other)
    trial.file(ev.FileChanged, "link", **ATTRIBUTE)
    if how == "before and after":
        trial.delete("link", process=other)
        symlink(trial, "link", "two", process=other)
    assert list(changed(trial).values()) == [[False]]


def test_a_symlink_that_another_process_made_once_is_as_good_as_any() -> None:
    """It led to one place only."""
    trial = ordinary()
    symlink(trial, "link", "one", process=trial.fork())
    trial.file(ev.FileChanged, "link", **ATTRIBUTE)
    assert changed(trial) == {"one": [True]}


def test_a_symlink_whose_text_could_have_been_changed_leads_nowhere_for_certain() -> None:
    """Its text was read from memory too."""
    trial = ordinary()
    symlink(trial, "link", "one", verified=False)
    trial.file(ev.FileChanged, "link", **ATTRIBUTE)
    assert changed(trial) == {"one": [False]}


def test_an_attempt_is_told_by_where_it_would_have_led() -> None:
    """A refused open of a symlink that leads outside is an attempt outside."""
    trial = ordinary()
    trial.beginning[absolute("link")] = b"/etc/passwd"
    trial.file(ev.FileOpened, "link", reads=False, writes=True, error=13)
    policy = policy_for(files=FilesPolicy(write=("**",)))
    (history,) = (h for h in trial.facts(policy).files if h.attempts)
    assert history.path == b"/etc/passwd"


def test_opening_standard_output_again_is_no_attempt_elsewhere() -> None:
    """What could not be opened by a name of the box's own is told by that name."""
    trial = ordinary()
    trial.file(ev.FileOpened, "/dev/stdout", reads=False, writes=True, error=13)
    (history,) = (h for h in trial.facts().files if h.attempts)
    assert history.path == b"/dev/stdout"


def test_a_ring_of_symlinks_ends() -> None:
    """The kernel gives up after forty; so do we."""
    trial = ordinary()
    symlink(trial, "a", "b")
    symlink(trial, "b", "a")
    trial.file(ev.FileChanged, "a", error=40, **ATTRIBUTE)
    assert trial.facts()


class Elsewhere(Exception):  # noqa: N818 - no error
    """A name leads out of the playground."""


class Playground:
    """A directory in which things are made, moved and removed at random, each told as the witness would."""

    def __init__(self, top: Path, chance: Random) -> None:
        """Begin with nothing."""
        self.top, self.chance, self.trial = top, chance, Transcript()

    def wander(self, length: int) -> str:
        """Give a name that leads to something there is, through whatever lies on the way."""
        walked: list[str] = []
        for _ in range(length):
            here = self.top.joinpath(*walked)
            if not here.is_dir() or not here.resolve().is_relative_to(self.top):
                break
            names = [
                *sorted(path.name for path in here.iterdir()),
                *([".."] if walked and here.resolve() != self.top else []),
            ]
            if not names:
                break
            walked.append(self.chance.choice(names))
        return "/".join(walked)

    def fresh(self) -> str:
        """Give a name, mostly of something that is not there."""
        above = self.wander(self.chance.randrange(3))
        return f"{above}/{self.chance.choice('abc')}" if above else self.chance.choice("abc")

    def act(self) -> None:
        """Do one thing, if it can be done."""
        with suppress(OSError, RuntimeError, Elsewhere):
            kind = self.chance.choice(["mkdir", "mkdir", "link", "link", "rename", "rename", "swap", "remove", "touch"])
            getattr(self, f"_{kind}")()

    def told(self, name: str) -> dict[str, bytes]:
        """Give how the witness tells a name."""
        given = b"/" + name.encode()
        return {"path": os.path.normpath(given), "given": given if b"/.." in given else b""}

    def told_second(self, name: str) -> dict[str, bytes]:
        """Give how the witness tells the second name of a call."""
        return {f"new_{key}": value for key, value in self.told(name).items()}

    def _mkdir(self) -> None:
        name = self.fresh()
        self._real(name).mkdir()
        self.trial.add(ev.FileCreated, what=ev.Kind.DIRECTORY, **self.told(name))

    def _link(self) -> None:
        name, text = self.fresh(), self.chance.choice(["a", "b", "a/b", "../a", "..", ".", "/a", "/b/c", "../../b"])
        self._real(name).symlink_to(str(self.top) + text if text.startswith("/") else text)
        told = {f"new_{key}": value for key, value in self.told(name).items()}
        self.trial.add(ev.FileLinked, path=text.encode(), symbolic=True, **told)

    def _rename(self) -> None:
        old, new = self.wander(3), self.fresh()
        same = self._real(old) == self._real(new)
        self._real(old).rename(self._real(new))
        if not same:
            self.trial.add(ev.FileRenamed, **self.told(old), **self.told_second(new))

    def _swap(self) -> None:
        old, new = self.wander(2), self.wander(3)
        one, two = self._real(old), self._real(new)
        if one == two or one in two.parents or two in one.parents or ".." in (Path(old).name, Path(new).name):
            return
        one.lstat()
        two.rename(self.top / "aside")
        one.rename(two)
        (self.top / "aside").rename(one)
        self.trial.add(ev.FileRenamed, exchange=True, **self.told(old), **self.told_second(new))

    def _remove(self) -> None:
        name = self.wander(3)
        path = self._real(name)
        (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
        self.trial.add(ev.FileDeleted, **self.told(name))

    def _touch(self) -> None:
        name = self.fresh()
        os.close(os.open(self._real(name), os.O_CREAT | os.O_EXCL))
        real = b"/" + bytes(self._real(name).relative_to(self.top))
        self.trial.add(ev.FileOpened, path=real, inode=1, reads=True, writes=True, created=True)

    def _real(self, name: str) -> Path:
        path = self.top / name
        above = path.parent.resolve(strict=True)
        if not above.is_relative_to(self.top):
            raise Elsewhere
        return above / path.name

    def leads_to(self, name: str) -> Path | None:
        """Give what a name leads to, None for what is not there."""
        with suppress(OSError, RuntimeError):
            real = (self.top / name).resolve(strict=True)
            return real if real.is_relative_to(self.top) else None
        return None

    def beginning(self) -> dict[bytes, bytes]:
        """Give the symlinks and directories that are there now, and forget what was told."""
        self.trial = Transcript()
        found = {}
        for path in self.top.rglob("*"):
            if path.is_symlink():
                found[b"/" + bytes(path.relative_to(self.top))] = os.fsencode(
                    str(path.readlink()).replace(str(self.top), "")
                )
            elif path.is_dir():
                found[b"/" + bytes(path.relative_to(self.top))] = b""
        return found


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_names_lead_where_a_file_system_leads_them(seed: int) -> None:
    """Directories and symlinks are made, moved and removed at random: names are followed as the kernel does."""
    with tempfile.TemporaryDirectory() as root:
        play = Playground(Path(root).resolve(), Random(seed))  # noqa: S311 - a game
        for _ in range(10):
            play.act()
        beginning = play.beginning()
        for _ in range(12):
            play.act()
        asked = [name for name in (play.wander(4) for _ in range(9)) if name and play.leads_to(name)]
        targets = [(play.top / name).resolve() for name in asked]
        for name in asked:
            play.trial.add(ev.FileChanged, attribute="mode", **play.told(name))
        fold = FileFold()
        for event in play.trial.events:
            fold.handlers()[type(event)](event)
        Followed(fold, beginning.get)
        real = [fold.paths[path] for path in fold.rows.path[len(fold.rows) - len(asked) :]]
        assert real == [b"/" + bytes(target.relative_to(play.top)).removesuffix(b".") for target in targets]


def test_a_path_of_thousands_of_components_needs_no_deep_stack() -> None:
    """One letter each: as deep as a path can be told."""
    trial = ordinary()
    deep = "a/" * 2000 + "f"
    trial.file(ev.FileChanged, deep, **ATTRIBUTE)
    assert changed(trial) == {deep: [True]}
