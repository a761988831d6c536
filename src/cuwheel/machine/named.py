"""From the words behind `--on` and `--for` to machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import CuwheelError, UnknownNameError, UsageError
from cuwheel.machine.fleet import Machine, Refinement, from_gpu, from_profile, read_fleet_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.machine.profile import Gpu, MachineProfile

THIS = "this"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def machines_here(profile: MachineProfile, refine: Refinement | None = None) -> tuple[Machine, ...]:
    """This machine: one for each kind of GPU in it."""
    refine = refine or Refinement()
    return tuple(refine.apply(each) for each in from_profile(profile))


def machines_asked_for(
    on: Sequence[str | Path | Machine],
    refine: Refinement | None = None,
    *,
    env: Path | None = None,
    gpus: Sequence[int] = (),
) -> tuple[Machine, ...]:
    """What `--on` names, with the packages of `env`; without either this machine, with the GPUs that a program sees."""
    if on:
        found = machines_named(on, refine, env=env)
        if env is None:
            return found
        from cuwheel.machine import probe  # noqa: PLC0415 - most are named by their GPU

        return probe.within(env, found)
    from cuwheel.machine import probe  # noqa: PLC0415 - as above

    profile = probe.probe(env)
    seen = chosen_gpus(profile, gpus) if gpus else visible_to_programs(profile)
    if profile.gpus and not seen.gpus:
        raise UsageError(f"{_VISIBLE} hides every GPU of this machine", hint="--on this counts all of them")
    return machines_here(seen, refine)


def machines_named(
    on: Iterable[str | Path | Machine], refine: Refinement | None = None, *, env: Path | None = None
) -> tuple[Machine, ...]:
    """What `--on` names, in order: GPUs, capabilities, `this`, profiles, fleet files. All unknown names at once.

    `env`: the Python environment from which this machine is seen.
    """
    found: list[Machine] = []
    errors: list[CuwheelError] = []
    for word in _words(on):
        try:
            found += _machines_of_word(word, env)
        except UnknownNameError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise UsageError(
            "; ".join(each.message for each in errors), hint=" ".join(each.hint for each in errors if each.hint)
        )
    refine = refine or Refinement()
    return tuple(refine.apply(each) for each in dict.fromkeys(found))


def _words(on: Iterable[str | Path | Machine]) -> Iterator[str | Machine]:
    """Split at commas, unless there is a file of that name."""
    for word in on:
        if isinstance(word, Machine):
            yield word
        elif isinstance(word, Path) or _is_file(word):
            yield str(word)
        else:
            yield from (part.strip() for part in word.split(",") if part.strip())


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # too long for a name
        return False


def _machines_of_word(word: str | Machine, env: Path | None) -> Sequence[Machine]:
    if isinstance(word, Machine):
        return (word,)
    if word.lower() == THIS:
        from cuwheel.machine import probe  # noqa: PLC0415 - most are named by their GPU

        return from_profile(probe.probe(env))
    if word.endswith(".toml"):
        return read_fleet_file(Path(word))
    if word.endswith(".json"):
        from cuwheel.machine import profile  # noqa: PLC0415 - most are named by their GPU

        return from_profile(profile.load(Path(word)), Path(word).stem)
    return (from_gpu(word),)


def visible_to_programs(profile: MachineProfile) -> MachineProfile:
    """Numbers are those of nvidia-smi. A UUID cannot be told from here: then all of them may be meant."""
    variable = profile.variable(_VISIBLE)
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


def chosen_gpus(profile: MachineProfile, numbers: Sequence[int]) -> MachineProfile:
    if beyond := [each for each in numbers if not 0 <= each < len(profile.gpus)]:
        count = len(profile.gpus)
        has = "no GPU" if not count else "one GPU, number 0" if count == 1 else f"{count} GPUs, 0 to {count - 1}"
        raise UsageError(f"this machine has no GPU {beyond[0]}: it has {has}", hint="nvidia-smi -L")
    return replace(profile, gpus=tuple(profile.gpus[each] for each in dict.fromkeys(numbers)))
