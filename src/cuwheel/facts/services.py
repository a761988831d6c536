"""What services offer and accept: the actions and runners of workflows, and the public index of its uploads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.rows.services import Action, Identity, UploadIndex


# What workflows are made of: actions and runners.


def workflow_actions() -> dict[str, Action]:
    return {each.name: each for each in tables().ci.action}


def linux_runners() -> dict[str, str]:
    """GitHub's with Linux, by processor."""
    return _runners("github", "linux")


def windows_runner() -> tuple[str, str]:
    """Its processor and its label."""
    return next(iter(_runners("github", "windows").items()))


def gitlab_runners() -> dict[str, str]:
    """Tags by processor, for those that need one."""
    return _runners("gitlab", "linux")


def _runners(service: str, system: str) -> dict[str, str]:
    rows = tables().ci.runner
    return {each.cpu: each.label for each in rows if (each.service, each.system) == (service, system)}


# What the public index accepts of uploads.


def public_index() -> UploadIndex:
    return tables().indexes.public


def upload_identities() -> tuple[Identity, ...]:
    return tables().indexes.identity


def takes_platform(index: UploadIndex, tag: str) -> bool:
    return any(re.fullmatch(pattern, tag, re.ASCII) for pattern in index.platforms)
