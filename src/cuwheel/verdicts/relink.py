"""What the driver makes of relocatable objects when no linked code fits: it links those that fit, at load.

- An object that would have to be compiled and cannot be, or a cubin of a toolkit that is newer than the driver, spoils
  the link for all kernels; the first in the order of the file gives the error.
- Objects that nothing in them fits are left out. If another one calls into them the link fails: 300 for all kernels.
- Otherwise the kernels in the objects that fit run, and those in the others have no name: 500. So it is with variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.verdicts.choose import INVALID_SOURCE, NO_KERNEL_IMAGE, SYMBOL_NOT_FOUND, Choice, CudaError
from cuwheel.verdicts.modules import Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.device_code.libraries import Symbols

# What the driver itself brings into every link.
_BUILT_IN = frozenset({"vprintf", "malloc", "free", "__assertfail", "__assert_fail"})


class Object(Struct, frozen=True):
    """A relocatable object, and what the driver would take of it."""

    module: Module
    choice: Choice

    @property
    def fits(self) -> bool:
        return self.choice.how != "none"

    @property
    def symbols(self) -> Symbols | None:
        return self.module.symbols


class Link(Struct, frozen=True, kw_only=True):
    """`error`: of all kernels. Without one the kernels of the objects `in_it` run, those of `left_out` give 500.

    `alternatives`: what else it may be, where the names in the objects are not known. `too_new`: the toolkit is.
    """

    error: CudaError | None = None
    in_it: tuple[Object, ...] = ()
    left_out: tuple[Object, ...] = ()
    alternatives: tuple[CudaError, ...] = ()
    too_new: bool = False


def link(objects: Sequence[Object], *, too_new: bool) -> Link:
    """`too_new`: the driver cannot link cubins of the toolkit that wrote these."""
    for each in objects:
        if too_new and each.choice.how in ("native", "compatible"):
            return Link(error=NO_KERNEL_IMAGE, too_new=True)
        if each.choice.error not in (None, NO_KERNEL_IMAGE):
            return Link(error=each.choice.error)
    fitting = tuple(each for each in objects if each.fits)
    missing = tuple(each for each in objects if not each.fits)
    if not fitting:
        return Link(error=SYMBOL_NOT_FOUND)
    if not missing:
        return Link(in_it=fitting)
    if any(each.symbols is None for each in fitting):
        return Link(error=SYMBOL_NOT_FOUND, alternatives=(INVALID_SOURCE,))
    if _wants(fitting, missing):
        return Link(error=INVALID_SOURCE)
    if not any(map(_registered, fitting)):
        return Link(error=SYMBOL_NOT_FOUND)
    return Link(in_it=fitting, left_out=tuple(filter(_registered, missing)))


def _registered(each: Object) -> bool:
    """Whether the host has names of it. An object that nothing is left of had kernels, for all that is known."""
    names = each.symbols
    return names is None or (not names.of_runtime and bool(names.kernels or names.variables))


def _wants(fitting: Sequence[Object], missing: Sequence[Object]) -> bool:
    """Whether the objects that fit need one that does not."""
    wanted = {name for each in _known(fitting) for name in each.wanted} - _brought(fitting)
    if wanted & _brought(missing):
        return True
    # What nobody brings must have been in an object whose names are not known.
    return any(each.symbols is None for each in missing) and bool(wanted - _BUILT_IN)


def _brought(objects: Sequence[Object]) -> frozenset[str]:
    return frozenset(name for each in _known(objects) for name in (*each.functions, *each.kernels))


def _known(objects: Sequence[Object]) -> Iterable[Symbols]:
    return (each.symbols for each in objects if each.symbols is not None)
