"""What commands and deployments know of a kind of run stands in its one entry, and fits."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import flows
from dpal.errors import ConfigError
from dpal.runs.kinds import CAMPAIGN, KINDS, folder_of, kind_in, kind_of, parse_any

CONFIGS = Path(flows.__file__).parent / "configs"
ROOT = Path(flows.__file__).parent.parent
MOST = 14  # falls with every place that stops asking
SETTINGS = {kind.settings.__name__ for kind in KINDS.values()}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_its_template_is_of_it(kind):
    values = yaml.safe_load((CONFIGS / kind.template).read_text(encoding="utf-8"))
    config = parse_any(values)
    assert kind_of(config) is kind_in(values) is kind
    assert folder_of(config).name == values["name"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_its_flow_carries_its_name(kind):
    module, _, name = kind.entrypoint.rpartition(".")
    assert getattr(import_module(module), name).name == kind.name


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_prefect_yaml_deploys_it(kind):
    deployed = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    mine = next(each for each in deployed if each["name"] == kind.name)
    assert (mine["entrypoint"], mine["description"]) == (kind.entrypoint, kind.does)


def test_settings_without_a_kind_are_a_campaigns():
    assert kind_in({"name": "clinic"}) is CAMPAIGN
    for unknown in ("capc", "campaign", 3, ["pate"], {}):
        with pytest.raises(ConfigError, match="public, pate or vote"):
            kind_in({"name": "clinic", "kind": unknown})


def asks_for_a_kind(tree: ast.Module) -> int:
    """How often code asks whether settings are of one kind, or compares the name of a kind."""
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            found += bool({each.id for each in ast.walk(node.args[1])
                           if isinstance(each, ast.Name)} & SETTINGS)  # fmt: skip
        elif isinstance(node, ast.Compare):
            compared = ast.unparse(node)
            found += "KINDS" not in compared and any(
                word in compared for word in ("'kind'", "KIND", "PATE", "VOTE_ACCOUNT")
            )
    return found


def test_fewer_and_fewer_places_ask_for_the_kind():
    """The aim is none outside of `dpal/runs/kinds.py`; whoever removes one lowers the number."""
    counts = {
        str(path.relative_to(ROOT)): asks_for_a_kind(ast.parse(path.read_text(encoding="utf-8")))
        for room in ("dpal", "tasks", "flows")
        for path in (ROOT / room).glob("**/*.py")
        if path.name != "kinds.py"
    }
    assert sum(counts.values()) == MOST, {path: n for path, n in counts.items() if n}
