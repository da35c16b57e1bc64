"""From an overlay's upper tree to the plan of its commit. Reads both trees, changes nothing.

What is visible at a path after the trial is compared with what lies there on the host, top down, entering only what
the upper tree has touched:

* a directory that the trial moved is moved on the host too, whole, when everything in it may be written at both places;
  else what may be written at the new place is copied, and the old place loses what may be removed there;
* whatever the upper tree hides is removed, entry by entry; what may not be written, or was changed on the host since
  the trial began, stays, and with it the directories above it;
* every other upper entry is copied, hard links as hard links, and put in its place; or given, when the stage may give
  its files away (`supervisor.launch.stage.giving`), new directories whole where that is possible.

Where the host is not as it was (`supervisor.launch.stage.meanwhile`), nothing is done, and what the trial had there is
left in the stage. A directory that was moved to such a place stays where it was.

Host paths in here are paths as they were when the trial began; the plan says where they lie when a step comes to them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from supervisor.launch.disk.observe import read_xattrs
from supervisor.launch.disk.tree import Tree, by_descriptor, is_below, join, split
from supervisor.launch.stage.giving import Wholes, can_be_given, overlay_marks
from supervisor.launch.stage.journal import (
    Copy,
    Delete,
    Give,
    Identity,
    Left,
    Link,
    MakeDirectory,
    Place,
    Plan,
    SetAttributes,
    Source,
    Strip,
    Take,
)
from supervisor.launch.stage.meanwhile import Meanwhile
from supervisor.launch.stage.merged import Merged, Node, place_over
from supervisor.values import dataclass, field

CHANGED = "changed on the host"
REFUSED = "not allowed"

Allowed = Callable[[bytes], bool]


def nothing(_: bytes) -> bool:
    """Know of no path that it was there."""
    return False


def make_plan(
    view: Merged,
    *,
    allowed: Allowed,
    began_ns: int | None,
    quarantine: str,
    existed: Allowed = nothing,
    gives: bool = False,
) -> Plan:
    """Plan the commit.

    Args:
        view: the overlay; its lower tree is the workspace.
        allowed: whether a path, relative to the workspace (``.`` is the workspace itself), may be written.
        began_ns: CLOCK_REALTIME when the trial began: what has changed on the host after it is not touched. None: what
            the host did does not matter.
        quarantine: name of the private directory to use, which neither tree has.
        existed: whether the log says of a path that something was there when the trial began.
        gives: the upper tree may give its files away.
    """
    planner = _Planner(view, allowed, Meanwhile(view, began_ns, existed), gives)
    if planner.host.is_merged_as_before(view.root):
        planner.find_moves()
        planner.walk()
        planner.link_other_names()
    else:
        planner.leave(b"")
    return planner.plan(quarantine)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A visible directory, and the host directory whose entries will be in it before anything is placed there."""

    node: Node
    host: bytes | None


@dataclass(slots=True)
class _Planner:
    view: Merged
    allowed: Allowed
    host: Meanwhile
    gives: bool
    slots: dict[bytes, str] = field(default_factory=dict)  # host directories that move whole, the innermost first
    places: set[bytes] = field(default_factory=set)  # and where they move to
    prepare: list[Copy | Link] = field(default_factory=list)
    take: list[Take] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)
    place: list[MakeDirectory | Place | Give] = field(default_factory=list)
    strip: list[Strip] = field(default_factory=list)
    attributes: list[SetAttributes] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    pending: dict[bytes, Node] = field(default_factory=dict)  # new directories, made only when something in them is
    copies: dict[tuple[int, int], str] = field(default_factory=dict)  # the slot of each inode with several names
    placed: set[bytes] = field(default_factory=set)
    homeless: set[bytes] = field(default_factory=set)  # upper directories whose place on the host is not as it was
    kept: set[bytes] = field(default_factory=set)  # host directories that the homeless ones show
    only: dict[bytes, str] = field(default_factory=dict)  # host entries that cannot come where they go, and why
    wholes: Wholes = field(init=False)

    def __post_init__(self) -> None:
        self.wholes = Wholes(self.view.upper, self.allowed, self.host.has_original)

    def plan(self, quarantine: str) -> Plan:
        """Give what was found."""
        root = self.view.lower.lstat(b"")
        if root is None:
            raise FileNotFoundError
        refused = [Left(path=path, why=REFUSED) for path in self.pending]
        return Plan(
            workspace=(root.st_dev, root.st_ino),
            quarantine=quarantine,
            prepare=tuple(self.prepare),
            take=tuple(self.take),
            delete=tuple(self.delete),
            place=tuple(self.place),
            strip=tuple(self.strip),
            attributes=tuple(reversed(self.attributes)),
            left=tuple(self.left + refused),
        )

    # -- directories that moved ------------------------------------------------------------------------------------

    def find_moves(self) -> None:
        """Decide which moved directories move whole, from the innermost of the host's to the outermost."""
        found = list(self.view.upper_directories())
        moved = [(node, above) for node, above in found if node.lower not in {None, place_over(node, above)}]
        sources = {node.lower for node, _ in moved}
        self._find_homeless(found, sources)
        for node, above in sorted(moved, key=lambda move: -(move[0].lower or b"").count(b"/")):
            if node.path in self.homeless or node.lower is None:
                self.kept.add(node.lower or b"")
            elif node.lower not in self.slots and self._moves_whole(node, above, sources):
                inode = self._host(node.lower).st_ino
                self.slots[node.lower] = slot = f"k{len(self.slots)}"
                self.places.add(node.path)
                self.take.append(Take(path=os.fsdecode(node.lower), slot=slot, inode=inode))
        self._find_only([node for node, _ in moved if node.path not in self.places | self.homeless])

    def _find_only(self, moved: list[Node]) -> None:
        """Find what lies on the host only, in directories that do not move whole, and finds no place where they go."""
        inside = (inner for node in moved for inner in self.view.below(node))
        for inner in inside:
            if inner.entry is None and inner.lower is not None:
                if not self.allowed(inner.path):
                    self.only[inner.lower] = REFUSED
                elif not inner.directory and self._holds_changes(inner.path):
                    self.only[inner.lower] = CHANGED

    def _find_homeless(self, found: list[tuple[Node, Node]], sources: set[bytes | None]) -> None:
        """Find the directories that have lost their place: what they are merged with, or the place is not as it was."""
        for node, above in found:
            over = place_over(node, above)
            lost = above.path in self.homeless or not self.host.is_merged_as_before(node)
            if not lost and over is not None and over != node.lower and over not in sources:
                lost = self._holds_changes(over)
            if lost:
                self.homeless.add(node.path)

    def _holds_changes(self, host: bytes) -> bool:
        """Tell whether the host has changed an entry, or anything in it."""
        found = self.view.lower.lstat(host)
        if found is None:
            return False
        below = self.view.lower.below(host) if self.view.lower.is_directory(host) else ()
        return self.host.is_changed(found) or any(self.host.is_changed(inner) for _, inner in below)

    def _moves_whole(self, node: Node, above: Node, sources: set[bytes | None]) -> bool:
        lower = node.lower or b""
        if not self.allowed(lower) or not self.allowed(node.path):
            return False
        over = place_over(node, above)
        if over is not None and over not in self.slots and not self._removable(over, node.path):
            return False
        for path, _ in self._remaining(lower):
            if path in sources or not self.allowed(path) or not self.allowed(node.path + path[len(lower) :]):
                return False
        return True

    def _removable(self, host: bytes, seen_as: bytes) -> bool:
        found = self.view.lower.lstat(host)
        if found is None:
            return True
        below = self._remaining(host) if self.view.lower.is_directory(host) else ()
        return all(
            self._may_remove(path, stat, seen_as + path[len(host) :]) is None for path, stat in ((host, found), *below)
        )

    def _remaining(self, host: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        """Walk a host directory, without the directories that move away from it."""
        away = [path for path in self.slots if path != host and is_below(path, host)]
        for path, found in self.view.lower.below(host):
            if not any(is_below(path, top) for top in away):
                yield path, found

    # -- what the upper tree has touched ---------------------------------------------------------------------------

    def walk(self) -> None:
        """Go through everything that the upper tree has touched, outer before inner."""
        root = self.view.root
        waiting = [_Spot(root, b"")]
        while waiting:
            spot = waiting.pop()
            copied = spot.host is None and spot.node.lower is not None
            names = self.view.names(spot.node) if copied else self.view.upper.names(spot.node.path)
            waiting.extend(inner for name in names if (inner := self._visit(spot, name)) is not None)
        self._set_attributes_of_root(root)

    def _visit(self, spot: _Spot, name: bytes) -> _Spot | None:
        """Plan one entry; gives the directory to go into."""
        path = join(spot.node.path, name)
        node = self.view.child(spot.node, name)
        occupant = self._occupant(spot, name)
        if node is None:
            if occupant is not None:
                self._remove(occupant, path)
            return None
        if path in self.homeless:
            self.leave(path)
            return None
        if node.directory:
            return self._visit_directory(node, occupant)
        lost = spot.host is not None and self.host.has_lost(join(spot.host, name))
        if lost or (node.entry is not None and not self.host.has_original(path)):
            self.leave(path)
            return None
        self._visit_entry(node, occupant)
        return None

    def _occupant(self, spot: _Spot, name: bytes) -> bytes | None:
        """Tell which host path lies there now and does not move away."""
        if spot.host is None or (host := join(spot.host, name)) in self.slots:
            return None
        return host if self.view.lower.lstat(host) is not None else None

    def _visit_directory(self, node: Node, occupant: bytes | None) -> _Spot | None:
        if occupant is not None and node.lower == occupant:
            self._keep_directory(node)
            return _Spot(node, occupant)
        if occupant is not None:
            self._remove(occupant, node.path)
        if node.path in self.places and node.lower is not None:
            self._make_above(node.path)
            self.place.append(Place(path=os.fsdecode(node.path), slot=self.slots[node.lower], over=None))
            self._unmark(node, self._host(node.lower).st_ino)
            self._keep_directory(node)
            return _Spot(node, node.lower)
        if occupant is None and self._give_whole(node):
            return None
        self.pending[node.path] = node
        if self.allowed(node.path):
            self._make_above(join(node.path, b"."))
        return _Spot(node, None)

    def _give_whole(self, node: Node) -> bool:
        """Plan to give a new directory with all that it holds, if that is possible."""
        if not self.gives or node.lower is not None or not self.allowed(node.path):
            return False
        whole = self.wholes.find(node.path)
        if whole is None:
            return False
        self._make_above(node.path)
        self.place.append(Give(path=os.fsdecode(node.path), over=None, entries=whole.entries))
        self.strip.extend(Strip(path=os.fsdecode(path), inode=inode) for path, inode in whole.marked)
        return True

    def _keep_directory(self, node: Node) -> None:
        """Plan the attributes of a directory that the host has, in this place or to be moved to it."""
        if not self.allowed(node.path):
            return
        host, differs = self._host(node.lower or b""), _differ(self.view, node)
        if differs and self.host.is_changed(host):
            self.left.append(Left(path=node.path, why=CHANGED))
            return
        self._set_attributes(node, differs=differs)

    def _set_attributes_of_root(self, root: Node) -> None:
        """Plan the workspace's own attributes, when they differ or anything happens in it."""
        if not self.allowed(b".") or root.entry is None:
            return
        host = self._host(b"")
        differ = _differ(self.view, root)
        if differ and self.host.is_changed(host):
            self.left.append(Left(path=b".", why=CHANGED))
        elif differ or self.place or self.delete or self.take or root.entry.found.st_mtime_ns != host.st_mtime_ns:
            times_ns = _times_of(root)
            step = SetAttributes(path="", source=Source.UPPER, source_path="", differs=differ, times_ns=times_ns)
            self.attributes.insert(0, step)

    def _set_attributes(self, node: Node, *, differs: bool = True) -> None:
        source, source_path = Source.UPPER, os.fsdecode(node.path)
        if node.entry is None:  # its host directory may be gone when its turn comes
            source, source_path = Source.QUARANTINE, f"a{len(self.attributes)}"
            self.prepare.append(Copy(source=Source.LOWER, path=os.fsdecode(node.lower or b""), slot=source_path))
        step = SetAttributes(
            path=os.fsdecode(node.path),
            source=source,
            source_path=source_path,
            differs=differs,
            times_ns=_times_of(node),
        )
        self.attributes.append(step)

    def _visit_entry(self, node: Node, occupant: bytes | None) -> None:
        if not self.allowed(node.path):
            self.left.append(Left(path=node.path, why=REFUSED))
            if occupant is not None and self.view.lower.is_directory(occupant):
                self._remove(occupant, node.path)  # what it hides may go even so
            return
        over = None
        if occupant is not None:
            found = self._host(occupant)
            if self.view.lower.is_directory(occupant):
                removed = self._remove(occupant, node.path)
                if not removed:
                    self.left.append(Left(path=node.path, why=CHANGED))
                    return
            elif self.host.is_changed(found):
                self.left.append(Left(path=node.path, why=CHANGED))
                return
            else:
                over = Identity.of(found)
        self._put(node, over)

    def _put(self, node: Node, over: Identity | None) -> None:
        """Copy an entry that is no directory, or make it a further name of one that is copied already."""
        self._make_above(node.path)
        slot = f"t{len(self.prepare)}"
        tree, path = self.view.place(node)
        found = tree.lstat(path)
        if found is None:
            raise FileNotFoundError(path)
        if self._give(node, tree, found, over):
            return
        several = found.st_nlink > 1 or tree is self.view.work
        first = self.copies.get((found.st_dev, found.st_ino)) if several else None
        if first is None:
            self.prepare.append(Copy(source=self._source(tree), path=os.fsdecode(path), slot=slot))
            self.copies[found.st_dev, found.st_ino] = slot
        else:
            self.prepare.append(Link(first=first, slot=slot))
        self.place.append(Place(path=os.fsdecode(node.path), slot=slot, over=over))
        self.placed.add(node.path)

    def _give(self, node: Node, tree: Tree, found: os.stat_result, over: Identity | None) -> bool:
        """Plan to give an entry that is no directory, if that is possible."""
        if not self.gives or tree is not self.view.upper:
            return False
        marks = overlay_marks(tree, node.path)
        if not can_be_given(found, marks):
            return False
        path = os.fsdecode(node.path)
        self.place.append(Give(path=path, over=over))
        if marks:
            self.strip.append(Strip(path=path, inode=found.st_ino))
        self.placed.add(node.path)
        return True

    def _source(self, tree: Tree) -> Source:
        if tree is self.view.upper:
            return Source.UPPER
        return Source.LOWER if tree is self.view.lower else Source.WORK

    def _make_above(self, path: bytes) -> None:
        """Make the new directories that lead to a path, outer before inner."""
        needed = []
        above = split(path)[0]
        while above in self.pending:
            needed.append(self.pending.pop(above))
            above = split(above)[0]
        for node in reversed(needed):
            self.place.append(MakeDirectory(path=os.fsdecode(node.path)))
            if self.gives or node.lower is not None:
                self._unmark(node)
            self._set_attributes(node)

    def _unmark(self, node: Node, over: int | None = None) -> None:
        """Plan that a directory of the stage is merged with the one that is made or moved to its place on the host.

        What it hid, or showed from another place, is no longer there then.
        """
        if node.entry is not None:
            path, inode = os.fsdecode(node.path), node.entry.found.st_ino
            self.strip.append(Strip(path=path, inode=inode, staged=True, over=over))

    def leave(self, path: bytes) -> None:
        """Leave an entry of the upper tree alone, and all that is in it."""
        upper = self.view.upper
        below = upper.below(path) if upper.is_directory(path) else ()
        ends = [one for one, found in below if not stat.S_ISDIR(found.st_mode) or not upper.names(one)]
        for one in ends or [path]:
            self.left.append(Left(path=one, why=CHANGED if self.allowed(one) else REFUSED))

    # -- removal ---------------------------------------------------------------------------------------------------

    def _remove(self, host: bytes, seen_as: bytes) -> bool:
        """Plan the removal of a host path with all that is below; returns whether nothing of it stays."""
        stays: set[bytes] = set()
        for path, found in reversed(self._removed_with(host)):
            shown = seen_as + path[len(host) :]
            why = None if path in stays else self._may_remove(path, found, shown)
            if path not in stays and why is None:
                self._delete(path, found, shown)
                continue
            stays.add(split(path)[0])
            if why is not None:
                self.left.append(Left(path=shown, why=why))
        return not stays

    def _removed_with(self, host: bytes) -> list[tuple[bytes, os.stat_result]]:
        """Give what goes with a host path, outer before inner.

        A directory that the host changed is told as one: what is in it is left out.
        """
        entries = [(host, self._host(host))]
        if not self.view.lower.is_directory(host):
            return entries
        closed = {host} if host in self.kept or self.host.is_changed(entries[0][1]) else set()
        for path, found in self._remaining(host):
            inside = split(path)[0] in closed
            if not inside:
                entries.append((path, found))
            if inside or path in self.kept or (self.host.is_changed(found) and self.view.lower.is_directory(path)):
                closed.add(path)
        return entries

    def _may_remove(self, path: bytes, found: os.stat_result, seen_as: bytes) -> str | None:
        if not self.allowed(seen_as):
            return REFUSED
        return CHANGED if path in self.kept or self.host.is_changed(found) else self.only.get(path)

    def _delete(self, host: bytes, found: os.stat_result, shown: bytes) -> None:
        top = next((path for path in self.slots if is_below(host, path)), None)
        path = host if top is None else host[len(top) + 1 :]
        directory = self.view.lower.is_directory(host)
        slot = None if top is None else self.slots[top]
        named = None if top is None else os.fsdecode(shown)
        step = Delete(path=os.fsdecode(path), slot=slot, directory=directory, identity=Identity.of(found), shown=named)
        self.delete.append(step)

    # -- further names of copied inodes ----------------------------------------------------------------------------

    def link_other_names(self) -> None:
        """Plan the host names that show a copied inode though the upper tree does not have them."""
        if not self.view.copied_inodes:
            return
        restored: set[bytes] = set()
        for node in self.view.below(self.view.root):
            if node.copy is None or node.path in self.placed:
                continue
            in_place = self.view.lower.lstat(node.path) is not None or self._in_moved(node)
            self._visit_entry(node, node.lower if in_place else None)
            above = self.view.find(split(node.path)[0]) if in_place and node.path in self.placed else None
            if above is not None and above.entry is None and above.path not in restored:
                restored.add(above.path)
                self._set_attributes(above, differs=False)  # a directory that the trial did not touch keeps its times

    def _in_moved(self, node: Node) -> bool:
        return any(is_below(node.path, place) for place in self.places)

    def _host(self, path: bytes) -> os.stat_result:
        found = self.view.lower.lstat(path)
        if found is None:
            raise FileNotFoundError(path)
        return found


def _times_of(node: Node) -> tuple[int, int] | None:
    """Give the times of a directory of the upper tree, which giving away what is in it will change."""
    return None if node.entry is None else (node.entry.found.st_atime_ns, node.entry.found.st_mtime_ns)


def _differ(view: Merged, node: Node) -> bool:
    """Tell whether a directory has another owner, mode or attributes in the upper tree than in the lower one."""
    with view.upper.directory(node.path) as upper, view.lower.directory(node.lower or b"") as lower:
        first, second = os.fstat(upper), os.fstat(lower)
        if (first.st_mode, first.st_uid, first.st_gid) != (second.st_mode, second.st_uid, second.st_gid):
            return True
        return read_xattrs(by_descriptor(upper, b".")) != read_xattrs(by_descriptor(lower, b"."))
