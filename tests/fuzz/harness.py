"""What the harnesses share: seeds, a buffer that counts the work, and the run itself.

Invariants: no exception but cuwheel's; work bounded by the size of the input; memory by libFuzzer's limit.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from cuwheel.buffer import MemoryBuffer
from cuwheel.errors import CuwheelError
from tests.fixtures import cache, manifest
from tests.fixtures.damage import elf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Every structure may be looked at a few times: when recognised, when walked, when searched, when named.
READS_PER_BYTE = 2.0
BYTES_PER_BYTE = 64.0
ALLOWANCE = 4096
LIMITS = ("-timeout=10", "-rss_limit_mb=1024", "-max_len=65536")


class CountingBuffer(MemoryBuffer):
    """Ends the run where a reader works more than the input's size warrants."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(name, data)
        self.reads = self.bytes = 0

    def read(self, offset: int, count: int) -> bytes:
        found = super().read(offset, count)
        self.reads += 1
        self.bytes += count
        if self.reads > ALLOWANCE + READS_PER_BYTE * self.size:
            raise AssertionError(f"{self.reads:,} reads of a file of {self.size:,} bytes")
        if self.bytes > (ALLOWANCE + self.size) * BYTES_PER_BYTE:
            raise AssertionError(f"{self.bytes:,} bytes read of a file of {self.size:,}")
        return found


def fixtures(*formats: str) -> list[bytes]:
    return [each.path.read_bytes() for each in manifest.load() if each.format in formats]


def containers() -> list[bytes]:
    """What the libraries among the fixtures carry."""
    carried = []
    for data in fixtures("elf"):
        if ".nv_fatbin" in elf.sections(data):
            start, size = elf.extent(data, ".nv_fatbin")
            carried.append(data[start : start + size])
    return carried


def fuzz(
    name: str,
    seeds: Iterable[bytes],
    read: Callable[[bytes], object],
    mutate: Callable[[bytes, int], bytes] | None = None,
) -> None:
    """Run libFuzzer on `read`, with its options from the command line, or repeat the files named there.

    `mutate` knows the format; half of the changes stay libFuzzer's own.
    """
    import atheris

    def one(data: bytes) -> None:
        with contextlib.suppress(CuwheelError):
            read(data)

    places = []
    if all(word.startswith("-") for word in sys.argv[1:]):
        corpus = cache.folder() / "fuzz" / name
        corpus.mkdir(parents=True, exist_ok=True)
        for index, seed in enumerate(seeds):
            (corpus / f"seed-{index:03}").write_bytes(seed)
        places = [f"-artifact_prefix={corpus.parent / name}-", str(corpus)]

    def change(data: bytes, most: int, seed: int) -> bytes:
        if mutate is None or seed % 2:
            return bytes(atheris.Mutate(data, most))
        return mutate(data, seed)[:most]

    atheris.Setup([sys.argv[0], *LIMITS, *sys.argv[1:], *places], one, custom_mutator=change)
    atheris.Fuzz()
