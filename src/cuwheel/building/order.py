"""What all jobs of a build share."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from cuwheel.building.job import Project, Tree
from cuwheel.building.request import BuildRequest
from cuwheel.building.tables import Table
from cuwheel.toolchains.store import Store


class Order(Struct, frozen=True, kw_only=True):
    """The request as it was made, and what it means here: the configuration, the source, where toolkits are kept."""

    request: BuildRequest
    table: Table
    tree: Tree
    project: Project
    store: Store
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # toolkit → PATH of the image that it is in
