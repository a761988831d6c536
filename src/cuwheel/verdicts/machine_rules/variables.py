"""Variables that say something the machine contradicts, or that change what the driver does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import versions
from cuwheel.facts.spellings import table
from cuwheel.verdicts.choice import serves
from cuwheel.verdicts.machine_rules import view
from cuwheel.verdicts.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.facts.spellings.row import ArchList
    from cuwheel.machine.profile import MachineProfile, Variable


def _lists(machine: MachineProfile) -> Iterator[tuple[Variable, ArchList]]:
    for name, row in table.VARIABLES.items():
        variable = machine.variable(name)
        if variable and variable.value.strip():
            yield variable, row.read(variable.value)


@rule(
    "architecture-not-compilable",
    severity="error",
    why="""An architecture that the toolkit does not know (too new, or dropped) stops nvcc with "Unsupported gpu
    architecture". A word that is not an architecture at all stops CMake or torch before that.""",
    source="nvcc --list-gpu-code of each toolkit",
)
def architecture_not_compilable(machine: MachineProfile) -> Iterator[Found]:
    toolkit = view.toolkit_in_use(machine)
    known = view.row(toolkit.version) if toolkit else None
    for variable, asked in _lists(machine):
        if asked.unknown:
            yield Found(
                message=f"{variable.name} contains words that are not architectures: {', '.join(asked.unknown)}",
                evidence=(f"{variable.name}={variable.value} (set in {variable.found_via})",),
                fix=view.setting(machine, **{variable.name: "…"}) + "   (cuwheel gpus lists capabilities)",
            )
        if toolkit is None or known is None:
            continue
        beyond = dict.fromkeys(arch.number for arch in asked.archs if not known.supports(arch))
        if beyond:
            yield Found(
                message=f"{variable.name} asks for {', '.join(beyond)}, which nvcc {versions.minor(toolkit.version)} "
                "cannot compile",
                evidence=(
                    f"{variable.name}={variable.value} (set in {variable.found_via})",
                    f"nvcc: {toolkit.root}",
                ),
                fix=f"cuwheel toolkits --compiles {next(iter(beyond))}   (which toolkits can)",
            )


@rule(
    "architecture-misses-gpu",
    severity="error",
    why="""What is compiled for one architecture does not run on a GPU of another: "no kernel image is available"
    (error 209) at the first kernel, long after a build that looked fine.""",
    source="NVIDIA: CUDA programming guide, binary and PTX compatibility; measured on an H200",
)
def architecture_misses_gpu(machine: MachineProfile) -> Iterator[Found]:
    for variable, asked in _lists(machine):
        if asked.open or not asked.archs:
            continue
        for gpu in dict.fromkeys(machine.gpus):
            capability = gpu.capability
            if capability and not any(serves(arch, capability) for arch in asked.archs):
                wanted = str(capability) if variable.name == "TORCH_CUDA_ARCH_LIST" else str(capability.number)
                yield Found(
                    message=f"{variable.name}={variable.value} compiles nothing that runs on the {view.named(gpu)}",
                    evidence=(
                        f"set in {variable.found_via}",
                        f"{gpu.found_via} says capability {capability}",
                    ),
                    fix=view.setting(machine, **{variable.name: wanted}),
                )


@rule(
    "jit-switched",
    severity="warning",
    why="""CUDA_DISABLE_PTX_JIT=1 forbids the driver to compile PTX: error 223 where a package has no machine code for
    the GPU. CUDA_FORCE_PTX_JIT=1 makes it ignore machine code: error 209 where there is no PTX, and slow starts
    everywhere else. Both are for tests.""",
    source="NVIDIA: CUDA programming guide, environment variables; error codes measured on an H200",
)
def jit_switched(machine: MachineProfile) -> Iterator[Found]:
    effects = {
        "CUDA_DISABLE_PTX_JIT": "code that exists only as PTX fails with error 223",
        "CUDA_FORCE_PTX_JIT": "machine code is ignored, and what has no PTX fails with error 209",
    }
    for name, effect in effects.items():
        variable = machine.variable(name)
        if variable and variable.value not in ("", "0"):
            yield Found(
                message=f"{name}={variable.value}: {effect}",
                evidence=(f"set in {variable.found_via}",),
                fix=view.unsetting(machine, name),
            )


@rule(
    "gpu-hidden",
    severity="warning",
    why="CUDA_VISIBLE_DEVICES that is empty, -1 or names no device hides every GPU: error 100, no device detected.",
    source="NVIDIA: CUDA programming guide, environment variables",
)
def gpu_hidden(machine: MachineProfile) -> Iterator[Found]:
    variable = machine.variable("CUDA_VISIBLE_DEVICES")
    if variable is None or not machine.gpus:
        return
    first = variable.value.split(",")[0].strip()
    beyond = first.isascii() and first.isdigit() and int(first[:9]) >= len(machine.gpus)
    if first in ("", "-1") or first.lower() in ("none", "void", "nodevfiles") or beyond:
        yield Found(
            message=f"CUDA_VISIBLE_DEVICES={variable.value!r} hides every GPU of this machine from CUDA",
            evidence=(f"GPUs here: {len(machine.gpus)}", f"set in {variable.found_via}"),
            fix=view.unsetting(machine, "CUDA_VISIBLE_DEVICES"),
        )


RULES = (architecture_not_compilable, architecture_misses_gpu, jit_switched, gpu_hidden)
