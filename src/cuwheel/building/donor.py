"""The donor of `graft --add`: the missing architectures and a witness, built as the base was."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.request import BuildRequest
from cuwheel.errors import MalformedError
from cuwheel.grafting import missing
from cuwheel.inspection import pinned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.grafting.request import GraftRequest


@contextlib.contextmanager
def built(request: GraftRequest) -> Iterator[GraftRequest]:
    """The request with a donor in place of `add` and `source`; the same where it asks for nothing to be built."""
    if not request.add:
        yield request
        return
    with tempfile.TemporaryDirectory(prefix="cuwheel-graft-") as folder:
        donor = _build(request, Path(folder))
        yield dataclasses.replace(request, donors=[donor], add=(), source=None, cuda=None)  # noqa: TID251 - a request


def _build(request: GraftRequest, folder: Path) -> Path:
    from cuwheel.building import pipeline  # noqa: PLC0415 - a graft of finished wheels builds nothing

    base = Path(pinned.on_disk(request.base, request.platform))
    wanted = missing.of(base, tuple(request.add), request.cuda)
    asked = BuildRequest(
        request.source or ".",
        machines=[str(each.capability) for each in wanted.listed],
        cuda=[wanted.cuda],
        settings={"plan": {"native": True}, "naming": "none", "repair": {"enabled": False}},
        only=[str(each) for each in wanted.compiled],
        output=folder,
    )
    made = pipeline.build(asked, os.environ)
    for each in made.jobs:
        if each.wheel and each.outcome in ("built", "resumed"):
            return each.wheel.path
    job = made.jobs[0]
    problem = job.problem.what if job.problem else "; ".join(each.message for each in job.findings)
    raise MalformedError(str(request.source), f"could not be built for {', '.join(wanted.compiled)}: {problem}")
