"""From an answer to its document: one small function for each kind of answer, in the module of its verb."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwheel.report.answer import Answer
    from cuwheel.report.document import Document


def of(answer: Answer, *, verbose: bool) -> Document:
    """`cuwheel.doctor/1` is described by `report.doctor.document`."""
    verb = answer.schema.removeprefix("cuwheel.").split("/")[0]
    module = importlib.import_module(f"cuwheel.report.{verb}")
    document: Document = module.document(answer, verbose=verbose)
    return document
