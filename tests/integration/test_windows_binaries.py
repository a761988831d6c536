"""Windows binaries slimmed and grafted, then loaded by Wine where they were linked for, and elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pefile
import pytest

from cuwheel import api
from cuwheel.changes.binaries import pe_references
from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel.changes.graft import host
from cuwheel.changes.graft.subject import Subject
from cuwheel.changes.stamp import guard, stamp
from cuwheel.device_code.description import Description
from cuwheel.device_code.survey import survey
from cuwheel_core.device_code import pe
from cuwheel_core.support.buffer import FileBuffer
from tests.fixtures import cache, manifest, small_wheel
from tests.fixtures import windows as by_hand
from tests.fixtures.cache import UnavailableError
from tests.integration.test_rewrite_layouts import LARGE, SOURCE, containers, expected
from tests.unit.changes.binaries import engine
from tests.wine import windows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow
LAYOUTS = {
    "shared": ("-shared",),
    "stripped": ("-shared", "-s"),
    "debug": ("-shared", "-g"),
    "low-base": ("-shared", "-Wl,--image-base,0x10000000"),
    "program": ("-DPROGRAM",),
}
# Loads each library twice, in processes of their own by the caller: where it was linked for, or with that place taken.
LOAD = """
import ctypes, json, struct, sys
found = []
for path in sys.argv[2:]:
    data = open(path, "rb").read(4096)
    base, = struct.unpack_from("<Q", data, struct.unpack_from("<I", data, 0x3c)[0] + 24 + 24)
    reserve = ctypes.windll.kernel32.VirtualAlloc
    reserve.restype = ctypes.c_void_p
    reserve.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ulong, ctypes.c_ulong
    if sys.argv[1] == "moved":
        assert reserve(base, 65536, 0x2000, 1) == base
    library = ctypes.WinDLL(path)
    assert (library._handle == base) == (sys.argv[1] != "moved"), hex(library._handle)
    library.report.restype = ctypes.c_char_p
    found.append(library.report().decode())
print(json.dumps(found))
"""


def build(folder: Path, flags: Sequence[str], name: str = "library.dll") -> Path:
    if shutil.which(windows.COMPILER) is None:
        pytest.skip("MinGW is not installed: apt install gcc-mingw-w64-x86-64-win32")
    for index, data in enumerate(containers()):
        (folder / f"{index}.fatbin").write_bytes(data)
    out = folder / name
    subprocess.run(
        [windows.COMPILER, "-Os", "-static", *flags, SOURCE, "-o", out], cwd=folder, check=True, capture_output=True
    )
    return out


def loaded(way: str, *paths: Path) -> list[list[str]]:
    if why := windows.missing():
        pytest.skip(why)
    try:
        done = windows.run(["-c", LOAD, way, *map(windows.named, paths)])
    except UnavailableError as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return [text.split("\n")[:7] for text in json.loads(done.stdout)]


def sound(path: Path, original: Path) -> None:
    buffer = FileBuffer(path)
    assert list(pe_references.broken_rules(pe.read_pe(buffer))) == []
    buffer.close()
    assert set(pefile.PE(path).get_warnings()) <= set(pefile.PE(original).get_warnings())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(tmp_path: Path, layout: str) -> None:
    source = build(tmp_path, LAYOUTS[layout], "program.exe" if layout == "program" else "library.dll")
    slim = tmp_path / f"slim{source.suffix}"
    result = slim_library(source, slim, engine.plan(source, "9.0"))
    assert result.written, result.findings
    assert result.change.bytes_after < result.change.bytes_before - 5 * LARGE
    sound(slim, source)
    if layout == "program":
        if why := windows.missing():
            pytest.skip(why)
        done = subprocess.run(["wine", slim], capture_output=True, env=windows.environment(), check=False, timeout=600)
        assert done.stdout.decode().splitlines()[:7] == expected("sm_90")
        return
    for way in ("in place", "moved"):
        assert loaded(way, slim) == [expected("sm_90")]


HOLD = """
import ctypes, sys, time
library = ctypes.WinDLL(sys.argv[1])
print("loaded", flush=True)
sys.stdin.readline()
"""


def test_in_place_while_a_process_has_it_loaded(tmp_path: Path) -> None:
    """`slim` and `--undo` in Windows' own Python, of a folder whose library another process has loaded."""
    if why := windows.missing():
        pytest.skip(why)
    try:
        python = windows.python() / "python.exe"
    except UnavailableError as error:
        pytest.skip(str(error))
    folder = windows.prefix() / "drive_c" / tmp_path.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pkg").mkdir(parents=True)
    place = folder / "pkg" / "library.dll"
    shutil.copyfile(build(tmp_path, LAYOUTS["shared"]), place)
    before = place.read_bytes()
    named = f"C:\\{tmp_path.name}"
    holder = subprocess.Popen(
        ["wine", str(python), "-c", HOLD, f"{named}\\pkg\\library.dll"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=windows.environment(),
    )
    try:
        assert holder.stdout
        assert holder.stdin
        assert holder.stdout.readline().strip() == b"loaded"
        done = windows.cuwheel("slim", named, "--for", "9.0", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert place.stat().st_size < len(before) - 5 * LARGE
        done = windows.cuwheel("slim", "--undo", named, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert place.read_bytes() == before
    finally:
        holder.communicate(b"\n", timeout=600)
        shutil.rmtree(folder, ignore_errors=True)
    assert holder.returncode == 0


GUARDED = """
import os, sys
if len(sys.argv) > 2:
    os.add_dll_directory(sys.argv[2])
    os.environ["PATH"] = sys.argv[2] + ";" + os.environ["PATH"]
sys.path.insert(0, sys.argv[1])
try:
    import pkg
    print("imported")
except ImportError as error:
    print(error)
"""


def test_the_guard_of_a_slimmed_wheel(tmp_path: Path) -> None:
    """Stamped and guarded, then slimmed: the guard asks Windows' driver, and says what is in the wheel now."""
    if why := windows.missing():
        pytest.skip(why)
    source = manifest.HERE / "bin" / "windows-130.dll"
    files: dict[str, str | bytes] = {"pkg/own.dll": source.read_bytes(), "pkg/__init__.py": ""}
    plain = small_wheel.Wheel(name="pkg", tag="py3-none-win_amd64", files=files).write(tmp_path)
    wish = guard.guard_for(survey(plain, detail="containers"), "pkg", message="Install another.", inject=True)
    about = Description(cuda="13.0", archs=("sm_75", "sm_90"), ptx=("compute_90",))
    made = stamp.stamp(plain, tmp_path / "stamped", stamp.StampOptions(description=about, guard=wish))
    slim = api.slim(made, machines=["t4"], output=tmp_path / "slim")
    driver = tmp_path / "driver"
    driver.mkdir()
    words = [
        windows.COMPILER,
        "-O1",
        "-shared",
        "-static",
        str(SOURCE.with_name("fake_cuda.c")),
        "-o",
        str(driver / "nvcuda.dll"),
    ]
    subprocess.run(words, check=True, capture_output=True)
    for number, (wheel, gpus, told) in enumerate(
        [
            (made, "9.0", "imported"),
            (made, "7.5", "imported"),
            (made, "6.1", "for which it has no code. Install another."),
            (slim.output, "7.5", "imported"),
            (slim.output, "9.0", "for which it has no code. Install another."),
            (slim.output, "", "imported"),
        ]
    ):
        site = tmp_path / f"site-{number}"
        with zipfile.ZipFile(wheel or "") as archive:
            archive.extractall(site)
        words = ["-c", GUARDED, windows.named(site), *([windows.named(driver)] if gpus else [])]
        done = windows.run(words, env={"FAKE_CUDA_GPUS": gpus, "FAKE_CUDA_DRIVER": "13000"})
        assert done.stdout.decode().strip().endswith(told), (wheel, gpus, done.stdout, done.stderr)


IMPORTED = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    import pkg
    print(pkg.answer)
except OSError as error:
    print("not found", error.winerror)
"""
OPENS = b"import ctypes, pathlib\nanswer = ctypes.WinDLL(str(pathlib.Path(__file__).with_name('own.dll'))).answer()\n"


def test_a_repaired_wheel_finds_nvidias_dlls(tmp_path: Path) -> None:
    """Windows' own loader, with a library of CUDA's name in the folder of its package, and with none."""
    if why := windows.missing():
        pytest.skip(why)
    for name, source, others in (
        ("cudart64_13.dll", "__declspec(dllexport) int theirs(void) { return 41; }", ()),
        (
            "own.dll",
            "int theirs(void); __declspec(dllexport) int answer(void) { return theirs() + 1; }",
            ("cudart64_13.dll",),
        ),
    ):
        (tmp_path / "source.c").write_text(source)
        words = [windows.COMPILER, "-shared", "-static", "source.c", *others, "-o", name]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    files: dict[str, str | bytes] = {"pkg/own.dll": (tmp_path / "own.dll").read_bytes(), "pkg/__init__.py": OPENS}
    plain = small_wheel.Wheel(name="pkg", tag="cp311-cp311-win_amd64", files=files).write(tmp_path)
    (made,) = api.repair([plain], output=tmp_path / "out", libraries=[tmp_path]).wheels
    assert made.outcome == "repaired", made.findings
    for name, wheel, told in (("before", str(plain), "not found"), ("after", made.output, "42")):
        site = tmp_path / name
        with zipfile.ZipFile(wheel or "") as archive:
            archive.extractall(site)
        place = site / "nvidia" / "cu13" / "bin" / "x86_64"
        place.mkdir(parents=True)
        shutil.copyfile(tmp_path / "cudart64_13.dll", place / "cudart64_13.dll")
        done = windows.run(["-c", IMPORTED, windows.named(site)])
        assert done.stdout.decode().strip().startswith(told), (done.stdout, done.stderr)


def linked_for_arm64(folder: Path, archs: Sequence[str], *flags: str) -> Path:
    """By Zig, which brings clang and LLVM's linker: mingw makes nothing for arm64."""

    def fetch(target: Path) -> None:
        cache.pip_install(target, "ziglang==0.17.0")
        for unneeded in ("libc", "libcxx", "libtsan"):  # half of it, and no library of C is linked
            shutil.rmtree(target / "ziglang" / "lib" / unneeded)

    try:
        top = cache.made("zig-0.17.0", fetch)
    except UnavailableError as error:
        pytest.skip(str(error))
    folder.mkdir()
    for index, size in enumerate((LARGE, 600, LARGE)):
        inside = [engine.entry(arch, engine.noise(100 * index + int(arch[3:]), size)) for arch in archs]
        (folder / f"{index}.fatbin").write_bytes(engine.container(*inside))
    words = [
        str(top / "ziglang" / "zig"),
        "cc",
        "-target",
        "aarch64-windows-gnu",
        "-Os",
        "-shared",
        "-nostdlib",
        *flags,
    ]
    env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(folder / "cache"), "ZIG_LOCAL_CACHE_DIR": str(folder / "cache")}
    source = SOURCE.with_name("bare_containers.c")
    subprocess.run([*words, str(source), "-o", "own.dll"], cwd=folder, env=env, check=True, capture_output=True)
    return folder / "own.dll"


@pytest.mark.download
def test_a_library_for_arm64(tmp_path: Path) -> None:
    """Slimmed, and refused where its code takes the address of what would move; no arm64 Windows is here to load it."""
    source, slim = linked_for_arm64(tmp_path / "plain", ("sm_80", "sm_90", "sm_100"), "-DOWN"), tmp_path / "slim.dll"
    result = slim_library(source, slim, engine.plan(source, "9.0"))
    assert result.written, result.findings
    assert result.change.bytes_after < result.change.bytes_before - 3 * LARGE
    sound(slim, source)
    assert by_hand.host_differences(source.read_bytes(), slim.read_bytes()) == []
    before, after = engine.contents(source), engine.contents(slim)
    assert sorted(after) == sorted([before[0][1:2], before[1], before[2][1:2]]), "the second is found by code"
    taken = linked_for_arm64(tmp_path / "taken", ("sm_80", "sm_90", "sm_100"), "-DTAKEN")
    result = slim_library(taken, tmp_path / "never.dll", engine.plan(taken, "9.0"))
    assert not result.written
    assert "its code takes the address of a container" in result.findings[-1].message


@pytest.mark.download
def test_two_builds_for_arm64_with_device_code_of_other_sizes(tmp_path: Path) -> None:
    """Instructions hold parts of addresses: they differ just as what they lead to has moved, or the builds differ."""
    base = linked_for_arm64(tmp_path / "base", ("sm_80",))
    donor = linked_for_arm64(tmp_path / "donor", ("sm_90", "sm_100"))
    other = linked_for_arm64(tmp_path / "other", ("sm_90", "sm_100"), "-DTAKEN")
    with Subject(base, "base") as ours, Subject(donor, "donor") as theirs, Subject(other, "other") as changed:
        assert [each.name for each in ours.sections][-2:] == [".zeros", ".reloc"], "moved, and used by code"
        assert ours.sections[-2].address != theirs.sections[-2].address
        assert host.difference(ours, theirs) == ""
        assert host.difference(ours, changed).startswith(".text has")
