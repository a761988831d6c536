"""What makes wheels, changes them (into a new file, or in a way that can be undone) and proves that they work.

With the toolkits that they are made with, and all else that is kept on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.request import BuildRequest
from cuwheel.changes.graft.request import GraftRequest
from cuwheel.changes.repair.request import RepairRequest
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.proving.request import FleetRequest, PackRequest, VerifyRequest
from cuwheel.support.request_fields import takes_request
from cuwheel.toolchains.request import CacheRequest, ToolchainRequest

if TYPE_CHECKING:
    from cuwheel.building.answer import Build
    from cuwheel.changes.graft.answer import Graft
    from cuwheel.changes.repair.answer import Repair
    from cuwheel.changes.slim.answer import Slim
    from cuwheel.delivery.install_answer import Install
    from cuwheel.proving.on_cluster import Proofs
    from cuwheel.proving.outcomes import Verify
    from cuwheel.proving.proof import Proof
    from cuwheel.report.cache import Cache
    from cuwheel.report.toolchain import Toolchain


@takes_request(BuildRequest)
def build(request: BuildRequest) -> Build:
    """Build wheels of a source folder, an sdist or `name==version`, for these machines, CUDA versions and Pythons."""
    from msgspec.structs import replace

    from cuwheel.building import pipeline

    made = pipeline.build(request, dict(os.environ))
    answer = made.answer
    if any(each.problem for each in made.jobs):
        from cuwheel.diagnosis import failures

        answer = replace(answer, jobs=tuple(replace(each.answer, failure=failures.failure(each)) for each in made.jobs))
    if request.dry_run:
        return answer
    from cuwheel.report import build as report

    return report.write_beside_wheels(answer, request.output)


def build_editable(request: BuildRequest, env: Path | None = None) -> Install:
    """Install a project's folder into an environment so that its Python files are used where they are.

    `env`: the folder of the environment; without one, the active one. `install_undo` takes it back.
    """
    from cuwheel.delivery import editable

    return editable.install_editable(request, env, dict(os.environ))


@takes_request(RepairRequest)
def repair(request: RepairRequest) -> Repair:
    """Make wheels without NVIDIA's libraries inside, which find them where the environment has them."""
    from cuwheel.changes.repair import act

    return act.repair(request)


@takes_request(SlimRequest)
def slim(request: SlimRequest) -> Slim:
    """Make a wheel, libraries, a folder or the environment `env` smaller by what `machines` never load."""
    from cuwheel.changes.slim import act

    return act.slim(request)


def slim_undo(root: Path) -> Slim:
    """Put every original of the environment or folder back in its place."""
    from cuwheel.changes.slim import act

    return act.undo(root)


def slim_commit(root: Path) -> Slim:
    """Give up the originals of the environment or folder, and so free their space."""
    from cuwheel.changes.slim import act

    return act.commit(root)


@takes_request(GraftRequest)
def graft(request: GraftRequest) -> Graft:
    """Add the device code of `donors` to the wheel or library `base`, where it is proven to fit."""
    from cuwheel.building import donor
    from cuwheel.changes.graft import act

    with donor.with_built_donors(request) as complete:
        return act.graft(complete)


@takes_request(VerifyRequest)
def verify(request: VerifyRequest) -> Verify:
    """Install each wheel into fresh environments and try it there; `name==version` is downloaded.

    This runs the code of the wheel and of what it requires.
    """
    from cuwheel.proving import wheels as stage

    return stage.verify_wheels(request)


@takes_request(FleetRequest)
def verify_fleet(request: FleetRequest) -> Proofs:
    """Try wheels on a GPU of each kind that a cluster has, and bring a proof back from each."""
    from cuwheel.proving import on_cluster

    return on_cluster.verify_on_cluster(request)


@takes_request(PackRequest)
def verify_pack(request: PackRequest) -> Verify:
    """Pack one file with the wheels and their checks, to be run on a machine that has nothing but Python."""
    from cuwheel.proving import wheels as stage

    return stage.pack_wheels(request)


def verify_read(proof: Path, *wheels: str | Path) -> Proof:
    """Read the proof that a kit wrote elsewhere; of `wheels`, if they are said, whether it is theirs."""
    from cuwheel.proving import proof as proofs
    from cuwheel.proving import wheels as stage

    return proofs.read_proof(proof, [stage.find_wheel(each) for each in wheels])


@takes_request(ToolchainRequest)
def toolchain(request: ToolchainRequest) -> Toolchain:
    """Provide a CUDA toolkit and a host compiler that it takes, installed into the cache if they are not there yet."""
    from msgspec.structs import replace

    from cuwheel.report import toolchain as report
    from cuwheel.toolchains import provide
    from cuwheel.toolchains.store import open_store

    if request.dry_run:
        return report.foreseen(provide.decide(request))
    made = report.ready("install", provide.provide(request), open_store(request.cache))
    return replace(made, lock=str(request.lock) if request.lock else None)


def toolchain_list(*, cache: Path | None = None) -> Toolchain:
    """List the toolkits that are installed."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchains.store import open_store

    there = open_store(cache)
    return Toolchain(action="list", cache=str(there.folder), toolkits=there.all())


@takes_request(ToolchainRequest)
def toolchain_env(request: ToolchainRequest) -> Toolchain:
    """Write the variables that lead build systems to an installed toolkit, as lines for a shell to eval."""
    from msgspec.structs import replace

    from cuwheel.report import toolchain as report
    from cuwheel.toolchains import provide
    from cuwheel.toolchains.store import open_store
    from cuwheel.toolchains.toolchain import must_be_outside, shell_lines

    made = provide.find(request)
    must_be_outside(made)
    return replace(report.ready("env", made, open_store(request.cache)), lines=shell_lines(made.settings))


@takes_request(ToolchainRequest)
def toolchain_verify(request: ToolchainRequest) -> Toolchain:
    """Try whether an installed toolkit compiles and links for every architecture that it claims."""
    from msgspec.structs import replace

    from cuwheel.report import toolchain as report
    from cuwheel.toolchains import provide
    from cuwheel.toolchains.store import open_store

    made = provide.find(request)
    return replace(report.ready("verify", made, open_store(request.cache)), verification=provide.verify(made))


def toolchain_fetch(request: ToolchainRequest, *, to: Path) -> Toolchain:
    """Fetch the archives of a toolkit into a folder, with their lock, for `toolchain(version, fetched=folder)`
    elsewhere.
    """
    from cuwheel.report import toolchain as report
    from cuwheel.toolchains import provide
    from cuwheel.toolchains.store import open_store

    return report.fetched(*provide.fetch(request, to), to, open_store(request.cache))


def toolchain_remove(
    version: str | None = None,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cpu: str | None = None,
    every: bool = False,
    downloads: bool = False,
    cache: Path | None = None,
) -> Toolchain:
    """Remove installed toolkits: those of a version, or `every` one; and with `downloads` what they were made from."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchains import provide
    from cuwheel.toolchains.store import open_store

    there = open_store(cache)
    request = version and ToolchainRequest(version, components=components, providers=providers, cpu=cpu, cache=cache)
    gone, freed = provide.remove(request or None, there, every=every, downloads=downloads)
    return Toolchain(action="remove", cache=str(there.folder), toolkits=gone, freed=freed)


@takes_request(CacheRequest)
def cache(request: CacheRequest) -> Cache:
    """List what is kept on this machine, by kind; with `prune` remove what is old, or too much."""
    from cuwheel.report import cache as report
    from cuwheel.toolchains import store
    from cuwheel.toolchains.store import open_store

    if request.prune and request.older_than is None and request.most is None:
        from dataclasses import replace  # noqa: TID251 - of a request
        from pathlib import Path

        from cuwheel.building.config import find_configuration
        from cuwheel.errors import UsageError
        from cuwheel_core.support.wording import read_size

        limit = read_size(find_configuration(Path(), None, {}).table.cache_limit)
        if limit is None:
            hint = 'cuwheel cache --prune --older-than 30d, or cache-limit = "50GB" in [tool.cuwheel]'
            raise UsageError("--prune needs --older-than or --most", hint=hint)
        request = replace(request, most=limit)
    place = open_store(request.cache).folder
    found = store.things(place, request.env)
    return report.answer_of(place, found, store.prune(place, found, request) if request.prune else None)
