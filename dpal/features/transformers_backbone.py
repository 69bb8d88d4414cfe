"""Frozen models of transformers, from a local folder in the format of their authors.

The folder has `config.json`, the weights as safetensors, and what records are read with:
`preprocessor_config.json` of pictures, a tokenizer of texts. What may be built of it is a list:
classes that the library has itself, never code that a configuration names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpal.data.pretrained_config import read_model_settings
from dpal.data.texts import pad_id
from dpal.errors import DataError
from dpal.features.library_backbones import TRANSFORMERS_IMAGE
from dpal.features.spec import ExtractorSpec, PictureForm
from dpal.models.weights import read_safetensors

_BICUBIC = 3  # as Pillow numbers it; 2 is bilinear
_ADAPTER = "adapter_config.json"
_INDEX = "model.safetensors.index.json"
# A configuration may name code, or weights that lie elsewhere, under these.
_REFUSED = ("auto_map", "custom_pipelines", "quantization_config", "base_model_name_or_path")


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One type of model.

    Attributes:
      config, model: names of the library's classes.
      pooled: whether features are what the model itself pools; else its first token.
      options: of the class that are not in a configuration.
      called_with: what each call is told, where pictures have another size than in training.
      within: part of the configuration that is about pictures.
      attention: its implementation; those that have none take any.
    """

    config: str
    model: str
    pooled: bool = False
    options: Mapping[str, Any] | None = None
    called_with: Mapping[str, Any] | None = None
    within: str | None = None
    attention: str = "eager"


_UNPOOLED = {"add_pooling_layer": False}  # trained for another task, or not at all
_ANY_SIZE = {"interpolate_pos_encoding": True}
_CLIP = _Kind(
    config="CLIPVisionConfig", model="CLIPVisionModel", pooled=True, called_with=_ANY_SIZE,
    attention="sdpa",
)  # fmt: skip

_PICTURES = {
    "vit": _Kind(
        config="ViTConfig", model="ViTModel", options=_UNPOOLED, called_with=_ANY_SIZE,
        attention="sdpa",
    ),
    "dinov2": _Kind(config="Dinov2Config", model="Dinov2Model", pooled=True, attention="sdpa"),
    "dinov2_with_registers": _Kind(
        config="Dinov2WithRegistersConfig", model="Dinov2WithRegistersModel", pooled=True,
        attention="sdpa",
    ),
    "clip_vision_model": _CLIP,
    "clip": _Kind(**{**vars(_CLIP), "within": "vision_config"}),
    "convnext": _Kind(config="ConvNextConfig", model="ConvNextModel", pooled=True),
    "convnextv2": _Kind(config="ConvNextV2Config", model="ConvNextV2Model", pooled=True),
}  # fmt: skip
_TEXTS = {
    "bert": _Kind(config="BertConfig", model="BertModel", options=_UNPOOLED),
    "distilbert": _Kind(config="DistilBertConfig", model="DistilBertModel"),
    "electra": _Kind(config="ElectraConfig", model="ElectraModel"),
    "mpnet": _Kind(config="MPNetConfig", model="MPNetModel", options=_UNPOOLED),
    "roberta": _Kind(config="RobertaConfig", model="RobertaModel", options=_UNPOOLED),
    "xlm-roberta": _Kind(config="XLMRobertaConfig", model="XLMRobertaModel", options=_UNPOOLED),
}


class PictureEncoder(nn.Module):
    """A model of pictures: (n, 3, side, side) to what it pools of them, (n, width)."""

    def __init__(self, encoder: nn.Module, kind: _Kind) -> None:
        super().__init__()
        self.encoder, self._kind = encoder, kind

    def forward(self, pictures: Tensor) -> Tensor:
        """Features before any classifier."""
        found = self.encoder(pixel_values=pictures, **(self._kind.called_with or {}))
        pooled: Tensor = found.pooler_output if self._kind.pooled else found.last_hidden_state[:, 0]
        return pooled


class TextEncoder(nn.Module):
    """A model of texts: the mean over a text's tokens, or its first one where it was trained so.

    Source: mean pooling: Reimers & Gurevych (2019), "Sentence-BERT".
    """

    def __init__(self, encoder: nn.Module, *, padding: int, first_token: bool) -> None:
        super().__init__()
        self.encoder, self._padding, self._first = encoder, padding, first_token

    def embedded(self, inputs: Tensor) -> Tensor:
        """Takes (n, 2, length) token ids and segments of texts that are equally long."""
        ids = inputs[:, 0].long()
        # Where padding is another id than 0, `TextEncoding` has these two change places.
        ids = torch.where(ids == self._padding, torch.zeros_like(ids), ids)
        found = self.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        embedded: Tensor = found[:, 0] if self._first else found.mean(dim=1)
        return embedded


class TransformersModels:
    """Models in folders that transformers wrote."""

    def picture_form(self, variant: str | None, weights: Path, side: int | None) -> PictureForm:
        """What pictures are brought to, by the `preprocessor_config.json` beside the weights.

        Raises:
          DataError: there is none, or it does not say so.
        """
        del variant  # the folder says which model it is
        _kind(weights, _PICTURES)
        path = weights / "preprocessor_config.json"
        said = read_model_settings(path)
        size = said.get("crop_size") if said.get("do_center_crop") else None
        size = size or said.get("size")
        sides = set(size.values()) if isinstance(size, dict) else {size}
        try:
            own = side or (sides.pop() if len(sides) == 1 else None)
            return PictureForm(
                side=int(own or 0),
                mean=tuple(map(float, said["image_mean"])),
                std=tuple(map(float, said["image_std"])),
                interpolation="bicubic" if said.get("resample", _BICUBIC) != 2 else "bilinear",
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} does not say of which size the pictures are (set data.backbone.side) and "
                "which image_mean and image_std they have; save the model's image processor anew"
            ) from error

    def build_backbone(self, spec: ExtractorSpec) -> nn.Module:
        """A model with its weights from a folder; nothing is left at random.

        Raises:
          DataError: transformers is not installed, or the folder lacks something, asks for code
            of its own, or is of a model that is not in the list.
        """
        folder = Path(spec.weights or "")
        if spec.model == TRANSFORMERS_IMAGE.name:
            kind, settings = _kind(folder, _PICTURES)
            return PictureEncoder(_encoder(folder, kind, settings), kind)
        kind, settings = _kind(folder, _TEXTS)
        first = _reads_first_token(folder)
        return TextEncoder(
            _encoder(folder, kind, settings), padding=pad_id(folder), first_token=first
        )


def _encoder(folder: Path, kind: _Kind, settings: dict[str, Any]) -> nn.Module:
    """A model of the library, put together from a configuration and tensors: it opens no file."""
    library = TRANSFORMERS_IMAGE.library("transformers")
    if kind.within is not None:
        settings = settings.get(kind.within) or {}
    own = {name: value for name, value in settings.items() if not name.startswith("_")}
    weights = _weights(folder)
    try:
        with _silent(library.utils.logging):
            config = getattr(library, kind.config).from_dict(own)
            model, found = getattr(library, kind.model).from_pretrained(
                None,
                config=config,
                state_dict=weights,
                attn_implementation=kind.attention,
                dtype=torch.float32,
                local_files_only=True,
                output_loading_info=True,
                **(kind.options or {}),
            )
    except Exception as error:  # another library's code: anything may be wrong with a folder
        raise DataError(
            f"transformers cannot build the model in {folder} ({type(error).__name__}); restore "
            "the folder, or save the model anew with save_pretrained"
        ) from error
    lacking = [*found["missing_keys"], *(str(each[0]) for each in found["mismatched_keys"])]
    if lacking:
        raise DataError(
            f"the weights in {folder} are not those of its config.json: {sorted(lacking)[0]} is "
            "missing or of another shape; restore the folder"
        )
    if not all(bool(value.isfinite().all()) for value in model.state_dict().values()):
        raise DataError(f"the weights in {folder} hold values that are not finite; restore them")
    encoder: nn.Module = model
    return encoder


@contextmanager
def _silent(logging: Any) -> Iterator[None]:
    """Keeps the library from telling of tensors that a frozen model has no use for."""
    level, shows = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shows:
            logging.enable_progress_bar()


def _kind(folder: Path, known: Mapping[str, _Kind]) -> tuple[_Kind, dict[str, Any]]:
    """Which model a folder is of, and its configuration.

    Raises:
      DataError: it is of none in the list, or asks for code or for files elsewhere.
    """
    path = folder / "config.json"
    settings = read_model_settings(path)
    asked = [name for name in _REFUSED if settings.get(name)]
    asked += [_ADAPTER] if (folder / _ADAPTER).exists() else []
    if asked:
        raise DataError(
            f"{folder} asks for more than its own weights ({asked[0]}): code of its own, quantised "
            "weights or an adapter are not read; save a plain model with save_pretrained"
        )
    kind = known.get(str(settings.get("model_type")))
    if kind is None:
        raise DataError(
            f"{path} is of type {settings.get('model_type')!r}, and what is read here is "
            f"{', '.join(known)}; use such a model, or another data.backbone.model"
        )
    return kind, settings


def _weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, out of safetensors alone.

    Raises:
      DataError: there are none.
    """
    whole, index = folder / "model.safetensors", folder / _INDEX
    if whole.is_file() or not index.is_file():
        return read_safetensors(whole)
    names = sorted(
        {Path(str(name)).name for name in read_model_settings(index).get("weight_map", {}).values()}
    )
    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors |= read_safetensors(folder / name)
    return tensors


def _reads_first_token(folder: Path) -> bool:
    """Whether a sentence encoder was trained on its first token; without a word it is the mean."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return False
    said = read_model_settings(path)
    first = bool(said.get("pooling_mode_cls_token"))
    if not first and not said.get("pooling_mode_mean_tokens"):
        raise DataError(
            f"{path} pools in another way than by the mean over tokens or by the first one; use "
            "another sentence encoder"
        )
    return first
