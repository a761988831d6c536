"""Published wheels: every library's entries, counted by kind and architecture, are those of `cuobjdump -all`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.oracle import libraries, packages

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
