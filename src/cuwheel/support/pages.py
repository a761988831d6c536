"""Templates of HTML: everything is escaped, since names in it come from untrusted files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


SHARED_TEMPLATES = Path(__file__).with_name("templates")  # the style that all pages have


def html_templates(folder: Path) -> jinja2.Environment:
    """An environment with a room's own templates and the shared ones."""
    import jinja2  # noqa: PLC0415 - takes long, and most answers are no pages

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, SHARED_TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
