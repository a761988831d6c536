"""Why it failed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.diagnosis import inquiry
from cuwheel.machine import probe, profile
from cuwheel.report import explain as report
from cuwheel.support import masking

if TYPE_CHECKING:
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.report.explain import Explain


def explain(
    log: str | Path | BinaryIO,
    *,
    on: MachineProfile | Path | None = None,
    here: bool = False,
    wheel: str | Path | None = None,
    gpu: str | None = None,
    building: bool = False,
) -> Explain:
    """The causes of a failure, best first, from the log that it left (a path, or a stream of bytes).

    A record's folder, or `RECORD:N`, is a log too: of the first call that failed, or of that one.
    `on`, `here`: the machine it happened on. With a `wheel` at hand, `check` says whether that one would run there.
    `building`: it failed inside of `cuwheel build`, whose own options then help.
    """
    machine = profile.profile_from(on) or (probe.probe(None) if here else None)
    place = downloaded_if_pinned(wheel) if wheel else None
    found = inquiry.inquire(log, machine, wheel=place, gpu=gpu, building=building)
    answer = report.answer_of(found, str(log) if isinstance(log, (str, Path)) else "standard input")
    # A log is quoted in what is answered, and in the report that is made to be passed on.
    return masking.within(answer, lambda text: masking.known(text, os.environ))


def causes() -> Explain:
    """All causes that are known."""
    return report.all_known()
