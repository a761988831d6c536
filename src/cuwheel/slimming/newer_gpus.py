"""GPUs that come after a fleet's newest: those that the tables know, and one newer than all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.compat.choose import Device
from cuwheel.facts import architectures
from cuwheel.facts.arch import Capability

if TYPE_CHECKING:
    from collections.abc import Sequence


def later_devices(fleet: Sequence[Capability]) -> tuple[Device, ...]:
    """Each as one that compiles PTX: machine code for a later GPU is not what `future` is about."""
    known = architectures.current_capabilities()
    newest = max(fleet, default=known[0])
    beyond = Capability(max(each.major for each in (*known, newest)) + 1, 0)
    return tuple(Device(capability=each, jit="forced") for each in (*known, beyond) if each > newest)
