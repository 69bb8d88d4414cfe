"""Every command's help has an example, and the examples are commands that there are."""

from __future__ import annotations

import re
import shlex

import pytest
import typer

from flows.cli.main import app


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
