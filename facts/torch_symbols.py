"""torch_symbols.zst: what each minor release of torch exports, read from its wheel on the index."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from cuwheel.device_code import source
from cuwheel.device_code.torch_symbols import exported_names
from cuwheel.facts import packages
from cuwheel.facts import torch as facts_torch
from cuwheel.network import addresses
from cuwheel.network.remote import RemoteFile
from cuwheel.wheel.file import WheelFile
from cuwheel_core.device_code import elf
from cuwheel_core.facts import versions
from facts import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.facts.torch import SymbolTable
    from facts.index import Wheel


# Types of one file of torch, its anonymous namespaces and the lambdas of its kernels: nobody else can name them.
_INTERNAL = ("_GLOBAL__N_", "__nv_hdl_wrapper_t", "__nv_dl_tag")
_LEVEL = 19


def update() -> Iterator[str]:
    """Adds the releases that the table lacks, some 500 MB each, and says which. It can be stopped between two."""
    known = facts_torch.own_symbols() if facts_torch.SYMBOLS_FILE.exists() else facts_torch.SymbolTable("", (), {})
    newest = {versions.minor(str(each.version)): each for each in torch.releases()}
    for wheel in newest.values():
        release = str(wheel.version)
        if release not in known.releases:
            known = joined(known, release, exports(wheel), datetime.now(timezone.utc).date().isoformat())
            facts_torch.SYMBOLS_FILE.write_bytes(encoded(known))
            yield release


def encoded(table: SymbolTable) -> bytes:
    groups: dict[int, list[str]] = {}
    for name in sorted(table.holders):
        groups.setdefault(table.holders[name], []).append(name)
    lines = [f"{facts_torch.SYMBOLS_SCHEMA} {table.date}", " ".join(table.releases)]
    for bits in sorted(groups):
        lines += [f"={bits:x}", *groups[bits]]
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
    return compressor.compress("\n".join(lines).encode())


def exports(wheel: Wheel) -> frozenset[str]:
    name = Path(addresses.file_name(wheel.url))
    found: set[str] = set()
    with WheelFile(name, RemoteFile(wheel.url)) as opened:
        for item in source.source_of_wheel(opened).items:
            if packages.framework_of(item.path.rpartition("/")[2]) == "torch":
                buffer = item.open(lambda _: None)
                try:
                    found |= exported_names(elf.read_elf(buffer))
                finally:
                    buffer.close()
    return frozenset(filter(can_be_taken, found))


def can_be_taken(name: str) -> bool:
    """By an extension."""
    return not any(each in name for each in _INTERNAL)


def joined(table: SymbolTable, release: str, names: Iterable[str], date: str) -> SymbolTable:
    """With one more release, in place of an older patch of it."""
    releases = [each for each in table.releases if versions.minor(each) != versions.minor(release)]
    kept = [1 << table.releases.index(each) for each in releases]
    releases = sorted([*releases, release], key=versions.key)
    bits = [1 << releases.index(each) for each in releases if each != release]
    holders = {
        name: sum(new for old, new in zip(kept, bits, strict=True) if held & old)
        for name, held in table.holders.items()
    }
    own = 1 << releases.index(release)
    for name in names:
        holders[name] = holders.get(name, 0) | own
    held = {name: bits for name, bits in holders.items() if bits}
    return facts_torch.SymbolTable(date, tuple(releases), held)
