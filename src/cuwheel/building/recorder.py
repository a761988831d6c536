"""A job's record: every compiler call, and its progress. Nothing is recorded inside a container."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cuwheel.recording import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.building.cache import Server
    from cuwheel.building.job import Job


@contextlib.contextmanager
def recorded(job: Job, cache: Server | None) -> Iterator[session.Session | None]:
    if job.toolchain.prefix:
        yield None
        return
    wish = session.Wish(
        launcher=cache.launcher if cache else (),
        archs=job.force_archs,
        phases=not (cache and cache.launcher),  # its times would be of the cache, and its flag unknown to it
    )
    environ = {**job.environ, **(cache.environ if cache else {})}
    command = ("cuwheel", "build", job.id)
    with session.recording(job.folder / "record", command, environ, job.source, wish) as made:
        yield made
