"""The table of toolkits against real ones: what ptxas and nvcc list, what `host_config.h` lets through."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import ToolError
from cuwheel.support import process
from cuwheel_core.facts import toolkits as facts
from cuwheel_core.facts import versions
from cuwheel_core.facts.tables import tables
from tests.fixtures import cache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cuwheel_core.facts.rows.toolkits import Toolkit

_MINUTE = 60.0
_MEASURED = [row for row in facts.all_toolkits() if row.measured]
_KERNEL = ".version {isa}\n.target sm_{arch}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"


@pytest.fixture
def toolkits() -> Callable[[Toolkit], Path]:
    """The folder of the release that a row was measured on, from the package index, kept in the cache."""

    def get(row: Toolkit) -> Path:
        tag = f"-cu{row.major}" if row.major < 13 else ""
        names = [f"nvidia-cuda-nvcc{tag}"] if tag else ["nvidia-cuda-nvcc", "nvidia-cuda-crt"]
        wanted = [f"{name}=={row.measured_release}" for name in names]
        try:
            return cache.made(f"facts/{row.measured_release}", lambda target: _install(target, wanted))
        except cache.UnavailableError as error:
            pytest.skip(str(error))

    return get


def _install(target: Path, requirements: list[str]) -> None:
    for requirement in requirements:
        cache.pip_download(target, requirement)
    for wheel in target.glob("*.whl"):
        shutil.unpack_archive(wheel, target, format="zip")
        wheel.unlink()
    for program in target.rglob("bin/*"):
        if program.is_file():
            program.chmod(0o755)


def _file(folder: Path, pattern: str) -> Path:
    return next(iter(sorted(folder.rglob(pattern))))


def _takes(ptxas: Path, scratch: Path, isa: str, target: str, arch: str) -> bool:
    source = scratch / "k.ptx"
    source.write_text(_KERNEL.format(isa=isa, arch=target))
    command: list[str | Path] = [ptxas, f"-arch=sm_{arch}", source, "-o", scratch / "k.cubin"]
    return process.run(command, timeout=_MINUTE, check=False).status == 0


@pytest.mark.download
@pytest.mark.parametrize("row", _MEASURED, ids=lambda row: row.version)
def test_ptxas_lists_these_architectures(row: Toolkit, toolkits: Callable[[Toolkit], Path]) -> None:
    ptxas = _file(toolkits(row), "bin/ptxas")
    text = process.run([ptxas, "--help"], timeout=_MINUTE).stdout
    for kind in ("sm", "compute", "lto"):
        assert set(re.findall(rf"'{kind}_(\d+[af]?)'", text)) == set(row.architectures), kind


@pytest.mark.download
@pytest.mark.parametrize("row", _MEASURED, ids=lambda row: row.version)
def test_ptxas_reads_this_isa_and_none_newer(row: Toolkit, toolkits: Callable[[Toolkit], Path], tmp_path: Path) -> None:
    ptxas = _file(toolkits(row), "bin/ptxas")
    major, minor = (int(part) for part in row.ptx_isa.split("."))
    arch = "80"
    assert _takes(ptxas, tmp_path, row.ptx_isa, arch, arch)
    assert not _takes(ptxas, tmp_path, f"{major}.{minor + 1}", arch, arch)
    assert not _takes(ptxas, tmp_path, f"{major + 1}.0", arch, arch)


@pytest.mark.download
@pytest.mark.parametrize("row", _MEASURED, ids=lambda row: row.version)
def test_host_config_has_these_limits(row: Toolkit, toolkits: Callable[[Toolkit], Path]) -> None:
    text = _file(toolkits(row), "crt/host_config.h").read_text()
    limits = row.host_compilers
    assert f"gcc versions later than {limits.gcc_max} are not supported" in text
    # The condition, not the message: that of 12.2 and 12.3 is one release behind. Other clangs come before it.
    assert int(re.findall(r"^#if \(__clang_major__ >= *(\d+)\)", text, re.MULTILINE)[-1]) - 1 == limits.clang_max
    msc = re.search(r"_MSC_VER < (\d+) \|\| _MSC_VER >= (\d+)", text)
    assert msc is not None
    assert (int(msc[1]), int(msc[2]) - 1) == (limits.msc_ver_min, limits.msc_ver_max)


@pytest.mark.download
@pytest.mark.parametrize("row", _MEASURED, ids=lambda row: row.version)
def test_headers_clash_with_these_c_libraries(row: Toolkit, toolkits: Callable[[Toolkit], Path]) -> None:
    """A header that is ready for a C library says how it declares the functions in question."""
    text = _file(toolkits(row), "crt/math_functions.h").read_text()
    for clash in tables().toolkits.glibc_clash:
        for symbol in clash.symbols:
            declared = re.search(rf"^extern .*\b{symbol}\((?:double|float) x\)(.*);", text, re.MULTILINE)
            assert declared is not None, symbol
            ready = bool(declared[1].strip())
            assert ready != versions.at_least(clash.last_broken, row.version), symbol


@pytest.mark.download
def test_family_code_compiles_for_its_family(toolkits: Callable[[Toolkit], Path], tmp_path: Path) -> None:
    row = _MEASURED[-1]
    ptxas = _file(toolkits(row), "bin/ptxas")
    plain = [number for number in row.architectures if number.isdigit()]
    for architecture in tables().architectures.architecture:
        number = architecture.capability.replace(".", "") + "f"
        if number in row.architectures:
            served = {arch for arch in plain if _takes(ptxas, tmp_path, row.ptx_isa, number, arch)}
            assert served == {each.replace(".", "") for each in architecture.family}, number


def test_the_nvcc_of_this_machine(tmp_path: Path) -> None:
    """Without a download: whichever toolkit is installed lists what its row says and writes its PTX ISA."""
    nvcc = shutil.which("nvcc", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))
    if nvcc is None:
        pytest.skip("no nvcc is installed")
    release = re.search(r"release (\d+\.\d+)", process.run([nvcc, "--version"], timeout=_MINUTE).stdout)
    assert release is not None
    row = facts.find_toolkit(release[1])
    plain = {number for number in row.architectures if number.isdigit()}
    for option, kind in (("--list-gpu-code", "sm"), ("--list-gpu-arch", "compute")):
        listed = process.run([nvcc, option], timeout=_MINUTE).stdout.split()
        assert {each.removeprefix(f"{kind}_").rstrip("af") for each in listed} == plain
    source, output = tmp_path / "k.cu", tmp_path / "k.ptx"
    source.write_text("__global__ void k() {}\n")
    try:
        process.run([nvcc, "-ptx", source, "-o", output], timeout=_MINUTE)
    except ToolError as error:
        pytest.skip(f"this nvcc compiles nothing here: {error.message}")
    assert f".version {row.ptx_isa}" in output.read_text()
