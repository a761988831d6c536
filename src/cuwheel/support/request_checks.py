"""What the requests of all verbs have in common: lists become tuples, and what cannot be is refused at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def freeze(request: object, *names: str) -> None:
    """Fields that callers give as lists, as tuples. A lone text would be taken apart into its letters."""
    for name in names:
        value = getattr(request, name)
        if isinstance(value, (str, bytes)):
            raise UsageError(f"{name} must be a list of strings, not the string {value!r}", hint=f"{name}=[{value!r}]")
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


def resolve_environment(request: object) -> None:
    """The field `env` of a request."""
    object.__setattr__(request, "env", environment_folder(getattr(request, "env")))  # noqa: B009 - any request
