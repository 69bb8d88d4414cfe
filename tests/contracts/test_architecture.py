"""The picture of the rooms is that of the import contracts, and every room says what it is."""

from __future__ import annotations

import pytest

from docs import draw_architecture as architecture


def test_the_picture_is_up_to_date():
    page = architecture.PAGE.read_text(encoding="utf-8")
    assert architecture.written(page) == page, "run: make architecture"


@pytest.mark.parametrize(
    "room", sorted(path.parent.name for path in architecture.ROOT.glob("dpal/*/__init__.py"))
)
def test_every_room_is_in_the_picture(room):
    assert f"dpal.{room}" in {name for layer in architecture.layers() for name in layer}


def test_a_room_that_says_something_else_is_noticed():
    page = architecture.PAGE.read_text(encoding="utf-8")
    stale = page.replace("Files: atomic writes", "Files: other writes")
    assert stale != page
    assert architecture.written(stale) == page
