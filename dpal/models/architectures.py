"""The models that settings can name, and what is known of each without importing torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from dpal.errors import ParameterError

if TYPE_CHECKING:
    from torch import nn

    from dpal.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One model. It must treat every record on its own, or training refuses it.

    Attributes:
      name: as settings, plans and certificates say it.
      made_by: makes it of a `ModelSpec`: a class or a function, or its dotted name, which is
        imported when a model is built.
      has_widths: whether settings say the widths of its hidden layers.
      drops: whether `dropout` of the settings does anything.
      reads_texts: whether its records are texts; the tokenizer lies beside its public weights.
      has_own_format: whether it reads public weights in the format of its authors as well.
      is_backbone: whether it makes features of images, once its last layer is taken away; or of
        texts.
    """

    name: str
    made_by: str | Callable[[ModelSpec], nn.Module]
    has_widths: bool = False
    drops: bool = True
    reads_texts: bool = False
    has_own_format: bool = False
    is_backbone: bool = False

    def build(self, spec: ModelSpec) -> nn.Module:
        """A model with whatever weights torch begins with; `build_model` draws repeatable ones.

        Raises:
          ParameterError: it does not take such records.
        """
        if not isinstance(self.made_by, str):
            return self.made_by(spec)
        module, _, name = self.made_by.rpartition(".")
        made: nn.Module = getattr(import_module(module), name)(spec)
        return made


# Not spelled out: beside a registered model this package has another name.
_HERE = __name__.rpartition(".")[0]

_BUILT_IN = (
    Architecture(name="logistic", made_by=f"{_HERE}.small.logistic", drops=False),
    Architecture(name="mlp", made_by=f"{_HERE}.small.mlp", drops=False, has_widths=True),
    Architecture(
        name="tutorial_cnn", made_by=f"{_HERE}.small.TutorialCnn", drops=False, is_backbone=True
    ),
    Architecture(name="resnet9", made_by=f"{_HERE}.resnet9.ResNet9", is_backbone=True),
    Architecture(
        name="equivariant_resnet9", made_by=f"{_HERE}.equivariant.resnet9.EquivariantResNet9"
    ),
    Architecture(
        name="wide_resnet16_4", made_by=f"{_HERE}.wide_resnet.WideResNet16x4", is_backbone=True
    ),
    Architecture(name="resnet50", made_by=f"{_HERE}.resnet50.ResNet50", is_backbone=True),
    Architecture(name="densenet121", made_by=f"{_HERE}.densenet.DenseNet121", is_backbone=True),
    Architecture(
        name="nfnet_f0", made_by=f"{_HERE}.nfnet.NFNet", has_own_format=True, is_backbone=True
    ),
    Architecture(
        name="text_classifier",
        made_by=f"{_HERE}.bert.TextClassifier",
        reads_texts=True,
        is_backbone=True,
    ),
)
ARCHITECTURES = {architecture.name: architecture for architecture in _BUILT_IN}


def register_architecture(architecture: Architecture) -> Architecture:
    """Makes a model one that settings can name.

    Raises:
      ParameterError: another model has its name.
    """
    if ARCHITECTURES.setdefault(architecture.name, architecture) is not architecture:
        raise ParameterError(f"model.name {architecture.name} names another model")
    return architecture


def backbones() -> list[str]:
    """Names of the models that make features; small ones, which hardly anybody publishes, last."""
    models = [model for model in ARCHITECTURES.values() if model.is_backbone]
    return [model.name for model in sorted(models, key=lambda model: not model.drops)]
