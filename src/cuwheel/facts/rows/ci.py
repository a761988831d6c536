"""What workflows are made of."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class Action(Struct, frozen=True, kw_only=True):
    """`commit`: what the tag `version` means."""

    name: str
    version: str
    commit: str
    source: tuple[str, ...]


class Runner(Struct, frozen=True, kw_only=True):
    """A hosted runner with a processor."""

    cpu: str
    label: str
    system: str = "linux"
    service: str = "github"
    source: tuple[str, ...]


class Ci(Struct, frozen=True, kw_only=True):
    """ci.toml."""

    sources: dict[str, Source]
    action: tuple[Action, ...]
    runner: tuple[Runner, ...]
