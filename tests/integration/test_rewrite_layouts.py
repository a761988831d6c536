"""Libraries and programs of every layout that linkers make, slimmed and then loaded: they say what they were given."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel_core.device_code.fatbin import CONTAINER
from tests.fixtures import toolkits
from tests.fixtures.damage import elf, patch
from tests.unit.changes.binaries import engine
from tests.unit.changes.binaries.engine import container, entry, noise

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = Path(__file__).parent / "src" / "containers.c"
LARGE = 150_000
SHARED = ("-shared", "-fPIC", "-fvisibility=hidden")
LAYOUTS = {
    "shared": SHARED,
    "stripped": (*SHARED, "-s"),
    "debug": (*SHARED, "-g"),
    "one-segment": (*SHARED, "-Wl,-z,noseparate-code"),
    "one-segment-of-gold": (*SHARED, "-fuse-ld=gold"),
    "huge-pages": (*SHARED, "-Wl,-z,max-page-size=0x200000"),
    "relr": (*SHARED, "-Wl,-z,pack-relative-relocs"),
    "both-hashes": (*SHARED, "-Wl,--hash-style=both"),
    "no-build-id": (*SHARED, "-Wl,--build-id=none"),
    "kept-relocations": (*SHARED, "-Wl,--emit-relocs"),
    "bound": (*SHARED, "-Wl,-z,now,-z,relro"),
    "program": ("-DPROGRAM", "-pie", "-fPIE"),
    "program-relr": ("-DPROGRAM", "-pie", "-fPIE", "-Wl,-z,pack-relative-relocs"),
    "fixed-program": ("-DPROGRAM", "-DNO_TABLE", "-no-pie"),
    "static-program": ("-DPROGRAM", "-DNO_TABLE", "-static"),
    "static-pie": ("-DPROGRAM", "-static-pie", "-fPIE"),
}
ARCHS = ("sm_80", "sm_90", "sm_100")


def containers() -> list[bytes]:
    small = container(*(entry(arch, noise(index + 40, 600)) for index, arch in enumerate(ARCHS)))
    large = [
        container(*(entry(arch, noise(3 * n + index, LARGE)) for index, arch in enumerate(ARCHS))) for n in range(3)
    ]
    return [large[0], small, large[1], large[2]]


def build(folder: Path, flags: Sequence[str]) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    for index, data in enumerate(containers()):
        (folder / f"{index}.fatbin").write_bytes(data)
    out = folder / ("program" if "-DPROGRAM" in flags else "library.so")
    subprocess.run(["gcc", "-Os", *flags, SOURCE, "-o", out], cwd=folder, check=True, capture_output=True)
    return out


def load(path: Path) -> list[str]:
    """What the binary says of itself once it is loaded, or run."""
    command: list[str | Path] = [path]
    if path.suffix == ".so":
        code = (
            "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).report; f.restype = ctypes.c_char_p; print(f().decode())"
        )
        command = [sys.executable, "-c", code, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


@functools.cache
def hashed(data: bytes) -> str:
    value = 2166136261
    for byte in data[CONTAINER.size :]:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return f"{len(data) - CONTAINER.size} {value:08x}"


def expected(keep: str) -> list[str]:
    """First, second, object, the one of its own that must not change, and the table's second and first."""
    index = ARCHS.index(keep)
    kept = [hashed(container(entry(keep, noise(3 * n + index, LARGE)))) for n in range(3)]
    return [*kept, hashed(containers()[1]), kept[1], kept[0], "relocated data 7 0"]


def clean(path: Path, original: Path) -> None:
    """readelf has nothing to complain of, and eu-elflint nothing that it did not of the original."""
    done = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    if shutil.which("eu-elflint"):
        before, after = (
            subprocess.run(["eu-elflint", "--gnu-ld", each], capture_output=True, text=True, check=False).stdout
            for each in (original, path)
        )
        assert len(after.splitlines()) <= len(before.splitlines()), after
        assert after == before or "No errors" not in before, after


def run_tool(tool: str, path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    options = ["--set-rpath", "/a/path/longer/than/any/before/it:$ORIGIN"] if tool == "patchelf" else []
    subprocess.run([tool, *options, path], check=True, capture_output=True)
    done = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True)
    assert not done.stderr, f"{tool}: {done.stderr}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(tmp_path: Path, layout: str) -> None:
    source = build(tmp_path, LAYOUTS[layout])
    slim = tmp_path / f"slim{source.suffix}"
    result = slim_library(source, slim, engine.plan(source, "9.0"))
    assert result.written, result.findings
    cut = 2 if layout == "static-program" else 5  # which has no room for more than one program header
    assert result.change.bytes_after < result.change.bytes_before - cut * LARGE
    assert load(slim)[:7] == expected("sm_90")
    clean(slim, source)
    assert os.access(slim, os.X_OK)


SPREAD = [(each, "") for each in LAYOUTS if not each.startswith("static")]  # which have no room for program headers
TOOLS = [
    pytest.param(layout, tool, marks=[] if number == turn else [pytest.mark.slow])
    for number, layout in enumerate(("shared", "relr", "program"))
    for turn, tool in enumerate(("strip", "patchelf", "objcopy"))
]


@pytest.mark.parametrize(("layout", "tool"), [*SPREAD, *TOOLS, ("shared", "patchelf, then strip")])
def test_holes_go_wherever_containers_stay(tmp_path: Path, layout: str, tool: str) -> None:
    """Three that nothing names, far from one another: what lies between them goes, in as many cuts as that takes."""
    source = build(tmp_path, (*LAYOUTS[layout], "-DSPREAD"))
    slim = tmp_path / f"slim{source.suffix}"
    result = slim_library(source, slim, engine.plan(source, "9.0"))
    assert result.change.bytes_after < result.change.bytes_before - 11.5 * LARGE
    small, (first, second, *_) = hashed(containers()[1]), expected("sm_90")
    wanted = [*expected("sm_90"), small, small, second, first, second]
    assert load(slim)[:12] == wanted
    clean(slim, source)
    kept = [(each.arch, each.bytes) for each in engine.read(slim).entries]
    for each in filter(None, tool.split(", then ")):
        run_tool(each, slim)
        assert load(slim)[:12] == wanted
        assert [(each.arch, each.bytes) for each in engine.read(slim).entries] == kept


def test_what_has_to_stay_as_zeros_is_told(tmp_path: Path) -> None:
    source = build(tmp_path, (*LAYOUTS["static-program"], "-DSPREAD"))
    result = slim_library(source, tmp_path / "slim", engine.plan(source, "9.0"))
    assert load(tmp_path / "slim")[:7] == expected("sm_90")
    (told,) = [each.message for each in result.findings if each.rule == "file-keeps-its-size"]
    assert "stay in the file as zeros" in told


AFTER = ("strip", "patchelf", "patchelf, then strip", "objcopy")


@pytest.mark.parametrize(
    ("layout", "tool"),
    [
        # Every tool after the usual layout, and one after each of the others; with `--all` every one.
        pytest.param(layout, tool, marks=[] if layout == "shared" or number % 4 == turn else [pytest.mark.slow])
        for number, layout in enumerate(("shared", "one-segment", "huge-pages", "relr", "both-hashes", "program"))
        for turn, tool in enumerate(AFTER)
    ],
)
def test_tools_still_work(tmp_path: Path, layout: str, tool: str) -> None:
    source = build(tmp_path, LAYOUTS[layout])
    slim = tmp_path / f"slim{source.suffix}"
    slim_library(source, slim, engine.plan(source, "9.0"))
    for each in tool.split(", then "):
        run_tool(each, slim)
        assert load(slim)[:7] == expected("sm_90")


def test_a_program_that_names_a_container_in_its_data_is_left_alone(tmp_path: Path) -> None:
    """Nothing is relocated in it, so nothing tells a pointer from a number."""
    source = build(tmp_path, ("-DPROGRAM", "-no-pie"))
    slim = tmp_path / "slim"
    plan = engine.plan(source, "9.0")
    assert [each.rule for each in plan.untouched] == ["container-without-wrapper"]
    result = slim_library(source, slim, plan)
    assert not result.written
    assert [each.rule for each in result.findings] == ["cannot-rewrite"]
    assert not slim.exists()


def test_build_id_and_symbols_stay(tmp_path: Path) -> None:
    source = build(tmp_path, (*SHARED, "-g", "-Wl,--build-id=0x1234567890abcdef"))
    slim = tmp_path / "slim.so"
    slim_library(source, slim, engine.plan(source, "9.0"))
    assert engine.read(slim).build_id == "1234567890abcdef"
    listed = subprocess.run(["readelf", "-sW", slim], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines() if ": " in line]
    places = {row[7]: int(row[1], 16) for row in rows if len(row) == 8 and row[1] != "Value"}
    section = subprocess.run(["readelf", "-SW", slim], capture_output=True, text=True, check=True).stdout
    fields = section[section.index(".nv_fatbin") :].split()
    start, size = int(fields[2], 16), int(fields[4], 16)
    assert start <= min(places["first"], places["own"], places["second"])
    assert max(places["first"], places["own"], places["second"]) < start + size
    lines = subprocess.run(["readelf", "--debug-dump=info", slim], capture_output=True, text=True, check=True)
    assert "wrapper_0" in lines.stdout
    assert not lines.stderr


def test_recompressed_code_is_what_it_was(tmp_path: Path) -> None:
    for index in range(4):
        body = b"".join(b"the same words" + noise(n, 8) for n in range(9000)) + bytes(index * 8)
        (tmp_path / f"{index}.fatbin").write_bytes(container(*(entry(arch, body) for arch in ARCHS)))
    out = tmp_path / "library.so"
    subprocess.run(["gcc", "-Os", *SHARED, SOURCE, "-o", out], cwd=tmp_path, check=True)
    slim = tmp_path / "slim.so"
    result = slim_library(out, slim, engine.plan(out, recompress=True))
    assert sum(row.count for row in result.change.recompressed) == 9  # the one that no wrapper names stays raw
    assert {(row.before, row.after) for row in result.change.recompressed} == {("none", "zstd")}
    assert result.change.bytes_after < result.change.bytes_before * 0.55
    assert not result.change.dropped
    clean(slim, out)
    load(slim)


def test_aarch64_pages_are_larger(tmp_path: Path) -> None:
    cross = toolkits.cross_binutils()
    body = container(*(entry(arch, noise(index, 6 * LARGE)) for index, arch in enumerate(ARCHS)))
    (tmp_path / "0.fatbin").write_bytes(body)
    (tmp_path / "stub.s").write_text(
        '.section .nv_fatbin,"a"\n.balign 8\nfirst: .incbin "0.fatbin"\n'
        '.section .nvFatBinSegment,"aw"\n.balign 8\n.word 0x466243b1, 1\n.xword first, 0\n'
        '.section .rodata\n.ascii "behind"\n.data\n.xword first\n.bss\n.skip 90000\n'
    )
    library = {"LD_LIBRARY_PATH": str(cross.parent / "lib" / "x86_64-linux-gnu")}
    environment = {**os.environ, **library}
    out, slim = tmp_path / "library.so", tmp_path / "slim.so"

    def run(tool: str, *words: str | Path) -> None:
        command = [cross / f"aarch64-linux-gnu-{tool}", *words]
        subprocess.run(command, cwd=tmp_path, check=True, env=environment, capture_output=True)

    run("as", "stub.s", "-o", "stub.o")
    run("ld", "-shared", "stub.o", "-soname", "l", "-o", out)
    result = slim_library(out, slim, engine.plan(out, "9.0"))
    assert (result.change.bytes_before - result.change.bytes_after) % 65536 == 0
    assert result.change.bytes_after < result.change.bytes_before - 11 * LARGE
    clean(slim, out)
    run("strip", slim)
    assert [each.arch for each in engine.read(slim).entries] == ["sm_90"]


def test_code_in_sections_that_are_not_flagged_as_code_still_runs(tmp_path: Path) -> None:
    """Loaders go by segments: a library whose sections lie about what is code loads before, and must after."""
    source = build(tmp_path, LAYOUTS["one-segment"])
    data = source.read_bytes()
    for header in elf.sections(data).values():
        data = patch.put(data, header + 8, "<Q", patch.get(data, header + 8, "<Q") & ~0x4)
    source.write_bytes(data)
    load(source)
    slim = tmp_path / "slim.so"
    assert slim_library(source, slim, engine.plan(source, "9.0")).written
    assert load(slim)[:7] == expected("sm_90")
