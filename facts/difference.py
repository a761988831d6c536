"""What a source says otherwise than a table."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """`what`: the row and what of it, `nvidia-cudnn-cu12 9.22.0.52: libcudnn_ext.so.9`."""

    table: str
    what: str
    table_says: str
    source_says: str

    def __str__(self) -> str:
        return f"{self.table}: {self.what}: the table says {self.table_says}, the source {self.source_says}"
