"""What cuwheel says of each variant without a GPU: through the product's own functions, from the very file."""

from __future__ import annotations

import tempfile
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from cuwheel.device_code.survey import survey
from cuwheel.machine.fleet import Machine
from cuwheel.verdicts import judge
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import Choice, Code, Loader, choose
from cuwheel_core.verdicts.predict import reach_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cuwheel_core.device_code.libraries import Entry, Library
    from cuwheel_core.verdicts.device import Jit

# The kernels of an entry and the numbers that they write, for the entries of each container.
Markers: TypeAlias = "Sequence[Sequence[Mapping[str, int]]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What becomes of one kernel: the number that it writes, or the error."""

    marker: int | None
    error: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    outcome: str
    error: int | None
    kernels: dict[str, Kernel]


def machine(driver: str, driver_cuda: str, jit: Jit = "allowed") -> Machine:
    """The one the set is for."""
    return Machine(
        name="capability 9.0",
        capability=Capability.parse("9.0"),
        driver=driver,
        driver_cuda=driver_cuda,
        os="linux",
        cpu="x86_64",
        jit=jit,
    )


def of(path: Path, on: Machine, markers: Markers, kernels: Sequence[str]) -> Prediction:
    """`markers`: for each container of the file, objects before what was linked from them; none of a mixture, of which
    only the verdict is compared, as it is of bare PTX.

    `kernels`: in the order of the containers that they are in.
    """
    if zipfile.is_zipfile(path):
        return _of_package(path, on, markers, kernels)
    (library,) = survey(path, detail="entries").libraries
    if not markers or library.format == "ptx":
        said = reach_of(library).on(on)
        error = said.predicted_error.code if said.predicted_error else None
        return Prediction(outcome=said.outcome, error=error, kernels={})
    device = drivers.loader_of(library, on)
    if device is None:
        raise ValueError("the machine's capability is not known")
    choices = choices_in(library, device)
    if library.format == "elf":
        return _of_library(library, on, choices, markers, kernels)
    (choice,) = choices
    outcome = "fails" if choice.error else choice.how
    (kernel,) = kernels
    return Prediction(outcome=outcome, error=_code(choice), kernels={kernel: _kernel(choice, markers[0], kernel)})


def _of_package(path: Path, on: Machine, markers: Markers, kernels: Sequence[str]) -> Prediction:
    """A wheel: the verdict of the whole, and what becomes of each library's kernels."""
    with tempfile.TemporaryDirectory() as scratch:
        wheel = Path(scratch) / "pkg-1.0-py3-none-any.whl"
        wheel.symlink_to(path.resolve())
        found = survey(wheel, detail="entries")
    verdict = judge.judge(found, on)
    told: dict[str, Kernel] = {}
    for library in found.libraries:
        device = drivers.loader_of(library, on)
        if device is None:
            raise ValueError("the machine's capability is not known")
        choices = choices_in(library, device)
        first, last = len(told), len(told) + len(choices)
        told |= _of_library(library, on, choices, markers[first:last], kernels[first:last]).kernels
    error = verdict.predicted_error.code if verdict.predicted_error else None
    return Prediction(outcome=verdict.outcome, error=error, kernels=told)


def containers_of(library: Library) -> list[list[Entry]]:
    """The entries of each, in the order of the markers; a cubin that stands alone is one too.

    Objects come before what was linked from them. Of what nvcc left without a kernel nothing is launched.
    """
    held: dict[int, list[Entry]] = {index: [] for index in range(max(len(library.containers), 1))}
    for entry in library.entries:
        held[entry.container or 0].append(entry)
    places = [(each.section == ".nv_fatbin", each.offset) for each in library.containers] or [(False, 0)]
    order = sorted(range(len(places)), key=places.__getitem__)
    if not library.device_linked and library.containers:
        order = [index for index in order if not library.containers[index].without_kernels]
    return [held[index] for index in order]


def choices_in(library: Library, device: Loader) -> list[Choice]:
    """Of each container, in the order of the markers."""
    return [
        choose([Code(arch=Arch.parse(entry.arch), ptx_isa=entry.ptx_isa) for entry in entries], device)
        for entries in containers_of(library)
    ]


def _of_library(
    library: Library, on: Machine, choices: Sequence[Choice], markers: Markers, kernels: Sequence[str]
) -> Prediction:
    said = reach_of(library).on(on)
    error = said.predicted_error.code if said.predicted_error else None
    if library.device_linked:
        told = _of_link(library, on, choices, markers, kernels)
    else:
        places = zip(kernels, choices, markers, strict=True)
        told = {kernel: _kernel(choice, entries, kernel) for kernel, choice, entries in places}
    return Prediction(outcome=said.outcome, error=error, kernels=told)


def _of_link(
    library: Library, on: Machine, choices: Sequence[Choice], markers: Markers, kernels: Sequence[str]
) -> dict[str, Kernel]:
    """The kernels of a device link, then the one of a plain container that stands before the linked one."""
    plain = [index for index, each in enumerate(library.containers) if each.section == ".nv_fatbin"][:-1]
    wrappers = tuple(each for each in library.registration.wrappers if each.container not in plain)
    # What nothing registers is not looked at: this is the device link alone.
    said = reach_of(replace(library, registration=replace(library.registration, wrappers=wrappers))).on(on)
    objects = markers[: len(markers) - 1 - len(plain)]
    used = list(zip(choices, objects, strict=False)) if said.basis == "relocatable" else [(choices[-1], markers[-1])]
    numbers = added_up(used)
    error = said.predicted_error.code if said.predicted_error else None
    linked = kernels[: len(kernels) - len(plain)]
    runs = _linked_at_load(library, used) if said.outcome == "partial" else linked if error is None else ()
    told = {
        kernel: Kernel(marker=numbers[kernel], error=None) if kernel in runs else Kernel(marker=None, error=error)
        for kernel in linked
    }
    for kernel, index in zip(kernels[len(linked) :], plain, strict=True):
        place = len(choices) - 1 - len(plain) + plain.index(index)
        told[kernel] = _kernel(choices[place], markers[len(objects) + plain.index(index)], kernel)
    return told


def added_up(used: Iterable[tuple[Choice, Sequence[Mapping[str, int]]]]) -> Counter[str]:
    """What was linked writes its own number; objects linked at load add theirs up.

    Objects that came from libcudadevrt stand behind our own, and write nothing.
    """
    numbers: Counter[str] = Counter()
    for choice, entries in used:
        if not choice.error and choice.entry is not None:
            numbers.update(entries[choice.entry])
    return numbers


def _linked_at_load(library: Library, used: Sequence[tuple[Choice, object]]) -> frozenset[str]:
    """The kernels of the objects that fit."""
    objects = sorted((each.offset, each.symbols) for each in library.containers if each.section != ".nv_fatbin")
    fitting = [symbols for (_, symbols), (choice, _) in zip(objects, used, strict=False) if not choice.error]
    return frozenset(kernel for symbols in fitting if symbols for kernel in symbols.kernels)


def _kernel(choice: Choice, entries: Sequence[Mapping[str, int]], kernel: str) -> Kernel:
    taken = None if choice.error or choice.entry is None else entries[choice.entry][kernel]
    return Kernel(marker=taken, error=_code(choice))


def _code(choice: Choice) -> int | None:
    return choice.error.code if choice.error else None
