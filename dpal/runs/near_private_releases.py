"""What near_private releases about private records: two charges, each drawn once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save
from tqdm import tqdm

from dpal.acquisition.near_private import Poll, count_votes
from dpal.acquisition.principal_projection import Projection
from dpal.acquisition.public_choice import Candidates, ModelOutputs, most_uncertain
from dpal.data.labeling_state import EXCLUDED, cohort_column
from dpal.data.sources import Source
from dpal.errors import DataError, ParameterError
from dpal.files.atomic_writes import atomic_write
from dpal.mechanisms.laplace_counts import noisy_counts
from dpal.mechanisms.private_pca import components_of, moments_of, noisy_moments
from dpal.planning.improvement_plan import COMPONENTS, SUPPORT
from dpal.planning.public_selection import Guidance
from dpal.randomness import BitSource, secure
from dpal.runs.improvement_context import Improving
from dpal.runs.improvement_start_model import finished_folder
from dpal.runs.progress_logging import notify
from dpal.training.embeddings import embedded

_NORMS = 1 << 16  # public embeddings whose lengths decide where private ones are clipped


def release_components(improving: Improving) -> None:
    """Charges and draws the private principal components of the embeddings."""
    guidance, path = _guidance(improving), components_file(improving)

    def draw() -> None:
        tensors = draw_components(improving, guidance, rng=secure())
        with atomic_write(path) as temporary:
            temporary.write_bytes(save(tensors))

    with improving.ledger() as ledger:
        ledger.release_once(improving.plan.release(COMPONENTS), draw, inputs=[], artifacts=[path])
    notify(f"near_private: components released, noise {guidance.components.noise_multiplier:.3g}")


def release_support(improving: Improving) -> None:
    """Charges and draws the noisy votes of private records for public ones."""
    guidance, path = _guidance(improving), support_file(improving)

    def draw() -> None:
        candidates = candidates_of(improving)
        votes = count_votes(_poll(improving, candidates), _private(improving))
        support = noisy_counts(votes, guidance.support, rng=secure())
        with atomic_write(path) as temporary:
            pq.write_table(pa.table({"row": candidates.rows, "support": support}), temporary)

    with improving.ledger() as ledger:
        ledger.release_once(
            improving.plan.release(SUPPORT),
            draw,
            inputs=[components_file(improving)],
            artifacts=[path],
        )
    notify(f"near_private: votes released, epsilon {guidance.support.epsilon:.3g} a count")


def draw_components(
    improving: Improving, guidance: Guidance, *, rng: BitSource
) -> dict[str, np.ndarray[Any, Any]]:
    """Principal components of private embeddings. Whoever keeps them pays first."""
    centre, length = _public_measures(improving)
    max_norm = guidance.max_norm or length
    moments = moments_of(
        (seen.embeddings for seen in _private(improving)), centre=centre, max_norm=max_norm
    )
    released = noisy_moments(
        moments, guidance.components, adjacency=improving.spec.target.adjacency, rng=rng
    )
    return {
        "components": components_of(released, improving.spec.choice.components),
        "centre": centre,
        "max_norm": np.array([max_norm]),
    }


def candidates_of(improving: Improving) -> Candidates:
    """The most uncertain public records; free."""
    choice = improving.spec.choice
    return most_uncertain(
        seen_public(improving),
        choice.candidates,
        choice.uncertainty,
        task=improving.spec.model.task,
    )


def seen_public(improving: Improving) -> Iterator[ModelOutputs]:
    """All public records as the start sees them."""
    return _seen(improving, improving.public, "looking at public records")


def support_of(improving: Improving) -> pa.Table:
    """The released votes: `row` of the public pool and noisy `support`."""
    return pq.read_table(support_file(improving))


def components_file(improving: Improving) -> Path:
    """Where the released components are: with the phase, so that DVC keeps them."""
    return improving.files.root / "guidance" / "components.safetensors"


def support_file(improving: Improving) -> Path:
    """Where the released votes are: with the phase, so that DVC keeps them."""
    return improving.files.root / "guidance" / "support.parquet"


def _guidance(improving: Improving) -> Guidance:
    if improving.spec.guidance is None:
        raise ParameterError("this improvement releases nothing about private records")
    return improving.spec.guidance


def _poll(improving: Improving, candidates: Candidates) -> Poll:
    released = load_file(components_file(improving))
    return Poll(
        candidates=candidates,
        projection=Projection(released["centre"], released["components"]),
        kind=improving.spec.choice.uncertainty,
        voters=_guidance(improving).voters,
        task=improving.spec.model.task,
    )


def _public_measures(improving: Improving) -> tuple[np.ndarray[Any, Any], float]:
    """Mean of the public embeddings, and the median of their first distances to it."""
    total, count = np.zeros(0), 0
    kept: list[np.ndarray[Any, Any]] = []
    for seen in seen_public(improving):
        sound = seen.embeddings[np.isfinite(seen.embeddings).all(axis=1)]
        total = total + sound.sum(axis=0) if count else sound.sum(axis=0)
        count += len(sound)
        if sum(map(len, kept)) < _NORMS:
            kept.append(sound)
    if not count:
        raise DataError("the start gives no public record a finite embedding")
    mean = total / count
    length = float(np.median(np.linalg.norm(np.concatenate(kept) - mean, axis=1)))
    return mean, length or 1.0


def _private(improving: Improving) -> Iterator[ModelOutputs]:
    """Private records as the start sees them: those that take part in it. Private."""
    source = improving.start.private
    if source is None:
        raise DataError("the private records are not at hand")
    takes_part = _participants(improving)
    for seen in _seen(improving, source, "looking at private records"):
        if takes_part is None:
            yield seen
            continue
        # Blanked before anything is counted: whoever takes no part changes nothing.
        absent = ~takes_part[seen.rows]
        yield _blanked(seen, absent)


def _blanked(seen: ModelOutputs, absent: np.ndarray[Any, Any]) -> ModelOutputs:
    """The batch with some records blanked: they have no finite logits and no vote."""
    embeddings, logits = seen.embeddings.copy(), seen.logits.copy()
    embeddings[absent], logits[absent] = np.nan, np.nan
    return replace(seen, embeddings=embeddings, logits=logits)


def _participants(improving: Improving) -> np.ndarray[Any, Any] | None:
    """Which private records took part in the start; None for all.

    Of an owner with several records one takes part, and none of a block without budget.
    """
    campaign = improving.spec.before.campaign
    if campaign is None or improving.config.start.model is not None:
        return None
    folder = finished_folder(improving.config.runtime, campaign)
    return np.asarray(cohort_column(folder.start) != EXCLUDED)


def _seen(improving: Improving, source: Source, what: str) -> Iterator[ModelOutputs]:
    model, spec = improving.load_start(), improving.spec.model
    batches = embedded(
        source,
        model,
        classes=spec.classes,
        physical_batch=improving.config.runtime.physical_batch,
    )
    with tqdm(desc=what, unit="rec", disable=None, leave=False) as bar:
        for batch in batches:
            bar.update(batch.rows.size)
            yield ModelOutputs(batch.rows, batch.embeddings, batch.logits)
