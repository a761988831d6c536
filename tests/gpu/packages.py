"""Containers without kernels, and libraries side by side in one package: as nvcc builds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.gpu.variants import SITES, Build, Cudart, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOOLKIT = "13.0"
_LINKAGES: tuple[Cudart, ...] = ("shared", "static")
# What the one kernel is compiled for, for what nvcc links, and the lists of source files without a kernel.
_EMPTY: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("compute_75", "sm_100", ()),
    ("sm_90", "sm_100", ()),
    ("sm_90", "sm_75", ()),
    ("sm_80 compute_80", "sm_120", ()),
    ("sm_80", "sm_90", ()),
    ("sm_100", "sm_90", ("sm_90",)),
    ("sm_90", "", ("sm_80",)),
    ("compute_80", "", ("sm_75", "sm_100")),
    ("sm_90a", "sm_75", ("compute_120",)),
    ("compute_100", "", ("sm_90 compute_90",)),
)
# Several kernels beside what is empty.
_EMPTY_BESIDE = (("sm_90", "sm_80"), ("sm_90", "compute_80"), ("sm_90a", "sm_100f"))
# The lists of libraries that one package has; and whether its import may open them all.
_SIDE_BY_SIDE: tuple[tuple[tuple[str, ...], bool], ...] = (
    (("sm_90a", "sm_100f"), False),
    (("sm_90a", "sm_100f"), True),
    (("sm_100f", "sm_120f"), False),
    (("sm_100f", "sm_120f"), True),
    (("sm_90", "sm_90a"), False),
    (("sm_90", "sm_90a"), True),
    (("compute_80", "sm_100f"), False),
    (("sm_80", "sm_90", "sm_100"), False),
    (("sm_80", "sm_90", "sm_100"), True),
    (("sm_80", "compute_90", "sm_90"), False),
    (("compute_100", "sm_90"), False),
    (("sm_80", "sm_89"), False),
)
# Containers that only the last library has.
_ALONE = (("sm_90", "sm_90", "sm_80"), ("sm_80", "sm_90", "sm_90"), ("sm_80", "sm_80", "sm_100f"), ("sm_90",) * 3)


def variants() -> Iterator[Variant]:
    yield from _empty()
    axis = "several libraries side by side"
    for texts, imported in _SIDE_BY_SIDE:
        builds = tuple(Build(objects=(each,)) for each in zip(SITES["many"], texts, strict=False))
        yield Variant(axis=axis, form="package", package=builds, imported=imported, toolkit=_TOOLKIT)
    axis = "containers that one library alone has"
    for texts in _ALONE:
        first, *others = zip(SITES["many"], texts, strict=True)
        builds = (Build(objects=(first,), link_arch="sm_75"), Build(objects=tuple(others)))
        yield Variant(axis=axis, form="package", package=builds, toolkit=_TOOLKIT)


def _empty() -> Iterator[Variant]:
    axis = "containers without kernels"
    for cudart in _LINKAGES:
        for program in (False, True):
            form = "program" if program else "library"
            for text, link_arch, nothing in _EMPTY:
                build = Build(
                    objects=(("whole", text),), cudart=cudart, link_arch=link_arch, nothing=nothing, program=program
                )
                yield Variant(axis=axis, form=form, toolkit=_TOOLKIT, build=build)  # type: ignore[arg-type]
            for texts in _EMPTY_BESIDE:
                objects = tuple(zip(SITES["many"], texts, strict=False))
                build = Build(objects=objects, cudart=cudart, link_arch="sm_100", program=program)
                yield Variant(axis=axis, form=form, toolkit=_TOOLKIT, build=build)  # type: ignore[arg-type]
