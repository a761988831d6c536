"""For any library that loads and any output that is accepted: host bytes, what loading does, and symbols are the same.

The libraries are made of what linkers can be told to do, and of lies: section headers that say what is not so, which
loaders never look at, and program headers that no linker writes.
"""

from __future__ import annotations

import functools
import operator
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel_core.errors import CuwheelError
from tests.fixtures.damage import elf
from tests.fixtures.damage.patch import get, put
from tests.integration.test_rewrite_layouts import expected
from tests.property import loaded
from tests.unit.changes.binaries import engine

if TYPE_CHECKING:
    from collections.abc import Callable

FLAGS = {
    "plain": (),
    "one-segment": ("-Wl,-z,noseparate-code",),
    "huge-pages": ("-Wl,-z,max-page-size=0x200000",),
    "small-alignment": ("-Wl,-z,max-page-size=4096", "-Wl,-z,common-page-size=4096"),
    "wide-object": ("-DALIGNED=65536",),
    "relr": ("-Wl,-z,pack-relative-relocs",),
    "bound": ("-Wl,-z,now,-z,relro", "-Wl,--hash-style=both"),
    "no-relro": ("-Wl,-z,norelro", "-Wl,--build-id=none"),
    "executable-stack": ("-Wl,-z,execstack",),
    "own-note": ("-DNOTE",),
    "stripped": ("-s", "-DNOTE", "-Wl,-z,noseparate-code"),
    "kept-relocations": ("-Wl,--emit-relocs", "-g"),
    "wide-data": ("-DALIGNED=65536", "-Wl,-z,noseparate-code", "-Wl,-z,max-page-size=4096"),
}
SECTIONS = (
    *(".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment", ".rela.dyn", ".relr.dyn", ".rela.plt", ".dynsym", ".dynstr"),
    *(".gnu.hash", ".hash", ".note.gnu.build-id", ".note.gnu.property", ".note.mine", ".text", ".rodata", ".data"),
    *(".eh_frame", ".eh_frame_hdr", ".dynamic", ".got", ".init_array", ".gnu.version", ".gnu.version_r", ".symtab"),
    *(".data.rel.ro", ".tdata", ".bss", ".plt", ".init", ".fini"),
)
# Fields of a section header, and what they are made to say.
KINDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 19, 0x6FFFFFF6, 0x6FFFFFFF)


def _instead(value: int, _: int) -> int:
    return value


LIES: dict[str, tuple[int, str, tuple[Callable[[int], int], ...]]] = {
    "type": (4, "<I", tuple(functools.partial(_instead, kind) for kind in KINDS)),
    "flags": (8, "<Q", tuple(functools.partial(operator.xor, bit) for bit in (1, 2, 4, 7))),
    "address": (0x10, "<Q", (lambda old: old + 0x1000, lambda old: old - 8, lambda _: 0)),
    "offset": (0x18, "<Q", (lambda old: old + 8, lambda old: max(old - 64, 0), lambda old: old + 4096)),
    "size": (0x20, "<Q", (lambda old: old // 2, lambda old: max(old - 8, 0), lambda old: old + 64, lambda _: 0)),
    "alignment": (0x30, "<Q", (lambda _: 0, lambda _: 1, lambda _: 1 << 16, lambda _: 3)),
}
LIE = st.sampled_from(SECTIONS).flatmap(
    lambda name: st.sampled_from(list(LIES)).flatmap(
        lambda field: st.integers(0, len(LIES[field][2]) - 1).map(lambda which: (name, field, which))
    )
)
_SEGMENT = 56


def lied(data: bytes, lie: tuple[str, str, int]) -> bytes:
    name, field, which = lie
    header = elf.sections(data).get(name)
    if header is None:
        return data
    at, form, ways = LIES[field]
    return put(data, header + at, form, ways[which](get(data, header + at, form)) % (1 << 8 * struct.calcsize(form)))


def _rows(data: bytes) -> list[bytes]:
    at, count = get(data, 0x20, "<Q"), get(data, 0x38, "<H")
    return [data[at + n * _SEGMENT : at + (n + 1) * _SEGMENT] for n in range(count)]


def _with_rows(data: bytes, rows: list[bytes], at: int | None = None) -> bytes:
    """The table where it was, or at the end of the file."""
    if at is None:
        at = get(data, 0x20, "<Q")
    table = b"".join(rows)
    data = data.ljust(at, b"\0")
    return put(put(data[:at] + table + data[at + len(table) :], 0x20, "<Q", at), 0x38, "<H", len(rows))


def _each_load(data: bytes, field: int, form: str, value: Callable[[int], int]) -> bytes:
    rows = [put(row, field, form, value(get(row, field, form))) if row[0] == 1 else row for row in _rows(data)]
    return _with_rows(data, rows)


def _without(data: bytes, kind: int) -> bytes:
    return _with_rows(data, [put(row, 0, "<I", 0) if get(row, 0, "<I") == kind else row for row in _rows(data)])


def _at_end(data: bytes) -> bytes:
    """Program headers behind everything, as some tools put them: not loaded, read by the loader from the file."""
    rows = [row for row in _rows(data) if get(row, 0, "<I") != 6]
    return _with_rows(data, rows, len(data) + -len(data) % 8)


def _in_reverse(data: bytes) -> bytes:
    """Those that are not loaded may stand in any order."""
    rows = _rows(data)
    loads = [row for row in rows if get(row, 0, "<I") == 1]
    return _with_rows(data, [*loads, *reversed([row for row in rows if get(row, 0, "<I") != 1])])


def _twice(data: bytes) -> bytes:
    """A second mapping of the first segments' bytes, at addresses of its own."""
    rows = [row for row in _rows(data) if get(row, 0, "<I") not in (6, 0x6474E551)]
    loads = [row for row in rows if get(row, 0, "<I") == 1]
    end = -(-max(get(row, 16, "<Q") + get(row, 40, "<Q") for row in loads) // (1 << 21)) * (1 << 21)
    copy = put(put(loads[0], 16, "<Q", end), 24, "<Q", end)
    others = [row for row in rows if get(row, 0, "<I") != 1]
    return _with_rows(data, [*loads, copy, *others], len(data) + -len(data) % 8)


def _all_notes(data: bytes) -> bytes:
    """A note header over a whole segment."""
    (first, *_) = [row for row in _rows(data) if row[0] == 1]
    return _with_rows(data, [put(first, 0, "<I", 4) if get(row, 0, "<I") == 0x6474E553 else row for row in _rows(data)])


TURNS: dict[str, Callable[[bytes], bytes]] = {
    "no-stack": lambda data: _without(data, 0x6474E551),
    "no-relro": lambda data: _without(data, 0x6474E552),
    "no-note": lambda data: _without(data, 4),
    "no-unwind": lambda data: _without(data, 0x6474E550),
    "alignment-0": lambda data: _each_load(data, 48, "<Q", lambda _: 0),
    "alignment-1": lambda data: _each_load(data, 48, "<Q", lambda _: 1),
    "alignment-64k": lambda data: _each_load(data, 48, "<Q", lambda _: 1 << 16),
    "alignment-2m": lambda data: _each_load(data, 48, "<Q", lambda _: 1 << 21),
    "all-rights": lambda data: _each_load(data, 4, "<I", lambda _: 7),
    "all-executable": lambda data: _each_load(data, 4, "<I", lambda old: old | 1),
    "headers-at-end": _at_end,
    "reversed": _in_reverse,
    "mapped-twice": _twice,
    "all-notes": _all_notes,
    "no-sections": lambda data: put(put(data, 0x28, "<Q", 0), 0x3C, "<HH", 0, 0),
    "no-names": lambda data: put(data, 0x3E, "<H", 0),
}


def check(data: bytes, label: str) -> bool:
    """Whether it was slimmed. A library that does not load is none of slim's business."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source.so"), Path(folder, "target.so")
        source.write_bytes(data)
        try:
            result = slim_library(source, target, engine.plan(source, "9.0"))
        except CuwheelError:
            assert not target.exists()
            return False
        assert source.read_bytes() == data
        if not result.written:
            return False
        before = loaded.load(source)
        if before is None:
            return False
        after = loaded.load(target)
        assert after is not None, f"{label}: it no longer loads"
        assert after[:2] == before[:2], label
        for line in zip(after.report.splitlines(), before.report.splitlines(), expected("sm_90"), strict=False):
            assert line[0] in line[1:], label  # a section whose header lies may be left as it was
        assert not loaded.host_differences(data, target.read_bytes(), loaded.moving(data)), label
        return True


@pytest.mark.parametrize("layout", FLAGS)
def test_every_layout_that_linkers_make(layout: str) -> None:
    assert check(loaded.built(FLAGS[layout]), layout)


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("layout", ["plain", "one-segment"])
def test_every_turn(layout: str, turn: str) -> None:
    check(TURNS[turn](loaded.built(FLAGS[layout])), f"{layout} {turn}")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    layout=st.sampled_from(list(FLAGS)),
    turns=st.lists(st.sampled_from(list(TURNS)), max_size=2, unique=True),
    lies=st.lists(LIE, max_size=3),
)
def test_what_is_accepted_is_the_same_to_whoever_loads_it(
    layout: str, turns: list[str], lies: list[tuple[str, str, int]]
) -> None:
    data = loaded.built(FLAGS[layout])
    for lie in lies:
        data = lied(data, lie)
    for turn in turns:
        data = TURNS[turn](data)
    check(data, f"{layout} {turns} {lies}")
