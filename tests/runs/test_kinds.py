"""What commands and deployments know of a kind of run stands in its one entry, and fits."""

from __future__ import annotations

import ast
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import flows
from dpal.errors import ConfigError, DataError
from dpal.files.artifacts import CampaignFolder
from dpal.runs.kinds import (
    CAMPAIGN,
    KINDS,
    folder_of,
    holds_ballots,
    kind_in,
    kind_of,
    parse_any,
    recorded_kind,
)
from flows.cli.init import init
from flows.cli.status import status

CONFIGS = Path(flows.__file__).parent / "configs"
ROOT = Path(flows.__file__).parent.parent
SETTINGS = {kind.settings.__name__ for kind in KINDS.values()}
NAMES = {*KINDS, *(kind.recorded for kind in KINDS.values() if kind.recorded)}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_its_template_is_of_it(kind):
    values = yaml.safe_load((CONFIGS / kind.template).read_text(encoding="utf-8"))
    config = parse_any(values)
    assert kind_of(config) is kind_in(values) is kind
    assert folder_of(config).name == values["name"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_init_writes_its_template_under_a_name_of_ones_own(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    init("mine", of_kind=kind.name)
    config = parse_any(yaml.safe_load((tmp_path / "mine.yaml").read_text(encoding="utf-8")))
    assert (kind_of(config), config.name) == (kind, "mine")


@pytest.mark.parametrize("asked", [{"of_kind": "capc"}, {"of_kind": "vote", "public": True}])
def test_init_refuses_a_kind_that_is_none_or_two(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        init("mine", **asked)
    assert not list(tmp_path.iterdir())


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
    unknown: object
    for unknown in ("capc", "campaign", 3, ["pate"], {}):
        with pytest.raises(ConfigError, match="public, pate or vote"):
            kind_in({"name": "clinic", "kind": unknown})


def can_ask(text: str) -> bool:
    """Whether code has a word of whatever asks for a kind: quicker than to take it apart."""
    return "kind" in text or any(settings in text for settings in SETTINGS)


def asks_for_a_kind(tree: ast.Module) -> list[str]:
    """Where code asks whether settings are of one kind, or compares a kind or its name."""
    registered = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "dpal.runs.kinds"
        for alias in node.names
        if alias.name.isupper() and alias.name != "KINDS"
    }
    return [ast.unparse(node) for node in ast.walk(tree) if _asks(node, registered)]


def _asks(node: ast.AST, registered: set[str]) -> bool:
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in ("isinstance", "issubclass"):
            return False
        return bool({name.id for name in ast.walk(node.args[1])
                     if isinstance(name, ast.Name)} & SETTINGS)  # fmt: skip
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    named = any(isinstance(side, ast.Constant) and side.value in NAMES for side in sides)
    words = {name.id for side in sides for name in ast.walk(side) if isinstance(name, ast.Name)}
    return bool(words & (registered | SETTINGS)) or (named and "kind" in ast.unparse(node))


@pytest.mark.parametrize(
    "asking",
    [
        "isinstance(config, PateConfig)",
        "record.get('kind') == 'voting'",
        "config.kind != 'public'",
        "kind is not VOTES",
        "kind.settings is CampaignConfig",
    ],
)
def test_whoever_asks_is_found(asking):
    known = "from dpal.runs.kinds import KINDS, VOTES\n"
    assert can_ask(known + asking) and can_ask(asking)
    assert asks_for_a_kind(ast.parse(known + asking)) == [asking]
    assert not asks_for_a_kind(ast.parse(known + "name in KINDS and labeler.kind is FORM"))


def test_nobody_but_the_registry_asks_for_the_kind():
    """Whoever must do something else for one kind asks an attribute of it, or its use cases."""
    found = {
        str(path.relative_to(ROOT)): asks_for_a_kind(ast.parse(text))
        for room in ("dpal", "tasks", "flows")
        for path in (ROOT / room).glob("**/*.py")
        if path.name != "kinds.py" and can_ask(text := path.read_text(encoding="utf-8"))
    }
    assert not {path: asked for path, asked in found.items() if asked}


def test_a_folder_of_a_kind_unknown_here_stands_in_nobodys_way(tmp_path, monkeypatch, capsys):
    """Another program registered it: teachers are counted, and others are shown, all the same."""
    monkeypatch.chdir(tmp_path)
    folder = CampaignFolder(tmp_path / "artifacts" / "other")
    plan = {"phases": [], "releases": [], "epsilon": 1.0}
    folder.write_record({"kind": "mean", "name": "other", "plan": plan})
    assert not holds_ballots(folder)
    with pytest.raises(DataError):
        recorded_kind(folder)
    status()
    assert "'mean'" in capsys.readouterr().out


def test_a_kind_of_ones_own_on_ballots_is_known_by_its_name(tmp_path, monkeypatch):
    """Only a kind whose folders say something else than its name has to say what."""
    monkeypatch.setitem(KINDS, "poll", replace(KINDS["vote"], name="poll", recorded=""))
    folder = CampaignFolder(tmp_path / "artifacts" / "poll")
    folder.write_record({"kind": "poll", "name": "poll", "plan": {}})
    assert holds_ballots(folder)
    folder.write_record({"kind": "", "name": "poll", "plan": {}})
    assert not holds_ballots(folder)
