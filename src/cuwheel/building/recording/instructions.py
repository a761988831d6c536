"""Instructions for the shims: files in a private folder, which the variable CUWHEEL_RECORD names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "CUWHEEL_RECORD"


class Wish(Struct, frozen=True, kw_only=True):
    """How to record.

    `masked`: secrets are not written. `launcher`: words before every real call of nvcc (a compiler cache). `archs`:
    nvcc's own `-gencode …` words, in place of all architecture flags of its callers. `phases`: have nvcc time them.
    `module_ids`: which cudafe++ takes in place of its own, by a source's path, or its name as in ids (`preload` alone).
    `way`: `preload` has programs load a library that sees what they start (Linux); `watch` watches them as a debugger
    (Windows); `path` puts shims before PATH and a shadow in place of each toolkit; `auto` takes the first that works.
    """

    masked: bool = True
    launcher: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    phases: bool = True
    module_ids: Mapping[str, str] = field(default_factory=dict)
    way: str = "auto"

    @property
    def changes_calls(self) -> bool:
        """Who only watches cannot."""
        return bool(self.launcher or self.archs or self.module_ids)


class Orders(Struct, frozen=True, kw_only=True):
    record: Path
    began: int  # nanoseconds of time.perf_counter_ns, which the shims' clocks agree with
    wish: Wish
    library: Path | None
    watch: bool = False
    environ: Mapping[str, str]
    led: Mapping[str, str] = field(default_factory=dict)  # variables that we changed, and to what


def write(folder: Path, orders: Orders) -> None:
    """`environ` holds the caller's variables as they are: this folder is nobody else's, and goes with the session."""
    (folder / "environ").write_bytes(_joined(f"{name}={value}" for name, value in orders.environ.items()))
    (folder / "config").write_bytes(_joined(_lines(orders)))


def _lines(orders: Orders) -> Iterator[str]:
    yield f"record={orders.record}"
    yield f"began={orders.began}"
    if orders.library:
        yield f"library={orders.library}"
    if orders.watch:
        yield "watch=1"
    if orders.wish.masked:
        yield "mask=1"
    if orders.wish.phases:
        yield "phases=1"
    for name, value in orders.led.items():
        yield f"led={name}={value}"
    for word in orders.wish.launcher:
        yield f"launcher={word}"
    for word in orders.wish.archs:
        yield f"arch={word}"
    for name, module_id in orders.wish.module_ids.items():
        yield f"module-id={module_id}={name}"


def _joined(lines: Iterator[str]) -> bytes:
    return b"".join(os.fsencode(line) + b"\0" for line in lines)


class Instructions(Struct, frozen=True, kw_only=True):
    """What is needed of the orders of a session that has ended."""

    record: Path
    masked: bool
    environ: Mapping[str, str]


def read(folder: Path) -> Instructions:
    config, environ = (_split((folder / name).read_bytes()) for name in ("config", "environ"))
    return Instructions(record=Path(config.get("record", os.devnull)), masked="mask" in config, environ=environ)


def _split(data: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in os.fsdecode(data).split("\0") if line)
    return {name: value for name, _, value in pairs}
