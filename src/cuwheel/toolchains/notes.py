"""What to know of a toolchain that is there and may still not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import toolkits
from cuwheel.machine.world import World
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cuwheel.toolchains.toolchain import Toolchain


def examine(toolchain: Toolchain) -> tuple[Finding, ...]:
    return tuple(finding for note in NOTES for finding in note(toolchain))


def _glibc(toolchain: Toolchain) -> Iterator[Finding]:
    here = World.here().libc_version
    row = toolkits.find_toolkit(toolchain.toolkit.cuda)
    if here and not toolchain.prefix and toolchain.provider != "conda" and (clash := toolkits.glibc_clash(row, here)):
        yield Finding(
            rule="glibc-too-new",
            severity="warning",
            message=f"CUDA {row.version}'s headers do not compile with glibc {here}: both declare {clash.symbols[0]}",
            evidence=(f"from glibc {clash.glibc} on, up to CUDA {clash.last_broken}",),
            fix=f"cuwheel toolchain install {row.version} --provider conda,container",
        )


def _no_compiler(toolchain: Toolchain) -> Iterator[Finding]:
    if toolchain.host_compiler is None and not toolchain.prefix:
        yield Finding(
            rule="host-compiler-missing",
            severity="warning",
            message="no host compiler was chosen: nvcc uses what it finds",
            fix=f"cuwheel toolchain install {toolchain.toolkit.cuda}",
        )


NOTES: tuple[Callable[[Toolchain], Iterator[Finding]], ...] = (_glibc, _no_compiler)
