"""Libraries through slim, changed field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuwheel.changes.binaries.rewrite import slim_library
from tests.fixtures import windows
from tests.fuzz import binaries
from tests.fuzz.harness import Harness, fixtures
from tests.unit.changes.binaries import engine

if TYPE_CHECKING:
    from pathlib import Path


def slim(folder: Path, data: bytes) -> None:
    """Refused, or sound: what was kept can be read, and slimming it again takes nothing more out."""
    source, target = folder / "source.so", folder / "target.so"
    target.unlink(missing_ok=True)
    source.write_bytes(data)
    try:
        result = slim_library(source, target, engine.plan(source, "9.0", recompress=bool(data[-1] & 1)))
        if target.exists() != result.written:
            raise AssertionError("what was said to be written and what was written differ")
        if result.written:
            again = engine.plan(target, "9.0")
            if not all(each.keep for each in again.entries):
                raise AssertionError("slimmed twice, it loses more")
    finally:
        if source.read_bytes() != data:
            raise AssertionError("the original was changed")
        if strangers := {each.name for each in folder.iterdir()} - {"source.so", "target.so"}:
            raise AssertionError(f"left behind: {strangers}")


def windows_binaries() -> list[bytes]:
    """Small ones, with what linkers and others leave in a file."""
    small = windows.containers(1_000)
    makes: tuple[dict[str, Any], ...] = (
        {},
        {"padding": 8, "checksum": True},
        {"symbols": True, "debug": True, "unnamed": (2,)},
        {"overlay": b"archive", "hidden": engine.container(engine.entry("sm_80", engine.noise(4, 20_000)))},
    )
    return [windows.Dll(containers=small, **each).build() for each in makes]


def _harness(folder: Path) -> Harness:
    small = [data for data in (*fixtures("elf", "pe"), *windows_binaries()) if len(data) <= binaries.LARGEST]
    return Harness(small, lambda data: slim(folder, data or b"\0"), binaries.mutate)


HARNESSES = {"slim": _harness}
