"""What holds of the rows, and that a broken table names all of its mistakes at once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from facts import consistency

from cuwheel.facts import tables
from cuwheel_core.errors import FactsError
from cuwheel_core.facts import tables as core_tables
from cuwheel_core.facts import versions

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit
_FOLDERS = (tables.DATA, core_tables.DATA)
_FILES = tuple(path for folder in _FOLDERS for path in folder.glob("*.toml"))


def test_the_tables_that_ship_are_consistent() -> None:
    assert consistency.problems(*_FOLDERS) == ()


def test_every_table_that_ships_is_checked_and_can_be_read() -> None:
    checked = {name.removesuffix(".toml") for name in consistency.TABLES}
    assert {path.stem for path in _FILES} == checked
    for path in _FILES:
        made = tables.tables() if path.parent == tables.DATA else core_tables.tables()
        assert type(getattr(made, path.stem)) is consistency.TABLES[path.name][0]


def test_reading_a_table_checks_no_other_and_its_shape_alone(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _edit(copy / "gpus.json", ('"DGX Spark": "GB10"', '"DGX Spark": "GB11"'))
    (copy / "architectures.json").unlink()
    monkeypatch.setattr(core_tables, "DATA", copy)
    found = core_tables.Tables()
    assert found.gpus.aliases["DGX Spark"] == "GB11"
    with pytest.raises(FactsError, match=r"architectures.json: .*No such file"):
        _ = found.architectures


def test_every_source_is_used_and_has_an_address() -> None:
    for path in _FILES:
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines():
            if line.startswith("[sources."):
                key = line[len("[sources.") : -1]
                assert f'"{key}"' in text, f"{path.name}: source {key} is not used"
    ours, cores = tables.tables(), core_tables.tables()
    for file in (
        cores.architectures,
        ours.ci,
        ours.cmake,
        cores.gpus,
        ours.indexes,
        cores.libraries,
        cores.toolkits,
        ours.torch,
    ):
        for key, source in file.sources.items():
            assert source.title, key
            assert source.url.startswith("https://"), key


def test_every_measured_toolkit_names_its_release() -> None:
    for row in core_tables.tables().toolkits.toolkit:
        assert row.measured == (row.measured_release is not None), row.version
        if row.measured_release:
            assert versions.minor(row.measured_release) == row.version


def test_every_product_of_forward_compatibility_is_one() -> None:
    products = {group.product for group in core_tables.tables().gpus.group}
    assert products.issuperset(core_tables.tables().toolkits.forward_compatibility.products)


def test_every_architecture_has_a_gpu_or_a_reason() -> None:
    everything = core_tables.tables()
    with_gpu = {group.capability for group in everything.gpus.group}
    for row in everything.architectures.architecture:
        assert row.capability in with_gpu or row.note or row.renamed_to, row.capability


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in _FOLDERS:
        shutil.copytree(folder, tmp_path / "data", dirs_exist_ok=True)
    return tmp_path / "data"


def _edit(file: Path, *changes: tuple[str, str]) -> None:
    text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, f"{file.name} has no {old!r}"
        text = text.replace(old, new, 1)
    file.write_text(text, encoding="utf-8")


def _problems(folder: Path) -> tuple[str, ...]:
    return consistency.problems(folder)


def test_every_problem_of_every_file_at_once(copy: Path) -> None:
    _edit(
        copy / "gpus.toml",
        ('"DGX Spark" = "GB10"', '"DGX Spark" = "GB11"\n"g b 1 0" = "GB10"'),
        ('[[group]]\ncapability = "5.0"', '[[group]]\ncapability = "5.9"'),
        ('[[group]]\ncapability = "6.0"', '[[group]]\ncapability = "6.7"'),
        ('tegra = "tegra186"\n', ""),
        ('"Quadro GV100"', '"quadro gv-100", "Quadro GV100"'),
        ("'\\bac\\b'", "'('"),
    )
    _edit(
        copy / "toolkits.toml",
        ('ptx_isa = "8.2"', 'ptx_isa = "7.9"'),
        ('linux = "545.23.06"', 'linux = "5.23.06"'),
        ('"88"', '"98"'),
        ("major = 12\n", "major = 14\n"),
        ('last_broken = "13.1"', 'last_broken = "13.9"'),
        ('source = ["index-wheels", "container-recipe"]', 'source = ["hearsay"]'),
    )
    _edit(copy / "architectures.toml", ('family = ["11.0"]', 'family = ["14.0"]'))
    _edit(copy / "libraries.toml", ('source = ["driver-readme"]', "source = []"))
    _edit(copy / "cmake.toml", ("measured = true", 'measured = "yes"'))
    _edit(copy / "torch.toml", ('"9.0a"', '"90a"'), ('means = "8.7"', 'means = "8.8"'))
    found = _problems(copy)
    for expected in (
        "gpus.toml: alias of unknown GPU 'GB11'",
        "gpus.toml: GPU 'gb10' is there more than once",
        "gpus.toml: GPU 'quadrogv100' is there more than once",
        "no architecture '5.9'",
        "no architecture '6.7'",
        "a tegra chip and a Tegra capability go together",
        "gpus.toml: pattern '('",
        "toolkits.toml: 12.2: PTX ISA 7.9 is older than 8.1",
        "toolkits.toml: 12.3: driver on Linux 5.23.06 is older",
        "toolkits.toml: 13.0: sm_98 has an unknown capability",
        "no minor-compatibility floor for CUDA 12",
        "glibc 2.42: unknown toolkit '13.9'",
        "version '13.4': unknown source 'hearsay'",
        "architectures.toml: 11.0 refers to unknown '14.0'",
        "architectures.toml: 11.0 is not in its own family",
        "libraries.toml: name 'driver' has no source",
        "cmake.toml.spelling",
        "torch.toml: '90a' is no architecture",
        "torch.toml: Ampere+Tegra means '8.8', which is not in the list",
    ):
        assert any(expected in problem for problem in found), f"{expected} not in {found}"


def test_unreadable_files_and_wrong_shapes_are_problems_too(copy: Path) -> None:
    (copy / "gpus.toml").unlink()
    (copy / "cmake.toml").write_text("= nonsense", encoding="utf-8")
    _edit(copy / "libraries.toml", ("[[package]]\nname =", "[[package]]\nnmae ="))
    found = _problems(copy)
    assert any(problem.startswith("gpus.toml:") for problem in found)
    assert any(problem.startswith("cmake.toml:") for problem in found)
    assert any("unknown key 'nmae'; did you mean 'name'?" in problem for problem in found)


def test_order_and_repetition(copy: Path) -> None:
    _edit(
        copy / "toolkits.toml",
        ('version = "12.1"', 'version = "12.3"'),
        ('"75", "80", "86", "87", "88"', '"75", "75", "80", "86f", "x", "87", "88"'),
        ("gcc_max = 16", "gcc_max = 9"),
    )
    found = " ".join(_problems(copy))
    for expected in (
        "stands after",
        "'75' is there more than once",
        "sm_86f has no family",
        "'x' is no",
        "gcc 9 is older",
    ):
        assert expected in found
