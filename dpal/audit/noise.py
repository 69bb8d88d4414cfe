"""Whether the noise of training is as large, as normal and as fresh as planned."""

from __future__ import annotations

import math
import os
import select
import signal
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import nn, zeros

from dpal.audit import hypothesis_tests
from dpal.audit.findings import AuditFinding, Layer, statistical_finding
from dpal.audit.training_step_checks import released_gradient
from dpal.errors import NoiseReused
from dpal.planning.campaign_plan import TrainingPhase
from dpal.planning.campaign_spec import CampaignSpec
from dpal.planning.training_recipe import Clipping, ClippingKind
from dpal.randomness import BitSource
from dpal.training.dp_sgd import PrivateGradient

_STEPS = 4
_SHOWN = 1 << 18  # coordinates whose distribution is tested
_WORDS = 4096
_PATIENCE = 20.0  # seconds that a forked process may take

Fresh = Callable[[], BitSource]


def noise_findings(
    spec: CampaignSpec, part: TrainingPhase, *, draws: int, physical_batch: int, fresh: Fresh
) -> list[AuditFinding]:
    """Releases noise alone, through the campaign's own step, and looks at it.

    Args:
      spec: gives the clipping norm.
      part: gives noise and divisor.
      draws: values of noise to look at, about.
      physical_batch: as in training.
      fresh: gives a new stream, as every release takes one.
    """
    first = _steps(spec, part, draws, physical_batch, fresh())
    again = _steps(spec, part, draws, physical_batch, fresh())
    size = float(np.sqrt(np.mean(np.square(first))))
    margin = 4.9 / np.sqrt(2 * first.size)
    return [
        statistical_finding(
            Layer.MECHANISM,
            "noise deviation / planned",
            hypothesis_tests.of_scale(first.ravel(), 1.0),
            expected=f"1 +- {100 * margin:.2g} %",
            measured=f"{size:.5f}",
            likely="noise is not scaled by noise_multiplier times max_grad_norm",
            claimed=1.0,
            value=size,
            within=float(margin),
        ),
        statistical_finding(
            Layer.MECHANISM,
            "noise is normal",
            hypothesis_tests.of_normality(first.ravel()[:_SHOWN]),
            expected="p > 1e-6",
            measured=f"p = {hypothesis_tests.of_normality(first.ravel()[:_SHOWN]):.3g}",
            likely="noise is not Gaussian, or not of the planned size",
        ),
        _unrelated("steps", first[:-1].ravel(), first[1:].ravel(),
                   "noise is drawn from the same words twice"),
        _unrelated("releases", first.ravel(), again.ravel(),
                   "a stream is seeded, or its key is used twice"),
        _streams(fresh),
        _forked(fresh()),
    ]  # fmt: skip


def _steps(
    spec: CampaignSpec, part: TrainingPhase, draws: int, physical_batch: int, rng: BitSource
) -> NDArray[np.float64]:
    """(_STEPS, coordinates) noise of steps with empty batches, in planned deviations."""
    width = math.isqrt(draws // _STEPS)
    model = nn.Linear(width, width)
    gradient = PrivateGradient(
        model,
        max_grad_norm=spec.optimizer.max_grad_norm,
        noise_multiplier=part.noise_multiplier,
        expected_batch_size=part.expected_batch_size,
        physical_batch=physical_batch,
        rng=rng,
        recipe=spec.recipe,
    )
    multiplier = _of_gradients(spec.recipe.clipping, part)
    rows = []
    try:
        for _ in range(_STEPS):
            unit = part.expected_batch_size / (multiplier * gradient.bound)
            gradient.write(zeros(0, width), zeros(0).long())
            rows.append(unit * released_gradient(model))
    finally:
        gradient.close()
    return np.stack(rows)


def _of_gradients(clipping: Clipping, part: TrainingPhase) -> float:
    """Noise multiplier of gradients, where an adaptive bound's count takes its part."""
    if clipping.kind is not ClippingKind.ADAPTIVE:
        return part.noise_multiplier
    count = clipping.count_noise * part.expected_batch_size / 0.5  # over the sensitivity, 1/2
    return float((1 / part.noise_multiplier**2 - 1 / count**2) ** -0.5)


def _unrelated(
    what: str, series: NDArray[np.float64], other: NDArray[np.float64], likely: str
) -> AuditFinding:
    spread = float(np.sqrt((series @ series) * (other @ other)))
    value = float(series @ other) / spread if spread else 1.0
    return statistical_finding(
        Layer.MECHANISM,
        f"correlation of two {what}",
        hypothesis_tests.of_correlation(series, other),
        expected=f"0 +- {4.9 / np.sqrt(series.size):.2g}",
        measured=f"{value:.2g}",
        likely=likely,
    )


def _streams(fresh: Fresh) -> AuditFinding:
    """2^24 pairs of 64-bit words agree somewhere with chance 1e-12."""
    shared = np.intersect1d(fresh().words(_WORDS), fresh().words(_WORDS)).size
    return AuditFinding(
        layer=Layer.MECHANISM,
        what="words that two streams share",
        expected="none",
        measured=f"{shared:,} of {_WORDS:,}",
        passed=shared == 0,
        likely="a stream is seeded, or its key is used twice",
        false_alarm=1e-12,
    )


def _forked(rng: BitSource) -> AuditFinding:
    """Asks for words in a forked process, which must be refused or be others."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(rng, writing)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], _PATIENCE)
    seen = os.read(reading, 64) if ready else b""
    os.close(reading)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    refused = seen == _REFUSED
    if refused:
        measured = "refused"
    else:
        measured = "the same words" if seen == rng.words(8).tobytes() else "other words"
    return AuditFinding(
        layer=Layer.MECHANISM,
        what="stream in a forked process",
        expected="refused",
        measured=measured,
        passed=measured != "the same words",
        likely="two processes put the same noise on different sums",
    )


_REFUSED = b"refused"


def _answer(rng: BitSource, writing: int) -> None:
    """What the forked process does: answer and leave, touching nothing else."""
    try:
        os.write(writing, rng.words(8).tobytes())
    except NoiseReused:
        os.write(writing, _REFUSED)
    finally:
        os._exit(0)
