"""A model in one file is named by settings, planned, trained, saved, loaded and scored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.errors import ConfigError, ParameterError
from dpal.models.architectures import ARCHITECTURES, Architecture, register_architecture
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.training.evaluation import probabilities
from tests.conftest import CLASSES, WIDTH, small_values

MOST_LINES = 60
FILE = Path(__file__).parent / "toy_model.py"


@pytest.fixture
def toy(monkeypatch):
    """The model, which other tests do not know of."""
    from tests.models import toy_model

    monkeypatch.setitem(ARCHITECTURES, "toy", toy_model.TOY)
    yield toy_model
    monkeypatch.undo()
    ARCHITECTURES.pop("toy", None)


def test_it_is_one_short_file():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
def test_a_campaign_plans_trains_saves_and_scores_it(workplace):
    file = workplace / "toy.yaml"
    file.write_text(yaml.safe_dump(small_values(model={"name": "toy"}, acquisition="entropy")))
    config = dpal.settings(file)
    planned = dpal.plan(config)
    folder = dpal.run(config)
    assert folder.read_record()["plan"]["plan_digest"] == planned.plan.digest
    model = folder.phase(2).model
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite"), model=model))

    loaded = build_model(ModelSpec(name="toy", input_shape=(WIDTH,), classes=CLASSES))
    fresh = {name: value.clone() for name, value in loaded.state_dict().items()}
    loaded.load_state_dict(load_file(model))
    assert not torch.equal(loaded.state_dict()["mix.weight"], fresh["mix.weight"])
    chances = probabilities(loaded, torch.zeros(5, WIDTH), physical_batch=2)
    assert chances.shape == (5, CLASSES)
    assert chances.sum(axis=1) == pytest.approx(1)


@pytest.mark.usefixtures("toy")
def test_what_is_known_of_it_holds_for_its_settings():
    assert (
        "toy"
        in CampaignConfig.model_json_schema()["$defs"]["ModelConfig"]["properties"]["name"]["enum"]
    )
    for wrong in ({"dropout": 0.1}, {"hidden": [3]}, {"weights": "a.npz"}):
        with pytest.raises(ConfigError, match="toy"):
            parse_config(small_values(model={"name": "toy", **wrong}))


@pytest.mark.usefixtures("toy")
def test_no_other_model_takes_its_name():
    for name in ("toy", "mlp"):
        with pytest.raises(ParameterError, match=f"{name} names another model"):
            register_architecture(Architecture(name=name, made_by="dpal.models.small.logistic"))


def test_an_unknown_one_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError) as error:
        parse_config(small_values(model={"name": "toy"}))
    assert ", ".join(ARCHITECTURES) in str(error.value)


def test_names_are_known_without_torch():
    code = (
        "import sys; from dpal.config.campaign import CampaignConfig as C; "
        "C.model_json_schema(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
