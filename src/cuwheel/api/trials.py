"""How often a program fails, and under which condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.measuring import analysis, campaign, trials_file
from cuwheel.report import trials as report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cuwheel.report.trials import Trials


def trials(
    file: Path,
    *,
    output: Path | None = None,
    resume: bool = False,
    repeats: int | None = None,
    only: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> Trials:
    """Run the trials of a TRIALS.toml, each on disk before it begins, and say what they tell.

    `output`: the folder of the journal. `resume`: go on where an earlier run ended, however it did. `only`: axis →
    value, of the conditions to run. `repeats`: in place of the file's.
    """
    plan = trials_file.load(file)
    folder = campaign.folder_of(file, output)
    if dry_run:
        return report.of_plan(plan, folder)
    campaign.run(plan, folder, campaign.Wish(resume=resume, repeats=repeats, only=dict(only or {})))
    return trials_report(folder)


def trials_report(folder: Path) -> Trials:
    """What the journal in a folder tells, whether its trials have ended or not."""
    return report.of_analysis(analysis.read(folder), folder.absolute())
