"""Where containers go in their section."""

from __future__ import annotations

import struct

import pytest

from cuwheel.changes.binaries.draft import (
    Block,
    Cut,
    Packed,
    Shift,
    container_pieces,
    pack_containers,
    rebuild_container,
    uncut_parts,
)
from cuwheel_core.device_code.fatbin import CONTAINER, RawContainer, RawEntry

HEAD = CONTAINER.pack(0xBA55ED50, 1, 16, 0)


def raw(offset: int, *sizes: int) -> RawContainer:
    entries, at = [], offset + 16
    for size in sizes:
        entries.append(RawEntry(0, at, 2, 257, 64, size - 64, 0, 0, 7, 1, 90, 0, 0, 0x11, 0, 0))
        at += size
    return RawContainer(".nv_fatbin", offset, at - offset, tuple(entries))


def packed(*rows: tuple[int, tuple[int, ...], tuple[int, ...], bool], end: int) -> Packed:
    containers = [
        rebuild_container(old := raw(offset, *sizes), HEAD, [old.entries[index] for index in keep], {}, pinned=pinned)
        for offset, sizes, keep, pinned in rows
    ]
    found = pack_containers(containers, 0, end, 8)
    assert found
    return found


def test_packed_together() -> None:
    found = packed((0, (200, 100), (1,), False), (320, (200,), (), False), (536, (104, 80), (0, 1), False), end=736)
    assert found == Packed(((0, 336),), {0: 0, 320: 120, 536: 136})


def test_what_may_not_move_stays_and_the_others_gather_round_it() -> None:
    """Behind it where that leaves the section shorter."""
    found = packed((0, (1000,), (), False), (1016, (200,), (), True), (1232, (1000, 72), (1,), False), end=2320)
    assert found == Packed(((1016, 1336),), {1016: 1016, 0: 1232, 1232: 1248})
    first = packed((0, (200,), (), True), (216, (1000, 72), (1,), False), end=1304)
    assert first == Packed(((0, 304),), {0: 0, 216: 216})


def test_a_large_hole_before_what_may_not_move_makes_two_parts() -> None:
    found = packed((0, (500_000, 72), (1,), False), (500_088, (200,), (), True), end=500_304)
    assert found.islands == ((0, 88), (500_088, 500_304))
    spread = [(0, (300_000, 72), (1,), False), (300_088, (72,), (), True), (300_176, (300_000,), (), False)]
    found = packed(*spread, (600_192, (72,), (), True), end=600_280)
    assert [high - low for low, high in found.islands] == [192, 88]
    assert found.places[300_088] == 300_088
    assert found.places[600_192] == 600_192


def test_two_that_stay() -> None:
    rows = [(0, (104,), (), True), (120, (200, 100), (1,), False), (440, (104,), (), True), (560, (72,), (0,), False)]
    found = packed(*rows, end=648)
    assert found.places[0] == 0
    assert found.places[440] == 440
    assert found.places[120] == 120
    assert found.places[560] == 240  # there is room between them


def test_runs_of_kept_entries_are_one_piece() -> None:
    old = raw(1000, 100, 100, 100, 100)
    new = rebuild_container(old, HEAD, [old.entries[0], old.entries[1], old.entries[3]], {}, pinned=False)
    assert struct.unpack_from("<Q", new.header, 8) == (300,)
    made = list(container_pieces(new, 50))
    assert [(each.place, each.size, each.offset) for each in made[1:]] == [(66, 200, 1016), (266, 100, 1316)]


def test_an_absurd_alignment() -> None:
    old = raw(8, 100)
    assert pack_containers([rebuild_container(old, HEAD, old.entries, {}, pinned=False)], 8, 124, 4096) is None


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (0x1000, 0x1000), (0x3000, 0x1000), (0x5000, 0x2000)])
def test_offsets_behind_cuts(offset: int, expected: int) -> None:
    shift = Shift((Cut(0x1000, 0x3000), Cut(0x4000, 0x5000)))
    assert shift(offset) == expected


def test_what_moves_lands_where_it_is_wanted() -> None:
    shift = Shift((Cut(0x1000, 0x2000),), Block(0x100, 0x180, 0x2100, 0x2000))
    assert shift(0x110) == 0x1110
    assert shift.placed(0x110) == 0x110
    assert shift(0x180) == 0x180


def test_what_is_left_between_cuts() -> None:
    cuts = (Cut(10, 20), Cut(30, 40))
    assert list(uncut_parts(0, 50, cuts)) == [(0, 10), (20, 30), (40, 50)]
    assert list(uncut_parts(10, 40, cuts)) == [(20, 30)]
    assert list(uncut_parts(41, 50, cuts)) == [(41, 50)]
