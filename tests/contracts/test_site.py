"""The site of the documentation: it builds strictly, every page is on it, it loads nothing.

What it says of settings and commands is generated, so that these tests hold the generation to what
the models and the command line really have.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

pytest.importorskip("material", reason="NO SITE: pip install 'dpal[docs]'")

import yaml
from mkdocs.exceptions import PluginError

from docs import draw_pictures, site_pages
from dpal.runs.kinds import KINDS
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


class PlainLoader(yaml.SafeLoader):
    """Reads mkdocs.yml without calling what it names."""


PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def in_navigation(part):
    if isinstance(part, str):
        return {part}
    entries = part.values() if isinstance(part, dict) else part
    return {page for entry in entries for page in in_navigation(entry)}


def pages():
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    return written | {name for name in site_pages.generated() if name.endswith(".md")}


def test_every_page_is_in_the_navigation():
    navigation = yaml.load(SETTINGS, PlainLoader)["nav"]
    assert pages() == in_navigation(navigation)


@pytest.mark.parametrize("name", draw_pictures.pictures())
def test_drawn_pictures_are_up_to_date(name):
    drawn = (draw_pictures.IMAGES / name).read_text(encoding="utf-8")
    assert drawn == draw_pictures.pictures()[name], "run: make architecture"


class Loaded(HTMLParser):
    """Addresses that a page loads by itself: no links, which somebody has to follow."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in {"src", "srcset", "poster", "data", "action"} or (
                name == "href" and tag in {"link", "image", "use"}
            ):
                self.found.append(value or "")
            elif name == "style":
                self.found += addresses_of_styles(value or "")


def addresses_of_styles(text):
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", text)


def from_elsewhere(html):
    """What a page, or a style, would ask another machine for."""
    page = Loaded()
    page.feed(html)
    found = page.found + addresses_of_styles(html)
    return [one for one in found if re.match(r"(?:[a-z+.-]+:)?//", one, re.IGNORECASE)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


def test_it_builds_strictly_and_asks_no_other_machine_for_anything(site):
    html = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(html) > len(pages())  # and the page of what is not found
    asked = {path.name: from_elsewhere(text) for path, text in html.items()}
    assert {name: found for name, found in asked.items() if found} == {}
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [found for text in styles if (found := from_elsewhere(text))] == []
    assert 'class="mermaid"' not in "".join(html.values())  # it would be drawn by a foreign script


def test_the_python_interface_is_on_it(site):
    import dpal

    text = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert [name for name in dpal.__all__ if f'.{name}"' not in text] == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://example.org/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        '<img src="http://example.org/x.png">',
        "<style>@font-face {src: url(https://example.org/f.woff2)}</style>",
        '<div style="background: url(//example.org/x.png)"></div>',
        '@import "https://example.org/x.css";',
    ],
)
def test_what_another_machine_would_be_asked_for_is_found(html):
    assert len(from_elsewhere(html)) >= 1


def test_links_to_follow_and_own_files_are_no_requests():
    html = '<a href="https://example.org"></a><img src="../x.png"><link href="site.css">'
    assert from_elsewhere(html) == []


# --- what is generated


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_of_a_kind_is_on_its_page(kind):
    page = site_pages.generated()[f"reference/settings-{kind}.md"]

    def paths(schema, whole, above=""):
        for name, field in schema.get("properties", {}).items():
            yield f"{above}{name}"
            for part in [field, *field.get("anyOf", [])]:
                if "$ref" in part:
                    inner = whole["$defs"][part["$ref"].rpartition("/")[2]]
                    yield from paths(inner, whole, f"{above}{name}.")

    schema = KINDS[kind].settings.model_json_schema()
    expected = list(paths(schema, schema))
    assert len(expected) > 20
    assert [path for path in expected if f"| `{path}` |" not in page] == []


def test_a_setting_has_its_values_its_default_and_its_meaning():
    page = site_pages.generated()["reference/settings-campaign.md"]
    line = next(line for line in page.splitlines() if line.startswith("| `privacy.adjacency` |"))
    name, values, default, meaning = (cell.strip() for cell in line.strip("|").split(" |"))
    assert (values, default) == ("`zero_out`, `replace_one`", '`"zero_out"`'), name
    assert "neighbouring" in meaning


def test_links_are_turned_to_where_pages_are():
    def turned(text):
        return site_pages.with_links(text, source="mlflow/README.md", place="reference/mlflow.md")

    assert turned("[a](../docs/ledger.md#entries)") == "[a](../ledger.md#entries)"
    assert turned("[a](../CHANGELOG.md)") == "[a](../project/changelog.md)"
    assert turned("[b](../docs/notebooks/2-your-csv.ipynb)") == "[b](../notebooks/2-your-csv.md)"
    assert turned("[`x`](../dpal/api.py)") == "`x` (`dpal/api.py`)"
    assert turned("```\n[a](gone.md)\n```") == "```\n[a](gone.md)\n```"
    with pytest.raises(PluginError, match=r"gone\.md"):
        turned("[a](gone.md)")
