"""Variants that the driver loads as they are: one container, or one cubin."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.gpu.codes import codes
from tests.gpu.variants import Variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel_core.verdicts.device import Jit

LATER = ("13.1", "13.2", "13.3", "13.4")  # all of them newer than a driver of CUDA 13.0
_CUBINS = {
    "12.4": "50 60 70 75 80 86 89 90 90a",
    "13.0": "75 80 86 87 88 89 90 90a 100 100a 100f 103 110 120 120a 120f 121",
    **dict.fromkeys(LATER, "80 90 90a 100"),
    "13.4": "80 90 90a 100 100f 107 107f 120",
}
_PTX = {
    "12.4": "50 60 70 75 80 89 90 90a",
    "13.0": "75 80 86 87 88 89 90 90a 100 100a 100f 103 110 120 120a 120f 121",
    **dict.fromkeys(LATER, "75 80 90 90a 100"),
}
# As people write them: below the GPU, at it, above it, with and without PTX.
_LISTS = (
    "sm_75 sm_80 sm_86 sm_89 sm_90",
    "sm_75 sm_80 sm_86 sm_89 sm_90 compute_90",
    "sm_75 sm_80 sm_86 sm_89",
    "sm_75 sm_80 sm_86 sm_89 compute_89",
    "sm_80 sm_86 sm_89 compute_75",
    "sm_100 sm_103 sm_120 compute_120",
    "sm_100 sm_103 sm_120 compute_75",
    "sm_80 sm_90 sm_100 sm_120 compute_120",
    "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 compute_120",
    "sm_90a sm_100a sm_120a",
    "sm_100a sm_120a",
    "sm_100f sm_120f compute_120f",
    "sm_80 sm_100f compute_80 compute_100f",
    "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90 compute_90",
    "sm_70 sm_75 sm_80 sm_86 sm_89 compute_89",
    "sm_70 sm_75 sm_80 sm_86",
    "sm_80 sm_90 sm_90a compute_90a",
    "sm_80 sm_89 compute_80 compute_89",
)
# Every way to leave entries out of this one.
_REDUCED = ("sm_80", "sm_90", "sm_90a", "compute_80", "compute_90", "compute_90a")
_SWITCHED = (
    "sm_90",
    "sm_90a",
    "sm_80",
    "sm_100",
    "compute_80",
    "compute_90a",
    "compute_100",
    "compute_80@13.4",
    "sm_90 compute_90",
    "sm_90 compute_75",
    "sm_80 compute_80",
    "sm_90 compute_100",
    "sm_90 compute_90@13.4",
    "sm_80 compute_80@13.4",
    "sm_90a compute_90a compute_90",
    "",
)


def variants() -> Iterator[Variant]:
    yield from _make("alone", _alone())
    yield from (Variant(axis="bare cubin", form="cubin", containers=(codes(text),)) for text in _bare_cubins())
    yield from _make("cubin beside PTX", _beside())
    yield from _make("architecture list", _LISTS[:13] + tuple(_by(text, "12.4") for text in _LISTS[13:]))
    yield from _make("toolkits mixed", _mixed())
    yield from _make("order", _ordered())
    yield from _make("entry removed", _removed())
    yield from _make("compression", _compressed())
    yield from _make("ISA in the header", _isa())
    yield from _make("LTO-IR", ("lto_90", "lto_80", "lto_100", "lto_90 sm_90", "lto_90 compute_80", "lto_90 sm_80"))
    yield from _make("debug", _debug())
    for jit in ("disabled", "forced"):
        yield from _make(f"JIT {jit}", _SWITCHED, jit=jit)


def _make(axis: str, texts: Iterable[str], *, jit: Jit = "allowed") -> Iterator[Variant]:
    for text in texts:
        yield Variant(axis=axis, form="fatbin", containers=(codes(text),), jit=jit)


def _by(text: str, toolkit: str) -> str:
    return " ".join(f"{word}@{toolkit}" for word in text.split())


def _both(*texts: str) -> Iterator[str]:
    """In this order and in the other one."""
    for text in texts:
        yield text
        yield " ".join(reversed(text.split()))


def _alone() -> Iterator[str]:
    for kind, table in (("sm", _CUBINS), ("compute", _PTX)):
        for toolkit, numbers in table.items():
            yield from (f"{kind}_{number}@{toolkit}" for number in numbers.split())


def _bare_cubins() -> Iterator[str]:
    for toolkit, numbers in {"12.4": "80 90 90a", "13.0": "80 90 90a 100 120", "13.4": "80 90 90a 100"}.items():
        yield from (f"sm_{number}@{toolkit}" for number in numbers.split())


def _beside() -> Iterator[str]:
    cubins = "sm_80 sm_89 sm_90 sm_90a sm_100 sm_100f sm_120"
    ptx = "compute_75 compute_80 compute_90 compute_90a compute_100 compute_120f"
    yield from (" ".join(pair) for pair in itertools.product(cubins.split(), ptx.split()))


def _mixed() -> Iterator[str]:
    for later in LATER:
        for cubin, ptx in itertools.product(("sm_80", "sm_100"), ("compute_80", "compute_90")):
            yield f"{cubin} {ptx}@{later}"
        yield f"sm_90 compute_90@{later}"
        yield f"sm_90@{later} compute_90@{later}"
    yield from _both("sm_90@12.4 compute_90@13.4", "sm_80@12.4 compute_80", "sm_80@13.4 compute_80@12.4")
    for low, high in (("75", "80"), ("75", "90"), ("80", "90")):
        for old, new in itertools.product(("12.4", "13.0"), ("13.1", "13.4")):
            yield from _both(f"compute_{low}@{old} compute_{high}@{new}")
    for low, high in itertools.product(("75", "80"), ("90", "90a")):
        yield from _both(f"compute_{low}@13.4 compute_{high}")
    yield from _both("compute_80 compute_80@13.4", "compute_90@12.4 compute_90@13.1", "compute_80 compute_100@13.4")
    yield from _both("compute_75 compute_100@13.4", "compute_80@12.4 compute_80")


def _ordered() -> Iterator[str]:
    yield from _both("sm_90 sm_90#2", "compute_80 compute_80#2", "sm_90a sm_90a#2", "compute_90a compute_90a#2")
    yield from _both("sm_90@12.4 sm_90", "sm_90@12.4 sm_90@13.4", "sm_90 sm_90@13.4", "sm_90a@12.4 sm_90a@13.4")
    yield from _both("sm_90 sm_90a", "sm_90 sm_90a@12.4", "sm_90@13.4 sm_90a@12.4", "sm_90@12.4 sm_90a")
    yield from _both("compute_90 compute_90a", "compute_90 compute_90a@12.4", "compute_90 compute_90a@13.4")
    yield from _both("compute_90@13.4 compute_90a", "compute_90@12.4 compute_90a", "compute_75 compute_80 compute_90")
    yield from _both("sm_80 sm_90", "sm_90 sm_100", "sm_80 sm_90 sm_100 compute_100", "sm_80 sm_86 sm_89")
    yield from ("compute_90 sm_90", "compute_80 sm_80", "compute_90@13.4 sm_90", "compute_75 sm_100")
    yield from ("compute_90a sm_90", "compute_90 sm_90a", "sm_90 compute_90 sm_90a", "compute_80 sm_90 compute_90")
    yield from ("sm_90 sm_90#2 sm_90#3", "sm_90#3 sm_90 sm_90#2", "sm_90 sm_90", "compute_80 compute_80")
    # PTX of the GPU's very own capability: of equals another one wins than elsewhere.
    yield from _both("compute_90 compute_90#2", "compute_90@12.4 compute_90", "compute_90 compute_90@13.1")
    yield from _both("compute_90@12.4 compute_90 compute_90#2", "compute_90@13.1 compute_90@12.4 compute_90")
    yield from (
        "compute_90 compute_90@13.1 compute_90@12.4",
        "compute_90 compute_90",
        "compute_80 compute_90 compute_90#2",
    )
    yield from _both("compute_90a@12.4 compute_90a", "compute_90a@12.4 compute_90a@13.1", "compute_89@12.4 compute_89")
    yield from _both("compute_75@12.4 compute_75", "compute_75@12.4 compute_75@13.1")


def _removed() -> Iterator[str]:
    for count in range(len(_REDUCED) + 1):
        yield from (" ".join(kept) for kept in itertools.combinations(_REDUCED, count))


def _compressed() -> Iterator[str]:
    alone = (
        "sm_90",
        "sm_90a",
        "compute_80",
        "compute_90",
        "compute_90a",
        "sm_90@12.4",
        "compute_90@12.4",
        "sm_90@13.4",
    )
    for code, how in itertools.product((*alone, "sm_80", "sm_100", "compute_80@13.4"), ("none", "lz4", "zstd")):
        yield f"{code}!{how}"
    yield from ("sm_90!zstd compute_90!lz4", "sm_80!lz4 compute_80!none", "sm_80!none compute_80!zstd")
    yield from (
        "sm_90!zstd sm_90#2!none",
        "sm_90!none sm_90#2!zstd",
        "sm_90!lz4 sm_90#2!zstd",
        "sm_90#2!zstd sm_90!lz4",
    )
    yield from ("compute_80!none compute_80#2!zstd", "compute_80!zstd compute_80#2!none", "sm_90!lz4 sm_90a!zstd")


def _isa() -> Iterator[str]:
    for ptx, isa in itertools.product(("compute_80", "compute_90", "compute_90a"), ("9.1", "9.4", "9.9")):
        yield f"{ptx}^{isa}"
    yield from ("compute_80@12.4^9.0", "compute_80@12.4^9.4", "compute_80^8.4", "sm_90 compute_90^9.4")
    yield from ("sm_80 compute_80^9.4", "sm_100 compute_90^9.1", "sm_90a compute_80^9.9")
    yield from _both("compute_75 compute_80^9.4", "compute_75^9.4 compute_80", "compute_90 compute_90a^9.4")
    # Headers that promise less than the PTX needs.
    yield from ("compute_80@13.4^9.0", "compute_90@13.1^9.0", "sm_80 compute_80@13.4^8.0")


def _debug() -> Iterator[str]:
    yield from ("sm_90*", "compute_80*", "sm_80*", "sm_80 compute_80*")
    yield from _both("sm_90 sm_90*", "compute_80 compute_80*", "sm_90* compute_90")
