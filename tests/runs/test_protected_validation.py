"""A campaign whose validation records are protected: once a phase, with noise, and charged."""

from __future__ import annotations

import copy
import json
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import dpal
from dpal.accounting.events import VALIDATION
from dpal.accounting.validation_count_sensitivity import SCORE_BINS
from dpal.audit.audit_campaign_plan import Effort
from dpal.certificate.check_outcome import CheckOutcome, any_failed
from dpal.certificate.kinds.campaign import CAMPAIGN, _dear_figures, _unpaid_figures
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.campaign import parse_config
from dpal.data import labeling_state
from dpal.errors import ConfigError, LedgerError, PlanRejected
from dpal.files.artifacts import CampaignFolder
from dpal.labels import Task
from dpal.ledger.entries import EntryKind
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_json import release_from
from dpal.planning.campaign_spec import ThresholdStart
from dpal.planning.certify_campaign import certify_plan
from dpal.planning.explain_campaign import explain_campaign
from dpal.runs import audit_by_attacks, phase_measuring, validation_reuse_warning
from dpal.runs.campaign import Campaign
from dpal.runs.kinds import parse_any
from dpal.runs.phase_training import load_model
from dpal.runs.prepare_campaign import open_data, prepare, prepare_campaign
from dpal.runs.sweeps import members
from dpal.training.evaluation import probabilities
from dpal.training.metrics import evaluation_metrics
from dpal.training.noisy_metrics import confusion_counts, noisy_accuracy
from dpal.training.noisy_validation_counts import ReleasedCounts, further_figures, headline_of
from tests.conftest import PUBLIC, having, nothing_released, small_values, write_blobs
from tests.flows import improving, voting

RECORDS = 301  # a share of them has many digits, and is found in no other number
LEDGER = Path("artifacts/ledger.sqlite")
PROTECTED = {"protected": True, "epsilon": 2.0}
SETTINGS: dict[str, Any] = {
    "validation": PROTECTED,
    "acquisition": "random",
    "schedule__queries": [40],
    "self_training": {"epochs": 2},
    "stop": {"patience": 2},
}


def values(**changes: Any) -> dict[str, Any]:
    return small_values(**{**copy.deepcopy(SETTINGS), **changes})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One finished campaign for many tests, which only look at it."""
    root = tmp_path_factory.mktemp("protected")
    write_blobs(root / "pool.parquet", 600, seed=1)
    mislabel(write_blobs(root / "validation.parquet", RECORDS, seed=2, prefix="v"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        dpal.run(parse_config(values()))
    yield root


@pytest.fixture
def folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> CampaignFolder:
    monkeypatch.chdir(place)
    return CampaignFolder(Path("artifacts/small"))


def entries(kind: EntryKind) -> list[str]:
    store = LedgerStore(LEDGER)
    found = [entry.release for entry in store.verified() if entry.kind is kind]
    store.close()
    return [name for name in found if name.endswith("/figures")]


NAMES = [f"phase-{number}/figures" for number in range(3)]


def test_each_phase_is_measured_once_reserved_before_it_is_drawn(folder):
    assert len(folder.finished_phases()) == 3
    assert entries(EntryKind.RESERVE) == entries(EntryKind.COMMIT) == NAMES


def test_the_certificate_counts_validation_records_by_two_accountants(folder):
    checks = dpal.verify(folder, ledger=LEDGER)
    assert not any_failed(checks)
    by_name = {check.name: check for check in checks}
    assert "validation: 1.99" in by_name["cohorts, dp-accounting"].detail
    document = read_certificate(folder.certificate.read_text())
    (cohort,) = [one for one in document["cohorts"] if one["cohort"] == VALIDATION]
    assert cohort["planned_size"] == RECORDS
    assert 1.99 < cohort["epsilon_pld"] <= 2.0
    assert [event["release"] for event in cohort["events"]] == NAMES
    assert not any("not protected" in one and "metrics" in one for one in document["exceptions"])
    account = dpal.account(folder)
    assert account.cohorts[-1].cohort == VALIDATION
    assert account.epsilon > 7.9, "the pool's part is dearer"


def test_all_figures_follow_from_what_was_released(folder):
    """Accuracy, its interval, which phase is best: recomputed from the noisy counts alone."""
    curve = []
    for number, phase in enumerate(folder.finished_phases()):
        told = json.loads(folder.phase(number).validation.read_text())
        assert set(told) == {"records", "noise", "counts"}
        interval = noisy_accuracy(np.array(told["counts"]), records=RECORDS, noise=told["noise"])
        assert phase["validation_accuracy"] == interval.value
        assert (phase["validation_low"], phase["validation_high"]) == (interval.low, interval.high)
        assert phase["cohorts"][-1]["cohort"] == VALIDATION
        assert phase["cohorts"][-1]["epsilon_pld"] <= 2.0
        curve.append(interval.value)
    best = max(range(3), key=lambda phase: (curve[phase], phase))
    named = read_certificate(folder.certificate.read_text())["model"]["file"]
    assert named.startswith(f"phase-{best}/")
    report = folder.report.read_text()
    assert "which is protected" in report and "95 % interval" in report
    assert "validation set" in report


def exact_counts(folder: CampaignFolder, **changes: Any) -> list[np.ndarray]:
    campaign = prepare(parse_config(values(**changes)))
    inputs, labels = labeling_state.load_all(campaign.validation)
    task = campaign.plan.spec.model.task
    return [
        confusion_counts(
            probabilities(load_model(campaign, phase), inputs, physical_batch=256, task=task),
            labels.numpy(),
        )
        for phase in range(len(folder.finished_phases()))
    ]


def test_no_file_holds_an_exact_figure_or_a_validation_record(folder):
    """Whatever lies in the artifacts folder but the confidential: text, Parquet, weights."""
    ids = pq.read_table("validation.parquet", columns=["id"])["id"].to_pylist()
    exact = exact_counts(folder)
    told = [json.loads(folder.phase(n).validation.read_text())["counts"] for n in range(3)]
    assert all((counts != np.array(noisy)).any() for counts, noisy in zip(exact, told, strict=True))
    secrets = [json.dumps(counts.tolist()) for counts in exact]
    secrets += [repr(float(np.trace(counts)) / RECORDS) for counts in exact]
    released = {phase["validation_accuracy"] for phase in folder.finished_phases()}
    secrets = [one for one in secrets if one not in {repr(value) for value in released}]
    looked = 0
    for path in sorted(Path("artifacts").rglob("*")):
        if not path.is_file() or "confidential" in path.parts:
            continue
        content = path.read_bytes()
        assert not any(name.encode() in content for name in ids), path
        assert not any(secret.encode() in content for secret in secrets), path
        looked += 1
    assert looked > 15


ALONE: dict[str, Any] = {"schedule__queries": [], "self_training": None, "stop": None}


def test_nothing_exact_is_said_on_the_way(workplace, capsys, caplog, monkeypatch):
    """Every line that a run says, and every figure that it hands on."""
    said: list[str] = []
    monkeypatch.setattr(phase_measuring, "notify", said.append)
    mislabel(write_blobs(Path("validation.parquet"), RECORDS, seed=2, prefix="v"))
    about = {**ALONE, "validation": {"protected": True, "epsilon": 0.3}}
    folder = dpal.run(parse_config(values(**about)))
    (phase,) = folder.finished_phases()
    heard = "\n".join([*said, *capsys.readouterr(), caplog.text])
    low, high = (f"{100 * phase[f'validation_{end}']:.2f} %" for end in ("low", "high"))
    assert f"({low} to {high})" in heard
    (exact,) = exact_counts(folder, **about)
    share = f"{100 * np.trace(exact) / RECORDS:.2f} %"
    # Noise of 20 records on each count: it leaves the figure alone once in 90 times.
    if share != f"{100 * phase['validation_accuracy']:.2f} %":
        assert share not in heard


def mislabel(path: Path) -> None:
    """Gives every third record another label, so that nobody is always right."""
    table = pq.read_table(path)
    labels = [(label + (row % 3 == 0)) % 3 for row, label in enumerate(table["label"].to_pylist())]
    column = table.schema.get_field_index("label")
    pq.write_table(table.set_column(column, "label", [labels]), path)


KILLED = """
import os, signal, sys
import dpal
from dpal.runs import phase_measuring
from dpal.ledger.ledger_store import LedgerStore
from dpal.config.campaign import parse_config
import json
here, values = sys.argv[1], json.loads(sys.argv[2])
def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)
append = LedgerStore.append
def appending(self, **entry):
    if entry["release"].endswith("/figures") and entry["kind"].value == "commit":
        die()
    return append(self, **entry)
if here == "drawing":
    phase_measuring.draw_counts = die
elif here == "committing":
    LedgerStore.append = appending
dpal.run(parse_config(values))
"""


@pytest.mark.slow
@pytest.mark.parametrize("here", ["drawing", "committing"])
def test_a_run_that_is_killed_while_it_measures_draws_what_was_reserved_once(
    workplace, forked, here
):
    """SIGKILL after the reservation: before anything is on disk, and before the commit."""
    about = values(**ALONE)
    assert forked.run(KILLED, here, json.dumps(about)).returncode == -signal.SIGKILL
    assert entries(EntryKind.RESERVE) == NAMES[:1] and entries(EntryKind.COMMIT) == []
    counts = Path("artifacts/small/phase-0/validation.json")
    drawn = counts.read_bytes() if counts.exists() else None
    assert (drawn is None) is (here == "drawing")
    folder = dpal.run(parse_config(about))
    assert entries(EntryKind.RESERVE) == entries(EntryKind.COMMIT) == NAMES[:1]
    if drawn is not None:
        assert counts.read_bytes() == drawn, "what is on disk may have been seen: never again"
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    counts.write_text(counts.read_text().replace("[[", "[[1"))
    Path("artifacts/small/phase-0/manifest.json").unlink()
    with pytest.raises(LedgerError, match="altered"):
        dpal.run(parse_config(about))


def test_a_plan_whose_figures_are_not_charged_is_no_plan_of_the_certificate(folder):
    document = read_certificate(folder.certificate.read_text())
    evidence = CAMPAIGN.read(document)
    held = [release_from(record) for record in evidence.hold.body["releases"]]
    plan = copy.deepcopy(dict(evidence.plan))
    assert list(_unpaid_figures(plan, held)) == []
    fewer = [release for release in held if release.name != NAMES[1]]
    (fault,) = _unpaid_figures(plan, fewer)
    assert "phase 1" in fault
    louder = copy.deepcopy(plan)
    louder["figures"]["noise_multiplier"] /= 2
    assert len(list(_unpaid_figures(louder, held))) == 3
    unprotected = {**plan["spec"], "validation": None}
    for other in ({**plan, "figures": None}, {**plan, "spec": unprotected}):
        assert len(list(_unpaid_figures(other, held))) == 1
    assert list(_dear_figures(plan, held, evidence.target)) == []
    promised_less = copy.deepcopy(plan)
    promised_less["spec"]["validation"]["epsilon"] = 1.9
    (fault,) = _dear_figures(promised_less, held, evidence.target)
    assert "1.9" in fault
    moved = copy.deepcopy(plan)
    moved["spec"]["target"]["adjacency"] = "replace_one"
    assert any("fewer counts" in fault for fault in _unpaid_figures(moved, held))
    forged = copy.deepcopy(document)
    forged["cohorts"][-1]["epsilon_pld"] = 1.0
    failed = {
        check.name
        for check in CAMPAIGN.verify(forged)
        if check.outcome is CheckOutcome.FAILED
    }  # fmt: skip
    assert {"certificate", "epsilon, our accountant", "cohorts, dp-accounting"} <= failed


def test_no_plan_is_certified_whose_figures_cost_more_than_they_may(workplace):
    """Whoever made it: the planner is not trusted."""
    plan = prepare(parse_config(values())).plan
    spec = plan.spec
    assert spec.validation is not None
    less = replace(spec, validation=replace(spec.validation, epsilon=1.9))
    with pytest.raises(PlanRejected, match=r"validation\.epsilon 1\.9"):
        certify_plan(replace(plan, spec=less))


def test_hidden_queries_begin_without_the_validation_set(workplace):
    config = parse_config(values(privacy={"selection": "hidden"}, acquisition="entropy"))
    spec = open_data(config).spec
    assert spec.threshold_start is ThresholdStart.PLAIN
    assert spec.validation is not None and spec.validation.records == 300


@pytest.mark.parametrize(
    "wrong",
    [
        {"acquisition": "auto", "self_training": None},
        {"data__normalisation": {"kind": "validation"}},
        {"privacy": {"selection": "hidden", "label_cap": "sum"}, "acquisition": "entropy"},
        {"validation": {"public": True, "why": "x", "protected": True}},
        {"validation": {"public": True, "why": "x", "epsilon": 1.0}},
    ],
)
def test_settings_that_would_leave_more_are_refused(wrong):
    with pytest.raises(ConfigError):
        parse_config(values(**wrong))


def test_settings_are_not_chosen_by_protected_figures(workplace):
    about = values()
    with pytest.raises(ConfigError, check=nothing_released) as refused:
        next(members(about, [("privacy.epsilon", [1, 2])], []))
    assert refused.value.fault == "protected"


def test_other_kinds_ask_for_public_records(workplace):
    write_blobs(Path("public.parquet"), 200, seed=3, prefix="p")
    public = {**improving.settings("better"), "validation": {"protected": True}}
    with pytest.raises(ConfigError, check=having(fault="protected", released=False)):
        dpal.plan(parse_any(public))
    votes = {**voting.settings("votes"), "validation": {"protected": True}}
    with pytest.raises(ConfigError, check=having(fault="protected", released=False)):
        dpal.plan(parse_any(votes))


def test_campaigns_on_the_same_file_are_told_what_its_records_may_lose(folder, monkeypatch):
    """Each has its own promise; nothing else adds them up."""
    said: list[str] = []
    monkeypatch.setattr(validation_reuse_warning, "notify", said.append)
    again = parse_config(values(name="again", **ALONE))
    prepare_campaign(again)
    prepare_campaign(parse_config(values()))
    prepare_campaign(parse_config(values(name="public", validation=dict(PUBLIC), **ALONE)))
    (told,) = said
    assert "by small as well" in told
    spent = re.search(r"epsilon ([\d.]+) at delta", told)
    assert spent and 3.99 < float(spent.group(1)) <= 4.0


def test_who_measures_openly_on_the_same_file_is_named(workplace, monkeypatch):
    dpal.run(parse_config(values(name="openly", validation=dict(PUBLIC), **ALONE)))
    said: list[str] = []
    monkeypatch.setattr(validation_reuse_warning, "notify", said.append)
    prepare_campaign(parse_config(values(**ALONE)))
    (told,) = said
    assert "openly" in told and "by" not in told.split()


def write_several(path: Path, rows: int, *, seed: int, prefix: str = "r") -> None:
    """Records with three labels each, some of which nobody knows."""
    write_blobs(path, rows, seed=seed, prefix=prefix)
    table, rng = pq.read_table(path), np.random.default_rng(seed)
    values = np.array(table["features"].to_pylist())[:, :3]
    labels = np.where(rng.random((rows, 3)) < 0.1, -1, (values > 0.7).astype(int))
    column = table.schema.get_field_index("label")
    several = pa.array(labels.tolist(), pa.list_(pa.int8()))
    pq.write_table(table.set_column(column, "label", several), path)


SEVERAL: dict[str, Any] = {
    "validation": {"protected": True, "epsilon": 2.0},
    "acquisition": "random",
    "schedule__queries": [40],
    "training__learning_rate": 5.0,
}


def several_campaign() -> Campaign:
    return prepare(parse_config(values(**{**SETTINGS, **SEVERAL, "stop": None})))


def guesses_of(campaign: Campaign, phase: int, inputs: torch.Tensor) -> np.ndarray:
    task, model = campaign.plan.spec.model.task, load_model(campaign, phase)
    return probabilities(model, inputs, physical_batch=256, task=task)


@pytest.fixture
def several(workplace: Path) -> CampaignFolder:
    write_several(workplace / "pool.parquet", 600, seed=1)
    write_several(workplace / "validation.parquet", RECORDS, seed=2, prefix="v")
    return dpal.run(parse_config(values(**{**SETTINGS, **SEVERAL, "stop": None})))


@pytest.mark.slow
def test_several_labels_are_measured_by_noisy_counts_of_each(several):
    """All figures follow from what was released, and the certificate has their charge."""
    assert not any_failed(dpal.verify(several, ledger=LEDGER))
    curve, shown = [], set[str]()
    for number, phase in enumerate(several.finished_phases()):
        text = several.phase(number).validation.read_text()
        told = json.loads(text)
        assert set(told) == {"records", "noise", "counts", "spread"}
        assert np.array(told["counts"]).shape == (3, 2, 2)
        released = ReleasedCounts.from_json(text)
        name, interval = headline_of(released)
        assert name == "micro_f1" and phase["validation_micro_f1"] == interval.value
        assert (phase["validation_low"], phase["validation_high"]) == (interval.low, interval.high)
        shown.add(repr(interval.value))
        for label, (_, recall) in enumerate(further_figures(released)):
            key = f"validation_recall/class_{label}"
            ends = (phase[f"{key}_low"], phase[f"{key}_high"])
            assert ends == (recall.low, recall.high)
            assert phase["validation_classes"][label]["recall"] == recall.value
            shown.add(repr(recall.value))
        assert "validation_macro_f1" not in phase and "validation_macro_auc" not in phase
        curve.append(interval.value)
    document = read_certificate(several.certificate.read_text())
    best = max(range(len(curve)), key=lambda phase: (curve[phase], phase))
    assert document["model"]["file"].startswith(f"phase-{best}/")
    (cohort,) = [one for one in document["cohorts"] if one["cohort"] == VALIDATION]
    assert [event["moved"] for event in cohort["events"]] == [4] * len(curve)
    assert 1.99 < cohort["epsilon_pld"] <= 2.0
    evidence = CAMPAIGN.read(document)
    held = [release_from(record) for record in evidence.hold.body["releases"]]
    plan = copy.deepcopy(dict(evidence.plan))
    assert list(_unpaid_figures(plan, held)) == []
    plan["figures"]["moved"] = 3
    assert len(list(_unpaid_figures(plan, held))) == 1 + len(curve)
    assert "micro-F1" in several.report.read_text()
    inputs, labels = labeling_state.load_all(several_campaign().validation)
    exact = [
        evaluation_metrics(Task.MULTI_LABEL, guessed, labels.numpy())
        for number in range(len(curve))
        for guessed in [guesses_of(several_campaign(), number, inputs)]
    ]
    told = (repr(value) for figures in exact for value in figures.values())
    # Found in no other number: noisy counts are whole, so that a share of them may be an exact one.
    secrets = [value for value in told if len(value) > 12 and value not in shown]
    ids = pq.read_table("validation.parquet", columns=["id"])["id"].to_pylist()
    for path in sorted(Path("artifacts").rglob("*")):
        if path.is_file() and "confidential" not in path.parts:
            content = path.read_bytes()
            assert not any(secret.encode() in content for secret in [*secrets, *ids]), path


@pytest.mark.slow
def test_an_audit_makes_records_of_several_labels_up(several):
    audit_by_attacks.audit_campaign(
        several_campaign(), Effort(canaries=40, most_steps=4, draws=1 << 16)
    )


def test_areas_are_released_where_they_are_asked_for(workplace):
    """One vector a phase: of labels three counts, three bins and the spread of one record."""
    write_several(workplace / "pool.parquet", 600, seed=1)
    write_several(workplace / "validation.parquet", RECORDS, seed=2, prefix="v")
    asked = {"protected": True, "epsilon": 7.0, "auc": True}
    about = {**ALONE, "training__learning_rate": 5.0, "validation": asked}
    folder = dpal.run(parse_config(values(**about)))
    assert not any_failed(dpal.verify(folder, ledger=LEDGER))
    (phase,) = folder.finished_phases()
    text = folder.phase(0).validation.read_text()
    assert np.array(json.loads(text)["scores"]).shape == (3, 2, SCORE_BINS)
    for name, interval in further_figures(ReleasedCounts.from_json(text)):
        key = f"validation_{name}"
        assert (phase[f"{key}_low"], phase[f"{key}_high"]) == (interval.low, interval.high)
        if name == "macro_auc":
            assert phase[key] == interval.value
        assert phase.get(f"{key}_binning", 0.0) == interval.hidden
    assert 0.5 < phase["validation_macro_auc"] <= phase["validation_macro_auc_high"]
    assert "macro AUC, 95 %" in folder.report.read_text()
    document = read_certificate(folder.certificate.read_text())
    (event,) = document["cohorts"][-1]["events"]
    assert event["moved"] == 7
    evidence = CAMPAIGN.read(document)
    held = [release_from(record) for record in evidence.hold.body["releases"]]
    plan = copy.deepcopy(dict(evidence.plan))
    assert plan["spec"]["validation"]["auc"] is True
    assert list(_unpaid_figures(plan, held)) == []
    plan["figures"]["moved"] = 4  # without histograms it would be enough
    assert len(list(_unpaid_figures(plan, held))) == 2
    remarks = explain_campaign(prepare(parse_config(values(name="again", **about))).certified)
    (remark,) = [one for one in remarks if "auc_half_width" in one.numbers]
    assert "validation.auc" in remark.text


def test_an_audit_makes_its_records_up(folder, monkeypatch):
    config = parse_config(values())
    run = prepare(config)
    read: list[str] = []

    def reading(source):
        read.append(source.name)
        return labeling_state.load_all(source)

    monkeypatch.setattr(audit_by_attacks, "load_all", reading)
    effort = Effort(canaries=40, most_steps=4, draws=1 << 16)
    audit_by_attacks.audit_campaign(run, effort)
    assert read and all(name.endswith("made-up.parquet") for name in read)
