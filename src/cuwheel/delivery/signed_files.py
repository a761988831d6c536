"""Whether every file that is to be installed is in an index that somebody signed whom the user trusts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel import files
from cuwheel.delivery import index_folder, layout, signing, site
from cuwheel.network import addresses

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.resolver import Release

_MAIN_OF_CHANNEL = 2  # places above a simple index: that of its channel is one below the index's


def problem(releases: Sequence[Release], indexes: Sequence[str], signers: Path) -> str:
    """Which file is not, and why; nothing where all are."""
    if not releases:
        return ""
    listed: set[str] = set()
    reasons = []
    for index in indexes:
        found, reason = _listed(index, signers)
        listed |= found
        reasons += [f"{addresses.plain(index)}: {reason}"] if reason else []
    strangers = [each for each in releases if _sha256(each) not in listed]
    if not strangers:
        return ""
    more = f" (and {len(strangers) - 1} more)" if len(strangers) > 1 else ""
    why = f": {'; '.join(reasons)}" if reasons else ""
    return f"{strangers[0].file}{more} is in no index that is signed by any of {signers}{why}"


def _sha256(release: Release) -> str | None:
    local = addresses.local_path(release.url)
    return release.sha256 or (files.sha256(local) if local and local.is_file() else None)


def _listed(index: str, signers: Path) -> tuple[set[str], str]:
    """The hashes in the list that the index signs, or why it is not believed."""
    base = index.rstrip("/").removesuffix(f"/{layout.SIMPLE}")
    for place in (base, base.rpartition("/")[0])[:_MAIN_OF_CHANNEL]:
        found = site.of(place)
        sums, signature = found.read(layout.SUMS), found.read(layout.SIGNATURE)
        if sums is None:
            continue
        if signature is None:
            return set(), "the index is not signed"
        if wrong := signing.verify(sums, signature, signers).problem:
            return set(), wrong
        return set(index_folder.sums(sums).values()), ""
    return set(), f"it has no {layout.SUMS}"
