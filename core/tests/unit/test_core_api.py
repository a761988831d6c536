"""What the core promises on its first page."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import make_tables
import msgspec
import pytest

import cuwheel_core
from cuwheel_core import api
from cuwheel_core.__main__ import main
from cuwheel_core.support.structs import to_json

ROOT = Path(__file__).parents[3]
BINARIES = ROOT / "tests" / "fixtures" / "bin"
LIBRARY = BINARIES / "all-124.so"  # sm_70, sm_90, sm_90a and PTX of compute_90a


@pytest.mark.parametrize("name", cuwheel_core.__all__)
def test_a_name_that_is_promised_is_there_and_on_the_first_page(name: str) -> None:
    assert getattr(cuwheel_core, name)
    assert f"`{name}" in (ROOT / "core" / "README.md").read_text()


def test_a_name_that_is_not_promised_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'survey'"):
        _ = cuwheel_core.survey


def test_bytes_and_a_path_are_read_alike() -> None:
    from_path = api.read(LIBRARY)
    assert api.read(LIBRARY.read_bytes(), str(LIBRARY)) == from_path
    assert {f"{row.kind} {row.arch}" for row in from_path.device_code} >= {"cubin sm_70", "cubin sm_90", "cubin sm_90a"}


def test_what_is_no_binary_is_refused() -> None:
    with pytest.raises(cuwheel_core.CuwheelError, match="neither ELF, PE"):
        api.read(b"hello", "x")


@pytest.mark.parametrize(
    ("gpu", "driver", "outcome", "error"),
    [
        ("h100", "580.65.06", "native", None),
        ("7.5", "580.65.06", "compatible", None),
        ("12.0", "580.65.06", "fails", 209),
    ],
)
def test_an_outcome_has_its_error(gpu: str, driver: str, outcome: str, error: int | None) -> None:
    found = api.outcome(api.read(LIBRARY), api.device(gpu, driver=driver))
    assert (found.outcome, found.predicted_error and found.predicted_error.code) == (outcome, error)
    assert found.conditions == ()


def test_what_is_not_known_is_a_condition_with_its_parts() -> None:
    (condition,) = api.outcome(api.read(LIBRARY), api.device("h100")).conditions
    assert condition.id == "driver-at-least"
    assert (condition.parts.version, condition.parts.cuda) == ("525.60.13", ("12",))
    assert str(condition) == "driver 525.60.13 or later (CUDA 12)"


def test_kernels_have_their_container_and_architecture() -> None:
    found = api.kernels(LIBRARY)
    assert {str(each.arch) for each in found if each.name == "uses_a_stack"} >= {"sm_70", "sm_90"}
    assert all(each.container is not None for each in found)


def test_coverage_of_a_wheel_a_folder_and_a_file(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(LIBRARY, "demo/lib.so")
        archive.writestr("demo/text.py", "x = 1\n")
        archive.writestr("demo/broken.so", LIBRARY.read_bytes()[:200])
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    found = api.coverage(wheel, ["h100", "12.0"])
    assert [each.path for each in found.libraries] == ["demo/lib.so"]
    assert found.lacking("h100") == ()
    assert {each.name for each in found.lacking("12.0")} == {each.name for each in api.kernels(LIBRARY)}
    assert [each.rule for each in found.findings] == ["library-unreadable"]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "there")
    below = api.coverage(tmp_path / "there", ["h100", "12.0"])
    assert (below.libraries, below.kernels) == (found.libraries, found.kernels)
    contents = api.read_package(wheel)
    assert contents.distribution
    assert (contents.distribution.name, len(contents.libraries)) == ("demo", 1)


def test_a_kernel_that_one_architecture_has_not_is_found() -> None:
    """`names-130.so` and its kin: the driver takes one entry of a container, and that holds the kernel or not."""
    for path in sorted(BINARIES.glob("names-*.so")):
        found = api.coverage(path, ["7.5", "9.0", "12.0"])
        by_hand = {each.name for each in api.kernels(path)}
        assert {each.name for each in found.kernels} == by_hand


def test_many_threads_read_as_one() -> None:
    paths = [each for each in sorted(BINARIES.iterdir()) if each.suffix in (".so", ".a", ".cubin", ".fatbin", ".o")]

    def answer(path: Path) -> bytes:
        return msgspec.json.encode(api.coverage(path, ["h100", "8.6", "12.0"]), enc_hook=to_json)

    alone = [answer(each) for each in paths]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(3):
            assert list(pool.map(answer, paths)) == alone


@pytest.mark.parametrize("table", make_tables.tables(), ids=lambda each: each.stem)
def test_the_json_that_ships_is_made_of_the_toml_beside_it(table: Path) -> None:
    assert table.with_suffix(".json").read_text(encoding="utf-8") == make_tables.as_json(table), "./run tables"


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(LIBRARY), "--on", "sm_90", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["libraries"][0]["outcomes"] == ["native"]
    assert main([str(LIBRARY), "--on", "12.0"]) == 1
    assert "0 of 4 kernels have code" in capsys.readouterr().out
    assert main(["/there/is/none.so"]) == 4
    assert "No such file" in capsys.readouterr().err


def test_nothing_but_what_it_requires_is_imported() -> None:
    """By the import statements of every module; zlib-ng and Python 3.14's own zstd are used where they are there."""
    package = Path(cuwheel_core.__file__).parent
    names = [each.relative_to(package.parent).with_suffix("").as_posix() for each in sorted(package.rglob("*.py"))]
    imported = set()
    for name in names:
        text = (package.parent / f"{name}.py").read_text()
        imported |= set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE))
    known = {*sys.stdlib_module_names, "cuwheel_core", "msgspec", "lz4", "zstandard", "compression", "zlib_ng"}
    assert imported - known == set()
