"""A model in one file: linear layers with a shortcut, for vectors."""

from __future__ import annotations

from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.models.architectures import Architecture, register_architecture
from dpal.models.spec import ModelSpec


class Shortcut(nn.Module):
    """Takes (n, width), gives logits (n, classes)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        if len(spec.input_shape) != 1:
            raise ParameterError(f"toy takes vectors, the data has shape {spec.input_shape}")
        self.mix = nn.Linear(spec.input_shape[0], spec.input_shape[0])
        self.classify = nn.Linear(spec.input_shape[0], spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits."""
        logits: Tensor = self.classify(inputs + self.mix(inputs).tanh())
        return logits


TOY = register_architecture(Architecture(name="toy", made_by=Shortcut, drops=False))
