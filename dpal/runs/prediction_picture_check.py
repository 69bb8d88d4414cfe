"""Pictures that a model is to predict have the form of those that it learned from."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import torch

from dpal.data.importing.picture_files import form_in_words
from dpal.data.pictures import Shape, is_deep, picture_shape
from dpal.data.sources import Extractor
from dpal.errors import DataError
from dpal.inference.released_model import ReleasedModel

_COARSER = 4  # pixels of a side for one place of scattering coefficients


@dataclass(kw_only=True)
class PictureCheck:
    """Looks at pictures before they are decoded, and says of the first misfit what is wanted.

    Attributes:
      model: that reads them.
      extractor: what makes its features.
    """

    model: ReleasedModel
    extractor: Extractor | None
    _fits: dict[Shape, bool] = field(default_factory=dict)
    _seen: Shape | None = None

    def require(self, ids: pa.Array, pictures: pa.Array) -> None:
        """Requires that pictures are of the form that the model reads, and all of one.

        Args:
          ids: (n,) names of the records.
          pictures: (n,) their files; one that cannot be read is left for whoever decodes it.

        Raises:
          DataError: one is of another.
        """
        for name, picture in zip(ids, pictures, strict=True):
            content = picture.as_py()
            shape = None if content is None else picture_shape(content)
            if shape is None:
                continue
            if self._seen not in (None, shape) or not self.reads(shape):
                raise DataError(
                    f"the model reads {self._wanted()}, and {{picture}} is {{form}}; bring it to "
                    "that form, or take it out",
                    picture=str(name.as_py()),
                    form=form_in_words(shape, deep=is_deep(content)),
                )
            self._seen = shape

    def reads(self, shape: Shape) -> bool:
        """Whether pictures of a shape become what the network takes."""
        if shape not in self._fits:
            self._fits[shape] = self._become(shape) == self.model.spec.input_shape
        return self._fits[shape]

    def _become(self, shape: Shape) -> Shape | None:
        """What a black picture becomes; None where the extractor takes no such pictures."""
        if self.extractor is None:
            return shape
        try:
            return tuple(self.extractor(torch.zeros((1, *shape), dtype=torch.uint8)).shape[1:])
        except DataError:
            return None

    def _wanted(self) -> str:
        """The form that the model reads, as far as it is known."""
        if self._seen is not None:
            return form_in_words(self._seen)
        sides = self.model.spec.input_shape[1:]
        if self.extractor is None and len(sides) == 2:
            return form_in_words(self.model.spec.input_shape)
        size = None if self.model.recipe is None else self.model.recipe.picture_rule.size
        if size is None and len(sides) == 2:
            size = (_COARSER * sides[1], _COARSER * sides[0])
        for channels in (1, 3):
            if size is not None and self.reads((channels, size[1], size[0])):
                return form_in_words((channels, size[1], size[0]))
        return "pictures of the form that it learned from"
