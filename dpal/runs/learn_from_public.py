"""Public records chosen, labeled, and learned from: free of charge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file
from torch import Tensor

from dpal.acquisition.diverse_public import choose_diverse
from dpal.acquisition.near_private import choose_supported
from dpal.acquisition.public_choice import ChosenRecords, most_uncertain, random_choice
from dpal.data.label_columns import label_tensor, stored_type
from dpal.data.labeling_state import load_all, read_labels, read_selection, write_selection
from dpal.data.readers import raw_batches, records_of
from dpal.errors import LabelError, LabelsPending
from dpal.files.artifacts import NO_HEAD
from dpal.files.atomic_writes import atomic_write, write_text
from dpal.labeling import Labeler
from dpal.labels import Task
from dpal.planning.public_selection import FineTuning, PublicSelectionMethod, Uncertainty
from dpal.reports.improvement_report import START
from dpal.reports.validation_figures import as_metrics, headline, percent
from dpal.runs.improvement_context import Improving, labeling_job, rotation_weights
from dpal.runs.labeling import get_labels
from dpal.runs.near_private_releases import components_file, seen_public, support_file, support_of
from dpal.runs.prepare_improvement import with_trained_start
from dpal.runs.progress_logging import notify
from dpal.runs.public_model_figures import public_figures
from dpal.runs.repeatable_training import RepeatableTraining, shown_training
from dpal.training.evaluation import evaluate, probabilities
from dpal.training.plain_training import fine_tune, training_steps
from dpal.training.rotation_pretraining import TURNS, pretrain


def pretrain_on_rotations(improving: Improving) -> None:
    """Pretrains the start's weights on turned public images, before it is planned."""
    path, asked = rotation_weights(improving.config), improving.config.start.rotations
    if asked is None or path.exists():
        return
    images = _first_images(improving, asked.records)
    training = FineTuning(
        optimizer="adam",
        learning_rate=asked.learning_rate,
        epochs=asked.epochs,
        batch_size=asked.batch_size,
        weight_decay=0.0,
        shift=0,
        seed=improving.config.model.seed,
    )
    steps = training_steps(training, TURNS * len(images))
    with shown_training("rotations", steps) as shown:
        model = pretrain(improving.start.spec, images, training, on_step=shown.step)
    with atomic_write(path) as temporary:
        save_file(model.state_dict(), temporary)
    notify(f"pretrained on {len(images):,} turned public images")


def choose_public(improving: Improving) -> None:
    """Chooses the public records that get a label; free, whatever near_private released."""
    files, spec = improving.files, improving.spec
    if files.selection.exists():
        return
    choice = _choice(improving)
    with atomic_write(choice_file(improving)) as temporary:
        pq.write_table(_choice_table(choice), temporary)
    write_selection(improving.public, choice.rows, np.empty(0, np.int64), files.selection)
    notify(f"{spec.choice.labels:,} public records chosen by {spec.choice.method}")


def ask_public_labeler(
    improving: Improving, labeler: Labeler | None = None
) -> LabelsPending | None:
    """Buys the labels, or says that people still have to give them."""
    return get_labels(labeling_job(improving), improving.files, labeler=labeler)


def fine_tune_model(improving: Improving) -> None:
    """Trains on the bought labels. Started again it makes the same model."""
    files, spec = improving.files, improving.spec
    if files.model.exists():
        return
    inputs, labels = bought(improving)
    model, training = improving.load_start(), spec.fine_tuning
    steps = training_steps(training, len(inputs))
    with shown_training("fine-tuning", steps) as shown:
        fine_tune(
            model,
            inputs,
            labels,
            training,
            task=spec.model.task,
            on_step=shown.step,
        )
    with atomic_write(files.model) as temporary:
        save_file({name: tensor.cpu() for name, tensor in model.state_dict().items()}, temporary)
    notify(f"fine-tuned on {len(inputs):,} labels of public records")


def fine_tune_start(improving: Improving) -> None:
    """Fine-tunes, also where the improvement was prepared before its start was trained."""
    is_ready = improving.start.weights is not None
    fine_tune_model(improving if is_ready else with_trained_start(improving))


def close_improvement(improving: Improving) -> None:
    """Measures start and improved model on the validation set, and marks the end."""
    files = improving.files
    if files.manifest.is_file():
        return
    inputs, labels = load_all(improving.start.validation)
    batch, about = improving.config.runtime.physical_batch, improving.spec.model.task
    before = evaluate(improving.load_start(), inputs, labels, physical_batch=batch, task=about)
    guesses = probabilities(improving.load_improved(), inputs, physical_batch=batch, task=about)
    after = public_figures(about, guesses, labels.numpy())
    bought_ = len(read_labels(files.labels))
    metrics = {
        "phase": 0,
        "labels": bought_,
        **as_metrics(after),
        **{f"{START}{name}": value for name, value in before.items()},
        "campaign_epsilon": improving.certified.epsilon,
        "start_epsilon": improving.certified.start_epsilon,
        "cohorts": [],
        **pollution(improving),
    }
    write_text(files.metrics, json.dumps(metrics, indent=2) + "\n")
    listed = [files.selection, files.labels, files.model, files.metrics]
    if improving.spec.guidance is not None:
        listed += [components_file(improving), support_file(improving)]
    entries = improving.known_entries()
    head = {"sequence": entries[-1].sequence, "digest": entries[-1].digest} if entries else None
    files.close(listed=listed, phase=0, plan=improving.plan.digest, ledger_head=head or NO_HEAD)
    name, value = headline(metrics)
    notify(f"validation {name} {percent(value)}, before {percent(next(iter(before.values())))}")


def pollution(improving: Improving) -> dict[str, Any]:
    """Shares of irrelevant records in the public pool and among the chosen, where known."""
    about = improving.config.public
    if about.provenance_column is None:
        return {}
    chosen = pa.array(read_selection(improving.files.selection), pa.string())
    irrelevant = pa.array(about.irrelevant, pa.string())
    total = polluted = picked = bad = 0
    for batch in raw_batches(improving.public, ["id", about.provenance_column]):
        names = batch.table.column(0).cast(pa.string())
        wrong = np.asarray(pc.is_in(batch.table.column(1).cast(pa.string()), irrelevant))
        taken = np.asarray(pc.is_in(names, chosen))
        total, polluted = total + wrong.size, polluted + int(wrong.sum())
        picked, bad = picked + int(taken.sum()), bad + int((wrong & taken).sum())
    return {"irrelevant_in_pool": polluted / total, "irrelevant_chosen": bad / max(1, picked)}


def bought(improving: Improving) -> tuple[Tensor, Tensor]:
    """The labeled public records in the order of the file: decoded inputs, and labels."""
    labels = read_labels(improving.files.labels)
    wanted = pa.array(list(labels), pa.string())
    task_of = improving.spec.model.task
    inputs, targets = [], []
    for batch in raw_batches(improving.public, ["id", improving.public.content.value]):
        names = batch.table.column(0).cast(pa.string())
        hits = pc.is_in(names, wanted)
        column = batch.table.column(1).filter(hits)
        if len(column):
            inputs.append(records_of(improving.public, column, rows=None))
            given = [labels[name] for name in names.filter(hits).to_pylist()]
            targets.append(label_tensor(pa.array(given, stored_type(task_of)), task_of))
    if not inputs:
        raise LabelError("none of the chosen public records has a label; nothing was trained")
    return torch.cat(inputs), torch.cat(targets)


def choice_file(improving: Improving) -> Path:
    """Where it stands which public records were chosen, and from which cluster."""
    return improving.folder.root / "choice.parquet"


def _choice(improving: Improving) -> ChosenRecords:
    spec, about = improving.spec.choice, improving.spec.model.task
    match spec.method:
        case PublicSelectionMethod.RANDOM:
            total = sum(batch.table.num_rows for batch in raw_batches(improving.public, ["id"]))
            return random_choice(total, spec.labels, seed=spec.seed)
        case PublicSelectionMethod.UNCERTAIN_ENTROPY:
            return _most(improving, Uncertainty.ENTROPY, about)
        case PublicSelectionMethod.UNCERTAIN_MARGIN:
            return _most(improving, Uncertainty.MARGIN, about)
        case PublicSelectionMethod.DIVERSE_PUBLIC:
            return choose_diverse(seen_public(improving), spec, task=about)
        case PublicSelectionMethod.NEAR_PRIVATE:
            support = support_of(improving)
            rows, counts = (np.asarray(support[name].to_numpy()) for name in ("row", "support"))
            return choose_supported(rows, counts, spec.labels)


def _most(improving: Improving, kind: Uncertainty, about: Task) -> ChosenRecords:
    count = improving.spec.choice.labels
    return ChosenRecords(most_uncertain(seen_public(improving), count, kind, task=about).rows)


def _choice_table(choice: ChosenRecords) -> pa.Table:
    columns = {"row": choice.rows}
    if choice.clusters is not None and choice.central is not None:
        columns |= {"cluster": choice.clusters, "central": choice.central}
    return pa.table(columns)


def _first_images(improving: Improving, count: int) -> Tensor:
    def parts() -> Iterator[Tensor]:
        left = count
        for batch in raw_batches(improving.public, [improving.public.content.value]):
            column = batch.table.column(0).slice(0, left)
            yield records_of(improving.public, column, rows=batch.numbers)
            left -= len(column)
            if left <= 0:
                return

    return torch.cat(list(parts()))


ROTATIONS = RepeatableTraining[Improving](
    name="rotations",
    train=pretrain_on_rotations,
    makes=lambda improving: [rotation_weights(improving.config)],
)
FINE_TUNING = RepeatableTraining[Improving](
    name="fine-tuning",
    train=fine_tune_start,
    makes=lambda improving: [improving.files.model],
)
