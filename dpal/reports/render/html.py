"""Reports as pages that open without a server: nothing is loaded, and nothing runs.

Every text is escaped, a missing one is an error, figures are part of the page, and the page itself
forbids scripts and addresses of any kind.
"""

from __future__ import annotations

import base64
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dpal.reports.render.svg import svg_of
from dpal.reports.report import Block, Picture, Report, pieces


def html_of(report: Report) -> str:
    """Writes a report as one page."""
    page = _environment().get_template("report.html")
    return page.render(report=report, has_pictures=bool(report.blocks(Picture)))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dpal.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"kind": _kind, "words": _words, "svg": svg_of, "base64": _base64}
    return environment


def _kind(block: Block) -> str:
    return "Text" if isinstance(block, str) else type(block).__name__


def _words(text: str) -> Markup:
    """A text, in which what stands between backticks is a word of a machine."""
    code = Markup("<code>{}</code>")
    parts = (code.format(part) if machine else escape(part) for machine, part in pieces(text))
    return Markup("").join(parts)


def _base64(png: bytes) -> str:
    return base64.b64encode(png).decode()
