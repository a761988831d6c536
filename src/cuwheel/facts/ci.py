"""What workflows are made of: actions, runners, images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.rows.ci import Action


def actions() -> dict[str, Action]:
    return {each.name: each for each in tables().ci.action}


def runners() -> dict[str, str]:
    """By processor."""
    return {each.cpu: each.label for each in tables().ci.runner}


def image(cuda: str, cpu: str) -> str | None:
    """The image that has this CUDA, without a tag."""
    return next((each.name.format(cpu=cpu) for each in tables().ci.image if each.cuda == cuda), None)
