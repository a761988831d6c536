"""A TARGET as the verbs that read take it: whatever can be surveyed, `name==version`, or the facts file of a wheel.

Nothing heavy is imported with it: to tell a name from a file takes neither the network nor the readers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError
from cuwheel.support import files, log
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.fix import Fix
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.support.wording import size
from cuwheel_core.wheel.tags import release_of_file

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.network.resolver import Release
    from cuwheel_core.device_code.libraries import Detail, Search


_PINNED = lazy_pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9.!+_-]+")


def is_pinned(target: str) -> bool:
    return bool(_PINNED.fullmatch(target))


def downloaded_if_pinned(target: str | Path, platform: str | None = None, python: str | None = None) -> str | Path:
    """`name==version` as the wheel downloaded for it; everything else as it is."""
    if not isinstance(target, str) or not is_pinned(target) or Path(target).exists():
        return target
    return wheel_of(target, platform=platform, python=python)


# `name==version` into a wheel on disk, through the user's own pip or uv and their configuration.


def wheel_of(pinned: str, *, platform: str | None = None, python: str | None = None) -> Path:
    """The wheel of `name==version` for this platform and Python or others, downloaded once and kept."""
    from cuwheel.network import addresses, transfer  # noqa: PLC0415 - for this alone

    with log.progress(f"asking your index for {pinned}"):
        release = _resolve(pinned, platform, python)
    if local := addresses.local_path(release.url):
        return local
    kept = files.cache_folder() / "wheels" / (release.sha256 or "unhashed")[:16] / release.file
    if not kept.exists():
        total = release.size or transfer.size_of(release.url)
        log.info("downloading %s (%s)", release_of_file(release.file), size(total) if total else "size unknown")
        transfer.download(release.url, kept, sha256=release.sha256, size=release.size)
    return kept


def _resolve(pinned: str, platform: str | None, python: str | None) -> Release:
    from cuwheel.network import resolver  # noqa: PLC0415 - as above

    wanted = resolver.Wanted(requirements=(pinned,), dependencies=False, platform=platform, python=python)
    try:
        return resolver.resolve(wanted)[0]
    except resolver.NotFoundError as error:
        asked = [*([f"Python {python}"] if python else []), *([platform] if platform else [])]
        named = f"{pinned} for {' and '.join(asked)}" if asked else pinned
        hint = "download it yourself (pip download --no-deps) and pass the file"
        if not error.answers:
            hint = "neither pip nor uv was found: " + hint
        build = Fix.run("cuwheel build", pinned, "--for", "GPUS", text="if there is only its source, make the wheel")
        raise UnknownNameError("wheel on your index", named, hint=(hint, *error.answers, build)) from error


# A TARGET as the verbs that read take it: whatever can be surveyed, or the facts file of a wheel.

_remembered_surveys: ContextVar[dict[tuple[object, ...], Survey] | None] = ContextVar("_remembered", default=None)


@contextlib.contextmanager
def remembered_surveys() -> Iterator[None]:
    """Within it a target is read once, whatever is asked about it. For questions about files that stay as they are."""
    token = _remembered_surveys.set({})
    try:
        yield
    finally:
        _remembered_surveys.reset(token)


def survey_target(
    target: str | Path,
    *,
    env: Path | None = None,
    detail: Detail = "rows",
    search: Search = "data",
    python: bool = True,
) -> Survey:
    """A file, folder or distribution as `survey.survey` reads it; of a facts file, the survey of its wheel."""
    known = _remembered_surveys.get()
    if known is None:
        return _survey_target(target, env, detail, search, python=python)
    key = (str(target), env, detail, search)
    if key not in known:
        known[key] = _survey_target(target, env, detail, search, python=True)  # the next question may be for a verdict
    return known[key]


def _survey_target(target: str | Path, env: Path | None, detail: Detail, search: Search, *, python: bool) -> Survey:
    path = Path(target)
    if not path.name.endswith(".cuwheel.json") or not path.is_file():
        from cuwheel.device_code import survey as stage  # noqa: PLC0415 - all readers of files

        return stage.survey(target, env=env, detail=detail, search=search, python=python)
    if detail == "entries" or search == "whole":
        raise UsageError(f"{target} has the facts of a wheel, not its bytes", hint="ask about the wheel itself")
    from cuwheel.device_code import wheel_facts  # noqa: PLC0415 - most targets have code in them

    return wheel_facts.survey(wheel_facts.load(path), target=str(target))
