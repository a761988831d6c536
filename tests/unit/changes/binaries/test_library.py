"""Writing: beside the target, checked, then renamed; or nothing at all."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.changes.binaries import payloads, rewrite
from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel.support import system_calls
from cuwheel_core.device_code import fatbin
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.fixtures import manifest, systems
from tests.unit.changes.binaries import engine

if TYPE_CHECKING:
    from pathlib import Path

BIN = manifest.HERE / "bin"
NAMES = BIN / "names-130.so"


def test_the_result_says_what_was_done(tmp_path: Path) -> None:
    target = tmp_path / "out.so"
    result = slim_library(NAMES, target, engine.plan(NAMES, "9.0"))
    assert result.written
    assert [(row.kind, row.arch, row.section, row.count) for row in result.change.dropped] == [
        ("cubin", "sm_75", ".nv_fatbin", 1),
        ("cubin", "sm_100", ".nv_fatbin", 1),
    ]
    assert result.change.bytes_after == target.stat().st_size < result.change.bytes_before == NAMES.stat().st_size
    assert [each.arch for each in engine.read(target).entries] == ["sm_90"]


def test_everything_else_about_the_library_is_the_same(tmp_path: Path) -> None:
    source, target = BIN / "plain-130.so", tmp_path / "out.so"
    slim_library(source, target, engine.plan(source, "9.0"))
    before, after = engine.read(source), engine.read(target)
    for name in ("soname", "needed", "runpath", "glibc", "build_id", "host_compiler", "cudart", "type", "toolkits"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.registration == before.registration


@systems.NO_MODES
def test_mode_bits_stay_and_the_source_is_only_read(tmp_path: Path) -> None:
    source, target = tmp_path / "in.so", tmp_path / "out.so"
    source.write_bytes(NAMES.read_bytes())
    source.chmod(0o750)
    before = source.stat()
    slim_library(source, target, engine.plan(source, "9.0"))
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert (source.stat().st_mtime_ns, source.read_bytes()) == (before.st_mtime_ns, NAMES.read_bytes())


def test_in_place_a_hard_link_keeps_the_original(tmp_path: Path) -> None:
    cached, installed = tmp_path / "cached.so", tmp_path / "installed.so"
    cached.write_bytes(NAMES.read_bytes())
    os.link(cached, installed)
    slim_library(installed, installed, engine.plan(installed, "9.0"))
    assert cached.read_bytes() == NAMES.read_bytes()
    assert installed.stat().st_size < cached.stat().st_size


def test_nothing_to_do_writes_nothing(tmp_path: Path) -> None:
    result = slim_library(NAMES, tmp_path / "out.so", engine.plan(NAMES))
    assert not result.written
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 40, 0xFFFF])
def test_a_count_of_program_headers_that_is_not_true(tmp_path: Path, count: int) -> None:
    """The file has six: a loader that goes by another count finds no dynamic section, or sections for headers."""
    source, target = tmp_path / "in.so", tmp_path / "out.so"
    plan = engine.plan(BIN / "plain-130.so", "9.0")
    data = bytearray((BIN / "plain-130.so").read_bytes())
    assert data[56] == 6
    data[56:58] = count.to_bytes(2, "little")
    source.write_bytes(data)
    try:
        with contextlib.suppress(MalformedError):
            plan = engine.plan(source, "9.0")
        assert not slim_library(source, target, plan).written
    except MalformedError:
        pass
    assert not target.exists()


def test_a_plan_for_another_file(tmp_path: Path) -> None:
    result = slim_library(BIN / "many-130.so", tmp_path / "out.so", engine.plan(NAMES, "9.0"))
    assert not result.written
    assert "not the file that was planned for" in result.findings[0].message


def test_bytes_behind_the_file_may_be_a_signature(tmp_path: Path) -> None:
    signed = tmp_path / "signed.so"
    signed.write_bytes(NAMES.read_bytes() + b"~Module signature appended~\n")
    result = slim_library(signed, tmp_path / "out.so", engine.plan(signed, "9.0"))
    assert not result.written
    assert "28 bytes follow the end of the file" in result.findings[0].message


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="No such file"):
        slim_library(NAMES, tmp_path / "missing" / "out.so", engine.plan(NAMES, "9.0"))


@pytest.mark.parametrize("failing", ["write", "check"])
def test_a_full_disk_or_a_wrong_result_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    target = tmp_path / "out.so"
    target.write_bytes(b"as it was")

    def fail(*_: object) -> None:
        if failing == "write":
            raise OSError(28, "No space left on device")
        raise MalformedError("x", "not what was planned")

    monkeypatch.setattr(*((system_calls, "write_at") if failing == "write" else (rewrite, "_must_hold_entries")), fail)
    with pytest.raises((UnreadableError, MalformedError)):
        slim_library(NAMES, target, engine.plan(NAMES, "9.0"))
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() == b"as it was"


def test_one_wrong_byte_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kept entry, in a container's header, in a wrapper's relocation: each is read again."""
    target = tmp_path / "out.so"
    plan = engine.plan(NAMES, "9.0")
    slim_library(NAMES, target, plan)
    good = target.read_bytes()
    found = engine.read(target)
    places = [found.entries[0].offset + 200, found.entries[0].offset + 9, found.containers[0].offset + 8]
    write = payloads.write_pieces

    def damage(place: int) -> None:
        def spoiled(source: int, spool: int | None, out: int, *rest: object) -> None:
            write(source, spool, out, *rest)  # type: ignore[arg-type]
            system_calls.write_at(out, bytes([good[place] ^ 1]), place)

        monkeypatch.setattr(payloads, "write_pieces", spoiled)

    for place in places:
        damage(place)
        with pytest.raises(MalformedError, match=r"new file|not the same") as caught:
            slim_library(NAMES, target, plan)
        assert "nothing was changed" in caught.value.hint
    assert target.read_bytes() == good


def test_a_target_that_would_lose_its_code_is_noticed(tmp_path: Path) -> None:
    """Even where a plan says so: the choice of each target is made again on the result."""
    plan = engine.plan(NAMES, "9.0")
    wrong = replace(plan, entries=tuple(replace(each, keep=each.entry.arch == "sm_75") for each in plan.entries))
    with pytest.raises(MalformedError, match="would load other code"):
        slim_library(NAMES, tmp_path / "out.so", wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("file", "before"), [("none-130.so", "none"), ("all-124.so", "lz4"), ("rdc-124.so", "lz4")])
def test_recompressed_code_unpacks_to_the_same(tmp_path: Path, file: str, before: str) -> None:
    source, target = BIN / file, tmp_path / "out.so"
    result = slim_library(source, target, engine.plan(source, recompress=True))
    assert result.written
    assert before in {row.before for row in result.change.recompressed}
    assert all(row.after == "zstd" and row.bytes_after < row.bytes_before for row in result.change.recompressed)
    assert unpacked(source) == unpacked(target)


def test_recompression_for_old_drivers(tmp_path: Path) -> None:
    from cuwheel.changes.slim.decide import decide_library
    from cuwheel.changes.slim.request import SlimRequest, SlimTask
    from cuwheel.machine.fleet import from_gpu

    source, target = BIN / "rdc-124.so", tmp_path / "out.so"
    old = replace(from_gpu("9.0"), driver="535.54.03", os="linux")
    result = slim_library(
        source,
        target,
        decide_library(engine.read(source), SlimTask(request=SlimRequest(recompress=True), machines=(old,))),
    )
    assert {row.after for row in result.change.recompressed} == {"lz4"}
    assert {each.compression for each in engine.read(target).entries} == {"lz4"}
    assert set(unpacked(target)) <= set(unpacked(source))


def test_recompression_is_deterministic_whatever_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first.so", tmp_path / "second.so"
    source = BIN / "none-130.so"
    slim_library(source, first, engine.plan(source, recompress=True))
    monkeypatch.setattr(payloads, "_BUDGET", 1)  # one after the other
    slim_library(source, second, engine.plan(source, recompress=True))
    assert first.read_bytes() == second.read_bytes()


def test_what_is_too_large_to_compress_in_little_memory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "_LARGEST", 1000)
    source = BIN / "none-130.so"
    result = slim_library(source, tmp_path / "out.so", engine.plan(source, "9.0", recompress=True))
    assert not result.change.recompressed
    assert "too-large-to-recompress" in [each.rule for each in result.findings]


def unpacked(path: Path) -> list[bytes]:
    data = MemoryBuffer(str(path), path.read_bytes())
    return [
        fatbin.read_payload(
            data,
            each.offset + each.header_size,
            each.compressed_bytes or each.bytes,
            each.real_bytes,
            each.compression,
        )
        for each in engine.read(path).entries
    ]
