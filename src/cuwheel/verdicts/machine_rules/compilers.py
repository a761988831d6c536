"""Which toolkit would a build use, and does its nvcc take the host compiler that it would find?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.facts import toolchain_parts
from cuwheel.support.finding import finding
from cuwheel.support.quoting import join_foreign_paths
from cuwheel.verdicts import machine_view as view
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.verdicts import choice

if TYPE_CHECKING:
    from cuwheel.machine.profile import Compiler, MachineProfile
    from cuwheel_core.facts.rows.toolkits import Toolkit
    from cuwheel_core.support.finding import Finding


_NAMES = {"msvc": "MSVC"}
_BUILD_TOOLS = (
    'winget install Microsoft.VisualStudio.2022.BuildTools, then in its installer "Desktop development with C++"'
)


def host_compiler_too_new(machine: MachineProfile) -> Iterator[Finding]:
    yield from _refused("host-compiler-too-new", machine, "too new")


def host_compiler_too_old(machine: MachineProfile) -> Iterator[Finding]:
    yield from _refused("host-compiler-too-old", machine, "too old")


def _refused(rule: str, machine: MachineProfile, how: str) -> Iterator[Finding]:
    toolkit = view.toolkit_in_use(machine)
    known = view.row(toolkit.version) if toolkit else None
    chosen = view.host_compiler(machine, known.version) if known else None
    if not (toolkit and chosen and known):
        return
    compiler, way = chosen
    limits = known.host_compilers
    if limits.refusal(compiler.kind, compiler.version) != how:
        return
    fitting = [
        each for each in machine.compilers if each.kind == compiler.kind and not limits.refusal(each.kind, each.version)
    ]
    best = max(fitting, key=lambda each: versions.key(each.version), default=None)
    accepted = f"{_NAMES.get(compiler.kind, compiler.kind)} {limits.accepted(compiler.kind)}"
    yield finding(
        rule,
        f"nvcc {versions.minor(toolkit.version)} accepts {accepted}, but would use {compiler.version}",
        evidence=(f"{compiler.path} ({way})", f"nvcc {toolkit.version} at {toolkit.root}"),
        fix=_msvc_fix(machine, known, best) if compiler.kind == "msvc" else _fix(machine, known, compiler, best),
    )


def _fix(machine: MachineProfile, known: Toolkit, compiler: Compiler, best: Compiler | None) -> str:
    if best:
        return view.setting(machine, **toolchain_parts.ccbin_variable(known.version, best.path), CUDAHOSTCXX=best.path)
    _, limit = known.host_compilers.bounds(compiler.kind)
    name = f"g++-{limit}" if compiler.kind == "gcc" else f"clang-{limit}"
    install = f"apt install {name}" if view.prefers_apt(machine) else f"conda install -c conda-forge gxx={limit}"
    setting = view.setting(machine, **toolchain_parts.ccbin_variable(known.version, name), CUDAHOSTCXX=name)
    return f"{install} && {setting}"


def _msvc_fix(machine: MachineProfile, known: Toolkit, best: Compiler | None) -> str:
    if best:
        return view.msvc_prompt(machine, best)
    accepted = known.host_compilers.accepted("msvc").replace("19.", "14.")
    return f'in the Visual Studio Installer, add the component "MSVC build tools" of a version from {accepted}'


def host_compiler_missing(machine: MachineProfile) -> Iterator[Finding]:
    toolkit = view.toolkit_in_use(machine)
    windows = view.system(machine) == "windows"
    if toolkit is None:
        return
    known = view.row(toolkit.version)
    if known and not windows and machine.compilers and view.host_compiler(machine, known.version) is None:
        # conda's are on PATH under names that nvcc does not look for: x86_64-conda-linux-gnu-g++.
        fitting = [each for each in machine.compilers if not known.host_compilers.refusal(each.kind, each.version)]
        if best := max(fitting, key=lambda each: (each.kind == "gcc", versions.key(each.version)), default=None):
            yield finding(
                "host-compiler-missing",
                f"nvcc {versions.minor(toolkit.version)} looks for gcc on PATH, where there is none",
                evidence=(f"nvcc at {toolkit.root}", f"{best.path} ({best.kind} {best.version}) is there and fits"),
                fix=_fix(machine, known, best, best),
            )
            return
    if any(each.kind == "msvc" or not windows for each in machine.compilers):
        return
    fix = "apt install g++" if view.prefers_apt(machine) else "dnf install gcc-c++"
    seen = "no cl.exe on PATH, and no Visual Studio" if windows else "no g++ or clang++ on PATH"
    yield finding(
        "host-compiler-missing",
        f"nvcc {versions.minor(toolkit.version)} is installed, but no C++ compiler for it",
        evidence=(f"nvcc at {toolkit.root}", seen),
        fix=_BUILD_TOOLS if windows else fix,
    )


def host_compiler_not_on_path(machine: MachineProfile) -> Iterator[Finding]:
    toolkit = view.toolkit_in_use(machine)
    chosen = view.host_compiler(machine, toolkit.version) if toolkit else None
    if not (toolkit and chosen) or view.system(machine) != "windows" or chosen[1] in view.WAYS_ON_WINDOWS:
        return
    compiler, way = chosen
    yield finding(
        "host-compiler-not-on-path",
        f"cl.exe of {way} is not on PATH: nvcc alone does not find it",
        evidence=(compiler.path, f"nvcc {toolkit.version} at {toolkit.root}"),
        fix=view.msvc_prompt(machine, compiler),
    )


def visual_studio_without_cuda(machine: MachineProfile) -> Iterator[Finding]:
    toolkit = view.toolkit_in_use(machine)
    wanted = versions.minor(toolkit.version) if toolkit else ""
    lacking = [each for each in machine.visual_studios if wanted not in each.cuda]
    if not toolkit or not lacking or len(lacking) < len(machine.visual_studios):
        return
    yield finding(
        "visual-studio-without-cuda",
        f"no Visual Studio here has the integration of CUDA {wanted}: its own CMake generator finds no CUDA",
        evidence=tuple(f"{each.name}: {'CUDA ' + ', '.join(each.cuda) if each.cuda else 'none'}" for each in lacking),
        fix=f'copy "{toolkit.root}\\extras\\visual_studio_integration\\MSBuildExtensions\\*" '
        f'"{lacking[0].path}\\MSBuild\\Microsoft\\VC\\v170\\BuildCustomizations", or build with cmake -G Ninja',
    )


RULES = (
    host_compiler_too_new,
    host_compiler_too_old,
    host_compiler_missing,
    host_compiler_not_on_path,
    visual_studio_without_cuda,
)


# Which toolkit would a build use, and can it do what is asked here?


def cuda_home_broken(machine: MachineProfile) -> Iterator[Finding]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        variable = machine.variable(name)
        if variable is None or not variable.value or view.toolkit_by(machine, name):
            continue
        other = view.toolkit_in_use(machine)
        fix = view.setting(machine, **{name: other.root}) if other else view.unsetting(machine, name)
        yield finding(
            "cuda-home-broken",
            f"{name} points to {variable.value}, which has no nvcc",
            evidence=(f"set in {variable.found_via}",),
            fix=fix,
        )


def nvcc_mismatch(machine: MachineProfile) -> Iterator[Finding]:
    on_path = view.toolkit_by(machine, "CUDACXX") or view.toolkit_by(machine, "PATH")
    variable = next((name for name in ("CUDA_HOME", "CUDA_PATH") if view.toolkit_by(machine, name)), "")
    home = view.toolkit_by(machine, variable)
    if not (on_path and home and home.nvcc) or on_path.root == home.root:
        return
    same = versions.minor(on_path.version) == versions.minor(home.version)
    yield finding(
        "nvcc-mismatch",
        f"two different nvcc are in use: {variable} is {home.version}, {view.way_to(machine, on_path)} "
        f"gives {on_path.version}",
        evidence=(f"{home.nvcc}", f"{on_path.nvcc}"),
        fix=view.setting(machine, first_on_path=join_foreign_paths(home.root, "bin"), CUDACXX=home.nvcc),
        severity="note" if same else None,
    )


def toolkit_cannot_target_gpu(machine: MachineProfile) -> Iterator[Finding]:
    toolkit = view.toolkit_in_use(machine)
    known = view.row(toolkit.version) if toolkit else None
    if toolkit is None or known is None:
        return
    for gpu in dict.fromkeys(machine.gpus):
        capability = gpu.capability
        if capability is None or choice.can_target(known, capability):
            continue
        span = choice.compiled_by(capability) or "no known toolkit"
        yield finding(
            "toolkit-cannot-target-gpu",
            f"the toolkit here, {toolkit.version}, does not compile for the {view.gpu_in_words(gpu)}",
            evidence=(f"nvcc at {toolkit.root}", f"{span} compiles for {capability}"),
            fix=f"install a toolkit of {span}",
        )


def cmake_too_old(machine: MachineProfile) -> Iterator[Finding]:
    found = machine.tool("cmake")
    if found is None or view.toolkit_in_use(machine) is None:
        return
    if not toolchain_parts.cmake_takes(found.version, "plain"):
        floor = toolchain_parts.find_cmake_spelling("plain")
        yield finding(
            "cmake-too-old",
            f"cmake {found.version} does not know CMAKE_CUDA_ARCHITECTURES; CUDA projects need {floor.since} or later",
            evidence=(f"{found.path}",),
            fix="pip install --upgrade cmake",
        )


def glibc_too_new(machine: MachineProfile) -> Iterator[Finding]:
    toolkit, glibc = view.toolkit_in_use(machine), machine.system.glibc
    if toolkit is None or glibc is None:
        return
    known = view.row(toolkit.version)
    clash = toolkits.glibc_clash(known, glibc.value) if known else None
    if clash:
        yield finding(
            "glibc-too-new",
            f"the headers of CUDA {versions.minor(toolkit.version)} do not compile with glibc {glibc.value}",
            evidence=(
                f"{', '.join(clash.symbols)} are declared by both",
                f"nvcc {toolkit.version} at {toolkit.root}",
            ),
            fix=f"use a toolkit later than {clash.last_broken}, or build in a container with an older glibc",
        )


TOOLKIT_RULES = (cuda_home_broken, nvcc_mismatch, toolkit_cannot_target_gpu, cmake_too_old, glibc_too_new)
