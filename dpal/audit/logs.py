"""Whether anything about single records is printed or logged."""

from __future__ import annotations

import io
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpal.acquisition import scores as scoring
from dpal.acquisition import selection
from dpal.acquisition.strata import strata_of
from dpal.audit.findings import AuditFinding, Layer
from dpal.labels import Task
from dpal.models.build_model import build_model
from dpal.planning.campaign_plan import Plan
from dpal.planning.selection_steps import RandomDraw, SecretRandomDraw
from dpal.randomness import BitSource
from dpal.training.evaluation import probabilities
from dpal.training.losses import per_record_loss
from dpal.training.mc_dropout import draw_masks
from dpal.training.score_inputs import ScoredModel

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_DIGITS = 4  # a number with as many does not agree with a secret by chance
_FIRST_ROW = 3_141_592  # no other number that is printed is as large by chance


@dataclass
class CapturedOutput:
    """Everything that was said while it listened.

    Attributes:
      lines: log messages and what was printed.
    """

    lines: list[str] = field(default_factory=list)

    def naming(self, secrets: Iterable[float]) -> list[str]:
        """The lines with a number that is one of the secrets, as far as it is written out."""
        magnitudes = np.unique(
            np.array([abs(secret) for secret in secrets if secret], dtype=np.float64)
        )
        return [line for line in self.lines if any(_is_in(n, magnitudes) for n in _numbers(line))]


def _numbers(line: str) -> Iterator[str]:
    return (match.group() for match in _NUMBER.finditer(line))


def _is_in(written: str, magnitudes: NDArray[np.float64]) -> bool:
    digits = written.lower().partition("e")[0].lstrip("-0.").replace(".", "")
    if len(digits) < _DIGITS or not magnitudes.size:
        return False
    value = abs(float(written))
    # Rounded or cut after its last digit: off by less than one unit of that digit.
    mantissa, _, exponent = written.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    position = int(np.searchsorted(magnitudes, value))
    return any(
        abs(magnitudes[i] - value) < unit
        for i in (position - 1, position)
        if 0 <= i < magnitudes.size
    )


class _Listener(logging.Handler):
    def __init__(self, into: CapturedOutput) -> None:
        super().__init__(level=logging.DEBUG)
        self._into, self._thread = into, threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:  # an orchestrator's threads have much to say, too
            self._into.lines.append(record.getMessage())


@contextmanager
def capturing_output() -> Iterator[CapturedOutput]:
    """Hears what is printed and logged for the length of a block; of dpal at every level."""
    heard, printed = CapturedOutput(), io.StringIO()
    ours = logging.getLogger("dpal")
    listener, level = _Listener(heard), ours.level
    loggers = [ours, logging.getLogger()] if not ours.propagate else [logging.getLogger()]
    for logger in loggers:
        logger.addHandler(listener)
    ours.setLevel(logging.DEBUG)
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            yield heard
    finally:
        for logger in loggers:
            logger.removeHandler(listener)
        ours.setLevel(level)
        heard.lines.extend(printed.getvalue().splitlines())


def log_findings(
    plan: Plan,
    inputs: Tensor,
    labels: Tensor,
    *,
    physical_batch: int,
    rng: BitSource,
    train: Callable[[], None],
) -> list[AuditFinding]:
    """Scores, selects and trains on records that are not protected, and listens.

    Args:
      plan: gives model, acquisition and selections.
      inputs: (n, *input_shape) float32 records.
      labels: (n,) class numbers, or (n, labels) zeros and ones.
      physical_batch: records per forward pass.
      rng: source of the selections' noise.
      train: a run of training on such records.
    """
    model = build_model(plan.spec.model)
    task = plan.spec.model.task
    guesses = probabilities(model, inputs, physical_batch=physical_batch, task=task)
    likely = torch.from_numpy(guesses)
    logits = likely.log() if task is Task.SINGLE_LABEL else torch.logit(likely)
    losses = per_record_loss(task)(logits, labels).tolist()
    with capturing_output() as heard:
        rows, scores = _select(plan, inputs, physical_batch, rng)
        train()
    named = heard.naming([*rows.tolist(), *scores.tolist(), *losses])
    return [overheard_finding("lines with a score, loss or row", named, heard)]


def overheard_finding(what: str, named: Sequence[str], heard: CapturedOutput) -> AuditFinding:
    """Whether nothing of what was heard names a record or its score."""
    return AuditFinding(
        layer=Layer.SELECTION,
        what=what,
        expected="none",
        measured=f"{len(named):,} of {len(heard.lines):,}",
        passed=not named,
        likely="scores, losses or ids are logged; whoever reads the log pays nothing for them",
    )


def _select(
    plan: Plan, inputs: Tensor, physical_batch: int, rng: BitSource
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Runs each way of selecting of the plan; gives the row numbers and scores that it met."""
    spec, scores = plan.spec, np.zeros(0)
    rows = _FIRST_ROW + np.arange(len(inputs), dtype=np.int64)
    for phase in {type(planned.selection): planned for planned in plan.labeling_phases}.values():
        step, count = phase.selection, min(phase.cohort_size, len(inputs))
        if isinstance(step, SecretRandomDraw):
            selection.select_by_coins([rows], step, rng=rng)
            continue
        if isinstance(step, RandomDraw):
            selection.select_at_random([rows], count, rng=rng)
            continue
        model = build_model(spec.model)
        clipped = step.clips_scores
        task = spec.model.task
        function = scoring.score_function(spec.acquisition, task=task)
        of_committee = function.passes is scoring.Passes.COMMITTEE
        read = ScoredModel(
            model=model.eval(),
            task=task,
            classes=spec.model.classes,
            physical_batch=physical_batch,
            masks=draw_masks(model, rng=rng) if function.passes is scoring.Passes.DROPOUT else {},
            members=(model, model) if of_committee else (),
            reads_embeddings=function.reads_embeddings,
        ).read(inputs)
        scores = scoring.score(spec.acquisition, read.probabilities, task=task, clipped=clipped)
        if function.strata is not None:
            strata = strata_of(
                function.strata,
                scores,
                read.probabilities,
                read.embeddings,
                width=function.score_width(spec.model.classes, clipped=clipped),
            )
            scores = strata.ranked(scores, read.probabilities, read.embeddings)
        width = function.width(spec.model.classes, clipped=clipped)
        history = selection.QueryHistory(left=len(inputs), public_scores=scores)
        selection.select(step, [(rows, scores)], count, width=width, rng=rng, history=history)
    return rows, scores
