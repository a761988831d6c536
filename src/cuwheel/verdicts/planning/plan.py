"""What a plan is made of: options, which of them exclude each other, and values, named as the JSON names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel.errors import ConfigurationError, UsageError
from cuwheel.facts.spellings.row import Spelling
from cuwheel.machine import fleet
from cuwheel.support.answer import Answer
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import toolkits
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.verdicts.condition import Condition, texts

if TYPE_CHECKING:
    from cuwheel.machine.fleet import Machine, Machines, Refinement
    from cuwheel_core.facts.rows.toolkits import Toolkit


# What the list has to have, and which options cannot be used together.

ALL = "all"
_VERSION = re.compile(r"\d+(\.\d+)*", re.ASCII)


class PlanOptions(Struct, frozen=True, kw_only=True):
    """`future`: PTX for GPUs later than these. `native`: for every GPU a cubin of its own architecture.

    `specific`: `a` cubins where the toolkit has them; `family`: `f` cubins. `ptx`: False to do without any.
    """

    future: bool = False
    native: bool = False
    specific: bool = False
    family: bool = False
    ptx: bool = True


def conflicting_options(options: PlanOptions) -> Iterator[str]:
    """Options that exclude each other, one sentence a pair."""
    if options.future and not options.ptx:
        yield "future and no-ptx cannot be wanted together: only PTX reaches future GPUs"
    if options.specific and options.family:
        yield (
            "specific and family cannot be wanted together: 'a' code runs on one capability only, 'f' code on its "
            "whole family"
        )


def find_toolkits(names: Sequence[str], errors: list[CuwheelError]) -> tuple[Toolkit, ...]:
    """`12.8,13.0` as rows, oldest first; what no table knows is appended to `errors`."""
    found = []
    words = split_words(names)
    if names and not words:
        errors.append(UsageError("--cuda is empty", hint="leave it out, or use --cuda 12.8,13.0"))
    for name in words:
        try:
            found.append(toolkits.find_toolkit(name))
        except CuwheelError as error:
            errors.append(error)
    order = toolkits.all_toolkits()
    return tuple(sorted(dict.fromkeys(found), key=order.index))


def find_machines(
    names: Machines,
    every: Callable[[], Sequence[Machine]],
    errors: list[CuwheelError],
    refine: Refinement | None = None,
) -> tuple[Machine, ...]:
    """What `--for` and `--on` name, `all` being what `every` gives; what is wrong with them goes to `errors`.

    `refine`: what else is known of all of them.
    """
    found: list[Machine] = []
    if refine and (wrong := _not_versions(refine)):
        errors += wrong
        refine = None
    for word in fleet.machine_words(names):
        try:
            found += every() if isinstance(word, str) and word.lower() == ALL else fleet.machines_named([word])
        except CuwheelError as error:
            errors.append(error)
    return tuple(dict.fromkeys(refine.apply(each) for each in found) if refine else dict.fromkeys(found))


def _not_versions(refine: Refinement) -> list[CuwheelError]:
    given = {name: getattr(refine, name) for name in ("driver", "driver_cuda", "torch_cuda")}
    return [
        UsageError(f"--{name.replace('_', '-')} {value!r} is not a version")
        for name, value in given.items()
        if value is not None and not _VERSION.fullmatch(value)
    ]


def split_words(values: Iterable[str]) -> list[str]:
    """Repeated or with commas, all the same."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def cmake_version(text: str | None, errors: list[CuwheelError]) -> str | None:
    if text is None or _VERSION.fullmatch(text.strip()):
        return text
    errors.append(UsageError(f"{text!r} is not a version of CMake", hint="cmake='3.28'"))
    return None


def without_conflicts(options: PlanOptions) -> PlanOptions:
    """The options without those that exclude each other: to see what else is wrong."""
    both = options.specific and options.family
    return PlanOptions(
        future=options.future and options.ptx,
        native=options.native,
        specific=options.specific and not both,
        family=options.family and not both,
        ptx=options.ptx or options.future,
    )


def raise_problems(errors: Sequence[CuwheelError], contradictions: Sequence[str]) -> None:
    """Raise what is wrong, all of it at once; a single error as it is, with its own exit code and hint."""
    if len(errors) == 1 and not contradictions:
        raise errors[0]
    problems = [f"{error.message}; {error.hint}" if error.hint else error.message for error in errors]
    if problems or contradictions:
        raise ConfigurationError("the plan", [*problems, *contradictions], hint="cuwheel plan --help")


How: TypeAlias = Literal["native", "compatible", "jit"]


class Served(Struct, frozen=True, kw_only=True):
    """A machine that a job's wheel runs on, and by which entry of its list.

    `requires`: what is not known of the machine, or promised by nobody, and must hold; `conditions`: that in words.
    `notes`: what is known and worth knowing.
    """

    machine: str
    count: int
    capability: Capability
    how: How
    by: Arch
    requires: tuple[Condition, ...] = ()
    conditions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", texts(self.requires))


class NotServed(Struct, frozen=True, kw_only=True):
    """A machine that no wheel of this kind runs on, every reason, and what would change that."""

    machine: str
    count: int
    capability: Capability | None
    why: tuple[str, ...]
    fix: str = ""


class Spellings(Struct, frozen=True, kw_only=True):
    """`cargo`: CUDA_COMPUTE_CAP of Rust build scripts."""

    cmake: Spelling
    cudaarchs: Spelling
    torch: Spelling
    nvcc: Spelling
    bitsandbytes: Spelling
    cargo: Spelling


class Flags(Struct, frozen=True, kw_only=True):
    """The spellings as they are given to the build; null where one cannot say the list: its `Spelling` says why."""

    cmake: str | None
    cudaarchs: str | None
    torch: str | None
    nvcc: str | None
    bitsandbytes: str | None
    cargo: str | None


class ArchSize(Struct, frozen=True, kw_only=True):
    """`like`: the architecture of the given wheel whose bytes were taken; itself where the wheel has it."""

    arch: Arch
    bytes: int
    like: Arch


class Size(Struct, frozen=True, kw_only=True):
    """A prediction: the libraries of a wheel like the given one, unpacked, with this job's list.

    `other_bytes`: what is not device code and stays unchanged. `like_bytes`: the same libraries as they are now.
    """

    bytes: int
    other_bytes: int
    archs: tuple[ArchSize, ...]
    like_bytes: int
    libraries: tuple[str, ...]
    method: str


class Platform(Struct, frozen=True, kw_only=True):
    """The system and processor that a build is for; None where its machines do not say.

    `l4t`: for Jetson or, where false, for servers, while CUDA for arm64 is two distributions; None where it is one.
    """

    os: str | None = None
    cpu: str | None = None
    l4t: bool | None = None

    def __str__(self) -> str:
        distribution = "" if self.l4t is None else " (L4T)" if self.l4t else " (SBSA)"
        return " ".join(filter(None, (self.os, self.cpu))) + distribution


class Job(Struct, frozen=True, kw_only=True):
    """One build: a CUDA version, a platform and the list for it.

    `reach`: all GPUs that the list serves, the fleet's or not, in words.
    """

    cuda: str
    platform: Platform = Platform()
    archs: tuple[Arch, ...]
    ptx: tuple[Arch, ...]
    coverage: tuple[Served, ...]
    left_out: tuple[NotServed, ...]
    reach: str
    flags: Flags
    spellings: Spellings
    notes: tuple[str, ...] = ()
    size: Size | None = None


class Word(Struct, frozen=True, kw_only=True):
    """One word of a list that somebody wrote, and what it asks the compiler for."""

    word: str
    archs: tuple[Arch, ...]
    meaning: str


class OnMachine(Struct, frozen=True, kw_only=True):
    """How a list serves one machine, if at all."""

    machine: str
    count: int
    capability: Capability | None
    how: Literal["native", "compatible", "jit", "none"]
    by: Arch | None
    explanation: str
    requires: tuple[Condition, ...] = ()
    conditions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "conditions", texts(self.requires))


class Reading(Struct, frozen=True, kw_only=True):
    """A list explained. `spelling` is whose it was taken for; `guessed`: from its looks alone.

    `open`: it has words that the build system resolves itself, so that there is more to it than can be said here.
    """

    text: str
    spelling: str
    guessed: bool
    words: tuple[Word, ...]
    archs: tuple[Arch, ...]
    ptx: tuple[Arch, ...]
    unknown: tuple[str, ...]
    open: bool
    reach: str
    missed: str
    machines: tuple[OnMachine, ...]
    toolkits: str
    notes: tuple[str, ...] = ()


class Plan(Answer, frozen=True, kw_only=True):
    """What to build, and the machines that no job serves; or, where a list was given to read, what that list means."""

    schema: Literal["cuwheel.plan/1"] = "cuwheel.plan/1"
    jobs: tuple[Job, ...]
    unserved: tuple[NotServed, ...]
    reading: Reading | None = None

    @property
    def succeeded(self) -> bool:
        """False where a machine is not served, or a list has words that mean nothing."""
        if self.reading:
            certain = [each for each in self.reading.machines if not self.reading.open]
            return not self.reading.unknown and all(each.how != "none" for each in certain)
        return not self.unserved
