"""Published tables of pictures, known by their columns, so that nobody has to describe them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

CHEXPERT_LABELS = (
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion",
    "Edema", "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion",
    "Pleural Other", "Fracture", "Support Devices",
)  # fmt: skip
MIMIC_PATH = "path"  # the column of a picture's file, where its tables were put together
_PATIENT = re.compile(r"patient\d+")

Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class KnownTable:
    """How to read a published table.

    Attributes:
      name: of the data set.
      columns: names by which it is known; all must be there.
      labels: its columns of labels; one with a separator lists them.
      picture: the column that names a picture.
      folder: in which a row's pictures are, where no column names them.
      group: says who a row is about.
      separator, without: as in `ImportSettings`.
    """

    name: str
    columns: frozenset[str]
    labels: tuple[str, ...]
    group: Callable[[Row], str]
    picture: str | None = None
    folder: Callable[[Row], str] | None = None
    separator: str | None = None
    without: str | None = None


def _patient_in_path(row: Row) -> str:
    found = _PATIENT.search(row["Path"])
    return found.group() if found else row["Path"]


def _whole(text: str) -> str:
    """A number of a patient as a table may have it: 10000032.0 is 10000032."""
    return text.strip().removesuffix(".0")


def _study(row: Row) -> str:
    subject = _whole(row["subject_id"])
    return f"p{subject[:2]}/p{subject}/s{_whole(row['study_id'])}"


KNOWN_TABLES = (
    KnownTable(
        name="CheXpert",
        columns=frozenset({"Path", "Frontal/Lateral", *CHEXPERT_LABELS}),
        labels=CHEXPERT_LABELS,
        picture="Path",
        group=_patient_in_path,
    ),
    KnownTable(
        name="MIMIC-CXR-JPG",
        columns=frozenset({MIMIC_PATH, "dicom_id", "subject_id", "study_id", *CHEXPERT_LABELS}),
        labels=CHEXPERT_LABELS,
        picture=MIMIC_PATH,
        group=lambda row: _whole(row["subject_id"]),
    ),
    KnownTable(
        name="MIMIC-CXR",
        columns=frozenset({"subject_id", "study_id", *CHEXPERT_LABELS}),
        labels=CHEXPERT_LABELS,
        folder=_study,
        group=lambda row: _whole(row["subject_id"]),
    ),
    KnownTable(
        name="NIH ChestX-ray14",
        columns=frozenset({"Image Index", "Finding Labels", "Patient ID"}),
        labels=("Finding Labels",),
        picture="Image Index",
        group=lambda row: _whole(row["Patient ID"]),
        separator="|",
        without="No Finding",
    ),
    KnownTable(
        name="PadChest",
        columns=frozenset({"ImageID", "Labels", "PatientID"}),
        labels=("Labels",),
        picture="ImageID",
        group=lambda row: _whole(row["PatientID"]),
        separator=",",
        without="normal",
    ),
)
