"""The gate's rules on all but device code: size, libraries, the C library, search paths, tags."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures import malformed, systems
from tests.unit.building.wheels import found, judge, rules, wheel
from tests.unit.device_code import build

if TYPE_CHECKING:
    from pathlib import Path

PLAN = "sm_80 sm_90 compute_90"
CODE: dict[str, bytes | str] = {"demo/libplain.so": "plain-130.so"}


def test_the_budget_is_of_the_wheel_itself(tmp_path: Path) -> None:
    path = wheel(tmp_path, CODE)
    size = path.stat().st_size
    assert rules(judge(path, PLAN, size=f"{size} B")) == set()
    result = judge(path, PLAN, size=f"{size - 1} B")
    finding = found(result, "wheel-over-budget")
    assert finding.message.endswith(f"{size - 1} B is allowed: 1 B too much")
    assert finding.evidence[0].startswith("demo/libplain.so ")
    assert finding.evidence[-1].startswith("device code: sm_80 ")
    assert not result.succeeded


@pytest.mark.parametrize(("budget", "fits"), [("1 kB", False), ("1 MB", True), ("0.001 MB", False), ("1GiB", True)])
def test_budgets_as_people_write_them(tmp_path: Path, budget: str, *, fits: bool) -> None:
    assert judge(wheel(tmp_path, CODE), PLAN, size=budget).succeeded == fits


@pytest.mark.parametrize(
    ("pattern", "caught"),
    [("libcudart.so.*", True), ("libcudart*", True), ("libc.so.6", True), ("libcublas*", False), ("LIBCUDART*", False)],
)
def test_libraries_that_must_not_be_needed(tmp_path: Path, pattern: str, *, caught: bool) -> None:
    result = judge(wheel(tmp_path, CODE), PLAN, forbidden=(pattern,))
    assert ("forbidden-library" in rules(result)) == caught
    if caught:
        assert f"which is forbidden ({pattern})" in found(result, "forbidden-library").message


def _library(**told: Any) -> bytes:
    return build.dynamic(**told).build()


def test_libraries_that_must_not_be_inside(tmp_path: Path) -> None:
    grafted = "demo.libs/libcublas-1a2b3c4d.so.13"
    path = wheel(tmp_path, {**CODE, grafted: _library(soname="libcublas-1a2b3c4d.so.13")})
    result = judge(path, PLAN)
    finding = found(result, "nvidia-library-inside")
    assert finding.severity == "warning"
    assert finding.message.startswith(f"{grafted} is NVIDIA's cublas")
    assert "nvidia-cublas" in finding.evidence[0]
    assert result.succeeded
    refused = judge(path, PLAN, forbidden=("libcublas.so.*",))
    assert (
        found(refused, "forbidden-library").message
        == f"{grafted} is in the wheel, but it is forbidden (libcublas.so.*)"
    )


def test_nvidias_own_device_code_is_not_held_against_the_plan(tmp_path: Path) -> None:
    """Its libraries choose their kernels themselves."""
    other = build.container(build.entry(build.CUBIN, 75, build.cubin({"k": (8, 0, 0)}, sm=75)))
    files = CODE | {"demo.libs/libcublas-1a2b3c4d.so.13": build.library(other).build()}
    assert rules(judge(wheel(tmp_path, files), PLAN)) == set()
    # Under a name of one's own it is code like any other.
    files = CODE | {"demo.libs/libmine-1a2b3c4d.so.13": build.library(other).build()}
    assert "architecture-not-planned" in rules(judge(wheel(tmp_path, files), PLAN))
    alone: dict[str, bytes | str] = {"demo.libs/libcublas.so.13": build.library(other).build()}
    assert "built-without-device-code" in rules(judge(wheel(tmp_path, alone), PLAN))


def test_a_library_of_the_driver_is_never_shipped(tmp_path: Path) -> None:
    path = wheel(tmp_path, {**CODE, "demo.libs/libcuda-0011aabb.so.1": _library(soname="libcuda.so.1")})
    finding = found(judge(path, PLAN), "nvidia-library-inside")
    assert finding.severity == "error"
    assert finding.fix == '[repair] exclude = ["libcuda.so.1"]'


@pytest.mark.parametrize(("ceiling", "passes"), [("2.28", False), ("2.34", True), ("2.4", False), ("3.0", True)])
def test_the_glibc_ceiling(tmp_path: Path, ceiling: str, *, passes: bool) -> None:
    files = {"demo/a.so": _library(glibc="GLIBC_2.17"), "demo/b.so": _library(glibc="GLIBC_2.34")}
    result = judge(wheel(tmp_path, {**CODE, **files}), PLAN, glibc=ceiling)
    assert result.succeeded == passes
    if not passes:
        finding = found(result, "glibc-over-ceiling")
        assert finding.message == f"it needs glibc 2.34, but may need at most {ceiling}"
        assert "demo/b.so needs GLIBC_2.34" in finding.evidence


@systems.LINUX_PATHS
@pytest.mark.parametrize(
    ("runpath", "severity"),
    [
        ("/job/1f/src/build", "error"),
        ("/job/1f", "error"),
        ("/job/1f/../1f/lib", "error"),
        ("$ORIGIN:/kit/lib64", "error"),
        ("/tmp/pip-build-x/lib", "error"),
        ("/usr/local/cuda/lib64", "warning"),
        ("lib", "warning"),
        ("$ORIGIN/../nvidia/cu13/lib:${ORIGIN}", None),
        ("/job/1f2/lib", "warning"),  # another folder that begins alike
    ],
)
def test_search_paths(tmp_path: Path, runpath: str, severity: str | None) -> None:
    path = wheel(tmp_path, {"demo/own.so": _library(runpath=runpath)})
    result = judge(path, PLAN, places=("/job/1f/",), toolkit_root="/kit")
    told = [each.severity for each in result.findings if each.rule == "search-path-into-build-machine"]
    assert told == ([severity] if severity else [])


@pytest.mark.parametrize(("tag", "caught"), [("py3-none-any", True), ("py3-none-linux_x86_64", False)])
def test_a_library_in_a_wheel_for_any_machine(tmp_path: Path, tag: str, *, caught: bool) -> None:
    assert ("tag-without-platform" in rules(judge(wheel(tmp_path, CODE, tag=tag), PLAN))) == caught


def test_what_cannot_be_read_cannot_pass(tmp_path: Path) -> None:
    whole = build.library(build.container(build.entry(build.CUBIN, 90, build.cubin({"k": (8, 0, 0)})))).build()
    path = wheel(tmp_path, {"demo/cut.so": whole[:200], "demo/x.so": whole})
    result = judge(path, "sm_90")
    assert rules(result) == {"wheel-unreadable"}
    assert "demo/cut.so" in found(result, "wheel-unreadable").message


def test_raw_code_is_only_a_note(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 16_000
    raw = build.container(*[build.entry(build.CUBIN, 90, build.cubin({"k": (8, 0, 0)}) + noise)] * 2)
    result = judge(wheel(tmp_path, {"demo/x.so": build.library(raw).build()}), "sm_90")
    assert result.succeeded
    assert "uncompressed" in found(result, "wheel-could-be-smaller").message


def test_damaged_files_never_crash_it(tmp_path: Path) -> None:
    for _, data in malformed.archives():
        judge(wheel(tmp_path, {"demo/bad.a": data}), PLAN)
    for name, data in islice((*malformed.libraries(), *malformed.fatbins(), *malformed.dlls()), 0, None, 9):
        assert not judge(wheel(tmp_path, {f"demo/bad{malformed.suffix(name)}": data}), "sm_42").succeeded, name


def test_damaged_archives_of_a_toolkit_bring_nothing(tmp_path: Path) -> None:
    library = tmp_path / "kit" / "lib"
    library.mkdir(parents=True)
    for number, (_, data) in enumerate(malformed.archives()):
        (library / f"lib{number}.a").write_bytes(data)
    assert not judge(wheel(tmp_path, CODE), "sm_42", toolkit_root=str(library.parent)).succeeded


@pytest.mark.parametrize(
    ("tag", "rule"),
    [
        ("py3-none-manylinux2014_x86_64", "tag-glibc"),
        ("py3-none-manylinux_2_31_x86_64", "tag-glibc"),
        ("py3-none-manylinux_2_17_x86_64.manylinux_2_34_x86_64", "tag-glibc"),  # each tag is a promise
        ("py3-none-manylinux_2_34_aarch64", "tag-processor"),
        ("py3-none-manylinux_2_34_x86_64.manylinux_2_34_aarch64", "tag-processor"),
        ("py3-none-musllinux_1_2_x86_64", "tag-processor"),
        ("py3-none-macosx_11_0_x86_64", "tag-processor"),
        ("py3-none-win_amd64", "tag-processor"),
        ("py3-none-manylinux_2_34_x86_64", None),
        ("py3-none-linux_x86_64", None),
    ],
)
def test_every_tag_is_held_against_the_libraries(tmp_path: Path, tag: str, rule: str | None) -> None:
    path = wheel(tmp_path, {**CODE, "demo/b.so": _library(glibc="GLIBC_2.32")}, tag=tag)
    result = judge(path, PLAN)
    assert rules(result) == ({rule} if rule else set())
    assert result.succeeded == (rule is None)


@pytest.mark.parametrize(("tag", "suffix"), [("cp312-cp312", "cpython-311"), ("py3-none", "cpython-311")])
def test_the_tag_is_of_the_python_that_the_modules_are_for(tmp_path: Path, tag: str, suffix: str) -> None:
    module = {f"demo/native.{suffix}-x86_64-linux-gnu.so": _library(glibc="GLIBC_2.17")}
    assert rules(judge(wheel(tmp_path, {**CODE, **module}, tag=f"{tag}-linux_x86_64"), PLAN)) == {"tag-extension"}


def test_the_tags_of_the_name_are_those_inside(tmp_path: Path) -> None:
    path = wheel(tmp_path, CODE)
    renamed = path.rename(tmp_path / "demo-1.0-cp311-cp311-linux_x86_64.whl")
    assert rules(judge(renamed, PLAN)) == {"tags-differ"}


@pytest.mark.parametrize(
    ("needs", "tag", "caught"),
    [
        ("GLIBCXX_3.4.29", "manylinux_2_28_x86_64", True),
        ("GLIBCXX_3.4.29", "manylinux_2_34_x86_64", False),
        ("CXXABI_1.3.13", "manylinux_2_17_x86_64", True),
        ("GLIBCXX_3.4.19", "manylinux2014_x86_64", False),
        ("GLIBCXX_3.4.99", "linux_x86_64", False),
    ],
)
def test_a_tag_promises_a_libstdcxx_too(tmp_path: Path, needs: str, tag: str, *, caught: bool) -> None:
    files = {"demo/b.so": _library(needed=("libstdc++.so.6",), glibc=needs)}
    path = wheel(tmp_path, {**CODE, **files}, tag=f"py3-none-{tag}")
    assert ("tag-libstdcxx" in rules(judge(path, PLAN))) == caught
    brought = wheel(tmp_path, {**CODE, **files, "demo.libs/libstdc++-1a2b3c4d.so.6": b""}, tag=f"py3-none-{tag}")
    assert "tag-libstdcxx" not in rules(judge(brought, PLAN))


def test_a_wrapper_of_the_driver_says_that_it_has_no_device_code(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/b.so": _library(needed=("libcuda.so.1",))})
    assert rules(judge(path, PLAN)) == {"built-without-device-code"}
    assert "--set gate.device-code=false" in found(judge(path, PLAN), "built-without-device-code").fix
    assert judge(path, PLAN, device_code=False).succeeded
    # The rest of the gate stays: paths, tags, budgets, and code that is there against what was said.
    assert not judge(path, PLAN, device_code=False, size="1 B").succeeded
    other = judge(wheel(tmp_path, CODE), "sm_75", device_code=False)
    assert {"architecture-not-planned", "planned-architecture-missing"} <= rules(other)
    assert "built-without-device-code" in rules(other, "warning")
