"""How the gradients of one layer follow from its inputs and the gradients of its outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.planning.training_recipe import Precision
from dpal.training.per_record.norms_and_sums import PerRecord, SquaredNorms

KEEP = "keep"  # instantiated, kept, and summed as they are
INSTANTIATE = "instantiate"  # a few records at a time, measured and dropped
GHOST = "ghost"  # from Gram matrices of patches and output gradients
PIXEL_GRAM = "pixel_gram"  # the same, from the Gram matrix of pixels


class Rule(ABC):
    """The gradients of one layer. `inputs` and `grads` are (n * copies, ...), float32.

    Views of a record stand side by side, so that their positions are positions of one
    longer record: gradients are sums over both.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.parameters = tuple(
            name for name, p in layer.named_parameters(recurse=False) if p.requires_grad
        )
        self.precision = Precision.FP32  # of the products, set by who owns the rule

    @abstractmethod
    def per_record(self, inputs: Tensor, grads: Tensor, records: int) -> PerRecord:
        """Computes every record's gradient."""

    @abstractmethod
    def weighted(self, inputs: Tensor, grads: Tensor, weights: Tensor) -> PerRecord:
        """Sums the gradients with weights (n,): one tensor of the parameter's shape each."""

    def ways(self, inputs: Tensor, grads: Tensor, records: int) -> tuple[str, ...]:
        """Names of the ways in which `squared_norms` can measure such a call.

        The first is taken where nothing is known about their speed. KEEP means that
        gradients are small enough to be kept until their weights are known.
        """
        return (KEEP,)

    def squared_norms(
        self, inputs: Tensor, grads: Tensor, records: int, *, way: str
    ) -> SquaredNorms:
        """Measures every record's gradient in one of the `ways` other than KEEP.

        Raises:
          ParameterError: this rule has no such way.
        """
        ways = ", ".join(self.ways(inputs, grads, records))
        raise ParameterError(f"{type(self).__name__} knows no way {way!r}, it knows {ways}")
