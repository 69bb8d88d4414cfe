"""Labels of a campaign's records by private votes of teachers; both ledgers are joined.

The records behind the teachers are charged under the teachers' account, before a vote is
drawn. The campaign's own records are charged by the campaign, as with any labeler: what is
voted on a record depends on that record alone. How many were selected may be confidential, so
as many blocks are charged as the plan could need.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpal.certificate.read_and_seal import read_certificate
from dpal.config.pate import PateConfig
from dpal.config.validation import as_it_was_measured
from dpal.data.inspect_rows import require_apart
from dpal.data.label_columns import as_label
from dpal.data.labeling_state import read_selection
from dpal.data.readers import raw_batches, records_of
from dpal.data.sources import Source
from dpal.errors import LabelError, ParameterError
from dpal.files.artifacts import LABELED_BY, RECORD, CampaignFolder, PhaseFolder
from dpal.files.atomic_writes import write_text
from dpal.labels import Label, Task
from dpal.ledger.entries import EntryKind
from dpal.ledger.folder_lock import lock_folder
from dpal.planning.voting_plan import block_name
from dpal.runs.labeling_job import LabelingJob
from dpal.runs.make_report import write_reports
from dpal.runs.near_votes import release_near_campaign
from dpal.runs.prepare_ensemble import Ensemble, plan_ensemble
from dpal.runs.progress_logging import notify
from dpal.runs.read_recorded_settings import recorded_as
from dpal.runs.teachers import cast_votes, load_inputs
from dpal.runs.vote_account import certify_votes, read_released, release_ballot_block
from dpal.voting.draw_noisy_outcomes import UNANSWERED

_PATIENCE = 600.0  # seconds that another querier of the same teachers may take


def labels_by_teachers(asked: LabelingJob, files: PhaseFolder) -> Mapping[str, Label]:
    """Labels of a phase's selection, each paid for; unanswered records are left out.

    Raises:
      LabelError: the teachers do not fit the campaign, or protect the same records.
      ParameterError: they have not enough blocks left. Nothing was released.
    """
    ensemble = teachers_of(asked)
    selected = read_selection(files.selection)
    size = ensemble.config.voting.block_size
    purposes = _purposes(ensemble, asked, files, _planned(asked, files))
    if len(selected) > len(purposes) * size:
        raise LabelError.before_release("more records were selected than planned")
    labels: dict[str, Label] = {}
    with lock_folder(ensemble.folder.root, patience=_PATIENCE):
        _require_blocks(ensemble, purposes)
        for number, purpose in enumerate(purposes):
            names = selected[number * size : (number + 1) * size]
            labels |= _one_block(ensemble, asked, names, purpose)
        certify_votes(ensemble.account, model=ensemble.files.model)
        write_reports(ensemble.folder)  # it names the certificate
        _join(ensemble, files)
    name = ensemble.config.name
    notify(f"{files.root.name}: labels from the teachers of {name}, {len(purposes)} blocks")
    return labels


def require_answers(asked: LabelingJob, planned: Mapping[int, int]) -> None:
    """Requires that teachers fit a campaign and have blocks for all that it could ask.

    Args:
      asked: the campaign.
      planned: labels that the plan could buy, by phase.

    Raises:
      LabelError, ParameterError: as `labels_by_teachers`. Nothing was released.
    """
    ensemble = teachers_of(asked)
    wanted = [
        purpose
        for phase, labels in planned.items()
        for purpose in _purposes(ensemble, asked, asked.folder.phase(phase), labels)
    ]
    _require_blocks(ensemble, wanted)


def teachers_of(asked: LabelingJob) -> Ensemble:
    """The finished teachers that a campaign names, fit for its records.

    Raises:
      LabelError: they are not there, not finished, not fit, or protect the campaign's records.
    """
    name, runtime = asked.config.labeler.teachers, asked.config.runtime
    folder = CampaignFolder(runtime.artifacts / str(name))
    recorded = (folder.root / RECORD).is_file()
    teachers = recorded_as(folder, PateConfig) if recorded else None
    if teachers is None or not folder.finished_phases():
        raise LabelError.before_release(
            f"labeler.teachers {name} is no finished private voting in {runtime.artifacts}; run it "
            "first (kind: pate)"
        )
    # Their student was measured when they were made; they are asked now, and nothing is measured.
    measured = as_it_was_measured(teachers.validation)
    ensemble = plan_ensemble(teachers.model_copy(update={"validation": measured}))
    spec = ensemble.spec
    if spec.bound or spec.gate is not None or spec.budgets or spec.consensus:
        raise LabelError.before_release(
            f"the teachers of {name} answer within a bound, after a gate, until budgets are spent "
            "or as often as they may object, so that the label of a record would depend on others; "
            "use teachers without voting.agreement, gate and objections, and teachers.budgets"
        )
    if ensemble.config.runtime.ledger != runtime.ledger:
        raise LabelError.before_release(
            f"the teachers of {name} are charged in another ledger than this campaign; use one "
            "runtime.ledger for both"
        )
    if (ensemble.model.task, ensemble.model.classes) != (asked.pool.task, asked.classes):
        raise LabelError.before_release(
            f"the teachers of {name} vote on {ensemble.model.classes} labels and the campaign has "
            f"{asked.classes}"
        )
    if ensemble.files.read_manifest() is None:
        raise LabelError.before_release(
            f"files of the student of {name} were altered or lost; restore them (dpal restore "
            f"{folder.root})"
        )
    found, learned = _shape_for_teachers(ensemble, asked.pool), ensemble.model.input_shape
    if found != learned:
        has = asked.pool.content if found is None else f"records of shape {found}"
        raise LabelError.before_release(
            f"the teachers of {name} learned from {ensemble.pool.content} of shape {learned} and "
            f"the campaign has {has}; name teachers of such records"
        )
    require_apart(asked.pool, ensemble.pool, "teachers cannot label what they were trained on")
    return ensemble


def _as_teachers_read(ensemble: Ensemble, pool: Source) -> Source:
    """A campaign's pool, with texts and extracted features as its teachers learned to read them."""
    return replace(pool, encoding=ensemble.pool.encoding, extractor=ensemble.pool.extractor)


def _shape_for_teachers(ensemble: Ensemble, pool: Source) -> tuple[int, ...] | None:
    """Shape of a record as teachers read it; None if it is of another kind than theirs."""
    if pool.content is not ensemble.pool.content:
        return None
    source = _as_teachers_read(ensemble, pool)
    batch = next(raw_batches(source, [pool.content.value]))
    first = batch.table.column(0).slice(0, 1)
    return tuple(records_of(source, first, rows=batch.numbers.slice(0, 1)).shape[1:])


def _join(ensemble: Ensemble, files: PhaseFolder) -> None:
    """Writes beside a phase whose promise its labels were bought under."""
    folder = ensemble.folder
    document = read_certificate(folder.certificate.read_text(encoding="utf-8"))
    about = {
        "account": ensemble.config.name,
        "certificate": document["digest"],
        "ledger": document["ledger"]["identity"],
        "promise": document["promise"],
        "epsilon": document["epsilon"],
    }
    write_text(files.root / LABELED_BY, json.dumps(about, indent=2) + "\n")


def _purposes(
    ensemble: Ensemble, asked: LabelingJob, files: PhaseFolder, planned: int
) -> list[str]:
    """What each block is for that a phase takes; so many, however many were selected."""
    blocks = max(1, math.ceil(planned / ensemble.config.voting.block_size))
    return [f"{asked.folder.name}/{files.root.name}/{index + 1}" for index in range(blocks)]


def _require_blocks(ensemble: Ensemble, purposes: Sequence[str]) -> None:
    """Requires a block for each purpose, its own or a free one, before any is released."""
    account, numbers = ensemble.account, range(1, len(ensemble.spec.blocks) + 1)
    with account.ledger() as ledger:
        reserved = {entry.release for entry in ledger.entries() if entry.kind is EntryKind.RESERVE}
        ended = ledger.was_ended
    taken = [number for number in numbers if block_name(number) in reserved]
    taken_purposes = {
        (pq.read_schema(account.ballots_file(number)).metadata or {}).get(b"purpose", b"").decode()
        for number in taken
        if account.ballots_file(number).is_file()
    }
    wanted, left = len(set(purposes) - taken_purposes), len(numbers) - len(taken)
    if wanted and ended:
        raise ParameterError.before_release(
            f"private voting {ensemble.config.name} was ended, so that its teachers answer nothing "
            "more; name teachers of another account in labeler.teachers"
        )
    if wanted > left:
        raise ParameterError.before_release(
            f"{wanted} blocks of the teachers of {ensemble.config.name} are needed and {left} are "
            "left; buy fewer labels or train teachers with more voting.blocks under another name"
        )


def _one_block(
    ensemble: Ensemble, asked: LabelingJob, names: list[str], purpose: str
) -> dict[str, Label]:
    path = _released(ensemble, asked, names, purpose)
    released_ids, labels = read_released(path)
    if asked.pool.task is Task.SINGLE_LABEL:
        answered = labels != UNANSWERED
        return {
            name: int(label)
            for name, label, given in zip(released_ids, labels, answered, strict=True)
            if given
        }
    return {
        name: as_label(row.tolist())
        for name, row in zip(released_ids, labels, strict=True)
        if (row != UNANSWERED).all()
    }


def _released(ensemble: Ensemble, asked: LabelingJob, names: list[str], purpose: str) -> Path:
    """The file with the labels of a block, by teachers or by records near a query."""
    if names:
        source = _as_teachers_read(ensemble, asked.pool)
        # A label that followed from who else was selected, by a last bit, would tell of them.
        ids, inputs = load_inputs(source, _rows_of(asked, names), alone=True)
    else:
        # Votes on some public record, and none of them counts: nobody was selected.
        ids, inputs = load_inputs(ensemble.public, [0])
        ids, inputs = [], inputs[:0] if not ensemble.has_teachers else inputs
    if not ensemble.has_teachers:
        return release_near_campaign(ensemble, ids, inputs, purpose=purpose)
    ballots = cast_votes(ensemble, inputs, alone=True).rows(slice(0, len(ids)))
    return release_ballot_block(ensemble.account, ids, ballots, purpose=purpose, confidential=True)


def _rows_of(
    asked: LabelingJob, names: list[str]
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    wanted, matches = pa.array(names, pa.string()), []
    for batch in raw_batches(asked.pool, ["id"]):
        hits = pc.is_in(batch.table.column(0).cast(pa.string()), wanted)
        matches.append(batch.rows[np.asarray(hits)])
    rows = np.concatenate(matches) if matches else np.zeros(0, np.int64)
    if rows.size != len(names):
        raise LabelError.before_release("a selected record is not in the pool")
    return rows


def _planned(asked: LabelingJob, files: PhaseFolder) -> int:
    """Labels that the plan could buy in a phase; public."""
    phases = asked.folder.read_record()["plan"]["phases"]
    number = int(files.root.name.rpartition("-")[2])
    planned = next(phase for phase in phases if phase["phase"] == number)
    return int(planned.get("most_labels", planned["cohort_size"]))  # none: before secret draws
