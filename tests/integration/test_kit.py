"""Kits made, carried into a folder with nothing in it, and run: with no GPU, and with one that is pretended."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.device_code.survey import survey
from cuwheel.errors import UsageError
from cuwheel.proving import kit, proof
from cuwheel.proving.request import PackRequest
from cuwheel_core.errors import CuwheelError, UnsafeWheelError
from tests.integration import pretend
from tests.unit.changes.slim.packages import FOO, fixture, make_wheel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IMPORT = {"name": "import foo", "kind": "import", "text": "foo"}
ON_GPU = {"name": "two", "kind": "python", "text": "import foo; print(2)", "gpu": True, "expect": ["2"]}
# The smallest library of these has code for 7.5, 9.0 and 10.0 alone.
SERVED, NOT_SERVED = "9.0", "8.0"


def packed(
    folder: Path,
    *checks: Mapping[str, Any],
    files: Mapping[str, bytes] = FOO,
    system: bool = False,
    **more: Any,
) -> Path:
    if not checks and files is FOO and not system and not more:
        (folder / "kit.pyz").write_bytes(_usual_kit())
        return folder / "kit.pyz"
    return _packed(folder, checks or (IMPORT, ON_GPU), files, system=system, **more)


@functools.cache
def _usual_kit() -> bytes:
    """Made once: what goes into a kit is judged for every GPU and driver."""
    with tempfile.TemporaryDirectory() as folder:
        return _packed(Path(folder), (IMPORT, ON_GPU), FOO).read_bytes()


def _packed(
    folder: Path, checks: Sequence[Mapping[str, Any]], files: Mapping[str, bytes], *, system: bool = False, **more: Any
) -> Path:
    wheel = make_wheel(folder / "wheels", files, **more)
    request = PackRequest(wheel, to=folder / "kit.pyz", system=system)
    return Path(kit.write_kit(request, [survey(wheel, detail="containers")], lambda _: checks).path)


def run(
    made: Path,
    environ: Mapping[str, str] | None = None,
    *options: str,
    python: Sequence[str] = ("-I", "-S"),
    interpreter: str = sys.executable,
) -> tuple[int, str, dict[str, Any]]:
    """In a folder of its own, with an interpreter that sees nothing but the standard library."""
    place = made.parent / "elsewhere"
    place.mkdir(exist_ok=True)
    bare = {"PATH": "", "FAKE": "none"} if environ is None else environ
    fake = ",".join(name for name in bare if name.startswith("FAKE"))  # what the pretended driver goes by
    words = [interpreter, *python, str(made), *options, *(["--pass-env", fake] if fake else [])]
    done = subprocess.run(words, env=bare, cwd=place, capture_output=True, text=True, check=False, timeout=600)
    assert "Traceback" not in done.stderr, done.stderr
    path = place / "proof.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return done.returncode, done.stdout + done.stderr, found


def gpu(capability: str = SERVED, *, driver: int = 13000, **more: str) -> dict[str, str]:
    environ = {**pretend.environ(capability, driver=driver), **more}
    return {name: value for name, value in environ.items() if name.startswith(("FAKE", "LD_", "CUDA"))} | {"PATH": ""}


def by_name(found: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each["outcome"] for wheel in found["wheels"] for each in wheel["checks"]}


def test_a_bare_machine_without_a_gpu(tmp_path: Path) -> None:
    status, said, found = run(packed(tmp_path))
    assert status == 0, said
    assert by_name(found) == {"import foo": "passed", "two": "skipped"}
    assert "no GPU that CUDA sees" in said
    assert found["wheels"][0]["prediction"] is None
    assert list((tmp_path / "elsewhere").iterdir()) == [tmp_path / "elsewhere" / "proof.json"]
    assert str(tmp_path) not in (tmp_path / "elsewhere" / "proof.json").read_text()


def test_the_oldest_python_that_a_kit_runs_on(tmp_path: Path) -> None:
    """Its importer of zip files tells a module less of itself than later ones do."""
    known = [str(each) for each in Path("~/.pyenv/versions").expanduser().glob("3.9.*/bin/python3")]
    interpreter = next(iter(known), None) or shutil.which("python3.9")
    if interpreter is None:
        pytest.skip("needs Python 3.9")
    status, said, found = run(packed(tmp_path), interpreter=interpreter)
    assert status == 0, said
    assert by_name(found) == {"import foo": "passed", "two": "skipped"}
    assert found["machine"]["python"].startswith("3.9.")


def test_a_gpu_that_does_as_predicted(tmp_path: Path) -> None:
    status, said, found = run(packed(tmp_path), gpu())
    assert status == 0, said
    (wheel,) = found["wheels"]
    assert by_name(found) == {"device code": "passed", "import foo": "passed", "two": "passed"}
    assert (wheel["prediction"]["outcome"], wheel["agreement"]) == ("native", "agreed")
    assert wheel["probed"]["compared"] == wheel["probed"]["loaded"] == 2
    assert found["machine"]["gpus"] == [{"name": "Pretend GPU 0", "capability": "9.0", "memory": 16000000000}]
    assert found["machine"]["driver_cuda"] == "13.0"
    assert proof.parse_proof(json.dumps(found).encode(), "x").succeeded


LOADS = """
import ctypes, pathlib, foo
place = str(pathlib.Path(foo.__file__).with_name("libplain.so"))
library, driver = ctypes.CDLL(place), ctypes.CDLL("libcuda.so.1")
data = pathlib.Path(place).read_bytes()
offset = data.index(bytes.fromhex("50ed55ba01001000"))
rows = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith("libplain.so")]
spans = [(int(row[2], 16), *(int(each, 16) for each in row[0].split("-"))) for row in rows]
base = next(start - at for at, start, end in spans if at <= offset < at + end - start)
driver.cuModuleLoadData.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
print("loaded", driver.cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), base + offset), offset)
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("compiles", "words"), [({}, "nothing"), ({"FAKE_CUDA_COMPILES": "120"}, "1 piece of PTX, 0.1 s")]
)
def test_the_proof_lists_what_was_really_loaded(compiles: dict[str, str], words: str, tmp_path: Path) -> None:
    """A check that hands a container of the wheel's library to the driver: which, of which file, and if it compiled."""
    check = {"name": "loads", "kind": "python", "text": LOADS, "gpu": True, "expect": ["loaded 0"]}
    files = {"foo/__init__.py": b"", "foo/libplain.so": fixture("plain-130.so")}
    made = packed(tmp_path, IMPORT, check, files=files)
    status, said, found = run(made, gpu() | compiles)
    assert status == 0, said
    by_check = {each["name"]: each for each in found["wheels"][0]["checks"]}
    (row,) = by_check["loads"]["loaded"]
    took = row.pop("compile_ms")
    assert took >= 120 if compiles else took == 0.0
    offset = int(by_check["loads"]["output"].split()[2])
    assert row == {
        "library": "foo/libplain.so",
        "offsets": [offset],
        "images": 0,
        "kernels": [],
        "compiled": len(compiles),
    }
    assert by_check["import foo"]["loaded"] == []
    assert "loaded foo/libplain.so: 1 pieces" in said
    assert f"the driver compiled {words}" in said
    read = proof.read_proof(made.parent / "elsewhere" / "proof.json")
    assert [each.loaded[0].offsets for each in read.wheels[0].checks if each.loaded] == [(offset,)]
    assert not run(made)[2]["wheels"][0]["checks"][0]["loaded"]  # no GPU, nothing to see


def test_a_driver_that_refuses_what_was_foretold_to_load(tmp_path: Path) -> None:
    status, said, found = run(packed(tmp_path), gpu(FAKE_CUDA_REFUSES="all"))
    assert status == 1
    assert found["wheels"][0]["agreement"] == "contradicted"
    assert "PREDICTION CONTRADICTED: foo-1.0+cu130-py3-none-any.whl: foo/lib/libbar.so.1" in said
    read = proof.parse_proof(json.dumps(found).encode(), "x")
    assert not read.succeeded
    assert read.wheels[0].probed.against


def test_one_that_fails_as_predicted_is_no_success_and_no_contradiction(tmp_path: Path) -> None:
    refused = {**ON_GPU, "text": "import sys; sys.exit('cudaErrorNoKernelImageForDevice')"}
    status, said, found = run(packed(tmp_path, refused), gpu(NOT_SERVED, FAKE_CUDA_REFUSES="all"))
    assert status == 1
    (wheel,) = found["wheels"]
    assert wheel["prediction"]["error"] == {"code": 209, "name": "cudaErrorNoKernelImageForDevice"}
    assert wheel["agreement"] == "agreed", wheel["why"]
    assert by_name(found) == {"device code": "passed", "two": "failed"}
    assert "cudaErrorNoKernelImageForDevice" in said


def test_a_check_that_passes_where_failure_was_predicted(tmp_path: Path) -> None:
    status, _, found = run(packed(tmp_path, ON_GPU), gpu(NOT_SERVED, FAKE_CUDA_REFUSES="all"))
    assert status == 1
    assert found["wheels"][0]["agreement"] == "contradicted"
    assert "but two passed on the GPU" in found["wheels"][0]["why"]


def test_a_check_that_fails_for_a_reason_of_its_own_leaves_it_open(tmp_path: Path) -> None:
    status, _, found = run(packed(tmp_path, {**ON_GPU, "expect": ["3"]}), gpu())
    assert (status, found["wheels"][0]["agreement"]) == (1, "open")
    assert "for another reason than the device code; the driver answers as predicted" in found["wheels"][0]["why"]


def test_the_first_visible_gpu_counts(tmp_path: Path) -> None:
    made = packed(tmp_path)
    _, _, found = run(made, gpu("8.0,9.0", CUDA_VISIBLE_DEVICES="1"))
    assert found["wheels"][0]["prediction"]["capability"] == "9.0"
    assert found["machine"]["variables"] == {"CUDA_VISIBLE_DEVICES": "1"}
    _, _, found = run(made, gpu("8.0,9.0", CUDA_VISIBLE_DEVICES=""))
    assert found["machine"]["driver_status"] == 100
    assert by_name(found)["two"] == "skipped"


def test_frameworks_are_known_without_importing_them(tmp_path: Path) -> None:
    text = b"__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip = None\n"
    files = {"torch/__init__.py": b"raise RuntimeError\n", "torch/version.py": text}
    _, _, found = run(packed(tmp_path, IMPORT, files=files, name="torch"))
    assert found["wheels"][0]["frameworks"] == {"torch": ["2.11.0+cu130", "13.0"]}
    _, _, found = run(packed(tmp_path, IMPORT, files={"jax_plugins/x/__init__.py": b""}, name="jax_cuda13_plugin"))
    assert found["wheels"][0]["frameworks"] == {}
    plugin = make_wheel(tmp_path / "index", {"jax_plugins/x/__init__.py": b""}, name="jax_cuda13_plugin", version="0.9")
    wheel = make_wheel(tmp_path / "wheels", {"jax/__init__.py": b""}, name="jax", version="0.9")
    _require(wheel, "jax-cuda13-plugin")
    request = PackRequest(
        "x.whl", to=tmp_path / "kit.pyz", requirements=True, find_links=(plugin.parent,), offline=True
    )
    made = kit.write_kit(request, [survey(wheel, detail="containers")], lambda _: [IMPORT])
    _, _, found = run(Path(made.path))
    assert found["wheels"][0]["frameworks"] == {"jax": ["0.9", "13"]}


def test_drivers_decide_too(tmp_path: Path) -> None:
    """The library that was built with CUDA 13.0 wants a newer driver than 12.4; the other does not."""
    _, _, found = run(packed(tmp_path), gpu(driver=12040))
    assert found["wheels"][0]["prediction"]["outcome"] == "partial"
    assert found["wheels"][0]["prediction"]["error"]["code"] == 35


@pytest.mark.parametrize("trouble", ["FAKE_CUDA_CRASHES", "FAKE_CUDA_HANGS"])
def test_a_driver_that_crashes_or_hangs_hurts_nobody(tmp_path: Path, trouble: str) -> None:
    made = packed(tmp_path)
    if trouble == "FAKE_CUDA_HANGS":  # it would be waited for two minutes
        with zipfile.ZipFile(made) as archive:
            texts = {name: archive.read(name) for name in archive.namelist()}
        patient = texts["kit/runner/checks.py"]
        texts["kit/runner/checks.py"] = patient.replace(b"seconds=120.0", b"seconds=1.0")
        assert texts["kit/runner/checks.py"] != patient
        with zipfile.ZipFile(made, "w") as archive:
            for name, data in texts.items():
                archive.writestr(name, data)
    status, said, found = run(made, {**gpu(), trouble: "1"})
    assert status == 0, said
    assert found["machine"]["gpus"] == []
    assert by_name(found) == {"import foo": "passed", "two": "skipped"}


def test_every_end_of_a_check_is_a_result(tmp_path: Path) -> None:
    checks: list[dict[str, Any]] = [
        {"name": "crash", "kind": "python", "text": "import os; os.abort()"},
        {"name": "hang", "kind": "python", "text": "import time; time.sleep(3600)", "timeout": 0.5},
        {"name": "missing", "kind": "import", "text": "not_there"},
        {"name": "fine", "kind": "command", "text": "python -c 'import foo'"},
    ]
    status, said, found = run(packed(tmp_path, *checks))
    assert status == 1
    assert by_name(found) == {"crash": "crashed", "hang": "timeout", "missing": "failed", "fine": "passed"}
    assert "No module named 'not_there'" in said


def test_wheels_do_not_see_each_other_nor_the_caller(tmp_path: Path) -> None:
    other = make_wheel(tmp_path / "wheels", {"bar/__init__.py": b""}, name="bar")
    wheels = [make_wheel(tmp_path / "wheels", FOO), other]
    alone = [
        {
            "name": name,
            "kind": "python",
            "text": f"import importlib.util as u; print(bool(u.find_spec({name!r}) and __debug__))",
        }
        for name in ("foo", "bar", "msgspec")
    ]
    made = kit.write_kit(
        PackRequest("x.whl", to=tmp_path / "kit.pyz"),
        [survey(each, detail="containers") for each in wheels],
        lambda _: alone,
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(kit.__file__).parents[2]), "PYTHONOPTIMIZE": "1"}
    status, _, found = run(Path(made.path), environ, python=())
    assert status == 0
    seen = [[check["output"].strip() for check in wheel["checks"]] for wheel in found["wheels"]]
    assert seen == [["True", "False", "False"], ["False", "True", "False"]]


def test_packages_of_the_machine_are_seen_if_wanted(tmp_path: Path) -> None:
    there = {"name": "msgspec", "kind": "import", "text": "msgspec"}
    made = packed(tmp_path, there)
    assert run(made, python=())[0] == 1
    assert run(made, None, "--system-site-packages", python=())[0] == 0
    assert run(packed(tmp_path, there, system=True), python=())[0] == 0


def test_requirements_are_packed_once_and_installed(tmp_path: Path) -> None:
    bar = make_wheel(tmp_path / "index", {"bar/__init__.py": b""}, name="bar", version="2.0")
    wheels = [
        make_wheel(tmp_path / "wheels", {f"{name}/__init__.py": b"import bar\n"}, name=name, version="1.0")
        for name in ("one", "two")
    ]
    for wheel in wheels:
        _require(wheel, "bar>=1")
    request = PackRequest("x.whl", to=tmp_path / "kit.pyz", requirements=True, find_links=(bar.parent,), offline=True)
    checks = [{"name": "bar", "kind": "import", "text": "bar"}]
    made = kit.write_kit(request, [survey(each, detail="containers") for each in wheels], lambda _: checks)
    with zipfile.ZipFile(made.path) as archive:
        packed = json.loads(archive.read(kit.MANIFEST))["wheels"]
        assert [each["file"] for each in packed[0]["requirements"]] == [bar.name]
        assert sum(name.endswith(bar.name) for name in archive.namelist()) == 1
    status, said, found = run(Path(made.path))
    assert status == 0, said
    assert [each["requirements"][0]["file"] for each in found["wheels"]] == [bar.name] * 2


def test_requirements_that_cannot_be_had_are_said(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "wheels", {"one/__init__.py": b""}, name="one", version="1.0")
    _require(wheel, "nowhere-to-be-found")
    with pytest.raises(CuwheelError, match="could not get the requirements") as caught:
        kit.write_kit(
            PackRequest("x.whl", to=tmp_path / "kit.pyz", requirements=True, offline=True),
            [survey(wheel, detail="containers")],
            lambda _: [IMPORT],
        )
    assert "--required there" in caught.value.hint
    assert sorted(each.name for each in tmp_path.iterdir()) == ["wheels"]


def _require(wheel: Path, requirement: str) -> None:
    from cuwheel.changes.stamp import stamp
    from cuwheel.device_code.description import Description

    stamp.stamp(
        wheel,
        wheel.parent,
        stamp.StampOptions(description=Description(cuda="13.0", archs=()), extra_requires=(requirement,)),
    )


def test_tags_are_looked_at_before_anything_is_done(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "wheels", FOO)
    wheel = wheel.rename(wheel.with_name("foo-1.0+cu130-cp38-cp38-linux_x86_64.whl"))
    status, said, found = run(
        Path(
            kit.write_kit(
                PackRequest("x.whl", to=tmp_path / "kit.pyz"), [survey(wheel, detail="containers")], lambda _: [IMPORT]
            ).path
        )
    )
    assert status == 1
    why = "cannot be installed here: it is for Python 3.8 (cp38), and this is"
    assert why in found["wheels"][0]["problem"]
    assert why in said
    assert found["wheels"][0]["checks"] == []
    assert not proof.parse_proof(json.dumps(found).encode(), "x").succeeded


def test_wheels_changed_on_the_way_are_not_unpacked(tmp_path: Path) -> None:
    made = packed(tmp_path)
    data = bytearray(made.read_bytes())
    at = data.index(b"foo/data.bin") - 30
    data[at + 100] ^= 1
    made.write_bytes(data)
    status, said, found = run(made)
    assert (status, found) == (2, {})
    assert "error: the kit was damaged on its way: " in said
    assert "is not what was packed" in said


def test_a_kit_cut_short_is_said(tmp_path: Path) -> None:
    made = packed(tmp_path)
    made.write_bytes(made.read_bytes()[:-200])
    words = [sys.executable, "-I", "-S", str(made)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "proof.json").exists()


@pytest.mark.parametrize("place", [b"def _succeeded", b'"schema": "cuwheel.kit'])
def test_a_kit_damaged_on_its_way_runs_nothing(tmp_path: Path, place: bytes) -> None:
    """Its code and its predictions; of the wheels it has the hashes."""
    made = packed(tmp_path, IMPORT)
    raw = made.read_bytes()
    made.write_bytes(raw.replace(place, place[:-1] + b"X", 1))
    status, said, found = run(made)
    assert (status, found) == (2, {})
    assert "error: the kit was damaged on its way: Bad CRC-32" in said


@pytest.mark.parametrize(
    ("member", "data", "problem"),
    [
        ("foo/late.py", b"", "not in RECORD"),
        ("../out.py", b"", "leads out of the folder"),
        ("foo-1.0+cu130.data/nowhere/x", b"", "cannot be installed into an environment"),
    ],
)
def test_unsound_wheels_are_not_installed(tmp_path: Path, member: str, data: bytes, problem: str) -> None:
    wheel = make_wheel(tmp_path / "wheels", FOO)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(member, data)
    try:
        made = kit.write_kit(
            PackRequest("x.whl", to=tmp_path / "kit.pyz"), [survey(wheel, detail="containers")], lambda _: [IMPORT]
        )
    except UnsafeWheelError:
        assert member.startswith("..")
        return
    status, _, found = run(Path(made.path))
    assert status == 1
    assert problem in found["wheels"][0]["problem"]
    assert not (tmp_path / "out.py").exists()


@pytest.mark.parametrize(
    "files",
    [
        {"foo-1.0+cu130.data/scripts/python": b"#!python\n"},
        {"foo-1.0+cu130.data/data/bin/python3": b""},
        {"foo-1.0+cu130.dist-info/entry_points.txt": b"[console_scripts]\npython3 = foo:main\n"},
    ],
)
def test_the_interpreter_of_the_machine_is_not_written_to(tmp_path: Path, files: dict[str, bytes]) -> None:
    """The environment's own is a link to it."""
    status, _, found = run(packed(tmp_path, IMPORT, files={**FOO, **files}))
    assert status == 1
    assert "would replace the environment's own" in found["wheels"][0]["problem"]


def test_scripts_entry_points_and_data_are_installed(tmp_path: Path) -> None:
    data = "foo-1.0.data"
    files = {
        "foo/__init__.py": b"def main():\n    print('said')\n    return 0\n",
        f"{data}/scripts/tool": b"#!python\nimport foo, sys; print(sys.prefix != sys.base_prefix)\n",
        f"{data}/data/share/text": b"text",
        f"{data}/headers/foo.h": b"",
        f"{data}/platlib/low/__init__.py": b"",
    }
    extra = {"entry_points.txt": b"[console_scripts]\nsay-it = foo:main\n[other]\nx = y\n"}
    reading = "import sys; print(open(sys.prefix + '/share/text').read())"
    checks: list[dict[str, Any]] = [
        {"name": "script", "kind": "command", "text": "tool", "expect": ["True"]},
        {"name": "entry", "kind": "command", "text": "say-it", "expect": ["said"]},
        {"name": "low", "kind": "import", "text": "low"},
        {"name": "data", "kind": "python", "text": reading, "expect": ["text"]},
    ]
    status, said, _ = run(packed(tmp_path, *checks, files=files, version="1.0", extra=extra))
    assert status == 0, said


def test_list_and_only(tmp_path: Path) -> None:
    made = packed(tmp_path)
    status, said, found = run(made, None, "--list")
    assert (status, found) == (0, {})
    assert "two  (GPU)" in said
    status, said, _ = run(made, None, "--only", "nothing-of-it")
    assert status == 1
    assert "no wheel of the kit was selected" in said


def test_kept_environments_can_be_looked_at(tmp_path: Path) -> None:
    assert run(packed(tmp_path), None, "--keep", "kept")[0] == 0
    python = tmp_path / "elsewhere/kept/0/environment/bin/python"
    assert subprocess.run([python, "-c", "import foo"], check=False).returncode == 0


def test_a_proof_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, said, _ = run(packed(tmp_path), None, "--to", str(tmp_path / "file" / "proof.json"))
    assert status == 2
    assert "choose another file with --to" in said
    assert "foo-1.0" not in said  # before anything is done
    status, _, found = run(packed(tmp_path, IMPORT), None, "--to", ".")
    assert (status, by_name(found)) == (0, {"import foo": "passed"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_kit_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    started = tmp_path / "started"
    waits = {
        "name": "waits",
        "kind": "python",
        "text": f"open({str(started)!r}, 'w').close(); import time; time.sleep(3600)",
    }
    made = packed(tmp_path, waits)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", str(made)],
        env={"TMPDIR": str(scratch), "PATH": ""},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 600
    while not started.exists() and time.monotonic() < until:
        time.sleep(0.02)
    child.send_signal(number)
    _, said = child.communicate(timeout=600)
    assert (child.returncode, said) == (130, "interrupted: no proof was written\n")
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "proof.json").exists()


def test_nobody_listening_stops_nothing(tmp_path: Path) -> None:
    made = packed(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-I", "-S", str(made)]
    done = subprocess.run(words, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "proof.json").exists()


def test_nowhere_to_install_to_is_said(tmp_path: Path) -> None:
    made = packed(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("")
    status, said, found = run(made, None, "--keep", "file/there")
    assert (status, found) == (2, {})
    assert "hint: choose where" in said


def test_same_input_same_bytes(tmp_path: Path) -> None:
    first, second = (_packed(tmp_path / each, (IMPORT, ON_GPU), FOO) for each in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert os.access(first, os.X_OK)
    assert first.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert str(tmp_path).encode() not in first.read_bytes()


def test_only_wheels_are_packed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a wheel"):
        kit.write_kit(
            PackRequest("x.whl", to=tmp_path / "kit.pyz"), [survey(tmp_path, detail="containers")], lambda _: [IMPORT]
        )
    with pytest.raises(UsageError, match="no wheel to verify was given"):
        PackRequest((), to=tmp_path / "kit.pyz")


def test_what_travels_is_python_3_9() -> None:
    """No syntax of later versions, and nothing imported that is neither in the standard library nor in the kit."""
    import ast

    sources = kit._sources()
    own = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in sources}
    for name, data in sources.items():
        tree = ast.parse(data, name, feature_version=(3, 9))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                tops = [each.name.split(".")[0] for each in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                tops = [] if node.module in own else [(node.module or "").split(".")[0]]
            else:
                continue
            assert set(tops) <= sys.stdlib_module_names, (name, tops)
