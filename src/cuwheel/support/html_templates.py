"""Templates of HTML: everything is escaped, since names in it come from untrusted files."""

from __future__ import annotations

from pathlib import Path

import jinja2

SHARED = Path(__file__).with_name("templates")  # the style that all pages have


def environment(folder: Path) -> jinja2.Environment:
    """Of a room's own templates, with the shared ones."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, SHARED]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
