"""Malformed siblings of the fixtures: a finding or one of our errors, soon, in little memory, never a crash."""

from __future__ import annotations

import itertools
import time
import tracemalloc
import warnings
from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code.survey import survey
from cuwheel_core.errors import CuwheelError, UnsafeWheelError
from tests.fixtures import malformed, manifest
from tests.fixtures.damage import wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cuwheel.device_code.contents import Survey
    from tests.fixtures.damage.patch import Case

SECONDS = 5.0  # of the processor; the slowest takes a tenth of it, a loop takes for ever
MEMORY = 64 << 20  # the largest of the files has a few megabytes, the bombs unpack to a thousand
GOOD = (manifest.HERE / "bin" / "plain-130.so").read_bytes()
# In these the zip itself is broken beyond use, or the good member is what the damage hits.
HOPELESS = ("cut at", "not a zip", "empty", "directory", "comment longer", "data after", "zip64", "length ffff")
FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "elf": malformed.libraries,
    "fatbin": malformed.fatbins,
    "cubin": malformed.cubins,
    "pe": malformed.dlls,
    "archive": malformed.archives,
    "wheel": malformed.wheels,
}


def attempt(path: Path) -> Survey | CuwheelError:
    try:
        return survey(path, detail="entries", search="whole")
    except CuwheelError as error:
        return error


def named(folder: Path, name: str, data: bytes) -> Path:
    kind = malformed.suffix(name)
    path = folder / ("pkg-1.0-py3-none-any.whl" if kind == ".whl" else f"damaged{kind}")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_only_our_errors_and_soon(family: str, step: int, tmp_path: Path) -> None:
    problems = []
    for name, data in itertools.islice(FAMILIES[family](), 0, None, step):
        path = named(tmp_path, name, data)
        began = time.process_time()
        try:
            answer = attempt(path)
        except Exception as error:  # noqa: BLE001 - collected: all of them, not the first
            problems.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if (took := time.process_time() - began) > SECONDS:
            problems.append(f"{name}: took {took:.1f} s")
        if isinstance(answer, CuwheelError) and not answer.message:
            problems.append(f"{name}: an error without a message")
    assert problems == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_in_little_memory(family: str, tmp_path: Path) -> None:
    """Python's own allocations; tracing them makes everything several times slower."""
    problems = []
    for name, data in FAMILIES[family]():
        path = named(tmp_path, name, data)
        tracemalloc.start()
        attempt(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if peak > MEMORY:
            problems.append(f"{name}: {peak / 1e6:.0f} MB")
    assert problems == []


def test_the_rest_of_a_wheel_is_still_reported(tmp_path: Path) -> None:
    """Whatever is wrong with one member, the good one beside it is read, and the damage is told."""
    for name, data in malformed.wheels():
        if any(word in name for word in HOPELESS):
            continue
        answer = attempt(named(tmp_path, name, data))
        if isinstance(answer, UnsafeWheelError):
            continue  # refused whole, whatever else is in it
        assert not isinstance(answer, CuwheelError), (name, answer)
        good = [library for library in answer.libraries if library.path == wheel.GOOD]
        assert len(good) == 1, name
        assert sum(code.count for code in good[0].device_code) == 3, name


@pytest.mark.parametrize("family", ["elf", "pe", "archive", "fatbin", "cubin"])
def test_a_damaged_library_does_not_hide_the_good_one(family: str, tmp_path: Path) -> None:
    """A sample of each family put into a wheel beside a good library."""
    cases = list(FAMILIES[family]())
    for name, data in cases[:: max(1, len(cases) // 40)]:
        members = {wheel.GOOD: GOOD, f"pkg/damaged{malformed.suffix(name)}": data}
        answer = attempt(named(tmp_path, "wheel: x", wheel.wheel(members)))
        assert not isinstance(answer, CuwheelError), (name, answer)
        assert wheel.GOOD in [library.path for library in answer.libraries], name


def test_a_bomb_is_told_and_not_unpacked(tmp_path: Path) -> None:
    """A gigabyte of zeros in a megabyte. No library that a compiler wrote deflates a thousandfold."""
    name, data = next(case for case in malformed.wheels() if case[0] == "wheel: bomb")
    answer = attempt(named(tmp_path, name, data))
    assert isinstance(answer, UnsafeWheelError)


def test_what_a_name_cannot_do(tmp_path: Path) -> None:
    """Nothing is written, so nothing can escape; such names are told all the same."""
    before = sorted(tmp_path.parent.rglob("evil*"))
    for name, data in malformed.wheels():
        if "evil.so" in name and ".." in name:
            answer = attempt(named(tmp_path, name, data))
            assert isinstance(answer, UnsafeWheelError), name
    assert sorted(tmp_path.parent.rglob("evil*")) == before


@pytest.fixture(autouse=True)
def _zipfile_complains_of_what_we_made() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="zipfile")
        yield
