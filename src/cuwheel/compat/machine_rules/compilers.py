"""Does nvcc take the host compiler that it would find?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.compat.machine_rules import view
from cuwheel.compat.rule import Found, rule
from cuwheel.facts import toolchains, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.machine.profile import MachineProfile


@rule(
    "host-compiler-too-new",
    severity="error",
    why="""nvcc stops with "unsupported GNU version" for a compiler later than it was tested with. With
    -allow-unsupported-compiler it goes on and often fails in the compiler's own headers (_Float32 and the like).""",
    source="crt/host_config.h of each toolkit",
)
def host_compiler_too_new(machine: MachineProfile) -> Iterator[Found]:
    toolkit = view.toolkit_in_use(machine)
    known = view.row(toolkit.version) if toolkit else None
    chosen = view.host_compiler(machine, known.version) if known else None
    if not (toolkit and chosen and known):
        return
    compiler, way = chosen
    limit = known.host_compilers.newest(compiler.kind)
    if limit is None or versions.major(compiler.version) <= limit:
        return
    fitting = [
        each for each in machine.compilers if each.kind == compiler.kind and versions.major(each.version) <= limit
    ]
    if fitting:
        best = max(fitting, key=lambda each: versions.key(each.version))
        fix = view.setting(machine, **toolchains.ccbin(known.version, best.path), CUDAHOSTCXX=best.path)
    else:
        name = f"g++-{limit}" if compiler.kind == "gcc" else f"clang-{limit}"
        install = f"apt install {name}" if view.prefers_apt(machine) else f"conda install -c conda-forge gxx={limit}"
        setting = view.setting(machine, **toolchains.ccbin(known.version, name), CUDAHOSTCXX=name)
        fix = f"{install} && {setting}"
    yield Found(
        message=f"nvcc {versions.minor(toolkit.version)} accepts {compiler.kind} up to {limit}, but would use "
        f"{compiler.version}",
        evidence=(f"{compiler.path} ({way})", f"nvcc {toolkit.version} at {toolkit.root}"),
        fix=fix,
    )


@rule(
    "host-compiler-missing",
    severity="error",
    why="nvcc compiles the host half of every file with the system's C++ compiler and cannot work without one.",
    source="NVIDIA: CUDA compiler driver, supported host compilers",
)
def host_compiler_missing(machine: MachineProfile) -> Iterator[Found]:
    toolkit = view.toolkit_in_use(machine)
    if toolkit is None or machine.compilers:
        return
    windows = view.system(machine) == "windows"
    fix = "apt install g++" if view.prefers_apt(machine) else "dnf install gcc-c++"
    yield Found(
        message=f"nvcc {versions.minor(toolkit.version)} is installed, but no C++ compiler for it",
        evidence=(f"nvcc at {toolkit.root}", "no cl.exe on PATH" if windows else "no g++ or clang++ on PATH"),
        fix="open the x64 Native Tools Command Prompt of Visual Studio" if windows else fix,
    )


RULES = (host_compiler_too_new, host_compiler_missing)
