"""What travels in a kit, as far as it can be tried without a machine of its own."""

from __future__ import annotations

import itertools
import json
import os
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.device_code.contents import Survey
from cuwheel.proving import kit, predictions
from cuwheel.proving.onsite import compare, install
from cuwheel_core.facts.arch import Capability
from cuwheel_core.wheel.metadata import Distribution
from tests.fixtures import systems
from tests.unit.changes.stamp.test_guard import registered

if TYPE_CHECKING:
    from pathlib import Path

MINOR = sys.version_info[1]
NATIVE = {"capability": "9.0", "outcome": "native", "error": None}
FAILS = {"capability": "9.0", "outcome": "fails", "error": {"code": 209, "name": "cudaErrorNoKernelImageForDevice"}}
SIGNS = {str(code): texts for code, texts in predictions.SIGNS.items()}
NOTHING: dict[str, Any] = {"loaded": 0, "refused": 0, "compared": 0, "against": []}


@systems.LINUX_PATHS
@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("cp38-cp38-linux_x86_64", f"it is for Python 3.8 (cp38), and this is 3.{MINOR}"),
        ("cp399-abi3-linux_x86_64", f"it is for Python 3.99 (abi3), and this is 3.{MINOR}"),
        (f"cp3{MINOR}-cp3{MINOR}t-linux_x86_64", f"it is for Python 3.{MINOR} (cp3{MINOR}t)"),
        ("py2-none-any", "it is for Python 2 (none)"),
        ("py399-none-any", "it is for Python 3.99 (none)"),
        ("pp310-pypy310_pp73-linux_x86_64", "it is for another Python implementation than cpython"),
        ("graalpy311-none-any", "it is for the interpreter graalpy311"),
        ("py3-none-manylinux_2_99_x86_64", "it needs glibc 2.99, but this machine has 2.30"),
        ("py3-none-win_amd64", "it is for win_amd64, and this is linux_x86_64"),
        ("py3-none-musllinux_1_2_x86_64", "it is for musllinux_1_2_x86_64, and this is linux_x86_64"),
        ("py3-none-macosx_11_0_arm64", "it is for macosx_11_0_arm64"),
        ("py3-none-manylinux2014_aarch64", "it is for linux_aarch64, and this is linux_x86_64"),
    ],
)
def test_tags_that_do_not_fit(monkeypatch: pytest.MonkeyPatch, tag: str, why: str) -> None:
    _on_linux(monkeypatch)
    assert install.why_not_installable(f"foo-1.0-{tag}.whl").startswith(why)


@systems.LINUX_PATHS
@pytest.mark.parametrize(
    "tag",
    [
        "py3-none-any",
        "py2.py3-none-any",
        "1build-py3-none-any",
        "py39-none-any",
        "cp39-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64",
        "cp38.cp39-abi3-linux_x86_64",
        "py3-none-manylinux_2_30_x86_64",
        "py3-none-manylinux_2_99_x86_64.manylinux1_x86_64",
        f"cp3{MINOR}-cp3{MINOR}-linux_x86_64",
        f"cp3{MINOR}-none-any",
    ],
)
def test_tags_that_fit(monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    _on_linux(monkeypatch)
    assert install.why_not_installable(f"foo-1.0-{tag}.whl") == ""


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("py3-none-any", ""),
        ("py3-none-win_amd64", ""),
        (f"cp3{MINOR}-cp3{MINOR}-win_amd64", ""),
        ("cp39-abi3-win_arm64.win_amd64", ""),
        ("py3-none-win_arm64", "it is for win_arm64, and this is windows_x86_64"),
        ("py3-none-win32", "it is for win32, and this is windows_x86_64"),
        ("py3-none-manylinux2014_x86_64", "it is for linux_x86_64, and this is windows_x86_64"),
    ],
)
def test_tags_on_windows(monkeypatch: pytest.MonkeyPatch, tag: str, why: str) -> None:
    monkeypatch.setattr(install, "cpu_name", lambda: "x86_64")
    monkeypatch.setattr("platform.system", lambda: "Windows")
    assert install.why_not_installable(f"foo-1.0-{tag}.whl") == why


@pytest.mark.parametrize(
    ("tag", "platforms"),
    [
        ("cp312-cp312-win_amd64", ["win_amd64"]),
        ("cp312-cp312-win_arm64", ["win_arm64"]),
        ("py3-none-win_amd64", ["win_amd64"]),
        ("cp312-cp312-manylinux_2_17_aarch64", ["manylinux_2_39_aarch64"]),
        ("py3-none-manylinux_2_17_aarch64", ["manylinux_2_39_aarch64"]),
        ("py3-none-any", []),
    ],
)
@systems.LINUX_PATHS
def test_requirements_are_those_of_the_platform(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tag: str, platforms: list[str]
) -> None:
    """Whatever the machine is that packs the kit, and whether or not it has the same Python."""
    called: list[str] = []
    monkeypatch.setattr(kit, "_pip", lambda **_: ["pip"])
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("cuwheel.support.process.run", lambda words, **_: called.extend(words))
    with zipfile.ZipFile(tmp_path / f"foo-1.0-{tag}.whl", "w") as made:
        made.writestr("foo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: foo\nVersion: 1.0\n")
        made.writestr("foo-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
    kit.download_requirements(tmp_path / f"foo-1.0-{tag}.whl", tmp_path)
    found = [value for word, value in itertools.pairwise(called) if word == "--platform"]
    assert found[: len(platforms)] == platforms
    assert bool(found) == bool(platforms)


@pytest.mark.parametrize(
    "name",
    ["pkg/../../x.py", "/x.py", "pkg\\x.py", "C:/x.py", *(["pkg/C:/x.py", "pkg/a.py:b"] if os.name == "nt" else [])],
)
def test_names_that_lead_out_of_the_environment(tmp_path: Path, name: str) -> None:
    place = install.Place(tmp_path / "site", tmp_path, tmp_path, tmp_path, "")
    with pytest.raises(install.InstallError, match="leads out of the folder"):
        install.destination(name, place)


@pytest.mark.parametrize("name", ["foo.whl", "foo-1.0.tar.gz", "a-b-c-d-e-f-g.whl", ""])
def test_names_of_no_wheel(name: str) -> None:
    assert install.why_not_installable(name) == f"{name} is not the name of a wheel"


def _on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "cpu_name", lambda: "x86_64")
    monkeypatch.setattr(install, "glibc", lambda: (2, 30))


def result(outcome: str = "passed", output: str = "", **more: Any) -> dict[str, Any]:
    return {"name": "two", "gpu": True, "outcome": outcome, "output": output, "problem": "", **more}


@pytest.mark.parametrize(
    ("predicted", "results", "agreement"),
    [
        (NATIVE, [result()], "agreed"),
        (NATIVE, [result(), result("failed", "error 209: no kernel image is available", name="b")], "contradicted"),
        (NATIVE, [result("failed", "AssertionError")], "open"),
        (NATIVE, [result("crashed")], "open"),
        (NATIVE, [result("skipped")], "open"),
        (NATIVE, [result(gpu=False)], "open"),
        (NATIVE, [], "open"),
        (FAILS, [result()], "contradicted"),
        (FAILS, [result("failed", "cudaErrorNoKernelImageForDevice")], "agreed"),
        (FAILS, [result("failed", "CUDA_ERROR_NO_BINARY_FOR_GPU")], "agreed"),
        (FAILS, [result("failed", "cudaErrorUnsupportedPtxVersion")], "contradicted"),
        (FAILS, [result("failed", "no module named foo")], "open"),
        ({**FAILS, "error": None}, [result("failed", "anything")], "agreed"),
        ({**NATIVE, "outcome": "partial"}, [result("failed", "cudaErrorNoKernelImageForDevice")], "open"),
        ({**NATIVE, "outcome": "unknown"}, [result()], "open"),
        (None, [result()], "none"),
    ],
)
def test_predictions_against_checks(
    predicted: dict[str, Any] | None, results: list[dict[str, Any]], agreement: str
) -> None:
    assert compare.agreement(predicted, results, NOTHING, SIGNS, {})[0] == agreement


def test_the_drivers_own_answers_weigh_most() -> None:
    against = {**NOTHING, "compared": 2, "against": ["one", "another"]}
    assert compare.agreement(NATIVE, [result()], against, SIGNS, {}) == ("contradicted", "one (and 1 more)")
    found, why = compare.agreement(NATIVE, [], {**NOTHING, "compared": 2}, SIGNS, {})
    assert (found, "2 pieces" in why) == ("agreed", True)


def test_a_guard_goes_by_the_same_foresight_and_proves_nothing() -> None:
    refused = result("failed", 'File "foo/_cuwheel_guard.py", line 38, in check')
    assert compare.agreement(FAILS, [refused], NOTHING, SIGNS, {})[0] == "open"
    found, why = compare.agreement(FAILS, [refused], {**NOTHING, "compared": 1}, SIGNS, {})
    assert (found, "guard" in why, "1 piece of" in why) == ("agreed", True, True)
    assert compare.agreement(NATIVE, [refused], NOTHING, SIGNS, {})[0] == "open"


def test_switches_of_the_driver_leave_it_open() -> None:
    against = {**NOTHING, "compared": 1, "against": ["one"]}
    found, why = compare.agreement(NATIVE, [result()], against, SIGNS, {"CUDA_DISABLE_PTX_JIT": "1"})
    assert found == "open"
    assert "CUDA_DISABLE_PTX_JIT" in why
    assert compare.agreement(NATIVE, [result()], NOTHING, SIGNS, {"CUDA_DISABLE_PTX_JIT": "0"})[0] == "agreed"


def survey(*libraries: Any, name: str = "foo") -> Survey:
    said = Distribution(name=name, version="1", tags=("py3-none-any",), requires=())
    return Survey(target="x", kind="wheel", size=1, distribution=said, libraries=libraries, findings=())


def manifest(found: Survey) -> dict[str, Any]:
    """The part of a kit's manifest that is looked things up in, as JSON gives it back."""
    import msgspec

    told, asked = predictions.predict_everywhere(found), kit.probes_of(found)
    whole: dict[str, Any] = json.loads(msgspec.json.encode(told))
    return {**whole, **json.loads(msgspec.json.encode({"probes": asked.probes, "answers": asked.lists}))}


def machine(capability: str, driver: str | None = "13.0") -> dict[str, Any]:
    return {"gpus": [{"capability": capability}], "driver_cuda": driver, "variables": {}}


@pytest.mark.parametrize(
    ("capability", "driver", "outcome"),
    [
        ("8.9", "13.0", "compatible"),
        ("9.0", "12.0", "native"),
        ("10.0", "12.9", "fails"),
        ("10.0", "13.0", "jit"),
        ("12.1", "13.4", "jit"),
        ("99.0", "13.0", "jit"),
        ("99.0", "12.0", "fails"),
        ("7.5", "13.0", "fails"),
        ("8.0", "13.0", "native"),
    ],
)
def test_the_row_of_the_machine_is_found(capability: str, driver: str, outcome: str) -> None:
    wheel = manifest(survey(registered("sm_80 sm_90 compute_90")))
    found = compare.prediction_here(wheel, machine(capability, driver), {})
    assert found is not None
    assert found["outcome"] == outcome


def test_no_gpu_and_unheard_of_capabilities_have_no_prediction() -> None:
    wheel = manifest(survey(registered("sm_80")))
    assert compare.prediction_here(wheel, {"gpus": [], "driver_cuda": None}, {}) is None
    assert compare.prediction_here(wheel, machine("9.7"), {}) is None


def test_a_framework_decides_which_library_is_judged() -> None:
    libraries = [
        registered("sm_80", path="bitsandbytes/libbitsandbytes_cuda124.so"),
        registered("sm_90", path="bitsandbytes/libbitsandbytes_cuda130.so"),
    ]
    wheel = manifest(survey(*libraries, name="bitsandbytes"))
    said = {
        cuda: compare.prediction_here(wheel, machine("9.0"), {"torch": ["2", cuda]})
        for cuda in ("12.4", "12.6", "13.0.1")
    }
    assert {cuda: found and found["outcome"] for cuda, found in said.items()} == {
        "12.4": "fails",
        "12.6": "fails",
        "13.0.1": "native",
    }
    assert compare.prediction_here(wheel, machine("9.0"), {}) is None, "without torch nobody can tell"
    overridden = {**machine("9.0"), "variables": {"BNB_CUDA_VERSION": "124"}}
    assert compare.prediction_here(wheel, overridden, {"torch": ["2", "13.0"]}) is None


def test_packages_of_jax_follow_a_major() -> None:
    libraries = [
        registered("sm_80", path="jaxmg/cu12/libjaxmg.so"),
        registered("sm_90", path="jaxmg/cu13/libjaxmg.so"),
    ]
    wheel = manifest(survey(*libraries, name="jaxmg"))
    said = [compare.prediction_here(wheel, machine("9.0"), {"jax": ["0.9", cuda]}) for cuda in ("12", "13")]
    assert [found and found["outcome"] for found in said] == ["fails", "native"]


def test_probes_know_what_the_driver_will_answer() -> None:
    asked = kit.probes_of(survey(registered("sm_80", "sm_90 compute_90", "sm_80")))
    wheel = json.loads(json.dumps({"probes": [], "answers": []}))
    import msgspec

    wheel["probes"] = msgspec.to_builtins(asked.probes)
    wheel["answers"] = msgspec.to_builtins(asked.lists)
    assert [each.holds for each in asked.probes] == ["sm_80", "sm_80", "sm_90, compute_90"]
    said = result(output="piece 0 209\npiece 1 209\npiece 2 0\n")
    found, learnt = compare.judge_probes(said, wheel, "9.0", "13.0")
    assert (found["outcome"], learnt) == ("passed", {"loaded": 1, "refused": 2, "compared": 3, "against": []})
    found, learnt = compare.judge_probes(result(output="piece 0 0\npiece 2 209\n"), wheel, "9.0", "13.0")
    assert found["outcome"] == "failed"
    assert learnt["against"] == [
        "lib/libmine.so (sm_80): the prediction was error 209, but the driver gives no error",
        "lib/libmine.so (sm_90, compute_90): the prediction was no error, but the driver gives error 209",
    ]


def test_probes_foretell_the_error_of_a_ptx_that_is_too_new() -> None:
    asked = kit.probes_of(survey(registered("compute_80", isa="9.1")))
    steps = {each.capability: [(step.driver, step.code) for step in each.steps] for each in asked.lists[0]}
    assert steps["9.0"][-2:] == [(steps["9.0"][0][0], 222), ("13.1", 0)]
    assert [code for _, code in steps["7.5"]] == [209]


def test_relocatable_and_unregistered_code_is_not_probed() -> None:
    from msgspec.structs import replace

    made = registered("sm_80")
    unnamed = replace(made, registration=replace(made.registration, wrappers=()))
    assert kit.probes_of(survey(unnamed)).probes == ()
    relocatable = replace(made, device_code=tuple(replace(row, linked=False) for row in made.device_code))
    assert kit.probes_of(survey(relocatable)).probes == ()


def test_foresight_is_exact_at_every_driver() -> None:
    """Found by halves: the same as asking for each."""
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts import judge
    from cuwheel_core.facts import toolkits

    found = survey(registered("sm_80 compute_80", "sm_90 compute_90", isa="8.4"), registered("compute_75", isa="8.7"))
    wheel = manifest(found)
    for capability in ("8.0", "9.0", "12.0"):
        for row in toolkits.all_toolkits():
            verdict = judge.judge(
                found, Machine(name="x", capability=Capability.parse(capability), driver_cuda=row.version)
            )
            told = compare.prediction_here(wheel, machine(capability, row.version), {})
            assert told is not None
            assert told["outcome"] == verdict.outcome, (capability, row.version)


@systems.LINUX_PATHS
def test_nvidias_packages_are_where_repaired_wheels_look_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, own, bare = (tmp_path / each for each in ("there", "own", "bare"))
    (there / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    (own / "nvidia" / "cudnn").mkdir(parents=True)
    bare.mkdir()
    monkeypatch.setattr(install, "own_package_folders", lambda: [str(bare), str(there)])
    install.link_libraries(bare)
    assert (bare / "nvidia" / "cu13" / "lib").is_dir()
    install.link_libraries(own)
    assert sorted(each.name for each in (own / "nvidia").iterdir()) == ["cudnn"], "its own come first"
    monkeypatch.setattr(install, "own_package_folders", list)
    install.link_libraries(there)
    assert not (there / "nvidia").is_symlink()
