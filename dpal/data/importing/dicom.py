"""DICOM files as pictures: their levels as whole numbers, and whose they are.

Nothing of a file's header goes along but what a person asks for; marks that were burned into the
pixels stay. It needs the extra `dicom`.

Source: DICOM PS3.3, C.7.6.3 (pixels, photometric interpretation) and C.11.1 (rescale).
"""

from __future__ import annotations

import hashlib
import hmac
import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dpal.data.importing.picture_form import encoded, most_pixels, shaped
from dpal.data.importing.settings import PictureRule
from dpal.errors import DataError

DICOM_ENDINGS = (".dcm", ".dicom")
COMPRESSED = "DICOM files compressed in a way that no installed package of pydicom reads"
SEVERAL = "DICOM files of several pictures"

_MARK, _AT = b"DICM", 128
# A few kilobytes of it may become gigabytes, before anything is known of them.
_DEFLATED, _IN_FRONT = b"1.2.840.10008.1.2.1.99", 4096
_GREY = ("MONOCHROME1", "MONOCHROME2")
_MOST, _BYTE = 0xFFFF, 0xFF
_SHALLOW, _LEAST_DEEP = 8, 9  # bits
_PSEUDONYM = 32  # of the 64 digits of a digest

Levels = NDArray[np.uint8] | NDArray[np.uint16]

# What pydicom says of odd headers quotes them.
warnings.filterwarnings("ignore", module=r"pydicom(\..*)?")


class NotRead(Exception):
    """A file is left out; the message says why, as a reason that is counted."""


def is_dicom(content: bytes) -> bool:
    """Whether a file's first bytes say that it is DICOM."""
    return content[_AT : _AT + len(_MARK)] == _MARK


def prepared_dicom(
    content: bytes, rule: PictureRule, value_range: tuple[float, float] | None
) -> bytes | None:
    """The picture in a file, brought to the form that was asked for.

    Args:
      content: the file.
      rule: the form.
      value_range: in the file's units, what becomes black and white of 16 bits; None: levels are
        the values themselves.

    Returns:
      A PNG file; None where the picture cannot be read or is too large.

    Raises:
      NotRead: the file is left out for a reason of its own.
      DataError: values may be below 0, above 65,535 or no whole numbers, and no range says which
        are black and white; or pydicom is not installed.
    """
    try:
        levels, bits = _levels(content, rule, value_range)
    except (NotRead, DataError):
        raise
    except Exception:  # pydicom raises nearly anything for what is damaged
        return None
    return encoded(shaped(Image.fromarray(levels), replace(rule, bits=max(bits, _LEAST_DEEP))))


def _levels(
    content: bytes, rule: PictureRule, value_range: tuple[float, float] | None
) -> tuple[Levels, int]:
    """The picture in a file, with whole numbers as they were measured.

    Stored values are brought to the file's own units by its slope and intercept. MONOCHROME1 is
    inverted, so that large is bright. What a level means follows from the header and from what a
    person declared, never from the pixels.

    Returns:
      (height, width) of uint8 or uint16, or (height, width, 3) of uint8; and how many bits the
      levels have, 8 to 16: white is 2**bits - 1.
    """
    pydicom = _pydicom()
    if _DEFLATED in content[:_IN_FRONT]:
        raise NotRead(COMPRESSED)
    header = pydicom.dcmread(io.BytesIO(content))
    if int(header.get("NumberOfFrames") or 1) > 1:
        raise NotRead(SEVERAL)
    if header.Rows * header.Columns > most_pixels(rule):
        raise ValueError("too large")
    decoder = pydicom.pixels.get_decoder(header.file_meta.TransferSyntaxUID)
    if not decoder.is_available:
        raise NotRead(COMPRESSED)
    try:
        stored, said = decoder.as_array(header, index=0)
    except RuntimeError as error:  # what packages can read is told by trying
        raise NotRead(COMPRESSED) from error
    if header.PhotometricInterpretation in _GREY:
        return _grey(header, stored, rule.bits, value_range)
    return _colours(header, stored, said["photometric_interpretation"]), _SHALLOW


class GroupReader:
    """Whose each file is, by one element of its header: a pseudonym, unless it is asked in clear.

    A pseudonym is the same for all of a person in one import, and another one in every import:
    its key is drawn anew and not kept, so that nobody finds a short patient number by trying all.
    """

    def __init__(self, keyword: str, key: bytes | None) -> None:
        """Prepares for files.

        Args:
          keyword: of the element, such as PatientID.
          key: 32 secret bytes; None leaves what the header says.

        Raises:
          DataError: DICOM knows no such element, or pydicom is not installed.
        """
        tag = _pydicom().datadict.tag_for_keyword(keyword)
        if tag is None:
            raise DataError(
                f"--group {keyword} is no element of DICOM files; name one as DICOM does, such as "
                "PatientID or StudyInstanceUID"
            )
        self._keyword, self._key = keyword, key

    def group_of(self, path: Path) -> str:
        """The group of a file.

        Raises:
          DataError: it says nothing of it; then nobody knows whom to protect together.
        """
        try:
            with path.open("rb") as stream:
                if _DEFLATED in stream.read(_IN_FRONT):
                    raise ValueError("deflated")
                stream.seek(0)
                header = _pydicom().dcmread(
                    stream, stop_before_pixels=True, specific_tags=[self._keyword]
                )
            said = str(header.get(self._keyword) or "").strip()
        except DataError:
            raise
        except Exception:  # pydicom raises nearly anything for what is damaged
            said = ""
        if not said:
            raise DataError(
                f"a DICOM file has no {self._keyword} that can be read, and records of one person "
                "stay together by it; remove the file, name another element with --group, or "
                "protect single records"
            )
        if self._key is None:
            return said
        return hmac.new(self._key, said.encode(), hashlib.sha256).hexdigest()[:_PSEUDONYM]


def _pydicom() -> Any:
    try:
        import pydicom
        import pydicom.datadict
        import pydicom.pixels
    except ImportError as error:
        raise DataError(
            "reading DICOM files needs the package pydicom; install it: pip install 'dpal[dicom]'"
        ) from error
    return pydicom


def _rescale(header: Any) -> tuple[float, float]:
    """Slope and intercept; 1 and 0 where a file has none."""
    slope, intercept = header.get("RescaleSlope"), header.get("RescaleIntercept")
    return (1.0 if slope is None else float(slope), 0.0 if intercept is None else float(intercept))


def _grey(
    header: Any,
    stored: NDArray[Any],
    bits: int | None,
    value_range: tuple[float, float] | None,
) -> tuple[Levels, int]:
    stored_bits = int(header.BitsStored)
    if stored.ndim != 2 or not 1 <= stored_bits <= 16:
        raise ValueError("no grey picture of up to 16 bits")
    least = -(2 ** (stored_bits - 1)) if header.PixelRepresentation else 0
    most = least + 2**stored_bits - 1
    slope, intercept = _rescale(header)
    inverted = header.PhotometricInterpretation == "MONOCHROME1"
    if value_range is not None:
        low, high = value_range
        shares = ((stored * slope + intercept - low) / (high - low)).clip(0, 1)
        shares = 1 - shares if inverted else shares
        return np.rint(_MOST * shares).astype(np.uint16), 16
    ends = sorted(slope * end + intercept for end in (least, most))
    if not (slope.is_integer() and intercept.is_integer() and ends[0] >= 0 and ends[1] <= _MOST):
        raise DataError(
            "a DICOM file may have values from {low} to {high}, and levels are whole numbers from "
            "0 to 65,535; tell dpal import which of its units are black and white, such as --range "
            "-1024:3071, since reading that off would tell of single records",
            low=f"{ends[0]:g}",
            high=f"{ends[1]:g}",
        )
    deep = ends[1] > _BYTE
    has = (bits or int(ends[1]).bit_length()) if deep else _SHALLOW
    white = 2**has - 1 if deep else int(ends[1])
    values = (stored.astype(np.int64) * int(slope) + int(intercept)).clip(0, white)
    values = white - values if inverted else values
    if deep:
        return values.astype(np.uint16), has
    return (values * _BYTE // white).astype(np.uint8), has  # fewer than 8 bits are spread out


def _colours(header: Any, stored: NDArray[Any], kind: str) -> NDArray[np.uint8]:
    """RGB of 8 bits; decoders have brought all to that but palettes."""
    if kind == "PALETTE COLOR":
        stored = _pydicom().pixels.apply_color_lut(stored, header)
        if stored.dtype == np.uint16:
            stored = (stored >> np.uint16(_SHALLOW)).astype(np.uint8)
    if stored.ndim != 3 or stored.shape[2] != 3 or stored.dtype != np.uint8:
        raise ValueError("no picture in colours of 8 bits")
    colours: NDArray[np.uint8] = stored
    return colours
