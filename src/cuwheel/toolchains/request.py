"""What is asked of `cuwheel toolchain` and `cuwheel cache`, and the part of it that `cuwheel build` asks too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from cuwheel.errors import UsageError
from cuwheel.network import addresses
from cuwheel.support.request_fields import normalise


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitSources:
    """Where a toolkit and its host compiler may come from. An empty list of providers means all, in their order.

    `cache`: where toolkits are kept. `fetched`: the folder or URL that `fetch` filled. `locked`: a cuwheel.lock, whose
    toolkit is used and no other; `lock`: the file in which it is written down. `host_compiler`: a program; empty for
    none at all, None to choose one. `toolkit`: the folder of one that is on this machine, for the provider `system`.
    `redist_url`: a mirror of NVIDIA's archives, a URL or a folder. `image`: the container image instead of NVIDIA's.
    `cpu`: the processor to compile for, where it is not this machine's.
    """

    providers: Sequence[str] = ()
    cache: Path | None = None
    offline: bool = False
    fetched: str | None = None
    locked: Path | None = None
    lock: Path | None = None
    host_compiler: str | None = None
    redist_url: str | None = None
    apt_sources: str | None = None
    toolkit: str | None = None
    image: str | None = None
    cpu: str | None = None

    def __post_init__(self) -> None:
        normalise(self)
        for name in ("fetched", "redist_url"):
            address = getattr(self, name)
            object.__setattr__(self, name, address and addresses.plain(address))
        if self.fetched and self.locked:
            raise UsageError("fetched and locked cannot be used together: the folder has its own lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainRequest(ToolkitSources):
    """A toolkit: its version, and libraries beside the compiler.

    `glibc`: for another processor, the newest that what is compiled may need there. `l4t`: for Jetson or for servers,
    where CUDA for that processor is two; None takes what there is.
    """

    version: str = field(kw_only=False)
    components: Sequence[str] = ()
    glibc: str | None = None
    l4t: bool | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest:
    """What is kept on this machine; with `prune` less of it.

    `older_than`: seconds since a thing was last used. `most`: bytes that may be left; the oldest go first. Without
    either, `cache-limit` of the configuration is the most. `env`: an environment, to show also what its journals keep
    to undo.
    """

    cache: Path | None = None
    env: Path | None = None
    prune: bool = False
    older_than: float | None = None
    most: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        normalise(self)
        limits = self.older_than is not None or self.most is not None
        if not self.prune and (limits or self.dry_run):
            hint = "cuwheel cache --prune --older-than 30d"
            raise UsageError("--older-than, --most and --dry-run belong to --prune", hint=hint)


def toolkit_from(
    sources: ToolkitSources,
    version: str,
    components: Sequence[str],
    glibc: str | None = None,
    l4t: bool | None = None,  # noqa: FBT001 - as it is handed on
) -> ToolchainRequest:
    """A toolkit from the places that another request names."""
    shared = {each.name: getattr(sources, each.name) for each in fields(ToolkitSources)}
    return ToolchainRequest(version, components=components, glibc=glibc, l4t=l4t, **shared)
