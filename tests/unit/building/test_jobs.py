from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest
from msgspec.structs import replace

from cuwheel.building import jobs, workspace
from cuwheel.building.tables import BACKENDS, Backend, Table
from cuwheel.building.values import Built, Project
from cuwheel.errors import UsageError
from cuwheel.facts import spellings, toolchain_parts
from cuwheel.machine import system
from cuwheel.support import files
from cuwheel.toolchains.store import Store
from cuwheel_core.facts.arch import Arch
from tests.unit.building import jobs_world as world

if TYPE_CHECKING:
    from pathlib import Path


def spelling(name: str) -> str:
    return toolchain_parts.find_cmake_spelling(name).since


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "versions_on_path", lambda *_: {"cmake": "3.25.1", "ninja": "1.11.0"})


def test_a_job_is_decided_whole(tmp_path: Path) -> None:
    table = Table(before=("cmake -DA={archs.cmake} .",), config_settings={"x": "{cuda}"}, requires=("torch==2.4",))
    job = world.job(tmp_path, table)
    assert job.id == "cu130-cp311"
    assert job.before == ("cmake -DA=89-real;90-real .",)
    assert job.config_settings == {"x": "13.0"}
    assert job.requires == ("torch==2.4",)
    assert job.force_archs == ()
    assert job.environ["CUDAARCHS"] == "89-real;90-real"


def test_forced_architectures_are_nvccs_own_words(tmp_path: Path) -> None:
    job = world.job(tmp_path, Table(force_archs=True))
    assert job.force_archs == ("-gencode", "arch=compute_89,code=sm_89", "-gencode", "arch=compute_90,code=sm_90")


def test_a_container_cannot_be_forced(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="container"):
        world.job(tmp_path, Table(force_archs=True), made_by=world.toolchain(prefix=("docker", "run", "image")))


def test_the_path_depends_on_the_job_alone(tmp_path: Path) -> None:
    here = world.job(tmp_path, Table(naming="local", timeout=5.0), caller={"MAX_JOBS": "7"})
    assert here.folder == world.job(tmp_path).folder
    assert here.folder != world.job(tmp_path, plan=world.planned("h100")).folder
    assert here.folder != world.job(tmp_path, name="other").folder


def test_the_key_is_of_everything_that_goes_in(tmp_path: Path) -> None:
    base = world.job(tmp_path).key
    assert base == world.job(tmp_path).key
    assert base == world.job(tmp_path, caller={"HTTPS_PROXY": "http://p", "USER": "me"}).key
    changed = [
        world.job(tmp_path, Table(environment={"A": "1"})),
        world.job(tmp_path, Table(before=("true",))),
        world.job(tmp_path, Table(requires=("torch",))),
        world.job(tmp_path, Table(force_archs=True)),
        world.job(tmp_path, caller={"SOURCE_DATE_EPOCH": "5"}),
        world.job(tmp_path, plan=world.planned("h100")),
        world.job(tmp_path, made_by=replace(world.toolchain(), host_compiler=None)),
    ]
    assert len({base, *(each.key for each in changed)}) == len(changed) + 1


def test_a_list_that_the_build_system_cannot_say_is_told_beforehand(tmp_path: Path) -> None:
    def rules(backend: str, *, forced: bool = False, text: str = "") -> list[str]:
        table = Table(force_archs=forced, environment={"A": text})
        return [each.rule for each in world.job(tmp_path, table, backend=backend).notes]

    assert rules("cargo") == ["list-cannot-be-said"]
    assert rules("cargo", forced=True) == []
    assert rules("cargo", text="{archs.nvcc}") == []
    assert rules("setuptools") == ["no-spelling"]
    assert rules("torch") == []


@pytest.mark.parametrize(
    ("wheel", "python", "does"),
    [
        ("x-1-py3-none-linux_x86_64.whl", "3.12", True),
        ("x-1-py2.py3-none-manylinux_2_28_x86_64.whl", "3.9", True),
        ("x-1-cp310-abi3-manylinux_2_28_x86_64.manylinux_2_27_x86_64.whl", "3.13", True),
        ("x-1-cp310-abi3-linux_x86_64.whl", "3.9", False),
        ("x-1-cp311-cp311-linux_x86_64.whl", "3.12", False),
        ("x-1-cp311-cp311-linux_x86_64.whl", "3.11", True),
        ("nonsense.whl", "3.11", False),
    ],
)
def test_a_wheel_that_serves_other_pythons(wheel: str, python: str, does: bool) -> None:  # noqa: FBT001
    assert jobs.serves(wheel, python) is does


def test_the_oldest_python_comes_first_and_those_that_the_project_refuses_are_told() -> None:
    project = Project(name="demo", backend="torch", requires_python=">=3.10,<3.13")
    assert jobs.pythons(Table(python=("3.12", "3.10", "3.12")), project) == ("3.10", "3.12")
    with pytest.raises(UsageError, match=r"3\.9, 3\.14"):
        jobs.pythons(Table(python=("3.9", "3.11", "3.14")), project)
    odd = replace(project, requires_python="whatever")
    assert jobs.pythons(Table(python=("3.9",)), odd) == ("3.9",)


def test_every_kind_of_project_has_a_row() -> None:
    assert {"auto", *BACKENDS} == set(get_args(Backend))
    assert {name for row in spellings.ROWS for name in row.backends} <= BACKENDS.keys()


@pytest.mark.parametrize(
    ("backend", "before", "archs", "minimum", "there", "expected"),
    [
        ("torch", (), ["sm_90"], "", {}, ["ninja"]),
        ("setuptools", (), ["sm_90"], "", {}, []),
        ("setuptools", ("cmake -B build",), ["sm_90"], "", {"ninja": "1"}, [f"cmake>={spelling('plain')}"]),
        ("cmake", (), ["sm_90"], "", {"cmake": "3.25.1", "ninja": "1"}, []),
        ("cmake", (), ["sm_100f"], "", {"cmake": "3.25.1", "ninja": "1"}, [f"cmake>={spelling('f')}"]),
        ("cmake", (), ["sm_90"], "3.28", {"cmake": "3.25.1", "ninja": "1"}, ["cmake>=3.28"]),
        ("cmake", (), ["sm_90"], "3.22.1", {"cmake": "3.25.1", "ninja": "1"}, []),
    ],
)
def test_cmake_and_ninja_come_from_the_index_where_the_systems_will_not_do(
    backend: str, before: tuple[str, ...], archs: list[str], minimum: str, there: dict[str, str], expected: list[str]
) -> None:
    assert list(jobs.build_tool_requirements(backend, before, map(Arch.parse, archs), minimum, there)) == expected


def test_the_newest_minimum_of_the_sources_counts(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required( VERSION 3.22.1...3.30)\n")
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "CMakeLists.txt").write_text("# x\n  CMAKE_MINIMUM_REQUIRED(VERSION 3.26 FATAL_ERROR)\n")
    assert jobs.minimum_cmake(tmp_path, ["CMakeLists.txt", "csrc/CMakeLists.txt", "gone/CMakeLists.txt"]) == "3.26"


@pytest.mark.parametrize(
    ("cores", "memory", "archs", "said", "expected"),
    [
        (2, 8 * 10**9, 2, None, (2, 1)),
        (64, 16 * 10**9, 2, None, (4, 2)),
        (16, None, 2, None, (8, 2)),
        (16, None, 14, None, (4, 4)),
        (1, 10**8, 2, None, (1, 1)),
        (64, 10**9, 1, 3, (3, 1)),
    ],
)
def test_as_much_at_once_as_cores_and_memory_allow(
    cores: int, memory: int | None, archs: int, said: int | None, expected: tuple[int, int]
) -> None:
    found = system.divide_machine(cores, memory, archs, jobs=said)
    assert (found.jobs, found.threads) == expected


def test_only_the_same_inputs_are_resumed_and_only_an_unchanged_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"wheel")
    workspace.note_result(tmp_path, Built(key="k", wheel=str(wheel), sha256=files.sha256(wheel)))
    assert workspace.earlier_result(tmp_path, "other") is None
    found = workspace.earlier_result(tmp_path, "k")
    assert found
    assert found.wheel == str(wheel)
    wheel.write_bytes(b"changed")
    assert workspace.earlier_result(tmp_path, "k") is None
    (tmp_path / "done.json").write_text('{"key": "k"')
    assert workspace.earlier_result(tmp_path, "k") is None


def test_a_job_starts_clean_and_keeps_its_logs(tmp_path: Path) -> None:
    folder = workspace.job_folder(Store(tmp_path), name="Demo", cuda="13.0", archs=("sm_90",), python="3.11")
    locked = folder / "src" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    locked.chmod(0o555)
    workspace.clean_folder(folder)
    assert not (folder / "src").exists()
    for number in range(15):
        (folder / "logs" / f"{number:02}.log").touch()
    workspace.clean_folder(folder)
    assert min(each.name for each in (folder / "logs").iterdir()) == "05.log"
