"""What is asked of `cuwheel build`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from cuwheel.clusters import target
from cuwheel.errors import UsageError
from cuwheel.support.request_fields import freeze, must_be_positive
from cuwheel.toolchains.request import ToolkitSources


class Fit(Struct, frozen=True, kw_only=True):
    """What a build takes over from one elsewhere, to fit it. `archs`: to compile, whatever list it is configured for.

    `module_ids` and `paths`: of source files, as they are in the code of the other.
    """

    archs: tuple[str, ...]
    module_ids: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest(ToolkitSources):
    """Wheels of a source folder, an sdist or `name==version`, for these machines, CUDA versions and Pythons.

    `settings`: any part of the configuration, as `tables.Table` has it, over what the source or `config` says.
    `jobs`: compilers at once, of all wheels together; `at_once`: wheels. A job whose inputs have not changed comes from
    the cache, with or without `resume`; `rebuild` builds it anew. `shares`: each architecture is compiled by itself;
    None: where that pays. `cluster`: where it is built: an address, `local` or `slurm`. `fit`: the build elsewhere that
    its code must fit.
    """

    source: str | Path = field(default=".", kw_only=False)
    machines: Sequence[str] = ()
    cuda: Sequence[str] = ()
    python: Sequence[str] = ()
    config: Path | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    output: Path = Path("dist")
    jobs: int | None = None
    at_once: int = 1
    resume: bool = False
    rebuild: bool = False
    shares: bool | None = None
    cluster: str | None = None
    fit: Fit | None = None
    keep: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        ToolkitSources.__post_init__(self)  # `super()` does not find its class where there are slots
        freeze(self, "machines", "cuda", "python")
        if self.resume and self.rebuild:
            raise UsageError("--resume reuses what is there, --rebuild does not: give one of them")
        if self.cluster is not None:
            target.parse(self.cluster)
        must_be_positive(jobs=self.jobs, at_once=self.at_once)
        object.__setattr__(self, "output", Path(self.output).absolute())

    @property
    def overrides(self) -> dict[str, object]:
        """All that goes over the configuration."""
        lists = {"for_": self.machines, "cuda": self.cuda, "python": self.python}
        return {**self.settings, **{name: value for name, value in lists.items() if value}}
