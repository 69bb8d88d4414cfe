"""Reads weights that were published for Haiku, without running what a file says."""

from __future__ import annotations

import pickle  # read by an unpickler that knows arrays alone
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpal.errors import DataError

# What a pickle of arrays in mappings consists of. Everything else is refused unread.
_ARRAYS = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
    ("collections", "OrderedDict"),
}
_MAPPINGS = {"FlatMapping", "FlatMap", "frozendict"}  # Haiku's own, over the years


def read_haiku(path: Path) -> dict[str, Tensor]:
    """Reads parameters of a Haiku model, in the layout of torch.

    Args:
      path: an .npz archive whose entries are named module/parameter; or, as the published
        NFNet files are under the same ending, a pickle of {module: {parameter: array}}.

    Returns:
      {module/parameter: value}; filters (out, in, height, width), matrices (out, in).

    Raises:
      DataError: the file is missing, or holds anything but arrays.
    """
    if not path.is_file():
        raise DataError(f"{path} is not there: model.weights takes a local file of public weights")
    arrays = _from_archive(path) if zipfile.is_zipfile(path) else _from_pickle(path)
    return {name: _to_torch(name, value, path) for name, value in arrays.items()}


def _from_archive(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as problem:
        raise DataError(f"{path} is no archive of arrays ({problem}); get it again") from problem


def _from_pickle(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            modules = _ArraysAlone(file).load()
    except DataError:
        raise
    except Exception as problem:  # a damaged pickle fails in any way it likes
        raise DataError(
            f"{path} is neither an .npz archive nor a pickle of arrays ({type(problem).__name__}); "
            "get it again"
        ) from problem
    if not isinstance(modules, Mapping) or not all(
        isinstance(parameters, Mapping) for parameters in modules.values()
    ):
        raise DataError(f"{path} holds no parameters by module; get it again")
    return {
        f"{module}/{name}": value
        for module, parameters in modules.items()
        for name, value in parameters.items()
    }


class _ArraysAlone(pickle.Unpickler):
    """An unpickler that can build arrays and mappings, so that no file runs code."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("haiku.") and name in _MAPPINGS:
            return dict
        if (module, name) not in _ARRAYS:
            raise DataError(
                f"a file of weights asks for {module}.{name}, which could run code; nothing of it "
                "was run, store its arrays with numpy.savez where it comes from"
            )
        return super().find_class(module, name)


def _to_torch(name: str, value: object, path: Path) -> Tensor:
    """Turns the axes of one parameter: Haiku has inputs before outputs, torch after."""
    array = np.asarray(value)
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"{path} holds {name}, which is no array of numbers; get it again")
    turned = array.transpose({4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim))
    return torch.from_numpy(turned.astype(np.float32, order="C"))
