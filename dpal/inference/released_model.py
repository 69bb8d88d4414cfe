"""A released model: what it is, how records are read for it, and its network.

Where a model is served, this is all of dpal that lies beside it
(`dpal/runs/bundle_inference_code.py`), so that it imports no more than predictions need.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from dpal.data.importing.recipe import ImportRecipe, recipe_from
from dpal.data.sources import Content, Extractor
from dpal.data.texts import TextEncoding
from dpal.features.extractors import build_extractor, embeds_texts, text_encoding
from dpal.features.spec import ExtractorKind, ExtractorSpec, PictureForm
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec, spec_from

DESCRIPTION = "model_spec.json"  # in the folder of a model that MLflow kept
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class ReleasedModel:
    """A model that predicts.

    Attributes:
      weights: its file.
      spec: its architecture.
      content, texts: what a record is.
      extractor: what makes its features.
      class_names: in class order; numbers where the data named none.
      recipe: how its pool was imported; None where it was not.
      public_model: folder of the public model that texts are read with; None for others.
      temperature: what its logits are divided by, so that probabilities fit; None where no public
        records said one.
    """

    weights: Path
    spec: ModelSpec
    content: Content
    texts: tuple[str, ...]
    extractor: ExtractorSpec
    class_names: tuple[str, ...]
    recipe: ImportRecipe | None
    public_model: Path | None
    temperature: float | None = None

    @property
    def encoding(self) -> TextEncoding | None:
        """What turns texts into what the network, or the public model before it, reads."""
        if embeds_texts(self.extractor):
            return text_encoding(self.extractor)
        if self.public_model is None:
            return None
        return TextEncoding(folder=self.public_model, max_tokens=self.spec.input_shape[-1])

    def build_extractor(self) -> Extractor | None:
        """What makes features of decoded records; None leaves them."""
        return build_extractor(self.extractor, self.content, texts=len(self.texts))

    def build(self) -> nn.Module:
        """The network with its weights."""
        # A text model's sizes lie beside its public weights.
        public = None if self.public_model is None else str(self.public_model)
        network = build_model(replace(self.spec, weights=public))
        network.load_state_dict(load_file(self.weights))
        return network.eval()


def kept_model(folder: Path) -> ReleasedModel:
    """A model in a folder that MLflow kept: its description, and all files beside it."""
    facts = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    backbone = next(iter(folder.glob("backbone*")), None)
    return described_model(facts, folder / WEIGHTS, folder, backbone)


def described_model(
    facts: Mapping[str, Any], weights: Path, public: Path | None, backbone: Path | None
) -> ReleasedModel:
    """A model by its description.

    Args:
      facts: as `describe_model` writes them, and `temperature`.
      weights: its file.
      public: the folder of the public model that training began with.
      backbone: file or folder of the public model that makes features.

    Raises:
      DataError: how its pool was imported is said by another version.
    """
    spec, content = spec_from(facts["spec"]), Content(facts["content"])
    said = facts["extractor"]
    form = said.get("pictures")
    extractor = ExtractorSpec(
        **{
            **said,
            "kind": ExtractorKind(said["kind"]),
            "weights": None if backbone is None else str(backbone),
            "pictures": None if form is None else PictureForm(
                **{**form, "mean": tuple(form["mean"]), "std": tuple(form["std"])}
            ),
        }
    )  # fmt: skip
    recipe = facts.get("recipe")
    return ReleasedModel(
        weights=weights,
        spec=spec,
        content=content,
        texts=tuple(facts["texts"]),
        extractor=extractor,
        class_names=tuple(facts["class_names"]) or tuple(map(str, range(spec.classes))),
        recipe=None if recipe is None else recipe_from(recipe),
        public_model=public if content is Content.TEXT and not embeds_texts(extractor) else None,
        temperature=facts.get("temperature"),
    )
