"""A search among settings of the training: a few trials before phase 0, each charged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import dpal
from dpal.accounting.events import FIGURES, TRIAL, VALIDATION, PhaseExposure
from dpal.canonical import plain
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.evidence import evidence_from
from dpal.certificate.kinds.campaign import _unpaid_figures, _unpaid_trials
from dpal.certificate.sentences import STATEMENTS, statements_about
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.errors import ConfigError, DataError, LedgerError, ParameterError
from dpal.files.artifacts import CampaignFolder
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import leading_process, lock_folder
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_json import release_from
from dpal.planning.campaign_plan import Plan
from dpal.planning.certify_campaign import certified_plan, certify_plan
from dpal.planning.explain_campaign import explain_campaign
from dpal.runs import phase_training, private_settings_search
from dpal.runs.phase_training import start_over
from dpal.runs.prepare_campaign import prepare
from tests.conftest import small_spec, small_values, write_blobs
from tests.variants import quick_and_slow

LEDGER = Path("artifacts/ledger.sqlite")
SEARCH: dict[str, Any] = {"trials": [{"learning_rate": 1e-4}, {"learning_rate": 2.0}]}
PROTECTED: dict[str, Any] = {"protected": True, "epsilon": 4.0}


def settings(**changes: Any) -> CampaignConfig:
    asked = {"acquisition": "random", "schedule__queries": [40], "search": SEARCH, **changes}
    return parse_config(small_values(**asked))


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CampaignFolder]:
    """One finished campaign with three trials on a protected validation set."""
    root = tmp_path_factory.mktemp("searched")
    write_blobs(root / "pool.parquet", 600, seed=1)
    write_blobs(root / "validation.parquet", 300, seed=2, prefix="v")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        yield dpal.run(settings(validation=PROTECTED))


def releases(plan: Plan, kind: str) -> list[str]:
    return [release.name for release in plan.releases() if release.kind == kind]


def test_every_trial_and_its_figures_are_charged_before_they_are_drawn(searched):
    with closing(LedgerStore(searched.ledger)) as store:
        entries = store.verified()
    order = [(entry.kind, entry.release) for entry in entries if "trial" in (entry.release or "")]
    expected = []
    for number in (1, 2, 3):
        for what in ("training", "figures"):
            name = f"phase-0/trial-{number}/{what}"
            expected += [(EntryKind.RESERVE, name), (EntryKind.COMMIT, name)]
    assert [step for step in order if step[0] is not EntryKind.CHECKPOINT] == expected
    last = max(i for i, entry in enumerate(entries) if "trial" in (entry.release or ""))
    training = [i for i, entry in enumerate(entries) if entry.release == "phase-0/training"]
    assert last < min(training)


def test_the_certificate_counts_them_and_holds(searched):
    checks = dpal.verify(searched, ledger=searched.ledger)
    assert not any_failed(checks)
    certificate = json.loads(searched.certificate.read_text(encoding="utf-8"))
    events = {one["cohort"]: one["events"] for one in certificate["cohorts"]}
    trials = [one for one in events["0"] if "trial" in one["release"]]
    assert len(trials) == 3
    assert sum("trial" in one["release"] for one in events[VALIDATION]) == 3
    assert not any("trial" in one["release"] for one in events["1"])
    assert len(certificate["models"]) == 2  # of phases alone
    assert "trials" in certificate["tuning"]
    assert sum("trial" in one for one in certificate["exceptions"]) == 1


def test_the_best_by_the_released_figure_goes_on(searched):
    told = json.loads(searched.phase(0).search.read_text(encoding="utf-8"))
    values = [one["validation_accuracy"] for one in told["trials"]]
    assert told["best"] == 1 + values.index(max(values))
    assert told["best"] != 2  # a learning rate of 1e-4 learns nothing
    assert [one["learning_rate"] for one in told["settings"]] == [0.5, 1e-4, 2.0]
    assert {"validation_low", "validation_high"} <= set(told["trials"][0])


@pytest.mark.slow
def test_phase_0_starts_from_its_model_with_its_settings(workplace, monkeypatch):
    seen = []
    real = phase_training.make_steps

    def watched(campaign, training, steps, monitor):
        weights = {name: value.clone() for name, value in training.model.state_dict().items()}
        seen.append((training.name, training.optimizer, weights))
        return real(campaign, training, steps, monitor)

    for module in (phase_training, private_settings_search):
        monkeypatch.setattr(module, "make_steps", watched)
    folder = dpal.run(settings(search={"trials": [{"learning_rate": 1e-4}], "epochs": 3}))
    names = [name for name, _, _ in seen]
    assert names == ["trial 1 of 2", "trial 2 of 2", "phase-0", "phase-1"]
    start, found = seen[1][2], seen[2][2]
    best = load_file(folder.phase(0).trial(1).weights)
    assert all(bool((found[name] == best[name]).all()) for name in best)
    # Trials start from the same fresh model, which the best has left.
    assert all(bool((seen[0][2][name] == start[name]).all()) for name in start)
    assert any(bool((found[name] != start[name]).any()) for name in start)
    assert [optimizer.learning_rate for _, optimizer, _ in seen] == [0.5, 1e-4, 0.5, 0.5]


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


MOMENTS = ("trained", "measured", "chosen")


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_repeats_no_trial(workplace, monkeypatch, moment):
    """What a trial released stays what it is; only what was not committed is made anew."""
    config = settings(validation=PROTECTED)
    module, name = {
        "trained": (private_settings_search, "figures_of"),
        "measured": (private_settings_search, "as_metrics"),
        "chosen": (private_settings_search, "write_text"),
    }[moment]
    real = getattr(module, name)
    calls = []

    def dies(*given, **named):
        calls.append(given)
        if moment == "chosen" or len(calls) == 2:
            raise Killed
        return real(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, dies)
        with pytest.raises(Killed):
            dpal.run(config)
    root = Path("artifacts/small")
    before = {path: path.read_bytes() for path in root.glob("phase-0/trial-*/*.*")}
    assert before
    folder = dpal.run(config)
    assert {path: path.read_bytes() for path in before} == before
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    with closing(LedgerStore(LEDGER)) as store:
        reserved = [e.release for e in store.verified() if e.kind is EntryKind.RESERVE]
    assert len(reserved) == len(set(reserved))


def run_until(monkeypatch: pytest.MonkeyPatch, config: CampaignConfig, name: str) -> None:
    """Runs a campaign that is killed where its search first calls a function."""

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(private_settings_search, name, dies)
        with pytest.raises(Killed):
            dpal.run(config)


def test_a_trial_whose_weights_are_gone_is_not_made_again(workplace, monkeypatch):
    config = settings()
    run_until(monkeypatch, config, "write_text")
    CampaignFolder(Path("artifacts/small")).phase(0).trial(2).weights.unlink()
    with pytest.raises(LedgerError):
        dpal.run(config)


def test_a_choice_that_is_gone_stops_the_campaign(workplace, monkeypatch):
    config = settings()
    run_until(monkeypatch, config, "notify")
    campaign = prepare(config)
    campaign.folder.phase(0).search.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError):
        phase_training.load_model(campaign, -1)
    campaign.folder.phase(0).search.unlink()
    with pytest.raises(DataError):
        phase_training.load_model(campaign, -1)


def test_finished_trials_cannot_be_drawn_again(searched, monkeypatch):
    monkeypatch.chdir(searched.root.parent.parent)
    campaign = prepare(settings(validation=PROTECTED))
    with pytest.raises(LedgerError):
        start_over(campaign, ["phase-0/trial-1/training"])


@pytest.mark.slow
def test_a_trial_that_lost_its_checkpoint_can_be_paid_again(workplace, monkeypatch):
    config = settings(runtime__checkpoint_steps=1, privacy__epsilon=20.0)
    real = phase_training.make_steps

    def dies(campaign, training, steps, monitor):
        real(campaign, training, steps, monitor)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(private_settings_search, "make_steps", dies)
        with pytest.raises(Killed):
            dpal.run(config)
    (checkpoint,) = Path("artifacts/small/phase-0/trial-1/checkpoints").rglob("*.safetensors")
    checkpoint.unlink()
    name = "phase-0/trial-1/training"
    with pytest.raises(LedgerError) as refused:
        dpal.run(config)
    assert f"--redraw {name}" in str(refused.value)
    campaign = prepare(config)
    with leading_process(campaign.folder.root), lock_folder(campaign.folder.root):
        start_over(campaign, [name])
    with closing(LedgerStore(LEDGER)) as store:
        reserved = [e.release for e in store.verified() if e.kind is EntryKind.RESERVE]
    assert reserved.count(f"{name}#2") == 1


TIMES = ("before phase 0", "inside it", "after it")


@pytest.mark.parametrize("moment", quick_and_slow(["after it"], TIMES))
def test_a_choice_that_somebody_edited_decides_nothing(workplace, monkeypatch, moment):
    """A search goes on with what the released figures say, whatever the file does."""
    config = settings(search={"trials": [{"learning_rate": 1e-4}]}, runtime__checkpoint_steps=1)
    real = phase_training.make_steps

    def dies(campaign, training, steps, monitor):
        if moment == "inside it":
            real(campaign, training, steps, monitor)
        raise Killed

    with monkeypatch.context() as patch:
        if moment == "after it":
            patch.setattr("dpal.runs.campaign_use_cases.keep_files", keep_until_phase_0())
        else:
            patch.setattr(phase_training, "make_steps", dies)
        with pytest.raises(Killed):
            dpal.run(config)
    path = CampaignFolder(Path("artifacts/small")).phase(0).search
    told = json.loads(path.read_text(encoding="utf-8"))
    assert told["best"] == 1
    path.write_text(json.dumps({**told, "best": 2}), encoding="utf-8")
    if moment != "after it":
        folder = dpal.run(config)
        assert json.loads(folder.phase(0).search.read_text(encoding="utf-8"))["best"] == 1
        return
    with pytest.raises(LedgerError):
        dpal.run(config)


def keep_until_phase_0():
    """Stands for the store, and dies when phase 0 is finished."""

    def keep(run):
        if run.folder.phase(0).manifest.is_file():
            raise Killed

    return keep


def test_the_report_shows_every_trial(searched):
    text = searched.report.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    tried = [row[1:3] for row in rows if len(row) > 3 and row[2] in ("0.5", "0.0001", "2")]
    best = json.loads(searched.phase(0).search.read_text(encoding="utf-8"))["best"]
    expected = [["1", "0.5"], ["2", "0.0001"], ["3", "2"]]
    expected[best - 1][0] += " (goes on)"
    assert tried[:3] == expected
    page = (searched.root / "ledger.html").read_text(encoding="utf-8")
    said = statements_about(
        stopped=False,
        secret_draws=False,
        self_training=False,
        protected_validation=True,
        searched=True,
    )
    holds = {said["tuning"], *said["exceptions"]}
    does_not = {STATEMENTS["tuning"], *STATEMENTS["exceptions"]} - holds
    assert len(does_not) == 3
    for shown in (page, text):  # as sentences, with a capital
        assert not [one for one in holds if one[1:] not in shown]
        assert not [one for one in does_not if one[1:] in shown]


MODES: dict[str, dict[str, Any]] = {
    "random": {"acquisition": "random", "privacy__selection": "hidden"},
    "open draw": {"acquisition": "random"},
    "visible": {},
    "paper": {"privacy__selection": "paper", "strategy": "naive"},
    "hidden": {"privacy__selection": "hidden", "schedule__queries": [200]},
    "rdp": {"privacy__accountant": "rdp"},
    "continual": {"acquisition": "random", "strategy": "continual"},
    "noise reduction": {"acquisition": "random", "strategy": "noise_reduction"},
    "replace one": {"acquisition": "random", "privacy__adjacency": "replace_one"},
    "unlabeled": {"acquisition": "random", "self_training": {"epochs": 2}},
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_plans_spend_the_promise_with_a_search_as_without(mode):
    """The noise grows by what trials cost: no more, no less."""
    asked = {"privacy__epsilon": 8.0, **MODES[mode]}
    plain = certified_plan(small_spec(2000, **asked))
    plan = certified_plan(small_spec(2000, search=SEARCH, **asked))
    assert plan.plan.trial is not None
    first, without = (one.plan.phases[0].training for one in (plan, plain))
    assert first.noise_multiplier > without.noise_multiplier
    trial = plan.plan.trial
    assert replace(trial, steps=first.steps) == first
    assert plan.epsilon <= 8
    assert plan.epsilon > plain.epsilon - 0.1
    assert releases(plan.plan, TRIAL) == [f"phase-0/trial-{n}/training" for n in (1, 2, 3)]
    # Without the trials the same noise would spend visibly less.
    cheaper = replace(plan.plan, trial=None, spec=replace(plan.plan.spec, search=None))
    assert certify_plan(cheaper).cohorts[0].spent.epsilon_pld < (
        plan.cohorts[0].spent.epsilon_pld - 0.2
    )


@pytest.mark.slow
def test_the_explanation_says_what_the_search_costs():
    plan = certified_plan(small_spec(2000, search=SEARCH, acquisition="random"))
    (remark,) = [one for one in explain_campaign(plan) if "noise_multiplier" in one.numbers
                 and "trials" in one.numbers]  # fmt: skip
    assert remark.numbers["trials"] == 3
    assert remark.numbers["noise_multiplier"] < plan.plan.phases[0].training.noise_multiplier
    assert plan.plan.trial is not None
    assert plan.summary()["search"] == {"trials": 3, "steps": plan.plan.trial.steps}


REFUSED: dict[str, dict[str, Any]] = {
    "none": {"trials": []},
    "twice": {"trials": [{"learning_rate": 2.0}, {"learning_rate": 2}]},
    "as it is": {"trials": [{"learning_rate": 0.5}]},
    "ignored": {"trials": [{"optimizer": "adam"}, {"optimizer": "adam", "momentum": 0.5}]},
    "no rate": {"trials": [{"learning_rate": 0}]},
    "unknown": {"trials": [{"rate": 1}]},
    "momentum": {"trials": [{"momentum": 1.0}]},
    "epochs": {"trials": [{"momentum": 0.5}], "epochs": 0},
}


@pytest.mark.parametrize("name", REFUSED)
def test_searches_that_make_no_sense_are_refused(name):
    with pytest.raises((ConfigError, ParameterError)):
        small_spec(search=REFUSED[name])


def test_a_training_pool_trains_no_trials():
    with pytest.raises(ConfigError) as refused:
        settings(runtime__training_pool="gpus")
    assert "training_pool" in str(refused.value)


@pytest.mark.parametrize(
    "edit",
    [
        "one fewer",
        "fewer steps",
        "more noise",
        "lower rate",
        "other cohort",
        "no trials",
        "untrained",
        "unlike phase 0",
    ],
)
def test_what_trials_cost_cannot_be_left_out_of_a_certificate(searched, edit):
    """The plan lists trials; held releases have to charge each of them in full."""
    certificate = json.loads(searched.certificate.read_text(encoding="utf-8"))
    evidence = evidence_from(certificate)
    plan, held = dict(evidence.plan), [
        release_from(record) for record in evidence.hold.body["releases"]
    ]  # fmt: skip
    assert not list(_unpaid_trials(plan, held))
    index = next(i for i, one in enumerate(held) if one.name == "phase-0/trial-2/training")
    (charge,) = held[index].charges
    assert isinstance(charge.event, PhaseExposure)
    changes: dict[str, dict[str, Any]] = {
        "fewer steps": {"steps": charge.event.steps - 1},
        "more noise": {"noise_multiplier": charge.event.noise_multiplier * 1.01},
        "lower rate": {"sample_rate": charge.event.sample_rate * 0.99},
    }
    if edit == "one fewer":
        del held[index]
    elif edit == "no trials":
        plan["trial"] = None
    elif edit == "untrained":
        plan["trial"] = {**plan["trial"], "sample_rate_new": 0.0}
    elif edit == "unlike phase 0":  # charged in full, and other than what is said of a search
        plan["trial"] = {**plan["trial"], "noise_multiplier": 99.0}
    elif edit == "other cohort":
        held[index] = replace(held[index], charges=(replace(charge, cohorts=("1",)),))
    else:
        cheaper = replace(charge, event=replace(charge.event, **changes[edit]))
        held[index] = replace(held[index], charges=(cheaper,))
    assert list(_unpaid_trials(plan, held))


def test_figures_of_trials_cannot_be_left_out_either(searched):
    certificate = json.loads(searched.certificate.read_text(encoding="utf-8"))
    evidence = evidence_from(certificate)
    held = [release_from(record) for record in evidence.hold.body["releases"]]
    assert not list(_unpaid_figures(evidence.plan, held))
    for name in [one.name for one in held if one.kind == FIGURES]:
        left = [one for one in held if one.name != name]
        assert list(_unpaid_figures(evidence.plan, left)), name


@pytest.mark.slow
def test_an_account_without_a_search_reads_as_before():
    """Plans without one have the digest that they had: the field is not in their record."""
    told = plain(certified_plan(small_spec(2000, acquisition="random")).plan)
    assert "trial" not in told
    assert "search" not in told["spec"]
    told = plain(certified_plan(small_spec(2000, acquisition="random", search=SEARCH)).plan)
    assert told["trial"]["steps"] > 0
    assert len(told["spec"]["search"]["others"]) == 2
