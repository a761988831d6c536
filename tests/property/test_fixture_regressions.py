"""What fuzzing found, each as the fewest bytes that show it."""

from __future__ import annotations

import contextlib
import struct

import pytest

from cuwheel.errors import CuwheelError
from cuwheel.inspection import library
from tests.fuzz.harness import CountingBuffer

EMPTY_CONTAINER = "50ed55ba01001000" + "00" * 8
FOUND = {
    # Four zero bytes that are not padding: the walk stayed where it was for ever.
    "zero word before something else": EMPTY_CONTAINER + "0000000001000000" + "00" * 8,
}


@pytest.mark.parametrize("name", FOUND)
def test_work_is_bounded(name: str) -> None:
    with contextlib.suppress(CuwheelError):
        library.read(CountingBuffer("found", bytes.fromhex(FOUND[name])), detail="entries", whole=True)


def test_padding_is_skipped_to_the_next_container() -> None:
    """The cure must not lose what stands behind such a word."""
    tail = struct.pack("<II", 0, 1) + bytes.fromhex(EMPTY_CONTAINER)
    found = library.read(CountingBuffer("found", bytes.fromhex(EMPTY_CONTAINER) + tail), detail="containers")
    assert len(found.containers) == 2
