"""What a verb answers: a frozen value with a versioned schema. JSON is exactly this value."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from cuwheel.support import codec, masking

if TYPE_CHECKING:
    from cuwheel.report.document import Document


SCHEMAS = Path(__file__).parent.parent / "schemas"

T = TypeVar("T")


class Answer(Protocol):
    @property
    def schema(self) -> str: ...

    @property
    def succeeded(self) -> bool:
        """False where the answer is no: the exit status is then 1."""


def to_json(answer: object) -> str:
    return msgspec.json.format(codec.encode_any(shown(answer)), indent=2).decode() + "\n"


def shown(answer: T) -> T:
    """The answer as it leaves us, on a terminal or in a file: commands, addresses and messages may hold secrets.

    What a program printed is masked where it is kept, also by its letters. Signatures and public keys look like
    those.
    """
    return masking.within(answer, masking.hiding(os.environ, random=False))


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
