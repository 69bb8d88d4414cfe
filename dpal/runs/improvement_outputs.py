"""What an improvement leaves for later: its record, its certificate, pictures of its choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpal.canonical import file_digest, plain
from dpal.certificate.evidence import evidence_in
from dpal.certificate.kinds.improvement import IMPROVEMENT, ImprovementEvidence
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.data import DataConfig
from dpal.config.improvement import PublicConfig
from dpal.data.labeling_state import read_labels
from dpal.data.readers import decoded_of, raw_batches
from dpal.data.sources import Content
from dpal.errors import DataError
from dpal.labels import Task
from dpal.reports.plots.central_public_records import Central, central_figure
from dpal.reports.plots.style import save
from dpal.runs.absolute_paths import with_absolute_paths
from dpal.runs.improvement_context import Improving
from dpal.runs.learn_from_public import choice_file
from dpal.runs.model_description import describe_model, model_files
from dpal.runs.write_certificate import keep_certificate, program_versions
from dpal.training.embeddings import embed

CENTRAL = "central"  # the figure that is drawn while the model is at hand
_PICTURES = 100


def record_improvement(improving: Improving) -> None:
    """Writes what later commands need to know."""
    spec = improving.spec
    improving.folder.write_record(
        {
            "kind": "public",
            "name": improving.config.name,
            "plan": improving.certified.summary(),
            "task": spec.model.task.value,
            "classes": spec.model.classes,
            "class_names": list(improving.start.classes),
            "content": improving.public.content.value,
            "model": describe_model(
                spec.model,
                improving.start.reading.data.to_extractor(),
                improving.public,
                improving.start.classes,
            ),
            "model_files": model_files(improving.start.reading),
            "config": with_absolute_paths(_as_used(improving.config)).model_dump(mode="json"),
        }
    )


def _as_used(config: PublicConfig) -> PublicConfig:
    """Settings without private data that nobody compared with the list of the data's owner.

    Those of a start that is a campaign are its own, and what stands here was never read.
    """
    if config.start.campaign is None:
        return config
    return config.model_copy(update={"data": DataConfig()})


def certify_improved(improving: Improving) -> None:
    """Writes certificate.json from the start's certificate and what the ledger holds since."""
    entries, name = improving.known_entries(newest=True), improving.config.name
    plan, versions = plain(improving.plan), program_versions()
    released = any(entry.campaign == name for entry in entries)
    start, model = improving.start.certificate, improving.files.model
    evidence = ImprovementEvidence(
        name=name,
        target=improving.spec.target,
        accountant=improving.spec.accountant,
        start=None if start is None else read_certificate(start.read_text(encoding="utf-8")),
        declared=improving.spec.before.declared,
        start_model=file_digest(_start_weights(improving)),
        own=evidence_in(entries, name, plan) if released else None,
        plan=plan,
        model={"file": improving.files.name_of(model), "sha256": file_digest(model)},
    )

    def certified(form: int) -> dict[str, Any]:
        return IMPROVEMENT.build(evidence, versions=versions, form=form)

    keep_certificate(improving.folder, certified, improving.config.runtime)


def draw_central(improving: Improving) -> None:
    """Draws the most central public record of each cluster, where records are images."""
    if examples := central_examples(improving):
        save(central_figure(examples), improving.folder.figures / f"{CENTRAL}.png")


def central_examples(improving: Improving) -> list[Central]:
    """The most central record of each cluster, in the order of the clusters; public ones only."""
    table = pq.read_table(choice_file(improving))
    images = improving.public.content is Content.IMAGE
    if "cluster" not in table.column_names or not images:
        return []
    rows, clusters, central = (
        np.asarray(table[name].to_numpy()) for name in ("row", "cluster", "central")
    )
    first = central == 0
    by_row = dict(zip(rows[first].tolist(), clusters[first].tolist(), strict=True))
    wanted = {row for row, _ in sorted(by_row.items(), key=lambda pair: pair[1])[:_PICTURES]}
    labels, model = read_labels(improving.files.labels), improving.load_start()
    examples: dict[int, Central] = {}
    for batch in raw_batches(improving.public, ["id", Content.IMAGE.value]):
        mine = np.isin(batch.rows, list(wanted))
        if not mine.any():
            continue
        part = batch.table.filter(pa.array(mine))
        decoded = decoded_of(improving.public, part.column(1), rows=None)
        extractor = improving.public.extractor
        inputs = decoded if extractor is None else extractor(decoded)
        _, logits = embed(
            model, inputs, classes=improving.spec.model.classes, physical_batch=_PICTURES
        )
        names = part.column(0).to_pylist()
        for position, row in enumerate(batch.rows[mine].tolist()):
            label = labels.get(str(names[position]))
            examples[by_row[row]] = Central(
                image=_pixels(decoded[position].numpy()),
                predicted=_name(improving, int(logits[position].argmax())),
                label=_name(improving, label) if isinstance(label, int) else None,
            )
    if improving.spec.model.task is Task.MULTI_LABEL:
        return []
    return [examples[cluster] for cluster in sorted(examples)]


def _start_weights(improving: Improving) -> Path:
    if improving.start.weights is None:
        raise DataError(f"the start of {improving.config.name} is not trained yet")
    return improving.start.weights


def _pixels(decoded: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if decoded.dtype == np.uint16:
        decoded = (decoded >> 8).astype(np.uint8)  # people see 8 bits
    return decoded[0] if decoded.shape[0] == 1 else np.ascontiguousarray(decoded.transpose(1, 2, 0))


def _name(improving: Improving, number: int) -> str:
    names = improving.start.classes
    return names[number] if number < len(names) else str(number)
