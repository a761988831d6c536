"""Which containers hold nothing that the host registers, neither kernel nor variable, so that they decide nothing.

nvcc links one for its default architecture into plain executables and libraries, and makes one for every source file
that has no kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.device_code import limits, objects

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cuwheel.device_code.fatbin import RawContainer, RawEntry, Walk
    from cuwheel.device_code.libraries import DeviceCode
    from cuwheel.device_code.objects import Host

_LARGE = 1 << 20  # an entry of this size has kernels, for all that is looked
_BYTES, _ENTRIES = 1 << 25, 40_000  # read for it, at most


def find(
    walk: Walk, rows: Sequence[DeviceCode], host: Host, device_linked: Collection[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Their places in the file's list, and those that hold variables in managed memory alone. `device_linked`: the
    containers that a device link made.

    Containers of one architecture list serve the same GPUs. So the largest of a list is read first, and where that one
    has a kernel the others change no answer and are left unread.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for index, container in enumerate(walk.containers):
        if container.entries:
            compiled_for = objects.compiled_for(container.entries, rows)
            alike.setdefault((compiled_for, container.section, index in device_linked), []).append(index)
    reader = _Reader(walk, rows, host)
    found: set[int] = set()
    managed: set[int] = set()
    for group in alike.values():
        for index in sorted(group, key=lambda each: _size(walk.containers[each]), reverse=True):
            if not reader.without_kernels(walk.containers[index].entries):
                managed.update((index,) if reader.managed else ())
                break
            found.add(index)
    return frozenset(found), frozenset(managed)


def _size(container: RawContainer) -> int:
    return sum(entry.real for entry in container.entries)


class _Reader:
    """Reads entries until it has read enough; of the others it is taken that they hold kernels."""

    def __init__(self, walk: Walk, rows: Sequence[DeviceCode], host: Host) -> None:
        self._walk, self._rows, self._host = walk, rows, host
        self._bytes, self._entries = _BYTES, _ENTRIES
        self.managed = False  # of the container read last: nothing but variables in managed memory

    def without_kernels(self, entries: Sequence[RawEntry]) -> bool:
        self.managed = False
        if any(entry.real >= _LARGE or self._rows[entry.row].kind not in ("cubin", "ptx") for entry in entries):
            return False
        self.managed = True
        return all(map(self._without_kernel, sorted(entries, key=lambda entry: entry.real)))

    def _without_kernel(self, entry: RawEntry) -> bool:
        self._bytes -= entry.real
        self._entries -= 1
        if self._bytes < 0 or self._entries < 0:
            read = f"{_ENTRIES:,} entries or {_BYTES >> 20} MiB of device code were searched for kernels"
            limits.met(read, "the rest of the containers are assumed to hold kernels")
            return False
        names = objects.names(self._walk, entry, self._rows[entry.row])
        if names is None or names.kernels:
            self.managed = False
            return False
        registered = [*filter(self._host.registers, names.variables)]
        self.managed = self.managed and set(registered) <= set(names.managed)
        return not registered
