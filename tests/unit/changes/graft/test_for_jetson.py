"""A further architecture does not make a build for servers run on a Jetson."""

from __future__ import annotations

import pytest

from cuwheel.changes.graft.act import not_for_jetson
from cuwheel_core.facts.arch import Arch
from tests.unit.verdicts.subjects import library

FAILS = "built for servers by a CUDA before 13.0, so that it fails on a Jetson with sm_87 too: libpkg.so"
NOT_CONFIRMED = (
    "built for servers by CUDA 13.0, which nobody has confirmed to run on a Jetson with sm_87: that one shares CUDA "
    "with servers from 13.2 on: libpkg.so"
)


@pytest.mark.parametrize(
    ("cuda", "platform", "arch", "said"),
    [
        ("12.6", "sbsa", "sm_87", FAILS),
        ("12.6", "sbsa", "sm_89", None),
        ("12.6", "l4t", "sm_87", None),
        ("12.6", None, "sm_87", None),
        ("13.0", "sbsa", "sm_87", NOT_CONFIRMED),
        ("13.0", "sbsa", "sm_110", None),
        ("13.2", "sbsa", "sm_87", None),
    ],
)
def test_what_was_built_for_servers_stays_so(cuda: str, platform: str | None, arch: str, said: str | None) -> None:
    major = int(cuda.partition(".")[0])
    base = library("sm_80 sm_90", cuda=major, toolkits=(cuda,), platform=platform, machine="aarch64")
    told = list(not_for_jetson([base], {base.path: [Arch.parse(arch)]}))
    assert [each.message for each in told] == ([said] if said else [])
