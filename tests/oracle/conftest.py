"""What cannot be downloaded here is skipped with the reason, and never fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures import cache, toolkits

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    del item
    try:
        return (yield)
    except cache.UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def _cuobjdump() -> None:
    try:
        toolkits.cuobjdump()
    except cache.UnavailableError as error:
        pytest.skip(str(error))
