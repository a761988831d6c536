"""Published wheels: every verdict from a facts file is the one from its wheel, and the file is small."""

from __future__ import annotations

import pytest

from cuwheel.device_code import wheel_facts
from tests.oracle import packages
from tests.unit.device_code.test_wheel_facts import must_agree

pytestmark = pytest.mark.download

_PER_SYMBOL = 20  # beside its name
_PER_LIBRARY = 4_000  # bytes; the most is 2,600, of bitsandbytes with its many lists of architectures


@pytest.mark.parametrize("package", packages.published(), ids=str)
def test_verdicts_are_the_same(package: packages.Published) -> None:
    facts = must_agree(packages.wheel(package))
    symbols = sum(len(each) + _PER_SYMBOL for each in facts.torch_symbols)
    assert len(wheel_facts.encoded(facts)) < 2_000 + _PER_LIBRARY * len(facts.libraries) + symbols
