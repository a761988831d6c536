"""`cuwheel publish --upload`: wheels to an index that takes uploads, by `uv publish`; its rules are checked before."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.delivery import arrivals, index_folder
from cuwheel.delivery.publishing import PublishedWheel, merged
from cuwheel.facts import services
from cuwheel.network import addresses, resolver
from cuwheel.support import extras, masking, process
from cuwheel.support.finding import Finding
from cuwheel.support.wording import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.delivery.arrivals import Arrival
    from cuwheel.delivery.publishing import Outcome
    from cuwheel.facts.rows.indexes import UploadIndex

PUBLIC = "public"  # in place of an address
_TIMEOUT_S = 6 * 3600.0
_WIDE = "10000"
_LINES = 12
_MARKUP = re.compile(r"<[^<>]{0,200}>")


class Uploaded(Struct, frozen=True, kw_only=True):
    """`place`: the address, without a login."""

    place: str
    wheels: tuple[PublishedWheel, ...]
    findings: tuple[Finding, ...]


def upload(
    wheels: Sequence[str | Path],
    url: str,
    *,
    limit: int | None = None,
    platform: str | None = None,
    dry_run: bool = False,
) -> Uploaded:
    """`limit`: bytes that a file may have there, where the index has raised its usual limit for this project.

    The first that the server refuses is the last: what is wrong with one (a login) is mostly wrong with all.
    """
    program = extras.needed("uv", "uploading a wheel")
    given = arrivals.read_arrivals(wheels, platform)
    found = [(each.name, finding) for each in given for finding in (*each.findings, *_against(each, url, limit))]
    refused = {name for name, finding in found if finding.severity == "error"}
    found += _together(given, url)
    outcomes: dict[str, Outcome] = dict.fromkeys(refused, "refused")
    if not refused and not dry_run:
        for each in given:
            problem = _uploaded(program, each.path, url)
            outcomes[each.name] = "refused" if problem else "uploaded"
            if problem:
                found.append((each.name, problem))
                break
    return Uploaded(
        place=addresses.parted(url)[0],
        wheels=tuple(
            _row(each, outcomes.get(each.name, "planned" if dry_run and not refused else "skipped")) for each in given
        ),
        findings=tuple(merged(found)),
    )


def _together(given: Sequence[Arrival], url: str) -> Iterator[tuple[str, Finding]]:
    """What the public index says against all files of a project together; what it has already, it alone knows."""
    index = services.public_index()
    sizes: Counter[str] = Counter()
    for each in given:
        wheel = index_folder.wheel_name(each.name)
        sizes[index_folder.project_of(wheel) if wheel else ""] += each.size
    for project, total in sizes.items() if _is_public(url) else ():
        if total > index.largest_project:
            message = f"these have {size(total)}, and {index.name} takes {size(index.largest_project)} of a project"
            fix = "ask the index for more room, slim the wheels (cuwheel slim), or publish them in an index of your own"
            yield project, Finding(rule="upload-project-size", severity="warning", message=message, fix=fix)


def _row(arrival: Arrival, outcome: Outcome) -> PublishedWheel:
    return PublishedWheel(
        file=arrival.name,
        sha256=arrival.sha256,
        size=arrival.size,
        added=outcome == "uploaded",
        outcome=outcome,
        channels=(),
    )


def _against(arrival: Arrival, url: str, limit: int | None) -> Iterator[Finding]:
    """What the rules of the public index say against a wheel; any other decides when it is asked."""
    index, wheel = services.public_index(), index_folder.wheel_name(arrival.name)
    if wheel is None or not _is_public(url):
        return
    version = index_folder.version_of(wheel.version)
    if version is not None and version.local and not index.local_versions:
        yield Finding(
            rule="upload-local-version",
            severity="error",
            message=f"{index.name} takes no local versions (+{version.local})",
            fix="build it with --naming suffix (NAME-cu13) or --merge, or publish it in an index of your own (--to)",
        )
    if wheel.variant is not None and not index.variants:
        yield Finding(
            rule="upload-variant",
            severity="error",
            message=f"{index.name} does not take variant wheels yet",
            fix="upload the plain wheel, and publish variants in an index of your own (--to)",
        )
    strange = [each for each in wheel.platforms if not services.takes_platform(index, each)]
    if strange:
        yield Finding(
            rule="upload-platform",
            severity="error",
            message=f"{index.name} does not take the platform {', '.join(strange)}",
            fix="make it portable first: cuwheel repair WHEEL",
        )
    if index.normalised_names and wheel.name != (named := index_folder.project_of(wheel).replace("-", "_")):
        yield Finding(
            rule="upload-name",
            severity="error",
            message=f"{index.name} wants the name to begin with {named!r}, not {wheel.name!r}",
            fix="build it again with a current build backend, which spells the name this way",
        )
    yield from _too_large(arrival, index, limit)


def _is_public(url: str) -> bool:
    return url == PUBLIC or resolver.is_public(url)


def _too_large(arrival: Arrival, index: UploadIndex, limit: int | None) -> Iterator[Finding]:
    largest = limit or index.largest
    if arrival.size > largest:
        yield Finding(
            rule="upload-size",
            severity="error",
            message=f"it has {size(arrival.size)}, and {index.name} takes files of at most {size(largest)}"
            + ("" if limit else ", unless it has raised that for your project"),
            fix="cuwheel slim makes it smaller; where the index raised its limit: --upload-limit 300MB",
        )


def _uploaded(program: str, wheel: Path, url: str) -> Finding | None:
    """What the server, or uv, has against it."""
    address, login = addresses.parted(url)
    environ = {**os.environ, "COLUMNS": _WIDE}  # sentences, not lines wrapped for a terminal
    if login:  # in its environment: words of a command can be seen by everybody on the machine
        environ |= {"UV_PUBLISH_USERNAME": login.username, "UV_PUBLISH_PASSWORD": login.password or ""}
    where = () if url == PUBLIC else ("--publish-url", address)  # uv's own default is the public index
    command = (program, "publish", *where, "--no-progress", wheel)
    done = process.run(command, timeout=_TIMEOUT_S, check=False, env=environ)
    if done.status == 0:
        return None
    printed = masking.known(_MARKUP.sub("", done.stderr), environ)
    lines = [line.strip() for line in printed.splitlines() if line.strip() and "{" not in line]
    return Finding(
        rule="upload-failed",
        severity="error",
        message="it was not uploaded",
        evidence=tuple(lines[-_LINES:]),
        fix="check the address, the login (UV_PUBLISH_TOKEN, or _USERNAME and _PASSWORD), and whether it is there"
        + (f"; a release takes no file after {services.public_index().days} days" if _is_public(url) else ""),
    )
