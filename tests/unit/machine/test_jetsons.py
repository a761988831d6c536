"""Boards as JetPack 5, 6 and 7 leave them, from public lists: what they are, and which wheels run there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.machine import compilers, fleet, gpu, system
from cuwheel.support import codec
from cuwheel_core.facts import toolkits
from tests.fixtures.systems import TESTS
from tests.unit.machine.fake import FakeMachine

if TYPE_CHECKING:
    from pathlib import Path

BOARDS: list[dict[str, Any]] = codec.read_toml(TESTS / "fixtures" / "jetsons.toml")["board"]


def board_of(row: dict[str, Any], root: Path) -> FakeMachine:
    board = FakeMachine(root, cpu="aarch64", glibc=row["glibc"])
    board.file("/etc/nv_tegra_release", row["release"].lstrip())
    board.file("/etc/os-release", f'NAME="Ubuntu"\nPRETTY_NAME="{row["system"]}"\n')
    board.file("/proc/device-tree/compatible", f"nvidia,p0000\0nvidia,{row['chip']}\0".encode())
    status = [
        f"Package: {name}\nStatus: install ok installed\nArchitecture: arm64\nVersion: {version}\n"
        for name, version in row["packages"].items()
    ]
    board.file("/var/lib/dpkg/status", "\n".join(status))
    board.file(f"{row['driver']}/libcuda.so.1.1")
    board.link(f"{row['driver']}/libcuda.so.1", f"{row['driver']}/libcuda.so.1.1")
    kit = row["toolkit"]
    board.toolkit(kit["root"], kit["version"])
    board.file(f"{kit['root']}/targets/{kit['target']}/include/cuda_runtime.h")
    board.link("/usr/local/cuda", kit["root"])
    return board


@pytest.mark.parametrize("row", BOARDS, ids=[row["name"] for row in BOARDS])
class TestBoards:
    def test_what_it_is(self, row: dict[str, Any], tmp_path: Path) -> None:
        board = board_of(row, tmp_path)
        found, (gpus, driver) = system.probe_system(board.world), gpu.probe_gpus(board.world)
        assert found.l4t
        assert found.jetpack
        assert (found.l4t.value, found.jetpack.value) == (row["l4t"], row["jetpack"])
        assert found.jetpack.found_via == ("/var/lib/dpkg/status" if row["packages"] else "L4T 38.2")
        assert [str(each.capability) for each in gpus] == [row["capability"]]
        assert driver.libcuda == f"{row['driver']}/libcuda.so.1"
        # libcuda.so.1.1 is its name on every Jetson, and the version of no driver.
        assert driver.version is None

    def test_what_its_l4t_alone_tells(self, row: dict[str, Any], tmp_path: Path) -> None:
        """As a user names it with `--l4t`, a board has the CUDA and the C library that are found on it."""
        board = board_of(row, tmp_path)
        machine = fleet.Refinement(l4t=row["l4t"]).apply(fleet.from_gpu(row["capability"]))
        assert (str(machine.capability), machine.driver_cuda) == (row["capability"], row["cuda"])
        found = system.probe_system(board.world)
        assert found.glibc
        assert machine.glibc == found.glibc.value
        jetpack = toolkits.jetpack_of(row["l4t"])
        assert jetpack
        assert row["system"].startswith(jetpack.system)
        assert row["capability"] in jetpack.capabilities

    def test_its_toolkit(self, row: dict[str, Any], tmp_path: Path) -> None:
        """One for L4T alone until servers and Jetson share one; then it has the servers' folder."""
        (kit,) = compilers.probe_toolkits(board_of(row, tmp_path).world, ())
        assert kit.version == row["toolkit"]["version"]
        assert toolkits.find_toolkit(kit.version).version == row["cuda"]
        shared = toolkits.one_arm64(toolkits.find_toolkit(row["cuda"]))
        assert (row["toolkit"]["target"] == "sbsa-linux") is shared
