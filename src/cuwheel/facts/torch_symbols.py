"""Which release of torch exports which symbols of its C++ interface.

`data/torch_symbols.zst` has them by mangled name, of the newest patch of each minor release: of the wheels of the
public index for Linux on x86-64 (`./run facts --torch-symbols`). Text: a line with the schema and the date, one with
the releases, and for each set of releases a line `=` with its bits in hexadecimal (the first release is bit 0) and
the names that exactly those export, in order.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.facts.tables import DATA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FILE = DATA / "torch_symbols.zst"
_SCHEMA = "cuwheel.torch-symbols/1"
_NEW_STRING = "__cxx11"
_MOST = 1 << 28
_LEVEL = 19


class Table(NamedTuple):
    """`releases`: the oldest first. `holders`: by symbol, a bit for each release that exports it."""

    date: str
    releases: tuple[str, ...]
    holders: Mapping[str, int]


def exported(release: str, names: Iterable[str]) -> frozenset[str]:
    """Those of the names that a release of the table has."""
    table = own()
    bit = 1 << table.releases.index(release)
    return frozenset(name for name in names if table.holders.get(name, 0) & bit)


def exporting(names: Iterable[str]) -> tuple[str, ...]:
    """The releases that have all of the names, the oldest first."""
    table = own()
    held = (1 << len(table.releases)) - 1
    for name in names:
        held &= table.holders.get(name, 0)
    return tuple(each for place, each in enumerate(table.releases) if held >> place & 1)


def has_new_strings(release: str) -> bool:
    """Whether it was compiled with the C++ string of GCC 5 and later (_GLIBCXX_USE_CXX11_ABI=1)."""
    table = own()
    bit = 1 << table.releases.index(release)
    return any(held & bit and _NEW_STRING in name for name, held in table.holders.items())


@cache
def own() -> Table:
    return parse(FILE.read_bytes())


def parse(data: bytes) -> Table:
    """Of what `encoded` made."""
    import zstandard  # noqa: PLC0415 - few ask for symbols

    text = zstandard.ZstdDecompressor().decompress(data, max_output_size=_MOST).decode()
    (head, releases, *_), *groups = (each.split("\n") for each in text.split("\n="))
    schema, date = head.split()
    if schema != _SCHEMA:
        raise ValueError(f"{schema} is not {_SCHEMA}")
    holders: dict[str, int] = {}
    for bits, *names in groups:
        holders.update(dict.fromkeys(names, int(bits, 16)))
    return Table(date, tuple(releases.split()), holders)


def encoded(table: Table) -> bytes:
    import zstandard  # noqa: PLC0415 - as above

    groups: dict[int, list[str]] = {}
    for name in sorted(table.holders):
        groups.setdefault(table.holders[name], []).append(name)
    lines = [f"{_SCHEMA} {table.date}", " ".join(table.releases)]
    for bits in sorted(groups):
        lines += [f"={bits:x}", *groups[bits]]
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
    return compressor.compress("\n".join(lines).encode())


def write(path: Path, table: Table) -> None:
    path.write_bytes(encoded(table))
