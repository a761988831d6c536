"""A plan, a toolchain and a source without any of them being there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuwheel import api
from cuwheel.building import jobs, workspace
from cuwheel.building.request import BuildRequest
from cuwheel.building.tables import Table
from cuwheel.building.values import BuildPlan, Project, Tree
from cuwheel.machine.system import Share
from cuwheel.network.venvs import Python
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import HostCompiler, Installed, Toolchain, settings_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cuwheel.building.values import DecidedJob
    from cuwheel.verdicts.planning.plan import Job as PlanJob

PYTHON = Python(path="/usr/bin/python3.11", version="3.11.2", found_via="a test")


def planned(*machines: str) -> PlanJob:
    (job,) = api.plan(*(machines or ("h100", "l40")), cuda=["13.0"]).jobs
    return job


def toolchain(*, root: str = "/store/kit", prefix: tuple[str, ...] = (), components: tuple[str, ...] = ()) -> Toolchain:
    kit = Installed(
        identity="1" * 64,
        provider="container" if prefix else "index",
        cuda="13.0",
        release="13.0.2",
        version="13.0.88",
        platform="linux-x86_64",
        components=("nvcc", *components),
        folder="/store",
        root=root,
        size=1,
        prefix=prefix,
    )
    compiler = HostCompiler(kind="gcc", version="12.2.0", path="g++" if prefix else "/usr/bin/g++-12", found_via="test")
    return Toolchain(toolkit=kit, host_compiler=compiler, settings=settings_for(kit, compiler))


def given(
    folder: Path,
    *,
    caller: Mapping[str, str] | None = None,
    table: Table | None = None,
    backend: str = "other",
    **changes: Any,
) -> workspace.VariableInputs:
    values: dict[str, Any] = {
        "plan": build_plan(folder, table, backend=backend),
        "planned": planned(),
        "toolchain": toolchain(),
        "share": Share(jobs=2, threads=1, why="a test"),
        "folder": folder,
        "python": "3.11",
        "caller": caller or {},
    }
    return workspace.VariableInputs(**(values | changes))


def build_plan(folder: Path, table: Table | None = None, **changes: Any) -> BuildPlan:
    project = {"name": "demo", "backend": "scikit-build-core", **changes}
    return BuildPlan(
        request=BuildRequest(folder, jobs=2),
        table=table or Table(),
        tree=Tree(asked=".", folder=folder, files=(), sha256="2" * 64, epoch=1000000000),
        project=Project(**project),
        store=Store(folder / "store"),
    )


def job(folder: Path, table: Table | None = None, *, made_by: Toolchain | None = None, **changes: Any) -> DecidedJob:
    inside = bool(made_by and made_by.prefix)
    listed = changes.pop("plan", None) or planned()
    caller = changes.pop("caller", {})
    return jobs.make_job(
        build_plan(folder, table, **changes), listed, made_by or toolchain(), "3.11", None if inside else PYTHON, caller
    )
