"""A student learns from released answers about public records, with or without the rest.

Post-processing: whatever is done with released answers and public records is free. Answers
may be missing label by label, since teachers who do not agree give none. What is missing
is no answer "no": it takes no part in the loss.

Source:
  Berthelot et al. (2019), "MixMatch: a holistic approach to semi-supervised learning",
  Algorithm 1; among several labels with a sigmoid for each in place of the softmax.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpal.data.readers import to_input
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.planning.student_recipe import StudentTraining
from dpal.planning.training_recipe import Augmentation
from dpal.randomness import seeded
from dpal.training.augmentation import augment, require_images
from dpal.training.losses import per_record_loss
from dpal.training.plain_training import (
    ORDER,
    OnStep,
    descend,
    require_finite,
    shuffled_batches,
    training_steps,
)

_CHECKED = 4096  # records whose numbers are looked at in one go


def train_student(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    spec: StudentTraining,
    *,
    task: Task = Task.MULTI_LABEL,
    shares: bool = False,
    unlabeled: Tensor | None = None,
    on_step: OnStep = lambda: None,
) -> None:
    """Trains a student, in place; the same settings give the same model.

    Args:
      model: from records to logits; its frozen parameters stay as they are.
      inputs: (n, *input_shape) decoded public records that teachers were asked about.
      labels: (n, labels) zeros and ones, NaN where there is no answer, or (n,) class numbers,
        NaN likewise. A record without any answer counts as unlabeled.
      spec: how; `student_steps` tells how many steps that takes.
      task: what a label is.
      shares: labels are (n, labels or classes) noisy shares of votes in their place, which may lie
        outside [0, 1]; the loss is the squared error of probabilities, which noise without a bias
        does not move. For `supervised` alone.
      unlabeled: (m, *input_shape) more public records; mixmatch alone reads them.
      on_step: called after every step.

    Raises:
      ParameterError: there is no answer, or none of the records that mixmatch needs without
        one; records are not finite numbers or not alike; labels are neither answers nor NaN;
        views are asked for of what is no image; or the training diverged, so that nothing of
        use was made.
    """
    if spec.method == "least_squares" or (shares and spec.method != "supervised"):
        raise ParameterError(
            f"student.method {spec.method} is not trained on {'shares' if shares else 'answers'} "
            "step by step; take supervised, or dpal.training.linear_student for least_squares"
        )
    answered = _known(labels, task, shares)
    if len(labels) != len(inputs) or not answered.any():
        raise ParameterError(
            f"{len(labels):,} rows of labels answer {int(answered.sum()):,} of {len(inputs):,} "
            "records; a student needs a row for each record and at least one answer"
        )
    require_images(Augmentation(shift=spec.shift), tuple(inputs.shape[1:]))
    pools = [inputs] if unlabeled is None else [inputs, unlabeled]
    _require_alike_and_finite(pools)
    sample = _Sample(model, inputs, labels, answered.nonzero()[:, 0], spec, shares)
    rest = _Rest(inputs, (~answered).nonzero()[:, 0], unlabeled)
    if spec.method == "mixmatch" and not len(rest):
        raise ParameterError(
            "student.method mixmatch guesses labels of public records that have no answer; where "
            "all have one, take supervised"
        )
    guesses = spec.method == "mixmatch"
    losses = _mixmatch(sample, rest, task) if guesses else _supervised(sample, task)
    device = next(model.parameters()).device
    # Layers that drop units draw from the global generator; it is put back afterwards.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(seeded(spec.seed, "dropped units").integers(2**63)))
        steps = training_steps(spec, int(answered.sum()))
        descend(model, losses, spec, steps=steps, on_step=on_step)
    require_finite(
        model,
        f"the student's training diverged with student.learning_rate {spec.learning_rate:g}; "
        "lower it (the answers are unchanged, and nothing more was released)",
    )


def answered_records(labels: Tensor, *, task: Task = Task.MULTI_LABEL) -> Tensor:
    """Which records have any answer, shape (n,).

    Args:
      labels: as in `train_student`.
      task: what a label is.

    Raises:
      ParameterError: labels have another shape, or are neither answers nor NaN.
    """
    single = task is Task.SINGLE_LABEL
    given = labels[~labels.isnan()]
    numbers = given.isfinite() & (given >= 0) & (given == given.floor())
    sound = numbers if single else (given == 0) | (given == 1)
    if labels.dim() != (1 if single else 2) or not sound.all():
        raise ParameterError(
            f"labels of shape {tuple(labels.shape)} are no {task} answers; give "
            + ("one class number a record" if single else "a row of zeros and ones a record")
            + ", and NaN where there is no answer"
        )
    return ~labels.isnan() if single else ~labels.isnan().all(dim=1)


def student_steps(
    spec: StudentTraining, labels: Tensor, *, task: Task = Task.MULTI_LABEL, shares: bool = False
) -> int:
    """Steps of a training on such labels; arguments as in `train_student`."""
    return training_steps(spec, int(_known(labels, task, shares).sum()))


def _known(labels: Tensor, task: Task, shares: bool) -> Tensor:
    """Which records have any answer, shape (n,); a share of votes is known of every record."""
    if not shares:
        return answered_records(labels, task=task)
    if labels.dim() != 2 or not labels.isfinite().all():
        raise ParameterError(
            f"labels of shape {tuple(labels.shape)} are no shares of votes; give a row of finite "
            "numbers a record"
        )
    return torch.ones(len(labels), dtype=torch.bool)


def answer_weights(answers: Tensor, values: int, balance: float) -> Tensor:
    """What an answer weighs by what it says, so that rare ones are not lost; 1 on average.

    Counts are of released answers: they read nothing private.

    Args:
      answers: (n,) whole numbers below `values`; NaN where there is none.
      values: that an answer may have.
      balance: power of n / count, in [0, 1]; 0 lets all weigh the same.

    Returns:
      (values,), also of those that nobody gave, as if it had been given once more.

    >>> answer_weights(torch.tensor([0.0, 0.0, 0.0, 1.0]), 2, 1.0)
    tensor([0.8000, 1.6000])
    """
    given = answers[~answers.isnan()].long()
    counts = torch.bincount(given, minlength=values).float()
    weights = ((counts.sum() + values) / (values * (counts + 1))) ** balance
    return weights * counts.sum().clamp(min=1) / (weights * counts).sum().clamp(min=1e-30)


def label_weights(labels: Tensor, balance: float) -> Tensor:
    """The same of (n, labels) answers of no and yes: (labels, 2)."""
    return torch.stack([answer_weights(column, 2, balance) for column in labels.T])


def masked_loss(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of answers, averaged over those that there are.

    Args:
      logits: (n, labels).
      targets: (n, labels) in [0, 1]; NaN where there is no answer.
      weights: (labels, 2) of no and yes; None lets every answer weigh the same.

    Returns:
      A scalar, 0 if there is none. Logits without an answer have a gradient of exactly 0.
    """
    given = ~targets.isnan()  # selected first: multiplied by 0 the gradient would stay NaN
    answers = targets[given].to(logits.dtype)
    each = None
    if weights is not None:
        no, yes = (column.expand_as(targets)[given] for column in weights.to(logits.dtype).T)
        each = no + (yes - no) * answers
    losses = functional.binary_cross_entropy_with_logits(
        logits[given], answers, weight=each, reduction="sum"
    )
    return losses / given.sum().clamp(min=1)


def masked_error(logits: Tensor, targets: Tensor) -> Tensor:
    """Squared error of probabilities, averaged likewise; arguments as in `masked_loss`."""
    given = ~targets.isnan()
    return (torch.sigmoid(logits[given]) - targets[given]).square().sum() / given.sum().clamp(min=1)


def class_loss(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Cross-entropy of (n, classes) logits to probabilities of classes, averaged over records.

    With (classes,) weights a class counts for so much.
    """
    wanted = targets if weights is None else targets * weights.to(targets.dtype)
    return -(wanted * functional.log_softmax(logits, dim=1)).sum(dim=1).mean()


def class_error(logits: Tensor, targets: Tensor) -> Tensor:
    """Squared error of probabilities of classes, averaged over records and classes."""
    return (torch.softmax(logits, dim=1) - targets).square().mean()


def sharpen_classes(probabilities: Tensor, temperature: float) -> Tensor:
    """Moves (n, classes) probabilities towards the largest of each row: p^(1/T), summing to 1."""
    return torch.softmax(torch.log(probabilities.clamp(min=1e-30)) / temperature, dim=1)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """Moves probabilities away from 1/2: p^(1/T) / (p^(1/T) + (1 - p)^(1/T)).

    Args:
      probabilities: (...,) in [0, 1].
      temperature: T above 0; towards 0 gives 0 and 1, 1 changes nothing.

    Returns:
      Probabilities of the same shape.
    """
    # The same formula in log-odds: powers would round to 0 / 0 at a low temperature.
    return torch.sigmoid(torch.logit(probabilities) / temperature)


def mixing_shares(count: int, parameter: float, *, rng: np.random.Generator) -> Tensor:
    """How much of itself each record keeps when it is mixed with another.

    Args:
      count: n.
      parameter: of the symmetric Beta law, above 0.
      rng: draws the shares.

    Returns:
      (n,) max(share, 1 - share), in [1/2, 1].
    """
    shares = rng.beta(parameter, parameter, size=count)
    return torch.from_numpy(np.maximum(shares, 1 - shares)).float()


def blend(rows: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """Mixes records, or their targets.

    A mixture has a target where both of its records have one, since NaN is passed on: the
    answer of one alone would pass for that of a record which is to a part the other.

    Args:
      rows: (n, ...).
      partner: (n,) row that each one is mixed with.
      share: (n,) what each keeps of itself.

    Returns:
      share * rows + (1 - share) * rows[partner], of the same shape.
    """
    share = share.to(rows.dtype).reshape(-1, *[1] * (rows.dim() - 1))
    return share * rows + (1 - share) * rows[partner]


@dataclass(frozen=True, eq=False)
class _Sample:
    """A model, the answered records it learns from, and how."""

    model: nn.Module
    inputs: Tensor
    labels: Tensor
    rows: Tensor  # of the answered records
    spec: StudentTraining
    shares: bool = False

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def weights(self, classes: int) -> Tensor | None:
        """Of answers by what they say; None where all weigh the same."""
        if not self.spec.balance:
            return None
        if self.labels.dim() == 1:
            return answer_weights(self.labels, classes, self.spec.balance).to(self.device)
        return label_weights(self.labels, self.spec.balance).to(self.device)

    def view(self, records: Tensor, generator: torch.Generator) -> Tensor:
        """A random view of each record, as the model takes it."""
        shifted = augment(records, Augmentation(shift=self.spec.shift), generator=generator)
        ready = to_input(shifted.to(self.device))
        if not self.spec.noise:
            return ready
        jitter = torch.randn(ready.shape, generator=generator, dtype=ready.dtype)
        return ready + self.spec.noise * jitter.to(self.device)

    def batches(self) -> Iterator[tuple[Tensor, Tensor, torch.Generator]]:
        """Views of answered records, their labels, and the generator of further views."""
        draw = seeded(self.spec.seed, ORDER)
        generator = torch.Generator().manual_seed(int(draw.integers(2**63)))
        for places in shuffled_batches(self.spec, len(self.rows), rng=draw):
            rows = self.rows[places]
            view = self.view(self.inputs[rows], generator)
            yield view, self.labels[rows].to(self.device), generator


@dataclass(frozen=True, eq=False)
class _Rest:
    """Records without an answer, taken a batch at a time: they are never copied as a whole."""

    inputs: Tensor
    rows: Tensor  # of `inputs`
    more: Tensor | None

    def __len__(self) -> int:
        return len(self.rows) + (0 if self.more is None else len(self.more))

    def batches(self, size: int, *, rng: np.random.Generator) -> Iterator[Tensor]:
        """Batches without end, in a fresh order whenever all records were seen."""
        while True:
            for places in torch.split(torch.from_numpy(rng.permutation(len(self))), size):
                asked, others = places < len(self.rows), places >= len(self.rows)
                batch = self.inputs[self.rows[places[asked]]]
                if self.more is not None:
                    batch = torch.cat([batch, self.more[places[others] - len(self.rows)]])
                yield batch


def _supervised(sample: _Sample, task: Task) -> Iterator[Tensor]:
    """The loss of each step: of the answers that are there."""
    classes, weights = per_record_loss(Task.SINGLE_LABEL), None
    for step, (view, labels, _) in enumerate(sample.batches()):
        logits = sample.model(view)
        if sample.shares:
            yield (class_error if task is Task.SINGLE_LABEL else masked_error)(logits, labels)
            continue
        if not step:
            weights = sample.weights(logits.shape[1])
        if task is not Task.SINGLE_LABEL:
            yield masked_loss(logits, labels, weights)
            continue
        losses = classes(logits, labels.long())
        yield losses.mean() if weights is None else (losses * weights[labels.long()]).mean()


def _mixmatch(sample: _Sample, rest: _Rest, task: Task) -> Iterator[Tensor]:
    """The loss of each step: of answers, and of guesses about mixtures."""
    spec, device, single = sample.spec, sample.device, task is Task.SINGLE_LABEL
    loss_of, error_of = (class_loss, class_error) if single else (masked_loss, masked_error)
    others = rest.batches(spec.batch_size, rng=seeded(spec.seed, "order of unlabeled records"))
    mixing = seeded(spec.seed, "mixtures")
    rising = max(1.0, spec.ramp * training_steps(spec, len(sample.rows)))
    weights = None
    for step, (view, labels, generator) in enumerate(sample.batches()):
        unanswered = next(others)
        looks = [sample.view(unanswered, generator) for _ in range(spec.views)]
        guesses = _guess(sample.model, looks, spec.temperature, task)
        if not step:
            weights = sample.weights(guesses.shape[1])
        if single:
            labels = functional.one_hot(labels.long(), guesses.shape[1])
        records = torch.cat([view, *looks])
        targets = torch.cat([labels.to(guesses.dtype), guesses])
        if spec.mixup:
            partner = torch.from_numpy(mixing.permutation(len(records))).to(device)
            share = mixing_shares(len(records), spec.mixup, rng=mixing).to(device)
            records, targets = (blend(values, partner, share) for values in (records, targets))
        logits, answers = sample.model(records), len(labels)
        weight = spec.unlabeled_weight * min(1.0, step / rising if spec.ramp else 1.0)
        error = error_of(logits[answers:], targets[answers:])
        yield loss_of(logits[:answers], targets[:answers], weights) + weight * error


def _guess(model: nn.Module, looks: list[Tensor], temperature: float, task: Task) -> Tensor:
    """Sharpened mean probabilities over the views, once for each view: (views * n, labels)."""
    single = task is Task.SINGLE_LABEL
    model.eval()  # as the student will be used: nothing dropped, no statistics moved
    with torch.no_grad():
        logits = torch.stack([model(look) for look in looks])
        chances = torch.softmax(logits, dim=2) if single else torch.sigmoid(logits)
        mean = chances.mean(dim=0)
    model.train()
    sharpened = sharpen_classes(mean, temperature) if single else sharpen(mean, temperature)
    return sharpened.repeat(len(looks), 1)


def _require_alike_and_finite(pools: list[Tensor]) -> None:
    if (
        len({tuple(pool.shape[1:]) for pool in pools}) > 1
        or len({pool.dtype for pool in pools}) > 1
    ):
        raise ParameterError("unlabeled records are not of the shape and type of the others")
    for pool in pools:
        # Part by part: a mask of all records at once would be as large as they are.
        if not all(bool(part.isfinite().all()) for part in torch.split(pool, _CHECKED)):
            raise ParameterError("records hold NaN or infinite numbers; leave these records out")
