"""With `--variants`: variant wheels of those that a build put into its output folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.building.values import MadeVariants
from cuwheel.changes.stamp import variants
from cuwheel.errors import CuwheelError
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.building.values import BuildContext, JobResult, MergedWheel
    from cuwheel.changes.stamp.variants import VariantSet


def written(order: BuildContext, done: Sequence[JobResult], merged: Sequence[MergedWheel]) -> MadeVariants:
    """Of the merged wheels where there are such, else of those of the jobs that passed the gate."""
    if order.table.merge:
        wheels = [each.wheel.path for each in merged if each.wheel]
    else:
        wheels = [job.wheel.path for job in done if job.wheel and job.outcome != "refused"]
    try:
        sets, findings = variants.write_all(list(dict.fromkeys(wheels)), order.request.output)
    except CuwheelError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return MadeVariants(reason=f"{error.message}{hint}")
    return MadeVariants(sets=sets, findings=(*findings, *_outranked(sets, wheels)))


def _outranked(sets: Sequence[VariantSet], wheels: Sequence[Path]) -> Iterator[Finding]:
    """A version with a label is later than the one without."""
    plain = {each for made in sets for each in made.plain}
    of_sets = {wheel.made_from for made in sets for wheel in made.wheels}
    labelled = [each.name for each in wheels if str(each) in of_sets - plain]
    if labelled:
        yield Finding(
            rule="variant-outranked",
            severity="note",
            message="an installer that finds the wheels with a CUDA label beside the variants takes those:"
            " their version is the later one",
            evidence=tuple(labelled),
            fix="cuwheel publish dist/*.whl --to index   (its channel variants has no wheel with a label)",
        )
