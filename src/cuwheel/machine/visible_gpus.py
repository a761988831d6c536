"""Which GPUs of a machine a program gets: those that CUDA_VISIBLE_DEVICES leaves, or those that somebody asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.machine.profile import Gpu, MachineProfile

_VARIABLE = "CUDA_VISIBLE_DEVICES"


def left_by_variable(profile: MachineProfile) -> MachineProfile:
    """Numbers are those of nvidia-smi. A UUID cannot be told from here: then all of them may be meant."""
    variable = profile.variable(_VARIABLE)
    if variable is None or not profile.gpus:
        return profile
    seen: list[Gpu] = []
    for word in (each.strip() for each in variable.value.split(",")):
        if word.upper().startswith(("GPU-", "MIG-")):
            return profile
        number = int(word[:9]) if word.isascii() and word.isdigit() else len(profile.gpus)
        if number >= len(profile.gpus):
            break  # CUDA reads the list up to the first that is none
        seen.append(profile.gpus[number])
    return replace(profile, gpus=tuple(seen))


def asked_for(profile: MachineProfile, numbers: Sequence[int]) -> MachineProfile:
    if beyond := [each for each in numbers if not 0 <= each < len(profile.gpus)]:
        count = len(profile.gpus)
        has = "no GPU" if not count else "one GPU, number 0" if count == 1 else f"{count} GPUs, 0 to {count - 1}"
        raise UsageError(f"this machine has no GPU {beyond[0]}: it has {has}", hint="nvidia-smi -L")
    return replace(profile, gpus=tuple(profile.gpus[each] for each in dict.fromkeys(numbers)))
