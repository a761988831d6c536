"""A document as one page that needs nothing else: no network, no script from elsewhere."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from cuwheel.report import chart
from cuwheel.report.answer import Answer, document_of
from cuwheel.report.document import (
    Chart,
    Facts,
    Findings,
    Heading,
    HeatMap,
    Matrix,
    Paragraph,
    Table,
    Timeline,
    Verbatim,
)
from cuwheel.support import files, wording
from cuwheel.version import __version__

if TYPE_CHECKING:
    import jinja2

    from cuwheel.report.document import Block, Document

_TEMPLATES = wording.html_templates(Path(__file__).with_name("templates"))


_WORTH_LISTING = 3  # headings: fewer are seen at once


def save(answer: Answer, path: Path) -> None:
    files.write(path, wording.printable_text(page(document_of(answer, verbose=True))))


def blocks(document: Document) -> list[Markup]:
    """Its blocks, for a page that is there already."""
    return [
        Markup(_template(block).render(block=_drawn(block), number=number))  # noqa: S704 - escaped within
        for number, block in enumerate(document.blocks)
    ]


def page(document: Document) -> str:
    # The first heading is the title.
    headings = [(number, each.text) for number, each in enumerate(document.blocks) if isinstance(each, Heading)][1:]
    contents = headings if len(headings) >= _WORTH_LISTING else []
    return _TEMPLATES.get_template("page.html.j2").render(
        title=document.title, body=blocks(document), contents=contents, version=__version__
    )


def _drawn(block: Block) -> object:
    return chart.drawn(block) if isinstance(block, Chart) else block


def _template(block: Block) -> jinja2.Template:
    return _TEMPLATES.get_template(f"{_name(block)}.html.j2")


@singledispatch
def _name(block: Block) -> str:
    raise NotImplementedError(type(block).__name__)


for _type, _file in (
    (Heading, "heading"),
    (Paragraph, "paragraph"),
    (Verbatim, "verbatim"),
    (Facts, "facts"),
    (Table, "table"),
    (HeatMap, "heat_map"),
    (Matrix, "matrix"),
    (Timeline, "timeline"),
    (Chart, "chart"),
    (Findings, "findings"),
):
    _name.register(_type)(lambda _block, name=_file: name)
