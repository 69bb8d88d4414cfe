"""Sizes of a public text model, by the `config.json` in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpal.errors import DataError
from dpal.models.bert import read_sizes

_BERT = "bert"
_OFFSET = {"mpnet": 2, "roberta": 2, "xlm-roberta": 2}  # positions that begin after the padding


def embedded_width(folder: Path) -> int:
    """How many numbers a model makes of a text.

    Raises:
      DataError: the folder has no model of texts.
    """
    said = _settings(folder)
    name = "dim" if said.get("model_type") == "distilbert" else "hidden_size"
    return _whole(said, name, folder)


def most_tokens(folder: Path) -> int:
    """How many tokens a model takes, with its special ones.

    Raises:
      DataError: the folder has no model of texts.
    """
    said = _settings(folder)
    positions = _whole(said, "max_position_embeddings", folder)
    return positions - _OFFSET.get(str(said.get("model_type")), 0)


def is_bert(folder: Path) -> bool:
    """Whether a folder has a BERT, which dpal builds itself.

    Raises:
      DataError: the folder has no model of texts.
    """
    return bool(_settings(folder).get("model_type", _BERT) == _BERT)


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    said: Any = None
    if path.is_file():
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            said = None
    if not isinstance(said, dict) or said.get("model_type", _BERT) == _BERT:
        return vars(read_sizes(folder))  # which says what is wrong with it
    return said


def _whole(said: dict[str, Any], name: str, folder: Path) -> int:
    value = said.get(name)
    if not isinstance(value, int) or value < 1:
        raise DataError(
            f"{folder / 'config.json'} does not describe a model of texts ({name}); restore the "
            "folder, or use another model"
        )
    return value
