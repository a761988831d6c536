"""Names of projects and wheels, platform tags and processors; packaging and Python say what is right."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from cuwheel_core.device_code import elf, pe
from cuwheel_core.wheel import tags
from cuwheel_core.wheel.tags import PROCESSORS, Platform, WheelName, normalised, plain_name, platform_of, processor_name

TAGS = "cp311.cp312-abi3-manylinux_2_28_x86_64"


def test_parts_of_a_name() -> None:
    found = WheelName.parse(f"torch-2.11.0+cu130-1-{TAGS}.whl")
    assert found is not None
    assert (found.name, found.version, found.build, found.variant) == ("torch", "2.11.0+cu130", "1", None)
    assert found.tags == ("cp311-abi3-manylinux_2_28_x86_64", "cp312-abi3-manylinux_2_28_x86_64")


@pytest.mark.parametrize(
    ("name", "build", "variant"),
    [
        (f"a-1-{TAGS}.whl", None, None),
        (f"a-1-2build-{TAGS}.whl", "2build", None),
        (f"a-1-{TAGS}-cu13.whl", None, "cu13"),
        (f"a-1-2-{TAGS}-cu13.whl", "2", "cu13"),
        ("a-1-py3-none-any.whl", None, None),
        ("a-1-py3-none-linux_x86_64.linux_aarch64.whl", None, None),
    ],
)
def test_a_name_is_written_as_it_was_read(name: str, build: str | None, variant: str | None) -> None:
    found = WheelName.parse(name)
    assert found is not None
    assert (found.build, found.variant, str(found)) == (build, variant, name)


@pytest.mark.parametrize(
    "name",
    [
        "torch.whl",
        "",
        ".whl",
        "a-1-py3-none.whl",
        "a-1-py3-none-any.zip",
        "a--py3-none-any.whl",
        f"a-1-2-3-{TAGS}-x.whl",
    ],
)
def test_what_is_no_name_of_a_wheel(name: str) -> None:
    assert WheelName.parse(name) is None


def test_the_name_without_a_label() -> None:
    assert plain_name(f"a-1-{TAGS}-cu13.whl") == f"a-1-{TAGS}.whl"
    for name in (f"a-1-2build-{TAGS}.whl", "a-1.tar.gz", ""):
        assert plain_name(name) == name


WORDS = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9]|[_.](?![_.]))*[A-Za-z0-9]", fullmatch=True)
VERSIONS = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}(rc[0-9]|\.post[0-9])?(\+[a-z0-9]{1,6})?", fullmatch=True)
BUILDS = st.none() | st.from_regex(r"[0-9]{1,3}[a-z_]{0,5}", fullmatch=True)


def several(words: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=3, unique=True).map(".".join)


# As files on indexes have them.
PLATFORMS = {
    "any": Platform(),
    "linux_x86_64": Platform("linux", "x86_64"),
    "linux_aarch64": Platform("linux", "aarch64"),
    "linux_armv7l": Platform("linux", "armv7l"),
    "linux_i686": Platform("linux", "i686"),
    "manylinux1_i686": Platform("linux", "i686", glibc="2.5"),
    "manylinux1_x86_64": Platform("linux", "x86_64", glibc="2.5"),
    "manylinux2010_x86_64": Platform("linux", "x86_64", glibc="2.12"),
    "manylinux2014_aarch64": Platform("linux", "aarch64", glibc="2.17"),
    "manylinux2014_ppc64le": Platform("linux", "ppc64le", glibc="2.17"),
    "manylinux_2_17_s390x": Platform("linux", "s390x", glibc="2.17"),
    "manylinux_2_28_x86_64": Platform("linux", "x86_64", glibc="2.28"),
    "manylinux_2_39_riscv64": Platform("linux", "riscv64", glibc="2.39"),
    "musllinux_1_1_x86_64": Platform(tags.MUSL, "x86_64", musl="1.1"),
    "musllinux_1_2_armv7l": Platform(tags.MUSL, "armv7l", musl="1.2"),
    "win32": Platform("windows", "i686"),
    "win_amd64": Platform("windows", "x86_64"),
    "win_arm64": Platform("windows", "aarch64"),
    "macosx_10_9_x86_64": Platform(tags.MACOS, "x86_64"),
    "macosx_11_0_arm64": Platform(tags.MACOS, "aarch64"),
    "macosx_10_9_universal2": Platform(tags.MACOS),
    "macosx_10_6_intel": Platform(tags.MACOS),
    "ios_13_0_arm64_iphoneos": Platform("iOS"),
    "android_21_arm64_v8a": Platform("Android"),
    # None that there is.
    "manylinux": Platform(),
    "manylinux_2_x86_64": Platform(),
    "manylinux_2_99999_x86_64": Platform(),
    "win_mips": Platform(),
    "": Platform(),
}


@pytest.mark.parametrize(("platform", "stands_for"), PLATFORMS.items())
def test_what_a_platform_tag_stands_for(platform: str, stands_for: Platform) -> None:
    assert platform_of(platform) == platform_of(f"cp312-cp312-{platform}") == stands_for


@given(
    WORDS,
    VERSIONS,
    BUILDS,
    several(["cp39", "cp312", "py2", "py3", "pp310"]),
    several(["cp39", "none", "abi3", "cp313t"]),
    several([each for each in PLATFORMS if each]),
)
def test_names_of_wheels_are_read_as_packaging_does(
    name: str, version: str, build: str | None, python: str, abi: str, platform: str
) -> None:
    name = re.sub(r"[-_.]+", "_", name)
    made = WheelName(name, version, python, abi, platform, build)
    found = WheelName.parse(str(made))
    assert found == made
    project, release, number, known = parse_wheel_filename(str(made))
    assert (found.project, Version(found.release)) == (project, release)
    assert bool(found.build) == bool(number)
    assert sorted(found.tags) == sorted(map(str, known))


@given(st.text(alphabet="aZ09-_. ßİ", max_size=20))
def test_names_of_projects_are_as_packaging_has_them(name: str) -> None:
    assert normalised(name) == canonicalize_name(name)


PARTS = st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), min_size=1, max_size=3).map(".".join)


@given(st.tuples(PARTS, PARTS, PARTS).map("-".join))
def test_tags_in_short_are_those_of_packaging(tag: str) -> None:
    assert set(tags.expanded(*tags.parts_of(tag))) == {str(each) for each in parse_tag(tag)}


def test_a_name_with_tags_by_the_thousand_is_expanded_to_some_of_them() -> None:
    many = ".".join("a" * 5000)
    assert len(tags.expanded(many, many, many)) == 1000


def test_in_names_of_files_an_underscore_stands_for_a_hyphen() -> None:
    found = WheelName.parse("a_B-1.0_1-py3-none-any.whl")
    assert found
    assert (found.project, found.release, str(found)) == ("a-b", "1.0-1", "a_B-1.0_1-py3-none-any.whl")


def test_a_tag_that_is_not_whole() -> None:
    assert tags.parts_of("cp312") == ("cp312", "", "")
    assert tags.parts_of("a-b-c-d") == ("a", "b", "c-d")


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        *((each, "x86_64") for each in ("x86_64", "AMD64", "amd64", "x64", "X86_64")),
        *((each, "aarch64") for each in ("aarch64", "ARM64", "arm64")),
        *((each, "i686") for each in ("i686", "i386", "x86", "i586")),
        ("ppc64el", "ppc64le"),
        ("loongarch64", "loongarch64"),
        ("", ""),
    ],
)
def test_processors_have_one_name(spelling: str, name: str) -> None:
    assert processor_name(spelling) == name


def test_the_processor_as_python_calls_it() -> None:
    said = [tags.machine_name(system, cpu) for system in ("linux", "windows") for cpu in ("x86_64", "aarch64", "mips")]
    assert said == ["x86_64", "aarch64", "mips", "AMD64", "ARM64", "mips"]


def test_readers_say_processors_as_tags_do() -> None:
    assert pe.MACHINES[0x14C] == platform_of("win32").cpu == "i686"
    for name, row in PROCESSORS.items():
        assert elf.MACHINES[row.elf] == name == platform_of(f"linux_{name}").cpu
        assert row.pe is None or pe.MACHINES[row.pe] == name == platform_of(row.windows_tag).cpu
        assert not row.windows_tag or tags.windows_platform(name) == row.windows_tag


def test_no_two_processors_share_a_number_or_a_name() -> None:
    rows = PROCESSORS.values()
    for field in ("elf", "pe", "windows", "windows_tag", "debian"):
        said = [getattr(row, field) for row in rows if getattr(row, field)]
        assert len(set(said)) == len(said), field


def test_what_installers_of_linux_take() -> None:
    known = list(tags.linux_platforms("x86_64", 17))
    assert known[:3] == ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_16_x86_64"]
    assert known[-1] == "linux_x86_64"
    glibc = [platform_of(each).glibc for each in known]
    assert set(glibc) == {*(f"2.{minor}" for minor in range(5, 18)), None}


def test_the_module_travels_with_python_alone() -> None:
    source = Path(tags.__file__).read_text(encoding="utf-8")
    modules = set(re.findall(r"^(?:from|import) ([\w.]+)", source, re.MULTILINE))
    others = {each for each in modules if each.partition(".")[0] not in sys.stdlib_module_names}
    assert others == {"cuwheel_core.support.patterns"}
