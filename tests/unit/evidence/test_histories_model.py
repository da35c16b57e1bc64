"""What becomes of files that are made, changed, moved and removed, held against a plain model of names and things."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from transcript import Transcript, state

from supervisor import events as ev
from supervisor.evidence.file_facts import FileHistory, FileState

DIRECTORY = state(kind=ev.Kind.DIRECTORY)
BEFORE = ("a", "b", "d", "d/x", "d/y", "d/in", "d/in/x", "e", "e/x")
FOLDERS = frozenset({"d", "d/in", "e"})
NAMES = (*BEFORE, "f", "f/x", "f/in", "f/in/x", "e/y", "e/in", "e/in/x", "c")


class Model:
    """A tree in memory: each name has a thing and its content. What was there before is called as its first name."""

    def __init__(self) -> None:
        """Begin as a trial does."""
        self.things = {name: name for name in BEFORE}
        self.content = {name: "" if name in FOLDERS else f"of {name}" for name in BEFORE}
        self.folders = set(FOLDERS)
        self.made = 0
        self.seen = set(BEFORE)
        self.acted: set[str] = set()

    def states(self) -> dict[str, FileState]:
        """Give what is at each name."""
        return {name: self.state(thing) for name, thing in self.things.items()}

    def state(self, thing: str) -> FileState:
        """Give what a thing looks like."""
        return DIRECTORY if thing in self.folders else state(self.content[thing])

    def below(self, name: str) -> list[str]:
        """Give the names in a directory, and in those in it."""
        return [inner for inner in self.things if inner.startswith(name + "/")]

    def free(self, name: str) -> bool:
        """Tell whether something can be made at a name."""
        above = name.rpartition("/")[0]
        return name not in self.things and (not above or self.things.get(above) in self.folders)

    def make(self, name: str, *, folder: bool) -> None:
        """Make something; a file's content is that of what was there at first, if anything was."""
        self.made += 1
        thing = f"new {self.made}"
        self.things[name] = thing
        self.seen.add(name)
        self.content[thing] = f"of {name}"
        if folder:
            self.folders.add(thing)

    def can_move(self, old: str, new: str) -> bool:
        """Tell whether rename(2) would do it."""
        if old not in self.things or new == old or new.startswith(old + "/"):
            return False
        if self.free(new):
            return True
        folders = self.things[old] in self.folders, self.things.get(new) in self.folders
        return new in self.things and folders[0] == folders[1] and not self.below(new)

    def move(self, old: str, new: str) -> None:
        """Rename, over what is there."""
        for name in [old, *self.below(old)]:
            self.things[new + name[len(old) :]] = self.things.pop(name)
            self.seen.add(new + name[len(old) :])


def act(model: Model, trial: Transcript, what: str, name: str, other: str) -> None:
    """Do one step in the model, if it can be done, and tell of it."""
    acted = {name}
    there, folder = name in model.things, model.things.get(name) in model.folders
    match what:
        case "create" if model.free(name):
            model.make(name, folder=False)
            trial.create(name)
        case "mkdir" if model.free(name):
            model.make(name, folder=True)
            trial.file(ev.FileCreated, name, what=ev.Kind.DIRECTORY)
        case "write" if there and not folder:
            model.content[model.things[name]] += "!"
            trial.write(name)
        case "delete" if there and not model.below(name):
            del model.things[name]
            trial.delete(name)
        case "rename" if model.can_move(name, other):
            model.move(name, other)
            trial.rename(name, other)
            acted.add(other)
        case _:
            return
    model.acted |= acted


def net_of(model: Model, name: str, before: FileState | None, after: FileState | None) -> str:
    """Say what the net of a name is to be."""
    came = model.things.get(name, "new").partition(" ")[0]
    moved = came not in {"new", name}
    if before == after:
        return "renamed" if moved and after == DIRECTORY else "unchanged"
    if before is None:
        return "renamed" if moved else "created"
    if after is None:
        return "renamed" if name in model.things.values() else "deleted"
    return "modified"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["rename", "rename", "delete", "create", "write", "mkdir"]),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
    ),
    max_size=14,
)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_net_and_restored_are_those_of_a_plain_model(steps: list[tuple[str, str, str]]) -> None:
    """Whatever is moved where, with whatever is in it: each name that is told has the net of the model; no gap."""
    told, model = tell(steps)
    before, after = Model().states(), model.states()
    for name, history in told.items():
        net = net_of(model, name, before.get(name), after.get(name))
        assert history.net == net, name
        if history.changes and net != "unchanged":
            assert history.restored is False, name
        elif history.changes and before.get(name) is not None:
            assert history.restored is True, name
    assert model.acted <= told.keys()


def tell(steps: list[tuple[str, str, str]]) -> tuple[dict[str, FileHistory], Model]:
    """Do some steps; gives the histories by name, and the model at the end."""
    model, trial = Model(), Transcript()
    trial.begin()
    for what, name, other in steps:
        act(model, trial, what, name, other)
    before, after = Model().states(), model.states()
    for name in sorted(model.seen):
        trial.found(name, before.get(name), after.get(name))
    facts = trial.facts()
    assert [gap for gap in facts.gaps if gap.route == "file"] == []
    return {file.path.decode(): file for file in facts.files}, model


def test_what_a_directory_took_along_and_lost_is_deleted() -> None:
    """Where it was before it is deleted, not renamed; where it was removed it came and went, and was not put back."""
    told, _ = tell([("rename", "d", "f"), ("rename", "f", "c"), ("delete", "c/x", ""), ("write", "c/y", "")])
    assert {name: (told[name].net, told[name].restored) for name in ("d/x", "f/x", "c/x", "d/y", "c/y")} == {
        "d/x": ("deleted", False),
        "f/x": ("unchanged", True),
        "c/x": ("unchanged", False),
        "d/y": ("renamed", False),
        "c/y": ("renamed", False),
    }


def test_a_name_that_has_again_what_it_had_is_restored_whatever_was_lost_there() -> None:
    """What was lost there is told where it had been."""
    told, _ = tell([("rename", "a", "b"), ("delete", "b", ""), ("create", "b", "")])
    assert (told["a"].net, told["a"].restored) == ("deleted", False)
    assert (told["b"].net, told["b"].restored) == ("unchanged", True)


def test_what_came_back_is_restored_with_its_directory() -> None:
    """There and back, and a file that was removed meanwhile and made again with the same content."""
    steps = [
        ("rename", "d", "f"),
        ("write", "f/y", ""),
        ("delete", "f/x", ""),
        ("create", "f/x", ""),
        ("rename", "f", "d"),
    ]
    told, _ = tell(steps)
    assert {name: told[name].restored for name in ("d", "d/y")} == {"d": True, "d/y": False}
    assert (told["d/x"].net, told["d/x"].restored) == ("modified", False)  # the content of another name
    told, _ = tell([("rename", "d/x", "c"), ("delete", "c", ""), ("create", "d/x", "")])
    assert (told["d/x"].net, told["d/x"].restored) == ("unchanged", True)
