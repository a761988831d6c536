"""A changed copy of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.changes import in_place

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.changes.in_place import Layout


class Answer(Struct):
    refused: bool


def test_what_stays_is_a_copy_too(tmp_path: Path) -> None:
    """Whoever changes it must not change the original."""
    folder, output = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("changed.so", "stays.so"):
        (folder / name).write_bytes(b"before")

    def change(tree: Layout) -> Answer:
        (tree.root / "new").write_bytes(b"after")
        (tree.root / "new").replace(tree.root / "changed.so")
        return Answer(refused=False)

    in_place.changed_copy(folder, output, {"changed.so", "stays.so"}, change)
    assert {each.name: each.read_bytes() for each in output.iterdir()} == {
        "changed.so": b"after",
        "stays.so": b"before",
    }
    assert not (output / "stays.so").samefile(folder / "stays.so")
    assert (folder / "changed.so").read_bytes() == b"before"


def test_no_copy_where_nothing_could_be_changed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    assert in_place.changed_copy(folder, tmp_path / "out", (), lambda _: Answer(refused=True)).refused
    assert list(tmp_path.iterdir()) == [folder]
