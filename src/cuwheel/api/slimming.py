"""The verb that cuts, and its way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api.binaries import on_disk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.machine.fleet import Machine
    from cuwheel.report.slim import Slim


def slim(  # noqa: PLR0913 - the options of the verb, all by keyword
    *targets: str | Path,
    machines: Sequence[str | Path | Machine] = (),
    env: Path | None = None,
    output: Path | None = None,
    future: bool = False,
    cuda: str | None = None,
    recompress: bool = False,
    drop_relocatable: bool = False,
    strip_debug: bool = False,
    force: bool = False,
    version: str | None = None,
    level: int | None = None,
    platform: str | None = None,
    dry_run: bool = False,
    commit: bool = False,
) -> Slim:
    """A wheel, libraries, a folder or the environment `env` without what `machines` never load.

    `machines`: as for `check`; also `this`, and `all` to keep every architecture.
    """
    from cuwheel.binary.decisions import SlimOptions
    from cuwheel.report.slim import answer_of
    from cuwheel.slimming import machines as wanted
    from cuwheel.slimming import targets as stage

    changes_all = recompress or drop_relocatable or strip_debug or cuda is not None
    options = SlimOptions(
        targets=wanted.machines(machines, env, changes_all=changes_all),
        future=future,
        recompress=recompress,
        drop_relocatable=drop_relocatable,
        strip_debug=strip_debug,
        force=force,
    )
    job = stage.SlimJob(
        targets=targets if env else tuple(on_disk(target, platform) for target in targets),
        options=options,
        env=env,
        output=output,
        cuda=wanted.cuda(cuda) if cuda else None,
        version=version,
        level=level,
        dry_run=dry_run,
        commit=commit,
    )
    return answer_of(stage.slim(job), job)


def slim_undo(root: Path) -> Slim:
    """Every original of the environment or folder back in its place."""
    from cuwheel.report.slim import settled
    from cuwheel.slimming import targets as stage

    return settled(stage.take_back(root), root, "undo")


def slim_commit(root: Path) -> Slim:
    """Give up the originals of the environment or folder, and so free their space."""
    from cuwheel.report.slim import settled
    from cuwheel.slimming import targets as stage

    return settled(stage.settle(root), root, "commit")
