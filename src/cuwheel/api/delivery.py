"""From a folder of wheels to an index, and from an index to the machine that needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.delivery.request import CatalogueRequest, FindRequest, InstallRequest, PublishRequest
from cuwheel.support.request_fields import environment_folder, takes_request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.machine.fleet import Machine, Refinement
    from cuwheel.report.catalogue import Catalogue
    from cuwheel.report.find import Find
    from cuwheel.report.install import Install
    from cuwheel.report.publish import Publish


@takes_request(PublishRequest)
def publish(request: PublishRequest) -> Publish:
    """Add wheels to the index in a folder, or take some away; all of them or none."""
    from cuwheel.delivery import publishing as stage
    from cuwheel.report import publish as report

    return report.answer_of(stage.publish(request), request.to, dry_run=request.dry_run)


def publish_check(place: str | Path, *, signers: Path | None = None) -> Publish:
    """Every page, link, hash, metadata file, facts file and channel of an index, in a folder or on a server.

    `signers`: who may have signed it; without a signature by one of them it is wrong.
    """
    from cuwheel.delivery import checking
    from cuwheel.report import publish as report

    return report.checked(checking.check(place, signers))


def publish_upload(
    *wheels: str | Path, url: str, limit: int | None = None, platform: str | None = None, dry_run: bool = False
) -> Publish:
    """Send wheels to an index that takes uploads, after its own rules were checked, by `uv publish`.

    `limit`: bytes that a file may have there, where the index has raised its usual limit for this project.
    """
    from cuwheel.delivery import upload as stage
    from cuwheel.report import publish as report

    sent = stage.upload(wheels, url, limit=limit, platform=platform, dry_run=dry_run)
    return report.uploaded(sent, dry_run=dry_run)


@takes_request(FindRequest)
def find(request: FindRequest) -> Find:
    """Every file of a package that the user's indexes have, and which of them runs on machines, the best first."""
    from cuwheel.delivery import together
    from cuwheel.report import find as report

    return report.answer_of(together.find_together(request))


@takes_request(InstallRequest)
def install(request: InstallRequest) -> Install:
    """The wheel that `find` puts first, installed and imported; the environment is put back where that fails."""
    from cuwheel.delivery import installing
    from cuwheel.report import install as report

    return report.answer_of(installing.install(request), dry_run=request.dry_run)


def install_undo(env: Path | None = None) -> Install:
    """The environment as it was before the last install."""
    from cuwheel.delivery import installing
    from cuwheel.report import install as report

    return report.answer_of(installing.undo(environment_folder(env)))


@takes_request(CatalogueRequest)
def catalogue(request: CatalogueRequest) -> Catalogue:
    """Add the facts of packages' releases to a catalogue: each wheel is streamed once, and nothing of it is kept."""
    from cuwheel.delivery import cataloguing
    from cuwheel.report import catalogue as report

    return report.of_filled(str(request.to), cataloguing.fill_catalogue(request))


def catalogue_list(
    place: str | Path | None = None,
    *,
    on: Sequence[str | Path | Machine] = (),
    refine: Refinement | None = None,
) -> Catalogue:
    """The newest release of each package that runs on machines; without `on`, on the first GPUs of each generation.

    `place`: a folder or URL; without one, the catalogue that ships.
    """
    from cuwheel.delivery import catalogue_reach
    from cuwheel.machine import named
    from cuwheel.report import catalogue as report

    return report.of_listed(catalogue_reach.reach_of_catalogue(place, named.machines_named(on, refine) if on else ()))
