"""Requirements into files of the user's indexes, chosen by their own pip or uv and all of its configuration.

What either of them is configured with counts: uv is handed pip's indexes where it has none of its own. Where uv alone
is configured pip is not asked: it would look for private names on the public index.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel.errors import MissingExtraError, NetworkError, ToolError, UnavailableError
from cuwheel.network import addresses, client, settings, venvs
from cuwheel.support import codec, files, log, process
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.facts import versions
from cuwheel_core.support import bounded
from cuwheel_core.wheel.tags import MACOS, OF_CUDA, WheelName, normalised, parts_of, platform_of

if TYPE_CHECKING:
    from packaging.tags import Tag

    from cuwheel.network.settings import Settings, ToolSettings

_RESOLVE_S = 300.0
_REASON_LINES = 4
_ASK_S = 60.0
# Of what uv would do: `foo==1.0`, `foo==1.0 (from ADDRESS)`, in a dry run `foo @ ADDRESS`.
_ADDED = re.compile(r"^ \+ ([^\s=@]+)(?:==(\S+?))?(?: (?:\(from|@) (\S+?)\)?)?$", re.MULTILINE)
_DEFAULT_INDEX = re.compile(r"default:?\s+<?(https://[^\s>]+/simple)")
_OF_INDEXES = ("_internal", "models", "index.py")
_WRITTEN_INDEX = re.compile(rb"^PyPI = PackageIndex\(\s*[\"'](https://[^\"'\s]+)[\"']", re.MULTILINE)
_LARGEST_SOURCE = 1 << 20
_NO_SUCH_VERSION = re.compile(r"\bno\s+versions?\s+of\b|\b(?:is|are)\s+available\b")  # uv's words, wrapped
_OLDEST_OF_UV = "2.17"  # glibc of the platforms that it has names for
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
# Of a tool's answer that is not what it should be.
_STRANGE = (msgspec.DecodeError, KeyError, IndexError, TypeError, AttributeError, ValueError)


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an index. `url` has no login in it; `file` is safe to be the name of one. `index`: that lists it."""

    name: str
    version: str
    file: str
    url: str
    sha256: str | None = None
    size: int | None = None
    index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`platform`: a wheel tag's, where it is not this machine's. `python`: `3.12`, where it is not the one that asks.

    `source`: source archives instead of wheels. `order`: of the tags that an installer there takes, where somebody
    knows them better than by the platform alone.
    """

    requirements: tuple[str, ...]
    dependencies: bool = True
    offline: bool = False
    platform: str | None = None
    python: str | None = None
    source: bool = False
    order: Mapping[str, int] | None = None


class NotFoundError(UnavailableError):
    """The indexes were asked, and do not have it. `answers`: what the tools said."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.answers = tuple(answers)
        super().__init__("; ".join(answers) or "neither pip nor uv was found")


def resolve(wanted: Wanted) -> tuple[Release, ...]:
    """Resolves by the first tool that answers. pip first: its configuration is the older custom."""
    found = settings.read_settings()
    failures = {} if wanted.offline else _failures(found, wanted)
    answers = []
    tools = tuple(_tools(found, wanted))
    for ask, its in tools:
        stuck = _is_stuck(its, failures)
        if stuck and not its.find_links:
            continue
        try:
            if releases := ask(replace(wanted, offline=True) if stuck else wanted):
                return releases
        except (CuwheelError, *_STRANGE) as error:
            if words := client.words_of_no_connection(str(error)):
                raise client.NotReachableError("pip and uv", words, "index") from error
            answers.append(_telling(error))
    if failures and all(_is_stuck(its, failures) for _, its in tools):
        raise next(iter(failures.values()))
    raise NotFoundError(answers)


def resolve_with(wanted: Wanted, environ: dict[str, str]) -> tuple[Release, ...]:
    """For another machine, with these settings: by uv, which judges conditions as they are there; else by pip."""
    return _by_uv(wanted, environ) or _by_pip(wanted, environ)


def _failures(found: Settings, wanted: Wanted) -> dict[str, NetworkError]:
    match = _PROJECT.match(wanted.requirements[0])
    project = normalised(match[0]) if match else ""
    urls = {each.url: each for _, its in _tools(found, wanted) for each in its.indexes}
    failures = client.unreachable_indexes(urls.values(), project)
    if len(failures) < len(urls):
        for error in failures.values():
            log.warning("%s: asking the other indexes", error.message)
    return failures


def _tools(found: Settings, wanted: Wanted) -> Iterator[tuple[Callable[[Wanted], tuple[Release, ...]], ToolSettings]]:
    """In their order, each with the settings that it will have. pip would run a source's own code to learn its name."""
    pip_is_meant = found.pip.chooses or not found.uv.chooses
    if pip_is_meant and not wanted.source:
        yield _by_pip, found.pip
    yield _by_uv, found.uv if found.uv.chooses or not found.pip.chooses else found.pip


def _is_stuck(its: ToolSettings, failures: dict[str, NetworkError]) -> bool:
    """Whether a tool would wait for nothing: none of the indexes that it asks can be reached."""
    return bool(its.indexes) and not its.public and all(each.url in failures for each in its.indexes)


def _telling(error: Exception) -> str:
    """The lines of a tool's output that say most: pip and uv begin them with ERROR or a cross; uv has a reason too."""
    lines = [line.strip(" |") for line in str(error).splitlines()]
    telling = [line for line in lines[1:] if "ERROR" in line or line.startswith(("×", "error"))]
    because = next((number for number, line in enumerate(lines) if line.startswith("cause: Because")), len(lines))
    reason = " ".join(lines[because : because + _REASON_LINES])  # it is wrapped to the width of a terminal
    return " ".join(filter(None, [lines[0], *telling[-1:], reason])) if lines else repr(error)


@functools.cache
def public_index() -> str:
    """The index that pip and uv ask where nobody names one, as pip's source has it, else as their own help says."""
    if found := _index_written_in_pip():
        return found
    for command in _that_say_their_index():
        try:
            printed = process.run(command, timeout=_ASK_S, check=False, env=pip_environment()).stdout
        except CuwheelError as error:
            log.debug("%s: %s", command[0], error.message)
            continue
        if match := _DEFAULT_INDEX.search(printed):
            return match[1]
    raise UnavailableError("neither pip nor uv was found, and no index is configured", hint="--index URL")


def _index_written_in_pip() -> str | None:
    """The index in the source of the pip beside cuwheel: to start pip, twice, takes longer than the rest of `find`."""
    spec = importlib.util.find_spec("pip")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        with contextlib.suppress(UnreadableError):
            source = files.read_limited(Path(folder, *_OF_INDEXES), _LARGEST_SOURCE, "a source of pip")
            if match := _WRITTEN_INDEX.search(source):
                return f"{match[1].decode().rstrip('/')}/simple"
    return None


def _that_say_their_index() -> Iterator[list[str]]:
    """One after the other: where uv is, no Python is started to look for a pip."""
    if program := venvs.uv():
        yield [program, "pip", "install", "--help"]
    if words := venvs.pip():
        yield [*words, "download", "--help"]


def is_public(url: str) -> bool:
    """Whether a server belongs to the public index: that which takes its uploads has a name of its own."""
    host, public = (addresses.origin(each)[1].lower() for each in (url, public_index()))
    return host == public or host.endswith(f".{public}")


def pip_environment() -> dict[str, str]:
    """The user's environment, but without patience for servers that are not there."""
    asked = {"retries", "default-timeout", "timeout"} & settings.pip_options(os.environ).keys()
    quick = {} if asked else {"PIP_RETRIES": "1"}
    return {**settings.for_installers(), **quick, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _by_pip(wanted: Wanted, environ: dict[str, str] | None = None) -> tuple[Release, ...]:
    program = venvs.pip()
    if program is None:
        return ()
    options = ["--dry-run", "--quiet", "--ignore-installed", "--only-binary=:all:"]
    options += [] if wanted.dependencies else ["--no-deps"]
    options += ["--no-index"] if wanted.offline else []
    with tempfile.TemporaryDirectory() as unused:
        options += [word for each in _platforms(wanted) for word in ("--platform", each)]
        options += ["--python-version", wanted.python] if wanted.python else []
        options += ["--target", unused] if wanted.platform or wanted.python else []
        command = [*program, "install", *options, "--report", "-", *wanted.requirements]
        done = venvs.ask_installer(command, timeout=_RESOLVE_S, env=environ or pip_environment())
    return tuple(_from_report(each) for each in codec.decode(done.stdout)["install"])


def _platforms(wanted: Wanted) -> Iterable[str]:
    """pip takes those that it is reported, and no older or plainer ones."""
    if wanted.order is None:
        return [wanted.platform] if wanted.platform else []
    return dict.fromkeys(platform for tag in wanted.order if (platform := parts_of(tag)[2]) != "any")


def _from_report(reported: dict[str, Any]) -> Release:
    hashes = reported["download_info"].get("archive_info", {}).get("hashes", {})
    metadata = reported["metadata"]
    return _release(metadata["name"], metadata["version"], {"url": reported["download_info"]["url"], "hashes": hashes})


def _by_uv(wanted: Wanted, given: dict[str, str] | None = None) -> tuple[Release, ...]:
    program = venvs.uv()
    if program is None:
        return ()
    environ, options = settings.settings_for_uv(settings.read_settings(given))
    if not {"UV_HTTP_RETRIES", "UV_HTTP_TIMEOUT"} & environ.keys():
        environ["UV_HTTP_RETRIES"] = "1"
    # Its own choice of an interpreter may be another, or one that it would download.
    options += ["--format", "pylock.toml", "--python", sys.executable]
    options += [] if wanted.source else ["--only-binary=:all:"]
    options += [] if wanted.dependencies else ["--no-deps"]
    options += ["--offline"] if wanted.offline else []
    options += ["--python-platform", _uv_platform(wanted.platform)] if wanted.platform else []
    options += ["--python-version", wanted.python] if wanted.python else []
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "requirements.in")
        listed.write_text("".join(f"{each}\n" for each in wanted.requirements), encoding="utf-8")
        command = [program, "--quiet", "pip", "compile", str(listed), *options]
        try:
            done = venvs.ask_installer(command, timeout=_RESOLVE_S, env=environ)
        except ToolError as error:
            # uv believes a page for ten minutes: what was published in them is not there until the server is asked.
            if wanted.offline or not _NO_SUCH_VERSION.search(error.output):
                raise
            done = venvs.ask_installer([*command, "--refresh"], timeout=_RESOLVE_S, env=environ)
    return tuple(_from_lock(each, wanted) for each in codec.parse_toml(done.stdout.encode())["packages"])


def _from_lock(package: dict[str, Any], wanted: Wanted) -> Release:
    """uv lists every wheel that fits; the one that an installer would take comes first."""
    if wanted.source:
        if "sdist" not in package:
            raise NotFoundError(["it only has wheels"])
        return _release(package["name"], package["version"], package["sdist"])
    wheels = [each for each in package.get("wheels", ()) if _name_in(each)]
    if not wheels:
        raise NotFoundError(["it has no wheels"])
    entry = min(wheels, key=lambda each: _rank(_name_in(each), wanted))
    return _release(package["name"], package["version"], entry)


def _name_in(entry: dict[str, Any]) -> str:
    """uv writes `path` for a file of a local index."""
    return addresses.file_name(str(entry.get("url") or entry["path"]))


def _rank(name: str, wanted: Wanted) -> int:
    """The place among the tags that an installer there would take, the best first."""
    wheel = WheelName.parse(name)
    if wheel is None:
        return sys.maxsize
    if wanted.order is not None:
        return min(wanted.order.get(tag, sys.maxsize) for tag in wheel.tags)
    return next((rank for rank, tag in enumerate(_tags(wanted)) if str(tag) in wheel.tags), sys.maxsize)


_LAST_MINOR = 99  # of Python: each has tags of its own, and one of nine digits would take all memory


def _tags(wanted: Wanted) -> Iterator[Tag]:
    from packaging import tags  # noqa: PLC0415

    if wanted.platform is None and wanted.python is None:
        return tags.sys_tags()
    version = [
        min(bounded.digits(each), _LAST_MINOR) for each in (wanted.python or "").split(".")[:2] if each.isdecimal()
    ] or sys.version_info[:2]
    platforms = [wanted.platform] if wanted.platform else list(tags.platform_tags())
    own = f"cp{''.join(map(str, version))}"
    return chain(
        tags.cpython_tags(version, platforms=platforms), tags.compatible_tags(version, own, platforms=platforms)
    )


def _uv_platform(tag: str) -> str:
    """uv names platforms otherwise than wheels do."""
    made_for = platform_of(tag)
    cpu = made_for.cpu if made_for.cpu in OF_CUDA else "x86_64"
    if made_for.os == "windows":
        return "windows"
    if made_for.os == MACOS:
        return f"{cpu}-apple-darwin"
    if made_for.glibc and versions.at_least(made_for.glibc, _OLDEST_OF_UV):
        return f"{cpu}-manylinux_{made_for.glibc.replace('.', '_')}"
    return f"{cpu}-unknown-linux-gnu"


def _release(name: str, version: str, entry: dict[str, Any]) -> Release:
    url = addresses.plain(str(entry.get("url") or entry["path"]).partition("#")[0])
    sha256 = entry.get("hashes", {}).get("sha256")
    size = entry.get("size")
    return Release(
        name=name,
        version=version,
        url=url,
        file=addresses.file_name(url),
        sha256=sha256.lower() if isinstance(sha256, str) else None,
        size=size if isinstance(size, int) and size > 0 else None,
    )


def would_install(
    interpreter: Path, requirements: Sequence[str], environ: dict[str, str], *, own_first: bool = False
) -> tuple[Release, ...]:
    """What has to be installed or replaced in an environment so that these are there: wheels, and no code runs.

    pip says that with addresses and hashes. Where there is none, uv says the versions, and then where they are.
    `own_first`: a name comes from the first index that has it, which is uv's way and not pip's.
    """
    with log.progress("asking which packages that needs"):
        if own_first and venvs.uv():
            return _by_uv_into(interpreter, requirements, environ)
        try:
            program = venvs.pip_for(interpreter)
        except MissingExtraError:
            return _by_uv_into(interpreter, requirements, environ)
        return _by_pip_into(program, requirements, environ)


def _by_pip_into(program: Sequence[str], requirements: Sequence[str], environ: dict[str, str]) -> tuple[Release, ...]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = ["--dry-run", "--only-binary=:all:", "--report", str(report)]
        venvs.ask_installer([*program, "install", *options, *requirements], timeout=_RESOLVE_S, env=environ)
        reported = codec.decode(report.read_bytes())["install"]
    for each in reported:
        # Of addresses, only those that were asked for: a wheel's own requirements may lead anywhere.
        if each["is_direct"] and not each["requested"]:
            raise venvs.SourceRefusedError(
                f"{each['metadata']['name']} @ {addresses.plain(each['download_info']['url'])}"
            )
    return tuple(map(_from_report, reported))


def _by_uv_into(interpreter: Path, requirements: Sequence[str], environ: dict[str, str]) -> tuple[Release, ...]:
    its_environ, options = settings.settings_for_uv(settings.read_settings(environ))
    command = [venvs.uv() or "uv", "pip", "install", "--dry-run", "--only-binary=:all:", "--python", str(interpreter)]
    left = interpreter.parent.parent / ".lock"  # which uv leaves in an environment, even in a dry run
    was_there = left.exists()
    try:
        done = venvs.ask_installer([*command, *options, *requirements], timeout=_RESOLVE_S, env=its_environ)
    finally:
        if not was_there:
            left.unlink(missing_ok=True)
    added = _ADDED.findall(done.stdout + done.stderr)
    by_address = tuple(
        _release(name, version or (wheel.version if wheel else ""), {"url": url})
        for name, version, url in added
        if url
        for wheel in (WheelName.parse(addresses.file_name(url)),)
    )
    pins = tuple(f"{name}=={version}" for name, version, url in added if not url)
    if not pins:
        return by_address
    listed = ["--format", "pylock.toml", "--only-binary=:all:", "--no-deps", "--python", str(interpreter), *options]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requirements.in")
        file.write_text("".join(f"{each}\n" for each in pins), encoding="utf-8")
        command = [venvs.uv() or "uv", "--quiet", "pip", "compile", str(file), *listed]
        lock = venvs.ask_installer(command, timeout=_RESOLVE_S, env=its_environ).stdout
    wanted = Wanted(requirements=pins, python=venvs.version_of(interpreter))
    return (*by_address, *(_from_lock(each, wanted) for each in codec.parse_toml(lock.encode())["packages"]))
