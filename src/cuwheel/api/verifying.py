"""The proof that wheels work: looked at, installed apart, imported, tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.report import verify as report
from cuwheel.request_or_fields import takes
from cuwheel.verifying import proof as proofs
from cuwheel.verifying import wheels as stage
from cuwheel.verifying.request import PackRequest, VerifyRequest

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.report.proof import Proof
    from cuwheel.report.verify import Verify


@takes(VerifyRequest)
def verify(request: VerifyRequest) -> Verify:
    """Install each wheel into fresh environments and try it there; `name==version` is downloaded.

    This runs the code of the wheel and of what it requires.
    """
    return report.answer_of(stage.verify(request), dry_run=request.dry_run)


@takes(PackRequest)
def verify_pack(request: PackRequest) -> Verify:
    """One file with the wheels and their checks, to be run on a machine that has nothing but Python."""
    return report.answer_of(stage.pack(request))


def verify_read(proof: Path, *wheels: str | Path) -> Proof:
    """The proof that a kit wrote elsewhere; of `wheels`, if they are said, whether it is theirs."""
    return proofs.read(proof, [stage.of_release(each) for each in wheels])
