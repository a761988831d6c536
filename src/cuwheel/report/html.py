"""A document as one page that needs nothing else: no network, no script from elsewhere."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from cuwheel import __version__, files
from cuwheel.report import documents
from cuwheel.report.document import Facts, Findings, Heading, HeatMap, Matrix, Paragraph, Table, Timeline, Verbatim

if TYPE_CHECKING:
    from cuwheel.report.answer import Answer
    from cuwheel.report.document import Block, Document

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,  # names in reports come from untrusted files
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def save(answer: Answer, path: Path) -> None:
    files.write(path, page(documents.of(answer, verbose=True)))


def page(document: Document) -> str:
    body = [Markup(_template(block).render(block=block)) for block in document.blocks]  # noqa: S704 - escaped within
    return _TEMPLATES.get_template("page.html.j2").render(title=document.title, body=body, version=__version__)


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
    (Findings, "findings"),
):
    _name.register(_type)(lambda _block, name=_file: name)
