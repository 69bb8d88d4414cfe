"""The audit of a campaign: canaries are trained on, selections rehearsed, files read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from safetensors.torch import save
from torch import nn
from tqdm import tqdm

from dpal.acquisition.scores import score, score_function
from dpal.audit.audit_campaign_plan import Effort, audit
from dpal.audit.findings import AuditFinding, AuditReport
from dpal.audit.ids_in_files import naming_ids, released_finding
from dpal.audit.logs import capturing_output, overheard_finding
from dpal.data.labeling_state import load_all, write_start
from dpal.data.readers import raw_batches, to_input
from dpal.data.sources import Source
from dpal.files.atomic_writes import atomic_write
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import Phase
from dpal.planning.campaign_spec import SelectionMode
from dpal.planning.selection_steps import RandomDraw, SecretRandomDraw
from dpal.randomness import secure
from dpal.runs.audit_run import found_in_ledger, require_held_plan
from dpal.runs.campaign import Campaign
from dpal.runs.made_up_records import made_up_records
from dpal.runs.progress_logging import notify
from dpal.runs.select_records import draw_records
from dpal.training.checkpoints import pack_carried
from dpal.training.clipping import Clipper
from dpal.training.committee import Committee
from dpal.training.evaluation import probabilities
from dpal.training.optimizers import build_optimizer
from dpal.training.weight_averaging import WeightAverage


def audit_campaign(campaign: Campaign, effort: Effort) -> AuditReport:
    """Attacks a campaign's mechanisms on validation records and canaries. Charges nothing.

    Where validation records are protected, made-up ones stand in for them.

    Raises:
      ParameterError: the campaign's folder holds a run of another plan.
    """
    require_held_plan(campaign)
    with (
        tempfile.TemporaryDirectory() as scratch,
        tqdm(desc="training on canaries", unit="step", disable=None, leave=False) as bar,
    ):
        if campaign.plan.figures is not None:
            about = campaign.plan.spec.model
            made_up = made_up_records(campaign.validation, about, Path(scratch) / "made-up")
            campaign = replace(campaign, validation=made_up)
        inputs, labels = load_all(campaign.validation)

        def on_step() -> None:
            bar.update()

        report = audit(
            campaign.plan,
            to_input(inputs),
            labels,
            effort=effort,
            scratch=Path(scratch),
            fresh=secure,
            say=notify,
            on_step=on_step,
        )
        findings = [*report.findings, *_of_a_rehearsal(campaign, Path(scratch))]
    return replace(report, findings=(*findings, *_of_what_was_run(campaign)))


def _of_a_rehearsal(campaign: Campaign, scratch: Path) -> list[AuditFinding]:
    """Selects from the validation set as the campaign would from its pool, and listens."""
    # Draws by chance meet no score that could be told.
    scored = (
        planned
        for planned in campaign.plan.labeling_phases
        if not isinstance(planned.selection, RandomDraw | SecretRandomDraw)
    )
    if (phase := next(scored, None)) is None:
        return []
    runtime = campaign.config.runtime.model_copy(update={"artifacts": scratch})
    config = campaign.config.model_copy(update={"runtime": runtime})
    rehearsed = replace(campaign, config=config, pool=campaign.validation)
    before, model = rehearsed.folder.phase(phase.index - 1), build_model(campaign.plan.spec.model)
    write_start(campaign.validation, before.pool)
    with atomic_write(before.model) as temporary:
        temporary.write_bytes(save(model.state_dict()))
    with atomic_write(before.optimizer) as temporary:
        temporary.write_bytes(_carried_by(campaign, model))
    ids = list(_ids_of(campaign.validation))
    notify("audit: a selection from the validation set")
    few = replace(phase, cohort_size=min(phase.cohort_size, len(ids)))
    with capturing_output() as heard:
        draw_records(rehearsed, few, rng=secure())
    named = [*heard.naming(_scores(campaign, model, few)), *naming_ids(heard.lines, ids)]
    return [overheard_finding("lines of a rehearsed selection", named, heard)]


def _carried_by(campaign: Campaign, model: nn.Module) -> bytes:
    """What a training would have left beside this model: a committee that always agrees."""
    spec = campaign.plan.spec
    committee = Committee(model, 2)
    for step in (1, 2):
        committee.update(step)
    norm, recipe = spec.optimizer.max_grad_norm, spec.recipe
    return pack_carried(
        model,
        build_optimizer(spec.optimizer, model.parameters()),
        WeightAverage(model, recipe.averaging, 2),
        Clipper(recipe.clipping, max_grad_norm=norm, precision=recipe.precision),
        committee,
    )


def _scores(campaign: Campaign, model: nn.Module, phase: Phase) -> list[float]:
    """The scores that such a selection meets; none where they differ from run to run."""
    acquisition, about = campaign.plan.spec.acquisition, campaign.plan.spec.model.task
    if score_function(acquisition, task=about).passes:
        return []
    inputs, _ = load_all(campaign.validation)
    batch = campaign.config.runtime.physical_batch
    guesses = probabilities(model, inputs, physical_batch=batch, task=about)
    clipped = phase.selection.clips_scores
    scores = score(acquisition, guesses, task=about, clipped=clipped)
    return [float(value) for value in scores]


def _of_what_was_run(campaign: Campaign) -> list[AuditFinding]:
    """What a campaign's own ledger and files show, if it was started."""
    findings = found_in_ledger(campaign)
    if campaign.plan.spec.selection is SelectionMode.HIDDEN:
        # Of all records: what is found must not depend on who was selected, as it is published.
        findings.append(released_finding(campaign.folder.root, _ids_of(campaign.pool)))
    return findings


def _ids_of(source: Source) -> Iterator[str]:
    for batch in raw_batches(source, ["id"], large=True):
        yield from map(str, batch.table.column("id").to_pylist())
