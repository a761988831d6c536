"""The verb that makes an index of wheels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.delivery import checking
from cuwheel.delivery import publishing as stage
from cuwheel.delivery import upload as uploading
from cuwheel.delivery.request import PublishRequest
from cuwheel.report import publish as report

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.report.publish import Publish


@verb.of(PublishRequest)
def publish(request: PublishRequest) -> Publish:
    """Add wheels to the index in a folder, or take some away; all of them or none."""
    return report.answer_of(stage.publish(request), request.to, dry_run=request.dry_run)


def publish_check(place: str | Path, *, signers: Path | None = None) -> Publish:
    """Every page, link, hash, metadata file, facts file and channel of an index, in a folder or on a server.

    `signers`: who may have signed it; without a signature by one of them it is wrong.
    """
    return report.checked(checking.check(place, signers))


def publish_upload(
    *wheels: str | Path, url: str, limit: int | None = None, platform: str | None = None, dry_run: bool = False
) -> Publish:
    """Send wheels to an index that takes uploads, after its own rules were checked, by `uv publish`.

    `limit`: bytes that a file may have there, where the index has raised its usual limit for this project.
    """
    sent = uploading.upload(wheels, url, limit=limit, platform=platform, dry_run=dry_run)
    return report.uploaded(sent, dry_run=dry_run)
