"""A whole campaign on data that is public: what a plan is worth before it meets people.

Training and private selections are the real ones, with real noise. What makes it a
rehearsal: it knows all labels, looks at exact scores to judge selections, and keeps no
ledger. `exact` selects without any privacy, as a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor, nn

from dpal.acquisition.noisy_threshold_search import Rows
from dpal.acquisition.non_private_selection import exact_top_k
from dpal.acquisition.scores import Passes, Scores, score, score_function
from dpal.acquisition.selection import QueryHistory, Selection, select
from dpal.acquisition.strata import Strata, strata_of
from dpal.data.labeled_records import LabeledSet
from dpal.errors import ParameterError
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import Phase, Plan
from dpal.planning.campaign_spec import Acquisition, CampaignSpec, SelectionMode
from dpal.planning.selection_steps import starts_at_validation
from dpal.randomness import BitSource, secure
from dpal.simulation.selection_quality import SelectionQuality, measure_selection
from dpal.training.augmentation import view_generator
from dpal.training.clipping import Clipper
from dpal.training.committee import Committee, committee_of
from dpal.training.evaluation import evaluate
from dpal.training.linear_heads import LinearHeadFit
from dpal.training.mc_dropout import draw_masks
from dpal.training.optimizers import build_optimizer
from dpal.training.pseudo_labels import fitted_labeler, probabilities_over_views
from dpal.training.score_inputs import ScoredModel, ScoreInputs
from dpal.training.train_phase import train_dp_sgd
from dpal.training.weight_averaging import WeightAverage

# Of a model, unlabeled and labeled records and a count: positions (count,) of the unlabeled ones
# that are selected. NOT PRIVATE: it may compare records with each other.
ReferencePick = Callable[[nn.Module, Tensor, Tensor, int], Rows]

_BATCH = 4096  # records scored at once
_UNLABELED, _RETIRED, _ASIDE = -1, -2, -3


class RehearsalMethod(StrEnum):
    """How a rehearsal selects. EXACT is not private and never part of a campaign."""

    RANDOM = "random"
    PAPER = "paper"
    VISIBLE = "visible"
    HIDDEN = "hidden"
    EXACT = "exact"

    @property
    def private(self) -> bool:
        """Whether a campaign may select like this."""
        return self is not RehearsalMethod.EXACT


@dataclass(frozen=True, kw_only=True)
class RehearsedPhase:
    """One phase of a rehearsal.

    Attributes:
      labels: bought so far.
      figures: on the validation set, in [0, 1], the headline first.
      quality: of the selection, beside all records that were unlabeled, candidates or not; None for
        the initial phase.
    """

    labels: int
    figures: dict[str, float]
    quality: SelectionQuality | None


@dataclass(frozen=True, eq=False)
class PublicData:
    """Records whose content and labels anyone may know.

    Attributes:
      inputs: (n, *input_shape) decoded records.
      labels: (n,) class numbers, or (n, labels) zeros and ones.
      validation_inputs: (m, *input_shape), what a rehearsal is judged on.
      validation_labels: (m,) or (m, labels).
      known_inputs: (k, *input_shape), the campaign's own validation set, which it may use; None is
        what it is judged on.
      known_labels: (k,) or (k, labels).
    """

    inputs: Tensor
    labels: Tensor
    validation_inputs: Tensor
    validation_labels: Tensor
    known_inputs: Tensor | None = None
    known_labels: Tensor | None = None

    @property
    def known(self) -> tuple[Tensor, Tensor]:
        """Labeled public records that the campaign itself may use."""
        if self.known_inputs is None or self.known_labels is None:
            return self.validation_inputs, self.validation_labels
        return self.known_inputs, self.known_labels

    def long_tailed(self, ratio: float, *, rng: np.random.Generator) -> PublicData:
        """Keeps a pool record of class c with chance ratio**c.

        Raises:
          ParameterError: records have several labels, and so no class.
        """
        if self.labels.ndim > 1:
            raise ParameterError(
                "a long tail thins out classes, and these records have several labels each; leave "
                "--long-tail out"
            )
        kept = rng.random(len(self.labels)) < ratio ** self.labels.numpy()
        rows = torch.from_numpy(np.flatnonzero(kept))
        return replace(self, inputs=self.inputs[rows], labels=self.labels[rows])

    def judged_on(self, rows: Sequence[int], *, known: Sequence[int]) -> PublicData:
        """The same pool, judged on some rows of the validation records.

        Args:
          rows: which ones.
          known: rows that the campaign itself may use.
        """
        judged, own = (torch.tensor(part, dtype=torch.int64) for part in (rows, known))
        return replace(
            self,
            validation_inputs=self.validation_inputs[judged],
            validation_labels=self.validation_labels[judged],
            known_inputs=self.validation_inputs[own],
            known_labels=self.validation_labels[own],
        )


def spec_for(method: RehearsalMethod, spec: CampaignSpec) -> CampaignSpec:
    """The campaign of a method under the same promise.

    Exact selection trains like random selection: all of the promise goes to training.
    """
    if method in (RehearsalMethod.RANDOM, RehearsalMethod.EXACT):
        return spec.varied(
            acquisition=Acquisition.RANDOM, selection_epsilon=0.0, threshold_noise=None
        )
    hidden = method is RehearsalMethod.HIDDEN
    return spec.varied(
        selection=SelectionMode(method.value),
        selection_epsilon=0.0 if hidden else spec.target.epsilon / 4,
    )


def rehearse(
    plan: Plan,
    data: PublicData,
    method: RehearsalMethod,
    *,
    acquisition: Acquisition,
    physical_batch: int,
    first_cohort: BitSource | None = None,
    draws: Callable[[str], BitSource] | None = None,
    reference: ReferencePick | None = None,
    on_step: Callable[[int], None] = lambda step: None,
    on_model: Callable[[nn.Module], None] = lambda model: None,
    device: str = "cpu",
) -> list[RehearsedPhase]:
    """Runs a campaign in memory.

    Args:
      plan: of `spec_for(method, ...)`.
      data: as many records as the plan's pool has.
      method: how to select.
      acquisition: the score; the plan of random and exact selection does not know it.
      physical_batch: records per backward pass.
      first_cohort: draws the initial cohort, which rehearsals that are compared share; None
        draws one that nobody can repeat.
      draws: makes the source of all other draws and all noise, by what they are for, so that
        the rehearsal repeats; nothing here is private. None takes fresh ones.
      reference: selects in place of the highest scores, of method exact alone.
      on_step: told the number of finished steps of the phase.
      on_model: handed the model that each phase would release, to look at it further.
      device: what trains and scores: cpu, cuda or cuda:N; records stay where they are.
    """
    model = build_model(plan.spec.model).to(device)
    released = build_model(plan.spec.model).to(
        device
    )  # the averaged weights, where any are averaged
    recipe, norm = plan.spec.recipe, plan.spec.optimizer.max_grad_norm
    optimizer = build_optimizer(plan.spec.optimizer, model.parameters())
    clipper = Clipper(recipe.clipping, max_grad_norm=norm, precision=recipe.precision)
    carried: dict[str, Tensor] = {}
    bits_for = draws or (lambda purpose: secure())
    cohorts = np.full(len(data.labels), _UNLABELED, dtype=np.int16)
    labels, bought, phases = data.labels.clone(), 0, []
    noisy_count, public_left = 0, np.arange(len(data.known[0]))
    committee = Committee(model, 1, wanted=False)
    known = data.known if plan.spec.validation is None else None
    head = None if plan.spec.head is None else LinearHeadFit(plan.spec, known)
    for phase in plan.phases:
        eligible = np.flatnonzero(cohorts == _UNLABELED)
        if phase.is_self_training:
            eligible = np.flatnonzero((cohorts == _UNLABELED) | (cohorts == _ASIDE))
        scores, width = np.zeros(eligible.size), _width(plan, acquisition, method)
        scores_aside = np.empty(0)
        history = scorer = None
        if phase.is_self_training:
            labels[eligible] = _pseudo_labels(
                plan, released, data, eligible, physical_batch, rng=bits_for("views of records")
            )
        elif phase.index:
            scorer = _RehearsedScores(
                plan.spec,
                acquisition,
                _model_for_scores(
                    plan.spec,
                    acquisition,
                    released,
                    committee,
                    physical_batch=physical_batch,
                    rng=bits_for(f"masks of {phase.name}"),
                ),
                public=data.known[0][torch.from_numpy(public_left)],
            )
            scores = scorer.of(data.inputs[torch.from_numpy(eligible)])
            aside = np.flatnonzero(cohorts == _ASIDE)
            if aside.size:
                scores_aside = scorer.of(data.inputs[torch.from_numpy(aside)])
        if starts_at_validation(phase.selection) and scorer is not None:
            public = scorer.of(data.known[0])
            history = QueryHistory(
                left=plan.spec.offered_to_queries - noisy_count,
                noisy_count=noisy_count,
                selected=int((cohorts > 0).sum()),
                public_scores=np.minimum(public, width)[public_left],
            )
        # The paper selects by clipped scores; every selection is judged by whole ones.
        bits = None if phase.index else first_cohort
        bits = bits or bits_for(f"selection of {phase.name}")
        if reference is not None and method is RehearsalMethod.EXACT and phase.index:
            unlabeled, owned = (
                data.inputs[torch.from_numpy(rows)]
                for rows in (eligible, np.flatnonzero(cohorts >= 0))
            )
            chosen = reference(released.eval(), unlabeled, owned, phase.cohort_size)
            picked = Selection(eligible[chosen], np.empty(0, dtype=np.int64))
        else:
            shown = np.minimum(scores, width)
            picked = _pick(phase, method, eligible, shown, width, bits, history)
        if picked.counted is not None:
            noisy_count += picked.counted.noisy_count
            public_left = np.delete(public_left, picked.counted.public_passed)
        if picked.candidates is not None:
            cohorts[eligible] = _ASIDE
            cohorts[picked.candidates] = _UNLABELED
        cohorts[picked.rows] = phase.index
        cohorts[picked.retired] = _RETIRED
        labeled = np.flatnonzero(cohorts >= 0)
        bought = bought if phase.is_self_training else labeled.size
        records = LabeledSet(
            inputs=data.inputs[torch.from_numpy(labeled)],
            labels=labels[torch.from_numpy(labeled)],
            cohorts=cohorts[labeled],
        )
        noise = bits_for(f"training of {phase.name}")
        if head is not None:
            head.add(records, phase, physical_batch=physical_batch, rng=noise)
            released.load_state_dict(head.weights())
            on_step(1)
        else:
            average = WeightAverage(model, recipe.averaging, phase.steps)
            if carried:
                average.restore(carried)
            committee = Committee(model, phase.steps, wanted=acquisition is Acquisition.COMMITTEE)
            train_dp_sgd(
                model,
                optimizer,
                records,
                phase,
                plan.spec.optimizer,
                physical_batch=physical_batch,
                rng=noise,
                recipe=recipe,
                clipper=clipper,
                average=average,
                on_step=_both(committee.update, on_step),
            )
            carried = average.carried()
            released.load_state_dict(average.averaged_state_dict())
        on_model(released)
        positions = np.searchsorted(eligible, picked.rows)
        # No query is offered who is no candidate, and hits are of all who are unlabeled.
        judged = np.concatenate([scores, scores_aside])
        phases.append(
            RehearsedPhase(
                labels=bought,
                figures=evaluate(
                    released,
                    data.validation_inputs,
                    data.validation_labels,
                    physical_batch=physical_batch,
                    task=plan.spec.model.task,
                ),
                quality=measure_selection(
                    judged, positions, query=max(phase.cohort_size, positions.size)
                )
                if phase.index and not phase.is_self_training
                else None,
            )
        )
    return phases


def _pseudo_labels(
    plan: Plan,
    model: nn.Module,
    data: PublicData,
    rows: Rows,
    physical_batch: int,
    *,
    rng: BitSource,
) -> Tensor:
    """What the last model makes of records whose labels nobody bought."""
    task = plan.spec.model.task

    generator = view_generator(rng)

    def guesses(inputs: Tensor) -> Scores:
        return probabilities_over_views(
            model,
            inputs,
            augmentation=plan.spec.recipe.augmentation,
            generator=generator,
            physical_batch=physical_batch,
            task=task,
        )

    inputs, labels = data.known
    labeler = fitted_labeler(task, guesses(inputs), labels.numpy())
    given = labeler.label(guesses(data.inputs[torch.from_numpy(rows)]))
    return torch.from_numpy(given).to(data.labels.dtype)


def _pick(
    phase: Phase,
    method: RehearsalMethod,
    rows: Rows,
    scores: Scores,
    width: float,
    bits: BitSource,
    history: QueryHistory | None,
) -> Selection:
    if method is RehearsalMethod.EXACT and phase.index and not phase.is_self_training:
        best = exact_top_k(scores, phase.cohort_size)
        return Selection(rows[best.rows], np.empty(0, dtype=np.int64))
    return select(
        phase.selection,
        _batches(rows, scores),
        phase.cohort_size,
        width=width,
        rng=bits,
        history=history,
    )


def _batches(rows: Rows, scores: Scores) -> Iterator[tuple[Rows, Scores]]:
    for start in range(0, rows.size, _BATCH):
        yield rows[start : start + _BATCH], scores[start : start + _BATCH]


def _both(first: Callable[[int], None], second: Callable[[int], None]) -> Callable[[int], None]:
    """Tells two who want to know of a step."""

    def told(step: int) -> None:
        first(step)
        second(step)

    return told


def _model_for_scores(
    spec: CampaignSpec,
    acquisition: Acquisition,
    model: nn.Module,
    committee: Committee,
    *,
    physical_batch: int,
    rng: BitSource,
) -> ScoredModel:
    """The model as the score wants it: alone, with dropout, or a committee."""
    function = score_function(acquisition, task=spec.model.task)
    of_committee = function.passes is Passes.COMMITTEE
    return ScoredModel(
        model=model.eval(),
        task=spec.model.task,
        classes=spec.model.classes,
        physical_batch=physical_batch,
        masks=draw_masks(model, rng=rng) if function.passes is Passes.DROPOUT else {},
        members=committee_of(model, committee.state()) if of_committee else (),
        reads_embeddings=function.reads_embeddings,
    )


class _RehearsedScores:
    """Whole scores of a phase, ranked within strata of public records where they are."""

    def __init__(
        self, spec: CampaignSpec, acquisition: Acquisition, model: ScoredModel, *, public: Tensor
    ) -> None:
        self._acquisition, self._model, self._task = acquisition, model, spec.model.task
        self._strata: Strata | None = None
        function = score_function(acquisition, task=spec.model.task)
        if function.strata is not None:
            read = model.read(public)
            self._strata = strata_of(
                function.strata,
                self._of(read),
                read.probabilities,
                read.embeddings,
                width=function.score_width(spec.model.classes, clipped=False),
            )

    def of(self, inputs: Tensor) -> Scores:
        """Scores (n,) of records."""
        return self._of(self._model.read(inputs))

    def _of(self, read: ScoreInputs) -> Scores:
        return score(
            self._acquisition,
            read.probabilities,
            task=self._task,
            clipped=False,
            strata=self._strata,
            embeddings=read.embeddings,
        )


def _width(plan: Plan, acquisition: Acquisition, method: RehearsalMethod) -> float:
    model, clipped = plan.spec.model, method is RehearsalMethod.PAPER
    return score_function(acquisition, task=model.task).width(model.classes, clipped=clipped)
