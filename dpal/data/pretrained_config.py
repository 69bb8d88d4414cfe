"""Settings that other libraries write beside a model's weights, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpal.errors import DataError


def read_model_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON file.

    Raises:
      DataError: there is no such file, or it holds something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is not there; set model.weights or data.backbone.weights to the local folder "
            "of a public model, as save_pretrained writes it with its image processor or tokenizer"
        ) from error
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise DataError(f"{path} holds no settings in JSON; restore the folder")
    return values
