"""What the requests of all verbs have in common: their fields are checked, and a verb takes them one by one too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from cuwheel.errors import UsageError


def normalise(request: Any) -> None:  # noqa: ANN401 - a request: any dataclass
    """Its fields by their kind, as they are annotated: lists become tuples, one file or several a tuple of them.

    A lone text where a list belongs would be taken apart into its letters. `env` is the folder itself.
    """
    for name, each in request.__dataclass_fields__.items():
        if not each.init:  # the request makes it itself, of the others
            continue
        value = getattr(request, name)
        if name == "env":
            object.__setattr__(request, name, environment_folder(value))
        elif each.type == "str | Path | Sequence[str | Path]":
            object.__setattr__(request, name, as_paths(value))
        elif each.type.startswith("Sequence"):
            if isinstance(value, (str, bytes)):
                hint = f"{name}=[{value!r}]"
                raise UsageError(f"{name} must be a list of strings, not the string {value!r}", hint=hint)
            object.__setattr__(request, name, tuple(value))


def must_be_positive(**given: float | None) -> None:
    """Counts and times: left out, or above zero."""
    for name, value in given.items():
        if value is not None and value <= 0:
            raise UsageError(f"{name} must be a positive number, not {value}")


def as_paths(given: str | Path | Sequence[str | Path]) -> tuple[str | Path, ...]:
    """One file, or several."""
    return (given,) if isinstance(given, (str, Path)) else tuple(given)


def environment_folder(env: str | Path | None) -> Path | None:
    """The folder itself, whatever it is called: behind links, relative, with dots in it.

    A journal belongs to one folder, and what is below it is told by comparing paths: both need one spelling. Where it
    cannot be resolved (links in a circle), whoever reads it says so.
    """
    if env is None:
        return None
    try:
        return Path(env).expanduser().resolve()
    except (OSError, RuntimeError):
        return Path(env)


# Functions that are called with a request, or with what the request is made of.

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


def takes_request(make: Callable[P, Request]) -> Callable[[Callable[[Request], Answer]], Verb[P, Request, Answer]]:
    """Makes a verb of a function that takes a request. `make`: the class of the request.

    Its fields that are paths may be given as text.
    """
    import inspect  # noqa: PLC0415 - 6 ms, and who reads a binary needs none of it

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
        verb.request = make  # type: ignore[attr-defined] # for the page of the API
        return verb

    return decorate
