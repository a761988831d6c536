"""Fixtures with a few bytes changed, moved or cut, as hypothesis makes them up: only our errors, bounded work."""

from __future__ import annotations

import contextlib
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel_core.device_code import fatbin, library
from cuwheel_core.errors import CuwheelError
from tests.fixtures import manifest
from tests.fuzz.harness import CountingBuffer

FIXTURES = {fixture.file: fixture.path.read_bytes() for fixture in manifest.load() if fixture.size < 30_000}
# What fields are made of: zero, the largest of each width, signs, and small numbers.
WORDS = st.sampled_from([bytes(4), b"\xff" * 4, b"\xff" * 8, bytes(8), b"\0\0\0\x80", b"\xf0" + b"\xff" * 7])
Patch: TypeAlias = "tuple[float, bytes]"
PATCHES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), WORDS | st.binary(min_size=1, max_size=8)), max_size=6)


def mutated(data: bytes, patches: list[Patch], cut: float, aligned: bool) -> bytes:  # noqa: FBT001 - hypothesis passes it
    for place, patch in patches:
        at = int(place * len(data))
        at -= at % 4 if aligned else 0
        data = data[:at] + patch + data[at + len(patch) :]
    return data[: int(cut * len(data))]


@settings(max_examples=400, deadline=None, derandomize=True)  # chance is for the fuzzers
@given(
    file=st.sampled_from(list(FIXTURES)),
    patches=PATCHES,
    cut=st.just(1.0) | st.floats(0, 1),
    aligned=st.booleans(),
)
def test_only_our_errors_and_bounded_work(file: str, patches: list[Patch], cut: float, aligned: bool) -> None:  # noqa: FBT001
    buffer = CountingBuffer("mutated", mutated(FIXTURES[file], patches, cut, aligned))
    with contextlib.suppress(CuwheelError):
        found = library.read_library(buffer, detail="entries", search="whole")
        assert sum(part.bytes for part in found.parts) == found.size == buffer.size
        for entry in found.entries:
            stored = entry.compressed_bytes or entry.bytes
            assert 0 <= entry.offset < entry.offset + entry.header_size + stored <= buffer.size
            fatbin.read_payload(buffer, entry.offset + entry.header_size, stored, entry.real_bytes, entry.compression)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.binary(max_size=2000),
    st.sampled_from([b"\x7fELF\2\1\1", b"MZ", b"!<arch>\n", b"\x50\xed\x55\xba\1\0\x10\0", b""]),
)
def test_noise_behind_a_magic_number(noise: bytes, magic: bytes) -> None:
    with contextlib.suppress(CuwheelError):
        library.read_library(CountingBuffer("noise", magic + noise), detail="entries", search="whole")
