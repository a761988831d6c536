from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code import demangle
from cuwheel.device_code.compare import compare
from cuwheel.device_code.demangle import demangled
from cuwheel.device_code.kernels import kernels
from cuwheel.device_code.survey import survey
from cuwheel_core.facts.arch import Arch
from tests.unit.device_code import build

if TYPE_CHECKING:
    from pathlib import Path

AXPY, PLAIN = "_Z4axpyIfEvT_PKS0_PS0_i", "plain"
BOTH = {AXPY: (10, 0, 512), PLAIN: (8, 0, 0)}


def cubin(arch: int, names: dict[str, tuple[int, int, int]], flags: int = 0x11) -> bytes:
    return build.entry(build.CUBIN, arch, build.cubin(names, sm=arch), flags=flags)


def library(folder: Path, *containers: bytes, name: str = "lib.so") -> Path:
    path = folder / name
    path.write_bytes(build.library(*containers).build())
    return path


def test_kernels_of_every_piece(tmp_path: Path) -> None:
    ptx = build.entry(build.PTX, 120, b".visible .entry plain(\n", flags=0x11 | build.ZSTD)
    path = library(tmp_path, build.container(cubin(80, BOTH), cubin(90, BOTH, build.ZSTD), ptx))
    found = kernels(path)
    assert [(each.arch, each.kind, len(each.kernels)) for each in found.code] == [
        ("sm_80", "cubin", 2),
        ("sm_90", "cubin", 2),
        ("compute_120", "ptx", 1),
    ]
    first = found.code[0].kernels[0]
    assert (first.name, first.registers, first.shared_bytes) == (AXPY, 10, 512)
    assert found.absent_from == ()


def test_where_a_kernel_is_missing(tmp_path: Path) -> None:
    only_plain = {PLAIN: BOTH[PLAIN]}
    library(tmp_path, build.container(cubin(80, BOTH), cubin(90, only_plain)))
    library(tmp_path, build.container(cubin(80, only_plain)), name="other.so")
    for pattern in ("axpy", AXPY, "*axpy*", "AXPY", "*AxPy*"):
        found = kernels(tmp_path, pattern)
        (presence,) = found.presence
        assert (presence.library, presence.present, presence.missing) == ("lib.so", ("sm_80",), ("sm_90",))
        assert found.absent_from == ("other.so",)
        assert [each.arch for each in found.code] == ["sm_80"]
    assert kernels(tmp_path, "nothing").presence == ()


def test_code_for_another_architecture_elsewhere(tmp_path: Path) -> None:
    path = library(tmp_path, build.container(cubin(80, BOTH)), build.container(cubin(90, {"another": (8, 0, 0)})))
    (presence,) = kernels(path, "axpy").presence
    assert (presence.present, presence.missing, presence.elsewhere) == (("sm_80",), (), ("sm_90",))


def test_a_broken_cubin_is_a_finding(tmp_path: Path) -> None:
    broken = build.entry(build.CUBIN, 90, b"\x7fELF" + b"\xff" * 200)
    found = kernels(library(tmp_path, build.container(broken, cubin(80, BOTH))))
    assert [each.arch for each in found.code] == ["sm_80"]
    assert [each.rule for each in found.findings] == ["library-unreadable"]


def test_demangling() -> None:
    found = demangled([AXPY, PLAIN, "_Znonsense", "_Z" + "P" * 100_000, "_Z\xff"])
    assert set(found) <= {AXPY}
    if found:  # nearly every system has a C++ runtime library
        assert found[AXPY] == "void axpy<float>(float, float const*, float*, int)"


def test_demangling_where_the_system_has_no_library_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where a package of cuwheel's own requirements does it."""
    pytest.importorskip("pycxxfilt", reason="it has no wheel for Python 3.10")
    monkeypatch.setattr(demangle, "_LIBRARIES", ())
    demangle._function.cache_clear()
    try:
        test_demangling()
        assert AXPY in demangled([AXPY])
    finally:
        demangle._function.cache_clear()


def test_compare(tmp_path: Path) -> None:
    before = library(tmp_path, build.container(cubin(80, BOTH), cubin(90, BOTH)), name="a.so")
    after = library(tmp_path, build.container(cubin(90, {PLAIN: (8, 0, 0)}), cubin(120, BOTH)), name="b.so")
    found = compare(survey(before), survey(after), kernels=(kernels(before), kernels(after)))
    assert (found.architectures.gained, found.architectures.lost) == (("sm_120",), ("sm_80",))
    assert found.size.difference == after.stat().st_size - before.stat().st_size
    parts = {(each.name, each.arch): each for each in found.parts}
    assert parts["device code", Arch.parse("sm_80")].percent == -100
    assert parts["device code", Arch.parse("sm_120")].percent is None
    assert parts["host code", None].difference == 0
    assert sum(each.difference for each in found.parts) == found.size.difference
    assert found.kernels is not None
    (ninety,) = [each for each in found.kernels if each.arch == "sm_90"]
    assert (ninety.gained, len(ninety.lost)) == ((), 1)
    assert found.libraries[0].values == ()


def test_compare_of_folders_pairs_by_path(tmp_path: Path) -> None:
    code = build.container(cubin(80, BOTH))
    for folder, names in (("old", ("a.so", "b.so")), ("new", ("b.so", "c.so"))):
        (tmp_path / folder).mkdir()
        for name in names:
            library(tmp_path / folder, code, name=name)
    found = compare(survey(tmp_path / "old"), survey(tmp_path / "new"))
    assert [(each.before, each.after) for each in found.libraries] == [
        ("a.so", None),
        ("b.so", "b.so"),
        (None, "c.so"),
    ]
    assert found.kernels is None
    assert found.libraries[1].size.percent == 0
