"""Both verifiers, on the same damage: each finds it, and both say it is in the same place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_builders import (
    HEADER_BYTES,
    header_of,
    make_signed_golden,
    make_signed_run,
    put_frames,
    relink,
    remake,
    segments,
    signing_key,
    split_frames,
    split_notes,
)

import verify_log as second
from supervisor.errors import LogError, LogUnsealedError
from supervisor.log.verify import verify_log

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "log-v1-signed"
UNSIGNED = GOLDEN.with_name("log-v1")
Change = Callable[[list[bytes]], list[bytes]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run that nobody changes."""
    return make_signed_run(tmp_path_factory.mktemp("whole") / "run")


def both(run: Path, *, key: str | None = None, witnesses: Path | None = None) -> str:
    """Give the place that both verifiers name for what is wrong with a run."""
    with pytest.raises(LogError) as ours:
        verify_log(run, key=key, witnessed=witnesses)
    with pytest.raises(second.Finding) as theirs:
        second.verify(run, key=key, witnesses=witnesses)
    assert ours.value.place == theirs.value.where, (str(ours.value), str(theirs.value))
    assert ours.value.exit_code == theirs.value.code
    return ours.value.place or ""


def with_notes(whole: Path, change: Change) -> str:
    """Change the notes of a copy, and ask both verifiers."""
    with TemporaryDirectory() as place:
        run = Path(shutil.copytree(whole, Path(place) / "run"))
        (run / "log" / "checkpoints").write_bytes(b"".join(change(split_notes(run))))
        return both(run)


def with_frames(whole: Path, change: Change) -> str:
    """Change the frames of a copy, and ask both verifiers."""
    with TemporaryDirectory() as place:
        run = Path(shutil.copytree(whole, Path(place) / "run"))
        put_frames(run, change(split_frames(run)))
        return both(run)


def flipped(parts: list[bytes], number: int, data: st.DataObject) -> list[bytes]:
    """Flip any bit of one part."""
    changed = bytearray(parts[number])
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    return [*parts[:number], bytes(changed), *parts[number + 1 :]]


def swapped(parts: list[bytes], first: int, other: int) -> list[bytes]:
    """Let two parts change places."""
    parts[first], parts[other] = parts[other], parts[first]
    return parts


NOTES = 5
FRAMES = 15


def test_both_verify_a_signed_run(whole: Path) -> None:
    """What nobody changed is good for both, with the same figures."""
    ours, theirs = verify_log(whole), second.verify(whole)
    assert (ours.frames, ours.events, ours.checkpoints) == (theirs.tree.size, theirs.events, theirs.good) == (15, 23, 5)
    assert ours.root == second.written(theirs.tree.root())
    assert ours.key == signing_key().public


@pytest.mark.parametrize("golden", [GOLDEN, UNSIGNED], ids=["signed", "unsigned"])
def test_both_verify_every_golden_run(golden: Path) -> None:
    """Logs that were written by earlier versions verify for good."""
    assert verify_log(golden).frames == second.verify(golden).tree.size


def test_the_signed_golden_run_is_still_made_byte_for_byte(tmp_path: Path) -> None:
    """Writer and signer of today make the golden run again."""
    made = make_signed_golden(tmp_path / "made")
    files = sorted(path.relative_to(GOLDEN) for path in GOLDEN.rglob("*") if path.is_file())
    assert {str(path): (made / path).read_bytes() for path in files} == {
        str(path): (GOLDEN / path).read_bytes() for path in files
    }
    assert len(files) == 7


@settings(deadline=None, max_examples=120)
@given(data=st.data(), number=st.integers(0, NOTES - 1))
def test_a_flipped_bit_names_its_checkpoint(whole: Path, data: st.DataObject, number: int) -> None:
    """Any bit of any line of any note."""
    assert with_notes(whole, lambda notes: flipped(notes, number, data)) == f"checkpoint {number}"


@pytest.mark.parametrize("number", range(NOTES))
def test_a_dropped_checkpoint_is_missed(whole: Path, number: int) -> None:
    """Without note N, note N is named; the seal's too."""
    assert with_notes(whole, lambda notes: notes[:number] + notes[number + 1 :]) == f"checkpoint {number}"


@settings(deadline=None, max_examples=30)
@given(pair=st.tuples(st.integers(0, NOTES - 1), st.integers(0, NOTES - 1)).filter(lambda pair: pair[0] < pair[1]))
def test_swapped_checkpoints_are_found_at_the_first(whole: Path, pair: tuple[int, int]) -> None:
    """The first of two notes that changed places is named."""
    assert with_notes(whole, lambda notes: swapped(notes, *pair)) == f"checkpoint {pair[0]}"


@settings(deadline=None, max_examples=40)
@given(number=st.integers(0, NOTES - 1), place=st.integers(0, NOTES))
def test_a_repeated_checkpoint_is_found_where_it_stands(whole: Path, number: int, place: int) -> None:
    """A copy of any note anywhere is named where the order first breaks."""
    expected = place + 1 if number == place else place
    assert with_notes(whole, lambda notes: [*notes[:place], notes[number], *notes[place:]]) == f"checkpoint {expected}"


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_checkpoints_cut_anywhere_are_found(whole: Path, data: st.DataObject) -> None:
    """The file cut after any byte: the note that is not whole, or missing, is named."""
    notes = split_notes(whole)
    stream = b"".join(notes)
    keep = data.draw(st.integers(0, len(stream) - 1))
    ends = [sum(map(len, notes[: index + 1])) for index in range(len(notes))]
    expected = sum(1 for end in ends if end <= keep)
    assert with_notes(whole, lambda _: [stream[:keep]]) == f"checkpoint {expected}"


@settings(deadline=None, max_examples=30)
@given(tail=st.binary(min_size=1, max_size=300))
def test_bytes_after_the_last_checkpoint_are_found(whole: Path, tail: bytes) -> None:
    """Whatever follows the seal's note is no part of the run."""
    assert with_notes(whole, lambda notes: [*notes, tail]) == f"checkpoint {NOTES}"


def test_a_removed_file_of_checkpoints_is_found(whole: Path, tmp_path: Path) -> None:
    """A signed run without its checkpoints is bad, not unreadable."""
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    (run / "log" / "checkpoints").unlink()
    assert both(run) == "checkpoint 0"


@settings(deadline=None, max_examples=150)
@given(data=st.data(), number=st.integers(0, FRAMES - 1))
def test_a_flipped_bit_names_its_frame(whole: Path, data: st.DataObject, number: int) -> None:
    """Any bit of any byte of any frame, the seal included."""
    assert with_frames(whole, lambda frames: flipped(frames, number, data)) == f"frame {number}"


@pytest.mark.parametrize("number", range(FRAMES))
def test_a_dropped_frame_is_missed(whole: Path, number: int) -> None:
    """Without frame N, frame N is named."""
    assert with_frames(whole, lambda frames: frames[:number] + frames[number + 1 :]) == f"frame {number}"


@settings(deadline=None, max_examples=50)
@given(pair=st.tuples(st.integers(0, FRAMES - 1), st.integers(0, FRAMES - 1)).filter(lambda pair: pair[0] < pair[1]))
def test_swapped_frames_are_found_at_the_first(whole: Path, pair: tuple[int, int]) -> None:
    """The first of two frames that changed places is named."""
    assert with_frames(whole, lambda frames: swapped(frames, *pair)) == f"frame {pair[0]}"


@settings(deadline=None, max_examples=50)
@given(number=st.integers(0, FRAMES - 1), place=st.integers(0, FRAMES))
def test_a_repeated_frame_is_found_where_it_stands(whole: Path, number: int, place: int) -> None:
    """A copy of any frame anywhere is named where the order first breaks."""
    expected = place + 1 if number == place else place
    assert with_frames(whole, lambda frames: [*frames[:place], frames[number], *frames[place:]]) == f"frame {expected}"


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_a_log_cut_anywhere_is_found(whole: Path, data: st.DataObject) -> None:
    """The log cut after any byte: the frame that is not whole, or missing, is named."""
    frames = split_frames(whole)
    stream = b"".join(frames)
    keep = data.draw(st.integers(1, len(stream) - 1))
    ends = [sum(map(len, frames[: index + 1])) for index in range(len(frames))]
    assert with_frames(whole, lambda _: [stream[:keep]]) == f"frame {sum(1 for end in ends if end <= keep)}"


@settings(deadline=None, max_examples=40)
@given(tail=st.binary(min_size=1, max_size=100))
def test_bytes_after_the_seal_are_found(whole: Path, tail: bytes) -> None:
    """Whatever follows the seal is a frame too many, or none."""
    assert with_frames(whole, lambda frames: [*frames, tail]) == f"frame {FRAMES}"


def changed(frames: list[bytes], number: int) -> bytes:
    """Give a frame with another payload and a right checksum."""
    payload = bytearray(frames[number][HEADER_BYTES:])
    payload[-2] ^= 1
    return remake(frames[number], bytes(payload))


@pytest.mark.parametrize("number", range(FRAMES))
def test_a_replaced_frame_is_named_although_its_checksum_is_right(whole: Path, number: int) -> None:
    """Links, not checksums and not checkpoints, tell which frame it is."""
    place = with_frames(whole, lambda frames: [*frames[:number], changed(frames, number), *frames[number + 1 :]])
    assert place == f"frame {number}"


@pytest.mark.parametrize("number", range(FRAMES - 2))
def test_a_log_forged_to_its_end_does_not_fit_the_next_checkpoint(whole: Path, number: int) -> None:
    """All links and checksums mended after a change: the next signed root is another one."""

    def forge(frames: list[bytes]) -> list[bytes]:
        return relink([*frames[:number], changed(frames, number), *frames[number + 1 :]], number + 1)

    sizes = [int(note.splitlines()[1]) for note in split_notes(whole)]
    place = with_frames(whole, forge)
    expected = f"checkpoint {sum(1 for size in sizes if size <= number)}"
    # A changed record that told of a checkpoint, or that ends the log, is named for what it says.
    assert place == expected or place.startswith(("checkpoint", f"frame {number}"))


@pytest.mark.parametrize("number", [1, 5, 14])
def test_a_replaced_link_is_named(whole: Path, number: int) -> None:
    """A frame whose link alone was changed is named itself."""

    def forge(frames: list[bytes]) -> list[bytes]:
        return [*frames[:number], remake(frames[number], link=b"L" * 32), *frames[number + 1 :]]

    assert with_frames(whole, forge) == f"frame {number}"
    assert header_of(split_frames(whole)[number]).link != b"L" * 32


@pytest.mark.parametrize("name", ["manifest.json", "completion.json", "completion.dsse.json"])
@pytest.mark.parametrize("how", ["edited", "removed"])
def test_a_changed_document_is_named(whole: Path, tmp_path: Path, name: str, how: str) -> None:
    """What the log binds cannot be edited or taken away."""
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    if how == "edited":
        (run / name).write_bytes((run / name).read_bytes().replace(b"e", b"E", 1))
    else:
        (run / name).unlink()
    assert both(run) == str(run / name)


def test_another_key_is_refused(whole: Path) -> None:
    """A key that is demanded must be the manifest's; the manifest's own is good."""
    assert both(whole, key=signing_key(b"o" * 32).public).endswith("manifest.json")
    assert verify_log(whole, key=signing_key().public).checkpoints == NOTES


def test_a_log_of_a_forger_with_another_key_is_only_told_by_the_key(tmp_path: Path) -> None:
    """Who can write all files can write another log: it verifies, but not with the right key or against a witness."""
    run = make_signed_run(tmp_path / "run")
    witness = tmp_path / "witness"
    shutil.copy(run / "log" / "checkpoints", witness)
    forged = make_signed_run(tmp_path / "forged", seed=b"f" * 32)
    assert verify_log(forged).frames == second.verify(forged).tree.size
    assert both(forged, key=signing_key().public).endswith("manifest.json")
    assert both(forged, witnesses=witness) == "witnessed checkpoint over 1 frames"
    assert verify_log(run, witnessed=witness).witnessed == second.verify(run, witnesses=witness).witnessed == NOTES


def test_a_cut_log_does_not_extend_what_was_witnessed(whole: Path, tmp_path: Path) -> None:
    """A log that is cut back to an earlier moment, whole and unsealed, is told from one that never got further."""
    run = make_signed_run(tmp_path / "run", unsealed=True)
    assert both(run) == "frame 12"
    assert both(run, witnesses=whole / "log" / "checkpoints").startswith("witnessed checkpoint over")


def test_an_unsealed_run_says_what_is_still_vouched_for(tmp_path: Path) -> None:
    """Without a seal the verifiers say how far signatures reach."""
    run = make_signed_run(tmp_path / "run", unsealed=True)
    with pytest.raises(LogError) as ours:
        verify_log(run)
    assert "12 whole frames were found; signed checkpoints vouch for the first 11" in str(ours.value.hint)
    with pytest.raises(second.Finding) as theirs:
        second.verify(run)
    assert "the first 11 of them vouched for by 3 checkpoints" in theirs.value.meaning


def meanings(run: Path) -> tuple[str, str]:
    """Give what both verifiers say that a missing seal means."""
    with pytest.raises(LogUnsealedError) as ours:
        verify_log(run)
    with pytest.raises(second.Finding) as theirs:
        second.verify(run)
    assert ours.value.place == theirs.value.where
    return str(ours.value.hint), theirs.value.meaning


@settings(deadline=None, max_examples=40)
@given(keep=st.integers(1, 220))
def test_a_half_written_checkpoint_at_the_end_of_an_unsealed_log_is_told(keep: int) -> None:
    """The machine died while a note was written: the log is unsealed, not falsified, and the half note is told."""
    with TemporaryDirectory() as place:
        run = make_signed_run(Path(place) / "run", unsealed=True)
        notes = split_notes(run)
        (run / "log" / "checkpoints").write_bytes(b"".join(notes) + notes[-1][: min(keep, len(notes[-1]) - 1)])
        assert all("half written" in said for said in meanings(run))


def test_frames_that_were_signed_and_are_lost_are_counted(tmp_path: Path) -> None:
    """The disk kept a note but not the frames that it is over: both say how many are missing."""
    run = make_signed_run(tmp_path / "run", unsealed=True)
    put_frames(run, split_frames(run)[:9])
    ours, theirs = meanings(run)
    assert "9 whole frames were found; signed checkpoints vouch for the first 9 of them and tell of 11" in ours
    assert "so at least 2 are lost" in ours
    assert "so at least 2 are lost" in theirs


@pytest.mark.parametrize("unsealed", [False, True])
def test_an_empty_last_segment_is_damage_after_a_seal_only(tmp_path: Path, *, unsealed: bool) -> None:
    """A writer that died between making a segment and filling it left an unsealed log; after a seal it was added."""
    run = make_signed_run(tmp_path / "run", unsealed=unsealed)
    expected = str(meanings(run)) if unsealed else f"frame {len(split_frames(run))}"
    (run / "log" / f"{len(segments(run)):06d}.seg").touch()
    assert (str(meanings(run)) if unsealed else both(run)) == expected
