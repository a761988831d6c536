"""A further architecture does not make a build for servers run on a Jetson."""

from __future__ import annotations

import pytest

from cuwheel.changes.graft.act import not_for_jetson
from cuwheel.facts.arch import Arch
from tests.unit.verdicts.subjects import library


@pytest.mark.parametrize(
    ("cuda", "platform", "arch", "said"),
    [
        (12, "sbsa", "sm_87", True),
        (12, "sbsa", "sm_89", False),
        (12, "l4t", "sm_87", False),
        (12, None, "sm_87", False),
        (13, "sbsa", "sm_87", False),
    ],
)
def test_what_was_built_for_servers_stays_so(cuda: int, platform: str | None, arch: str, *, said: bool) -> None:
    base = library("sm_80 sm_90", cuda=cuda, platform=platform, machine="aarch64")
    told = list(not_for_jetson([base], {base.path: [Arch.parse(arch)]}))
    assert [each.message for each in told] == (
        [f"built for servers by a CUDA before 13.0, so that it fails on a Jetson with {arch} too: libpkg.so"]
        if said
        else []
    )
