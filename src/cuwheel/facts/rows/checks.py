"""Ready-made checks of packages that many use."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class KnownCheck(Struct, frozen=True, kw_only=True):
    """One of `command` and `python`; as in `[[verify.check]]`: see checks.toml.

    `expect_cuda`: in place of `expect` where a CUDA version is asked for; `{cuda}` is its release with the sign
    behind it, so that 12.2 is not 12.21: `12.2,`; `12.` for a major alone.
    """

    packages: tuple[str, ...]
    name: str
    source: tuple[str, ...]
    command: str | None = None
    python: str | None = None
    expect: tuple[str, ...] = ()
    expect_cuda: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    number: float | None = None
    tolerance: float = 0.0
    gpu: bool = False
    cpu_library: str = ""
    program: str = ""
    timeout: float | None = None


class Checks(Struct, frozen=True, kw_only=True):
    """checks.toml."""

    sources: dict[str, Source]
    check: tuple[KnownCheck, ...]
