"""How often a program fails, and under which condition; how fast a function or a command is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.proving.request import BenchRequest
from cuwheel.support.request_fields import takes_request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cuwheel.proving.measuring.bisection import Odds, Span
    from cuwheel.proving.measuring.service import Kind
    from cuwheel.report.bench import Bench
    from cuwheel.report.bisection import Bisection
    from cuwheel.report.service import ServiceChange
    from cuwheel.report.trials import Trials


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
    from cuwheel.proving.measuring import campaign, trials_file
    from cuwheel.report import trials as report

    plan = trials_file.load(file)
    folder = campaign.folder_of(file, output)
    if dry_run:
        return report.of_plan(plan, folder)
    wish = campaign.Wish(resume=resume, repeats=repeats, only=dict(only or {}))
    if cluster:
        from cuwheel.proving.measuring import on_cluster

        on_cluster.run(plan, folder, wish, cluster)
    else:
        campaign.run(plan, folder, wish)
    return trials_report(folder)


def trials_report(folder: Path) -> Trials:
    """What the journal in a folder tells, whether its trials have ended or not."""
    from cuwheel.proving.measuring import analysis
    from cuwheel.report import trials as report

    return report.of_analysis(analysis.read(folder), folder.absolute())


def trials_bisect(
    file: Path,
    span: Span,
    *,
    odds: Odds | None = None,
    output: Path | None = None,
    resume: bool = False,
    only: Mapping[str, str] | None = None,
) -> Bisection:
    """The first version of a package, or commit of a source, with which the trials of a file fail."""
    from cuwheel.delivery import candidates
    from cuwheel.proving.measuring import bisection, campaign, trials_file
    from cuwheel.report import bisection as bisection_report

    plan = trials_file.load(file)
    folder = (output or file.absolute().parent / "cuwheel-bisect").absolute()
    wish = campaign.Wish(resume=resume, only=dict(only or {}))
    made = bisection.run(plan, folder, wish, span, odds or bisection.Odds(), candidates.releases_of)
    return bisection_report.answer_of(made, span, folder)


def trials_service(
    file: Path, *, output: Path | None = None, kind: Kind | None = None, remove: bool = False, dry_run: bool = False
) -> ServiceChange:
    """Write, or remove, what resumes the trials of a file after each start of the machine, until they are done."""
    from cuwheel.proving.measuring import campaign, service, trials_file
    from cuwheel.report import service as service_report

    trials_file.load(file)
    planned = service.plan(file.absolute(), campaign.folder_of(file, output), kind)
    done = not dry_run and (service.remove if remove else service.install)(planned)
    return service_report.answer_of(planned, removing=remove, done=done, dry_run=dry_run)


@takes_request(BenchRequest)
def bench(request: BenchRequest) -> Bench:
    """Call a function or a command under several at once, by itself or by turns with another side."""
    from cuwheel.proving.measuring import bench as stage
    from cuwheel.report import bench as report

    earlier = report.read(request.earlier) if request.earlier else None
    return report.answer_of(request, stage.run(request), earlier)
