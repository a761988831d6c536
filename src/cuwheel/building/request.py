"""What is asked of `cuwheel build`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import UsageError
from cuwheel.machine.fleet import machine_words
from cuwheel.support import files
from cuwheel.support.request_fields import must_be_positive
from cuwheel.toolchains.request import ToolkitSources

if TYPE_CHECKING:
    from cuwheel.building.settings import BuildSettings  # noqa: TC004 - never decoded


class Fit(Struct, frozen=True, kw_only=True):
    """What a build takes over from one elsewhere, to fit it. `archs`: to compile, whatever list it is configured for.

    `module_ids` and `paths`: of source files, as they are in the code of the other. `components`: of its toolkit,
    beside those of the configuration.
    """

    archs: tuple[str, ...]
    module_ids: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    components: tuple[str, ...] = ()


def _no_settings() -> BuildSettings:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest(ToolkitSources):
    """Wheels of a source folder, an sdist or `name==version`, for these machines, CUDA versions and Pythons.

    `machines`: GPU names, capabilities, machine profiles or fleet files. `settings`: parts of the configuration, over
    what the source or `config` says. `jobs`: compilers at once. A job whose
    inputs have not changed comes from the cache; `rebuild` builds it anew. `shares`: each
    architecture is compiled by itself; None: where that pays. `cluster`: where it is built: an address, `local` or
    `slurm`. `fit`: the build elsewhere that its code must fit.
    """

    source: str | Path = field(default=".", kw_only=False)
    machines: str | Path | Sequence[str | Path] = ()
    cuda: Sequence[str] = ()
    python: Sequence[str] = ()
    config: Path | None = None
    settings: BuildSettings = field(default_factory=_no_settings)
    output: Path = Path("dist")
    jobs: int | None = None
    rebuild: bool = False
    shares: bool | None = None
    cluster: str | None = None
    fit: Fit | None = None
    keep: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        words = machine_words(self.machines)
        if not all(isinstance(each, str) for each in words):
            raise UsageError(
                "a build's machines stand in its configuration: GPU names, capabilities, profiles and fleet files",
                hint='such as machines=["h100", "fleet.toml"]',
            )
        object.__setattr__(self, "machines", words)
        ToolkitSources.__post_init__(self)  # `super()` does not find its class where there are slots
        if self.cluster is not None:
            from cuwheel.network import cluster_access  # noqa: PLC0415 - few have one

            cluster_access.parse_address(self.cluster)
        must_be_positive(jobs=self.jobs)
        object.__setattr__(self, "output", files.absolute(self.output))

    @property
    def overrides(self) -> dict[str, object]:
        """All that goes over the configuration."""
        said = {"for_": self.machines, "cuda": self.cuda, "python": self.python, "cpu": self.cpu}
        return {**self.settings, **{name: value for name, value in said.items() if value}}
