"""From an answer to its schema and its document; and what stands in place of an answer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from cuwheel.support.answer import Answer, shown

if TYPE_CHECKING:
    from cuwheel.report.document import Document


SCHEMAS = Path(__file__).parent.parent / "schemas"


class Error(Answer, frozen=True, kw_only=True):
    """Why there is no answer: what `--json` prints in its place.

    `error`: the class of `cuwheel.errors`; `Interrupted`, or `Bug`. `hint`: what to do next, empty where nobody knows.
    `status`: the exit status.
    """

    succeeded: ClassVar[bool] = False

    schema: Literal["cuwheel.error/1"] = "cuwheel.error/1"
    error: str
    message: str
    hint: str = ""
    status: int


def answer_type(named: str) -> type:
    """The class that a row of the verbs' table names."""
    place, _, name = named.rpartition(".")
    module = import_module(f"cuwheel.{place}" if "." in place else f"cuwheel.report.{place}")
    found: type = getattr(module, name)
    return found


# From an answer to its document: one small function for each kind of answer.

# `cuwheel.doctor/1` is described by `report.doctor.document`, and these by another function or module.
_ELSEWHERE = {
    "inspect": "inspect_document.document",  # apart: JSON has no use for it, and it takes as long to import
    "bisection": "trials.of_bisection",
    "service": "trials.of_service",
    "certificates": "cluster.of_certificates",
    "proofs": "proof.of_proofs",
}


def document_of(answer: Answer, *, verbose: bool) -> Document:
    return document_maker(answer.schema)(shown(answer), verbose=verbose)


def document_maker(schema: str) -> Callable[..., Document]:
    """The function that describes answers of a schema."""
    name = schema.removeprefix("cuwheel.").partition("/")[0]
    module, _, function = _ELSEWHERE.get(name, f"{name}.document").partition(".")
    found: Callable[..., Document] = getattr(import_module(f"cuwheel.report.{module}"), function)
    return found
