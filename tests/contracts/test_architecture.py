"""The picture of the rooms is that of the import contracts, and every room says what it is."""

from __future__ import annotations

import re

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


def named_paths(text):
    """Paths from the top of the project that a text names, as `dpal/...` in backquotes."""
    return re.findall(r"`((?:dpal|tasks|flows|tests|docs)/[\w/.]+)`", text)


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(architecture.ROOT).as_posix()
                   for pattern in ("*.md", "docs/**/*.md", "mlflow/*.md")
                   for path in architecture.ROOT.glob(pattern) if path.name != "CHANGELOG.md")
)  # fmt: skip
def test_what_a_page_points_to_is_there(page):
    named = named_paths((architecture.ROOT / page).read_text(encoding="utf-8"))
    places = {name: architecture.ROOT / name for name in named}
    lost = [name for name, place in places.items()
            if not (place.exists() or place.with_suffix(".py").exists())]  # fmt: skip
    assert not lost


def test_every_file_of_the_page_of_changes_is_there():
    page = architecture.PAGE.read_text(encoding="utf-8")
    names = set(re.findall(r"`([a-z]\w*\.py)`", page))
    there = {path.name for room in ("dpal", "tasks", "flows", "tests")
             for path in (architecture.ROOT / room).rglob("*.py")}  # fmt: skip
    there |= {path.name for path in architecture.ROOT.glob("*.py")}
    assert names
    assert names - there == set()


def test_a_page_that_points_nowhere_is_noticed():
    assert named_paths("see `dpal/gone.py` and `dpal.gone`") == ["dpal/gone.py"]
    assert not (architecture.ROOT / "dpal/gone.py").exists()
