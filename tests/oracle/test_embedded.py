"""Libraries that keep thousands of fat binaries in their data: all of them are reported, as cuobjdump counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures import cuobjdump
from tests.oracle import libraries, packages

if TYPE_CHECKING:
    from pathlib import Path

CUFFT = [
    packages.Published(name="nvidia-cufft", version="12.4.0.43", platform="manylinux_2_27_x86_64"),
    packages.Published(name="nvidia-cufft-cu12", version="11.4.1.4", platform="manylinux_2_27_x86_64"),
]


@pytest.mark.download
@pytest.mark.usefixtures("_cuobjdump")
@pytest.mark.parametrize("package", CUFFT, ids=str)
def test_every_embedded_entry(package: packages.Published, tmp_path: Path) -> None:
    wheel = packages.wheel(package)
    ours = libraries.of_wheel(wheel)
    for name, path in libraries.members(wheel):
        if "libcufft.so" not in name:
            continue
        count, file = libraries.embedded(path, tmp_path)
        assert count > 10_000
        listed = cuobjdump.list_entries(file)
        found = libraries.ours(ours[name])
        assert sum(found.values()) == sum(listed.values())
        assert sum(n for key, n in found.items() if key[0] == "cubin") == sum(
            n for entry, n in listed.items() if entry.kind == "cubin"
        )
        return
    pytest.fail("the wheel has no libcufft")
