"""From a folder of wheels to an index, and from an index to the machine that needs one; the workflow that does it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.delivery.request import CatalogueRequest, CiRequest, FindRequest, InstallRequest, PublishRequest
from cuwheel.support.request_fields import environment_folder, takes_request

if TYPE_CHECKING:
    from cuwheel.delivery.cataloguing import Catalogue
    from cuwheel.delivery.find_answer import Find
    from cuwheel.delivery.install_answer import Install
    from cuwheel.delivery.publishing import Publish
    from cuwheel.delivery.workflows.writing import Ci
    from cuwheel.machine.fleet import Machines, Refinement


@takes_request(PublishRequest)
def publish(request: PublishRequest) -> Publish:
    """Add wheels to the index in a folder, or take some away; all of them or none. Or mirror what a file requires."""
    if request.requirements is not None:
        from cuwheel.delivery.mirroring import publish_mirror as stage
    else:
        from cuwheel.delivery.publishing import publish as stage
    done = stage(request)
    if request.copy_to is None or request.dry_run or not done.succeeded:
        return done
    from msgspec.structs import replace

    from cuwheel.delivery import copying

    return replace(done, copied=copying.copy_index(request.to, request.copy_to))


def publish_check(place: str | Path, *, signers: Path | None = None) -> Publish:
    """Check every page, link, hash, metadata file, facts file and channel of an index, in a folder or on a server.

    `signers`: who may have signed it; without a signature by one of them it is wrong.
    """
    from cuwheel.delivery import checking

    return checking.check_index(place, signers)


def publish_upload(*wheels: str | Path, url: str, limit: int | None = None, dry_run: bool = False) -> Publish:
    """Send wheels to an index that takes uploads, after its own rules were checked, by `uv publish`.

    `limit`: bytes that a file may have there, where the index has raised its usual limit for this project.
    """
    from cuwheel.delivery import publishing

    return publishing.upload(wheels, url, limit=limit, dry_run=dry_run)


@takes_request(FindRequest)
def find(request: FindRequest) -> Find:
    """Find every file of a package that the user's indexes have, and which of them runs on machines, the best first."""
    from cuwheel.delivery import choosing

    return choosing.find_together(request)


@takes_request(InstallRequest)
def install(request: InstallRequest) -> Install:
    """Install and import the wheel that `find` puts first; where that fails the environment is put back."""
    from cuwheel.delivery import installing

    return installing.install(request)


def install_undo(env: Path | None = None) -> Install:
    """Put the environment back as it was before the last install."""
    from cuwheel.delivery import installing

    return installing.undo_install(environment_folder(env))


@takes_request(CatalogueRequest)
def catalogue(request: CatalogueRequest) -> Catalogue:
    """Add the facts of packages' releases to a catalogue: each wheel is streamed once, and nothing of it is kept."""
    from cuwheel.delivery import cataloguing

    return cataloguing.fill_catalogue(request)


def catalogue_list(
    place: str | Path | None = None,
    *,
    on: Machines = (),
    refine: Refinement | None = None,
) -> Catalogue:
    """List the newest release of each package that runs on machines; without `on`, on the first GPUs of each
    generation.

    `place`: a folder or URL; without one, the catalogue that ships.
    """
    from cuwheel.delivery import cataloguing
    from cuwheel.machine import fleet

    return cataloguing.reach_of_catalogue(place, fleet.machines_named(on, refine))


@takes_request(CiRequest)
def ci(request: CiRequest) -> Ci:
    """Make the workflow of a project from its configuration; with `write` it is written or renewed."""
    from cuwheel.delivery.workflows import writing

    return writing.write_workflow(request)


def ci_check(request: CiRequest) -> Ci:
    """Compare the workflow that is there with the one that would be written, and find traps in it."""
    from cuwheel.delivery.workflows import writing

    return writing.check_workflow(request)


def ci_matrix(plan: Path, *, cpus: Sequence[str] = ("x86_64",), windows: bool = False, image: str = "") -> Ci:
    """Make the jobs of a workflow's matrix from the file that `cuwheel build --dry-run --json` printed.

    `image`: the container of each job on Linux; `{cuda}` and `{cpu}` in it stand for those of the job.
    """
    from cuwheel.delivery.workflows import rendering
    from cuwheel.delivery.workflows.writing import Ci

    return Ci(action="matrix", rows=rendering.matrix_rows(plan, cpus, windows=windows, image=image))


def ci_watch(upstream: str, *, built: str, name: str = "") -> Ci:
    """Tell whether a package, or a git repository, has a release that is later than what was built.

    `built`: an index, at an address or in a folder, or a version. `name`: of the package there, if it is another.
    """
    from cuwheel.delivery.workflows import writing
    from cuwheel.delivery.workflows.writing import Ci

    return Ci(action="watch", upstream=writing.watch(upstream, built, name))
