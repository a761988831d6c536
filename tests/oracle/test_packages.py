"""Published wheels: every library's entries, counted by kind and architecture, are those of `cuobjdump -all`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fixtures import cuobjdump
from tests.oracle import libraries, packages

# Not those for Windows: cuobjdump for Linux sees none of a PE file's sections.
DEVICE_LINKED = [
    each
    for each in packages.published()
    if each.name in ("bitsandbytes", "nvidia-nccl-cu12") and not each.platform.startswith("win")
]
pytestmark = [pytest.mark.download, pytest.mark.usefixtures("_cuobjdump")]


@pytest.mark.parametrize("package", packages.published(), ids=str)
def test_entries(package: packages.Published) -> None:
    wheel = packages.wheel(package)
    ours = libraries.of_wheel(wheel)
    problems, total = [], 0
    for name, path in libraries.members(wheel):
        found = libraries.ours(ours[name]) if name in ours else Counter[libraries.Key]()
        listed = libraries.theirs(path)
        total += sum(listed.values())
        if found != listed:
            problems.append(f"{name}: only cuwheel {dict(found - listed)}, only cuobjdump {dict(listed - found)}")
    assert problems == []
    assert total > 0, "a wheel without device code compares nothing"


@pytest.mark.parametrize("package", DEVICE_LINKED, ids=str)
def test_relocatable_entries(package: packages.Published) -> None:
    """What is relocatable is what cuobjdump lists only with -all."""
    wheel = packages.wheel(package)
    ours = libraries.of_wheel(wheel)
    relocatable = 0
    for name, path in libraries.members(wheel):
        listed = Counter((entry.arch, entry.relocatable) for entry in cuobjdump.entries(path).elements())
        found = Counter[tuple[str, bool]]()
        for code in ours[name].device_code:
            found[code.arch, not code.linked] += code.count
        assert found == listed, name
        relocatable += sum(count for (_, kept), count in listed.items() if kept)
    assert relocatable > 0
