"""`acquisition: auto`: public records choose once, before anything is held, and that stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import parse_config
from dpal.errors import ConfigError, DataError, ParameterError
from dpal.files.artifacts import CampaignFolder
from dpal.labels import Task
from dpal.ledger.folder_lock import lock_folder
from dpal.planning.campaign_spec import Acquisition
from dpal.privacy import Unit
from dpal.runs import chosen_acquisition, prepare_campaign
from dpal.runs.plan_new_campaign import Participants, PredecessorCampaign
from dpal.simulation.choose_acquisition import choose_best
from flows.cli.plan_campaign import CampaignPlanViews
from tests.conftest import CLASSES, WIDTH, small_values, write_blobs
from tests.variants import quick_and_slow

RANDOM, MARGIN, ENTROPY = Acquisition.RANDOM, Acquisition.MARGIN, Acquisition.ENTROPY
CHOICE, RECORD = Path("artifacts/small/acquisition.json"), Path("artifacts/small/campaign.json")
LEDGER = Path("artifacts/ledger.sqlite")
ONE_QUERY = {"schedule__queries": [40]}
GUESS = '{"acquisition": "guess"}'


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def dying(*arguments, **options):
    raise Killed


@pytest.fixture
def few_rehearsals(workplace, monkeypatch):
    """Two of each acquisition, which choose by the same rule in less time."""
    monkeypatch.setattr(chosen_acquisition, "REHEARSALS", 2)
    return workplace


@pytest.fixture
def auto(small):
    def config(**overrides):
        return small(**{"acquisition": "auto", **ONE_QUERY, **overrides})

    return config


@pytest.mark.slow
@pytest.mark.usefixtures("few_rehearsals")
def test_a_choice_is_recorded_before_anything_is_held_and_stays(auto, monkeypatch):
    config = auto()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(prepare_campaign, "record_choice", dying)
        dpal.run(config)
    assert not CHOICE.exists()
    expected = chosen(config)  # the same as what was forgotten

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(prepare_campaign, "hold", dying)
        dpal.run(config)
    assert json.loads(CHOICE.read_text()) == expected
    assert not RECORD.exists()

    monkeypatch.setattr(chosen_acquisition, "choose_acquisition", dying)  # from here on none is
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(prepare_campaign, "_write_start", dying)
        dpal.run(config)
    folder = dpal.run(config)
    record = json.loads(RECORD.read_text())
    assert record["acquisition_choice"] == expected
    assert record["plan"]["acquisition"] == expected["acquisition"]
    assert record["config"]["acquisition"] == "auto"
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    for page in (folder.report, folder.report_page):
        assert "at no cost" in page.read_text()
    assert json.loads(folder.certificate.read_text())["digest"]
    CHOICE.unlink()  # what was chosen stands in the record now, and the campaign is planned alike
    assert prepare_campaign.prepare(config).plan.digest == record["plan"]["plan_digest"]


@pytest.mark.slow
@pytest.mark.usefixtures("few_rehearsals")
def test_the_plan_is_that_of_the_chosen_one_and_names_both(auto, small):
    config = auto()
    record = CampaignPlanViews().plan(config, explained=False).record
    assert record["acquisition_wish"] == "auto"
    choice = record["acquisition_choice"]
    assert record["acquisition"] == choice["acquisition"]
    named = CampaignPlanViews().plan(
        small(acquisition=choice["acquisition"], **ONE_QUERY), explained=False
    )
    assert named.record["plan_digest"] == record["plan_digest"]
    assert "acquisition_choice" not in named.record
    assert set(choice["estimates"]) == {"random", "least_confidence", "margin", "entropy"}
    assert not CHOICE.exists()  # a plan writes nothing


@pytest.mark.usefixtures("few_rehearsals")
def test_other_settings_are_rehearsed_anew_until_the_campaign_begins(auto, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(prepare_campaign, "hold", dying)
        dpal.run(auto())
    monkeypatch.setattr(chosen_acquisition, "choose_acquisition", dying)
    assert chosen(auto()) == json.loads(CHOICE.read_text())
    with pytest.raises(Killed):
        prepare_campaign.prepare(auto(privacy__epsilon=5))
    write_blobs(Path("validation.parquet"), 300, seed=3, prefix="v")
    with pytest.raises(Killed):
        prepare_campaign.prepare(auto())


@pytest.mark.slow
@pytest.mark.usefixtures("few_rehearsals")
def test_a_score_that_is_ahead_beyond_noise_is_used(auto, monkeypatch):
    def ahead(specs, data, **options):
        by_name = {name: dict(enumerate([0.5, 0.6, 0.7])) for name in specs}
        by_name[MARGIN] = dict(enumerate([0.7, 0.801, 0.902]))
        return choose_best(by_name, labels=100)

    monkeypatch.setattr(chosen_acquisition, "choose_acquisition", ahead)
    folder = dpal.run(auto())
    plan = folder.read_record()["plan"]
    assert plan["acquisition"] == "margin"
    assert any(event for phase in plan["phases"] for event in phase["selection"])
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))


@pytest.mark.usefixtures("workplace")
def test_too_few_public_records_leave_random(auto):
    write_blobs(Path("validation.parquet"), 30, seed=2, prefix="v")
    choice = chosen(auto())
    assert choice["acquisition"] == "random"
    assert choice["estimates"] == {}
    assert "15" in choice["reason"]  # public records, half of them


@pytest.mark.usefixtures("workplace")
def test_without_queries_nothing_is_rehearsed(auto, monkeypatch):
    monkeypatch.setattr(chosen_acquisition, "choose_acquisition", dying)
    assert prepare_campaign.prepare(auto(schedule__queries=[])).plan.spec.acquisition is RANDOM


@pytest.mark.usefixtures("few_rehearsals")
def test_a_campaign_that_began_otherwise_chooses_nothing(auto, small):
    begun = prepare_campaign.prepare(small(acquisition="random", **ONE_QUERY))
    with lock_folder(begun.folder.root):
        prepare_campaign.hold_budget(begun)
    with pytest.raises(ConfigError) as refused:
        prepare_campaign.prepare(auto())
    assert "random" in str(refused.value)


@pytest.mark.usefixtures("few_rehearsals")
@pytest.mark.parametrize("damage", quick_and_slow([GUESS], [GUESS, "[]", "{"]))
def test_a_damaged_choice_is_refused(auto, damage, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(prepare_campaign, "hold", dying)
        dpal.run(auto())
    if damage.startswith('{"'):
        basis = json.loads(CHOICE.read_text())["basis"]
        damage = json.dumps({"basis": basis, **json.loads(damage)})
    CHOICE.write_text(damage)
    with pytest.raises(DataError):
        prepare_campaign.prepare(auto())


def chosen(config):
    """The choice that a plan would be made with."""
    choice = prepare_campaign.prepare(config).start.choice
    assert choice is not None
    return choice


def candidates(
    earlier: PredecessorCampaign | None = None, task: Task = Task.SINGLE_LABEL, **overrides
):
    """What a campaign on 20,000 records could use."""
    config = parse_config(small_values(acquisition="auto", **overrides))

    def spec_of(wishes):
        return lambda owners, unit, carried: wishes.to_spec(
            pool_size=owners,
            input_shape=(WIDTH,),
            classes=CLASSES,
            task=task,
            unit=unit,
            carried=carried,
        )

    participants = Participants(
        owners=20_000, unit=Unit.RECORD, dataset=None, sizes={}, held=None, earlier=earlier
    )
    return chosen_acquisition._Candidates(config, participants, spec_of)


def test_after_labels_bought_in_secret_random_is_no_candidate():
    earlier = PredecessorCampaign(
        folder=CampaignFolder(Path("earlier")), labels=800, blocks=frozenset()
    )
    hidden = candidates(earlier, privacy={"selection": "hidden"})
    assert hidden.reference is ENTROPY
    assert RANDOM not in hidden.specs
    assert all(spec.schedule.initial == 800 for spec in hidden.specs.values())
    visible = candidates(earlier, privacy={"selection": "visible"})
    assert visible.reference is RANDOM
    assert RANDOM in visible.specs


def test_bald_is_a_candidate_where_the_model_has_dropout():
    bald = Acquisition.BALD
    assert bald not in candidates().specs
    assert bald in candidates(model={"name": "resnet9", "dropout": 0.2}).specs


def test_scores_that_the_task_has_not_are_no_candidates():
    several = candidates(task=Task.MULTI_LABEL)
    assert {RANDOM, ENTROPY} <= set(several.specs)
    assert list(several.refused) == [MARGIN]


def test_each_candidate_has_what_is_its_own():
    """Random selection keeps its secret coins and pays nothing for queries."""
    visible = candidates(privacy={"selection": "visible", "selection_epsilon": 1.5})
    assert visible.specs[RANDOM].selection_epsilon == 0
    assert visible.specs[MARGIN].selection_epsilon == 1.5
    secret = {"selection": "hidden", "secret_draw": True, "adjacency": "replace_one"}
    replaced = candidates(privacy=secret, strategy="naive")
    assert replaced.specs[RANDOM].secret_draw
    assert not replaced.specs[MARGIN].secret_draw
    assert len({spec.target for spec in replaced.specs.values()}) == 1
    refused = candidates(privacy=secret, strategy="noise_reduction")
    assert list(refused.specs) == [RANDOM]
    assert MARGIN in refused.refused


def test_an_acquisition_that_is_still_to_be_chosen_makes_no_spec():
    config = parse_config(small_values(acquisition="auto"))
    with pytest.raises(ParameterError):
        config.to_spec(pool_size=600, input_shape=(WIDTH,), classes=CLASSES, unit=Unit.RECORD)


@pytest.mark.usefixtures("few_rehearsals")
def test_sweeps_and_comparisons_of_plans_ask_for_a_name(auto):
    views = CampaignPlanViews()
    for refused in (
        lambda: views.compare(auto()),
        lambda: views.published(auto()),
        lambda: views.sweep(auto(), "privacy.epsilon=4,8"),
    ):
        with pytest.raises(ParameterError):
            refused()
