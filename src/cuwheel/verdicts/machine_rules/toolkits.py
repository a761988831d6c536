"""Which toolkit would a build use, and can it do what is asked here?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import toolkits, versions
from cuwheel.support.quoting import join_foreign_paths
from cuwheel.verdicts import choice
from cuwheel.verdicts.machine_rules import view
from cuwheel.verdicts.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.machine.profile import MachineProfile


@rule(
    "cuda-home-broken",
    severity="error",
    why="""CUDA_HOME tells torch's extension builder, and many setup scripts, where the toolkit is. A folder without
    bin/nvcc there makes them fail, though another nvcc may be on PATH.""",
    source="torch/utils/cpp_extension.py, _find_cuda_home",
)
def cuda_home_broken(machine: MachineProfile) -> Iterator[Found]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        variable = machine.variable(name)
        if variable is None or not variable.value or view.toolkit_by(machine, name):
            continue
        other = view.toolkit_in_use(machine)
        fix = view.setting(machine, **{name: other.root}) if other else view.unsetting(machine, name)
        yield Found(
            message=f"{name} points to {variable.value}, which has no nvcc",
            evidence=(f"set in {variable.found_via}",),
            fix=fix,
        )


@rule(
    "nvcc-mismatch",
    severity="error",
    why="""CMake takes nvcc from CUDACXX or PATH, torch and many setup scripts from CUDA_HOME. Where they differ, one
    build mixes two toolkits: headers of one, compiler of the other.""",
    source="CMake documentation of CUDACXX; torch/utils/cpp_extension.py; reports of bitsandbytes builds",
)
def nvcc_mismatch(machine: MachineProfile) -> Iterator[Found]:
    on_path = view.toolkit_by(machine, "CUDACXX") or view.toolkit_by(machine, "PATH")
    variable = next((name for name in ("CUDA_HOME", "CUDA_PATH") if view.toolkit_by(machine, name)), "")
    home = view.toolkit_by(machine, variable)
    if not (on_path and home and home.nvcc) or on_path.root == home.root:
        return
    same = versions.minor(on_path.version) == versions.minor(home.version)
    yield Found(
        message=f"two different nvcc are in use: {variable} is {home.version}, {view.way_to(machine, on_path)} "
        f"gives {on_path.version}",
        evidence=(f"{home.nvcc}", f"{on_path.nvcc}"),
        fix=view.setting(machine, first_on_path=join_foreign_paths(home.root, "bin"), CUDACXX=home.nvcc),
        severity="note" if same else None,
    )


@rule(
    "toolkit-cannot-target-gpu",
    severity="warning",
    why="""Each toolkit compiles for a range of architectures: new GPUs need a new one, and CUDA 13 dropped everything
    before Turing. PTX from an older toolkit still runs on a newer GPU.""",
    source="nvcc --list-gpu-code of each toolkit",
)
def toolkit_cannot_target_gpu(machine: MachineProfile) -> Iterator[Found]:
    toolkit = view.toolkit_in_use(machine)
    known = view.row(toolkit.version) if toolkit else None
    if toolkit is None or known is None:
        return
    for gpu in dict.fromkeys(machine.gpus):
        capability = gpu.capability
        if capability is None or choice.can_target(known, capability):
            continue
        fitting = choice.toolkits_for(capability)
        span = toolkits.span(fitting) if fitting else "no known toolkit"
        yield Found(
            message=f"the toolkit here, {toolkit.version}, does not compile for the {view.named(gpu)}",
            evidence=(f"nvcc at {toolkit.root}", f"{span} compiles for {capability}"),
            fix=f"install a toolkit of {span}",
        )


@rule(
    "cmake-too-old",
    severity="warning",
    why="""CMake knows CUDA architectures by itself from a certain version on, and new spellings (`90a`, `100f`) from
    later ones. An older one fails while configuring, or ignores the list.""",
    source="CMake release notes; measured with the index's cmake packages",
)
def cmake_too_old(machine: MachineProfile) -> Iterator[Found]:
    found = machine.tool("cmake")
    if found is None or view.toolkit_in_use(machine) is None:
        return
    if not toolkits.cmake_takes(found.version, "plain"):
        floor = toolkits.find_cmake_spelling("plain")
        yield Found(
            message=f"cmake {found.version} does not know CMAKE_CUDA_ARCHITECTURES; CUDA projects need {floor.since} "
            "or later",
            evidence=(f"{found.path}",),
            fix="pip install --upgrade cmake",
        )


@rule(
    "glibc-too-new",
    severity="error",
    why="""glibc declares functions of the same name as CUDA's own (cospi, sinpi, rsqrt and others) with another
    exception specification. The headers of older toolkits then do not compile at all.""",
    source="reports of cospi and sinpi clashes with glibc 2.41; crt/math_functions.h of each toolkit",
)
def glibc_too_new(machine: MachineProfile) -> Iterator[Found]:
    toolkit, glibc = view.toolkit_in_use(machine), machine.system.glibc
    if toolkit is None or glibc is None:
        return
    known = view.row(toolkit.version)
    clash = toolkits.glibc_clash(known, glibc.value) if known else None
    if clash:
        yield Found(
            message=f"the headers of CUDA {versions.minor(toolkit.version)} do not compile with glibc {glibc.value}",
            evidence=(
                f"{', '.join(clash.symbols)} are declared by both",
                f"nvcc {toolkit.version} at {toolkit.root}",
            ),
            fix=f"use a toolkit later than {clash.last_broken}, or build in a container with an older glibc",
        )


RULES = (cuda_home_broken, nvcc_mismatch, toolkit_cannot_target_gpu, cmake_too_old, glibc_too_new)
