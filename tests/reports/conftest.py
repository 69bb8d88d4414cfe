"""Reports are looked at with their figures."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def with_figures(drawn_figures: None) -> None:
    """Figures are drawn."""
