"""Catches what layers read and the gradients of what they write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dpal.errors import ParameterError


class UnknownCall(ParameterError):
    """A layer was called in a way that its rule does not know."""

    code = "unknown-call"


Receive = Callable[[Tensor], None]


class _Watch(torch.autograd.Function):
    """Passes a layer's output on, and hands over its gradient in the backward pass."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor, receive: Receive) -> Any:
        ctx.receive = receive
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.receive(grads[0])
        # What lies before a layer without inputs to train needs no gradient.
        return (grads[0] if ctx.needs_input_grad[0] else None), None, None


def hook_calls(
    layer: nn.Module,
    name: str,
    anchor: Tensor,
    called: Callable[[Tensor], Callable[[Tensor], None]],
) -> torch.utils.hooks.RemovableHandle:
    """Watches every call of a layer until the handle is removed.

    Args:
      layer: called with one tensor, gives one tensor.
      name: for messages.
      anchor: an empty tensor that requires a gradient, so that there is a backward pass
        although no weight asks for one.
      called: told the input of every call; returns what to do with its output's gradient.

    Raises:
      UnknownCall: later, when the layer is called with other things than one tensor.
    """

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if not torch.is_grad_enabled():
            return output
        if len(args) != 1 or kwargs or not all(isinstance(x, Tensor) for x in (*args, output)):
            raise UnknownCall(f"layer {name!r} ({type(layer).__name__}) is called with more "
                              "than one tensor, or returns more")  # fmt: skip
        return _Watch.apply(output, anchor, called(args[0].detach()))  # type: ignore[no-untyped-call]

    return layer.register_forward_hook(hook, with_kwargs=True)
