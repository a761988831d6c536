"""Limits that keep a hostile file from costing hours or gigabytes. Reaching one is reported, never silent.

The readers are many and deep, so the caller that reads a file collects what they ran into; else the program that reads
is told (`host.on_limit`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar

from cuwheel_core.support import host
from cuwheel_core.support.finding import Finding, finding

T = TypeVar("T")
_collected: ContextVar[list[Finding] | None] = ContextVar("limits_met", default=None)


@contextlib.contextmanager
def collected() -> Iterator[list[Finding]]:
    """The limits that are met inside the block, each once."""
    found: list[Finding] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def first(found: Sequence[T], most: int, what: str, rest: str) -> Sequence[T]:
    """The first of them, as many as may be looked at.

    `what`: `libraries are loaded`; `rest`: what becomes of the others.
    """
    if len(found) > most:
        met(f"{most} of {len(found):,} {what}", rest)
    return found[:most]


def met(limit: str, consequence: str) -> None:
    """`limit`: what there is too much of, and how much is read. `consequence`: what the answer lacks for it."""
    found = _collected.get()
    if found is None:  # nobody makes a finding of it
        host.on_limit(f"{consequence}: {limit}")
        return
    about = finding("limit-met", f"{consequence}: {limit}")
    if about not in found:
        found.append(about)
