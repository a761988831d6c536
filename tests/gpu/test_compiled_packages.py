"""What counts as good of packages that were compiled ahead: the same bits, and no wait at the first start."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.compiled_packages import are_good

DRIVER = [["a", 10.0]]  # a digest of the results, and the seconds to the first


@pytest.mark.parametrize(
    ("ways", "good"),
    [
        ({"compiled": [["a", 0.5], ["a", 0.6]]}, True),
        ({"compiled": [["a", 0.5], ["b", 0.6]]}, False),
        ({"compiled": [["a", 0.5], [None, "error 223"]]}, False),
        ({"cut": [[None, "not done in 240 s"]], "compiled": [["a", 0.5]]}, False),
        ({"compiled": [["a", 0.58], ["a", 9.0]], "whole": [["c", 0.5]]}, True),  # the publisher's compiler was another
        ({"compiled": [["a", 0.62]], "whole": [["a", 0.5], ["a", 0.7]]}, False),
        ({"compiled": [["a", 0.5]], "whole": [[None, "does not load"]]}, False),
    ],
)
def test_the_same_bits_and_as_soon_as_what_the_publisher_compiled(ways: dict[str, Any], *, good: bool) -> None:
    assert are_good({"cut": DRIVER, **ways}) is good
