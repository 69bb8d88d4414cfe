"""Pages of the site that are generated, as a hook of MkDocs (`hooks` in mkdocs.yml).

What the program itself says is not written twice: settings come from the configuration models,
commands from the command line, notebooks from what they printed when they were last executed.
Pages that lie outside of docs (the changelog, say) are brought in, and links are turned to where
their targets are on the site.

`make docs` builds the site into build/site.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from dpal.config.capc import (
    CnnConfig,
    GuardianConfig,
    QuerierConfig,
    SiteConfig,
    SitesVoteConfig,
)
from dpal.config.capc_retraining import RetrainingConfig
from dpal.config.section import Section
from dpal.config.watch import WatchConfig
from dpal.runs.kinds import KINDS

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 96  # of the help of commands

# Pages of the repository outside of docs, and where they are on the site.
BROUGHT_IN = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "mlflow/README.md": "reference/mlflow.md",
    "README.md": "index.md",
}
_LINK = re.compile(
    r"(?P<before>\[(?P<label>[^\[\]]*)\]\()(?P<target>[^()\s#]*)(?P<anchor>#[^()\s]*)?\)"
)
_NAMED_BLOCK = re.compile(r"^(```sh) [\w-]+$", re.MULTILINE)  # a test finds it by its name
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to those that lie in docs."""
    brought: dict[str, str | bytes] = {**generated(), **pictures()}
    for name, content in brought.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links of pages in docs that lead out of docs."""
    place = page.file.src_uri
    brought = {there: here for here, there in BROUGHT_IN.items() if here != "README.md"}
    markdown = _NAMED_BLOCK.sub(r"\1", markdown)
    return with_links(markdown, source=brought.get(place, f"docs/{place}"), place=place)


def generated() -> dict[str, str]:
    """Every generated page, by its place on the site."""
    pages = {"reference/commands.md": commands_page()}
    for name, kind in KINDS.items():
        title = f"Settings of {kind.in_sentences}"
        pages[f"reference/settings-{name}.md"] = settings_page(title, kind.does, kind.settings)
    pages["reference/settings-watch.md"] = settings_page(
        "Settings of a watched folder", "`dpal watch` starts campaigns from new files.", WatchConfig
    )
    pages["reference/settings-capc.md"] = settings_page(
        "Settings of a vote between sites",
        "Every party has the same file of the vote. Its own settings are in a file of its own.",
        SitesVoteConfig,
    )
    for party, settings in (
        ("the guardian", GuardianConfig),
        ("a site", SiteConfig),
        ("who asks", QuerierConfig),
        ("who asks and retrains", RetrainingConfig),
        ("one of three parties that evaluate a small net", CnnConfig),
    ):
        pages["reference/settings-capc.md"] += _settings(f"\n## Of {party}", settings)
    for source, place in BROUGHT_IN.items():
        if source != "README.md":
            pages[place] = (ROOT / source).read_text(encoding="utf-8")
    for notebook in _notebooks():
        pages[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook)
    return pages


def pictures() -> dict[str, bytes]:
    """What cells of notebooks draw, by its place on the site."""
    return {
        f"notebooks/{name}": base64.b64decode(picture)
        for notebook in _notebooks()
        for name, picture in _drawn(notebook).items()
    }


# --- commands


def commands_page() -> str:
    """What every command says of itself when it is asked for `--help`."""
    from flows.cli.main import app

    lines = [
        "# Commands\n",
        "What `dpal COMMAND --help` says, for all commands. `--json` prints an answer for "
        "programs.\n",
        "| exit code | meaning |\n|---|---|\n"
        "| 0 | done |\n"
        "| 1 | a check failed: a ledger or a certificate was altered, or an audit measured more "
        "than was claimed |\n"
        "| 2 | refused; the message says what to correct |\n"
        "| 3 | `dpal verify` and `dpal promote`: consistent, author unknown |\n"
        "| 70 | an error that nobody foresaw |\n"
        "| 130 | interrupted |\n",
    ]
    for path, command in commands(typer.main.get_command(app), "dpal"):
        lines += [f"## `{path}`\n", f"```text\n{help_of(command, path)}\n```\n"]
    return "\n".join(lines)


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words by which it is typed."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    for name, one in (inner or {}).items():
        yield from commands(one, f"{path} {name}")


def help_of(command: Any, path: str) -> str:
    """Help of one command, as a terminal shows it."""
    context = command.context_class(
        command, info_name=path, terminal_width=COLUMNS, max_content_width=COLUMNS
    )
    return str(command.get_help(context)).strip()


# --- settings


def settings_page(title: str, does: str, settings: type[Section]) -> str:
    """All settings of one file, from the descriptions under the fields of its model."""
    return (
        f"# {title}\n\n{does} The settings below are those of the YAML file, of forms, of "
        "`--set KEY=VALUE` and of `dpal.settings`; what is left out has the default.\n\n"
        + _settings("", settings)
    )


def _settings(heading: str, settings: type[Section]) -> str:
    schema = settings.model_json_schema()
    return f"{heading}\n\n" + "\n".join(_section(schema, schema, ""))


def _section(schema: Mapping[str, Any], whole: Mapping[str, Any], path: str) -> Iterator[str]:
    """The table of one section, then those of the sections inside of it."""
    inside: list[tuple[str, Mapping[str, Any]]] = []
    yield "| setting | values | default | meaning |\n|---|---|---|---|"
    for name, field in schema.get("properties", {}).items():
        sections = [part for part in _parts(field, whole) if "properties" in part]
        items = [
            part
            for outer in _parts(field, whole)
            for part in _parts(outer.get("items", {}), whole)
            if "properties" in part
        ]
        inside += [(f"{path}{name}", part) for part in sections]
        inside += [(f"{path}{name}[]", part) for part in items]
        required = name in schema.get("required", [])
        yield (
            f"| `{path}{name}` | {_values(field, whole)} | {_default(field, required=required)} "
            f"| {_cell(_description(field, sections))} |"
        )
    yield ""
    for inner, part in inside:
        yield f"{'###' if path else '##'} `{inner}`\n"
        yield f"{_cell(part.get('description', ''))}\n"
        yield from _section(part, whole, f"{inner}.")


def _description(field: Mapping[str, Any], sections: list[Mapping[str, Any]]) -> str:
    said = field.get("description") or " ".join(one.get("description", "") for one in sections)
    return said or str(field.get("title", ""))


def _parts(field: Mapping[str, Any], whole: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a field may be, with references followed."""
    if "$ref" in field:
        found = whole["$defs"][field["$ref"].rpartition("/")[2]]
        return _parts(found, whole)
    choices = [one for key in ("anyOf", "oneOf", "allOf") for one in field.get(key, [])]
    return [part for one in choices for part in _parts(one, whole)] or [field]


_BOUNDS = {"minimum": "at least {}", "maximum": "at most {}", "exclusiveMinimum": "above {}",
           "exclusiveMaximum": "below {}"}  # fmt: skip
_NAMES = {"string": "text", "integer": "whole number", "number": "number", "null": "null",
          "boolean": "true or false"}  # fmt: skip


def _values(field: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Which values a setting may have, in words."""
    said: list[str] = []
    for part in _parts(field, whole):
        if "properties" in part:
            word = "section"
        elif "enum" in part:
            word = ", ".join(f"`{value}`" for value in part["enum"])
        elif "const" in part:
            word = f"`{part['const']}`"
        elif part.get("type") == "array":
            word = f"list of {_values(part.get('items', {}), whole)}"
        elif part.get("type") == "object":
            word = "mapping"
        elif part.get("format") == "path":
            word = "path"
        else:
            word = _NAMES.get(part.get("type", ""), "any")
            limits = [text.format(part[key]) for key, text in _BOUNDS.items() if key in part]
            word += f" ({', '.join(limits)})" if limits else ""
        said += [word] if word not in said else []
    return _cell(" or ".join(said))


def _default(field: Mapping[str, Any], *, required: bool) -> str:
    if required:
        return "**required**"
    value = field.get("default")
    if isinstance(value, Mapping) or "default" not in field:
        return ""
    return f"`{_cell(json.dumps(value))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- notebooks


def _notebooks() -> list[Path]:
    return sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def _cells(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["cells"])


def _drawn(path: Path) -> dict[str, str]:
    """Pictures in base64 by the names that they get, in the order of the cells."""
    found = [
        "".join(output["data"]["image/png"])
        for cell in _cells(path)
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    return {f"{path.stem}-{number}.png": picture for number, picture in enumerate(found)}


def notebook_page(path: Path) -> str:
    """A notebook as a page: its texts, its code, and what it printed when it was executed."""
    names = iter(_drawn(path))
    parts: list[str] = []
    for cell in _cells(path):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            if len(parts) == 1:
                parts.append(f"[This page as a notebook]({path.name}), to be executed.")
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![What the cell above draws]({next(names)})")
            elif "text/html" in data:
                parts.append("".join(data["text/html"]))
            else:
                text = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


# --- links


def with_links(markdown: str, *, source: str, place: str) -> str:
    """A page's text with each link turned to where its target is on the site.

    Args:
      markdown: as the page is written.
      source: the page's file, from the top of the repository.
      place: where the page is on the site.

    Raises:
      PluginError: a link leads to a file that is not there.
    """

    def turned(link: re.Match[str]) -> str:
        label, target, anchor = link["label"], link["target"], link["anchor"] or ""
        if not target or ":" in target:
            return link[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if there in BROUGHT_IN:
            site = BROUGHT_IN[there]
        elif there.startswith("docs/"):
            site = there.removeprefix("docs/")
            if site.endswith(".ipynb") and source != there.replace(".ipynb", ".md"):
                site = site.replace(".ipynb", ".md")
        elif (ROOT / there).exists():  # code; it is not on the site
            return label if label.strip("`") == there else f"{label} (`{there}`)"
        else:
            raise PluginError(f"{source} links to {target}, which is not there")
        return f"{link['before']}{os.path.relpath(site, posixpath.dirname(place) or '.')}{anchor})"

    fences = list(_FENCE.finditer(markdown))
    parts, begin = [], 0
    for fence in fences:
        parts += [_LINK.sub(turned, markdown[begin : fence.start()]), fence[0]]
        begin = fence.end()
    return "".join([*parts, _LINK.sub(turned, markdown[begin:])])
