"""The form that the Prefect page makes of the settings."""

from __future__ import annotations

from typing import Any

import pytest
from prefect.utilities.schema_tools.validation import validate

from dpal.accounting.cohort_spending import Accountant
from dpal.config.campaign import AcquisitionWish, parse_config
from dpal.config.runtime import Backend
from dpal.errors import ConfigError
from dpal.labeling.registered_labelers import LABELERS
from dpal.models.architectures import ARCHITECTURES
from dpal.planning.campaign_spec import SelectionMode, Strategy
from dpal.planning.training_recipe import OPTIMIZERS, ClippingKind
from flows.campaign import run_campaign
from tests.conftest import having

SCHEMA: dict[str, Any] = run_campaign.parameters.model_dump()
SECTIONS = {name: one for name, one in SCHEMA["definitions"].items() if "properties" in one}
FIELDS = {
    f"{section}.{name}": field
    for section, one in SECTIONS.items()
    for name, field in one["properties"].items()
}
FOLDED = ("normalisation", "clipping", "augmentation", "averaging")


def as_submitted(section: str, **given: Any) -> dict[str, Any]:
    """What the form sends of a section in which only some fields were touched."""
    sent = dict(given)
    for name, field in SECTIONS[section]["properties"].items():
        if name in sent:
            continue
        if "default" in field:
            sent[name] = field["default"]
        elif "$ref" in field:
            sent[name] = as_submitted(field["$ref"].rpartition("/")[2])
    return sent


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_every_field_says_what_it_is(field):
    behind = SCHEMA["definitions"][field["$ref"].rpartition("/")[2]] if "$ref" in field else {}
    shown = behind | field  # as the page does it
    assert len(shown["description"].split()) > 1
    assert shown["title"][0].isupper()
    assert not shown["title"].endswith("Config")
    # One that both have stands once, and one of the two pages would show the key instead.
    assert "properties" not in behind or "title" in field


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if "anyOf" in field])
def test_the_ways_to_give_a_field_have_names_of_their_own(name):
    titles = [
        way.get("title") or SECTIONS[way["$ref"].rpartition("/")[2]]["title"]
        for way in FIELDS[name]["anyOf"]
    ]
    assert len(set(titles)) == len(titles) > 1


def test_an_untouched_form_means_the_defaults():
    sent = as_submitted("CampaignConfig", name="x")
    assert all(place in str(sent) for place in FOLDED)
    assert validate({"config": sent}, SCHEMA) == []
    assert parse_config(sent) == parse_config({"name": "x"})


def test_a_folded_section_may_be_opened():
    training = {"clipping": {"kind": "adaptive"}, "augmentation": None}
    assert validate({"config": {"name": "x", "training": training}}, SCHEMA) == []
    config = parse_config({"name": "x", "training": training})
    assert config.training.clipping.kind is ClippingKind.ADAPTIVE
    assert config.training.augmentation.multiplicity == 1
    with pytest.raises(
        ConfigError, check=having(setting="training.clipping.kin", meant="training.clipping.kind")
    ):
        parse_config({"name": "x", "training": {"clipping": {"kin": "flat"}}})


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "'name' is a required property"),
        ({"name": "x", "privacy": {"epsilon": -1}}, "less than or equal to the minimum of 0"),
        ({"name": "x", "schedule": {"queries": [300, 0]}}, "0 is less than the minimum of 1"),
        ({"name": "x", "strategy": "best"}, "'best' is not one of"),
        ({"name": "Not A Name"}, "does not match"),
    ],
)
def test_the_form_refuses_at_once(config, reason):
    (error,) = validate({"config": config}, SCHEMA)
    assert reason in error.message


def test_the_form_has_choices_and_defaults():
    assert list(SCHEMA["properties"]) == ["config", "redraw"]
    assert SECTIONS["CampaignConfig"]["required"] == ["name"]
    assert list(SECTIONS["CampaignConfig"]["properties"])[:3] == ["name", "data", "labeler"]
    every = SCHEMA["definitions"]
    for choices in (AcquisitionWish, SelectionMode, Strategy, Accountant, ClippingKind, Backend):
        assert set(every[choices.__name__]["enum"]) == {choice.value for choice in choices}
    assert every["LabelerKind"]["enum"] == list(LABELERS)
    assert set(SECTIONS["ModelConfig"]["properties"]["name"]["enum"]) == set(ARCHITECTURES)
    assert set(SECTIONS["TrainingConfig"]["properties"]["optimizer"]["enum"]) == set(OPTIMIZERS)
    assert SECTIONS["PrivacyConfig"]["properties"]["selection"]["default"] == "hidden"
    assert SECTIONS["CampaignConfig"]["properties"]["strategy"]["default"] == "step_amplification"
