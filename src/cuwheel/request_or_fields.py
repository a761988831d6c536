"""Functions that are called with a request, or with what the request is made of."""

from __future__ import annotations

import functools
import inspect
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
    """Makes a verb of a function that takes a request. `make`: the class of the request."""

    def decorate(act: Callable[[Request], Answer]) -> Verb[P, Request, Answer]:
        @functools.wraps(act)
        def verb(*fields: Any, **named: Any) -> Answer:  # noqa: ANN401 - `make` says what they are
            whole = len(fields) == 1 and not named and type(fields[0]) is make
            return act(fields[0] if whole else make(*fields, **named))

        answer = inspect.signature(act).return_annotation
        verb.__signature__ = inspect.signature(make).replace(return_annotation=answer)  # type: ignore[attr-defined]
        return verb

    return decorate
