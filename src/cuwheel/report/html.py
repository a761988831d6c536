"""A document as one page that needs nothing else: no network, no script from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from cuwheel.report.answer import document_of
from cuwheel.report.document import Block, Document, Heading
from cuwheel.report.drawings import Chart, drawn
from cuwheel.support import files, pages, quoting
from cuwheel.version import __version__
from cuwheel_core.support import printable

if TYPE_CHECKING:
    from cuwheel.support.answer import Answer

_TEMPLATES = pages.html_templates(Path(__file__).with_name("templates"))
_TEMPLATES.filters["command_line"] = quoting.command_of_fix


_WORTH_LISTING = 3  # headings: fewer are seen at once


def save(answer: Answer, path: Path) -> None:
    files.write(path, printable.text(page(document_of(answer, verbose=True))))


def blocks(document: Document) -> list[Markup]:
    """Its blocks, for a page that is there already."""
    return [Markup(_drawn(block, number)) for number, block in enumerate(document.blocks)]  # noqa: S704 - escaped within


def page(document: Document) -> str:
    # The first heading is the title.
    headings = [(number, each.text) for number, each in enumerate(document.blocks) if isinstance(each, Heading)][1:]
    contents = headings if len(headings) >= _WORTH_LISTING else []
    return _TEMPLATES.get_template("page.html.j2").render(
        title=document.title, body=blocks(document), contents=contents, version=__version__
    )


def _drawn(block: Block, number: int) -> str:
    """`HeatMap` is drawn by `heat_map.html.j2`."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(block).__name__).lower()
    shown = drawn(block) if isinstance(block, Chart) else block
    return _TEMPLATES.get_template(f"{name}.html.j2").render(block=shown, number=number)
