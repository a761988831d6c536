"""A finished wheel gets an architecture more from its source: built with a witness, compared, grafted."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

import pytest

import cuwheel
from cuwheel.building import pipeline
from cuwheel.errors import UsageError
from cuwheel.toolchains.providers import index
from tests.fixtures import grafts, manifest, wheels
from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.building.request import BuildRequest
    from tests.integration.build_world import World


@pytest.fixture
def here(tmp_path: Path) -> World:
    made = world.World(folder=tmp_path).with_toolkits("13.0")
    made.link(world.toolkit("13.0", "nvtx"))  # whole toolkits have it, and a published wheel was built with one
    return made


def test_the_missing_architecture_is_built_with_a_witness_and_grafted(here: World) -> None:
    """The base was built elsewhere: its kernel is called after another path, and its assertion names that.

    Also where the source has changed since: then the witness shows it, and nothing is written.
    """
    source = projects.bare(here.folder / "source", in_cpp=True)
    backend, kernel = source / "own_backend.py", source / "kernel.cu"
    backend.write_text(backend.read_text().replace('"kernel.cu", "-o"', 'str(Path("kernel.cu").absolute()), "-o"'))
    kernel.write_text("#include <cassert>\n" + kernel.read_text().replace("{ x[", "{ assert(x); x["))
    elsewhere = world.World(folder=here.folder / "elsewhere").with_toolkits("13.0")
    told = elsewhere.build(source, "--for", "9.0")
    assert told.status == 0, told.all
    (base,) = world.wheels(elsewhere.out)
    words = ("graft", base, "--add", "sm_80", "--source", source, "--json")
    added = here.cuwheel(*words, "-o", here.folder / "more")
    assert added.status == 0, added.all
    answer = json.loads(added.stdout)
    assert answer["proof"]["kind"] == "witness"
    assert answer["proof"]["witness"] == ["sm_90"]
    (made,) = (here.folder / "more").glob("*.whl")
    assert made.name == "bare-1.0+sm80-py3-none-linux_x86_64.whl"
    (library,) = cuwheel.inspect(made).libraries
    assert [str(row.arch) for row in library.device_code] == ["sm_80", "sm_90"]
    kernel.write_text(kernel.read_text().replace("*= 2", "*= 3"))
    refused = here.cuwheel(*words, "-o", here.folder / "other")
    assert refused.status == 1, refused.all
    assert [each["rule"] for each in json.loads(refused.stdout)["findings"]] == ["graft-other-code"]
    assert not (here.folder / "other").exists()


@pytest.mark.slow
def test_a_wheel_is_built_with_the_list_and_the_compiler_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUB's kernels are called after the list, also where an architecture was removed; cubins name their compiler."""
    content = grafts.library("cub-both").read_bytes()
    whole = wheels.wheel(tmp_path / "whole", {"subject/lib.so": content}, name="subject", platform="linux_x86_64")
    base = tmp_path / whole.name
    assert cuwheel.slim(whole, machines=["8.0"], output=base, version="1.0").written
    asked: list[BuildRequest] = []

    def build(request: BuildRequest, _environ: object) -> NoReturn:
        asked.append(request)
        raise UsageError("enough")

    monkeypatch.setattr(pipeline, "build", build)
    monkeypatch.setattr(index, "release_with", {"13.0.88": "13.0.7"}.get)
    with pytest.raises(UsageError, match="enough"):
        cuwheel.graft(base, add=["sm_90"], source=tmp_path, output=tmp_path / "out")
    (request,) = asked
    assert request.fit
    assert (request.machines, request.fit.archs) == (("8.0", "9.0"), ("sm_90", "sm_80"))
    assert list(request.cuda) == ["13.0.7"]
    with pytest.raises(UsageError, match="enough"):
        cuwheel.graft(base, add=["sm_90"], source=tmp_path, output=tmp_path / "out", cuda="13.0.1")
    assert list(asked[-1].cuda) == ["13.0.1"]


@pytest.mark.parametrize(
    ("archives", "components"),
    [
        (None, ("nvtx",)),
        ([], ("nvtx",)),
        (["nvidia_nvtx-13.0.85-py3-none-manylinux1_x86_64.whl"], ("nvtx",)),
        (["nvidia_cuda_nvcc-13.0.88-py3-none-manylinux1_x86_64.whl"], ()),
    ],
)
def test_the_donor_s_toolkit_has_the_headers_that_the_base_s_had(
    archives: list[str] | None, components: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NVTX's, CUB brings other symbols. Whole toolkits have them, and parts of one where they were asked for."""
    files = {"subject/lib.so": grafts.library("both").read_bytes()}
    if archives is not None:
        listed = [{"file": each, "sha256": "0" * 64} for each in archives]
        tools = {"provider": "index", "release": "13.0.2", "nvcc": "13.0.88", "platform": "linux-x86_64"}
        told = {
            "schema": "cuwheel.wheel/1",
            "cuda": "13.0",
            "archs": ["sm_80"],
            "toolchain": tools | {"archives": listed},
        }
        files["subject-1.0.dist-info/cuwheel.json"] = json.dumps(told).encode()
    base = wheels.wheel(tmp_path, files, name="subject", platform="linux_x86_64")
    asked: list[BuildRequest] = []

    def build(request: BuildRequest, _environ: object) -> NoReturn:
        asked.append(request)
        raise UsageError("enough")

    monkeypatch.setattr(pipeline, "build", build)
    monkeypatch.setattr(index, "release_with", lambda _: None)
    with pytest.raises(UsageError, match="enough"):
        cuwheel.graft(base, add=["sm_103"], source=tmp_path, output=tmp_path / "out")
    assert [each.fit.components for each in asked if each.fit] == [components]


def test_what_cannot_be_built_here_is_refused_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "build", lambda *_: pytest.fail("it was built"))
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=r"lib\.so is not a wheel"):
        cuwheel.graft(grafts.library("both"), add=["sm_103"], source=tmp_path, output=out)
    files = {"subject/lib.dll": (manifest.HERE / "bin" / "windows-130.dll").read_bytes()}
    base = wheels.wheel(tmp_path, files, name="subject", platform="win_amd64")
    with pytest.raises(UsageError, match="is for x86_64 Windows, which this machine does not build for"):
        cuwheel.graft(base, add=["sm_103"], source=tmp_path, output=out)


@pytest.mark.parametrize("cpu", ["x86_64", "aarch64", "riscv64"])
def test_the_donor_of_an_arm64_wheel_is_compiled_for_arm64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: str
) -> None:
    """By the cross compiler on x86-64, by its own on arm64, and nowhere else."""
    asked: list[BuildRequest] = []

    def build(request: BuildRequest, _environ: object) -> NoReturn:
        asked.append(request)
        raise UsageError("enough")

    monkeypatch.setattr(pipeline, "build", build)
    monkeypatch.setattr("cuwheel.machine.world._cpu", lambda: cpu)
    files = {"subject/lib.so": (manifest.HERE / "bin" / "aarch64-130.so").read_bytes()}
    base = wheels.wheel(tmp_path, files, name="subject", platform="linux_aarch64")
    refused = "is for aarch64 Linux, which this machine does not build for" if cpu == "riscv64" else "enough"
    with pytest.raises(UsageError, match=refused):
        cuwheel.graft(base, add=["sm_103"], source=tmp_path, output=tmp_path / "out")
    assert [each.cpu for each in asked] == {"x86_64": ["aarch64"], "aarch64": [None], "riscv64": []}[cpu]


def test_a_wheel_with_a_library_for_each_cuda_gets_a_donor_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"subject/lib{name}.so": grafts.library(name).read_bytes() for name in ("both", "both-13.4")}
    base = wheels.wheel(tmp_path / "whole", files, name="subject", platform="linux_x86_64")
    asked: list[BuildRequest] = []

    def build(request: BuildRequest, _environ: object) -> SimpleNamespace:
        asked.append(request)
        job = SimpleNamespace(wheel=SimpleNamespace(file=base), outcome="built")
        return SimpleNamespace(answer=SimpleNamespace(jobs=[job]))

    monkeypatch.setattr(pipeline, "build", build)
    monkeypatch.setattr(index, "release_with", lambda _: None)
    made = cuwheel.graft(base, add=["sm_103"], source=tmp_path, output=tmp_path / "out", cuda=["13.0", "13.4"])
    assert [list(each.cuda) for each in asked] == [["13.0"], ["13.4"]]
    assert len({each.output for each in asked}) == 2
    assert [each.rule for each in made.findings] == ["graft-nothing-new"]
