"""Ids of source files in names of kernels, and which file of another build each belongs to."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from cuwheel.changes.graft import subject

HERE = Path("/job/src")


def made(path: str, tail: str = "run") -> str:
    """As cudafe++ does it."""
    name = "".join(each if each.isalnum() and each.isascii() else "_" for each in path.rpartition("/")[2])
    return f"_{zlib.crc32(path.encode()):08x}_{len(name)}_{name}_{tail}"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("_b96781cf_10_kernels_cu_2c92614a_636", "kernels_cu"),
        ("_eb346348_4_t_cu_run", "t_cu"),
        ("_eb346348_8_a_b_c_cu_run", "a_b_c_cu"),
        ("_eb346348_4_t_cu", None),
        ("_eb346348_5_t_cu_run", None),
        ("_eb34634_4_t_cu_run", None),
        ("eb346348_4_t_cu_run", None),
        ("_eb346348_9999_t_cu_run", None),
        ("_eb346348_4_t_cu_ru=n", None),
        ("", None),
    ],
)
def test_what_is_an_id(text: str, name: str | None) -> None:
    found = subject.parse_module_id(text)
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("_ZN31_GLOBAL__N__eb346348_4_t_cu_run1gEPi", ["_eb346348_4_t_cu_run"]),
        ("_ZN4cuda3std3__431_GLOBAL__N__eb346348_4_t_cu_run6ignoreE", ["_eb346348_4_t_cu_run"]),
        ("_ZN45_INTERNAL_b96781cf_10_kernels_cu_76c8977b_6304cuda1xE", ["_b96781cf_10_kernels_cu_76c8977b_630"]),
        ("_ZN99_GLOBAL__N__eb346348_4_t_cu_run1gEPi", ["_eb346348_4_t_cu_run1gEPi"]),
        ("_ZN5_GLOBAL__N__eb346348_4_t_cu_run1gEPi", []),
        ("_Z4plainPf", []),
    ],
)
def test_ids_in_names(name: str, ids: list[str]) -> None:
    assert list(subject.module_ids_in([name])) == ids


def test_each_file_gets_the_id_that_it_had_wherever_it_was() -> None:
    files = [
        "csrc/one.cu",
        "csrc/a/kernel.cu",
        "csrc/b/kernel.cu",
        "csrc/c/kernel.cu",
        "csrc/odd-name.v2.cu",
        "setup.py",
    ]
    there = ["csrc/one.cu", "csrc/a/kernel.cu", "csrc/b/kernel.cu", "csrc/odd-name.v2.cu"]
    ids = [made(f"/build/x/{file}", f"2c92614a_{number}") for number, file in enumerate(there)]
    assert subject.match_module_ids(ids, files).assigned(HERE) == {
        str(HERE / file): text for file, text in zip(there, ids, strict=True)
    }


def test_a_file_that_was_made_by_the_build_is_known_by_its_name() -> None:
    ids = [made("/src/x/one.cu"), made("/src/x/two.cu"), made("/src/x/build/made.cu")]
    found = subject.match_module_ids(ids, ["one.cu", "two.cu"]).assigned(HERE)
    assert found == {str(HERE / "one.cu"): ids[0], str(HERE / "two.cu"): ids[1], "made_cu": ids[2]}


def test_a_file_that_was_compiled_twice_and_names_that_mean_two_files_get_none() -> None:
    twice = [made("/x/one.cu", "2c92614a_1"), made("/x/one.cu", "2c92614a_2")]
    made_files = [made("/x/build/a/made.cu"), made("/x/build/b/made.cu")]
    kept = made("/x/two.cu")
    found = subject.match_module_ids([*twice, *made_files, kept], ["one.cu", "two.cu"]).assigned(HERE)
    assert found == {str(HERE / "two.cu"): kept}


def test_without_ids_nothing_is_assigned() -> None:
    for ids in ([], ["nonsense", "def x"]):
        found = subject.match_module_ids(ids, ["one.cu"])
        assert found.assigned(HERE) == {}
        assert found.folder_of(["/src/one.cu"]) is None


def test_the_folder_of_the_source_is_known_by_its_crc() -> None:
    files = ["csrc/one.cu", "csrc/two.cu", "include/x.h"]
    found = subject.match_module_ids([made(f"/home/me/x/{file}") for file in files[:2]], files)
    assert found.folder_of(["/usr/include/stdio.h", "/home/me/x/include/x.h"]) == "/home/me/x"
    assert found.folder_of(["/usr/include/stdio.h", "/home/me/y/include/x.h", "x.h", ""]) is None
