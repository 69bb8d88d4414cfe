"""One private gradient: clip every record's, sum, add noise, divide by a public constant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpal import check
from dpal.data.labeled_records import Batch
from dpal.data.readers import to_input
from dpal.errors import ParameterError
from dpal.labels import Task
from dpal.mechanisms.gaussian import noisy_sum
from dpal.planning.training_recipe import Recipe
from dpal.randomness import BitSource, SecureBits
from dpal.training.augmentation import augment, view_generator
from dpal.training.backend_names import Backend
from dpal.training.clipping import Clipper
from dpal.training.gradient_summation import GradientLayout, Part, WholeModel
from dpal.training.losses import per_record_loss
from dpal.training.noise_ahead import NoiseAhead, noisy_sum_from
from dpal.training.per_record.backend import Copies, PerRecordGradients, stretches_by_size
from dpal.training.per_record.screening import refuse_known_mixing
from dpal.training.physical_batches import chunks, group_chunks

Sizes = NDArray[np.int64]
"""Records of each group of a batch, shape (n_groups,)."""


class PrivateGradient:
    """Writes private gradients of the loss into a model's parameters."""

    def __init__(
        self,
        model: nn.Module,
        *,
        max_grad_norm: float,
        noise_multiplier: float,
        expected_batch_size: float,
        physical_batch: int,
        rng: BitSource,
        recipe: Recipe | None = None,
        backend: Backend = Backend.BOOK_KEEPING,
        clipper: Clipper | None = None,
        layout: GradientLayout | None = None,
    ) -> None:
        """Prepares a model for per-record gradients.

        Args:
          model: treats records apart; stays usable after `close`.
          max_grad_norm: clipping norm C.
          noise_multiplier: noise standard deviation over C; where the clipping norm is
            adaptive, of gradient and count together.
          expected_batch_size: public divisor.
          physical_batch: views per backward pass; changes memory, nothing else.
          rng: source of the noise.
          recipe: clipping, augmentation and precision; None is the default one.
          backend: what computes the sums; changes speed, nothing else.
          clipper: carries an adaptive bound over from earlier steps; None starts anew.
          layout: which part of the gradient this process sums and releases; None is all.

        Raises:
          ParameterError: the model mixes records, or a number is out of range.
        """
        check.positive(noise_multiplier=noise_multiplier, expected_batch_size=expected_batch_size)
        check.at_least(1, physical_batch=physical_batch)
        refuse_known_mixing(model)
        self._recipe = recipe or Recipe()
        self._clipper = clipper or Clipper(
            self._recipe.clipping, max_grad_norm=max_grad_norm, precision=self._recipe.precision
        )
        self._multiplier = self._clipper.gradient_noise(
            noise_multiplier, expected_batch_size=expected_batch_size
        )
        self._model, self._backend, self._rng = model, backend, rng
        self._divisor, self._physical = expected_batch_size, physical_batch
        self._layout = layout or WholeModel(model)
        self._parameters = self._layout.parameters
        self._engine: PerRecordGradients | None = None
        self._device = self._parameters[0].device
        # A source that repeats draws in place: other streams would not repeat.
        ahead = self._device.type != "cpu" and isinstance(rng, SecureBits)
        count = sum(p.numel() for p in self._parameters)  # 0 where other processes hold all rows
        self._ahead = NoiseAhead(count) if ahead and count else None

    @property
    def bound(self) -> float:
        """The clipping norm of the next step."""
        return self._clipper.bound

    def write(self, inputs: Batch, labels: Tensor, sizes: Sizes | None = None) -> None:
        """Sets every parameter's `grad` for one batch; an empty batch gives noise alone.

        Args:
          inputs: (n, *input_shape) decoded records.
          labels: (n,) class numbers, or (n, labels) zeros and ones.
          sizes: as in `clipped_sum`.
        """
        if self._ahead is None:
            self.release(self.clipped_sum(inputs, labels, sizes), self._clipper.take_count())
            return
        self._ahead.begin()
        total = self._clipped_sum(inputs, labels, sizes)
        self._release(total, self._clipper.take_count())

    def release(self, total: NDArray[np.float64], count: float | None) -> None:
        """Adds noise to a clipped sum, writes it to the parameters, and moves the bound.

        Args:
          total: (n_parameters,) sum over all records, or groups, of the step, wherever it was
            computed.
          count: of the same records, by `Clipper.take_count`; 0 without an adaptive bound. None
            leaves the bound to the process that releases the count.
        """
        self._release(torch.from_numpy(total).to(self._device), count)

    def _release(self, total: Tensor, count: float | None) -> None:
        noisy = self._with_noise(total, self._multiplier * self._clipper.bound) / self._divisor
        start = 0
        for parameter in self._parameters:
            part = noisy[start : start + parameter.numel()].reshape(parameter.shape)
            parameter.grad = part.to(parameter)
            start += parameter.numel()
        if self._clipper.adaptive and count is not None:
            deviation = self._clipper.count_deviation(self._divisor)
            released = noisy_sum(np.array([count]), deviation, rng=self._rng)[0]
            self._clipper.move(float(released), expected_batch_size=self._divisor)

    def _with_noise(self, total: Tensor, scale: float) -> Tensor:
        if self._ahead is not None:
            return noisy_sum_from(total, scale, self._ahead.take())
        noisy = noisy_sum(total.cpu().numpy(), scale, rng=self._rng)
        return torch.from_numpy(noisy).to(self._device)

    def clipped_sum(
        self, inputs: Batch, labels: Tensor, sizes: Sizes | None = None
    ) -> NDArray[np.float64]:
        """Sums the clipped gradients of a batch, without noise: (n_parameters,) float64.

        Every record contributes a vector of norm at most C, or every group does: the mean of
        the gradients of its records, clipped once. One whose gradient is not finite contributes
        zero.

        Args:
          inputs: (n, *input_shape) decoded records; those of a group stand side by side.
          labels: (n,) class numbers, or (n, labels) zeros and ones.
          sizes: (n_groups,) records of each group, in order; groups of one size in a row save
            time. None protects records.

        Raises:
          ParameterError: sizes do not add up to the batch.
        """
        return np.asarray(self._clipped_sum(inputs, labels, sizes).cpu().numpy())

    def _clipped_sum(self, inputs: Batch, labels: Tensor, sizes: Sizes | None) -> Tensor:
        if sizes is not None and (sizes.sum() != len(inputs) or (sizes < 1).any()):
            raise ParameterError("sizes of groups must be 1 at least and add up to the batch")
        self._clipper.take_count()  # of an attempt that broke off: no part of this sum
        device = self._device
        copies = self._recipe.augmentation.multiplicity
        total = torch.zeros(sum(p.numel() for p in self._parameters), dtype=torch.float64)
        total = total.to(device)
        most = max(1, self._physical // copies)
        parts = _chunks(inputs, sizes, physical_batch=most)
        for rows, chunk, members in self._layout.passes(parts, inputs):
            count = rows.stop - rows.start
            targets = labels.new_zeros(len(chunk), *labels.shape[1:])
            targets[:count] = labels[rows]
            views = to_input(self._views(chunk.to(device)))
            targets = targets.to(device).repeat_interleave(copies, dim=0)
            stretches: Copies = copies
            if members is not None:
                filler = [1] * (len(chunk) - count)
                stretches = stretches_by_size([copies * size for size in (*members, *filler)])
            engine = self._ready(views, targets)
            self._layout.add(
                total,
                engine,
                views,
                targets,
                real=count if members is None else len(members),
                copies=stretches,
                weigh=self._clipper.weigh,
            )
        return total

    def close(self) -> None:
        """Leaves the model as it was found."""
        if self._ahead is not None:
            self._ahead.close()
        if self._engine is not None:
            self._engine.close()

    def _views(self, chunk: Tensor) -> Tensor:
        wanted = self._recipe.augmentation
        if not (wanted.flip or wanted.shift):
            return chunk
        return augment(chunk, wanted, generator=view_generator(self._rng))

    def _ready(self, views: Tensor, targets: Tensor) -> PerRecordGradients:
        """The engine; built when the shape of a record is known."""
        if self._engine is None:
            task = Task.SINGLE_LABEL if targets.dim() == 1 else Task.MULTI_LABEL
            self._engine = self._layout.engine(
                backend=self._backend,
                loss=per_record_loss(task),
                groups=self._clipper.groups(self._model),
                precision=self._recipe.precision,
                like=views,
                targets=targets,
            )
        return self._engine


def _chunks(inputs: Batch, sizes: Sizes | None, *, physical_batch: int) -> Iterator[Part]:
    """Yields chunks as `chunks` does, each with the sizes of its groups, where there are groups."""
    if sizes is None:
        for rows, chunk in chunks(inputs, physical_batch=physical_batch):
            yield rows, chunk, None
    else:
        yield from group_chunks(inputs, sizes.tolist(), physical_batch=physical_batch)
