"""Other ways to learn from the same private records; for comparing, in the same report.

`non_private` protects nobody and its weights are kept nowhere. The others release something
of their own under an account of their own: publishing several of them adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
from safetensors.torch import load_file
from torch import Tensor

from dpal.accounting.cohort_spending import Accountant, campaign_epsilon
from dpal.accounting.events import VOTING, Charge, Release
from dpal.accounting.safe_search import smallest_safe
from dpal.canonical import digest, plain
from dpal.config.campaign import CampaignConfig
from dpal.config.pate import CAMPAIGN_BASELINES
from dpal.data.labeling_state import load_all
from dpal.data.readers import to_input
from dpal.errors import DataBudgetExceeded, DpalError, ParameterError, RecordsRegistered
from dpal.files.artifacts import CampaignFolder
from dpal.files.atomic_writes import atomic_write
from dpal.ledger.folder_lock import lock_folder
from dpal.ledger.release_protocol import CampaignLedger
from dpal.models.build_model import build_model
from dpal.planning.voting_plan import COHORT
from dpal.privacy import PrivacyTarget, Unit
from dpal.randomness import secure
from dpal.runs.choose_queries import asked_rows
from dpal.runs.ensemble_data_set_holds import further_shares
from dpal.runs.improvement_start_model import finished_folder
from dpal.runs.open_ledger import commit_to, open_ledger
from dpal.runs.plan_new_campaign import require_unregistered
from dpal.runs.prepare_ensemble import Ensemble, reading_settings
from dpal.runs.progress_logging import notify
from dpal.runs.released_phase import released_weights
from dpal.runs.student import student_from
from dpal.runs.student_quality import evaluate_model, judgements, keep_judgement
from dpal.runs.teachers import load_inputs
from dpal.runs.vote_account import read_released, released_labels_table
from dpal.training.plain_training import fine_tune
from dpal.voting.private_knn import Neighbours, ask_neighbours

NON_PRIVATE, KNN, CAMPAIGNS = "non_private", "private_knn", "campaigns"
Judge = Callable[[Ensemble, str], None]

_VOTES = "knn/votes"
_TIGHTER = 0.85  # of the noise that Rényi bounds ask for; it is never less than this


def baseline_settings(ensemble: Ensemble, name: str) -> CampaignConfig:
    """The campaign that is a baseline: DP-SGD on all private records at once."""
    config, about = ensemble.config, ensemble.config.baselines
    training, data = config.training.model_dump(), ensemble.data
    # Of a registered data set one record of each owner is trained on.
    owners = ensemble.rows if data is None else sum(share.size for share in data.shares)
    if name == "dp_sgd_adaptive":
        training["clipping"] = {**training["clipping"], "kind": "adaptive"}
    schedule = {
        "initial": owners,
        "queries": [],
        "batch_size": min(about.batch_size, owners),
        "epochs_per_phase": about.epochs,
    }
    return reading_settings(
        config, name=_account(ensemble, name), schedule=schedule, training=training
    )


def judge_campaign(ensemble: Ensemble, name: str) -> None:
    """Measures a baseline that was trained as a campaign."""
    folder = finished_folder(ensemble.config.runtime, _account(ensemble, name))
    model = build_model(ensemble.model)
    model.load_state_dict(load_file(released_weights(folder)))
    spent = folder.finished_phases()[-1]["campaign_epsilon"]
    judged = evaluate_model(ensemble, model.to(ensemble.device))
    keep_judgement(ensemble, name, {**judged, "epsilon": spent})


def judge_non_private(ensemble: Ensemble, _name: str = NON_PRIVATE) -> None:
    """Trains on all private records without any protection, measures, and forgets the model."""
    inputs, labels = load_all(ensemble.pool)
    model = build_model(ensemble.model).to(ensemble.device)
    training = ensemble.config.teachers.to_training(0)
    fine_tune(model, inputs, labels, training, task=ensemble.model.task)
    judged = evaluate_model(ensemble, model)
    keep_judgement(ensemble, NON_PRIVATE, {**judged, "epsilon": None, "protects": "nobody"})
    notify("non_private protects nobody: its figures are for comparing, its model was not kept")


def judge_private_knn(ensemble: Ensemble, _name: str = KNN) -> None:
    """Lets nearest private records vote on the same queries, and measures a student of theirs."""
    folder = CampaignFolder(ensemble.config.runtime.artifacts / _account(ensemble, KNN))
    neighbours, release = _planned(ensemble)
    released = folder.root / "votes-1" / "released.parquet"
    with lock_folder(folder.root), closing(open_ledger(ensemble.config.runtime)) as store:
        ledger = CampaignLedger(store, folder.name, folder.root)
        made_of = commit_to(ledger, folder, ensemble.pool.files_digest, called="account")
        target = _target(ensemble)
        data = ledger.data() or further_shares(store, folder.name, ensemble.data, [release], target)
        compared = None
        if data is None and ledger.identity is None:  # teachers may have taken hours meanwhile
            compared = require_unregistered(ensemble.config.runtime, ensemble.pool)
        plan = digest(plain(neighbours))
        ledger.hold(target, plan, made_of, [release], data=data, compared=compared)

        def draw() -> None:
            ids, asked = load_inputs(ensemble.public, asked_rows(ensemble))
            private, labels = load_all(ensemble.pool)
            # A neighbour of whom a label is not known says no: a vote moves by no more than one.
            labels = labels.clamp(min=0)
            answers = ask_neighbours(
                neighbours, _flat(private), labels.numpy(), _flat(asked), rng=secure()
            )
            with atomic_write(released) as temporary:
                pq.write_table(released_labels_table(ids, answers), temporary)

        ledger.release_once(release, draw, inputs=[], artifacts=[released])
        ledger.end()  # nothing is left, and nobody could end it: it is no run of its own
    _, labels = read_released(released)
    model = student_from(ensemble, asked_rows(ensemble), labels)
    spent = campaign_epsilon([release], target)
    keep_judgement(ensemble, KNN, {**evaluate_model(ensemble, model), "epsilon": spent})


JUDGES: Mapping[str, Judge] = {
    CAMPAIGNS: judge_campaign,
    NON_PRIVATE: judge_non_private,
    KNN: judge_private_knn,
}


def run_baselines(
    ensemble: Ensemble,
    run_campaign: Callable[[CampaignConfig], object],
    *,
    judges: Mapping[str, Judge] = JUDGES,
    tell: Callable[[str], None] = notify,
) -> None:
    """Other ways to learn from the same records, each under an account of its own.

    Args:
      ensemble: whose student is closed.
      run_campaign: runs the campaigns among them.
      judges: how each is measured.
      tell: is told what happens.
    """
    judged = judgements(ensemble.folder)
    for name in ensemble.config.baselines.run:
        if name in judged:
            continue
        tell(f"for comparing: {name}")
        try:
            if name in CAMPAIGN_BASELINES:
                run_campaign(baseline_settings(ensemble, name))
            judges.get(name, judges[CAMPAIGNS])(ensemble, name)
        except RecordsRegistered as refusal:  # since the votes were held
            _leave_out(name, refusal)
        except (DataBudgetExceeded, ParameterError) as refusal:
            if ensemble.data is None:
                raise
            _leave_out(name, refusal)


def _leave_out(name: str, refusal: DpalError) -> None:
    """Votes were released already: their student is certified all the same."""
    notify(f"{name} is left out: {refusal}")


def _planned(ensemble: Ensemble) -> tuple[Neighbours, Release]:
    """How neighbours vote with the least noise that keeps the promise."""
    about, target = ensemble.config.baselines, _target(ensemble)
    queries = ensemble.offered

    def neighbours(sigma: float) -> Neighbours:
        rule = replace(
            ensemble.spec.rule,
            teachers=about.neighbours,
            sigma=sigma,
            confidence=None,
            counts=False,
        )
        return Neighbours(rule=rule, sample_rate=about.sample_rate)

    def release(sigma: float) -> Release:
        charge = Charge(cohorts=(COHORT,), event=neighbours(sigma).event(queries))
        return Release(name=_VOTES, kind=VOTING, phase=0, charges=(charge,))

    # Rényi bounds take any noise; loss distributions tighten what they find.
    enough = smallest_safe(
        lambda sigma: campaign_epsilon([release(sigma)], target, accountant=Accountant.RDP),
        target.epsilon,
        low=0.1,
    )
    sigma = smallest_safe(
        lambda sigma: campaign_epsilon([release(sigma)], target),
        target.epsilon,
        low=_TIGHTER * enough,
    )
    return neighbours(sigma), release(sigma)


def _target(ensemble: Ensemble) -> PrivacyTarget:
    """Of records, also where teachers protect groups: each is sampled and votes by itself."""
    return replace(ensemble.spec.target, unit=Unit.RECORD)


def _account(ensemble: Ensemble, name: str) -> str:
    return f"{ensemble.config.name}-{name.replace('_', '-')}"


def _flat(inputs: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Records as vectors: the public embedding in which neighbours are near."""
    return to_input(inputs).flatten(start_dim=1).double().numpy()
