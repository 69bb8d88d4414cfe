"""Which rule serves which layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn

from dpal.errors import ParameterError
from dpal.models.layers import ScalarGain
from dpal.models.parametrized_convolution import FilterConv2d
from dpal.training.per_record.convolution import ConvolutionRule
from dpal.training.per_record.fallback import FunctionalRule
from dpal.training.per_record.layer_rule import (
    Rule,
)
from dpal.training.per_record.linear import EmbeddingRule, LinearRule
from dpal.training.per_record.parametrized_convolution import FilterRule
from dpal.training.per_record.scale_and_shift import ChannelRule, LastAxesRule, ScalarRule

RULES: dict[type[nn.Module], Callable[..., Rule]] = {
    nn.Linear: LinearRule,
    nn.Embedding: EmbeddingRule,
    nn.Conv1d: ConvolutionRule.of,
    nn.Conv2d: ConvolutionRule.of,
    nn.GroupNorm: ChannelRule,
    nn.InstanceNorm1d: ChannelRule,
    nn.InstanceNorm2d: ChannelRule,
    nn.LayerNorm: LastAxesRule,
    nn.RMSNorm: LastAxesRule,
    ScalarGain: ScalarRule,
}


def find_rules(
    model: nn.Module, class_of: Callable[[nn.Module], type] = type
) -> Iterator[tuple[str, Rule]]:
    """Yields a rule for every layer that has parameters to train, with the layer's name.

    Args:
      model: whose layers.
      class_of: the class that a layer was built as, where it has become another one.

    Raises:
      ParameterError: a layer cannot be served, for a reason given.
    """
    for name, layer in find_layers(model):
        # The exact class: a subclass may do anything in its forward.
        maker = RULES.get(class_of(layer))
        if isinstance(layer, FilterConv2d):
            maker = FilterRule
        _refuse_odd_embedding(layer, name)
        yield name, FunctionalRule(layer, name) if maker is None else maker(layer)


def find_layers(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yields the layers that one rule serves each: the outermost with parameters of their own."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return
    own = any(p.requires_grad for p in module.parameters(recurse=False))
    if not own:
        for inner, child in module.named_children():
            yield from find_layers(child, f"{name}.{inner}" if name else inner)
        return
    yield name, module


def _refuse_odd_embedding(module: nn.Module, name: str) -> None:
    if not isinstance(module, nn.Embedding):
        return
    odd = [
        option
        for option, on in (
            ("max_norm", module.max_norm is not None),
            ("scale_grad_by_freq", module.scale_grad_by_freq),
            ("sparse", module.sparse),
        )
        if on
    ]
    if odd:
        raise ParameterError(
            f"layer {name!r} (Embedding) is set to {odd[0]}, which mixes records or changes "
            "weights while it reads them; build it without"
        )
