"""Texts as records: token ids and segments of a fixed length, from a local tokenizer.

The tokenizer and the length are public. Nothing of a text reaches a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from dpal import check
from dpal.data.parquet import RowNumbers, row_error
from dpal.data.pretrained_config import read_model_settings
from dpal.errors import DataError

if TYPE_CHECKING:  # an optional package: pools without texts do without it
    from tokenizers import Tokenizer

TEXT_COLUMNS = ("text_a", "text_b")
# Of a public model's folder, what is needed beside its weights.
MODEL_FILES = ("config.json", "tokenizer.json", "vocab.txt", "tokenizer_config.json")
PADDING = 0  # the id that models take for "no token here"


@dataclass(frozen=True, kw_only=True)
class TextEncoding:
    """How texts become records of one shape.

    Attributes:
      folder: of a public BERT-type model; its `tokenizer.json` or `vocab.txt` is read.
      max_tokens: length of every record, with its special tokens; what is longer is cut.
      padding: the model's own id for no token. Where it is not 0, the two change places in records.
    """

    folder: Path
    max_tokens: int = 128
    padding: int = PADDING

    def __post_init__(self) -> None:
        check.at_least(4, max_tokens=self.max_tokens)

    def encode(self, column: pa.StructArray, *, rows: RowNumbers | None) -> Tensor:
        """Turns texts or pairs of texts into token ids and segments.

        Args:
          column: n values with the field `text_a` and, for pairs, `text_b`.
          rows: which rows they are, for messages; None where that is nobody's business.

        Returns:
          (n, 2, max_tokens) int32: ids, 0 where a record has no more tokens, and segments,
          1 for the tokens of `text_b`. A pair that is too long loses tokens of its longer
          text. Each record depends on its own texts alone.

        Raises:
          DataError: a text is missing, or there is no usable tokenizer.
        """
        texts = texts_in(column, rows=rows)
        tokenizer = _tokenizer(self.folder.resolve(), self.max_tokens, self.padding)
        records = np.zeros((len(column), 2, self.max_tokens), dtype=np.int32)
        # One by one: a batch would start threads that do not survive a fork.
        for record, parts in zip(records, texts, strict=True):
            encoded = tokenizer.encode(parts[0], parts[1] if len(parts) > 1 else None)
            count, ids = len(encoded.ids), np.asarray(encoded.ids, dtype=np.int32)
            record[0, :count] = np.where(ids == PADDING, self.padding, ids)
            segments = encoded.type_ids
            if len(parts) > 1 and not any(segments):  # a model that knows no segments
                begins = [*encoded.sequence_ids, 1].index(1)
                segments = [int(place >= begins) for place in range(count)]
            record[1, :count] = segments
        return torch.from_numpy(records)


def texts_in(column: pa.StructArray, *, rows: RowNumbers | None) -> list[tuple[str, ...]]:
    """The text or pair of texts of every record.

    Raises:
      DataError: one is missing.
    """
    fields = [column.type.field(i).name for i in range(column.type.num_fields)]
    texts = []
    for name, values in zip(fields, column.flatten(), strict=True):
        if values.null_count:
            position = int(pc.index(pc.is_null(values), True).as_py())
            raise row_error(rows, position, f"has no {name}; remove the row or fill it in")
        texts.append(values.to_pylist())
    return list(zip(*texts, strict=True))


@lru_cache(maxsize=4)
def _tokenizer(folder: Path, max_tokens: int, padding: int) -> Tokenizer:
    """Loads a tokenizer that cuts at `max_tokens` and does not pad."""
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise DataError(
            "reading texts needs the package tokenizers; install it: pip install 'dpal[text]'"
        ) from error
    tokenizer = _load(folder)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens, strategy="longest_first")
    found = tokenizer.token_to_id("[PAD]")
    if padding == PADDING and found != PADDING and tokenizer.token_to_id("<pad>") != PADDING:
        raise DataError(
            f"the tokenizer in {folder} pads with id {found}, where BERT-type models pad with "
            f"[PAD] as id {PADDING}; set model.weights to the folder of such a model"
        )
    token_count, held = tokenizer.get_vocab_size(), _read(folder / "config.json").get("vocab_size")
    if isinstance(held, int) and token_count > held:
        raise DataError(
            f"the tokenizer in {folder} knows {token_count} tokens and the model beside it {held}; "
            "use a folder whose tokenizer and weights belong together"
        )
    return tokenizer


def pad_id(folder: Path) -> int:
    """The id that a model in a folder takes for "no token here".

    Raises:
      DataError: its configuration cannot be read.
    """
    found = _read(folder / "config.json").get("pad_token_id", PADDING)
    return found if isinstance(found, int) else PADDING


def _load(folder: Path) -> Tokenizer:
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    whole, vocabulary = folder / "tokenizer.json", folder / "vocab.txt"
    if not (whole.is_file() or vocabulary.is_file()):
        raise DataError(
            f"{folder} has neither tokenizer.json nor vocab.txt; set model.weights to the folder "
            "of a public BERT-type model with its tokenizer"
        )
    try:
        if whole.is_file():
            return Tokenizer.from_file(str(whole))
        # Whether case matters is the authors' choice; to most it does not.
        lowercase = bool(_read(folder / "tokenizer_config.json").get("do_lower_case", True))
        made = BertWordPieceTokenizer(str(vocabulary), lowercase=lowercase)
        return Tokenizer.from_str(made.to_str())
    except DataError:
        raise
    except Exception as error:  # the library raises bare ones
        raise DataError(f"the tokenizer in {folder} cannot be read; restore the folder") from error


def _read(path: Path) -> dict[str, Any]:
    """The settings in a JSON file; none where there is no such file."""
    return read_model_settings(path) if path.is_file() else {}
