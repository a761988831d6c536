"""What becomes of a library's device code on a machine: pure, from what is in the file and known of the machine.

A library is a set of modules. A container that a plain wrapper names is one. What a device link made is another: the
driver takes its linked container if that fits, else links the relocatable objects that do (`link_objects`). Code that
is linked at load counts as `jit`: it is the driver that makes it ready, at every first start.

`Reach` is the one model behind `inspect`'s sentence on the GPUs that the code serves and `check`'s verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel_core.device_code.libraries import Library
from cuwheel_core.facts import cuda_libraries, gpus, versions
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.support.wording import file_name, runs
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import (
    INSUFFICIENT_DRIVER,
    INVALID_PTX,
    INVALID_SYMBOL,
    NO_DEVICE,
    NO_KERNEL_IMAGE,
    SYMBOL_NOT_FOUND,
    UNSUPPORTED_PTX,
    Choice,
    Code,
    CudaError,
    How,
    Loader,
    choose,
)
from cuwheel_core.verdicts.condition import Condition, condition
from cuwheel_core.verdicts.modules import (
    Choosing,
    LinkResult,
    Module,
    Place,
    RelocatableObject,
    choosing,
    link_objects,
    modules,
    objects_of_its_own,
)

if TYPE_CHECKING:
    from cuwheel_core.verdicts.device import Device
    from cuwheel_core.wheel.metadata import Distribution

Outcome: TypeAlias = Literal["native", "compatible", "jit", "partial", "fails", "unknown"]
# What a verdict rests on: every container, those that fit, the objects linked at load, or nothing that was read.
Basis: TypeAlias = Literal["every", "fitting", "relocatable", "nothing"]
# What stops a library whatever code it has, in the order in which a program meets it.
Stop: TypeAlias = Literal["driver", "gpu", "platform", "zstd"]

_ERRORS: dict[Stop, CudaError | None] = {
    "driver": INSUFFICIENT_DRIVER,
    "gpu": NO_DEVICE,
    "platform": SYMBOL_NOT_FOUND,
    "zstd": None,  # which error it gives is not known
}
# A few containers for the GPU do not make a library run that chooses among many, nor do a few cubins of its own.
_SHARE_RUNNING = 0.1
# Of a library that is known to choose, what it asks the GPU with: cuSPARSELt has such kernels for any GPU, in 2 of 363
# containers. For GPUs that it works on it has 2 % of all and more.
_SHARE_OF_PROBES = 0.01
GOOD: tuple[Literal["native", "compatible", "jit"], ...] = ("native", "compatible", "jit")  # the best first


class Containers(Struct, frozen=True, kw_only=True):
    """How many containers the driver serves, and how."""

    native: int = 0
    compatible: int = 0
    jit: int = 0
    none: int = 0

    @property
    def total(self) -> int:
        return self.native + self.compatible + self.jit + self.none


class Taken(Struct, frozen=True, kw_only=True):
    """The entries that the driver takes, those alike counted."""

    arch: Arch
    how: How
    linked: bool
    section: str
    count: int
    ptx_isa: str | None = None


class Prediction(Struct, frozen=True, kw_only=True):
    """`missing`: what the containers that nothing serves hold. `heuristic`: that it chooses kernels is a guess.

    `for_chosen_gpus`: all of `missing` is architecture-specific, so files were given lists of their own on purpose.
    `absent`: kernels and variables that its host code registers and the code that is taken has not: 500 for each.
    `mixed_objects`: of its relocatable objects only some fit. `alternatives`: errors that it may give instead; then
    kernels of the objects that fit may run, too. `link_too_new`: its objects are of a newer toolkit than the driver's.
    `by_linker`: nvJitLink compiles its PTX, not the driver. `stops`: all that stands in the way before its code is
    looked at. `code`: what its code alone comes to, once those are out of the way.
    `conditions`: what is not known of the machine and must hold.
    """

    outcome: Outcome
    predicted_error: CudaError | None = None
    containers: Containers = Containers()
    taken: tuple[Taken, ...] = ()
    missing: tuple[str, ...] = ()
    basis: Basis = "every"
    heuristic: bool = False
    for_chosen_gpus: bool = False
    stops: tuple[Stop, ...] = ()
    code: Prediction | None = None
    by_linker: bool = False
    link_too_new: bool = False
    mixed_objects: bool = False
    absent: tuple[str, ...] = ()
    alternatives: tuple[CudaError, ...] = ()
    conditions: tuple[Condition, ...] = ()


NOTHING = Prediction(outcome="unknown", basis="nothing")


class _ModuleChoice(Struct, frozen=True):
    """What the driver makes of a module.

    `held_back`: it would serve, were it not for the driver's age or a variable that keeps it from code of a kind.
    `absent`: what the host registers and the entry that is taken has not; `managed`: all of it variables in managed
    memory, whose error is another.
    """

    module: Module
    choice: Choice
    held_back: bool = False
    absent: tuple[str, ...] = ()
    managed: bool = False


def predict_by_code(found: Sequence[Module], chooses: Choosing, device: Loader, *, too_new: bool = False) -> Prediction:
    """Predicts by the code alone: whatever else of the machine may stop the library."""
    if not _loadable(found):
        return NOTHING
    everything = [_choice_on(each, device) for each in found]
    objects = [each for each in everything if each.module.relocatable]
    judged = [each for each in everything if not each.module.relocatable]
    linked = [each for each in judged if each.module.device_linked]
    plain = [each for each in judged if not each.module.device_linked]
    made = _link_at_load(everything, too_new=too_new)
    if made is None:
        # Of several links one that does not fit is no container of its own: its kernels have no name.
        linked = [_failed(each, SYMBOL_NOT_FOUND) if each.choice.error == NO_KERNEL_IMAGE else each for each in linked]
        return _add_up(chooses, [*plain, *linked])
    own = objects_of_its_own(found)
    mixed = len({each.choice.how == "none" for each in objects if each.module in own}) > 1
    if made.error is None:
        runs = [_ModuleChoice(each.module, each.choice) for each in made.in_it]
        nameless = [_failed(_ModuleChoice(each.module, each.choice), SYMBOL_NOT_FOUND) for each in made.left_out]
        result = _add_up(chooses, [*plain, *runs, *nameless])
        outcome: Outcome = "jit" if result.outcome in GOOD else result.outcome
        return replace(result, outcome=outcome, basis="relocatable", mixed_objects=mixed)
    # Without linked code all objects together count as one container.
    together = [replace(each, module=replace(each.module, count=1)) for each in objects[:1]]
    failed = [_failed(each, made.error) for each in linked or together]
    return replace(
        _add_up(chooses, [*plain, *failed]),
        mixed_objects=mixed,
        alternatives=made.alternatives,
        link_too_new=made.too_new,
    )


def _link_at_load(everything: Sequence[_ModuleChoice], *, too_new: bool) -> LinkResult | None:
    """What the link of the relocatable objects comes to; None where there is none.

    Linked code that fits is taken, though it may lack everything: then nothing is linked at load.
    """
    objects = [RelocatableObject(each.module, each.choice) for each in everything if each.module.relocatable]
    linked = [each for each in everything if each.module.device_linked]
    if not (linked or objects) or any(each.choice.how in GOOD or each.absent for each in linked):
        return None
    return link_objects(objects, too_new=too_new)


def choices_on(found: Sequence[Module], device: Loader, *, too_new: bool = False) -> tuple[Choice, ...]:
    """What the driver makes of each module, in their order; objects run where their link at load takes them in."""
    everything = [_choice_on(each, device) for each in found]
    link = _link_at_load(everything, too_new=too_new)
    in_it = {id(each.module) for each in link.in_it} if link else set()

    def settled(each: _ModuleChoice) -> Choice:
        if not each.module.relocatable:
            return each.choice
        return replace(each.choice, how="jit" if id(each.module) in in_it else "none")

    return tuple(map(settled, everything))


def _loadable(found: Sequence[Module]) -> bool:
    return any(module.codes or module.empty for module in found)


def _choice_on(module: Module, device: Loader) -> _ModuleChoice:
    choice = choose(module.codes, device)
    if choice.how != "none" or (device.jit == "allowed" and choice.error == NO_KERNEL_IMAGE):
        lacks = next((each for each in module.absent if each.entry == choice.entry and choice.how != "none"), None)
        if lacks and lacks.everything:
            choice = replace(choice, how="none", error=INVALID_SYMBOL if lacks.managed else SYMBOL_NOT_FOUND)
        elif choice.how == "none" and module.managed:
            choice = replace(choice, error=INVALID_SYMBOL)
        return _ModuleChoice(module, choice, absent=lacks.names if lacks else (), managed=bool(lacks and lacks.managed))
    on_any_driver = choose(module.codes, Loader(capability=device.capability))
    return _ModuleChoice(module, choice, held_back=on_any_driver.how != "none")


def _failed(judged: _ModuleChoice, error: CudaError) -> _ModuleChoice:
    return _ModuleChoice(judged.module, replace(judged.choice, how="none", error=error))


def _add_up(chooses: Choosing, every: Sequence[_ModuleChoice]) -> Prediction:
    """All registered containers must serve. Of what the library loads itself, what does not fit it leaves alone.

    The exception are libraries that choose among their kernels, by the table (`listed`) or by their looks (`guessed`):
    of these one runs where some of it fits, if that is more than it asks the GPU with (`probes`), or more than a few.
    """
    fitting = sum(each.module.count for each in every if each.choice.how in GOOD)
    listed = chooses.itself and not chooses.guessed
    probes = listed and fitting < _SHARE_OF_PROBES * sum(each.module.count for each in every)
    judged = [each for each in every if probes or not (fitting and each.module.own and each.choice.how == "none")]
    hows: Counter[How] = Counter()
    errors: Counter[CudaError | None] = Counter()
    for each in judged:
        hows[each.choice.how] += each.module.count
        if each.choice.how == "none":
            errors[each.choice.error] += each.module.count
    containers = Containers(native=hows["native"], compatible=hows["compatible"], jit=hows["jit"], none=hows["none"])
    missed = [each for each in judged if each.choice.how == "none"]
    total, none = hows.total(), hows["none"]
    # Of many containers an empty one says as little: slim took out what was not for the GPUs that it kept.
    on_purpose = all(each.module.for_chosen_gpus or each.module.empty for each in missed)
    guessed = chooses.guessed or (chooses.many and on_purpose and not chooses.itself)
    few = total - none < _SHARE_RUNNING * total
    # All that runs is what the library loads itself, beside its registered code.
    only_own = all(each.module.own for each in judged if each.choice.how in GOOD)
    next_to_nothing = probes or (few and (guessed or (only_own and not chooses.itself)))
    # What would fit, had the driver been able or allowed to take it, was not left out by the library's choice.
    held_back = [each for each in missed if each.held_back] if guessed else []
    if held_back:
        errors = Counter()
        for each in held_back:
            errors[each.choice.error] += each.module.count
    by_itself = (chooses.itself or guessed) and not next_to_nothing and not held_back and 0 < none < total
    if (by_itself and not guessed) or (listed and not missed):
        outcome: Outcome = next(how for how in GOOD if hows[how])
    elif by_itself or not missed:  # with a guess it is not known which of those that fit it uses: the weakest counts
        # Beside registered machine code, cubins that the library loads itself do not say how it runs.
        stray = {each.choice.how for each in judged if each.module.own} & {"compatible"}
        registered = {each.choice.how for each in judged if not each.module.own}
        counted = set(hows) - (stray - registered if "native" in registered else set())
        outcome = next(how for how in reversed(GOOD) if how in counted)
    else:
        outcome = "fails" if none == total or next_to_nothing else "partial"
    absent = tuple(dict.fromkeys(name for each in judged for name in each.absent))
    # cuFFT has kernels for bfloat16 from 8.0 on, registers them everywhere, and does not take them on a V100.
    if absent and outcome in GOOD and not (by_itself or listed):
        managed = all(each.managed for each in judged if each.absent)
        outcome, errors = "partial", Counter({INVALID_SYMBOL if managed else SYMBOL_NOT_FOUND: 1})
    return Prediction(
        outcome=outcome,
        absent=absent,
        predicted_error=errors.most_common(1)[0][0] if outcome in ("fails", "partial") else None,
        containers=containers,
        taken=_taken(judged),
        missing=tuple(dict.fromkeys(each.module.words for each in missed)),
        basis="fitting" if by_itself else "every",
        heuristic=by_itself and guessed,
        for_chosen_gpus=bool(missed) and all(each.module.for_chosen_gpus for each in missed),
    )


def _taken(judged: Iterable[_ModuleChoice]) -> tuple[Taken, ...]:
    counts: Counter[tuple[Code, How, bool, str]] = Counter()
    for each in judged:
        if each.choice.how != "none" and each.choice.entry is not None:
            code = each.module.codes[each.choice.entry]
            counts[code, each.choice.how, not each.module.relocatable, each.module.section] += each.module.count
    return tuple(
        Taken(arch=code.arch, how=how, linked=linked, section=section, count=count, ptx_isa=code.ptx_isa)
        for (code, how, linked, section), count in counts.items()
    )


def with_machine_limits(result: Prediction, library: Library, machine: Device) -> Prediction:
    """What its code comes to on this machine: everything that stops it, else the conditions that are left."""
    compressed = uses_zstd(library, result)
    if stops := tuple(_stops(library, machine, compressed=compressed)):
        return replace(result, outcome="fails", predicted_error=_ERRORS[stops[0]], stops=stops, code=result)
    if result.outcome == "fails":
        return result
    if result.basis == "nothing":
        return replace(result, conditions=tuple(filter(None, [drivers.floor_condition(library, machine)])))
    if drivers.unconfirmed_on_tegra(library, machine):
        result = replace(result, outcome="unknown")
    return replace(result, conditions=tuple(_conditions(library, machine, result, compressed=compressed)))


def _stops(library: Library, machine: Device, *, compressed: bool) -> Iterable[Stop]:
    on = drivers.system_of(library, machine)
    if drivers.below_floor(library, machine):
        yield "driver"
    if drivers.gpu_state(machine, on) in ("too-old", "too-new"):
        yield "gpu"
    if library.device_code and drivers.wrong_distribution(library, machine):
        yield "platform"
    if compressed and drivers.below_zstd_floor(library, drivers.once_updated(library, machine)):
        yield "zstd"


def uses_zstd(library: Library, result: Prediction) -> bool:
    taken = {(each.arch, each.section, each.linked) for each in result.taken}
    return any(
        row.compression == "zstd" and (row.arch, row.section, row.linked) in taken for row in library.device_code
    )


def _conditions(library: Library, machine: Device, result: Prediction, *, compressed: bool) -> Iterable[Condition]:
    if library.type == "relocatable" and library.format not in ("cubin", "fatbin"):
        yield condition("linked-into-program")
    on = drivers.system_of(library, machine)
    needed = [each.ptx_isa for each in result.taken if each.how == "jit" and each.ptx_isa]
    links_cubins = any(not each.linked and each.how != "jit" for each in result.taken)
    newer = drivers.newer_toolkits(library, machine) if links_cubins else ()
    compiles = needed and not result.by_linker and drivers.ptx_isa(machine, on) is None
    if needed and result.by_linker:
        yield drivers.linker_condition(max(needed, key=versions.key))
    if compiles:
        yield drivers.isa_condition(max(needed, key=versions.key), on)
    if newer:
        yield drivers.link_condition(newer[-1], on)
    # A driver of which one of these holds is above the floor.
    if not (compiles or newer) and (least := drivers.floor_condition(library, machine)):
        yield least
    floor = drivers.zstd_floor(library, machine)
    if compressed and floor and not (machine.driver or machine.driver_cuda):
        yield condition("driver-at-least", version=floor, purpose="zstd")
    named = [drivers.floor_of(library, machine), floor if compressed else None]
    named += [drivers.driver_for(each, on) for each in newer[-1:]]
    named += [drivers.driver_for(drivers.cuda_of_isa(each) or "0", on) for each in needed if compiles]
    highest = max((each for each in named if each), key=versions.key, default=None)
    yield from drivers.gpu_conditions(machine, above=highest)
    yield from drivers.platform_conditions(library, machine)


# What a library's device code serves, GPU by GPU: the one model behind `inspect`'s sentence and `check`'s verdict.

_LOOSE = ("fatbin", "ptx")
# Packages that link device code when they run: cudf hands its fat binary to numba-cuda, as a file to link.
_LINKS = lazy_pattern(r"(?:numba-cuda|pynvjitlink|nvidia-nvjitlink)(?![a-z])")


class Reach(Struct, frozen=True, kw_only=True):
    """A library and its modules, which are the same for every machine.

    `by_linker`: the package hands it to nvJitLink, and the driver gets machine code alone.
    """

    library: Library
    modules: tuple[Module, ...]
    chooses: Choosing
    by_linker: bool = False

    @property
    def has_code(self) -> bool:
        """Whether there is anything that a driver could load."""
        return bool(self.modules)

    def on(self, machine: Device) -> Prediction:
        """What becomes of it there; `unknown` where the code, or the GPU, cannot be told.

        Where nvJitLink makes it ready, how new its PTX may be is a matter of that library's CUDA, and what the driver
        is told about compiling does not count.
        """
        library = self.library
        device, too_new = self._loader_on(machine)
        if device is None or not _loadable(self.modules):
            return NOTHING
        said = predict_by_code(self.modules, self.chooses, device, too_new=too_new)
        if library.format == "ptx" and said.predicted_error == NO_KERNEL_IMAGE:
            # There is nothing to choose from: the text is read, its version first.
            isa = max((row.ptx_isa for row in library.device_code if row.ptx_isa), key=versions.key, default=None)
            too_old = isa and device.ptx_isa and not versions.at_least(device.ptx_isa, isa)
            said = replace(said, predicted_error=UNSUPPORTED_PTX if too_old else INVALID_PTX)
        return with_machine_limits(replace(said, by_linker=self.by_linker), library, machine)

    def choices_on(self, machine: Device, found: Mapping[Place, Module]) -> dict[Place, Choice]:
        """What is taken there of each of its modules by their places; nothing where the GPU is not known."""
        device, too_new = self._loader_on(machine)
        if device is None:
            return {}
        return dict(zip(found, choices_on(tuple(found.values()), device, too_new=too_new), strict=True))

    def _loader_on(self, machine: Device) -> tuple[Loader | None, bool]:
        """What chooses there, and whether all of the code is of toolkits that its driver cannot link."""
        library = self.library
        updated = drivers.once_updated(library, machine)
        if self.by_linker:
            updated = replace(updated, driver=None, driver_cuda=None, jit="allowed")
        newer = drivers.newer_toolkits(library, updated)
        # With some of its toolkits newer it is not known which of them wrote the objects: that becomes a condition.
        known = drivers.cuda_of_driver(updated, drivers.system_of(library, machine)) is not None
        too_new = known and bool(newer) and len(newer) == len(library.toolkits)
        return drivers.loader_of(library, updated), too_new

    def by_code(self, device: Loader) -> Prediction:
        """On a GPU, whatever else of its machine may stop the library."""
        return predict_by_code(self.modules, self.chooses, device)

    def sweep(self) -> dict[Capability, Outcome]:
        """On every known capability and on one newer than all of them, by the code alone."""
        return dict(_swept(self.modules, self.chooses))


@lru_cache(maxsize=1024)  # a package may have thousands of cubins for a few architectures
def _swept(found: tuple[Module, ...], chooses: Choosing) -> dict[Capability, Outcome]:
    known = gpus.current_capabilities()
    newer = Capability(known[-1].major + 1, 0)
    return {each: predict_by_code(found, chooses, Loader(capability=each)).outcome for each in (*known, newer)}


def reach_of(library: Library) -> Reach:
    """Needs the library's containers."""
    found = modules(library)
    return Reach(library=library, modules=found, chooses=choosing(library, found))


def reaches_by_path(libraries: Iterable[Library], about: Distribution | None) -> dict[str, Reach]:
    """Those of all libraries of a package, with what it says itself of their use; `about`: None for no package."""
    found = {library.path: reach_of(library) for library in libraries}
    found |= {path: replace(each, modules=()) for path, each in found.items() if only_for_tools(each.library, about)}
    return found | {path: replace(found[path], by_linker=True) for path in _for_linker(found, about)}


def only_for_tools(library: Library, about: Distribution | None) -> bool:
    """Whether a package bundles it for its profiler, as triton CUPTI: what the package is for does not run in it."""
    if about is None or about.name.startswith("nvidia-"):
        return False
    return any(cuda_libraries.is_for_tools(name) for name in (library.soname, file_name(library.path)) if name)


def _for_linker(found: Mapping[str, Reach], about: Distribution | None) -> Iterator[str]:
    """The files of a package that it hands to nvJitLink: device code alone, with LTO-IR, which no driver loads, or PTX
    where the package requires a linker. What loads a file of no package is not known.
    """
    if about is None:
        return
    requires = [each for each in about.requires if "extra ==" not in each]
    links = any(map(_LINKS.match, requires))
    for path, each in found.items():
        kinds = {row.kind for row in each.library.device_code}
        if each.library.format in _LOOSE and ("lto-ir" in kinds or (links and kinds == {"ptx"})):
            yield path


def served_together(sweeps: Sequence[Mapping[Capability, Outcome]]) -> bool:
    """Whether there is a GPU on which none of these fails. Otherwise they are not meant to run together."""
    return not sweeps or any(all(each[device] != "fails" for each in sweeps) for device in sweeps[0])


# Which GPUs a library's device code reaches, in a sentence: by the code alone, where `check` knows the machine.

_NATIVE: tuple[Outcome, ...] = ("native", "compatible")


class Coverage(Struct, frozen=True, kw_only=True):
    """Capabilities by how all of a library, or of a wheel, serves them; `partial`: some of it does, the rest does not.

    `future`: GPUs later than all known ones can use it, through PTX.
    """

    native: tuple[str, ...]
    jit: tuple[str, ...]
    partial: tuple[str, ...]
    future: bool


def coverage_of(library: Library) -> Coverage | None:
    """What a library covers; None where there is no device code that a driver could load.

    Needs the library's containers.
    """
    return coverage_of_reach(reach_of(library))


def coverage_of_reach(found: Reach) -> Coverage | None:
    """What the code covers; None where there is none."""
    if not found.has_code:
        return None
    outcomes = found.sweep()
    *known, newer = outcomes

    def those(*wanted: Outcome) -> tuple[str, ...]:
        return tuple(str(device) for device in known if outcomes[device] in wanted)

    return Coverage(
        native=those(*_NATIVE),
        jit=those("jit"),
        partial=those("partial"),
        future=outcomes[newer] in (*_NATIVE, "jit"),
    )


def coverage_in_words(coverage: Coverage, *, once_linked: bool = False) -> str:
    """The coverage in one sentence. `once_linked`: of an object or archive, which runs nowhere as it is."""
    parts = [f"runs natively on {capability_ranges(coverage.native)}"] if coverage.native else []
    if through := " and ".join(_through_ptx(coverage)):
        parts.append(f"{through} through PTX compiled by the driver")
    if not (coverage.native or coverage.jit or coverage.partial):
        parts.append("runs on no known GPU")
    if coverage.partial:
        parts.append(f"only part of it serves {capability_ranges(coverage.partial)}")
    if not coverage.future:
        parts.append("no newer GPU (it has no PTX for them)")
    return ("once linked: " if once_linked else "") + "; ".join(parts)


def _through_ptx(coverage: Coverage) -> Iterator[str]:
    """Those after the last native one go without saying where the PTX serves all that come."""
    order = [str(each) for each in gpus.current_capabilities()]
    after = order[order.index(coverage.native[-1]) + 1 :] if coverage.native else []
    implied = after if coverage.future and set(after) <= set(coverage.jit) else []
    if listed := [each for each in coverage.jit if each not in implied]:
        yield capability_ranges(listed)
    if coverage.future:
        yield "newer GPUs"


def capability_ranges(capabilities: Iterable[str]) -> str:
    """`7.5 to 9.0, 10.0, 12.0`: a run has no known capability missing in between."""
    order = [str(each) for each in gpus.current_capabilities()]
    return ", ".join(map(_range, runs(sorted(capabilities, key=order.index), order)))


def _range(run: list[str]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run)  # noqa: PLR2004 - a pair is a list
