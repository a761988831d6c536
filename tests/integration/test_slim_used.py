"""An environment cut to a workload: what is left, the mark, the guard, the way back, and when it is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cuwheel
from cuwheel import api
from cuwheel.changes.slim.use import workload_guard
from cuwheel.errors import UsageError
from tests.fixtures import manifest
from tests.integration.test_rewrite_layouts import SHARED
from tests.integration.test_rewrite_resources import build, cubin, resource
from tests.unit.changes.binaries import engine
from tests.unit.changes.slim.packages import with_info
from tests.unit.tracing.test_workload import library, load, process, written

PIECES = [
    *(resource(seed, "sm_90") for seed in range(6)),
    resource(9, "sm_90", "lto_90"),
    *(cubin(seed, 90, packed=True) for seed in range(5)),
]
FAILING = "CUDNN_STATUS_EXECUTION_FAILED"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with two libraries, of which the workload uses one."""
    made = {}
    for name, pieces in (("libused.so", PIECES), ("libspare.so", PIECES[:2])):
        folder = tmp_path / name
        folder.mkdir()
        made[f"foo/{name}"] = build(folder, (*SHARED, f"-Wl,--build-id=0x{len(name):08x}"), pieces).read_bytes()
    site = tmp_path / "site"
    for path, data in with_info({**made, "foo/__init__.py": b""}, "foo", "1.0").items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
    return site


def trace(site: Path, folder: Path, **changes: Any) -> Path:
    """Of a workload that loads the named container, one resource and one cubin, which its library unpacks."""
    path = site / "foo" / "libused.so"
    found = engine.read(path)
    resources = [each.offset for each in found.containers if each.section == ".resource"]
    named = next(each.offset for each in found.containers if each.section == ".nv_fatbin")
    row = library(str(path), build_id=found.build_id, size=found.size)
    memory = load(None, None, caller=str(path), hash=fnv(unpacked(3)))
    loads = [load(named, str(path)), load(resources[2], str(path)), memory]
    return written(folder, **{"libraries": [row], "loads": loads, **changes})


def unpacked(index: int) -> bytes:
    import zstandard

    cubins = [each for each in PIECES if each.section.startswith(".loose")]
    data: bytes = zstandard.ZstdDecompressor().decompress(cubins[index].data)
    return data


def fnv(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data[: 1 << 16]:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


def kept(path: Path) -> list[tuple[str, str]]:
    return [(each.section, each.arch) for each in engine.read(path).entries]


def test_only_what_was_loaded_is_left_and_all_comes_back(site: Path, tmp_path: Path) -> None:
    before = snapshot(site)
    answer = cuwheel.slim(site, used=[trace(site, tmp_path)])
    assert answer.written, answer.findings
    assert answer.targets == ("9.0",)  # those of the trace
    assert answer.workload == ("python train.py",)
    # Of six resources one, and the one with LTO-IR, whose use nobody sees; of five cubins one.
    assert kept(site / "foo/libused.so") == [
        *((".nv_fatbin", "sm_90"), (".resource", "sm_90"), (".resource", "sm_90"), (".resource", "lto_90")),
        (".loose", "sm_90"),
    ]
    assert kept(site / "foo/libspare.so") == []
    left = {Path(each.path).name: (each.kept, each.pieces, each.loaded) for each in answer.kept}
    assert left == {"libused.so": (4, 13, True), "libspare.so": (0, 3, False)}
    api.slim_undo(site)
    after = snapshot(site)
    assert {name: data for name, data in after.items() if not name.startswith(".cuwheel")} == before


def test_an_image_that_is_nowhere_in_the_file_keeps_all_that_it_may_be(site: Path, tmp_path: Path) -> None:
    path = str(site / "foo" / "libused.so")
    found = engine.read(Path(path))
    row = library(path, build_id=found.build_id, size=found.size)
    strange = [load(None, None, caller=path, hash="0123456789abcdef")]
    cuwheel.slim(site, used=[written(tmp_path, libraries=[row], loads=strange)])
    assert [each for each in kept(Path(path)) if each[0] == ".loose"] == [(".loose", "sm_90")] * 5


def test_the_mark_is_told_by_every_verb(site: Path, tmp_path: Path) -> None:
    cuwheel.slim(site, used=[trace(site, tmp_path)])
    for target in (site, site / "foo" / "libused.so"):
        rules = {each.rule for each in cuwheel.inspect(target).findings}
        assert "cut-to-workload" in rules
        (verdict,) = cuwheel.check(target, on=["9.0"]).verdicts
        assert any(each.rule == "cut-to-workload" and "python train.py" in each.message for each in verdict.findings)
    api.slim_undo(site)
    assert not any(each.rule == "cut-to-workload" for each in cuwheel.inspect(site).findings)


def test_doctor_tells_the_mark_once_with_a_gpu_or_without(site: Path, tmp_path: Path) -> None:
    env = tmp_path / "env"
    packages = env / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    packages.parent.mkdir(parents=True)
    site.rename(packages)
    (env / "bin").mkdir()
    (env / "bin" / "python").symlink_to(sys.executable)
    (env / "pyvenv.cfg").write_text("home = /usr/bin\n")
    cuwheel.slim(env=env, used=[trace(packages, tmp_path)])
    (told,) = [each for each in cuwheel.doctor(env=env).findings if each.rule == "cut-to-workload"]
    assert "foo was cut to a workload (python train.py)" in told.message
    api.slim_undo(env)
    assert not any(each.rule == "cut-to-workload" for each in cuwheel.doctor(env=env).findings)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"libraries": [library("/x/libused.so", build_id="0badcafe")], "loads": [load(1, "/x/libused.so")]}, "build"),
        ({"processes": [process(lost=1)]}, "trace-incomplete"),
        ({"processes": [process(gpus=[{"name": "L4", "capability": "8.9", "cuda": "13.0"}])]}, "trace-of-another-gpu"),
    ],
)
def test_refused(site: Path, tmp_path: Path, changes: dict[str, Any], rule: str) -> None:
    before = snapshot(site)
    answer = cuwheel.slim(site, machines=["9.0"], used=[trace(site, tmp_path, **changes)])
    assert answer.refused
    assert any(rule in each.rule and each.severity == "error" for each in answer.findings)
    assert {name: data for name, data in snapshot(site).items() if not name.startswith(".cuwheel")} == before


def test_a_build_that_was_slimmed_since_is_another(site: Path, tmp_path: Path) -> None:
    old = trace(site, tmp_path)
    cuwheel.slim(site, machines=["9.0"])
    answer = cuwheel.slim(site, used=[old])
    assert answer.refused
    assert "--undo" in answer.findings[0].fix


def test_windows_binaries_are_in_no_trace(site: Path, tmp_path: Path) -> None:
    """Alone they are refused with the reason; beside what was traced only their architectures count."""
    windows = tmp_path / "windows"
    windows.mkdir()
    dll = shutil.copy(manifest.HERE / "bin" / "windows-130.dll", windows)
    answer = cuwheel.slim(windows, used=[trace(site, tmp_path)])
    assert answer.refused
    (told,) = answer.findings
    assert (told.rule, "programs are traced on Linux alone" in told.message) == ("trace-is-of-linux", True)
    assert "--for" in told.fix
    assert Path(dll).read_bytes() == (manifest.HERE / "bin" / "windows-130.dll").read_bytes()
    beside = Path(shutil.copy(dll, site / "foo"))
    assert cuwheel.slim(site, used=[trace(site, tmp_path)]).written
    assert {str(each.arch) for each in engine.read(beside).entries} == {"sm_90"}


def test_wheels_and_libraries_cannot_carry_the_mark(site: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="environments and folders"):
        cuwheel.slim(site / "foo/libused.so", used=[trace(site, tmp_path)], output=tmp_path / "out")


@pytest.mark.parametrize("message", [FAILING, "something else"])
def test_the_guard_speaks_where_code_is_missing(site: Path, tmp_path: Path, message: str) -> None:
    cuwheel.slim(site, used=[trace(site, tmp_path)])
    script = f"import site; site.addsitedir({str(site)!r})\ndef work(): raise RuntimeError({message!r})\nwork()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert ("cut to a workload (python train.py)" in done.stderr) == (message == FAILING)
    assert (f"cuwheel slim --undo {site}" in done.stderr) == (message == FAILING)


def test_the_guard_names_no_undo_where_no_originals_were_kept(site: Path, tmp_path: Path) -> None:
    """In a copy of a folder, too, which was slimmed before it took its name."""
    copy = tmp_path / "copy"
    cuwheel.slim(site, used=[trace(site, tmp_path)], output=copy)
    cuwheel.slim(site, used=[trace(site, tmp_path)], commit=True)
    for place in (copy, site):
        script = f"import site; site.addsitedir({str(place)!r})\nraise RuntimeError({FAILING!r})"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "or install its packages again" in done.stderr
        assert "--undo" not in done.stderr


def test_the_guard_is_silent_when_the_packages_were_installed_anew(site: Path, tmp_path: Path) -> None:
    cuwheel.slim(site, used=[trace(site, tmp_path)], commit=True)
    (site / "foo-1.0.dist-info" / "cuwheel-slim.json").unlink()
    script = f"import site; site.addsitedir({str(site)!r})\nraise RuntimeError({FAILING!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "cuwheel" not in done.stderr


def test_what_a_command_is_called_cannot_break_the_guard() -> None:
    text = workload_guard(("python \"x'\n\\", "ü"), "undo")["_cuwheel_workload.py"]
    compile(text, "guard", "exec")


def test_the_command_line_says_what_is_lost(site: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cuwheel", "slim", str(site), "--used", str(trace(site, tmp_path))]
    done = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Nothing is left in libspare.so" in done.stdout
    answer = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert answer["workload"] == ["python train.py"]
