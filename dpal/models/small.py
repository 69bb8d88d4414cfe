"""Small models for images and tables."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import Tensor, nn

from dpal.errors import ParameterError
from dpal.models.spec import ModelSpec

_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


def logistic(spec: ModelSpec) -> nn.Module:
    """Multinomial logistic regression on the flattened record."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(spec.input_shape), spec.classes))


def mlp(spec: ModelSpec) -> nn.Module:
    """Fully connected layers of the widths in `spec.hidden`."""
    widths = [math.prod(spec.input_shape), *spec.hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for wide, narrow in pairwise(widths):
        layers += [nn.Linear(wide, narrow), _ACTIVATIONS[spec.activation]()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], spec.classes))


class TutorialCnn(nn.Module):
    """The convolutional net of the TensorFlow Privacy MNIST tutorial.

    26,010 parameters on 1x28x28 inputs and 10 classes. Takes (n, channels, height,
    width) with sides of at least 16, gives logits (n, classes).

    Source: tensorflow/privacy, tutorials/mnist_dpsgd_tutorial.py (architecture only);
    tanh instead of ReLU as in Papernot et al. (2021), "Tempered sigmoid activations".
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        if len(spec.input_shape) != 3 or min(spec.input_shape[1:]) < 16:
            raise ParameterError(
                f"tutorial_cnn takes images of at least 16x16, the data has records of shape "
                f"{spec.input_shape}; use model.name logistic or mlp"
            )
        channels, height, width = spec.input_shape
        self.first = nn.Conv2d(channels, 16, kernel_size=8, stride=2, padding=3)
        self.second = nn.Conv2d(16, 32, kernel_size=4, stride=2)
        self.pool = nn.MaxPool2d(kernel_size=2, stride=1)
        self.activation = _ACTIVATIONS[spec.activation]()
        flat = 32 * _side_after(height) * _side_after(width)
        self.dense = nn.Linear(flat, 32)
        self.classify = nn.Linear(32, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns logits, shape (n, classes)."""
        low = self.pool(self.activation(self.first(inputs)))
        high = self.pool(self.activation(self.second(low)))
        logits: Tensor = self.classify(self.activation(self.dense(high.flatten(1))))
        return logits


def _side_after(side: int) -> int:
    """Side of the second pooling's output."""
    first = (side + 6 - 8) // 2 + 1 - 1
    return (first - 4) // 2 + 1 - 1
