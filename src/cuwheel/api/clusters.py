"""Workers for `build`, `check`, `catalogue` and `trials`: their certificates, what runs, and the parts themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.clusters import certificates, overview, service, target
from cuwheel.clusters.service import WorkerWish
from cuwheel.report import cluster as report

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.report.certificates import Certificates
    from cuwheel.report.cluster import Cluster


def cluster(address: str, *, certificate: Path | None = None) -> Cluster:
    """The workers of a cluster: what each is and does. `certificate`: of `cluster_init`, if not this user's."""
    return report.of_overview(address, overview.of(target.parse(address), certificate))


def cluster_init(folder: Path | None = None) -> Certificates:
    """Certificates for a new cluster: one file for whoever builds, one for the scheduler, one for the workers."""
    from cuwheel.report import certificates as made_report

    return made_report.of_made(certificates.make(certificates.folder(folder)))


def cluster_stop(address: str, *, certificate: Path | None = None) -> Cluster:
    """End what runs, the workers and the scheduler."""
    return report.of_overview(address, overview.stop(target.parse(address), certificate), stopped=True)


def cluster_scheduler(address: str, *, certificate: Path | None = None, ready: Path | None = None) -> Cluster:
    """A scheduler, until it is stopped. `ready`: a file that is written with its address."""
    service.schedule(address, certificate, ready)
    return report.of_overview(address, (), stopped=True)


def cluster_worker(address: str, wish: WorkerWish | None = None, *, certificate: Path | None = None) -> Cluster:
    """A worker, until it is stopped: it waits for its scheduler, also after that was gone, unless it is `once`."""
    service.work(address, certificate, wish or WorkerWish())
    return report.of_overview(address, (), stopped=True)
