"""Published wheels for Windows, slimmed: read by NVIDIA's and others' tools, loaded by Wine, the same results."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import pefile
import pytest

from cuwheel import api
from cuwheel.binary import pe_rules
from cuwheel.buffer import FileBuffer
from cuwheel.inspection import pe
from cuwheel.machine.fleet import Refinement
from tests.fixtures import cache
from tests.fixtures import cuobjdump as oracle
from tests.fixtures.cache import UnavailableError
from tests.oracle import packages
from tests.oracle.packages import Published
from tests.unit.binary import engine
from tests.unit.slimming.packages import wrong_members
from tests.wine import windows

pytestmark = pytest.mark.download
MACHINES = ("h100", "rtx 4090")
KNOWN = Refinement(os="windows", driver="580.88", python="3.11")
# What is left at most, of all libraries together: as measured, and a little more.
SUBJECTS = {
    "bitsandbytes 0.50.2": 0.30,
    "xgboost 3.2.0": 0.45,
    "catboost 1.2.10": 0.40,
    "ctranslate2 4.6.0": 0.90,
    "onnxruntime-gpu 1.31.1": 0.75,
    "nvidia-curand 10.4.0.35": 0.80,
    "nvidia-cufft 12.4.0.43": 1.0,
}
# Loads a library where it was linked for or with that place taken, and calls what can be called without a GPU.
LOAD = """
import ctypes, json, struct, sys
def load(path, moved):
    data = open(path, "rb").read(4096)
    base, = struct.unpack_from("<Q", data, struct.unpack_from("<I", data, 0x3c)[0] + 24 + 24)
    if moved:
        reserve = ctypes.windll.kernel32.VirtualAlloc
        reserve.restype = ctypes.c_void_p
        reserve.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ulong, ctypes.c_ulong
        reserve(base, 65536, 0x2000, 1)
    try:
        library = ctypes.WinDLL(path, winmode=8)
    except OSError as error:
        return ["not loaded", error.winerror]
    told = ["loaded", (library._handle != base) == moved]
    if hasattr(library, "XGBoostVersion"):
        numbers = [ctypes.c_int() for _ in range(3)]
        library.XGBoostVersion(*map(ctypes.byref, numbers))
        told += [each.value for each in numbers]
    if hasattr(library, "curandCreateGeneratorHost"):
        generator, values = ctypes.c_void_p(), (ctypes.c_float * 1000)()
        told.append(library.curandCreateGeneratorHost(ctypes.byref(generator), 100))
        library.curandGenerateUniform.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
        told.append(library.curandGenerateUniform(generator, values, 1000))
        told.append(sum(values))
    return told
print(json.dumps(load(sys.argv[1], sys.argv[2] == "moved")), flush=True)
import os; os._exit(0)
"""


def wheel_of(subject: str) -> Path:
    name, version = subject.split()
    try:
        return packages.wheel(Published(name=name, version=version, platform="win_amd64"))
    except UnavailableError as reason:
        pytest.skip(str(reason))


def cuobjdump(path: Path) -> Counter[str] | None:
    """What NVIDIA's own reader for Windows lists, by architecture; None where it refuses the cubins themselves."""
    try:
        folder = cache.made(
            "cuobjdump-windows-13.4.92",
            lambda target: cache.pip_download(target, "nvidia-cuda-cuobjdump==13.4.92", "--platform", "win_amd64"),
        )
    except UnavailableError as reason:
        pytest.skip(str(reason))
    program = folder / "cuobjdump.exe"
    if not program.exists():
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
            member = next(each for each in archive.namelist() if each.endswith("cuobjdump.exe"))
            program.write_bytes(archive.read(member))
    done = subprocess.run(
        ["wine", program, "-all", "-lelf", path.name],
        cwd=path.parent,
        env=windows.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=600,
    )
    if oracle.REFUSED.encode() in done.stdout:
        return None
    assert b"cuobjdump fatal" not in done.stdout + done.stderr, done.stdout + done.stderr
    return Counter(re.findall(r"\.(sm_\d+[af]?)\.", done.stdout.decode("utf-8", "replace")))


def load(path: Path, way: str) -> list[object]:
    done = windows.run(["-c", LOAD, windows.named(path), way], timeout=300)
    assert done.stdout, done.stderr.decode("utf-8", "replace")
    found: list[object] = json.loads(done.stdout)
    return found


def warnings_of(path: Path) -> set[str]:
    """Of the directories that tools read; pefile counts every byte of the file otherwise."""
    read = pefile.PE(path, fast_load=True)
    read.parse_data_directories([pefile.DIRECTORY_ENTRY[f"IMAGE_DIRECTORY_ENTRY_{each}"] for each in DIRECTORIES])
    found = set(read.get_warnings())
    read.close()
    return found


DIRECTORIES = ("EXPORT", "IMPORT", "RESOURCE", "DEBUG", "TLS", "LOAD_CONFIG")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_slimmed_wheel_for_windows(subject: str, tmp_path: Path) -> None:
    source = wheel_of(subject)
    made = api.slim(source, machines=MACHINES, drop_signature=True, output=tmp_path / "out")
    assert made.written
    assert made.total.bytes_after < SUBJECTS[subject] * made.total.bytes_before
    output = Path(made.output or "")
    assert wrong_members(output) == wrong_members(source)
    for before, after in zip(
        *(api.check(each, on=MACHINES, refine=KNOWN).verdicts for each in (source, output)), strict=True
    ):
        assert (after.outcome, after.predicted_error) == (before.outcome, before.predicted_error)
    changed = [each for each in made.files if each.fate == "slimmed"]
    for each in changed:
        old, new = (_unpacked(one, each.path, tmp_path / name) for one, name in ((source, "old"), (output, "new")))
        _same_but_smaller(old, new)


def _unpacked(wheel: Path, member: str, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(member, folder))


def _same_but_smaller(old: Path, new: Path) -> None:
    buffer = FileBuffer(new)
    assert list(pe_rules.problems(pe.read(buffer))) == []
    buffer.close()
    assert warnings_of(new) <= warnings_of(old)
    if windows.missing():
        return
    # cuobjdump looks into the sections made for device code alone.
    inside = [
        each for each in engine.read(new).entries if each.kind == "cubin" and each.section.startswith((".nv", "__nv"))
    ]
    listed = cuobjdump(new)
    if listed is None:
        assert cuobjdump(old) is None
    else:
        assert listed == Counter(str(each.arch) for each in inside)
    for way in ("in place", "moved"):
        assert load(new, way) == load(old, way)


def test_a_library_of_nvidias_with_an_architecture_more(tmp_path: Path) -> None:
    """Two parts of cuRAND with one architecture in common, put together: read and loaded as the whole."""
    source = wheel_of("nvidia-curand 10.4.0.35")
    with zipfile.ZipFile(source) as archive:
        member = next(each for each in archive.namelist() if each.endswith("curand64_10.dll"))
    whole = _unpacked(source, member, tmp_path / "whole")
    parts = []
    for name, machines in (("base", ("a100", "h100")), ("donor", ("h100", "12.0"))):
        made = api.slim(whole, machines=machines, drop_signature=True, output=tmp_path / f"{name}.dll")
        assert made.written
        parts.append(tmp_path / f"{name}.dll")
    grafted = api.graft(*parts, output=tmp_path / "curand64_10.dll")
    assert grafted.written, grafted.findings
    assert grafted.proof
    assert grafted.proof.kind == "witness"
    new = tmp_path / "curand64_10.dll"
    archs = {str(each.arch) for each in engine.read(new).entries if each.kind == "cubin"}
    assert archs == {"sm_80", "sm_90", "sm_120"}
    assert warnings_of(new) <= warnings_of(whole)
    if not windows.missing():
        listed = cuobjdump(new)
        assert listed is not None
        assert set(listed) == archs
        for way in ("in place", "moved"):
            assert load(new, way) == load(whole, way)
