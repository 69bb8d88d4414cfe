"""A model of which every rank holds some rows of each parameter, and a layer while it computes.

torch's FSDP puts a layer together before it computes, and drops it afterwards. Gradients of
parameters are not its affair: sums of clipped ones are made layer by layer, of which each rank
keeps its rows.

Source: Zhao et al. (2023), "PyTorch FSDP: experiences on scaling fully sharded data parallel".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from dpal.data.labeled_records import Batch
from dpal.errors import ParameterError
from dpal.planning.training_recipe import Precision
from dpal.training.backend_names import Backend
from dpal.training.distributed.shard_group import ShardGroup
from dpal.training.gradient_summation import Part
from dpal.training.per_record.backend import Copies, Loss, PerRecordGradients, Weigh, trainable
from dpal.training.per_record.book_keeping import BookKeeping
from dpal.training.per_record.fallback import FunctionalRule
from dpal.training.per_record.layer_rules import find_rules
from dpal.training.per_record.parametrized_convolution import FilterRule
from dpal.training.per_record.screening import FirstAlone, require_unmixed, same_chance, two_records


class ShardedModel:
    """A model in parts; for what of its gradient is summed here see `GradientLayout`.

    Attributes:
      model: computes this rank's records, while all other ranks compute theirs.
      rows: modules of the same names, whose parameters are this rank's rows: what optimizers,
        averages and checkpoints take for a model. Buffers are whole.
      parameters: of these what trains.
    """

    def __init__(
        self,
        model: nn.Module,
        group: ShardGroup,
        whole: MutableMapping[str, Tensor] | None = None,
    ) -> None:
        """Takes this rank's rows of what rank 0 gives, layer by layer.

        Args:
          model: without weights (`take_weights`), the same on every rank.
          group: all ranks.
          whole: all weights by name, at rank 0; they are forgotten one by one.
        """
        self.model, self._group = model, group
        for name, layer in reversed(list(model.named_modules())):  # from the inside out
            for key, empty in list(layer.named_parameters(recurse=False)):
                at = f"{name}.{key}" if name else key
                values = torch.empty(empty.shape, dtype=empty.dtype, device=group.device)
                if whole is not None:
                    values.copy_(whole.pop(at))
                group.from_first(values)
                setattr(layer, key, nn.Parameter(values, requires_grad=empty.requires_grad))
            if layer is model or next(layer.parameters(recurse=False), None) is not None:
                layer.register_forward_hook(_no_view)
                sharded = fully_shard(layer, mesh=group.mesh, reshard_after_forward=True)
        # Means of gradients are for screening alone, and not everything that adds up divides.
        cast(FSDPModule, sharded).set_force_sum_reduction_for_comms(True)
        model.to(group.device)  # buffers
        self.rows = _rows_of(model, {})
        self.parameters = trainable(self.rows)
        self._places, first = list[slice](), 0
        for parameter in self.parameters:
            self._places.append(slice(first, first + parameter.numel()))
            first += parameter.numel()

    def passes(self, parts: Iterable[Part], inputs: Batch) -> Iterator[Part]:
        """See `GradientLayout`: who has no chunk left passes a blank record that counts nothing."""
        left = iter(parts)
        while True:
            part = next(left, None)
            if not self._group.any(part is not None):
                return
            blank = torch.zeros(1, *inputs.shape[1:], dtype=inputs.dtype)
            yield (slice(0, 0), blank, []) if part is None else part

    def engine(
        self,
        *,
        backend: Backend,
        loss: Loss,
        groups: Sequence[int],
        precision: Precision,
        like: Tensor,
        targets: Tensor,
    ) -> PerRecordGradients:
        """See `GradientLayout`: by book-keeping; the model itself is screened, without a copy."""

        def build(allowed: Precision) -> BookKeeping:
            return BookKeeping(
                self.model, loss=loss, groups=groups, precision=allowed, class_of=built_as
            )

        with self._nothing_zero():
            require_unmixed(self.model, like)
            if not self._agrees(build(Precision.FP32), loss, like, targets):
                raise ParameterError(
                    "a parameter of this model is used outside of the layer that holds it, which a "
                    "sharded model cannot follow; set runtime.model_layout replicated"
                )
        return build(precision)

    def add(
        self,
        total: Tensor,
        engine: PerRecordGradients,
        inputs: Tensor,
        targets: Tensor,
        *,
        real: int,
        copies: Copies,
        weigh: Weigh,
    ) -> None:
        """See `GradientLayout`: the sum over the chunks of all ranks, of this one's rows."""
        by_layer = cast(BookKeeping, engine).layer_sums(
            inputs, targets, real=real, copies=copies, weigh=weigh
        )
        for sums in by_layer:
            for number, values in sums.items():
                total[self._places[number]] += self._group.sum_of_rows(values).reshape(-1)

    @contextmanager
    def _nothing_zero(self) -> Iterator[None]:
        """Public random numbers in parameters that are zero throughout, as in `probe_copy`."""
        everything = list(self.rows.parameters())
        sizes = torch.stack([rows.detach().abs().sum().double() for rows in everything])
        zero = [rows for rows, size in zip(everything, self._group.sums(sizes), strict=True)
                if size == 0]  # fmt: skip
        generator = torch.Generator(self._group.device).manual_seed(1 + self._group.rank)
        with torch.no_grad():
            for rows in zero:
                rows.normal_(generator=generator)
            try:
                yield
            finally:
                for rows in zero:
                    rows.zero_()

    def _agrees(self, engine: BookKeeping, loss: Loss, like: Tensor, targets: Tensor) -> bool:
        """What `screening.agrees` asks, of all ranks' rows: everybody computes the same records."""
        records, wanted = two_records(like, targets)
        first = FirstAlone()
        ours = torch.zeros(sum(p.numel() for p in self.parameters), dtype=torch.float64)
        ours = ours.to(self._group.device)
        with same_chance():
            self.add(ours, engine, records, wanted, real=2, copies=1, weigh=first)
        with same_chance(), torch.enable_grad():
            torch.autograd.backward(loss(self.model(records), wanted)[0])
        sharded = [cast(DTensor, parameter) for parameter in trainable(self.model)]
        theirs = torch.cat([_own(p.grad, p).reshape(-1) for p in sharded]).double()
        for parameter in sharded:
            parameter.grad = None
        sizes = torch.stack([(ours / self._group.ranks - theirs).square().sum(),
                             theirs.square().sum()])  # fmt: skip
        distance, size = self._group.sums(sizes).tolist()
        return first.agrees(distance, size)


def take_weights(model: nn.Module) -> dict[str, Tensor]:
    """Takes all weights off a model, in place, and gives them by name."""
    whole = {}
    for name, layer in model.named_modules():
        for key, parameter in list(layer.named_parameters(recurse=False)):
            whole[f"{name}.{key}" if name else key] = parameter.detach()
            empty = torch.empty_like(parameter, device="meta")
            setattr(layer, key, nn.Parameter(empty, requires_grad=parameter.requires_grad))
    return whole


def require_shardable(model: nn.Module, *, backend: Backend, optimizer: str) -> None:
    """Requires that a model can be trained in parts.

    Args:
      model: with its weights.
      backend: what is to compute clipped sums.
      optimizer: its name.

    Raises:
      ParameterError: it cannot.
    """
    reason = None
    held = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    numbers = [name for name, parameter in model.named_parameters() if parameter.dim() == 0]
    if backend is not Backend.BOOK_KEEPING:
        reason = f"runtime.backend {backend} puts the whole model together; use book_keeping"
    elif optimizer == "sgd_agc":
        reason = "training.optimizer sgd_agc compares whole parameters; use another one"
    elif len(held) > len(list(model.named_parameters())):
        reason = "two of its layers share a parameter; set runtime.model_layout replicated"
    elif numbers:
        reason = f"{numbers[0]} is a single number; set runtime.model_layout replicated"
    else:
        for name, layer in model.named_modules():
            if isinstance(layer, nn.MultiheadAttention):
                reason = (
                    f"layer {name!r} (MultiheadAttention) reads weights of another layer; set "
                    "runtime.model_layout replicated"
                )
        for name, rule in find_rules(model):
            if isinstance(rule, FunctionalRule | FilterRule):
                reason = (
                    f"gradients of layer {name!r} ({type(rule.layer).__name__}) need its weights "
                    "after it has computed; set runtime.model_layout replicated"
                )
    if reason is not None:
        raise ParameterError(f"this model cannot be sharded: {reason}")


def built_as(layer: nn.Module) -> type:
    """The class of a layer before it was sharded, which puts one of its own in front."""
    return next(kind for kind in type(layer).__mro__ if not issubclass(kind, FSDPModule))


def _no_view(layer: nn.Module, inputs: object, output: Tensor) -> Tensor:
    """FSDP waits for the gradient of an output, which a change in place of a view would escape."""
    return output.clone() if isinstance(output, Tensor) and output._is_view() else output


def _rows_of(module: nn.Module, made: dict[int, nn.Module]) -> nn.Module:
    """Modules of the same names with this rank's rows, in the same memory."""
    if id(module) in made:
        return made[id(module)]
    mirror = made[id(module)] = nn.Module()
    for name, parameter in module.named_parameters(recurse=False):
        rows = cast(DTensor, parameter).to_local().detach()
        mirror.register_parameter(name, nn.Parameter(rows, requires_grad=parameter.requires_grad))
    for name, buffer in module.named_buffers(recurse=False):
        mirror.register_buffer(
            name, buffer, persistent=name not in module._non_persistent_buffers_set
        )
    for name, child in module.named_children():
        mirror.add_module(name, _rows_of(child, made))
    return mirror


def _own(gradient: Tensor | None, parameter: DTensor) -> Tensor:
    """Rows of a gradient that all ranks added up; 0 where nothing asked for it."""
    if gradient is None:
        return torch.zeros_like(parameter.to_local())
    return cast(DTensor, gradient).to_local()
