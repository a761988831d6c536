from __future__ import annotations

import pytest

from cuwheel import api
from cuwheel.facts import tables, toolchain_parts
from cuwheel.report import gpus as gpus_report
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.facts import tables as core_tables
from cuwheel_core.facts.arch import Arch, Capability

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("text", ["12.8", "12.8.1", "cu128", " CU128 ", "CUDA 12.8", "cuda-12.8", "v12.8", "12.8.0.1"])
def test_the_ways_people_write_a_version(text: str) -> None:
    assert toolkits.find_toolkit(text).version == "12.8"


@pytest.mark.parametrize(("text", "major"), [("13", 13), ("cu12", 12), ("CUDA 11", 11)])
def test_a_major_alone_is_its_newest_minor(text: str, major: int) -> None:
    assert toolkits.find_toolkit(text) == [row for row in toolkits.all_toolkits() if row.major == major][-1]


@pytest.mark.parametrize("text", ["12.7", "cu127", "10.2", "99", "", "cuda", "12.8x", "cu1"])
def test_an_unknown_version_suggests_one(text: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        toolkits.find_toolkit(text)
    assert toolkits.find_toolkit(caught.value.suggestions[0]) in toolkits.all_toolkits()


def test_every_toolkit_has_its_last_patch_release() -> None:
    latest = {versions.minor(each) for each in tables.tables().toolchains.releases.latest}
    assert latest ^ {row.version for row in toolkits.all_toolkits()} == set(), "releases.latest of toolchains.toml"


def test_the_newest_is_the_last() -> None:
    keys = [versions.key(row.version) for row in toolkits.all_toolkits()]
    assert versions.key(toolkits.newest_toolkit().version) == max(keys)


@pytest.mark.parametrize(
    ("version", "arch", "supported"),
    [
        ("11.8", "sm_90", True),
        ("11.8", "sm_90a", False),
        ("12.0", "sm_90a", True),
        ("12.8", "compute_100f", False),
        ("12.9", "sm_100f", True),
        ("12.9", "sm_101", True),
        ("13.0", "sm_101", False),
        ("13.0", "sm_70", False),
        ("13.0", "lto_110", True),
    ],
)
def test_supports(version: str, arch: str, supported: bool) -> None:  # noqa: FBT001 - a column of the table above
    assert toolkits.find_toolkit(version).supports(Arch.parse(arch)) is supported


def test_support_of_an_architecture_has_no_gaps() -> None:
    numbers = {number for row in toolkits.all_toolkits() for number in row.architectures}
    for number in numbers:
        flags = [row.supports(Arch.parse(number)) for row in toolkits.all_toolkits()]
        first, last = flags.index(True), len(flags) - flags[::-1].index(True)
        assert all(flags[first:last]), number
        assert toolkits.toolkits_supporting(Arch.parse(number)) == toolkits.all_toolkits()[first:last]


def test_every_suffix_has_its_plain_architecture() -> None:
    for row in toolkits.all_toolkits():
        for number in row.architectures:
            assert number.rstrip("af") in row.architectures, (row.version, number)


def test_a_driver_knows_the_toolkit_it_came_with_and_none_newer() -> None:
    for row in toolkits.all_releases():
        assert row.driver.linux is not None
        assert toolkits.driver_cuda(row.driver.linux) == row
        if row.driver.windows:
            assert toolkits.driver_cuda(row.driver.windows, "windows") == row


@pytest.mark.parametrize(
    ("driver", "version"),
    [
        ("580.95.05", "13.0"),
        ("550.163.01", "12.4"),
        ("535.54.03", "12.2"),
        ("390.157", "9.1"),
        ("418.87.00", "10.1"),
        ("570", "12.8"),  # a branch alone: whatever its release, it came for this CUDA
    ],
)
def test_driver_between_two_toolkits(driver: str, version: str) -> None:
    found = toolkits.driver_cuda(driver)
    assert found is not None
    assert found.version == version


def test_a_driver_older_than_the_table() -> None:
    assert toolkits.driver_cuda("340.108") is None


@pytest.mark.parametrize(
    ("cuda", "linux", "windows"),
    [
        ("9.0", "384.81", "385.54"),
        ("9.1", "390.46", "391.29"),
        ("9.2", "396.26", "397.44"),
        ("10.0", "410.48", "411.31"),
        ("10.1", "418.39", "418.96"),
        ("10.2.89", "440.33", "441.22"),
        ("10", "410.48", "411.31"),
        ("11.8", "450.80.02", "452.39"),
        ("12", "525.60.13", "528.33"),
        ("99", None, None),
    ],
)
def test_before_minor_version_compatibility_every_runtime_needs_its_own_driver(
    cuda: str, linux: str | None, windows: str | None
) -> None:
    assert toolkits.runtime_floor(cuda, "linux") == linux
    assert toolkits.runtime_floor(cuda, "windows") == windows


def test_old_releases_are_looked_up_and_nothing_is_built_with_them() -> None:
    assert toolkits.find_release("10.2").driver.linux == "440.33"
    with pytest.raises(UnknownNameError):
        toolkits.find_toolkit("10.2")
    assert not {row.version for row in toolkits.all_toolkits()} & {"9.0", "10.2"}


@pytest.mark.parametrize(
    ("gpu", "first", "known"),
    [
        ("gtx 1080 ti", "8.0", True),
        ("v100", "9.0", True),
        ("t4", "10.0", True),
        ("a100", "11.0", True),
        ("m40", "7.0", False),
    ],
)
def test_a_gpu_has_its_true_first_toolkit(gpu: str, first: str, known: bool) -> None:  # noqa: FBT001
    row = api.gpus(gpu).gpus[0]
    assert (row.cuda_first, row.cuda_first_known) == (first, known)
    assert ("or earlier" in str(gpus_report.document(api.gpus(gpu), verbose=True))) is not known


def test_minor_compatibility_reaches_below_the_newest_driver() -> None:
    for row in toolkits.all_toolkits():
        floor = toolkits.minor_compat_floor(row.major)
        newest = toolkits.find_toolkit(str(row.major)).driver.linux
        assert floor is not None
        assert newest is not None
        assert versions.at_least(newest, floor)
    assert toolkits.minor_compat_floor(99) is None
    assert toolkits.minor_compat_floor(12, "windows") == "528.33"


def test_host_compilers_and_zstd() -> None:
    assert toolkits.find_toolkit("12.8").host_compilers.gcc_max == 14
    assert toolkits.zstd_floor() is not None
    assert toolkits.zstd_floor("windows") is None
    assert toolkits.forward_compatible("data centre")
    assert not toolkits.forward_compatible("GeForce")


@pytest.mark.parametrize(
    ("version", "glibc", "symbol"),
    [
        ("12.9", "2.41", "cospi"),
        ("12.9", "2.40", None),
        ("13.0", "2.41", None),
        ("13.1", "2.42", "rsqrt"),
        ("13.2", "2.42", None),
    ],
)
def test_glibc_clash(version: str, glibc: str, symbol: str | None) -> None:
    clash = toolkits.glibc_clash(toolkits.find_toolkit(version), glibc)
    assert (symbol in clash.symbols) if clash and symbol else (clash is None and symbol is None)


def test_families() -> None:
    assert gpus.family_of(Capability(12, 0)) == (Capability(12, 0), Capability(12, 1))
    assert gpus.family_of(Capability(9, 0)) == ()
    assert gpus.find_architecture(Capability(8, 7)).tegra
    with pytest.raises(UnknownNameError):
        gpus.find_architecture(Capability(99, 0))


@pytest.mark.parametrize(
    ("version", "spelling", "takes"),
    [
        ("3.18.4", "plain", True),
        ("3.22.6", "all-major", False),
        ("3.23.3", "all-major", True),
        ("3.22.6", "f", True),  # handed on unread
        ("3.24.3", "a", False),
        ("3.25.2", "a", True),
        ("3.25.2", "f", False),
        ("3.31.6", "f", False),
        ("3.31.10", "f", True),
        ("4.0.0", "f", False),
        ("4.0.3", "f", True),
        ("4.4.4", "f", True),
    ],
)
def test_cmake_takes(version: str, spelling: str, takes: bool) -> None:  # noqa: FBT001 - a column of the table above
    assert toolchain_parts.cmake_takes(version, spelling) is takes


def test_cmake_takes_no_unknown_spelling() -> None:
    with pytest.raises(UnknownNameError):
        toolchain_parts.cmake_takes("4.4.4", "everything")


@pytest.mark.parametrize(
    ("l4t", "jetpack", "cuda"),
    [("36.4", "6.1", "12.6"), ("36.4.3", "6.2", "12.6"), ("36.4.7", "6.2.1", "12.6"), ("35.4.1", "5.1.2", "11.4"),
     ("39.2.0", "7.2", "13.2"), ("39.2.1", "7.2.1", "13.2"), ("38.2.1", "7.0", "13.0"), ("36.3", "6.0", "12.2"),
     ("35.6.2", "5.1.5", "11.4"), ("32.7.6", "4.6.1", "10.2")],
)  # fmt: skip
def test_a_release_of_l4t_tells_jetpack_and_cuda(l4t: str, jetpack: str, cuda: str) -> None:
    row = toolkits.jetson_release(l4t)
    assert row
    assert (row.jetpack, row.cuda) == (jetpack, cuda)


@pytest.mark.parametrize("l4t", ["not known", "", "37.1", "28.2", "99"])
def test_a_release_of_l4t_that_nobody_knows(l4t: str) -> None:
    assert toolkits.jetson_release(l4t) is None


def test_every_tegra_of_the_one_distribution_joined_with_a_release_that_compiles_for_it() -> None:
    for row in core_tables.tables().toolkits.arm64.joined:
        assert toolkits.find_toolkit(row.cuda).supports(Arch.parse(row.capability)), row.capability
        release = toolkits.jetson_release(row.l4t)
        assert release
        assert release.cuda == row.cuda


def test_each_provider_has_its_own_last_release() -> None:
    assert toolchain_parts.release_of("12.8") == "12.8.2"
    assert toolchain_parts.release_of("12.8", "conda") == "12.8.1"
    assert toolchain_parts.release_of("12.9", "conda") == toolchain_parts.release_of("12.9")
    assert toolchain_parts.release_of("99.9", "conda") is None
    assert "ubuntu20.04" in toolchain_parts.image_of("11.6.2")
    assert "ubuntu22.04" in toolchain_parts.image_of("11.7.1")


def test_gpus_and_toolkits_tell_the_same() -> None:
    for gpu in api.gpus().gpus:
        able = [row.version for row in api.toolkits(compiles=gpu.name).toolkits]
        assert (gpu.cuda_first, gpu.cuda_last) == ((able[0], able[-1]) if able else (None, None)), gpu.name
