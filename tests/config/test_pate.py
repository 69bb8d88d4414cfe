"""Settings of private voting: what contradicts itself is one sentence at the door."""

from __future__ import annotations

import pytest
import yaml

from dpal.accounting.votes.mechanisms import Confidence, Mechanism
from dpal.config.pate import PateConfig, parse_pate
from dpal.config.pate_sections import Cut
from dpal.errors import ConfigError
from dpal.planning.linear_head_spec import TrainingMethod
from dpal.runs.kinds import parse_any
from tests.conftest import ROOT

TEMPLATES = [
    ROOT / "flows" / "configs" / "digits-pate.yaml",
    *sorted((ROOT / "flows" / "configs" / "papers").glob("votes-*.yaml")),
]


def given(**sections):
    return {"kind": "pate", "name": "votes", **sections}


def test_a_name_is_enough():
    config = parse_pate(given())
    assert config.teachers.count == 50
    assert config.voting.mechanism is None
    assert config.voting.blocks == 0
    assert config.privacy.epsilon == 8
    assert config.privacy.delta is None
    assert config.baselines.run == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_are_settings(path):
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(parse_any(values), PateConfig)


def test_settings_survive_being_recorded():
    config = parse_pate(
        given(
            teachers={"count": 7, "tuning": "t.parquet", "cut": "per_label"},
            voting={"mechanism": "top_m", "limit": 2, "threshold": 4, "threshold_sigma": 9},
            student={"method": "mixmatch", "cut": "global"},
            baselines={"run": ["dp_sgd", "private_knn"]},
        )
    )
    assert parse_pate(config.model_dump(mode="json")) == config
    assert config.voting.mechanism is Mechanism.TOP_M
    assert config.voting.confidence == Confidence(threshold=4, sigma=9)
    assert parse_pate(given()).voting.confidence is None


def test_every_teacher_is_trained_from_a_seed_of_its_own():
    teachers = parse_pate(given(teachers={"seed": 3, "epochs": 5})).teachers
    found = [teachers.to_training(number) for number in range(50)]
    other = parse_pate(given(teachers={"seed": 4, "epochs": 5})).teachers
    assert len({one.seed for one in found}) == 50
    assert {one.epochs for one in found} == {5}
    assert not {one.seed for one in found} & {other.to_training(at).seed for at in range(50)}


def test_the_student_is_a_frozen_value():
    student = parse_pate(given(student={"method": "mixmatch", "unlabeled_weight": 3})).student
    assert student.cut is Cut.HALF
    spec = student.to_spec()
    assert (spec.method, spec.unlabeled_weight) == ("mixmatch", 3)


TEXTS = {"name": "text_classifier", "weights": "bert"}
HEAD = {"method": "least_squares"}


def test_a_student_of_texts_may_guess_without_blending_them():
    student = {"method": "mixmatch", "mixup": 0}
    assert parse_pate(given(student=student, model=TEXTS)).student.to_spec().mixup == 0
    # What mixes records is not read by the other method.
    assert parse_pate(given(model=TEXTS)).student.to_spec().method == "supervised"


def test_a_fitted_head_may_stand_beside_baselines_that_take_no_steps():
    baselines = {"run": ["private_knn", "non_private"]}
    config = parse_pate(given(baselines=baselines, training=HEAD))
    assert config.training.method is TrainingMethod.LEAST_SQUARES


OWNERS = {"partition": "parts.parquet", "budgets": "budgets.parquet"}
WRONG = [
    ({"teachers": {"count": 2}}, "teachers.count"),
    ({"teachers": {"cut": "global"}}, "teachers.tuning,"),
    ({"student": {"cut": "global"}}, "teachers.tuning,"),
    ({"teachers": {"optimizer": "lbfgs"}}, "teachers.optimizer"),
    ({"voting": {"mechanism": "majority"}}, "voting.mechanism"),
    ({"voting": {"mechanism": "top_m"}}, "voting.mechanism top_m needs voting.limit"),
    ({"voting": {"mechanism": "tau_l2"}}, "voting.mechanism tau_l2 needs voting.limit"),
    ({"voting": {"sigma": 0}}, "voting.sigma"),
    ({"voting": {"queries": 0}}, "voting.queries"),
    ({"voting": {"blocks": -1}}, "voting.blocks"),
    ({"voting": {"noises": 3}}, "voting.noises"),
    ({"voting": {"threshold": 3}}, "voting.threshold_sigma belong"),
    ({"voting": {"gate": "sick"}}, "voting.dependents belong"),
    ({"voting": {"dependents": ["flu"]}}, "voting.dependents belong"),
    (
        {"voting": {"gate": "sick", "dependents": ["flu"], "threshold": 3, "threshold_sigma": 2}},
        "without voting.threshold",
    ),
    (
        {"voting": {"gate": "sick", "dependents": ["flu"], "mechanism": "powerset"}},
        "voting.gate is",
    ),
    ({"voting": {"agreement": 0.5}}, "voting.agreement"),
    ({"privacy": {"epsilon": 0}}, "privacy.epsilon"),
    ({"privacy": {"epsilon": float("nan")}}, "privacy.epsilon"),
    ({"privacy": {"delta": 1.0}}, "privacy.delta"),
    (
        {"data": {"dataset": "clinic"}, "voting": {"agreement": 0.95}},
        "data.dataset release",
    ),
    (
        {"data": {"dataset": "clinic"}, "baselines": {"run": ["non_private"]}},
        "baselines.run non_private",
    ),
    ({"voting": {"release": "all"}}, "voting.release"),
    ({"voting": {"release": "counts", "neighbours": 40}}, "release out"),
    ({"voting": {"release": "counts"}, "student": {"method": "mixmatch"}}, "are for answers"),
    ({"voting": {"release": "counts"}, "student": {"balance": 1}}, "student.balance"),
    ({"student": {"method": "least_squares"}, "model": {"name": "mlp", "hidden": [8]}}, "is mlp"),
    (
        {"student": {"method": "least_squares", "noise": 0.1}, "model": {"name": "logistic"}},
        "leave student.shift",
    ),
    ({"student": {"method": "mixmatch"}, "model": TEXTS}, "student.mixup"),
    ({"student": {"noise": 0.1}, "model": TEXTS}, "student.noise"),
    ({"student": {"shift": 1}, "data": {"extractor": "scattering"}}, "student.shift"),
    ({"teachers": {"shift": 1}, "data": {"extractor": "scattering"}}, "teachers.shift"),
    ({"baselines": {"run": ["lucky"]}}, "baselines.run"),
    *(
        ({"teachers": OWNERS, "baselines": {"run": [baseline]}}, f"baselines.run {baseline} learns")
        for baseline in ("dp_sgd", "private_knn", "non_private")
    ),
    ({"baselines": {"run": ["dp_sgd"]}, "training": HEAD}, "baselines.run dp_sgd "),
    ({"baselines": {"run": ["dp_sgd_adaptive"]}, "training": HEAD}, "run dp_sgd_adaptive"),
    ({"name": "Upper"}, "name"),
    ({"name": "../outside"}, "name"),
    ({"colour": "blue"}, "colour"),
    ({"teachers": {"colour": "blue"}}, "teachers.colour"),
]


@pytest.mark.parametrize(("changes", "says"), WRONG, ids=lambda one: str(one)[:50])
def test_what_contradicts_itself_is_refused(changes, says):
    with pytest.raises(ConfigError) as refused:
        parse_pate(given(**changes))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
