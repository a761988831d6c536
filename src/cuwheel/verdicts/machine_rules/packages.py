"""Do the installed frameworks fit the GPU and each other, and what do variables change?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.facts import packages, spellings
from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import finding
from cuwheel.verdicts import loading
from cuwheel.verdicts import machine_view as view
from cuwheel_core.facts import versions
from cuwheel_core.fix import Fix
from cuwheel_core.support import bounded
from cuwheel_core.verdicts import choice
from cuwheel_core.verdicts.choice import serves

if TYPE_CHECKING:
    from cuwheel.facts.spellings.row import ArchList
    from cuwheel.machine.profile import MachineProfile, Variable
    from cuwheel_core.support.finding import Finding


def cpu_only_torch(machine: MachineProfile) -> Iterator[Finding]:
    torch = machine.framework("torch")
    if torch and torch.cuda is None and "+rocm" not in torch.version and machine.gpus:
        cuda = machine.driver.cuda
        index = f" for CUDA {cuda} or older" if cuda else ""
        yield finding(
            "cpu-only-torch",
            f"torch {torch.version} is a CPU build, but the machine has a {machine.gpus[0].name}",
            evidence=("torch/version.py: cuda is None",),
            fix=Fix.run(
                "pip install --force-reinstall torch",
                text=f"install a build{index} (the PyTorch start page names its index)",
                changes=("package",),
            ),
        )


def framework_misses_gpu(machine: MachineProfile) -> Iterator[Finding]:
    for framework in machine.frameworks:
        known = view.row(framework.cuda) if framework.cuda and "." in framework.cuda else None
        for gpu in dict.fromkeys(machine.gpus):
            capability = gpu.capability
            if known is None or capability is None or choice.can_target(known, capability):
                continue
            dropped = capability.number < min(arch.capability.number for arch in known.archs)
            reason = "no longer compiles" if dropped else "cannot compile yet"
            span = choice.compiled_by(capability) or "another CUDA"
            yield finding(
                "framework-misses-gpu",
                f"{framework.name} {framework.version} has no code for the {view.gpu_in_words(gpu)}: "
                f"CUDA {known.version} {reason} for it",
                evidence=(
                    f"{framework.found_via} says CUDA {framework.cuda}",
                    f"{span} compiles for {capability}",
                ),
                fix=f"install a build of {framework.name} for {span}",
            )


def bitsandbytes_library_missing(machine: MachineProfile) -> Iterator[Finding]:
    package = machine.framework("bitsandbytes")
    profile = packages.find_profile(package.name, package.version) if package else None
    if package is None or profile is None or not package.libraries:
        return
    torch, override = machine.framework("torch"), machine.variable(profile.override or "")
    # Which of two libraries for one CUDA it takes goes by the GPU; here only the version counts.
    there = {each: (f"libbitsandbytes_cuda{each.replace('.', '')}.so",) for each in package.libraries}
    found = loading.choose(
        replace(profile, variant=None),
        there,
        Machine(
            name="",
            capability=None,
            os=view.system(machine),
            torch_cuda=torch.cuda if torch else None,
            loads=(f"{override.name}={override.value}",) if override else (),
        ),
    )
    if not found.missing:
        return
    fixes = list(found.fixes)
    if override and fixes[0].commands == (("unset", override.name),):  # as it is unset where it was set
        words = filter(None, (view.unsetting(machine, override.name), fixes[0].text))
        fixes[0] = Fix(text=": ".join(words), changes=("variable",))
    yield finding(
        "bitsandbytes-library-missing",
        f"bitsandbytes {package.version} has no library to load: {found.missing}",
        evidence=(
            f"libraries are there for CUDA {', '.join(package.libraries)}",
            f"{override.name} is set in {override.found_via}"
            if override
            else f"torch {torch.version if torch else ''} is built for {torch.cuda if torch else ''}",
        ),
        fix=fixes,
    )


def torch_toolkit_mismatch(machine: MachineProfile) -> Iterator[Finding]:
    torch, toolkit = machine.framework("torch"), view.toolkit_in_use(machine)
    if not (torch and torch.cuda and toolkit):
        return
    has, wants = versions.minor(toolkit.version), versions.minor(torch.cuda)
    evidence = (f"nvcc {toolkit.version} at {toolkit.root} ({view.way_to(machine, toolkit)})",)
    if versions.major(has) != versions.major(wants):
        yield finding(
            "torch-toolkit-mismatch",
            f"torch was built for CUDA {wants} and the toolkit is {has}: torch refuses to build extensions",
            evidence=evidence,
            fix=f"use a toolkit of CUDA {versions.major(wants)} (CUDA_HOME), or a torch for CUDA "
            f"{versions.major(has)}; wheels that are already built are not affected",
        )
    elif has != wants:
        yield finding(
            "torch-toolkit-mismatch",
            f"torch was built for CUDA {wants} and the toolkit is {has}: the same major, so extensions build and run",
            evidence=evidence,
            fix="none needed; packages that load one library a CUDA version (bitsandbytes) go by torch's version",
            severity="note",
        )


def library_path_shadows(machine: MachineProfile) -> Iterator[Finding]:
    ours = {name for each in machine.library_folders if each.found_via == "site-packages" for name in each.libraries}
    for folder in machine.library_folders:
        hidden = sorted(ours.intersection(folder.libraries)) if folder.found_via == "LD_LIBRARY_PATH" else []
        if hidden:
            yield finding(
                "library-path-shadows",
                f"LD_LIBRARY_PATH puts {folder.path} before the CUDA libraries of the Python environment",
                evidence=(f"both have {', '.join(hidden[:4])}{' …' if len(hidden) > 4 else ''}",),  # noqa: PLR2004
                fix="unset LD_LIBRARY_PATH   (or take this folder out of it)",
            )


def libcuda_stub_on_path(machine: MachineProfile) -> Iterator[Finding]:
    variable = machine.variable("LD_LIBRARY_PATH")
    stubs = [each for each in (variable.value if variable else "").split(":") if each.rstrip("/").endswith("/stubs")]
    if stubs:
        yield finding(
            "libcuda-stub-on-path",
            "LD_LIBRARY_PATH holds the toolkit's stub of libcuda, which is for linking only",
            evidence=tuple(stubs),
            fix="take the stubs folder out of LD_LIBRARY_PATH; give it to the linker with -L or LIBRARY_PATH",
        )


RULES = (
    cpu_only_torch,
    framework_misses_gpu,
    bitsandbytes_library_missing,
    torch_toolkit_mismatch,
    library_path_shadows,
    libcuda_stub_on_path,
)


# Variables that say something the machine contradicts, or that change what the driver does.


def _lists(machine: MachineProfile) -> Iterator[tuple[Variable, ArchList]]:
    for name, row in spellings.VARIABLES.items():
        variable = machine.variable(name)
        if variable and variable.value.strip():
            yield variable, row.read(variable.value)


def architecture_not_compilable(machine: MachineProfile) -> Iterator[Finding]:
    toolkit = view.toolkit_in_use(machine)
    known = view.row(toolkit.version) if toolkit else None
    for variable, asked in _lists(machine):
        if asked.unknown:
            yield finding(
                "architecture-not-compilable",
                f"{variable.name} contains words that are not architectures: {', '.join(asked.unknown)}",
                evidence=(f"{variable.name}={variable.value} (set in {variable.found_via})",),
                fix=view.setting(machine, **{variable.name: "…"}) + "   (cuwheel lookup gpu lists capabilities)",
            )
        if toolkit is None or known is None:
            continue
        beyond = dict.fromkeys(arch.number for arch in asked.archs if not known.supports(arch))
        if beyond:
            yield finding(
                "architecture-not-compilable",
                f"{variable.name} asks for {', '.join(beyond)}, which nvcc {versions.minor(toolkit.version)} "
                "cannot compile",
                evidence=(
                    f"{variable.name}={variable.value} (set in {variable.found_via})",
                    f"nvcc: {toolkit.root}",
                ),
                fix=f"cuwheel lookup cuda --compiles {next(iter(beyond))}   (which toolkits can)",
            )


def architecture_misses_gpu(machine: MachineProfile) -> Iterator[Finding]:
    for variable, asked in _lists(machine):
        if asked.open or not asked.archs:
            continue
        for gpu in dict.fromkeys(machine.gpus):
            capability = gpu.capability
            if capability and not any(serves(arch, capability) for arch in asked.archs):
                wanted = str(capability) if variable.name == "TORCH_CUDA_ARCH_LIST" else str(capability.number)
                yield finding(
                    "architecture-misses-gpu",
                    f"{variable.name}={variable.value} compiles nothing that runs on the {view.gpu_in_words(gpu)}",
                    evidence=(
                        f"set in {variable.found_via}",
                        f"{gpu.found_via} says capability {capability}",
                    ),
                    fix=view.setting(machine, **{variable.name: wanted}),
                )


def jit_switched(machine: MachineProfile) -> Iterator[Finding]:
    effects = {
        "CUDA_DISABLE_PTX_JIT": "code that exists only as PTX fails with error 223",
        "CUDA_FORCE_PTX_JIT": "machine code is ignored, and what has no PTX fails with error 209",
    }
    for name, effect in effects.items():
        variable = machine.variable(name)
        if variable and variable.value not in ("", "0"):
            yield finding(
                "jit-switched",
                f"{name}={variable.value}: {effect}",
                evidence=(f"set in {variable.found_via}",),
                fix=view.unsetting(machine, name),
            )


def gpu_hidden(machine: MachineProfile) -> Iterator[Finding]:
    variable = machine.variable("CUDA_VISIBLE_DEVICES")
    if variable is None or not machine.gpus:
        return
    first = variable.value.split(",")[0].strip()
    beyond = (bounded.whole(first) or 0) >= len(machine.gpus)
    if first in ("", "-1") or first.lower() in ("none", "void", "nodevfiles") or beyond:
        yield finding(
            "gpu-hidden",
            f"CUDA_VISIBLE_DEVICES={variable.value!r} hides every GPU of this machine from CUDA",
            evidence=(f"GPUs here: {len(machine.gpus)}", f"set in {variable.found_via}"),
            fix=view.unsetting(machine, "CUDA_VISIBLE_DEVICES"),
        )


VARIABLE_RULES = (architecture_not_compilable, architecture_misses_gpu, jit_switched, gpu_hidden)
