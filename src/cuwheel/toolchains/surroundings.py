"""What providers may look at: the machine, and the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.machine.world import World
from cuwheel.toolchains.store import Store

if TYPE_CHECKING:
    from cuwheel.machine.profile import Attempt


class Surroundings(Struct, frozen=True, kw_only=True):
    machine: World
    store: Store

    @classmethod
    def here(cls, store: Store) -> Surroundings:
        return cls(machine=World.here(), store=store)

    @property
    def trail(self) -> list[Attempt]:
        return self.machine.trail
