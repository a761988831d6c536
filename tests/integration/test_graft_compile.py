"""`graft --compile` with the real ptxas: its bytes in the file, native where the driver had to compile, and undone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import cuwheel
from cuwheel.changes.binaries import compiling
from cuwheel.changes.graft.answer import Note
from cuwheel.cli import main
from cuwheel.device_code.survey import survey
from cuwheel.machine.fleet import Refinement
from cuwheel.support import codec
from cuwheel.toolchains import assembler
from cuwheel.toolchains.assembler import Assembler
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.finding import Finding
from tests.fixtures import cache, manifest
from tests.integration import build_world
from tests.integration.test_graft import library as compiled_library
from tests.integration.test_graft import lint, load
from tests.unit.changes.slim.packages import make_environment, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.binaries.compiling import Compilation
    from cuwheel.report.graft import Graft
    from cuwheel_core.device_code.libraries import Entry

FIXTURE = Path(__file__).parents[1] / "fixtures" / "bin" / "ptx-130.so"
DRIVER_13_0 = Refinement(driver="580.65.06")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, with the toolkits that tests share."""
    build_world.toolkit("13.4")
    folder = tmp_path / "cache"
    folder.mkdir()
    build_world.share_toolkits(folder)
    monkeypatch.setenv("CUWHEEL_CACHE", str(folder))
    return folder


def entries(path: Path) -> list[Entry]:
    return list(cuwheel.inspect(path, entries=True).libraries[0].entries)


def codes(path: Path) -> list[list[str]]:
    """Of each container that holds something, the architectures in their order."""
    found: dict[int, list[str]] = {}
    for each in entries(path):
        found.setdefault(each.container or 0, []).append(str(each.arch))
    return list(found.values())


def payload(path: Path, entry: Entry) -> bytes:
    from cuwheel_core.device_code import fatbin
    from cuwheel_core.support.buffer import FileBuffer

    buffer = FileBuffer(path)
    try:
        at, stored = entry.offset + entry.header_size, entry.compressed_bytes or entry.bytes
        return fatbin.read_payload(buffer, at, stored, entry.real_bytes, entry.compression)
    finally:
        buffer.close()


def by_hand(ptx: bytes, arch: str, options: Sequence[str], folder: Path) -> bytes:
    """What ptxas itself makes of it, called as nvcc calls it."""
    folder.mkdir()
    (folder / "code.ptx").write_bytes(ptx.rstrip(b"\0"))
    words = [assembler.assembler_of("13.4").program, f"-arch={arch}", "-m64", *options, "code.ptx", "-o", "code.cubin"]
    subprocess.run(words, cwd=folder, check=True)
    return (folder / "code.cubin").read_bytes()


def compiled(name: str, tmp_path: Path, *archs: str, dry_run: bool = False) -> tuple[Graft, Path]:
    out = tmp_path / "out" / "made.so"
    return cuwheel.graft(compiled_library(name), compile=archs, output=out, dry_run=dry_run), out


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ptx", []),
        ("ptx-options", ["-O=1", "-maxrregcount=32", "--generate-line-info"]),
        ("ptx-debug", ["-g", "--dont-merge-basicblocks", "--return-at-end"]),
        pytest.param("ptx-raw", [], marks=pytest.mark.slow),
        pytest.param("ptx-lz4", [], marks=pytest.mark.slow),
    ],
)
def test_what_ptxas_makes_is_in_the_library(name: str, options: list[str], tmp_path: Path) -> None:
    made, out = compiled(name, tmp_path, "sm_90", "sm_120")
    assert made.succeeded
    assert [(each.machine, each.before, each.after) for each in made.reached] == [
        ("sm_90", "jit", "native"),
        ("sm_120", "jit", "native"),
    ]
    before = codes(compiled_library(name))
    ptx = before[0][-1]
    assert codes(out) == [[*each[:-1], "sm_90", "sm_120", ptx] for each in before]
    found = entries(out)
    for index, each in enumerate(found):
        if each.kind != "cubin":
            continue
        source = next(one for one in found[index:] if one.kind == "ptx")
        hand = by_hand(payload(out, source), str(each.arch), options, tmp_path / f"hand-{index}")
        assert payload(out, each) == hand
        assert (each.compression, each.debug, each.identifier) == (source.compression, source.debug, source.identifier)
    assert "No errors" in lint(out) or not lint(out)
    load(out)
    assert {each.ptxas for each in made.compiled} == {assembler.assembler_of("13.4").version}


def test_nvcc_makes_the_same(tmp_path: Path) -> None:
    """Of the same source for the same GPU; but for ptxas' note of its own call."""
    from cuwheel.changes.graft.subject import Subject, same_code

    made, out = compiled("ptx-13.4", tmp_path, "sm_80")
    assert made.succeeded
    with Subject(out, "ours") as ours, Subject(compiled_library("both-13.4"), "nvcc's") as theirs:
        pairs = [
            (mine, other)
            for held, others in zip(ours.held[1:], theirs.held[1:], strict=True)
            for mine in held
            for other in others
            if mine.code == other.code == ("cubin", "sm_80")
        ]
        assert len(pairs) == 2
        assert all(same_code(*each) for each in pairs)


def test_ptx_for_one_gpu_alone(tmp_path: Path) -> None:
    _, out = compiled("ptx-specific", tmp_path, "sm_90")
    assert codes(out) == [["compute_80", "sm_90a", "compute_90a"]] * 2


def test_relocatable_ptx_is_linked_as_nvlink_does(tmp_path: Path) -> None:
    """Into the container that a device link made: neither compiled nor linked at load any more."""
    from cuwheel.changes.graft.subject import _sections

    made, out = compiled("ptx-rdc", tmp_path, "sm_90")
    assert [(each.before, each.after) for each in made.reached] == [("jit", "native")]
    (linked,) = [each for each in entries(out) if each.arch == "sm_90" and each.linked]
    assert linked.compression == "zstd"
    objects = []
    for index, each in enumerate(one for one in entries(out) if one.kind == "ptx" and one.arch == "compute_80"):
        by_hand(payload(out, each), "sm_90", ["--compile-only"], tmp_path / f"hand-{index}")
        objects.append(tmp_path / f"hand-{index}" / "code.cubin")
    nvlink = Path(assembler.assembler_of("13.4").program).with_name("nvlink")
    subprocess.run([nvlink, "-m64", "--arch=sm_90", *objects, "-o", tmp_path / "linked.cubin"], check=True)
    theirs = (tmp_path / "linked.cubin").read_bytes()
    assert _sections("ours", payload(out, linked)) == _sections("nvlink's", theirs)
    load(out)


def test_a_slot_for_a_long_function_before_the_new_code(tmp_path: Path) -> None:
    """Which eu-elflint takes for a relocation of what lies behind it; xformers has such functions."""
    source, base, out = tmp_path / "long.cu", tmp_path / "long.so", tmp_path / "made.so"
    source.write_text(
        "__global__ void work(int* x) { *x = 1; }\n"
        'asm(".text\\n.globl far\\n.type far,@function\\nfar: ret\\n.size far, 0x100000\\n");\n'
        'extern "C" void far();\n'
        'extern "C" void start(int* x) { far(); work<<<1, 1>>>(x); }\n'
    )
    nvcc = Path(assembler.assembler_of("13.4").program).with_name("nvcc")
    words = [str(nvcc), "-shared", "-Xcompiler", "-fPIC", "-gencode", "arch=compute_80,code=compute_80"]
    subprocess.run([*words, source, "-o", base], check=True)
    assert cuwheel.graft(base, compile=["sm_90"], output=out).succeeded
    load(out)


@pytest.mark.parametrize(
    ("name", "arch", "before"),
    [
        ("lto-130.so", "sm_120", "fails"),
        ("rdc-130.so", "sm_120", "jit"),
        ("windows-130.dll", "sm_120", "jit"),
        ("program-130", "sm_100", "jit"),
    ],
)
def test_kinds_of_files(name: str, arch: str, before: str, tmp_path: Path) -> None:
    """LTO-IR, which no driver loads; relocatable code; a DLL; a program."""
    base = manifest.HERE / "bin" / name
    made = cuwheel.graft(base, compile=[arch], output=tmp_path / name)
    assert [(each.before, each.after) for each in made.reached] == [(before, "native")]
    assert [each.rule for each in made.findings] == []
    kept = [(each.kind, each.arch, each.bytes) for each in entries(tmp_path / name) if each.arch != arch]
    assert kept == [(each.kind, each.arch, each.bytes) for each in entries(base)]


def test_a_file_of_ptx_becomes_a_fat_binary(tmp_path: Path) -> None:
    (ptx, *_) = [each for each in entries(compiled_library("ptx")) if each.kind == "ptx"]
    text = payload(compiled_library("ptx"), ptx)
    (tmp_path / "kernels.ptx").write_bytes(text)
    made = cuwheel.graft(tmp_path / "kernels.ptx", compile=["sm_90", "sm_100"], output=tmp_path / "out")
    out = tmp_path / "out" / "kernels.fatbin"
    assert made.outputs == (str(out),)
    assert [(each.before, each.after) for each in made.reached] == [("jit", "native")] * 2
    assert [str(each.arch) for each in entries(out)] == ["sm_90", "sm_100", "compute_80"]
    assert payload(out, entries(out)[0]) == by_hand(text, "sm_90", [], tmp_path / "hand")
    assert payload(out, entries(out)[-1]).rstrip(b"\0") == text.rstrip(b"\0")
    package = tmp_path / "package"
    package.mkdir()
    (package / "kernels.ptx").write_bytes(text)
    (told,) = cuwheel.graft(package, compile=["sm_90"], dry_run=True).findings
    assert "kernels.ptx stays as before" in told.message


def test_a_fat_binary_by_itself(tmp_path: Path) -> None:
    """Of two containers: what was there stays byte for byte."""
    from cuwheel_core.device_code import fatbin

    source = compiled_library("ptx-options")
    stored = [
        source.read_bytes()[each.offset : each.offset + each.header_size + each.bytes]
        for each in entries(source)
        if each.kind == "ptx"
    ]
    base = tmp_path / "kernels.fatbin"
    base.write_bytes(b"".join(map(fatbin.container_of, stored)))
    made = cuwheel.graft(base, compile=["sm_90", "sm_100"], output=tmp_path / "out")
    out = tmp_path / "out" / "kernels.fatbin"
    assert made.outputs == (str(out),)
    assert [(each.before, each.after) for each in made.reached] == [("jit", "native")] * 2
    assert codes(out) == [["sm_90", "sm_100", "compute_80"]] * len(stored)
    found, data = entries(out), out.read_bytes()
    kept = [data[each.offset : each.offset + each.header_size + each.bytes] for each in found if each.kind == "ptx"]
    assert kept == stored
    options = ["-O=1", "-maxrregcount=32", "--generate-line-info"]
    assert payload(out, found[1]) == by_hand(payload(out, found[2]), "sm_100", options, tmp_path / "hand")
    (row,) = made.libraries
    assert (row.bytes_after, row.containers, [each.count for each in row.added]) == (len(data), 2, [2, 2])
    (tmp_path / "package").mkdir()
    shutil.copy(base, tmp_path / "package")
    (told,) = cuwheel.graft(tmp_path / "package", compile=["sm_90"], dry_run=True).findings
    assert (told.rule, "kernels.fatbin stays as before" in told.message) == ("compile-unsupported", True)


def test_222_is_cured(tmp_path: Path) -> None:
    """PTX of 13.4 on a driver for 13.0."""
    library = compiled_library("ptx-13.4")
    (before,) = cuwheel.check(library, on=["h100"], refine=DRIVER_13_0).verdicts
    assert before.predicted_error is not None
    assert before.predicted_error.code == 222
    made, out = compiled("ptx-13.4", tmp_path, "h100")
    assert made.succeeded
    (after,) = cuwheel.check(out, on=["h100"], refine=DRIVER_13_0).verdicts
    assert (after.outcome, after.predicted_error) == ("native", None)


def test_the_second_time_costs_nothing(tmp_path: Path, home: Path) -> None:
    first, out = compiled("ptx", tmp_path, "sm_90")
    assert not any(each.kept for each in first.compiled)
    bytes_of_first = out.read_bytes()
    again, out = compiled("ptx", tmp_path, "sm_90")
    assert all(each.kept for each in again.compiled)
    assert out.read_bytes() == bytes_of_first
    for place in (home / "machine-code").rglob("*.zst"):
        place.write_bytes(place.read_bytes()[:-5] + b"other")  # a disk that lies: it is made again
    third, out = compiled("ptx", tmp_path, "sm_90")
    assert not any(each.kept for each in third.compiled)
    assert out.read_bytes() == bytes_of_first


@pytest.mark.parametrize("kept", [b"not machine code", (FIXTURE.parent / "bare-130.cubin").read_bytes()])
def test_something_else_in_the_cache_is_made_again(kept: bytes, tmp_path: Path, home: Path) -> None:
    first = cuwheel.graft(FIXTURE, compile=["sm_120"], output=tmp_path / "a.so")
    (place,) = home.glob("machine-code/*/*.zst")
    place.write_bytes(compiling._with_checksum(kept))
    again = cuwheel.graft(FIXTURE, compile=["sm_120"], output=tmp_path / "b.so")
    assert not any(each.kept for each in again.compiled)
    assert Path(again.outputs[0]).read_bytes() == Path(first.outputs[0]).read_bytes()


def test_a_dry_run_compiles_nothing(tmp_path: Path, home: Path) -> None:
    made, out = compiled("ptx", tmp_path, "sm_90", dry_run=True)
    assert (made.written, made.dry_run, [(each.arch, each.source) for each in made.compiled]) == (
        False,
        True,
        [("sm_90", "compute_80")] * 2,
    )
    assert made.seconds
    assert not out.exists()
    assert not (home / "machine-code").exists()


@pytest.mark.parametrize(
    ("name", "arch", "rule"),
    [("80", "sm_80", "compile-nothing"), ("80", "sm_90", "compile-no-ptx"), ("ptx-13.4", "sm_70", "compile-no-ptx")],
)
def test_why_nothing_is_written(name: str, arch: str, rule: str, tmp_path: Path) -> None:
    made, out = compiled(name, tmp_path, arch)
    assert [each.rule for each in made.findings] == [rule]
    assert made.refused == (rule != "compile-nothing")
    assert not out.exists()


def test_ptx_that_ptxas_refuses(tmp_path: Path) -> None:
    """Nothing is written, and its words are told."""
    library = tmp_path / "broken.so"
    data = compiled_library("ptx-raw").read_bytes()
    library.write_bytes(data.replace(b"mul.wide.s32", b"mul.wise.s32").replace(b"cvt.rn", b"cvt.xx"))
    made = cuwheel.graft(library, compile=["sm_90"], output=tmp_path / "out.so")
    assert {each.rule for each in made.findings} == {"compile-failed"}
    assert any("mul.wise" in line or "cvt" in line for each in made.findings for line in each.evidence)


def _wheel(folder: Path) -> Path:
    library = compiled_library("ptx").read_bytes()
    return make_wheel(
        folder, {"foo/__init__.py": b"", "foo/libfoo.so": library, "foo/libmore.so": library}, version="1.0"
    )


def test_a_wheel(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path / "in")
    made = cuwheel.graft(wheel, compile=["sm_90", "sm_100"], output=tmp_path / "out")
    (output,) = map(Path, made.outputs)
    assert output.name == "foo-1.0+sm90.sm100-py3-none-any.whl"
    (verdict,) = cuwheel.check(output, on=["h100"]).verdicts
    assert verdict.outcome == "native"
    note = codec.decode(_member(output, "foo-1.0+sm90.sm100.dist-info/cuwheel-graft.json"), Note)
    assert {(each.library, each.arch, each.ptxas) for each in note.compiled} == {
        (name, arch, assembler.assembler_of("13.4").version)
        for name in ("foo/libfoo.so", "foo/libmore.so")
        for arch in ("sm_90", "sm_100")
    }
    again = cuwheel.graft(wheel, compile=["sm_90", "sm_100"], output=tmp_path / "again")
    assert all(each.kept for each in again.compiled)
    assert Path(again.outputs[0]).read_bytes() == output.read_bytes()
    planned = cuwheel.graft(wheel, compile=["sm_90", "sm_100"], output=tmp_path / "out", dry_run=True)
    assert planned.outputs == made.outputs


def _member(wheel: Path, name: str) -> bytes:
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def _tree(root: Path) -> dict[str, bytes | str]:
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(".cuwheel") and path.is_file():
            found[name] = path.read_bytes()
    return found


def _environment(root: Path) -> Path:
    library = compiled_library("ptx").read_bytes()
    return make_environment(root, {("foo", "1.0"): {"foo/__init__.py": b"", "foo/libfoo.so": library}})


def test_an_environment_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = tmp_path / "env"
    site = _environment(env)
    before = _tree(env)
    assert main(["graft", "--env", str(env), "--compile", "sm_90", "--json", "--quiet"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["undo"] == f"cuwheel slim --undo --env {env}"
    assert {each["from"] for each in made["compiled"]} == {"compute_80"}
    assert codes(site / "foo" / "libfoo.so") == [["sm_90", "compute_80"]] * 2
    load(site / "foo" / "libfoo.so")
    rows = (site / "foo-1.0.dist-info" / "RECORD").read_text()
    assert "foo-1.0.dist-info/cuwheel-graft.json,sha256=" in rows
    assert cuwheel.graft(env=env, compile=["sm_90"]).findings[0].rule == "compile-nothing"
    cuwheel.graft("foo", env=env, compile=["sm_100"])
    assert codes(site / "foo" / "libfoo.so") == [["sm_90", "sm_100", "compute_80"]] * 2
    assert main(["slim", "--undo", "--env", str(env), "--quiet"]) == 0
    assert _tree(env) == before


def test_a_folder_copied_and_in_place(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    shutil.copy(compiled_library("ptx"), folder / "liba.so")
    (folder / "other.txt").write_text("stays")
    before = _tree(folder)
    made = cuwheel.graft(folder, compile=["sm_90"], output=tmp_path / "copy")
    assert made.undo is None
    assert _tree(folder) == before
    assert codes(tmp_path / "copy" / "liba.so") == [["sm_90", "compute_80"]] * 2
    assert (tmp_path / "copy" / "other.txt").read_text() == "stays"
    assert not (tmp_path / "copy" / ".cuwheel").exists()
    cuwheel.graft(folder, compile=["sm_90"])
    assert _tree(folder) == _tree(tmp_path / "copy")
    cuwheel.slim_undo(folder)
    assert _tree(folder) == before


def test_a_cache_that_nobody_may_write(tmp_path: Path, home: Path) -> None:
    (home / "machine-code").write_text("in the way")
    made, out = compiled("ptx", tmp_path, "sm_90")
    assert made.succeeded
    load(out)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--compile", "sm_90"], "nothing to graft was given"),
        (["x.so", "--compile", "sm_90"], "no such file or folder"),
        (["--env", ".", "x"], "--env"),
        (["x.whl", "y.whl", "--compile", "sm_90"], "--compile takes one wheel"),
        (["x.whl", "--compile", "sm_9x"], "sm_9x"),
    ],
)
def test_what_does_not_go_together(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graft", *words]) in (2, 3, 4, 5)
    assert told in capsys.readouterr().err


def test_ptxas_alone_comes_from_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """For CUDA 12, whose nvcc the index does not have."""
    monkeypatch.setenv("CUWHEEL_CACHE", str(cache.folder() / "store"))
    found = assembler.assembler_of("12.9")
    said = subprocess.run([found.program, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"V{found.version}" in said
    assert os.access(found.program, os.X_OK)


def test_nvjitlink_that_is_installed_beside_us_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with PyTorch and no network has one."""
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(assembler, "_toolkit_of_machine", lambda *_: None)
    library = tmp_path / "site" / "nvidia" / "cu13" / "lib" / "libnvJitLink.so.13"
    described = tmp_path / "site" / "nvidia_nvjitlink-13.0.88.dist-info"
    library.parent.mkdir(parents=True)
    library.touch()
    described.mkdir()
    (described / "METADATA").write_text("Name: nvidia-nvjitlink\nVersion: 13.0.88\n")
    (described / "RECORD").write_text("nvidia/cu13/lib/libnvJitLink.so.13,,\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert assembler.linker_of("13.0") == Assembler(cuda="13.0", version="13.0.88", program=str(library))


@pytest.fixture
def slow_ptxas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One that never ends. The file that says that it was started."""
    program, started = tmp_path / "ptxas", tmp_path / "started"
    program.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setattr(assembler, "assembler_of", lambda cuda: Assembler(cuda=cuda, version="1", program=str(program)))
    return started


def _two_pieces() -> tuple[Compilation, ...]:
    library = survey(FIXTURE, detail="entries").libraries[0]
    return compiling.what_to_compile(library, compiling.aims_of(["sm_120", "sm_80"])).wanted


def test_an_interrupt_ends_what_is_being_compiled(slow_ptxas: Path, tmp_path: Path) -> None:
    made = _two_pieces()
    first = max(made, key=lambda each: each.bytes).ptx  # whose end is waited for first

    def read_text(_library: str, entry: Entry) -> bytes:
        if entry != first:
            return b""
        deadline = time.monotonic() + 5
        while not slow_ptxas.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiling.compile_all(made, read_text, tmp_path)
    assert time.monotonic() - began < 20


@pytest.mark.usefixtures("slow_ptxas")
def test_what_takes_too_long_or_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiling, "_SECONDS", 0.05)
    made = _two_pieces()

    def read_text(library: str, entry: Entry) -> bytes:
        if entry == made[1].ptx:
            raise MalformedError(library, "it is damaged")
        return b""

    found = compiling.compile_all(made, read_text, tmp_path).values()
    failed = [each for each in found if isinstance(each, Finding)]
    assert [each.rule for each in failed] == ["compile-failed"] * 2
    assert "did not answer within 0.05 s" in failed[0].evidence[0]
    assert "it is damaged" in failed[1].evidence[0]


@pytest.mark.parametrize("always", [False, True])
def test_what_ran_out_of_memory_is_tried_once_more_by_itself(
    always: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The system ends the largest process; ptxas may also say by itself that there is none."""
    real, program, first = assembler.assembler_of("13.4"), tmp_path / "ptxas", tmp_path / "first"
    ends = f"mkdir {first} 2>/dev/null && kill -9 $$\n"
    ends += f"mkdir {first}-too 2>/dev/null && echo Memory allocation failure && exit 255"
    program.write_text(f'#!/bin/sh\n{"kill -9 $$" if always else ends}\nexec {real.program} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(assembler, "assembler_of", lambda cuda: replace(real, cuda=cuda, program=str(program)))
    made = cuwheel.graft(FIXTURE, compile=["sm_120", "sm_80"], output=tmp_path / "made.so")
    assert len(made.compiled) == (0 if always else 2)
    assert [each.rule for each in made.findings] == (["compile-failed"] * 2 if always else [])
    assert all("was ended by the system" in each.evidence[0] for each in made.findings)


# What `check` says of each file of the truth set on a GPU of 9.0 with a driver for CUDA 13.0, the worst last.
_ORDER = ("native", "compatible", "jit", "unknown", "partial", "fails")
_TRUTH = Path(__file__).parents[1] / "gpu" / "truth"
# Files of the set that stay as they are though the driver compiles, links or says 222: by their form, and why. What it
# only links has no PTX to compile; the others would not run either way, for a part of them is for other GPUs alone.
_STAY = {("library", "compile-nothing"): 25, ("library", "compile-no-ptx"): 7, ("ptx", "compile-no-ptx"): 1}


def _truth_files(folder: Path, *wanted: str) -> Iterator[tuple[dict[str, Any], Path]]:
    """Each file, with the first of the variants that it is; `wanted`: ids of variants."""
    rows: dict[str, dict[str, Any]] = {}
    for row in json.loads((_TRUTH / "manifest.json").read_text())["variants"]:
        if not wanted or row["id"] in wanted:
            rows.setdefault(row["file"], row)
    with tarfile.open(_TRUTH / "files.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 has none
        for number, member in enumerate(archive):
            if member.name not in rows:
                continue
            archive.extract(member, folder)
            path = folder / member.name
            if path.read_bytes()[:2] == b"PK":
                path = path.rename(folder / f"pkg-1.{number}-py3-none-any.whl")
            yield rows[member.name], path


def _ahead_of(path: Path, out: Path) -> tuple[str, str, set[str]]:
    """What `check` says of a file, and of what was made of it, or nothing; and the rules of the findings."""

    def said(of: Path) -> str:
        (verdict,) = cuwheel.check(of, on=["9.0"], refine=DRIVER_13_0).verdicts
        return verdict.outcome + (f" {verdict.predicted_error.code}" if verdict.predicted_error else "")

    made = cuwheel.graft(path, compile=["9.0"], output=out)
    return said(path), said(Path(made.outputs[0])) if made.written else "", {each.rule for each in made.findings}


def test_objects_that_the_driver_links_are_of_no_later_release(tmp_path: Path) -> None:
    """A driver for 13.0 links none of 13.4, whose ptxas is the one for what it need not link."""
    ((_, path),) = _truth_files(tmp_path, "rdc 13.0 [compute_90a@13.0] [compute_90a@13.0] []")
    assert _ahead_of(path, tmp_path / "out")[:2] == ("jit", "jit")
    assert {each.ptxas for each in cuwheel.graft(path, compile=["9.0"], dry_run=True).compiled} == {"13.0"}


@pytest.mark.parametrize(
    ("variant", "told"),
    [
        ("rdc 13.0 [compute_80@13.4] [sm_80@13.0] []", "some objects of the device link have neither"),
        ("ptx 13.4 shared whole(compute_100)", "neither machine code nor PTX fits 9.0"),
    ],
)
def test_what_is_lacking_is_said(variant: str, told: str, tmp_path: Path) -> None:
    ((_, path),) = _truth_files(tmp_path, variant)
    (found,) = cuwheel.graft(path, compile=["9.0"], dry_run=True).findings
    assert (found.rule, told in found.message) == ("compile-no-ptx", True)


@pytest.mark.slow
def test_every_variant_of_the_truth_set_is_compiled_or_refused_by_rule(tmp_path: Path) -> None:
    files = list(_truth_files(tmp_path))
    assert len(files) > 800
    wrong, stay, cured = {}, Counter[tuple[str, str]](), Counter[str]()
    for index, (row, path) in enumerate(files):
        before, after, rules = _ahead_of(path, tmp_path / f"out-{index}")
        if not after:
            stay += Counter((row["form"], rule) for rule in rules if before == "jit" or before.endswith(" 222"))
            if not rules <= {"compile-nothing", "compile-no-ptx"}:
                wrong[row["id"]] = f"refused: {rules}"
        elif _ORDER.index(after.split()[0]) > _ORDER.index(before.split()[0]) or after.endswith(" 222"):
            wrong[row["id"]] = f"{before} became {after}"
        elif before.endswith(" 222"):
            cured[row["form"]] += 1
    assert not wrong
    assert stay == _STAY
    assert cured == {"fatbin": 70, "library": 36, "ptx": 1}
