"""The order of a build's steps, with the work itself stood in for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.building import act, jobs, pipeline, sources
from cuwheel.building.answer import Wheel
from cuwheel.building.decide import decide_jobs, plan_architectures, read_source
from cuwheel.building.jobs import job_answer
from cuwheel.building.request import BuildRequest
from cuwheel.building.values import JobResult
from cuwheel.diagnosis import failures
from cuwheel.errors import UnavailableError, UsageError
from cuwheel.network.venvs import Python
from cuwheel.toolchains import provide
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from tests.fixtures import systems
from tests.unit.building import jobs_world as world

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.building.values import BuildPlan, DecidedJob
    from cuwheel.toolchains.request import ToolchainRequest
    from cuwheel.toolchains.toolchain import Toolchain


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_git", lambda *_: None)
    monkeypatch.setattr(jobs, "versions_on_path", lambda *_: {"cmake": "3.25.1", "ninja": "1.11.0"})
    monkeypatch.setattr("cuwheel.network.venvs.find_python", _python)
    monkeypatch.setattr(provide, "provide", _provide)


def _python(version: str | None = None) -> Python:
    return Python(path=f"/usr/bin/python{version}", version=f"{version or '3.11'}.1", found_via="a test")


def _provide(wish: ToolchainRequest) -> Toolchain:
    if wish.version == "12.8":
        raise UnavailableError("nobody has it", hint="ask again")
    made = world.toolchain()
    return replace(made, toolkit=replace(made.toolkit, cuda=wish.version))


def source_of(folder: Path, said: dict[str, Any] | None = None, **options: Any) -> BuildPlan:
    place = folder / "source"
    if not place.exists():
        place.mkdir()
        (place / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "x"\n')
        (place / "kernel.cu").touch()
    settings: Any = {"for_": ("h100",), "cuda": ("13.0",), **(said or {})}
    values: dict[str, Any] = {"output": folder / "dist", "cache": folder / "cache", **options}
    return read_source(BuildRequest(place, settings=settings, **values))


def decided(made: BuildPlan) -> BuildPlan:
    return decide_jobs(plan_architectures(made), jobs.pythons(made.table, made.project), {})


def executed(made: BuildPlan, monkeypatch: pytest.MonkeyPatch, tag: str) -> tuple[list[str], tuple[JobResult, ...]]:
    begun: list[str] = []

    def one(_: BuildPlan, job: DecidedJob, _placed: object) -> JobResult:
        begun.append(job.id)
        path = f"/dist/x-1-{tag.format(job.id.rpartition('-')[2])}-linux_x86_64.whl"
        wheel = Wheel(path=path, size=1, sha256="0", name="x", version="1", tags=())
        return JobResult(answer=replace(job_answer(job, "built"), wheel=wheel), job=job)

    monkeypatch.setattr(act, "build_one", one)
    return begun, act.execute(decided(made))


@pytest.mark.parametrize(
    ("tag", "begun"),
    [
        ("py3-none", ["cu130-cp310", "cu134-cp310"]),
        ("cp310-abi3", ["cu130-cp310", "cu134-cp310"]),
        ("{0}-{0}", ["cu130-cp310", "cu134-cp310", "cu130-cp312", "cu134-cp312"]),
    ],
)
def test_a_wheel_that_serves_all_pythons_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str, begun: list[str]
) -> None:
    made = source_of(tmp_path, {"cuda": ("13.0", "13.4"), "python": ("3.12", "3.10"), "naming": "local"})
    ids, answered = executed(made, monkeypatch, tag)
    assert ids == begun
    assert [job.answer.id for job in answered] == ["cu130-cp310", "cu130-cp312", "cu134-cp310", "cu134-cp312"]
    for job in (each.answer for each in answered):
        assert job.outcome == ("built" if job.id in begun else "skipped")
        assert job.wheel


def test_a_toolchain_that_cannot_be_had_fails_its_jobs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source_of(tmp_path, {"cuda": ("12.8", "13.0"), "naming": "local"})
    begun, answered = executed(made, monkeypatch, "py3-none")
    assert begun == ["cu130-cp311"]
    assert [(job.answer.cuda, job.answer.outcome) for job in answered] == [("13.0", "built"), ("12.8", "failed")]
    failure = failures.failure(answered[1])
    assert failure
    assert failure.what == "nobody has it (ask again)"


def _without_310(version: str | None = None) -> Python:
    if version == "3.10":
        raise UnavailableError("Python 3.10 was not found", hint="uv python install 3.10")
    return _python(version)


def test_a_dry_run_needs_no_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job of a workflow that makes the matrix has one Python alone."""
    monkeypatch.setattr("cuwheel.network.venvs.find_python", _without_310)
    monkeypatch.setattr(provide, "foresee", _provide)
    pythons: dict[str, Any] = {"python": ("3.10", "3.12")}
    first, second = decided(source_of(tmp_path, pythons, dry_run=True)).jobs
    assert [each.id for each in (first, second)] == ["cu130-cp310", "cu130-cp312"]
    (note,) = [each for each in first.notes if each.rule == "python-not-here"]
    assert note.fix == "uv python install 3.10"
    assert "python-not-here" not in [each.rule for each in second.notes]
    with pytest.raises(UnavailableError, match=r"Python 3\.10 was not found"):
        decided(source_of(tmp_path, pythons))


@pytest.mark.parametrize("said", [True, False])
def test_a_job_is_compiled_by_shares_where_somebody_says_so(tmp_path: Path, *, said: bool) -> None:
    assert decided(source_of(tmp_path, {"for_": ("h100", "l40")}, shares=said)).jobs[0].by_shares is said


def test_no_toolchain_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        decided(source_of(tmp_path, {"cuda": ("12.8",)}))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"for_": ()}, "no GPUs were given"),
        ({"cuda": ("13.0", "13.4"), "naming": "none"}, "the same name"),
        ({"cuda": ("13.0", "13.4"), "naming": "suffix"}, "the same name"),
        ({"for_": ("gtx 1080",), "plan": {"ptx": False}}, "no wheel can serve"),
        ({"for_": ("no such gpu",)}, "no such gpu"),
        ({"cuda": ("99.9",)}, "99.9"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_done(tmp_path: Path, said: dict[str, Any], words: str) -> None:
    with pytest.raises(CuwheelError, match=words):
        decided(source_of(tmp_path, said))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(("cuda", "naming", "noted"), [(("13.0", "13.4"), "local", True), (("13.0",), "none", False)])
def test_several_cuda_versions_get_local_versions_by_themselves(
    tmp_path: Path, cuda: tuple[str, ...], naming: str, *, noted: bool
) -> None:
    made = plan_architectures(source_of(tmp_path, {"cuda": cuda}))
    assert made.table.naming == naming
    told = [each.message for each in made.findings if each.rule == "naming-chosen"]
    assert [each.endswith("+cu130") for each in told] == ([True] if noted else [])


def test_a_project_that_labels_its_own_wheels_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source_of(
        tmp_path, {"cuda": ("13.0", "13.4"), "environment": {"LABEL": "cu{cuda_digits}"}, "naming": "none"}
    )
    assert len(executed(made, monkeypatch, "py3-none")[1]) == 2


def test_a_known_package_is_built_by_its_recipe(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "source"
    place.mkdir()
    (place / "pyproject.toml").write_text('[project]\nname = "BitsAndBytes"\nversion = "0.50.2"\n')
    (place / "kernel.cu").touch()
    caplog.set_level("INFO", logger="cuwheel")
    made = source_of(tmp_path)
    assert made.recipe
    assert made.table.python_tag == "py3-none"
    assert "-DCOMPUTE_BACKEND=cuda" in made.table.environment["CMAKE_ARGS"]
    assert "using the recipe for bitsandbytes: " in caplog.text
    (place / "cuwheel.toml").write_text('python-tag = "cp310-abi3"\n')
    assert source_of(tmp_path).table.python_tag == "cp310-abi3"
    without = source_of(tmp_path, {"recipe": False})
    assert without.recipe is None
    assert "CMAKE_ARGS" not in without.table.environment


def test_a_source_without_cuda_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "setup.py").write_text("setup(name='x')")
    with pytest.raises(MalformedError, match="no CUDA code"):
        source_of(tmp_path)


@pytest.mark.parametrize(("torch", "spelled"), [("torch", "12.0"), ("torch==2.7.1", "12.0"), ("torch<2.7", None)])
def test_the_architectures_are_spelled_for_the_torch_that_is_required(
    torch: str, spelled: str | None, tmp_path: Path
) -> None:
    found = source_of(tmp_path, {"for_": ("rtx 5090",), "cuda": ("12.8",), "requires": (torch,)})
    (made,) = plan_architectures(found).planned
    assert made.flags.torch == spelled


def test_a_fleet_file_is_looked_for_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source_of(tmp_path)
    place = tmp_path / "source"
    (place / "fleet.toml").write_text('[[machine]]\nname = "rack"\ngpu = "l40"\n')
    (place / "cuwheel.toml").write_text('for = "fleet.toml"\ncuda = "13.0"\n')
    made = source_of(tmp_path, {"for_": ("fleet.toml",)})
    _, answered = executed(made, monkeypatch, "py3-none")
    assert answered[0].answer.archs == ("sm_89",)


def test_a_project_in_a_folder_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "source" / "python"
    place.mkdir(parents=True)
    (place / "setup.py").write_text("setup(name='inner')")
    (tmp_path / "source" / "kernel.cu").touch()
    with pytest.raises(MalformedError, match="not a Python project"):
        source_of(tmp_path)
    made = source_of(tmp_path, {"subdirectory": "python"})
    _, answered = executed(made, monkeypatch, "py3-none")
    assert made.project.name == "inner"
    job = answered[0].job
    assert job
    assert job.source == job.copy / "python"
    with pytest.raises(UsageError, match="outside the source"):
        source_of(tmp_path, {"subdirectory": "../x"})


def test_an_output_that_cannot_be_written_is_told_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnreadableError, match="is not a folder"):
        pipeline.build(source_of(tmp_path, output=tmp_path / "file" / "dist").request, {})


def test_an_output_that_cannot_be_made_is_told_before_anything_is_built(tmp_path: Path) -> None:
    made = decided(source_of(tmp_path, output=tmp_path / "file" / "dist"))
    (tmp_path / "file").touch()
    with pytest.raises(UnreadableError) as told:
        act.execute(made)
    assert "--output" in told.value.hint


def test_a_python_that_is_not_there_is_told_before_a_toolkit_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def missing(version: str | None = None) -> Python:
        if version:
            raise UnavailableError(f"Python {version} was not found", hint=f"uv python install {version}")
        return _python()

    monkeypatch.setattr("cuwheel.network.venvs.find_python", missing)
    monkeypatch.setattr(provide, "provide", lambda wish: asked.append(wish.version))
    with pytest.raises(UnavailableError, match=r"3\.10 was not found; Python 3\.12 was not found"):
        decided(source_of(tmp_path, {"python": ("3.10", "3.12")}))
    assert asked == []


@systems.posix("builds nothing for other processors: nvcc's parts for arm64 are Linux's")
def test_machines_with_another_processor_are_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An x86-64 wheel with sm_87 in it runs on no Jetson, however well its architecture list fits."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for name in ("orin", "8.7", "gh200"):
        with pytest.raises(UsageError, match="processor is aarch64") as caught:
            plan_architectures(source_of(tmp_path, {"for_": (name,)}))
        assert caught.value.hint
    made = plan_architectures(source_of(tmp_path, {"for_": ("h100", "orin")}))
    assert [str(each) for job in made.planned for each in job.archs] == ["sm_90"]
    assert [each.machine for each in made.unserved] == ["orin"]
    every = plan_architectures(source_of(tmp_path, {"for_": ("all",)}))
    assert every.planned
    assert not every.unserved
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert plan_architectures(source_of(tmp_path, {"for_": ("orin",), "cuda": ("13.2",)})).planned


@systems.posix("builds nothing for other processors: nvcc's parts for arm64 are Linux's")
def test_another_processor_can_be_built_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(UsageError) as caught:
        plan_architectures(source_of(tmp_path, {"for_": ("orin",)}))
    assert "cuwheel build --cpu aarch64" in caught.value.hint
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[machine]]\nname = "desk"\ngpu = "rtx 4090"\ncpu = "x86_64"\n')
    made = plan_architectures(
        source_of(tmp_path, {"for_": ("orin", "gh200", str(fleet)), "cuda": ("13.2",), "cpu": "aarch64"})
    )
    assert [each.machine for job in made.planned for each in job.coverage] == ["orin", "gh200"]
    assert [(each.machine, each.why) for each in made.unserved] == [
        ("desk", ("its processor is x86_64, and what is built here is for aarch64",))
    ]
    with pytest.raises(UsageError, match="of the kind torch is not built for aarch64 here: it links with torch"):
        plan_architectures(source_of(tmp_path, {"for_": ("gh200",), "cpu": "aarch64", "backend": "torch"}))


@systems.posix("builds nothing for other processors: nvcc's parts for arm64 are Linux's")
def test_machines_that_another_job_of_ci_builds_for_are_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    both = {"ci": {"cpus": ("x86_64", "aarch64")}, "cuda": ("13.2",)}
    made = plan_architectures(source_of(tmp_path, {"for_": ("h100", "gh200"), **both}))
    assert [each.machine for job in made.planned for each in job.coverage] == ["h100"]
    assert not made.unserved
    with pytest.raises(UsageError, match="orin: its processor is aarch64"):
        plan_architectures(source_of(tmp_path, {"for_": ("orin",), **both}))
    assert plan_architectures(source_of(tmp_path, {"for_": ("all",)})).machines == ()


def test_another_system_is_not_served_either(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    other = "linux" if sys.platform == "win32" else "windows"
    fleet.write_text(f'[[machine]]\nname = "desk"\ngpu = "rtx 4090"\nos = "{other}"\n')
    made = plan_architectures(source_of(tmp_path, {"for_": ("h100", str(fleet))}))
    assert [each.why[0].startswith(f"its system is {other}") for each in made.unserved] == [True]
