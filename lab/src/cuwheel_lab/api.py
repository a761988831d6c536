"""The verbs as functions: what `import cuwheel_lab` gives. A verb's stage is imported when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.support.request_fields import takes_request
from cuwheel_lab.measuring.request import BenchRequest

if TYPE_CHECKING:
    from cuwheel.building.recording.shims import RecordOptions
    from cuwheel_lab.measuring.analysis import Trials
    from cuwheel_lab.measuring.bench import Bench
    from cuwheel_lab.measuring.bisection import Bisection, Odds, Span
    from cuwheel_lab.measuring.matrix import Matrix
    from cuwheel_lab.measuring.service import ServiceChange, ServiceKind


def trials(
    file: Path,
    *,
    output: Path | None = None,
    resume: bool = False,
    repeats: int | None = None,
    only: Mapping[str, str] | None = None,
    dry_run: bool = False,
    cluster: str | None = None,
) -> Trials:
    """Run the trials of a TRIALS.toml, each on disk before it begins, and say what they tell.

    `output`: the folder of the journal. `resume`: go on where an earlier run ended, however it did. `only`: axis →
    value, of the conditions to run. `repeats`: in place of the file's. `cluster`: whose workers run them.
    """
    from cuwheel_lab.measuring import analysis, campaign, trials_file

    plan = trials_file.load_trials(file)
    folder = campaign.folder_of(file, output)
    if dry_run:
        return analysis.planned_trials(plan, folder)
    options = campaign.CampaignOptions(resume=resume, repeats=repeats, only=dict(only or {}))
    if cluster:
        from cuwheel_lab.measuring import on_cluster

        on_cluster.run_on_cluster(plan, folder, options, cluster)
    else:
        campaign.run_trials(plan, folder, options)
    return analysis.analyse(folder)


def trials_report(folder: Path) -> Trials:
    """Read what the journal in a folder tells, whether its trials have ended or not."""
    from cuwheel_lab.measuring import analysis

    return analysis.analyse(folder)


def trials_bisect(
    file: Path,
    span: Span,
    *,
    odds: Odds | None = None,
    output: Path | None = None,
    resume: bool = False,
    only: Mapping[str, str] | None = None,
) -> Bisection:
    """Find the first version of a package, or commit of a source, with which the trials of a file fail."""
    from cuwheel.delivery import candidates
    from cuwheel.support import files
    from cuwheel_lab.measuring import bisection, campaign, trials_file

    plan = trials_file.load_trials(file)
    folder = files.absolute(output or files.absolute(file).parent / "cuwheel-bisect")
    options = campaign.CampaignOptions(resume=resume, only=dict(only or {}))
    return bisection.run_bisection(plan, folder, options, span, odds or bisection.Odds(), candidates.releases_of)


def trials_service(
    file: Path,
    *,
    output: Path | None = None,
    kind: ServiceKind | None = None,
    remove: bool = False,
    dry_run: bool = False,
) -> ServiceChange:
    """Write, or remove, what resumes the trials of a file after each start of the machine, until they are done."""
    from cuwheel.support import files
    from cuwheel_lab.measuring import campaign, service, trials_file

    trials_file.load_trials(file)
    folder = campaign.folder_of(file, output)
    return service.change_service(files.absolute(file), folder, kind, remove=remove, dry_run=dry_run)


@takes_request(BenchRequest)
def bench(request: BenchRequest) -> Bench:
    """Call a function or a command under several at once, by itself or by turns with another side."""
    from cuwheel_lab.measuring import bench as stage

    return stage.measure(request)


def matrix(
    file: str | Path,
    *,
    output: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
    options: RecordOptions | None = None,
    diff: bool = False,
) -> Matrix:
    """Run every configuration of a matrix, each recorded into its own folder below `output` (`cuwheel-matrix`).

    What fails does not stop the rest. `resume`: what an earlier run finished, with the same settings, is taken over.
    `diff`: calls that failed are compared with those of the nearest configuration that works (see `replay_diff`).
    """
    from cuwheel.diagnosis import failures
    from cuwheel.support import files
    from cuwheel_lab.measuring import matrix as stage
    from cuwheel_lab.report import matrix as report

    plan = stage.load_matrix(Path(file))
    folder = files.absolute(output or Path("cuwheel-matrix"))
    answer = stage.planned_matrix(plan, str(file), folder)
    if dry_run:
        return answer
    answer = stage.with_earlier_runs(answer, plan, resume=resume)
    report.save(answer)
    for index, run in stage.run_matrix(plan, folder, stage.finished_runs(answer), os.environ, options):
        failed = run.result in ("failed", "timeout")
        causes, error = failures.causes(run.record, run.log) if failed else ((), "")
        answer = stage.with_run(answer, index, run, causes, error)
        report.save(answer)
    if diff:
        answer = stage.with_comparisons(answer)
        report.save(answer)
    return answer
