"""What a verb answers: a frozen value with a versioned schema. JSON is exactly this value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from cuwheel.support import codec, masking
from cuwheel_core.support import printable

T = TypeVar("T")


class Answer(Struct, frozen=True, kw_only=True):
    """The base of all answers, each with a field `schema`, and `succeeded`.

    `is_masked`: where it was made, as it quotes what a program printed, whose letters alone may be a secret.
    """

    is_masked: ClassVar[bool] = False

    if TYPE_CHECKING:

        @property
        def schema(self) -> str: ...

        @property
        def succeeded(self) -> bool:
            """False where the answer is no: the exit status is then 1."""

    def to_json(self) -> str:
        """The JSON object that `--json` prints, to the letter."""
        return to_json(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `--json` prints, as dictionaries, lists, texts, numbers, true, false and None."""
        found: dict[str, Any] = codec.decode(to_json(self))
        return found


def to_json(value: object) -> str:
    """Writes an answer, or another value that goes out, as `--json` prints it."""
    return printable.json(msgspec.json.format(codec.encode_any(shown(value)), indent=2).decode()) + "\n"


def shown(value: T) -> T:
    """A value as it leaves us, on a terminal or in a file: commands, addresses and messages may hold secrets.

    What a program printed is masked where it is kept, also by its letters. Signatures and public keys look like
    those.
    """
    if isinstance(value, Answer) and value.is_masked:
        return value
    return masking.within(value, masking.hiding(os.environ, random=False))
