"""What a model's file holds, read from its header: no weights are loaded, nothing is run.

Source:
  The safetensors format, github.com/huggingface/safetensors (README, "Format"): eight bytes with
  the header's length, the header as JSON, then all tensors without a gap.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from dpal.certificate.read_and_seal import read_object
from dpal.errors import CertificateError

_LENGTH_BYTES: Final = 8
_LONGEST_HEADER: Final = 100_000_000  # as the format's own readers allow
_METADATA: Final = "__metadata__"

# Bytes of one number. Floating-point tensors are parameters; others, such as counters, are none.
_FLOATS: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_OTHERS: Final = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1,
                  "BOOL": 1}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A model's file, as far as its header tells.

    Attributes:
      sha256: digest of the whole file.
      shapes: of the tensors of floating-point numbers, by name.
      defect: why it is no model; None for one.
    """

    sha256: str
    shapes: Mapping[str, tuple[int, ...]]
    defect: str | None = None

    @property
    def parameters(self) -> int:
        """How many floating-point numbers it holds."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def read_weights(path: Path) -> Weights:
    """Reads a .safetensors file's header, and digests all of it.

    Raises:
      CertificateError: the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.seek(0, 2)
            stream.seek(0)
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            whole = size >= _LENGTH_BYTES and length <= min(size - _LENGTH_BYTES, _LONGEST_HEADER)
            header = stream.read(length) if whole else b""
    except OSError as error:
        raise CertificateError(
            f"{path} cannot be read ({error.strerror or type(error).__name__})"
        ) from error
    try:
        if not whole:
            raise ValueError(f"its {size:,} bytes do not begin with the length of a header")
        shapes = _shapes(header, size - _LENGTH_BYTES - length)
    except (ValueError, CertificateError) as error:
        return Weights(sha256=sha256, shapes={}, defect=f"no safetensors file: {error}")
    return Weights(sha256=sha256, shapes=shapes)


def shape_mismatch(weights: Weights, spec: Mapping[str, Any] | None) -> str | None:
    """Says why a file cannot hold the planned model, as far as shapes tell; None if it can.

    Args:
      weights: of the file.
      spec: the model in the plan, as JSON; None where the plan names none.
    """
    if weights.defect is not None:
        return weights.defect
    if weights.parameters == 0:
        return "it holds no parameters"
    if spec is None:
        return None
    classes, shapes = int(spec["classes"]), list(weights.shapes.values())
    wanted = _layers(spec)
    if wanted is not None and sorted(wanted) != sorted(shapes):
        return (
            f"its {weights.parameters:,} parameters are not the "
            f"{sum(map(math.prod, wanted)):,} of the planned model ({spec['name']})"
        )
    if not any(shape[:1] == (classes,) for shape in shapes):
        return f"none of its layers gives the {classes} classes of the planned model"
    return None


def _layers(spec: Mapping[str, Any]) -> list[tuple[int, ...]] | None:
    """Shapes of all tensors of the models that are linear layers; None for others."""
    if spec["name"] not in ("logistic", "mlp"):
        return None
    hidden = spec["hidden"] if spec["name"] == "mlp" else []
    widths = [math.prod(spec["input_shape"]), *hidden, spec["classes"]]
    shapes: list[tuple[int, ...]] = []
    for wide, narrow in pairwise(widths):
        shapes += [(narrow, wide), (narrow,)]
    return shapes


def _shapes(header: bytes, size: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the floating-point tensors, all tensors being where the header says.

    Raises:
      ValueError, CertificateError: the header is none, or promises other than what is there.
    """
    tensors = read_object(header.decode("utf-8"), "no header")
    _require_metadata(tensors.pop(_METADATA, {}))
    places: list[tuple[int, int]] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, dict) or set(tensor) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"its header does not describe {name!r}")
        shape, offsets, kind = tensor["shape"], tensor["data_offsets"], tensor["dtype"]
        width = {**_FLOATS, **_OTHERS}.get(kind) if isinstance(kind, str) else None
        if width is None or not _whole_numbers(shape) or not _whole_numbers(offsets, 2):
            raise ValueError(f"its header gives {name!r} no known type, shape or place")
        begin, end = offsets
        if end - begin != width * math.prod(shape):
            raise ValueError(f"{name!r} has another size than its shape {shape}")
        places.append((begin, end))
        if kind in _FLOATS:
            shapes[name] = tuple(shape)
    covered = 0
    for begin, end in sorted(places):
        if begin != covered:
            raise ValueError(f"its tensors overlap or leave a gap at byte {min(covered, begin):,}")
        covered = end
    if covered != size:
        raise ValueError(
            f"its header promises {covered:,} bytes of tensors, and {size:,} are there"
        )
    return shapes


def _require_metadata(metadata: Any) -> None:
    texts = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    if not texts:
        raise ValueError(f"its {_METADATA} is no list of texts")


def _whole_numbers(value: Any, count: int | None = None) -> bool:
    return (
        isinstance(value, list)
        and all(type(number) is int and number >= 0 for number in value)
        and count in (None, len(value))
    )
