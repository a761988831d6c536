"""What must hold for an answer to hold, and nobody knows: conditions, each with an id and its parts; words come last.

An outcome is never shown without its conditions: `in_short` says in one line as many as it has room for, and counts
and names the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from cuwheel_core.support.wording import a_few

ConditionId: TypeAlias = Literal[
    "driver-at-least",
    "driver-at-most",
    "driver-as-new-as-ptx",
    "nvjitlink-at-least",
    "jetpack-at-least",
    "server-code-on-jetson",
    "built-with-l4t-toolkit",
    "desktop-code-on-tegra",
    "tegra-code-on-desktop",
    "linked-into-program",
    "torch-cuda",
    "torch-release",
    "no-newer-function",
    "library-found",
    "library-has-code",
    "toolkit-library-found",
    "glibcxx",
    "python",
    "system",
    "processor",
    "glibc",
    "wheel-tag",
    "variable-set",
    "read-in-part",
    "torch-not-judged",
]
# What a driver has to be as new for: to know the GPU, to link objects, to compile PTX, to read compressed code.
Purpose: TypeAlias = Literal["", "gpu", "link", "ptx", "zstd"]


class Otherwise(Struct, frozen=True, kw_only=True):
    """What becomes of it where a framework is built for one of these CUDAs instead."""

    outcome: str
    cuda: tuple[str, ...]


class Parts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts in a condition; those that do not belong to it are empty, and left out in JSON.

    `version`: the least, or of `driver-at-most` the last; `windows`: the least there, where it is another. `cuda`: the
    CUDAs that will do, of a driver the least; `built`: the CUDA that built it. `isa`: of PTX. `purpose`: what a driver
    has to be as new for. `names`: libraries. `ranges`: first and last of releases. `package`: what would do instead.
    `framework`: whose CUDA it is, such as torch; `otherwise`: what becomes of it with its other builds.

    `part`: what of the package the condition is for, in words; `with_cuda`: the CUDAs of the framework with which it
    must hold; `machines`: those that it is about, if not all. `detail`: in the words of the table or the package.
    """

    version: str = ""
    windows: str = ""
    cuda: tuple[str, ...] = ()
    built: str = ""
    isa: str = ""
    purpose: Purpose = ""
    l4t: str = ""
    package: str = ""
    names: tuple[str, ...] = ()
    ranges: tuple[tuple[str, str], ...] = ()
    framework: str = ""
    otherwise: tuple[Otherwise, ...] = ()
    tag: str = ""
    python: str = ""
    system: str = ""
    cpu: str = ""
    glibc: str = ""
    arch: str = ""
    capability: str = ""
    setting: str = ""
    detail: str = ""
    part: str = ""
    with_cuda: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()


class Condition(Struct, frozen=True, kw_only=True):
    """What is not known and must hold. `id` is stable; `text` is made from `id` and `parts`."""

    id: ConditionId
    parts: Parts = Parts()
    text: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "text", _prefix(self.parts) + _WORDS[self.id].text(self.parts))

    def __str__(self) -> str:
        return self.text

    @property
    def short(self) -> str:
        """What it is about, in a few words, where it is named beside others."""
        return _WORDS[self.id].short(self.parts)

    def with_parts(self, **parts: Any) -> Condition:  # noqa: ANN401 - fields of Parts
        """The condition with these parts, too."""
        return replace(self, parts=replace(self.parts, **parts))


@lru_cache(maxsize=4096)
def condition(id: ConditionId, **parts: Any) -> Condition:  # noqa: A002, ANN401 - its name in JSON; fields of Parts
    """The condition with this id and these parts."""
    return Condition(id=id, parts=Parts(**parts))


def texts(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """Conditions in words."""
    return tuple(each.text for each in conditions)


def in_short(conditions: Sequence[Condition], *, room: int, named: int = 3) -> str:
    """Conditions in one line: one that has room in full, others counted and named in short. Empty: there are none."""
    if not conditions:
        return ""
    if len(conditions) == 1 and len(conditions[0].text) <= room:
        return f"if {conditions[0].text}"
    number = "one condition" if len(conditions) == 1 else f"{len(conditions)} conditions"
    return f"on {number}: {a_few(list(dict.fromkeys(each.short for each in conditions)), named)}"


def outcome_in_words(outcome: str, conditions: Iterable[Condition]) -> str:
    """An outcome with all that must hold for it: where there is room, and somebody looks it up later."""
    told = texts(conditions)
    return f"{outcome} if {' and '.join(told)}" if told else outcome


def merged(by_machine: Iterable[tuple[str, Iterable[Condition]]], count: int) -> Iterator[Condition]:
    """The conditions of `count` machines, each once, with the machines that it is about where those are not all.

    The order in which machines are named is no matter.
    """
    machines: dict[Condition, list[str]] = {}
    for name, conditions in sorted(by_machine, key=lambda each: each[0]):
        for each in conditions:
            machines.setdefault(each, []).append(name)
    for each, names in machines.items():
        some = len(names) < count and not each.parts.machines
        yield each.with_parts(machines=tuple(names)) if some else each


# The words of each: in full, and what it is about in short.


class _Words(NamedTuple):
    text: Callable[[Parts], str]
    short: Callable[[Parts], str]


def _prefix(parts: Parts) -> str:
    """What a condition is for, where that is not everything."""
    machines = f"{', '.join(parts.machines)}: " if parts.machines else ""
    followed = f"with {parts.framework} for CUDA {', '.join(parts.with_cuda)}: " if parts.with_cuda else ""
    return machines + followed + (f"for {parts.part}: " if parts.part else "")


def _names(parts: Parts) -> str:
    return ", ".join(parts.names)


def _few(parts: Parts) -> str:
    return a_few(parts.names, 2)


def _cudas(parts: Parts) -> str:
    return ", ".join(parts.cuda)


def _driver(parts: Parts) -> str:
    if not parts.version and not parts.cuda:
        return f"a driver that compiles PTX ISA {parts.isa}"
    windows = f" (on Windows {parts.windows})" if parts.windows else ""
    cuda = f" (CUDA {_cudas(parts)})" if parts.cuda else ""
    least = f"driver {parts.version}{windows} or later{cuda}" if parts.version else _driver_in_short(parts)
    purposes = {
        "gpu": ", the first to support this GPU",
        "link": ", to link its objects",
        "ptx": f", to compile its PTX (ISA {parts.isa})",
        "zstd": ", to read ZSTD-compressed device code",
    }
    return least + purposes.get(parts.purpose, "")


def _driver_in_short(parts: Parts) -> str:
    if parts.version:
        return f"driver {parts.version}"
    return f"a driver of CUDA {_cudas(parts)} or later" if parts.cuda else f"PTX ISA {parts.isa}"


def _jetpack_or_package(parts: Parts) -> str:
    package = f", or the package {parts.package}" if parts.package else ""
    return f"JetPack {parts.version} (L4T {parts.l4t}) or later{package}"


def _jetpack(parts: Parts) -> str:
    early = f"; CUDA {parts.built} is older than that" if parts.built else ""
    return f"{_jetpack_or_package(parts)}, which CUDA for servers serves{early}"


def _server_code(parts: Parts) -> str:
    if not parts.built:
        return f"CUDA {_cudas(parts)} or later for servers runs on this Jetson (not confirmed)"
    return (
        f"what CUDA {parts.built} built for servers runs on this Jetson, which joined them with {_cudas(parts)} "
        "(not confirmed)"
    )


def _torch_cuda(parts: Parts) -> str:
    others = "; ".join(f"{each.outcome} with {', '.join(each.cuda)}" for each in parts.otherwise)
    whose = "the CUDA runtime" if parts.framework == "cudart" else parts.framework
    return f"{whose} is built for CUDA {_cudas(parts)}{f' ({others})' if others else ''}"


def ranges_in_words(ranges: Iterable[tuple[str, str]]) -> str:
    """`2.8 to 2.10, 2.12`."""
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in ranges)


def _releases(parts: Parts) -> str:
    if not parts.ranges:
        return f"{parts.framework} is installed{f' ({parts.detail})' if parts.detail else ''}"
    return f"{parts.framework} {ranges_in_words(parts.ranges)}"


def _wheel_tag(parts: Parts) -> str:
    return f"{_asked_by_tag(parts)}{f' (tag {parts.tag})' if parts.tag else ''}"


def _asked_by_tag(parts: Parts) -> str:
    glibc = f"glibc {parts.glibc} or later" if parts.glibc else ""
    return ", ".join(filter(None, (parts.python, parts.system, parts.cpu, glibc)))


_WORDS: Mapping[ConditionId, _Words] = {
    "driver-at-least": _Words(_driver, _driver_in_short),
    "driver-at-most": _Words(
        lambda parts: f"a driver of branch {parts.version} or older: {parts.version} is the last to support this GPU",
        lambda parts: f"driver {parts.version} or older",
    ),
    "driver-as-new-as-ptx": _Words(
        lambda _: "the driver is at least as new as the toolkit that writes the PTX", lambda _: "the driver"
    ),
    "nvjitlink-at-least": _Words(
        lambda parts: (
            f"nvJitLink of CUDA {_cudas(parts) or 'that release'} or later, which links its PTX (ISA {parts.isa})"
        ),
        lambda _: "nvJitLink",
    ),
    "jetpack-at-least": _Words(_jetpack, _jetpack_or_package),
    "server-code-on-jetson": _Words(_server_code, lambda _: "CUDA for servers on this Jetson"),
    "built-with-l4t-toolkit": _Words(
        lambda parts: (
            "it is built with the L4T toolkit of the Jetson (targets/aarch64-linux), not with the one for SBSA "
            f"servers: below CUDA {_cudas(parts)} the two differ, and on L4T an SBSA build fails with "
            "'named symbol not found'"
        ),
        lambda _: "the L4T toolkit",
    ),
    "desktop-code-on-tegra": _Words(
        lambda parts: (
            f"{parts.arch}, code for desktop GPUs, runs on {parts.capability}, a Tegra: the rule says so, but NVIDIA "
            f"promises nothing between the two ({parts.detail or 'no reports either way'})"
        ),
        lambda parts: f"{parts.arch} on a Tegra",
    ),
    "tegra-code-on-desktop": _Words(
        lambda parts: (
            f"{parts.arch}, code for a Tegra, runs on {parts.capability}, which is not a Tegra: the rule says so, "
            "but NVIDIA promises nothing"
        ),
        lambda parts: f"{parts.arch} on a desktop GPU",
    ),
    "linked-into-program": _Words(
        lambda _: "it is linked into a library or a program", lambda _: "what it is linked into"
    ),
    "torch-cuda": _Words(_torch_cuda, lambda parts: f"{parts.framework} for CUDA {_cudas(parts)}"),
    "torch-release": _Words(_releases, _releases),
    "no-newer-function": _Words(
        lambda parts: (
            f"the build needs no library function newer than CUDA {_cudas(parts)}, which its torch brings "
            f"(--cuda {_cudas(parts)} avoids the question)"
        ),
        lambda parts: f"no function newer than CUDA {_cudas(parts)}",
    ),
    "library-found": _Words(lambda parts: f"{_names(parts)} can be found", _few),
    "library-has-code": _Words(lambda parts: f"{_names(parts)} has code for this GPU", _few),
    "toolkit-library-found": _Words(
        lambda parts: f"the loader finds {_names(parts)} of the toolkit that is installed", _few
    ),
    "glibcxx": _Words(lambda parts: f"libstdc++ with GLIBCXX_{parts.version} or later", lambda _: "libstdc++"),
    "python": _Words(lambda parts: parts.python, lambda parts: parts.python),
    "system": _Words(lambda parts: parts.system, lambda parts: parts.system),
    "processor": _Words(lambda parts: parts.cpu, lambda parts: parts.cpu),
    "glibc": _Words(_asked_by_tag, lambda parts: f"glibc {parts.glibc}"),
    "wheel-tag": _Words(_wheel_tag, _asked_by_tag),
    "variable-set": _Words(lambda parts: f"{parts.setting} is set: {parts.detail}", lambda parts: parts.setting),
    "read-in-part": _Words(lambda parts: parts.detail, lambda _: "read in part"),
    "torch-not-judged": _Words(
        lambda _: "the torch that it brings along was not looked into: cuwheel find torch says whether one runs",
        lambda _: "its torch",
    ),
}
