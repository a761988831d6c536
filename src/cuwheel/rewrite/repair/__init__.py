"""A wheel that travels: other libraries grafted, NVIDIA's kept out and found where the environment has them."""

from __future__ import annotations

from cuwheel.rewrite.repair.carrying import carry_out
from cuwheel.rewrite.repair.deciding import decide, major_of
from cuwheel.rewrite.repair.values import Decision, Fact, Repaired, SearchPath, Wish

__all__ = ["Decision", "Fact", "Repaired", "SearchPath", "Wish", "carry_out", "decide", "major_of"]
