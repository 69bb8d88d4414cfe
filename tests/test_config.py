from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import flows
from dpal.accounting.cohorts import Accountant
from dpal.config import override, parse_config
from dpal.errors import ConfigError, ParameterError
from dpal.planning.spec import Acquisition, SelectionMode, Strategy
from flows.campaign import run_campaign
from tests.conftest import small_spec, small_values

CONFIGS = Path(flows.__file__).parent / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_configuration_is_valid(path):
    assert parse_config(yaml.safe_load(path.read_text())).name == path.stem


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("privacy.epsilom", 3, "privacy.epsilom is not a setting; did you mean privacy.epsilon"),
        ("epsilon", 3, r"epsilon is not a setting; did you mean privacy\.epsilon"),
        ("trainig", {}, "trainig is not a setting; did you mean training"),
        ("privacy.zzz", 3, "known here: epsilon, delta"),
        ("privacy.epsilon", "many", r"privacy\.epsilon is 'many' but should be a valid number"),
        ("privacy.epsilon", -1, "should be greater than 0"),
        ("privacy.epsilon", float("nan"), "privacy.epsilon is nan"),
        ("privacy.selection", "papr", "cannot be 'papr'; did you mean paper"),
        ("privacy.selection", "hiden", "cannot be 'hiden'; did you mean hidden"),
        ("privacy.accountant", "pdl", "cannot be 'pdl'; did you mean pld"),
        ("privacy.accountant", "moments", "cannot be 'moments'; choose one of pld, rdp"),
        ("privacy.threshold_noise", 0, "should be greater than 0"),
        ("strategy", "noise_reduce", "did you mean noise_reduction"),
        ("acquisition", "bold", "cannot be 'bold'; did you mean bald"),
        ("acquisition", "coreset", "cannot be 'coreset'; choose one of random"),
        ("model.name", "tutorialcnn", "did you mean tutorial_cnn"),
        ("model.hidden", [5], "model.hidden is for mlp, and model.name is logistic"),
        ("model.name", "mlp", r"needs model\.hidden, for instance \[128\]"),
        ("schedule.queries", 5, "schedule.queries is 5 but should be a valid list"),
        ("name", "Not A Name", "may hold lower-case letters"),
        ("name", "mlflow", "that folder of artifacts is taken"),
        ("runtime.device", "gpu", "is no device; use cpu, cuda or cuda:0"),
    ],
)
def test_what_cannot_be_is_one_sentence(key, value, sentence):
    values = small_values()
    override(values, key, value)
    with pytest.raises(ConfigError, match=sentence) as found:
        parse_config(values)
    assert "\n" not in str(found.value)


def test_a_missing_name_is_said():
    with pytest.raises(ConfigError, match="name is missing; add it to the file"):
        parse_config({})


def test_settings_are_overridden_by_dotted_keys():
    values: dict = {"name": "x"}
    override(values, "privacy.epsilon", 3)
    assert parse_config(values).privacy.epsilon == 3
    with pytest.raises(ConfigError, match="name is not a section"):
        override(values, "name.first", 1)


def test_defaults_are_filled_in():
    found = small_spec()
    assert found.target.delta == 1 / 6000
    assert found.accountant is Accountant.PLD
    assert found.selection_epsilon == 2.0
    assert small_spec(acquisition="random").selection_epsilon == 0.0
    assert small_spec(privacy={}).selection is SelectionMode.HIDDEN
    assert small_spec(privacy={}).selection_epsilon == 0.0
    assert small_spec(schedule__queries=[]).selection_epsilon == 0.0


def test_runtime_is_no_part_of_the_plan():
    assert small_spec(runtime__physical_batch=7, runtime__artifacts="elsewhere") == small_spec()
    assert small_spec(training__learning_rate=0.1) != small_spec()


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"privacy__delta": 0.01}, r"not below 1/600 .* use 0\.000167 or leave it null"),
        ({"privacy__selection_epsilon": 9}, "leaves nothing of privacy.epsilon 8"),
        ({"privacy__selection_epsilon": 0}, "would not be private"),
        ({"acquisition": "random", "privacy__selection_epsilon": 1}, "would be wasted"),
        ({"privacy__selection_epsilon": 1e-7}, "5e-08 for one selection, and 1e-06 to 64"),
        ({"privacy__selection": "hidden", "privacy__selection_epsilon": 1}, "leave it null"),
        ({"schedule__initial": 600}, "asks for 680 labels and the pool has 600"),
        ({"schedule__queries": [40, 0]}, r"schedule\.queries must be a finite number >= 1, got 0"),
        ({"schedule__queries": [-3]}, r"schedule\.queries must be a finite number >= 1, got -3"),
    ],
)
def test_contradictions_name_what_would_work(overrides, sentence):
    with pytest.raises(ParameterError, match=sentence):
        small_spec(**overrides)


def test_the_form_has_descriptions_choices_and_defaults():
    """What the Prefect UI renders: the schema of the flow's parameters."""
    schema = run_campaign.parameters.model_dump()
    assert list(schema["properties"]) == ["config", "redraw"]
    sections = schema["definitions"]
    for name in ("PrivacyConfig", "ScheduleConfig", "RuntimeConfig", "CampaignConfig"):
        fields = sections[name]["properties"]
        described = {
            key for key, field in fields.items() if "description" in field or "$ref" in field
        }
        assert described == set(fields)
    for choices in (Acquisition, SelectionMode, Strategy, Accountant):
        assert set(sections[choices.__name__]["enum"]) == {choice.value for choice in choices}
    assert sections["PrivacyConfig"]["properties"]["selection"]["default"] == "hidden"
    assert sections["CampaignConfig"]["properties"]["strategy"]["default"] == "step_amplification"
