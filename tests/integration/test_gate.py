"""The gate on what real compilers make: relocatable code with libcudadevrt, a wrong list, a wrong nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from cuwheel import api
from cuwheel.building import gate
from cuwheel.building.recording import reader, session
from cuwheel.building.recording.calls import Record
from cuwheel.building.values import GateRequest, GateResult
from cuwheel.device_code.survey import survey
from cuwheel_core.facts.arch import Arch
from tests.fixtures import toolkits
from tests.fixtures.cache import UnavailableError

PLAN = ("sm_80", "sm_90")
LIST = " ".join(f"-gencode arch=compute_{each[3:]},code={each}" for each in PLAN)
# A kernel that starts a kernel: that takes libcudadevrt, which brings code for every architecture.
SOURCES = {
    "dynamic.cu": """\
__global__ void child(float *x) { x[threadIdx.x] *= 2; }
__global__ void parent(float *x) { if (!threadIdx.x) child<<<1, 32>>>(x); }
extern "C" void run(float *x) { parent<<<1, 32>>>(x); }
""",
    "plain.cu": '__global__ void plain(float *x) { *x = 1; }\nextern "C" void go(float *x) { plain<<<1, 1>>>(x); }\n',
}


def _toolkit(version: str) -> Path:
    try:
        return toolkits.nvcc(version)
    except UnavailableError as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Made:
    wheel: Path
    record: Record


def _make(folder: Path, toolkit: Path, *commands: str) -> Made:
    """Run the commands as a build would, with this toolkit alone on PATH, recorded; then what a backend does."""
    folder.mkdir(parents=True)
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    environ = {"PATH": f"{toolkit}/bin:/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder)}
    words = ("sh", "-e", "-c", "\n".join(commands))
    with session.recording(folder / "record", words, environ, folder) as recording:
        done = subprocess.run(words, env=recording.environ, cwd=folder, capture_output=True, text=True, check=False)
        recording.finish(done.returncode)
    assert done.returncode == 0, done.stderr
    path = folder / "demo-1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(folder / "libdemo.so", "demo/libdemo.so")
        wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n")
        wheel.writestr("demo-1.0.dist-info/RECORD", "")
    return Made(path, reader.read_record(folder / "record"))


def _wanted(made: Made, toolkit: Path) -> GateRequest:
    return GateRequest(
        archs=tuple(map(Arch.parse, PLAN)), ptx=(), cuda="13.0", toolkit_root=str(toolkit), record=made.record
    )


def _judge(made: Made, wanted: GateRequest) -> GateResult:
    return gate.examine(survey(made.wheel, detail="containers"), wanted)


@pytest.fixture(scope="module")
def relocatable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, Path]:
    toolkit = _toolkit("13.0")
    made = _make(
        tmp_path_factory.mktemp("gate") / "rdc",
        toolkit,
        f"nvcc {LIST} -rdc=true -Xcompiler -fPIC -c dynamic.cu -o dynamic.o",
        f"nvcc {LIST} -rdc=true -Xcompiler -fPIC -c plain.cu -o plain.o",
        f"nvcc {LIST} -shared dynamic.o plain.o -o libdemo.so -lcudadevrt",
    )
    return made, toolkit


def test_the_toolkits_own_code_is_listed_and_not_failed(relocatable: tuple[Made, Path]) -> None:
    made, toolkit = relocatable
    result = _judge(made, _wanted(made, toolkit))
    assert result.succeeded
    assert [each.severity for each in result.findings if each.severity != "note"] == []
    (listed,) = result.listed
    assert listed.origin == "libcudadevrt.a of the toolkit"
    claimed = {row.arch for row in survey(made.wheel).libraries[0].device_code}
    assert set(listed.archs) == claimed - set(PLAN)
    assert len(listed.archs) > 5


def test_recognised_by_bytes_alone_not_by_its_name(relocatable: tuple[Made, Path], tmp_path: Path) -> None:
    made, toolkit = relocatable
    (tmp_path / "lib").mkdir()
    shutil.copy(toolkit / "lib" / "libcudadevrt.a", tmp_path / "lib" / "libany.a")
    alone = replace(_wanted(made, tmp_path), record=None)
    assert [each.origin for each in _judge(made, alone).listed] == ["libany.a of the toolkit"]
    other = _toolkit("13.4")
    shutil.copy(other / "lib" / "libcudadevrt.a", tmp_path / "lib" / "libany.a")
    result = _judge(made, alone)
    assert not result.succeeded
    assert "architecture-not-planned" in {each.rule for each in result.findings}


def test_a_plan_that_the_objects_do_not_hold(relocatable: tuple[Made, Path]) -> None:
    made, toolkit = relocatable
    wanted = replace(_wanted(made, toolkit), archs=tuple(map(Arch.parse, ("sm_80", "sm_86", "sm_90"))))
    (finding,) = [each for each in _judge(made, wanted).findings if each.severity == "error"]
    assert finding.rule == "planned-architecture-missing"
    assert "sm_86 was planned but is missing from all 3 containers" in finding.message
    assert any("child(float*)" in each for each in finding.evidence)
    assert "call 1 (nvcc dynamic.cu) asks for sm_80 sm_90" in finding.evidence


def test_a_device_link_without_the_list(tmp_path: Path) -> None:
    """The objects are right, the link is not: nothing of it would run."""
    toolkit = _toolkit("13.0")
    made = _make(
        tmp_path / "link",
        toolkit,
        f"nvcc {LIST} -rdc=true -Xcompiler -fPIC -c plain.cu -o plain.o",
        "nvcc -shared plain.o -o libdemo.so",
    )
    findings = {each.rule: each for each in _judge(made, _wanted(made, toolkit)).findings}
    assert "the device link used another architecture list" in findings["planned-architecture-missing"].message
    silent = findings["architecture-not-planned"]
    assert "nvcc got no architecture" in silent.message
    assert silent.evidence[-1] == "call 2 (nvcc plain.o)"


def test_a_list_that_the_project_hard_codes(tmp_path: Path) -> None:
    toolkit = _toolkit("13.0")
    made = _make(
        tmp_path / "list",
        toolkit,
        f"nvcc {LIST} -gencode arch=compute_90,code=compute_90 -Xcompiler -fPIC -c plain.cu -o plain.o",
        "nvcc -gencode arch=compute_75,code=sm_75 -Xcompiler -fPIC -c dynamic.cu -rdc=true -o unused.o",
        "nvcc -gencode arch=compute_86,code=sm_86 -Xcompiler -fPIC -shared plain.cu plain.o -o libdemo.so "
        "-Xlinker --allow-multiple-definition",
    )
    result = _judge(made, _wanted(made, toolkit))
    findings = {each.rule: each for each in result.findings if each.severity == "error"}
    assert set(findings) == {"planned-architecture-missing", "architecture-not-planned", "ptx-not-planned"}
    assert "sm_86 in 1 of 2 containers" in findings["architecture-not-planned"].message
    assert "call 3 (nvcc plain.cu) asks for sm_86" in findings["architecture-not-planned"].evidence
    assert "force-archs = true" in findings["architecture-not-planned"].fix
    assert "call 1 (nvcc plain.cu) asks for compute_90" in findings["ptx-not-planned"].evidence
    # What the linker left of its own is only listed.
    assert [each.origin for each in result.listed] == ["an empty device link"]


def test_a_wrong_nvcc_first_on_path(tmp_path: Path) -> None:
    planned, picked = _toolkit("13.0"), _toolkit("13.4")
    made = _make(tmp_path / "nvcc", picked, f"nvcc {LIST} -Xcompiler -fPIC -shared plain.cu -o libdemo.so")
    (finding,) = [each for each in _judge(made, _wanted(made, planned)).findings if each.severity == "error"]
    assert finding.rule == "compiled-by-other-cuda"
    assert "compiled by CUDA 13.4, but CUDA 13.0 was planned: the wrong nvcc was used" in finding.message
    assert any(each.startswith(f"{picked}/bin/nvcc was called once") for each in finding.evidence)
    assert str(planned / "bin" / "nvcc") in finding.fix


def test_paths_of_the_build_stay_out(tmp_path: Path) -> None:
    toolkit = _toolkit("13.0")
    folder = tmp_path / "rpath"
    made = _make(
        folder, toolkit, f"nvcc {LIST} -Xcompiler -fPIC -shared plain.cu -o libdemo.so -Xlinker -rpath={folder}/lib"
    )
    wanted = replace(_wanted(made, toolkit), places=(str(folder),))
    (finding,) = [each for each in _judge(made, wanted).findings if each.severity == "error"]
    assert finding.rule == "search-path-into-build-machine"
    assert finding.evidence == (os.path.join(folder, "lib"),)  # noqa: PTH118 - as it stands in the file


def test_the_plan_of_a_fleet_passes_as_it_was_spelt(tmp_path: Path) -> None:
    """From `plan` to the gate without a hand in between."""
    toolkit = _toolkit("13.0")
    (job,) = api.plan("h100", "l40", cuda=["13.0"], future=True).jobs
    made = _make(tmp_path / "plan", toolkit, f"nvcc {job.flags.nvcc} -Xcompiler -fPIC -shared plain.cu -o libdemo.so")
    wanted = replace(_wanted(made, toolkit), archs=job.archs, ptx=job.ptx)
    assert _judge(made, wanted).succeeded
