"""What a plan is made of: frozen values, named as the JSON names them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.facts.arch import Arch, Capability
from cuwheel.facts.spellings.row import Spelling

How: TypeAlias = Literal["native", "compatible", "jit"]


class Served(Struct, frozen=True, kw_only=True):
    """A machine that a job's wheel runs on, and by which entry of its list.

    `conditions`: what is not known of the machine, or promised by nobody, and must hold. `notes`: what is known and
    worth knowing.
    """

    machine: str
    count: int
    capability: Capability
    how: How
    by: Arch
    conditions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


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


class Job(Struct, frozen=True, kw_only=True):
    """One build: a CUDA version and its list. `reach`: all GPUs that the list serves, the fleet's or not, in words."""

    cuda: str
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
    conditions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


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
