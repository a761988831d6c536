"""From an answer to its document: one small function for each kind of answer."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cuwheel.report.answer import shown

if TYPE_CHECKING:
    from cuwheel.report.answer import Answer
    from cuwheel.report.document import Document

_APART = ("build", "inspect")  # JSON has no use for their documents, which take as long to import as the answer does


def of(answer: Answer, *, verbose: bool) -> Document:
    """`cuwheel.doctor/1` is described by `report.doctor.document`, or by that of a module apart."""
    verb = answer.schema.removeprefix("cuwheel.").split("/")[0]
    module = importlib.import_module(f"cuwheel.report.{verb}{'_document' if verb in _APART else ''}")
    document: Document = module.document(shown(answer), verbose=verbose)
    return document
