"""How pages are made of templates: every value is escaped, a missing one is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def rendered(template: str, facts: Mapping[str, Any]) -> str:
    """Fills a template of `dpal/reports/templates`.

    Args:
      template: its file name.
      facts: what it shows.

    Returns:
      HTML.
    """
    environment = Environment(
        loader=PackageLoader("dpal.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(facts)
