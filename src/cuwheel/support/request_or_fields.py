"""Functions that are called with a request, or with what the request is made of."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
Request = TypeVar("Request")
Answer = TypeVar("Answer")
Taken_contra = TypeVar("Taken_contra", contravariant=True)
Given_co = TypeVar("Given_co", covariant=True)


class Verb(Protocol[P, Taken_contra, Given_co]):
    """`verb(request)`, or `verb(…)` with the fields of the request: a type checker knows them all."""

    @overload
    def __call__(self, request: Taken_contra, /) -> Given_co: ...
    @overload
    def __call__(self, *fields: P.args, **named: P.kwargs) -> Given_co: ...


def takes(make: Callable[P, Request]) -> Callable[[Callable[[Request], Answer]], Verb[P, Request, Answer]]:
    """Makes a verb of a function that takes a request. `make`: the class of the request.

    Its fields that are paths may be given as text.
    """
    signature = inspect.signature(make)
    paths = {name for name, each in signature.parameters.items() if each.annotation in ("Path", "Path | None")}

    def path(name: str, value: Any) -> Any:  # noqa: ANN401 - whatever a field may be
        return Path(value) if name in paths and isinstance(value, str) else value

    def decorate(act: Callable[[Request], Answer]) -> Verb[P, Request, Answer]:
        @functools.wraps(act)
        def verb(*fields: Any, **named: Any) -> Answer:  # noqa: ANN401 - `make` says what they are
            whole = len(fields) == 1 and not named and type(fields[0]) is make
            if whole:
                return act(fields[0])
            given = [path(name, value) for name, value in zip(signature.parameters, fields, strict=False)]
            given += fields[len(given) :]  # too many: the class says so
            return act(make(*given, **{name: path(name, value) for name, value in named.items()}))

        answer = inspect.signature(act).return_annotation
        verb.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]
        return verb

    return decorate
