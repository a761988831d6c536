"""Ready-made checks of packages that many use."""

from __future__ import annotations

from dataclasses import dataclass

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCheck:
    """One of `command` and `python`; as in `[[verify.check]]`: see checks.toml."""

    packages: tuple[str, ...]
    name: str
    source: tuple[str, ...]
    command: str | None = None
    python: str | None = None
    expect: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    number: float | None = None
    tolerance: float = 0.0
    gpu: bool = False
    cpu_library: str = ""
    program: str = ""
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """checks.toml."""

    sources: dict[str, Source]
    check: tuple[KnownCheck, ...]
