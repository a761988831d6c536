"""Mixtures, as nvcc builds them: units with kernels and with variables, whole and relocatable, in one or two links."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, cast

from tests.gpu.variants import Build, Unit, UnitKind, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gpu.variants import Cudart, Form

_TOOLKIT = "13.0"
_VARIABLES: tuple[UnitKind, ...] = ("variable", "static-variable", "constant", "managed")
_KERNELS: tuple[UnitKind, ...] = ("static-kernel", "weak-kernel", "texture", "both")
# Whole-program units side by side, in words that _unit reads.
_WHOLE = (
    "variable:sm_80 | constant:sm_80",
    "variable:sm_90 | constant:sm_80",
    "variable:sm_80 compute_80 | kernel:sm_90",
    "variable:sm_90 | kernel:sm_80",
    "variable:compute_80 | kernel:compute_80",
    "variable:compute_100 | kernel:sm_90",
    "variable:sm_80 sm_90 | kernel:sm_80 sm_90",
    "variable:sm_90a | kernel:sm_90",
    "variable:sm_80 | kernel:sm_90 | static-kernel:sm_80",
    "kernel:sm_90 | static-kernel:sm_80 | weak-kernel:sm_90",
    "both:sm_90 | variable:sm_80 | weak-kernel:compute_80",
    "managed:sm_80 | variable:sm_90 | kernel:sm_90",
    "managed:sm_90 | kernel:sm_80",
    "managed:compute_80 | kernel:sm_90",
    "managed:sm_80",
    "called:sm_80 | kernel:sm_90",
    "texture:sm_90 | constant:sm_80 | kernel:sm_90",
)
# A kernel or variable that only newer architectures have, in one container with code for others.
_GUARDED = (
    "newer-only@90:sm_80 sm_90",
    "newer-only@100:sm_90 sm_100",
    "newer-only@100:sm_90 compute_100",
    "newer-only@90:compute_80 sm_100",
    "newer-only@100:sm_90 sm_100 | kernel:sm_90",
    "newer-variable@90:sm_80 sm_90",
    "newer-variable@100:sm_90 sm_100",
    "newer-variable@100:sm_90 sm_100 | kernel:sm_90",
)
# Relocatable units (`0` or `1` behind the list: the link it goes into), then what is linked.
_LINKS = (
    ("kernel:sm_90 0 | kernel:sm_80 0", "sm_90"),
    ("kernel:sm_80 0 | kernel:sm_90 0", "sm_90"),
    ("kernel:sm_90 0 | weak-kernel:sm_80 0", "sm_90"),
    ("static-kernel:sm_90 0 | static-kernel:sm_80 0", "sm_90"),
    ("kernel:sm_90 0 | variable:sm_80 0", "sm_90"),
    ("kernel:sm_90 0 | static-variable:sm_80 0", "sm_90"),
    ("kernel:sm_90 0 | constant:sm_80 0", "sm_90"),
    ("kernel:sm_90 0 | managed:sm_80 0", "sm_90"),
    ("variable:sm_90 0 | kernel:sm_80 0", "sm_90"),
    ("variable:sm_90 0 | variable:sm_80 0", "sm_90"),
    ("kernel:sm_80 0 | kernel:sm_80 0", "sm_90"),
    ("kernel:sm_80 0", "sm_90"),
    ("variable:sm_80 0", "sm_90"),
    ("variable:sm_80 0", "sm_80"),
    ("variable:sm_90 0", "sm_90"),
    ("variable:compute_80 0", "sm_80"),
    ("managed:sm_90 0", "sm_90"),
    ("kernel:sm_90 0 | called:sm_80 0", "sm_90"),
    ("kernel:sm_90 0 | kernel:compute_80 0", "sm_90"),
    ("kernel:compute_80 0 | kernel:compute_80 0", "sm_90"),
    ("kernel:sm_90 0 | kernel:sm_90a 0", "sm_90a"),
    ("kernel:sm_90 0 | kernel:sm_90a 0", "sm_90"),
    ("kernel:sm_80 sm_90 0 | kernel:sm_80 0", "sm_80 sm_90"),
    ("kernel:sm_80 sm_90 0 | kernel:sm_80 sm_90 0", "sm_80 sm_90"),
    ("kernel:sm_80 sm_90 0 | kernel:sm_80 0", "sm_80"),
    ("kernel:sm_80 sm_90 0 | variable:sm_80 0", "sm_80"),
    ("variable:sm_80 sm_90 0 | kernel:sm_80 0", "sm_80"),
    ("calls:sm_80 sm_90 0 | called:sm_80 0", "sm_80"),
    ("calls:sm_80 0 | called:sm_80 sm_90 0", "sm_80"),
    ("calls:sm_80 sm_90 0 | called:sm_80 sm_90 0 | kernel:sm_80 0", "sm_80"),
    ("calls:sm_80 sm_90 0 | called:sm_80 0 | kernel:sm_80 sm_90 0", "sm_80"),
    ("uses:sm_80 sm_90 0 | used:sm_80 0", "sm_80"),
    ("uses:sm_80 sm_90 0 | used:sm_80 sm_90 0", "sm_80"),
    ("uses:sm_80 sm_90 0 | used:sm_80 sm_90 0", "sm_80 sm_90"),
    ("uses:sm_80 0 | used:sm_80 sm_90 0", "sm_80"),
    ("newer-only@90:sm_80 sm_90 0 | kernel:sm_80 sm_90 0", "sm_80 sm_90"),
    ("newer-only@100:sm_90 sm_100 0 | kernel:sm_90 sm_100 0", "sm_90 sm_100"),
    # Beside whole-program units.
    ("kernel:sm_90 0 | kernel:sm_80 0 | kernel:sm_90", "sm_90"),
    ("kernel:sm_90 0 | kernel:sm_90 0 | variable:sm_80", "sm_90"),
    ("kernel:sm_80 0 | kernel:sm_80 0 | variable:sm_90", "sm_80"),
    ("variable:sm_80 0 | weak-kernel:sm_90 | static-kernel:compute_80", "sm_80"),
    # Two device links in one library.
    ("kernel:sm_90 0 | kernel:sm_90 1", "sm_90 / sm_90"),
    ("kernel:sm_90 0 | kernel:sm_80 1", "sm_90 / sm_80"),
    ("kernel:sm_90 0 | kernel:sm_80 1", "sm_90 / sm_90"),
    ("kernel:sm_80 0 | variable:sm_90 1", "sm_80 / sm_90"),
    ("kernel:sm_90 0 | kernel:sm_80 0 | kernel:sm_90 1", "sm_90 / sm_90"),
)
# With libcudadevrt, whose objects have code for every architecture.
_WITH_RUNTIME = (
    ("launches:sm_90 0", "sm_90"),
    ("launches:sm_80 0", "sm_80"),
    ("launches:sm_90 0 | kernel:sm_80 0", "sm_90"),
    ("kernel:sm_80 sm_90 0 | kernel:sm_80 0", "sm_80"),
    ("calls:sm_80 sm_90 0 | called:sm_80 0", "sm_80"),
    ("kernel:sm_80 0 | variable:sm_80 0", "sm_80"),
)
_PTX = (
    ("13.0", "compute_75"),
    ("13.0", "compute_80"),
    ("13.0", "compute_90"),
    ("13.0", "compute_90a"),
    ("13.0", "compute_100"),
    ("13.0", "compute_100f"),
    ("13.0", "compute_120a"),
    ("13.4", "compute_80"),
    ("13.4", "compute_100"),
)


def variants() -> Iterator[Variant]:
    for kind, archs in itertools.product(_VARIABLES, ("sm_80", "sm_90")):
        yield _mixed("variables", f"{kind}:{archs} | kernel:sm_90")
    for kind in _KERNELS:
        yield _mixed("kinds of kernels", f"{kind}:sm_80 | kernel:sm_90")
        yield _mixed("kinds of kernels", f"{kind}:sm_90 | kernel:sm_90")
    for words in _WHOLE:
        yield _mixed("units side by side", words)
    for words in ("variable:sm_80 | kernel:sm_90", "managed:sm_80 | kernel:sm_90", "variable:sm_80"):
        yield _mixed("units side by side", words, cudart="static")
        yield _mixed("units side by side", words, program=True)
    for words in _GUARDED:
        yield _mixed("what newer architectures have", words)
    for words, linked in _LINKS:
        yield _mixed("links", words, linked)
    for words, linked in _LINKS[:1] + _LINKS[27:28]:
        yield _mixed("links", words, linked, cudart="static")
        yield _mixed("links", words, linked, program=True)
    for words, linked in _WITH_RUNTIME:
        yield _mixed("links", words, linked, devrt=True)
    for toolkit, arch in _PTX:
        build = Build(objects=(("whole", arch),))
        yield Variant(axis="mixed: bare PTX", form="ptx", toolkit=toolkit, build=build)


def _mixed(
    axis: str, words: str, linked: str = "", *, cudart: Cudart = "shared", program: bool = False, devrt: bool = False
) -> Variant:
    build = Build(
        units=tuple(map(_unit, words.split(" | "))),
        links=tuple(linked.split(" / ")) if linked else (),
        cudart=cudart,
        program=program,
        devrt=devrt,
    )
    form: Form = "program" if program else "library"
    return Variant(axis=f"mixed: {axis}", form=form, toolkit=_TOOLKIT, build=build)


def _unit(words: str) -> Unit:
    """`newer-only@90:sm_80 sm_90 0`: the kind, from which architecture on, its list, the link that it goes into."""
    kind, _, rest = words.partition(":")
    kind, _, oldest = kind.partition("@")
    archs = rest.split()
    link = int(archs.pop()) if archs[-1].isdigit() else None
    return Unit(kind=cast("UnitKind", kind), archs=" ".join(archs), link=link, oldest=int(oldest or 90))
