"""Variants that go through the runtime: shared libraries as nvcc makes them, and such with other device code inside."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.gpu.codes import DEFAULT_TOOLKIT, codes
from tests.gpu.variants import SITES, Build, Variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel_core.verdicts.device import Jit
    from tests.gpu.codes import Part
    from tests.gpu.variants import Shape

_ONE = (
    "sm_75",
    "sm_80",
    "sm_89",
    "sm_90",
    "sm_90a",
    "sm_100",
    "sm_100f",
    "sm_120a",
    "compute_75",
    "compute_80",
    "compute_90",
    "compute_90a",
    "compute_100",
    "compute_100f",
    "sm_90@12.4",
    "sm_90@13.4",
    "compute_80@12.4",
    "compute_80@13.1",
    "compute_90@13.4",
    "",
    "sm_80 compute_80",
    "sm_80 compute_80@13.4",
    "sm_90 compute_90@13.4",
    "sm_100 compute_75",
    "sm_100 compute_100",
    "sm_90 sm_90a",
    "sm_90a sm_90",
    "sm_90 sm_90#2",
    "compute_90 compute_90a",
    "compute_90a compute_90",
    "compute_75 compute_80",
    "compute_75 compute_80@13.4",
    "compute_80@13.4 compute_75",
    "compute_80 compute_80@13.4",
    "compute_90@12.4 compute_90@13.1",
    "compute_90@13.1 compute_90@12.4",
    "compute_80^9.4",
    "sm_90!lz4",
    "sm_90!zstd",
    "compute_80!none",
    "sm_75 sm_80 sm_86 sm_89 sm_90 compute_90",
    "sm_80 sm_86 sm_89 compute_89",
)
_ONE_SWITCHED = ("sm_90", "compute_80", "sm_80", "sm_90 compute_80", "sm_80 compute_80", "sm_90 compute_90@13.4", "")
# Three containers of one library: where one misses, where several do, where they are served in different ways.
_MANY = (
    ("sm_90", "sm_90", "sm_90"),
    ("sm_90", "sm_80", "sm_90"),
    ("sm_80", "sm_90", "sm_90"),
    ("sm_90", "sm_90", "sm_80"),
    ("sm_90", "", "sm_90"),
    ("", "sm_90", "sm_90"),
    ("sm_90", "sm_90", ""),
    ("", "", ""),
    ("sm_90", "compute_80", "sm_90"),
    ("compute_80", "compute_80", "compute_80"),
    ("sm_90", "compute_80@13.4", "sm_90"),
    ("compute_80@13.4", "sm_90", "sm_90"),
    ("compute_80@13.4", "sm_80", "sm_90"),
    ("sm_80", "compute_80@13.4", "sm_90"),
    ("sm_80", "sm_80", "sm_80"),
    ("sm_90", "sm_100 compute_80", "sm_90a"),
    ("sm_90", "sm_100", "sm_80"),
    ("sm_90a", "sm_90", "compute_90a"),
    ("sm_90", "compute_100", "compute_80"),
    ("sm_90 compute_80", "sm_80 compute_80", "sm_90"),
)
# Objects that the driver would have to link at load: the kernel's, and the one it needs.
_OBJECTS = (
    ("sm_90", "sm_90"),
    ("sm_90a", "sm_90a"),
    ("sm_90a", "sm_90"),
    ("sm_90", "sm_90a"),
    ("compute_80", "compute_80"),
    ("compute_90", "compute_75"),
    ("compute_90a", "compute_90a"),
    ("sm_90", "compute_80"),
    ("compute_80", "sm_90"),
    ("sm_80 sm_90 compute_80", "sm_80 sm_90 compute_80"),
    ("sm_80 compute_80", "sm_80 compute_80"),
    ("sm_80", "sm_80"),
    ("sm_100", "sm_100"),
    ("compute_100", "compute_100"),
    ("", ""),
    ("sm_90", "sm_80"),
    ("sm_80", "sm_90"),
    ("sm_90", ""),
    ("", "sm_90"),
    ("sm_90", "compute_100"),
    ("compute_100", "sm_90"),
    ("compute_80", "sm_80"),
    ("sm_80", "compute_80"),
    ("compute_80@13.4", "compute_80@13.4"),
    ("sm_90", "compute_80@13.4"),
    ("compute_80@13.4", "sm_90"),
    ("sm_80 compute_80@13.4", "sm_80 compute_80@13.4"),
    ("compute_80@13.4", "sm_80"),
    ("sm_80", "compute_80@13.4"),
)
_THREE_OBJECTS = (
    ("sm_90", "sm_90", "sm_90"),
    ("sm_90", "sm_90", "sm_80"),
    ("sm_80", "sm_90", "sm_90"),
    ("sm_90", "sm_80", "sm_90"),
    ("sm_90", "sm_90", ""),
    ("sm_90", "sm_90", "compute_80"),
    ("compute_80", "compute_80", "compute_80"),
    ("compute_80", "compute_80", "sm_80"),
    ("sm_80", "sm_80", "sm_80"),
    ("sm_80", "sm_80", "sm_90"),
    ("sm_90", "compute_80", "compute_80@13.4"),
    ("compute_80@13.4", "sm_90", "sm_90"),
    ("sm_80", "sm_80", "compute_80@13.4"),
    ("sm_90", "", "sm_90"),
    ("", "sm_90", "sm_90"),
    ("", "sm_90", ""),
    ("", "", "sm_90"),
    ("sm_80", "sm_80", "compute_80"),
)
# Beside a device link a kernel that stands alone: objects of the link, the kernel's container, what was linked.
_BESIDE = (
    ("sm_90", "sm_90", "sm_90", "sm_90"),
    ("sm_80", "sm_80", "sm_90", "sm_90"),
    ("sm_90", "sm_90", "sm_80", "sm_90"),
    ("sm_90", "sm_90", "sm_90", "sm_80"),
    ("compute_80", "compute_80", "compute_80", "sm_80"),
    ("sm_80", "sm_80", "sm_90", "sm_80"),
    ("sm_80", "sm_80", "sm_80", "sm_80"),
    ("compute_80@13.4", "compute_80@13.4", "sm_90", "sm_80"),
    ("sm_90", "sm_90", "compute_80@13.4", "sm_90"),
    ("", "", "sm_90", "sm_90"),
    ("", "", "sm_90", ""),
)
_LINKED_FITS = ("sm_90", "sm_90a", "sm_80 sm_90", "sm_90 sm_90a", "sm_80 sm_90 sm_100")
_REAL_LISTS = (
    "sm_80",
    "sm_90",
    "sm_90a",
    "sm_80 sm_90 compute_90",
    "sm_80 sm_89 compute_89",
    "compute_80",
)


_REAL_PACKED = ("sm_80 sm_90 compute_90", "sm_80 compute_80")
_REAL_LINKS = (
    ("sm_90", "sm_90"),
    ("sm_80", "sm_80"),
    ("sm_80 sm_90 compute_90", "sm_80 sm_90"),
    ("sm_80 compute_80", "sm_80"),
    ("sm_80 sm_90", "sm_80"),
)


def variants() -> Iterator[Variant]:
    yield from _one()
    yield from _several()
    yield from _relocatable()
    yield from _beside()
    yield from _real()
    yield from _really_linked()


def _place(axis: str, shape: Shape, texts: Iterable[str], toolkit: str = DEFAULT_TOOLKIT, **rest: object) -> Variant:
    containers = tuple(codes(text, part, toolkit) for part, text in zip(SITES[shape], texts, strict=True))
    return Variant(axis=axis, form="library", containers=containers, shape=shape, toolkit=toolkit, **rest)  # type: ignore[arg-type]


def _one() -> Iterator[Variant]:
    for text in _ONE:
        yield _place("runtime, one container", "plain", (text,))
    switches: tuple[Jit, ...] = ("disabled", "forced")
    for jit, text in itertools.product(switches, _ONE_SWITCHED):
        yield _place(f"runtime, JIT {jit}", "plain", (text,), jit=jit)
    for toolkit in ("12.4", "13.4"):
        for text in (
            "sm_80",
            "sm_90",
            "sm_90a",
            "compute_80",
            "compute_90",
            "sm_80 compute_80",
            "sm_90 compute_90",
            "",
        ):
            yield _place("runtime, one container", "plain", (text,), toolkit)


def _several() -> Iterator[Variant]:
    for texts in _MANY:
        yield _place("runtime, several containers", "many", texts)
        if len(set(texts)) > 1:
            yield _place("runtime, several containers", "many", texts, reverse=True)
    for texts in (("sm_90", "compute_80", "sm_90"), ("sm_90", "sm_90", "sm_90"), ("compute_80", "sm_80", "sm_90")):
        yield _place("runtime, several containers", "many", texts, jit="disabled")


def _relocatable() -> Iterator[Variant]:
    full = "sm_80 sm_90 compute_80"
    for linked in _LINKED_FITS:
        for objects in ((full, full), ("sm_80", "sm_80"), ("", "")):
            yield _place("relocatable, linked code fits", "rdc", (*objects, linked))
    for objects in _OBJECTS:
        for linked in ("sm_80", "", "sm_80 sm_100"):
            yield _place("relocatable, linked code does not fit", "rdc", (*objects, linked))
    for toolkit in ("12.4", "13.4"):
        yield _place("relocatable, linked code fits", "rdc", (full, full, "sm_80 sm_90"), toolkit)
        for objects in _OBJECTS[:4] + _OBJECTS[7:12] + _OBJECTS[14:19]:
            yield _place("relocatable, linked code does not fit", "rdc", (*objects, "sm_80"), toolkit)
    for three in _THREE_OBJECTS:
        yield _place("relocatable, three objects", "rdc3", (*three, "sm_80"))
    yield _place("relocatable, three objects", "rdc3", (*_THREE_OBJECTS[0], "sm_90"))
    yield from _switched()


def _beside() -> Iterator[Variant]:
    for four in _BESIDE:
        yield _place("relocatable, beside a plain container", "beside", four)
    # Objects of a toolkit that is newer than the driver by one minor.
    for objects in (("sm_90", "sm_90"), ("sm_90", "compute_80"), ("compute_80", "sm_90"), ("compute_80", "compute_80")):
        for linked in ("sm_90", "sm_80"):
            yield _place("relocatable, by 13.1", "rdc", (*objects, linked), "13.1")


def _switched() -> Iterator[Variant]:
    full = "sm_80 sm_90 compute_80"
    switches: tuple[Jit, ...] = ("disabled", "forced")
    for jit, objects, linked in itertools.product(switches, (("sm_90", "sm_90"), (full, full)), ("sm_90", "sm_80")):
        yield _place(f"relocatable, JIT {jit}", "rdc", (*objects, linked), jit=jit)
    for jit in switches:
        yield _place(f"relocatable, JIT {jit}", "rdc", ("compute_80", "compute_80", "sm_80"), jit=jit)
        yield _place(f"relocatable, JIT {jit}", "rdc", ("sm_90", "compute_80", "sm_80"), jit=jit)


def _real() -> Iterator[Variant]:
    """As nvcc makes them, host code and all."""
    axis = "as nvcc builds it"
    for toolkit, text in itertools.product(("12.4", "13.0", "13.4"), _REAL_LISTS):
        yield _made(axis, toolkit, ("whole", text))
    for text in ("sm_100 compute_100", "sm_120f", "compute_75"):
        yield _made(axis, "13.0", ("whole", text))
    axis = "compression, as nvcc does it"
    for mode, text in itertools.product(("none", "size", "speed", "balance"), _REAL_PACKED):
        yield _made(axis, "13.0", ("whole", text), options=(f"--compress-mode={mode}",))
    for text in ("sm_80 sm_90", "compute_80"):
        yield _made(axis, "12.4", ("whole", text), options=("-Xfatbin", "-compress-all"))
    for toolkit, text in (("13.0", "sm_90"), ("13.0", "sm_80"), ("13.0", "compute_80"), ("13.4", "compute_80")):
        yield _made("static cudart", toolkit, ("whole", text), cudart="static")
    for lists in (("sm_90", "sm_80", "sm_90"), ("sm_90", "compute_80", "sm_90a"), ("sm_80 sm_90",) * 3):
        yield _made("objects with lists of their own", "13.0", *zip(SITES["many"], lists, strict=True))


def _really_linked() -> Iterator[Variant]:
    """The device link of nvcc too, with what it leaves in the library."""
    axis = "device link, as nvcc does it"
    for toolkit, (text, linked) in itertools.product(("12.4", "13.0", "13.4"), _REAL_LINKS):
        yield _made(axis, toolkit, ("a", text), ("b", text), linked=linked)
    for number in ("80", "90"):
        linked, lto = f"sm_{number}", f"lto_{number}"
        yield _made(axis, "13.0", ("a", linked), ("b", linked), linked=linked, devrt=True)
        # nvlink wants libcudadevrt there, whether anything needs it or not.
        yield _made("LTO-IR", "13.0", ("a", lto), ("b", lto), linked=linked, link_options=("-dlto",), devrt=True)


def _made(axis: str, toolkit: str, *objects: tuple[Part, str], **rest: object) -> Variant:
    build = Build(objects=objects, **rest)  # type: ignore[arg-type]
    return Variant(axis=axis, form="library", toolkit=toolkit, build=build)
