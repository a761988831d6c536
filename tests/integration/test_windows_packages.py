"""Published wheels for Windows, slimmed: read by NVIDIA's and others' tools, loaded by Wine, the same results."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pefile
import pytest

from cuwheel import api
from cuwheel.changes.binaries import pe_references
from cuwheel.changes.graft import host
from cuwheel.changes.graft.subject import Subject
from cuwheel.machine.fleet import Refinement
from cuwheel_core.device_code import pe
from cuwheel_core.support.buffer import FileBuffer
from tests.fixtures import cache
from tests.fixtures import cuobjdump as oracle
from tests.fixtures.cache import UnavailableError
from tests.integration import windows_bench
from tests.oracle import packages
from tests.oracle.packages import Published
from tests.unit.changes.binaries import engine
from tests.unit.changes.slim.packages import wrong_members
from tests.wine import windows

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    "cupy-cuda12x 13.6.0": 0.25,
}
CALLER = Path(__file__).parent / "call_windows_library.py"
# The libraries of which something is called.
CALLED = {"bitsandbytes 0.50.2", "xgboost 3.2.0", "nvidia-curand 10.4.0.35"}
HOSTS = {"onnxruntime_providers_cuda.dll": "onnxruntime.dll"}  # the library that must load one, and prepares that


def wheel_of(subject: str, platform: str = "win_amd64") -> Path:
    name, version = subject.split()
    try:
        return packages.wheel(Published(name=name, version=version, platform=platform))
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
    command = ["wine", str(program), "-all", "-lelf", path.name]
    done = windows.completed(command, timeout=600, env=windows.environment(), cwd=path.parent)
    if oracle.REFUSED.encode() in done.stdout:
        return None
    assert b"cuobjdump fatal" not in done.stdout + done.stderr, done.stdout + done.stderr
    return Counter(re.findall(r"\.(sm_\d+[af]?)\.", done.stdout.decode("utf-8", "replace")))


def load(path: Path, way: str) -> str:
    """Where Wine loads it: `in place`, `moved`, or the error."""
    command = ["wine", str(windows_bench.tool("load")), windows.named(path), way]
    done = windows.completed(command, timeout=300, env=windows.environment())
    assert done.returncode == 0
    return done.stdout.decode()


def call(path: Path) -> list[object]:
    done = windows.run([windows.named(CALLER), windows.named(path)], timeout=300)
    assert done.stdout, done.stderr.decode("utf-8", "replace")
    found: list[object] = json.loads(done.stdout)
    return found


def stand_in(library: Path, wheel: Path) -> None:
    """What it needs, beside it: from its own wheel, else a library of that name whose functions all fail.

    NVIDIA's have hundreds of megabytes, and nothing of theirs is called.
    """
    read = pefile.PE(library, fast_load=True)
    read.parse_data_directories([pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_IMPORT"]])
    imported = {
        each.dll.decode(): [one.name.decode() for one in each.imports if one.name]
        for each in read.DIRECTORY_ENTRY_IMPORT
    }
    read.close()
    system = {each.name.lower() for each in (windows.prefix() / "drive_c/windows/system32").iterdir()}
    with zipfile.ZipFile(wheel) as archive:
        own = {name.rpartition("/")[2].lower(): name for name in archive.namelist()}
        for name, functions in imported.items():
            place = library.with_name(name)
            if place.exists() or name.lower() in system or name.lower().startswith("api-ms-"):
                continue
            if name.lower().startswith("python3"):
                shutil.copyfile(windows.python() / name, place)
            elif name.lower() in own:
                place.write_bytes(archive.read(own[name.lower()]))
                stand_in(place, wheel)
            else:
                _made_up(place, functions)


def _made_up(place: Path, functions: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        listed = "".join(f'  "{each}" = fail\n' for each in functions)
        Path(folder, "own.def").write_text(f"LIBRARY {place.name}\nEXPORTS\n{listed}")
        Path(folder, "own.c").write_text("int fail(void) { return 1; }\n")
        words = ["x86_64-w64-mingw32-gcc", "-shared", "own.c", "own.def", "-o", str(place)]
        subprocess.run(words, cwd=folder, check=True, capture_output=True)


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
        if not windows.missing():
            _loaded_alike(old, new, source, called=subject in CALLED)


def _unpacked(wheel: Path, member: str, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(member, folder))


def _same_but_smaller(old: Path, new: Path) -> None:
    buffer = FileBuffer(new)
    assert list(pe_references.broken_rules(pe.read_pe(buffer))) == []
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


def _loaded_alike(old: Path, new: Path, wheel: Path, *, called: bool) -> None:
    """Where it was linked for, and elsewhere; what is called gives the same."""
    for each in (old, new):
        stand_in(each, wheel)
    if host := HOSTS.get(old.name):
        with zipfile.ZipFile(wheel) as archive:
            member = next(each for each in archive.namelist() if each.endswith(f"/{host}"))
        old, new = (_unpacked(wheel, member, each.parents[member.count("/")]) for each in (old, new))
        assert call(old) == call(new) == [[True, "", "", ""]]
        return
    for way in ("in place", "moved"):
        assert [load(each, way) for each in (old, new)] == [way, way]
    if called:
        before = call(old)
        assert before
        assert call(new) == before


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
        _loaded_alike(whole, new, source, called=True)


def test_a_wheel_by_architecture_and_put_together_again(tmp_path: Path) -> None:
    """Seven libraries linked by MSVC: the device code of the whole is the original's, byte for byte and in order."""
    source = wheel_of("bitsandbytes 0.50.2")
    parts = api.graft(source, split=True, output=tmp_path / "parts")
    assert parts.written, parts.findings
    assert all(Path(each).stat().st_size < source.stat().st_size / 3 for each in parts.outputs)
    first, *others = parts.outputs
    whole = api.graft(first, others, output=tmp_path / "whole")
    assert whole.written, whole.findings
    (made,) = map(Path, whole.outputs)
    assert made.name == source.name
    libraries = [each.path for each in api.inspect(source).libraries if each.device_code]
    assert len(libraries) == 7
    for each in libraries:
        old, new = (_unpacked(one, each, tmp_path / name) for one, name in ((source, "old"), (made, "new")))
        assert engine.contents(new) == engine.contents(old)
        buffer = FileBuffer(new)
        assert list(pe_references.broken_rules(pe.read_pe(buffer))) == []
        buffer.close()
        assert warnings_of(new) <= warnings_of(old)
    if not windows.missing():
        _loaded_alike(old, new, source, called=True)


@pytest.mark.parametrize(
    ("base", "donor", "rule"),
    [
        (("bitsandbytes 0.49.2", "cuda130"), ("bitsandbytes 0.50.2", "cuda130"), "graft-other-registration"),
        (("bitsandbytes 0.50.2", "cuda130"), ("bitsandbytes 0.50.2", "cuda132"), "graft-other-cuda"),
    ],
    ids=["another release", "another CUDA"],
)
def test_real_builds_that_do_not_fit(tmp_path: Path, base: tuple[str, str], donor: tuple[str, str], rule: str) -> None:
    """Each cut to other GPUs, so that the donor has something new; refused with what really differs."""
    parts = []
    for (subject, which), gpu in ((base, "7.5"), (donor, "9.0")):
        library = _unpacked(wheel_of(subject), f"bitsandbytes/libbitsandbytes_{which}.dll", tmp_path / gpu)
        parts.append(tmp_path / f"{gpu}.dll")
        assert api.slim(library, machines=[gpu], output=parts[-1]).written
    refused = api.graft(*parts, output=tmp_path / "never.dll")
    assert not refused.written
    assert [each.rule for each in refused.findings if each.severity == "error"] == [rule]


@pytest.mark.parametrize(
    ("subject", "name"), [("nvidia-curand 10.4.0.35", "curand64_10.dll"), ("nvidia-cufft 12.4.0.43", "cufft64_12.dll")]
)
def test_a_signed_library_all_the_way(tmp_path: Path, subject: str, name: str) -> None:
    """NVIDIA's own in a folder: seen as signed, left as it is, changed if asked, judged alike, and brought back."""
    source = wheel_of(subject)
    with zipfile.ZipFile(source) as archive:
        member = next(each for each in archive.namelist() if each.endswith(name))
    library = _unpacked(source, member, tmp_path / "site")
    before = library.read_bytes()
    (found,) = api.inspect(library).libraries
    assert found.signed
    untouched = api.slim(tmp_path / "site", machines=["h100"])
    assert [each.rule for each in untouched.findings if each.rule == "signed"] == ["signed"]
    assert library.read_bytes() == before
    was = api.check(library, on=["h100"], refine=KNOWN).verdicts[0]
    assert api.slim(tmp_path / "site", machines=["h100"], drop_signature=True).written
    assert library.stat().st_size < len(before)
    (found,) = api.inspect(library).libraries
    assert not found.signed
    now = api.check(library, on=["h100"], refine=KNOWN).verdicts[0]
    assert (now.outcome, now.predicted_error) == (was.outcome, was.predicted_error)
    api.slim_undo(tmp_path / "site")
    assert library.read_bytes() == before


def test_a_library_of_nvidias_for_arm64(tmp_path: Path) -> None:
    """Slimmed twice and put together again: the rules, the readers and its host side; nothing here can load it."""
    source = wheel_of("nvidia-curand 10.4.4.72", "win_arm64")
    with zipfile.ZipFile(source) as archive:
        member = next(each for each in archive.namelist() if each.endswith("curand64_10.dll"))
    whole = _unpacked(source, member, tmp_path / "whole")
    assert api.inspect(whole).libraries[0].machine == "aarch64"
    parts = [tmp_path / "base.dll", tmp_path / "donor.dll"]
    for part, machines in zip(parts, (("a100", "h100"), ("h100", "12.1")), strict=True):
        assert api.slim(whole, machines=machines, drop_signature=True, output=part).written
        assert part.stat().st_size < 0.5 * whole.stat().st_size
        _same_but_smaller(whole, part)
    grafted = tmp_path / "grafted.dll"
    found = api.graft(*parts, output=grafted)
    assert found.written, found.findings
    _same_but_smaller(whole, grafted)
    assert {str(each.arch) for each in engine.read(grafted).entries if each.kind == "cubin"} == {
        *("sm_80", "sm_90", "sm_121"),
    }
    for each in (*parts, grafted):
        with Subject(whole, "whole") as ours, Subject(each, each.name) as theirs:
            assert host.difference(ours, theirs) == ""
