"""Do the installed frameworks fit the GPU and each other?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.facts import packages, toolkits, versions
from cuwheel.machine.fleet import Machine
from cuwheel.verdicts import choice, loading
from cuwheel.verdicts.machine_rules import view
from cuwheel.verdicts.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.machine.profile import MachineProfile


@rule(
    "cpu-only-torch",
    severity="error",
    why="""A CPU build of PyTorch runs everywhere and never uses a GPU; other packages then say that CUDA is not
    available, or torch.cuda.is_available() is False without a reason.""",
    source="torch/version.py of the installed package: cuda is None",
)
def cpu_only_torch(machine: MachineProfile) -> Iterator[Found]:
    torch = machine.framework("torch")
    if torch and torch.cuda is None and "+rocm" not in torch.version and machine.gpus:
        cuda = machine.driver.cuda
        index = f" for CUDA {cuda} or older" if cuda else ""
        yield Found(
            message=f"torch {torch.version} is a CPU build, but the machine has a {machine.gpus[0].name}",
            evidence=("torch/version.py: cuda is None",),
            fix=f"pip install --force-reinstall torch   (a build{index}: choose it on the PyTorch start page)",
        )


@rule(
    "framework-misses-gpu",
    severity="error",
    why="""A framework carries machine code for the GPUs that its CUDA version knew when it was built. A newer GPU
    then has no kernel image (error 209) unless there is PTX for it; an older one was dropped by a later CUDA.""",
    source="nvcc --list-gpu-code of each toolkit; the architecture lists of the frameworks' own builds",
)
def framework_misses_gpu(machine: MachineProfile) -> Iterator[Found]:
    for framework in machine.frameworks:
        known = view.row(framework.cuda) if framework.cuda and "." in framework.cuda else None
        for gpu in dict.fromkeys(machine.gpus):
            capability = gpu.capability
            if known is None or capability is None or choice.can_target(known, capability):
                continue
            dropped = capability.number < min(arch.capability.number for arch in known.archs)
            reason = "no longer compiles" if dropped else "cannot compile yet"
            fitting = choice.toolkits_for(capability)
            span = toolkits.span(fitting) if fitting else "another CUDA"
            yield Found(
                message=f"{framework.name} {framework.version} has no code for the {view.named(gpu)}: "
                f"CUDA {known.version} {reason} for it",
                evidence=(
                    f"{framework.found_via} says CUDA {framework.cuda}",
                    f"{span} compiles for {capability}",
                ),
                fix=f"install a build of {framework.name} for {span}",
            )


@rule(
    "bitsandbytes-library-missing",
    severity="error",
    why="""bitsandbytes ships one library a CUDA version and loads the one for torch's CUDA. Up to 0.49 it takes that
    very version and no other; from 0.50 on, where there is none, the highest lower minor of that major, else the lowest
    higher one. BNB_CUDA_VERSION overrides the choice, and then the file must be there.""",
    source="bitsandbytes/cextension.py and cuda_setup/main.py, 0.37 to 0.50",
)
def bitsandbytes_library_missing(machine: MachineProfile) -> Iterator[Found]:
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
    fix = found.fix
    if override and fix.startswith(f"unset {override.name}"):
        fix = view.unsetting(machine, override.name) + fix.removeprefix(f"unset {override.name}")
    yield Found(
        message=f"bitsandbytes {package.version} has no library to load: {found.missing}",
        evidence=(
            f"libraries are there for CUDA {', '.join(package.libraries)}",
            f"{override.name} is set in {override.found_via}"
            if override
            else f"torch {torch.version if torch else ''} is built for {torch.cuda if torch else ''}",
        ),
        fix=fix,
    )


@rule(
    "torch-toolkit-mismatch",
    severity="warning",
    why="""Extensions compiled on this machine use the toolkit's nvcc and torch's headers and libraries. Another major
    is refused by torch's extension builder. Another minor is allowed, and works as long as the extension calls
    nothing that only the newer one has.""",
    source="torch/utils/cpp_extension.py, _check_cuda_version",
)
def torch_toolkit_mismatch(machine: MachineProfile) -> Iterator[Found]:
    torch, toolkit = machine.framework("torch"), view.toolkit_in_use(machine)
    if not (torch and torch.cuda and toolkit):
        return
    has, wants = versions.minor(toolkit.version), versions.minor(torch.cuda)
    evidence = (f"nvcc {toolkit.version} at {toolkit.root} ({view.way_to(machine, toolkit)})",)
    if versions.major(has) != versions.major(wants):
        yield Found(
            message=f"torch was built for CUDA {wants} and the toolkit is {has}: torch refuses to build extensions",
            evidence=evidence,
            fix=f"use a toolkit of CUDA {versions.major(wants)} (CUDA_HOME), or a torch for CUDA "
            f"{versions.major(has)}; wheels that are already built are not affected",
        )
    elif has != wants:
        yield Found(
            message=f"torch was built for CUDA {wants} and the toolkit is {has}: the same major, so extensions build "
            "and run",
            evidence=evidence,
            fix="none needed; packages that load one library a CUDA version (bitsandbytes) go by torch's version",
            severity="note",
        )


@rule(
    "library-path-shadows",
    severity="warning",
    why="""LD_LIBRARY_PATH is searched before the RUNPATH by which wheels find the CUDA libraries installed beside
    them. Another copy there is loaded instead, and mixes versions: undefined symbols, cuBLAS or cuDNN that fail to
    initialise.""",
    source="ld.so(8), search order; reports of mixed nvJitLink, cuBLAS and cuDNN copies",
)
def library_path_shadows(machine: MachineProfile) -> Iterator[Found]:
    ours = {name for each in machine.library_folders if each.found_via == "site-packages" for name in each.libraries}
    for folder in machine.library_folders:
        hidden = sorted(ours.intersection(folder.libraries)) if folder.found_via == "LD_LIBRARY_PATH" else []
        if hidden:
            yield Found(
                message=f"LD_LIBRARY_PATH puts {folder.path} before the CUDA libraries of the Python environment",
                evidence=(f"both have {', '.join(hidden[:4])}{' …' if len(hidden) > 4 else ''}",),  # noqa: PLR2004
                fix="unset LD_LIBRARY_PATH   (or take this folder out of it)",
            )


@rule(
    "libcuda-stub-on-path",
    severity="error",
    why="""The toolkit's `stubs` folder holds an empty libcuda to link against. On the loader's path it is taken for the
    driver, and every CUDA call fails with error 34 or "CUDA driver is a stub library".""",
    source="driver_types.h of the toolkit, cudaErrorStubLibrary",
)
def libcuda_stub_on_path(machine: MachineProfile) -> Iterator[Found]:
    variable = machine.variable("LD_LIBRARY_PATH")
    stubs = [each for each in (variable.value if variable else "").split(":") if each.rstrip("/").endswith("/stubs")]
    if stubs:
        yield Found(
            message="LD_LIBRARY_PATH holds the toolkit's stub of libcuda, which is for linking only",
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
