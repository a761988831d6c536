"""A wheel that travels: other libraries grafted, NVIDIA's kept out and found where the environment has them."""

from __future__ import annotations

from cuwheel.repairing.carrying import carry_out
from cuwheel.repairing.deciding import decide, major_of
from cuwheel.repairing.values import Decision, Fact, Repaired, SearchPath, Wish

__all__ = ["Decision", "Fact", "Repaired", "SearchPath", "Wish", "carry_out", "decide", "major_of"]
