"""Frozen public models that other libraries build: what is known of them without importing one.

A library is asked for an architecture and nothing else. Weights, and for transformers the
configuration beside them, are local files that dpal reads itself: safetensors alone, no code out
of a file, and no library is ever handed a name that it could look up elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from dpal.errors import DataError
from dpal.models.architectures import ARCHITECTURES, backbones

if TYPE_CHECKING:
    from torch import nn

    from dpal.features.spec import ExtractorSpec, PictureForm


class BuildsBackbones(Protocol):
    """Reads the models of one library."""

    def picture_form(self, variant: str | None, weights: Path, side: int | None, /) -> PictureForm:
        """What a model of pictures was trained on; `side` is another size that is wanted."""

    def build_backbone(self, spec: ExtractorSpec, /) -> nn.Module:
        """The model with its weights: (n, 3, side, side) to features (n, width), or of texts."""


@dataclass(frozen=True, kw_only=True)
class LibraryBackbone:
    """Models of another library.

    Attributes:
      name: as settings and plans say it.
      read_by: dotted name of the class that reads them, a `BuildsBackbones`.
      packages: that have to be installed, as an index has them.
      extra: of dpal, that brings them.
      reads_texts: whether records are texts.
      has_variants: whether settings say which model, as its weights do not.
    """

    name: str
    read_by: str
    packages: tuple[str, ...]
    extra: str
    reads_texts: bool = False
    has_variants: bool = False

    def reader(self) -> BuildsBackbones:
        """What reads them; it imports the library when it is asked for something."""
        module, _, name = self.read_by.rpartition(".")
        return cast("BuildsBackbones", getattr(import_module(module), name)())

    def library(self, module: str) -> Any:
        """A module of the library, imported now.

        Raises:
          DataError: it is not installed, or cannot be imported.
        """
        try:
            return import_module(module)
        except Exception as error:  # another library's code: anything may be wrong with it
            if isinstance(error, ModuleNotFoundError) and error.name == module:
                raise DataError(
                    f"data.backbone.model {self.name} needs the package {module}; install it: pip "
                    f"install 'dpal[{self.extra}]'"
                ) from error
            raise DataError(
                f"{module} is installed and cannot be imported ({type(error).__name__}); install "
                f"{', '.join(self.packages)} and torch anew from one index, so that they are made "
                "for each other"
            ) from error


# Not spelled out: beside a registered model this package has another name.
_HERE = __name__.rpartition(".")[0]

TIMM = LibraryBackbone(
    name="timm",
    read_by=f"{_HERE}.timm_backbone.TimmModels",
    packages=("timm", "torchvision"),
    extra="timm",
    has_variants=True,
)
TRANSFORMERS_IMAGE = LibraryBackbone(
    name="transformers_image",
    read_by=f"{_HERE}.transformers_backbone.TransformersModels",
    packages=("transformers",),
    extra="transformers",
)
TRANSFORMERS_TEXT = LibraryBackbone(
    name="transformers_text",
    read_by=f"{_HERE}.transformers_backbone.TransformersModels",
    packages=("transformers", "tokenizers"),
    extra="transformers",
    reads_texts=True,
)
LIBRARY_BACKBONES = {
    library.name: library for library in (TIMM, TRANSFORMERS_IMAGE, TRANSFORMERS_TEXT)
}


def all_backbones() -> list[str]:
    """Names that `data.backbone.model` may have: dpal's own architectures, then libraries."""
    return [*backbones(), *LIBRARY_BACKBONES]


def reads_texts(model: str) -> bool:
    """Whether the records of a backbone are texts."""
    known: LibraryBackbone | Any = LIBRARY_BACKBONES.get(model) or ARCHITECTURES[model]
    return bool(known.reads_texts)
