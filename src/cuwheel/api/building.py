"""From a source to the wheels that were asked for."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.api.building_steps import Steps
    from cuwheel.report.build import Build, Job


def build(  # noqa: PLR0913 - the options of the verb, all by keyword
    source: str | Path = ".",
    *,
    machines: Sequence[str] = (),
    cuda: Sequence[str] = (),
    python: Sequence[str] = (),
    config: Path | None = None,
    settings: Mapping[str, object] | None = None,
    output: Path = Path("dist"),
    providers: Sequence[str] = (),
    toolkit_cache: Path | None = None,
    toolkit_source: str | None = None,
    host_compiler: str | None = None,
    redist_url: str | None = None,
    apt_sources: str | None = None,
    image: str | None = None,
    offline: bool = False,
    lock: Path | None = None,
    locked: Path | None = None,
    jobs: int | None = None,
    at_once: int = 1,
    resume: bool = False,
    keep: bool = False,
    dry_run: bool = False,
) -> Build:
    """Wheels of a source folder, an sdist or `name==version`, for these machines, CUDA versions and Pythons.

    `settings`: any part of the configuration, as `build.tables.Table` has it, over what the source or `config` says.
    `jobs`: compilers at once, of all wheels together; `at_once`: wheels.
    """
    from dataclasses import replace

    from cuwheel.api import merging
    from cuwheel.api.building_steps import Options, Steps
    from cuwheel.report import build_files

    began, now = time.monotonic(), datetime.now(timezone.utc)
    said: dict[str, object] = dict(settings or {})
    said |= {key: tuple(value) for key, value in {"for_": machines, "cuda": cuda, "python": python}.items() if value}
    steps = Steps(
        str(source),
        said,
        Options(
            config=config,
            output=output.absolute(),
            providers=tuple(providers),
            toolkit_cache=toolkit_cache,
            toolkit_source=toolkit_source,
            host_compiler=host_compiler,
            redist_url=redist_url,
            apt_sources=apt_sources,
            image=image,
            offline=offline,
            lock=lock,
            locked=locked,
            jobs=jobs,
            at_once=at_once,
            resume=resume,
            keep=keep,
        ),
    )
    steps.decide(dict(os.environ), dry_run=dry_run)
    made = steps.foreseen() if dry_run else steps.carry_out()
    answer = _answer(steps, made, dry_run=dry_run)
    if not dry_run and steps.table.merge:
        answer = replace(answer, merged=merging.merged(steps, made))
    answer = replace(answer, began=f"{now:%Y-%m-%dT%H:%M:%SZ}", seconds=time.monotonic() - began)
    return answer if dry_run else build_files.write(answer, steps.options.output)


def _answer(steps: Steps, made: Sequence[Job], *, dry_run: bool) -> Build:
    from cuwheel import __version__
    from cuwheel.report import build_made
    from cuwheel.report.build import Build

    return Build(
        cuwheel=__version__,
        source=build_made.source_of(steps.tree, steps.project),
        configuration=(str(steps.configuration),) if steps.configuration else (),
        recipe=build_made.recipe_of(steps.recipe, steps.table),
        dry_run=dry_run,
        output=str(steps.options.output),
        jobs=tuple(made),
        unserved=steps.unserved,
        findings=steps.findings,
    )
