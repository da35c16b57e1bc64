"""A log that was touched is found out, and the first bad frame is named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_builders import (
    STAGE,
    begin,
    digest_of,
    end,
    fill,
    header_of,
    make_run,
    put_frames,
    relink,
    remake,
    segments,
    slab_of,
    split_frames,
)

from supervisor.errors import InternalError, LogError, LogUnreadableError, LogUnsealedError
from supervisor.events import TrialReleased, TrialSealed
from supervisor.log.chain import Chain
from supervisor.log.frames import HEADER_BYTES, FrameType, pack_header
from supervisor.log.merkle import leaf_hash
from supervisor.log.verify import verify_log

GOLDEN = Path(__file__).parents[2] / "data" / "log-v1"
SEAL = 8
"""Number of the seal in a run of `make_run`."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Give a sealed run."""
    return make_run(tmp_path / "run")


def bad(run: Path) -> LogError:
    """Verify what must not verify."""
    with pytest.raises(LogError) as caught:
        verify_log(run)
    return caught.value


def found(frames: list[bytes], change: Callable[[list[bytes]], list[bytes]]) -> LogError:
    """Change a list of frames and verify what comes out, in a directory of its own."""
    with TemporaryDirectory() as place:
        run = make_run(Path(place) / "run")
        put_frames(run, change(list(frames)))
        return bad(run)


@pytest.fixture(scope="module")
def frames() -> list[bytes]:
    """Give the frames of a sealed run."""
    with TemporaryDirectory() as place:
        return split_frames(make_run(Path(place) / "run"))


def test_a_sealed_log_verifies(run: Path) -> None:
    """A log nobody touched verifies, and says what it holds."""
    verified = verify_log(run, stage_digest=lambda: STAGE)
    assert (verified.frames, verified.events, verified.evidence_frames) == (SEAL + 1, 14, SEAL - 1)
    assert verified.stage_checked


def test_the_golden_log_verifies_for_good(tmp_path: Path) -> None:
    """The golden run of version 1 verifies, and the writer of today still makes it byte for byte."""
    verified = verify_log(GOLDEN, stage_digest=lambda: STAGE)
    assert verified.root == "sha256:4e2d433e3842653544b88f9cefb950173315f38bbd8cbe9bcac4fe2be1cf6146"
    made = make_run(tmp_path / "made", segment_bytes=768)
    files = sorted(path.relative_to(GOLDEN) for path in GOLDEN.rglob("*") if path.is_file())
    assert {str(path): (made / path).read_bytes() for path in files} == {
        str(path): (GOLDEN / path).read_bytes() for path in files
    }
    assert len(segments(GOLDEN)) > 1


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_names_its_frame(frames: list[bytes], data: st.DataObject) -> None:
    """Any bit of any byte, in header or payload or seal: its own frame is named."""
    number = data.draw(st.integers(0, len(frames) - 1))
    offset = data.draw(st.integers(0, len(frames[number]) - 1))
    mask = 1 << data.draw(st.integers(0, 7))

    def flip(whole: list[bytes]) -> list[bytes]:
        changed = bytearray(whole[number])
        changed[offset] ^= mask
        return [*whole[:number], bytes(changed), *whole[number + 1 :]]

    assert found(frames, flip).frame == number


@settings(deadline=None, max_examples=40)
@given(number=st.integers(0, SEAL))
def test_a_dropped_frame_is_missed_in_its_place(frames: list[bytes], number: int) -> None:
    """Without frame N, what stands in its place is frame N's fault; without the seal the run is unsealed."""
    error = found(frames, lambda whole: whole[:number] + whole[number + 1 :])
    assert error.frame == number
    assert isinstance(error, LogUnsealedError) == (number == SEAL)


@settings(deadline=None, max_examples=40)
@given(pair=st.tuples(st.integers(0, SEAL), st.integers(0, SEAL)).filter(lambda pair: pair[0] < pair[1]))
def test_swapped_frames_are_found_at_the_first(frames: list[bytes], pair: tuple[int, int]) -> None:
    """Two frames that changed places: the first of the places is named."""

    def swap(whole: list[bytes]) -> list[bytes]:
        whole[pair[0]], whole[pair[1]] = whole[pair[1]], whole[pair[0]]
        return whole

    assert found(frames, swap).frame == pair[0]


@settings(deadline=None, max_examples=40)
@given(number=st.integers(0, SEAL), place=st.integers(0, SEAL + 1))
def test_a_repeated_frame_is_found_where_it_stands(frames: list[bytes], number: int, place: int) -> None:
    """A copy of any frame anywhere is named where the order first breaks."""
    error = found(frames, lambda whole: [*whole[:place], whole[number], *whole[place:]])
    assert error.frame == (place + 1 if number == place else place)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_a_cut_anywhere_is_found(frames: list[bytes], data: st.DataObject) -> None:
    """The log cut after any byte: the frame that is not whole, or that is missing, is named."""
    stream = b"".join(frames)
    keep = data.draw(st.integers(1, len(stream) - 1))
    ends = [sum(map(len, frames[: index + 1])) for index in range(len(frames))]
    error = found(frames, lambda _: [stream[:keep]])
    assert error.frame == next(index for index, end in enumerate(ends) if end > keep)


@settings(deadline=None, max_examples=60)
@given(tail=st.binary(min_size=1, max_size=200))
def test_bytes_after_the_end_are_found(frames: list[bytes], tail: bytes) -> None:
    """Whatever is appended after the seal is no part of the log."""
    assert found(frames, lambda whole: [*whole, tail]).frame == SEAL + 1


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_hole_anywhere_is_found(frames: list[bytes], data: st.DataObject) -> None:
    """Bytes cut out of the middle, over any frames: the frame where the hole begins is named."""
    stream = b"".join(frames)
    begin_at = data.draw(st.integers(0, len(stream) - 2))
    end_at = data.draw(st.integers(begin_at + 1, len(stream) - 1))
    if stream[:begin_at] + stream[end_at:] in {stream[:-1], stream}:
        return
    ends = [sum(map(len, frames[: index + 1])) for index in range(len(frames))]
    # A hole may begin in a run of equal bytes: then the frame it ends in is where the streams first differ.
    holed = stream[:begin_at] + stream[end_at:]
    differs = next((i for i, (a, b) in enumerate(zip(stream, holed, strict=False)) if a != b), len(holed))
    error = found(frames, lambda _: [holed])
    assert error.frame == next(index for index, end in enumerate(ends) if end > differs)


@pytest.mark.parametrize("number", range(SEAL + 1))
def test_a_replaced_payload_with_a_right_checksum_names_its_frame(frames: list[bytes], number: int) -> None:
    """Whoever mends the checksum is found by the link of the next frame, by the root, or by the seal's own text."""
    payload = bytearray(frames[number][HEADER_BYTES:])
    payload[-2] ^= 1
    forged = remake(frames[number], bytes(payload))
    assert found(frames, lambda whole: [*whole[:number], forged, *whole[number + 1 :]]).frame == number


@pytest.mark.parametrize("number", range(SEAL + 1))
def test_a_replaced_link_names_its_frame_not_its_neighbour(frames: list[bytes], number: int) -> None:
    """A forged link is told from a forged frame before it: the frame after both vouches for one of them."""
    forged = remake(frames[number], link=b"\x13" * 32)
    assert found(frames, lambda whole: [*whole[:number], forged, *whole[number + 1 :]]).frame == number


@pytest.mark.parametrize("number", range(SEAL - 1))
def test_a_chain_forged_to_the_end_does_not_fit_the_roots(frames: list[bytes], number: int) -> None:
    """All links mended after a change: the root of the evidence, or of the seal, is another one."""
    payload = bytearray(frames[number][HEADER_BYTES:])
    payload[-2] ^= 1
    forged = [*frames[:number], remake(frames[number], bytes(payload)), *frames[number + 1 :]]
    error = found(frames, lambda _: relink(forged, number + 1))
    assert error.frame == SEAL
    assert "expected a seal" in str(error)


def test_an_edited_manifest_is_found(run: Path) -> None:
    """Frame 0 binds the manifest."""
    path = run / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"true", b"TRUE"))
    error = bad(run)
    assert error.place == str(path)
    assert "frame 0" in str(error)


def test_an_edited_completion_is_found(run: Path) -> None:
    """The record before the seal binds the completion argument."""
    path = run / "completion.json"
    path.write_bytes(path.read_bytes() + b" ")
    assert bad(run).place == str(path)


@pytest.mark.parametrize("name", ["manifest.json", "completion.json"])
def test_a_removed_document_is_found(run: Path, name: str) -> None:
    """A bound document that is gone is a bad log, not an unreadable one."""
    (run / name).unlink()
    error = bad(run)
    assert not isinstance(error, LogUnreadableError)
    assert "got no file" in str(error)


def test_another_stage_is_found(run: Path) -> None:
    """The record before the seal binds the stage."""
    with pytest.raises(LogError, match="stage"):
        verify_log(run, stage_digest=lambda: "sha256:" + "0" * 64)


def test_a_log_without_seal_is_unsealed(tmp_path: Path) -> None:
    """A run that ended before its seal is whole but unsealed, and says where a seal was expected."""
    run = tmp_path / "run"
    with begin(run) as log:
        fill(log)
    with pytest.raises(LogUnsealedError, match="frame 7: expected a seal, got the end of the log") as caught:
        verify_log(run)
    assert caught.value.frame == 7


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_removed_segment_is_found(tmp_path: Path, index: int) -> None:
    """A whole segment that is gone: the first frame it held is named."""
    run = make_run(tmp_path / "run", segment_bytes=400)
    files = segments(run)
    first = header_of(files[index].read_bytes()).number
    assert len(files) > 2
    files[index].unlink()
    assert bad(run).frame == first


def test_no_segment_at_all_is_found(run: Path) -> None:
    """An emptied log directory is a log without a seal at frame 0; a missing one is unreadable."""
    segments(run)[0].unlink()
    assert bad(run).frame == 0
    shutil.rmtree(run / "log")
    assert isinstance(bad(run), LogUnreadableError)


@pytest.mark.parametrize("content", [b"", b"x", b"frames"])
@pytest.mark.parametrize("name", ["000001.seg", "000007.seg", "zz.seg"])
def test_an_extra_segment_is_found(run: Path, name: str, content: bytes) -> None:
    """A segment after the seal is no part of the log, whatever it is called or holds."""
    (run / "log" / name).write_bytes(segments(run)[0].read_bytes() if content == b"frames" else content)
    assert bad(run).frame == SEAL + 1


def test_a_segment_must_be_a_regular_file(run: Path) -> None:
    """Neither a link to a good segment elsewhere nor a pipe poses as a segment."""
    segment = segments(run)[0]
    segment.rename(run / "elsewhere")
    segment.symlink_to(run / "elsewhere")
    assert isinstance(bad(run), LogError)
    segment.unlink()
    os.mkfifo(segment)
    assert "no regular file" in str(bad(run))


def sealed_with(
    run: Path, frames: int, root: str, *, aftermath: int = 0, slab: bool = False, completion: str = STAGE
) -> None:
    """Seal a filled log with a stated evidence."""
    with begin(run) as log:
        fill(log)
        log.append_kernel(slab_of(1), 1) if slab else None
        for _ in range(aftermath):
            log.record(lambda n: TrialReleased(n=n, time_ns=0))
        log.seal(
            lambda n: TrialSealed(
                n=n, time_ns=0, evidence_frames=frames, evidence_root=root, completion=completion, stage=STAGE
            )
        )


def evidence_root(place: Path) -> str:
    """Give the root of a filled log."""
    with begin(place) as log:
        fill(log)
        return log.root()


def test_evidence_must_be_a_checkpoint_of_this_log(tmp_path: Path) -> None:
    """The writer refuses to seal over evidence that is another log's, is followed by a slab, or is long past."""
    root = evidence_root(tmp_path / "probe")
    with pytest.raises(InternalError, match="expected the evidence root"):
        sealed_with(tmp_path / "a", 7, STAGE)
    with pytest.raises(InternalError, match="kernel slab after the evidence"):
        sealed_with(tmp_path / "b", 7, root, slab=True)
    with pytest.raises(InternalError, match="1024 frames before"):
        sealed_with(tmp_path / "c", 7, root, aftermath=1025)
    with pytest.raises(InternalError, match="1024 frames before"):
        sealed_with(tmp_path / "d", 8, root)


def test_the_longest_aftermath_that_is_written_also_verifies(tmp_path: Path) -> None:
    """Writer and verifier draw the line at the same record."""
    run = tmp_path / "run"
    with begin(run) as log:
        fill(log)
        end(run, log, aftermath=1024)
    assert verify_log(run).evidence_frames == 7


def test_a_completion_about_another_log_is_found(tmp_path: Path) -> None:
    """A completion argument that was bound, but describes other frames than the evidence, is refused."""
    run = tmp_path / "run"
    (tmp_path / "run").mkdir()
    (run / "completion.json").write_bytes(b"{}")
    root = evidence_root(tmp_path / "probe")
    sealed_with(run, 7, root, completion=digest_of(b"{}"))
    with pytest.raises(LogError, match=r"completion\.json: log: expected the evidence"):
        verify_log(run)


def test_a_seal_without_its_record_is_found(frames: list[bytes]) -> None:
    """A forger who seals what was never concluded is found: the record before the seal is missing."""

    def forge(whole: list[bytes]) -> list[bytes]:
        chain = Chain()
        for frame in whole[:5]:
            chain.advance(header_of(frame).type, header_of(frame).events, leaf_hash(frame))
        payload, link = chain.seal_payload(5), chain.link or b""
        header = pack_header(FrameType.SEAL, payload, count=0, number=5, first=chain.events, link=link)
        return [*whole[:5], header + payload]

    error = found(frames, forge)
    assert error.frame == 4
    assert "expected the record trial.sealed before the seal, got note.received" in str(error)


@pytest.mark.parametrize(("count", "first"), [(2, 0), (0, 0), (1, 1)])
def test_event_numbers_must_follow(frames: list[bytes], count: int, first: int) -> None:
    """A frame that claims other events than come next is named, whatever its checksum says."""

    def forge(whole: list[bytes]) -> list[bytes]:
        payload, link = whole[0][HEADER_BYTES:], header_of(whole[0]).link
        return [
            pack_header(FrameType.JSON, payload, count=count, number=0, first=first, link=link) + payload,
            *whole[1:],
        ]

    assert found(frames, forge).frame == 0


def test_the_message_says_what_was_expected_and_got(frames: list[bytes]) -> None:
    """A bad frame is named in the words of the report."""
    error = found(frames, lambda whole: [*whole[:3], *whole[4:]])
    assert str(error) == "frame 3: expected frame 3, got frame 4: frames are missing or moved"
