"""Torch that is asked for and not installed: what it lacks, and which releases an extension goes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from packaging.requirements import Requirement

from cuwheel.facts import torch
from cuwheel.facts.torch import SymbolTable
from cuwheel.verdicts import torch_releases
from cuwheel.verdicts.judge import judge
from tests.unit.verdicts.subjects import library, machine, survey

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey

pytestmark = pytest.mark.unit

ALWAYS, NEW, GONE = "_ZN3c106alwaysEv", "_ZN3c103newEv", "_ZN3c104goneEv"
STRING = "_ZN3c106stringENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
TABLE = SymbolTable(
    "2026-11-16",
    ("2.6.0", "2.7.1", "2.8.0", "2.9.1"),
    {ALWAYS: 0b1111, NEW: 0b1100, GONE: 0b0111, STRING: 0b1110},
    new_strings=0b1110,
)


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "own_symbols", lambda: TABLE)


def _extension(*symbols: str, requires: tuple[str, ...] = ()) -> Survey:
    return survey(library("sm_90", torch_symbols=symbols), requires=requires)


@pytest.mark.parametrize(
    ("symbols", "requires", "expected"),
    [
        ((), (), None),
        ((ALWAYS,), (), "2.6 to 2.9"),
        ((ALWAYS, NEW), (), "2.8 to 2.9"),
        ((NEW, GONE), (), "2.8"),
        ((ALWAYS,), ("torch==2.9.0",), "2.9"),  # its last patch is in the table
        ((ALWAYS,), ("torch==2.9.0+cu128",), "2.9"),
        ((ALWAYS,), ("torch!=2.7.*,!=2.8.0",), "2.6, 2.9"),
        ((ALWAYS,), ("torch>=2.8", "torch<2.8; extra == 'old'"), "2.8 to 2.9"),
        ((NEW,), ("torch<2.8",), ""),
        (("_ZN3c107unknownEv",), (), ""),
    ],
)
def test_the_releases_that_an_extension_goes_with(
    symbols: tuple[str, ...], requires: tuple[str, ...], expected: str | None
) -> None:
    found = torch_releases.fitting_torch_releases(_extension(*symbols, requires=requires))
    assert (None if found is None else torch_releases.torch_releases_in_words(found)) == expected


@pytest.mark.parametrize(
    ("symbols", "requires", "expected"),
    [
        ((), (), {}),
        ((), ("torch>=2.8",), {"2.7": "it requires torch>=2.8, not 2.7", "2.6": "it requires torch>=2.8, not 2.6"}),
        ((NEW,), ("torch>=2.7",), {
            "2.7": "it needs a symbol that torch 2.7 does not have", "2.6": "it requires torch>=2.7, not 2.6",
        }),
    ],
)  # fmt: skip
def test_the_releases_that_it_does_not_go_with(
    symbols: tuple[str, ...], requires: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert dict(torch_releases.unfit_torch_releases(_extension(*symbols, requires=requires))) == expected


def test_a_library_that_the_import_loads_decides_over_others() -> None:
    own = library("sm_90", path="demo/_C.so", torch_symbols=(ALWAYS,))
    other = library("sm_90", path="demo/extra.so", torch_symbols=(GONE,))
    both = survey(own, other)
    assert torch_releases.fitting_torch_releases(replace(both, imported=("demo/_C.so",))) == (
        "2.6",
        "2.7",
        "2.8",
        "2.9",
    )
    assert torch_releases.fitting_torch_releases(both) == ("2.6", "2.7", "2.8")


@pytest.mark.parametrize(
    ("version", "judged"),
    [
        ("2.7", True),
        ("2.7.0", True),
        ("2.7.1+cu126", True),
        ("2.7.1+cpu", False),
        ("2.7.0a0+git1234.nv25.05", False),
        ("2.6.0", True),
        ("2.6.0+cu126", False),  # some builds of it had the new string, some the old
        ("2.10.0", False),
        ("nonsense", False),
    ],
)
def test_only_torch_that_is_in_the_table_is_judged(version: str, *, judged: bool) -> None:
    on = machine("9.0", driver="580.65.06", torch=version)
    missing = [each for each in judge(_extension(NEW), on).findings if each.rule == "torch-symbols-missing"]
    assert bool(missing) is judged
    if judged:
        assert f"torch {version} does not have" in missing[0].message
        assert any("c10::new" in each for each in missing[0].evidence)


@pytest.mark.parametrize(
    ("wanted", "version", "allowed"),
    [
        ("torch==2.9.1", "2.9", True),
        ("torch==2.9.1", "2.9.0", False),
        ("torch==2.8.0", "2.9", False),
        ("torch>=2.8", "2.9.1+cu128", True),
    ],
)
def test_torch_by_its_minor_release_stands_for_its_patches(wanted: str, version: str, *, allowed: bool) -> None:
    assert torch_releases.requirement_allows(Requirement(wanted), version) is allowed


def test_torch_that_has_them_all_is_not_spoken_of() -> None:
    assert not judge(_extension(NEW), machine("9.0", driver="580.65.06", torch="2.8")).findings
