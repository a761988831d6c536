"""A wheel that travels: other libraries grafted, NVIDIA's kept out and found where the environment has them."""

from __future__ import annotations

from cuwheel.repairing.deciding import decide, major_of
from cuwheel.repairing.decision import Decision, Fact, Repaired, SearchPath, Wish
from cuwheel.repairing.execution import execute

__all__ = ["Decision", "Fact", "Repaired", "SearchPath", "Wish", "decide", "execute", "major_of"]
