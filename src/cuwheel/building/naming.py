"""How the names of wheels for several CUDA versions differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.building.tables import Naming, Table


def choose(table: Table, cudas: Sequence[str]) -> Naming:
    """As requested; else local versions if there are wheels for several CUDA versions.

    A project that writes such a label itself is given the same one.
    """
    if table.merge:
        return table.naming or "none"
    return table.naming or ("local" if len(set(cudas)) > 1 else "none")


def collide(table: Table, cudas: Sequence[str]) -> bool:
    """Whether two of these CUDA versions would give wheels of the same name, and that matters."""
    if table.merge:
        return False
    labels = {"suffix": [each.split(".")[0] for each in cudas], "local": list(cudas)}
    return len(set(labels.get(table.naming or "none", [""]))) < len(set(cudas)) and not _labels_itself(table)


def _labels_itself(table: Table) -> bool:
    """The project makes its version of a variable that names the CUDA."""
    return any("{cuda" in text for text in table.environment.values())


def finding(cudas: Sequence[str]) -> Finding:
    digits = [each.replace(".", "") for each in cudas]
    return Finding(
        rule="naming-chosen",
        severity="note",
        message=f"wheels for {len(cudas)} CUDA versions: each is named in the local version, such as +cu{digits[0]}",
        evidence=tuple(f"CUDA {cuda}: +cu{label}" for cuda, label in zip(cudas, digits, strict=True)),
        fix="--naming suffix names them NAME-cuMAJOR instead, as public indexes require; --merge makes one wheel",
    )
