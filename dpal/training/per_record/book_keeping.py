"""One forward pass, one backward pass for the inputs of layers, one weighted pass for weights.

The backward pass computes no weight gradient. Every layer measures its records' gradients
when the gradient of its output comes by; when the weights of the records are known, each
layer sums once.

Source: Bu, Wang, Zha & Karypis (2023), "Differentially private optimization on large model
at small cost" (book-keeping); measured before with hand-made layers.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from dpal.planning.training_recipe import Precision
from dpal.training.arithmetic import passes, products
from dpal.training.per_record.backend import (
    Copies,
    Loss,
    Stretch,
    Weigh,
    broken_records,
    mean_losses,
    records_of_rows,
    slices,
    stretches_of,
    trainable,
    zero_rows,
)
from dpal.training.per_record.capture import hook_calls
from dpal.training.per_record.fallback import FunctionalRule
from dpal.training.per_record.layer_rule import (
    KEEP,
    Rule,
)
from dpal.training.per_record.layer_rules import find_rules
from dpal.training.per_record.norms_and_sums import (
    PerRecord,
    SquaredNorms,
    squared,
    weighed,
)

_LOG = logging.getLogger(__name__)

# Records whose gradients are summed in float32; the sums are added in float64. What another
# record's rounding does to a sum grows with the number of records in it.
RECORDS_PER_SUM = 256

# Records on which ways are timed: few, but enough to keep the device busy.
_TRIED_ON, _TRIED_IN_BULK = 16, 256


@dataclass(eq=False)
class _Layer:
    """A layer, its rule, and what the pass under way has left behind, stretch by stretch.

    Attributes:
      name: of the layer.
      rule: for its gradients.
      parameters: numbers of those that it holds.
      shares: whether another layer holds one of them, too.
      calls: inputs and output gradients of each call: of a whole chunk where gradients of several
        calls add up, else of the stretch with this number.
      kept: gradients of the records, by stretch.
      is_whole: whether the only call is of a whole chunk, none of whose stretches was kept.
      expected: calls in the forward pass.
      way: how calls of a shape are measured.
    """

    name: str
    rule: Rule
    parameters: list[int]
    shares: bool
    calls: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    kept: dict[int, PerRecord] = field(default_factory=dict)
    expected: int = 0
    is_whole: bool = False
    way: dict[tuple[int, ...], str] = field(default_factory=dict)

    def clear(self) -> None:
        self.calls, self.kept, self.expected, self.is_whole = {}, {}, 0, False


class BookKeeping:
    """Per-record gradients by book-keeping; see `PerRecordGradients`."""

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: Loss,
        groups: Sequence[int],
        precision: Precision = Precision.FP32,
        class_of: Callable[[nn.Module], type] = type,
    ) -> None:
        """Finds a rule for every layer.

        Args:
          model: treats records apart.
          loss: of each record.
          groups: for each parameter that trains, in the model's order, the number of the
            group whose norms are measured together; a layer's parameters share one.
          precision: of the forward and the backward pass.
          class_of: as in `find_rules`.

        Raises:
          ParameterError: a layer cannot be served.
        """
        self.parameters = trainable(model)
        self._model, self._loss, self._groups = model, loss, list(groups)
        self._precision, self._shared = precision, dict[int, Tensor]()
        number = {id(p): i for i, p in enumerate(self.parameters)}
        owners: Counter[int] = Counter()
        named_rules = []
        for name, rule in find_rules(model, class_of):
            own, rule.precision = dict(rule.layer.named_parameters()), precision
            mine = [number[id(own[key])] for key in rule.parameters]
            owners.update(mine)
            named_rules.append((name, rule, mine))
        self._layers = [
            _Layer(name, rule, mine, shares=any(owners[i] > 1 for i in mine))
            for name, rule, mine in named_rules
        ]
        self.fallbacks = tuple(
            f"{layer.name} ({type(layer.rule.layer).__name__})"
            for layer in self._layers
            if isinstance(layer.rule, FunctionalRule)
        )
        if self.fallbacks:
            _LOG.warning("no rule for %s: torch.func serves there", ", ".join(self.fallbacks))

    def weighted_sum(
        self, inputs: Tensor, targets: Tensor, *, real: int, copies: Copies, weigh: Weigh
    ) -> list[Tensor]:
        """See `PerRecordGradients`."""
        by_number: dict[int, Tensor] = {}
        for sums in self.layer_sums(inputs, targets, real=real, copies=copies, weigh=weigh):
            by_number |= sums
        return [by_number[number] for number in range(len(self.parameters))]

    def layer_sums(
        self, inputs: Tensor, targets: Tensor, *, real: int, copies: Copies, weigh: Weigh
    ) -> Iterator[dict[int, Tensor]]:
        """Yields what `weighted_sum` gives, layer by layer, always in the same order.

        Yields:
          Sums in float64 by the number of the parameter; each parameter once.
        """
        stretches = stretches_of(copies, len(inputs))
        norms = self._no_norms(stretches, inputs)
        try:
            with products(self._precision):
                self._pass(inputs, targets, stretches, norms)
            weights, unsound = self._weights(norms[0] + norms[1], real, weigh)
            broken = unsound if bool(unsound.any()) else None  # asked once: a GPU is waited for
            summed = set[int]()
            for layer in self._layers:
                numbers = [number for number in layer.parameters if number not in summed]
                with products(self._precision):
                    sums = self._sums(layer, numbers, weights, broken, stretches)
                summed.update(numbers)
                yield sums
        finally:
            self._shared = {}
            for layer in self._layers:
                layer.clear()

    def squared_norms(self, inputs: Tensor, targets: Tensor, *, copies: Copies = 1) -> Tensor:
        """Squared norms (groups, n) as computed, without room for rounding; for checks."""
        stretches = stretches_of(copies, len(inputs))
        norms = self._no_norms(stretches, inputs)
        try:
            self._pass(inputs, targets, stretches, norms)
            return norms[0]
        finally:
            for layer in self._layers:
                layer.clear()

    def ways(self) -> dict[str, str]:
        """How each layer measures, as far as it is decided; the last choice of each."""
        return {layer.name: way for layer in self._layers for way in layer.way.values()}

    def close(self) -> None:
        """Nothing stays on the model between passes."""

    def _no_norms(self, stretches: Sequence[Stretch], inputs: Tensor) -> list[Tensor]:
        """Zeros for values and rounding of squared norms, (groups, n) each."""
        shape = (max(self._groups) + 1, sum(stretch.records for stretch in stretches))
        return [torch.zeros(shape, device=inputs.device) for _ in ("value", "rounding")]

    def _pass(
        self, inputs: Tensor, targets: Tensor, stretches: Sequence[Stretch], norms: list[Tensor]
    ) -> None:
        """Runs forward and backward; afterwards `norms` are complete."""
        anchor = torch.zeros(0, device=inputs.device, requires_grad=True)
        with self._watched(anchor, stretches, norms), torch.enable_grad():
            with passes(self._precision, inputs.device):
                logits = self._model(inputs)
            losses = self._loss(logits.float(), targets)
            torch.autograd.backward(mean_losses(losses, stretches))
        self._measure_shared(stretches, norms)

    @contextmanager
    def _watched(
        self, anchor: Tensor, stretches: Sequence[Stretch], norms: list[Tensor]
    ) -> Iterator[None]:
        handles = []
        for layer in self._layers:

            def called(inputs: Tensor, layer: _Layer = layer) -> object:
                layer.expected += 1

                def receive(grads: Tensor) -> None:
                    self._receive(layer, inputs, grads, stretches, norms)

                return receive

            handles.append(hook_calls(layer.rule.layer, layer.name, anchor, called))  # type: ignore[arg-type]
        for parameter in self.parameters:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in self.parameters:
                parameter.requires_grad_(True)
            for handle in handles:
                handle.remove()

    def _receive(
        self,
        layer: _Layer,
        inputs: Tensor,
        grads: Tensor,
        stretches: Sequence[Stretch],
        norms: list[Tensor],
    ) -> None:
        # Norms and sums are float32 whatever the passes computed in; the input is rounded
        # to what the layer read.
        if inputs.is_floating_point():
            inputs = inputs.to(grads.dtype).float()
        grads = grads.detach().float()
        if layer.shares or layer.expected > 1:
            layer.calls[len(layer.calls)] = (inputs, grads)
            return
        group = self._groups[layer.parameters[0]]
        for number, (stretch, records, rows) in enumerate(slices(stretches)):
            read, sent = inputs[rows], grads[rows]
            way = self._way(layer, read, sent, stretch.records)
            if way == KEEP:
                kept = layer.rule.per_record(read, sent, stretch.records)
                layer.kept[number] = kept
                record_norms = SquaredNorms.exact(squared(kept))
            else:
                record_norms = layer.rule.squared_norms(read, sent, stretch.records, way=way)
                layer.calls[number] = (read, sent)
            norms[0][group, records] += record_norms.value
            norms[1][group, records] += record_norms.rounding
        layer.is_whole = not layer.kept and len(layer.calls) > 1
        if layer.is_whole:
            layer.calls = {0: (inputs, grads)}

    def _measure_shared(self, stretches: Sequence[Stretch], norms: list[Tensor]) -> None:
        """Layers called several times, or sharing parameters: gradients add up first."""
        totals: dict[int, Tensor] = {}
        for layer in self._layers:
            if not (layer.shares or layer.expected > 1):
                continue
            for inputs, grads in layer.calls.values():
                parts = [
                    layer.rule.per_record(inputs[rows], grads[rows], stretch.records)
                    for stretch, _, rows in slices(stretches)
                ]
                for number, key in zip(layer.parameters, layer.rule.parameters, strict=True):
                    part = torch.cat([gradients[key] for gradients in parts])
                    totals[number] = totals[number] + part if number in totals else part
            layer.calls = {}
        for number, total in totals.items():
            squares = total.reshape(len(total), -1).square().sum(dim=1)
            norms[0][self._groups[number]] += squares
        self._shared = totals

    def _weights(self, norms: Tensor, real: int, weigh: Weigh) -> tuple[Tensor, Tensor]:
        filler = norms.shape[1] - real
        weights = nn.functional.pad(weigh(norms[:, :real]), (0, filler))
        broken = broken_records(norms)
        return weights.masked_fill(broken, 0.0), broken

    def _sums(
        self,
        layer: _Layer,
        numbers: Sequence[int],
        weights: Tensor,
        broken: Tensor | None,
        stretches: Sequence[Stretch],
    ) -> dict[int, Tensor]:
        """Sums of these of a layer's parameters; what the pass left behind in it is dropped.

        Args:
          layer: whose records' gradients were measured.
          numbers: of its parameters, those that are not summed yet.
          weights: (groups, records).
          broken: records that count nothing; None where there are none.
          stretches: of records.
        """
        sums = {
            number: torch.zeros(parameter.shape, dtype=torch.float64, device=parameter.device)
            for number, parameter in ((number, self.parameters[number]) for number in numbers)
        }
        mine, bad, parts = weights[self._groups[layer.parameters[0]]], broken, stretches
        if layer.is_whole:
            # A sum over rows, each with the weight of its record: one product for all.
            row_records = records_of_rows(stretches).to(weights.device)
            mine, bad = mine[row_records], None if broken is None else broken[row_records]
            parts = (Stretch(len(row_records), 1),)
        for at, (stretch, records, _) in enumerate(slices(parts)):
            gone = None if bad is None else bad[records]
            for part in self._parts(layer, at, stretch, mine[records], gone):
                for number, key in zip(layer.parameters, layer.rule.parameters, strict=True):
                    sums[number] += part[key]
        layer.clear()
        for number in numbers:
            if number in self._shared:
                total = self._shared.pop(number)
                total = total if broken is None else zero_rows(total, broken)
                sums[number] += torch.tensordot(weights[self._groups[number]].double(),
                                                total.double(), 1)  # fmt: skip
        return sums

    def _parts(
        self,
        layer: _Layer,
        number: int,
        stretch: Stretch,
        weights: Tensor,
        broken: Tensor | None,
    ) -> Iterator[PerRecord]:
        """Yields sums over parts of a stretch, whose weights are given."""
        for start in range(0, stretch.records, RECORDS_PER_SUM):
            records = slice(start, min(start + RECORDS_PER_SUM, stretch.records))
            if number in layer.kept:
                part = {key: value[records] for key, value in layer.kept[number].items()}
                if broken is not None:
                    part = {key: zero_rows(value, broken[records]) for key, value in part.items()}
                yield {key: weighed(value, weights[records]) for key, value in part.items()}
            if number in layer.calls:
                inputs, grads = layer.calls[number]
                views = slice(records.start * stretch.copies, records.stop * stretch.copies)
                read, back = inputs[views], grads[views]
                if broken is not None:
                    # 0 * NaN is NaN: the values themselves must go.
                    bad = broken[records].repeat_interleave(stretch.copies)
                    back = zero_rows(back, bad)
                    read = zero_rows(read, bad) if read.is_floating_point() else read
                yield layer.rule.weighted(read, back, weights[records])

    def _way(self, layer: _Layer, inputs: Tensor, grads: Tensor, records: int) -> str:
        """The fastest way for calls of this shape, tried once on a few records."""
        copies = len(inputs) // records
        shape = (copies, *inputs.shape[1:])
        if shape in layer.way:
            return layer.way[shape]
        ways = layer.rule.ways(inputs, grads, records)
        tried = _TRIED_ON if inputs.device.type == "cpu" else _TRIED_IN_BULK
        if len(ways) > 1 and records >= tried:
            views = tried * copies
            trial = (inputs[:views], grads[:views], tried)
            ways = (min(ways, key=lambda way: _seconds(layer.rule, trial, way)),)
            layer.way[shape] = ways[0]
        elif len(ways) == 1:
            layer.way[shape] = ways[0]
        return ways[0]


def _seconds(rule: Rule, trial: tuple[Tensor, Tensor, int], way: str) -> float:
    """Time of measuring and of what comes after, on few records."""
    inputs, grads, records = trial
    weights = torch.ones(records, device=grads.device)
    best = float("inf")
    for _ in range(3):  # the first one warms up
        _wait(grads)
        start = time.perf_counter()
        if way == KEEP:
            kept = rule.per_record(inputs, grads, records)
            squared(kept)
            for value in kept.values():
                weighed(value, weights)
        else:
            rule.squared_norms(inputs, grads, records, way=way)
            rule.weighted(inputs, grads, weights)
        _wait(grads)
        best = min(best, time.perf_counter() - start)
    return best


def _wait(values: Tensor) -> None:
    if values.is_cuda:
        torch.cuda.synchronize(values.device)
