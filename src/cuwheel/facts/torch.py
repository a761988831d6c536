"""What PyTorch's build helpers take as TORCH_CUDA_ARCH_LIST. `release`: of PyTorch, else the newest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.facts.tables import DATA, tables
from cuwheel.support import limited
from cuwheel_core.facts import versions

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from cuwheel_core.facts.arch import Arch


_MINORS, _PATCHES = 99, 9  # of a major release, as far as a requirement is tried


@cache
def architectures(release: str | None = None) -> tuple[str, ...]:
    """The architectures as torch writes them, `9.0a`. A release older than the table is taken for its first."""
    found: list[str] = []
    for row in tables().torch.change:
        if found and release and not versions.at_least(release, row.since):
            break
        found = [each for each in found if each not in row.drops] + list(row.adds)
    return tuple(found)


def takes(arch: Arch, release: str | None = None) -> bool:
    """Whether an architecture is in its list; it refuses all others."""
    return spelled(arch) in architectures(release)


def taken_by(arch: Arch) -> str:
    """The releases that take it, in words; empty where none does."""
    text = spelled(arch)
    since = next((row.since for row in tables().torch.change if text in row.adds), "")
    below = next((row.since for row in tables().torch.change if text in row.drops), "")
    return f"{since} or later, before {below}" if below else f"{since} or later" if since else ""


def spelled(arch: Arch) -> str:
    """`sm_90a` as it writes it: `9.0a`."""
    return f"{arch.capability}{arch.suffix}"


def channels() -> tuple[str, ...]:
    """The CUDA releases for which PyTorch's own index has builds, the oldest first."""
    return tables().torch.index.releases


def address_of_channel(cuda: str) -> str:
    """Where the builds for a CUDA release are."""
    return tables().torch.index.address.format(channel=f"cu{cuda.replace('.', '')}")


def list_named(name: str, release: str | None = None) -> str | None:
    """`Ampere` as the list that it stands for; None for a name that it does not know."""
    for row in reversed(tables().torch.name):  # the newest meaning last
        fits = release is None or (
            (row.since is None or versions.at_least(release, row.since))
            and (row.below is None or not versions.at_least(release, row.below))
        )
        if fits and row.name.lower() == name.lower():
            return row.means
    return None


def newest_within(limits: SpecifierSet) -> str | None:
    """The release that a requirement pins, else the newest that it allows; None where it allows all to come."""

    for each in limits:
        if each.operator == "==" and not each.version.endswith(".*"):
            return limited.version(each.version).public
    major = versions.major(tables().torch.change[0].since)
    if limits.contains(f"{major}.{_MINORS}.0") or limits.contains(f"{major + 1}.0.0"):
        return None
    tried = (f"{major}.{minor}.{patch}" for minor in range(_MINORS, -1, -1) for patch in range(_PATCHES, -1, -1))
    return next(filter(limits.contains, tried), None)


# Which release of torch exports which symbols of its C++ interface.
#
# `data/torch_symbols.zst` has them by mangled name, of the newest patch of each minor release: of the wheels of the
# public index for Linux on x86-64 (`./run facts --torch-symbols`). Text: a line with the schema and the date, one with
# the releases, and for each set of releases a line `=` with its bits in hexadecimal (the first release is bit 0) and
# the names that exactly those export, in order.

SYMBOLS_CPU = "x86_64"  # whose wheels were read; torch 2.6 for aarch64 had the new C++ string, for x86_64 not yet
SYMBOLS_FILE = DATA / "torch_symbols.zst"
SYMBOLS_SCHEMA = "cuwheel.torch-symbols/1"
_NEW_STRING = "__cxx11"
_MOST_BYTES = 1 << 28


class SymbolTable(NamedTuple):
    """`releases`: the oldest first. `holders`: by symbol, a bit for each release that exports it.

    `new_strings`: the bits of those that export one with the new C++ string.
    """

    date: str
    releases: tuple[str, ...]
    holders: Mapping[str, int]
    new_strings: int = 0


def exported_symbols(release: str, names: Iterable[str]) -> frozenset[str]:
    """Those of the names that a release of the table has."""
    table = own_symbols()
    bit = 1 << table.releases.index(release)
    return frozenset(name for name in names if table.holders.get(name, 0) & bit)


def releases_exporting(names: Iterable[str]) -> tuple[str, ...]:
    """The releases that have all of the names, the oldest first."""
    table = own_symbols()
    held = (1 << len(table.releases)) - 1
    for name in names:
        held &= table.holders.get(name, 0)
    return tuple(each for place, each in enumerate(table.releases) if held >> place & 1)


def has_new_strings(release: str) -> bool:
    """Whether it was compiled with the C++ string of GCC 5 and later (_GLIBCXX_USE_CXX11_ABI=1)."""
    table = own_symbols()
    return bool(table.new_strings >> table.releases.index(release) & 1)


@cache
def own_symbols() -> SymbolTable:
    return parse_symbols(SYMBOLS_FILE.read_bytes())


def parse_symbols(data: bytes) -> SymbolTable:
    """Reads the table of symbols that the job wrote which reads torch's wheels."""
    import zstandard  # noqa: PLC0415 - few ask for symbols

    text = zstandard.ZstdDecompressor().decompress(data, max_output_size=_MOST_BYTES).decode()
    (head, releases, *_), *groups = (each.split("\n") for each in text.split("\n="))
    schema, date = head.split()
    if schema != SYMBOLS_SCHEMA:
        raise ValueError(f"{schema} is not {SYMBOLS_SCHEMA}")
    holders: dict[str, int] = {}
    new_strings = 0
    for bits, *names in groups:
        held = int(bits, 16)
        holders.update(dict.fromkeys(names, held))
        if held & ~new_strings and any(_NEW_STRING in name for name in names):
            new_strings |= held
    return SymbolTable(date, tuple(releases.split()), holders, new_strings)
