"""Whose records figures are measured on has to be declared before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dpal.config.campaign import parse_config
from dpal.config.improvement import parse_public
from dpal.config.pate import parse_pate
from dpal.config.validation import as_it_was_measured, declared_validation, require_public
from dpal.config.watch import parse_watch
from dpal.errors import ConfigError
from dpal.runs.kinds import parse_any
from tests.conftest import PUBLIC, ROOT, having, nothing_released, small_values
from tests.flows.watching import watch_values

UNDECLARED: dict[str, Any] = {
    "campaign": lambda: parse_config({"name": "x"}),
    "public": lambda: parse_public({"kind": "public", "name": "x"}),
    "pate": lambda: parse_pate({"kind": "pate", "name": "x"}),
    "watch": lambda: parse_watch(watch_values(campaign__validation=None)).campaign,
}


@pytest.mark.parametrize("kind", UNDECLARED)
def test_what_says_nothing_of_its_validation_set_is_told_what_to_declare(kind):
    """Settings of earlier versions are read as ever; nothing is measured by them."""
    config = UNDECLARED[kind]()
    for asked in (declared_validation, require_public):
        with pytest.raises(ConfigError, check=nothing_released) as refused:
            asked(config)
        assert (refused.value.setting, refused.value.fault) == ("validation", "missing")
        assert "validation: {public: true" in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"public": True},
        {"public": True, "why": " "},
        {"public": False, "why": "private"},
        {"public": True, "why": "made up", "protected": True},
        {"public": True, "why": "made up", "epsilon": 1.0},
        {"public": True, "why": "made up", "auc": True},
        {},
    ],
)
def test_a_declaration_says_in_words_why(wrong):
    with pytest.raises(ConfigError, check=having(setting="validation", fault="value_error")):
        parse_config(small_values(validation=wrong))


def test_what_is_protected_is_not_public():
    config = parse_config(small_values(validation={"protected": True}))
    assert declared_validation(config).protected
    with pytest.raises(ConfigError, check=having(fault="protected", released=False)):
        require_public(config)


def test_what_is_declared_public_is_measured_on():
    config = parse_config(small_values())
    assert require_public(config) == Path("validation.parquet")
    assert declared_validation(config).why == PUBLIC["why"]


def test_what_was_measured_before_stays_measured():
    declared = declared_validation(parse_config(small_values()))
    assert as_it_was_measured(declared) is declared
    assert as_it_was_measured(None).public


SHIPPED = [
    path
    for path in sorted((ROOT / "flows" / "configs").rglob("*.yaml"))
    if path.parent.name != "books"  # those declare it for all of their sets
]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_file_declares_its_own(file):
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    if values.get("kind") == "vote":
        return  # ballots: nothing is measured
    if values.get("model", {}).get("name") == "text_classifier":
        values["model"]["weights"] = "bert"  # a folder that is not shipped
    config = parse_watch(values).campaign if "folder" in values else parse_any(values)
    assert require_public(config)  # type: ignore[arg-type]
