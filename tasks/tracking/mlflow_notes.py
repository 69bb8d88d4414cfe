"""What MLflow's pages say about campaigns and phases: descriptions, columns, tags."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL

from dpal.certificate.sentences import STATEMENTS
from dpal.files.dvc_pointers import restore_command
from dpal.planning.campaign_plan import Phase
from dpal.reports.plan_and_phase_tables import figures_in_words, labels_counted, promise
from dpal.reports.validation_figures import (
    against_best_before,
    headline,
    most_labels,
    percent,
    worthless,
)
from dpal.reports.verify_commands import ELSEWHERE, verify_here
from dpal.runs.campaign import Campaign
from dpal.runs.open_ledger import key_word
from dpal.runs.released_phase import reached, released_figures, released_phase
from tasks.tracking.mlflow_ledger import Spent

NOTE = "mlflow.note.content"

EXPERIMENT_NOTE = """\
**[All campaigns, with epsilon spent and left, delta, unit and accuracy]({view})**

Differentially private active-learning campaigns: a run each, and inside of it one for each
phase. **The ledger is the truth, this is a copy for reading.**

- The first line leads to columns: sort by any of them. One run's description says what was spent,
  when, and what is left.
- Compare campaigns: mark their runs, then **Compare**; metrics have the same names in all of
  them, and a step is a phase. `labels` and `campaign_epsilon` make good axes.
- Find a data set's campaigns: `tags."dpal.dataset" = 'clinic'`; whole campaigns only:
  `tags."dpal.phase" = 'all'`.
- In a campaign's run: `report.html` for everybody, `ledger.html` and `ledger.json` for
  auditors, `certificate.json` for `dpal verify`.

An epsilon holds at the delta, adjacency and unit that stand beside it.
"""

# At the end of an address: MLflow 3.17 opens its pages for language models without it.
RUNS_VIEW = "?workflowType=machine_learning"

# A view that MLflow's page shares by its key: which columns, and only whole campaigns.
VIEW = "mlflow.sharedViewState.campaigns"
# Else MLflow opens the experiment on its pages for language models.
KIND, CLASSIC = "mlflow.experimentKind", "custom_model_development"
# As many as fit a page: MLflow shows tags last, and what is left is one.
_COLUMNS = (
    "metrics.`validation_accuracy`",
    "metrics.`campaign_epsilon`",
    *(f"params.`{name}`" for name in ("epsilon", "delta", "adjacency", "unit")),
    "tags.`dpal.spent`",
    "tags.`dpal.state`",
)
CAMPAIGNS_VIEW = json.dumps(
    {
        "selectedColumns": _COLUMNS,
        "searchFilter": "tags.`dpal.phase` = 'all'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
    }
)


def experiment_note(number: str) -> str:
    """The description of the experiment.

    Args:
      number: MLflow's, of the experiment.
    """
    view = f"#/experiments/{number}/runs{RUNS_VIEW}&viewStateShareKey=campaigns"
    return EXPERIMENT_NOTE.replace("{view}", view)


def flow_run_address() -> str | None:
    """The Prefect page of the flow run that this is part of, where a server shows one."""
    # Without an address there is a server for the length of this run only, and no page.
    number = flow_run.get_id()
    if not PREFECT_API_URL.value() or number is None:
        return None
    return f"{prefect_pages()}/runs/flow-run/{number}"


def prefect_pages() -> str:
    """Where Prefect's pages are: as PREFECT_UI_URL says, else beside the API, also of Cloud."""
    named = os.environ.get("PREFECT_UI_URL") or PREFECT_UI_URL.value() or ""
    return str(named).rstrip("/")


def campaign_note(
    campaign: Campaign, *, spent: Spent | None = None, model: str | None = None
) -> str:
    """The description of a campaign's run.

    Args:
      campaign: what it is of.
      spent: what was spent by now and is left; None where nothing is held.
      model: address of its registered model, once it is finished.
    """
    folder, finished = campaign.folder, model is not None
    phases, total = folder.finished_phases(), len(campaign.plan.phases)
    place, unit = shlex.quote(str(campaign.folder.root)), campaign.plan.spec.target.unit
    told = [
        *([] if spent is None else [spent.line]),
        f"**Promised:** {promise(campaign.certified.summary())}.",
        f"**State:** {state_in_words(len(phases), total, finished=finished)}. "
        + _so_far(reached(folder) if phases else None, unit),
        *([] if spent is None else [spent.in_markdown()]),
    ]
    told += [f"**Mind:** phase {number}: {words}." for number, words in worse_phases(phases)]
    told += [f"**Mind:** {said}" for said in worthless_tags(released_figures(folder)).values()]
    if finished:
        check = verify_here(campaign.folder, key_word(campaign.config.runtime))
        told += [
            "**Read:** `report.html` (for everybody), `model_card.md`, `ledger.html`, "
            "`ledger.json` and `certificate.json` among the artifacts.",
            f"**Check it yourself:** `{check}` and `dpal ledger verify "
            f"{place}` where it was run; elsewhere `{ELSEWHERE}` with `certificate.json` and "
            "`certificate.dsse.json` side by side and the data owner's public key. The model is "
            f"registered as `{model}`; it is that of phase {released_phase(folder)}.",
            figures_in_words(campaign.plan.spec.accountant),
        ]
    else:
        told.append(f"**Check it yourself:** `dpal ledger verify {place}`.")
    told.append("**Bring back a phase's files:** the command stands in the phase's own run.")
    told.append(f"**Not protected:** {'; '.join(STATEMENTS['exceptions'])}.")
    return "\n\n".join([*told, *_prefect_page()])


def phase_note(campaign: Campaign, phase: Phase, dvc_hash: str, metrics: Mapping[str, Any]) -> str:
    """The description of a phase's run."""
    place, unit = shlex.quote(str(campaign.folder.root)), campaign.plan.spec.target.unit
    phases = campaign.folder.finished_phases()[: phase.index + 1]
    compared = against_best_before(phases, phase.index)
    worse = f" {compared.words()}." if compared is not None and compared.is_worse else ""
    told = [
        f"Phase {phase.index} of campaign `{campaign.config.name}`. "
        f"{_so_far(metrics, unit)}{worse}",
        "**Bring back exactly these files** (where the campaign was run; the pool's state, the "
        "selection and the labels come with them where their cache is, and nowhere else):",
        f"```\n{restore_command(campaign.folder.root, phase.index, dvc_hash)}\n```",
        f"**Check it yourself:** `dpal ledger verify {place}`.",
    ]
    return "\n\n".join([*told, *_prefect_page()])


def state_in_words(done: int, total: int, *, finished: bool) -> str:
    """How far a campaign is, as its tag says it.

    >>> state_in_words(2, 4, finished=False)
    '2 of 4 phases'
    """
    return "finished" if finished else f"{done} of {total} phases"


def worse_phases(phases: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """Numbers of the phases that are worse than an earlier one, and by how much."""
    compared = ((number, against_best_before(phases, number)) for number in range(len(phases)))
    return [(number, gain.words()) for number, gain in compared if gain and gain.is_worse]


def worthless_tags(released: Mapping[str, Any] | None) -> dict[str, str]:
    """Says of a run that its model is no better than the most frequent answer."""
    said = None if released is None else worthless(released)
    return {} if said is None else {"dpal.worthless": said}


def _so_far(metrics: Mapping[str, Any] | None, unit: str) -> str:
    if metrics is None:
        return "Nothing is released yet."
    name, value = headline(metrics)
    spent, labels = metrics["campaign_epsilon"], most_labels(metrics)
    return (
        f"Any {unit} has lost at most epsilon {spent:.4f} so far; validation {name} "
        f"{percent(value)} with up to {labels:,} {labels_counted(unit)}."
    )


def _prefect_page() -> list[str]:
    address = flow_run_address()
    return [f"**Prefect:** [flow run]({address})"] if address else []
