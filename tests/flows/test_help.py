"""Every command's help has an example, and the examples are commands that there are."""

from __future__ import annotations

import re
import shlex

import pytest
import typer

from flows.cli.main import app
from tests.conftest import ROOT


def commands(command, path):
    inner = getattr(command, "commands", None)
    if inner is None:
        return {path: command}
    below = (commands(one, f"{path} {key}") for key, one in inner.items())
    return {name: one for found in below for name, one in found.items()}


COMMANDS = commands(typer.main.get_command(app), "dpal")


def examples(epilog):
    """The commands of an epilog, without what comes before and between them."""
    kind, _, typed = (epilog or "").partition(": ")
    if kind not in ("Example", "Examples"):
        return []
    return [part for part in re.split(r" \| |; | && ", typed) if part.startswith("dpal ")]


def faults(typed):
    """What is wrong with a typed command: no such command, or no such option."""
    words = shlex.split(typed)
    name = next((" ".join(words[:n]) for n in (3, 2) if " ".join(words[:n]) in COMMANDS), None)
    if name is None:
        return [typed]
    known = {option for one in COMMANDS[name].params for option in [*one.opts, *one.secondary_opts]}
    return [word for word in words if word.startswith("--") and word not in known]


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_an_example_of_itself(path):
    shown = examples(COMMANDS[path].epilog)
    assert any(typed == path or typed.startswith(f"{path} ") for typed in shown)
    assert [fault for typed in shown for fault in faults(typed)] == []


def test_examples_that_are_none_are_noticed():
    assert examples(None) == examples("See the manual.") == []
    assert faults("dpal nothing x.yaml") == ["dpal nothing x.yaml"]
    assert faults("dpal plan x.yaml --gone") == ["--gone"]


# --- and so are those of the documentation


def typed_on(page):
    """Commands in the code blocks of a page that are typed into a terminal."""
    found: list[str] = []
    inside, shell, begun = False, False, ""
    for line in page.splitlines():
        if line.startswith("```"):
            inside = not inside
            shell = inside and line.strip("` ").split(" ")[0] in ("", "sh", "bash")
        elif shell:
            begun += re.sub(r"(^|\s)#.*", "", line)
            if begun.endswith("\\"):  # goes on in the next line
                begun = begun.removesuffix("\\")
            else:
                found += re.split(r" && | \| ", begun)
                begun = ""
    return [one.strip() for one in found if one.startswith("dpal ")]


PAGES = ["README.md", "mlflow/README.md", *(f"docs/{path.relative_to(ROOT / 'docs')}"
         for path in sorted((ROOT / "docs").rglob("*.md")))]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_are_there(page):
    typed = typed_on((ROOT / page).read_text(encoding="utf-8"))
    assert [fault for one in typed for fault in faults(one)] == []


def test_pages_have_commands():
    assert len(typed_on((ROOT / "README.md").read_text(encoding="utf-8"))) >= 5
    page = "```\ndpal run a.yaml --gone  # why\ndpal plan \\\n  --lost\n```\n```text\ndpal x\n```\n"
    assert [fault for one in typed_on(page) for fault in faults(one)] == ["--gone", "--lost"]
