"""What travels to a GPU: arm64 libraries with code for it, and kernels in them that are run there."""

from __future__ import annotations

from ctypes import c_int
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.machine import fleet
from tests.gpu import arm64_code, runner, windows_code

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.download,
    pytest.mark.skipif(fleet.cpu_here() != "x86_64", reason="arm64 is compiled for on x86-64"),
]
LEAST = 100_000  # bytes: the travelling archive is small, and not empty
MOST = 6_000_000


class Pretended(windows_code.Driver):
    """Takes every container, and computes nothing."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def status(self, name: str, *words: Any) -> int:
        if name == "cuModuleGetFunction":
            self.launched.append(words[2].decode())
        return 0

    def given(self, data: bytes) -> Any:
        return c_int(len(data))


def test_arm64_libraries_travel_with_kernels_that_are_run(tmp_path: Path) -> None:
    folder, libraries = tmp_path / "made", tmp_path / "libraries"
    folder.mkdir()
    arm64_code.make(folder)
    assert LEAST < sum(path.stat().st_size for path in folder.iterdir()) < MOST
    runner.unpack(folder / "libraries.tar.xz", libraries)
    found = {}
    for path in libraries.iterdir():
        driver = Pretended()
        told = windows_code.examine(driver, path)
        assert (told["machine"], told["archs"], told["right"]) == ("aarch64", ["sm_90"], [False]), path.name
        found[path.stem] = driver.launched
    assert found.pop("bitsandbytes-published") == [windows_code.KERNEL]
    assert {name: "add_squares" in kernel for name, (kernel,) in found.items()} == {
        "scikit_kernel-built": True,
        "scikit_kernel-grafted": True,
    }
