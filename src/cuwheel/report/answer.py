"""From an answer to its schema and its document; and what stands in place of an answer."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec.structs import fields

from cuwheel.support.answer import Answer, shown
from cuwheel_core.fix import Fix

if TYPE_CHECKING:
    from cuwheel.report.document import Document


SCHEMAS = Path(__file__).parent.parent / "schemas"


class Error(Answer, frozen=True, kw_only=True):
    """Why there is no answer: what `--json` prints in its place.

    `error`: the class of `cuwheel.errors`; `Interrupted`, or `Bug`. `hint`: what to do next, empty where nobody knows.
    `fixes`: the same as values, with commands as lists of words. `status`: the exit status.
    """

    succeeded: ClassVar[bool] = False

    schema: Literal["cuwheel.error/1"] = "cuwheel.error/1"
    error: str
    message: str
    hint: str = ""
    fixes: tuple[Fix, ...] = ()
    status: int


# From an answer to its document: one small function for each kind of answer.

# `cuwheel.doctor/1` is described by `report.doctor.document`, and these by another function or module.
_ELSEWHERE = {
    "inspect": "inspect_document.document",  # apart: JSON has no use for it, and it takes as long to import
    "certificates": "cluster.of_certificates",
    "proofs": "proof.of_proofs",
}


def document_of(answer: Answer, *, verbose: bool) -> Document:
    return document_maker(type(answer))(shown(answer), verbose=verbose)


def document_maker(answer: type) -> Callable[..., Document]:
    """The function that describes answers of a kind: in the room `report` of the package that they are of."""
    package = answer.__module__.partition(".")[0]
    schema: str = next(each.default for each in fields(answer) if each.name == "schema")
    name = schema.removeprefix("cuwheel.").partition("/")[0]
    module, _, function = _ELSEWHERE.get(name, f"{name}.document").partition(".")
    found: Callable[..., Document] = getattr(import_module(f"{package}.report.{module}"), function)
    return found
