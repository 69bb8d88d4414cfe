"""Reads weights that were published for Haiku, from an archive of plain arrays.

The files themselves were published as pickles, and none is ever loaded here: a pickle runs what
it says, and with the classes of NumPy alone it can already follow an address that it brings.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpal.errors import DataError


def read_haiku(path: Path) -> dict[str, Tensor]:
    """Reads parameters of a Haiku model, in the layout of torch.

    Args:
      path: an .npz archive whose entries are named module/parameter.

    Returns:
      {module/parameter: value}; filters (out, in, height, width), matrices (out, in).

    Raises:
      DataError: the file is missing, or holds anything but arrays.
    """
    if not path.is_file():
        raise DataError(f"{path} is not there: model.weights takes a local file of public weights")
    if not zipfile.is_zipfile(path):
        raise DataError(
            f"{path} is no .npz archive, and if it is a pickle, as the published files of that "
            "name are, it could run code; make an archive of it once, where you trust it: "
            "numpy.savez(NEW, **{f'{m}/{n}': v for m, one in pickle.load(open(FILE, 'rb')).items() "
            "for n, v in one.items()})"
        )
    return {name: _to_torch(name, value, path) for name, value in _arrays(path).items()}


def _arrays(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as problem:  # a damaged archive fails in any way it likes
        raise DataError(
            f"{path} is no archive of arrays ({type(problem).__name__}); get it again"
        ) from problem


def _to_torch(name: str, value: object, path: Path) -> Tensor:
    """Turns the axes of one parameter: Haiku has inputs before outputs, torch after."""
    array = np.asarray(value)
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"{path} holds {name}, which is no array of numbers; get it again")
    turned = array.transpose({4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim))
    return torch.from_numpy(turned.astype(np.float32, order="C"))
