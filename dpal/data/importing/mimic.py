"""MIMIC-CXR-JPG as published: a folder of pictures, and three tables that tell of them.

One table says which part a picture is of, one its view, and one what the report of its study finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from dpal.data.importing.importers import OpenedSource
from dpal.data.importing.known_tables import CHEXPERT_LABELS, MIMIC_PATH
from dpal.data.importing.settings import ImportSettings
from dpal.data.importing.source_table import Rows, SourceTable
from dpal.data.importing.table_labels import NOT_KNOWN
from dpal.data.importing.tables import opened_table
from dpal.data.parquet import reading
from dpal.errors import DataError

TABLES = ("split", "metadata", "chexpert")
_ROWS = 4096  # of pictures, handed over at a time
_NAMES = {
    "split": ("dicom_id", "subject_id", "study_id", "split"),
    "metadata": ("dicom_id", "ViewPosition"),
    "chexpert": ("study_id", *CHEXPERT_LABELS),
}


def open_mimic(place: Path, settings: ImportSettings) -> OpenedSource:
    """Looks at a folder with `mimic-cxr-2.0.0-split.csv`, `-metadata.csv` and `-chexpert.csv`.

    A record is a picture, and has the labels of its study; of one whose study has none, they are
    not known. All pictures of a patient are of one part, and are named by the patient as group.

    Raises:
      DataError: a table is there twice, or lacks a column.
    """
    columns = (MIMIC_PATH, *_NAMES["split"], "ViewPosition", *CHEXPERT_LABELS)
    table = SourceTable(place=place, columns=columns, rows=lambda: _rows(place))
    return opened_table(table, settings)


def _rows(place: Path) -> Iterator[Rows]:
    """A row for each picture, in the order of the table of parts."""
    split, metadata, chexpert = (_read(place, name) for name in TABLES)
    views = pc.index_in(split["dicom_id"], value_set=metadata["dicom_id"])
    studies = pc.index_in(split["study_id"], value_set=chexpert["study_id"])
    for start in range(0, split.num_rows, _ROWS):
        part, study = split.slice(start, _ROWS), studies.slice(start, _ROWS)
        view = metadata["ViewPosition"].take(views.slice(start, _ROWS))
        # A blank is a finding that no report mentions; a study without a row has no report.
        found = [chexpert[name].take(study).fill_null(NOT_KNOWN) for name in CHEXPERT_LABELS]
        paths = [
            f"files/p{subject[:2]}/p{subject}/s{study}/{picture}.jpg"
            for picture, subject, study in zip(
                *(part[name].to_pylist() for name in _NAMES["split"][:3]), strict=True
            )
        ]
        columns = [pa.array(paths, pa.string()), *part.columns, view, *found]
        names = [MIMIC_PATH, *part.column_names, "ViewPosition", *CHEXPERT_LABELS]
        yield from map(Rows, pa.table(columns, names).combine_chunks().to_batches())


def _read(place: Path, name: str) -> pa.Table:
    """One of the tables, all texts."""
    files = sorted(place.glob(f"mimic-cxr-*-{name}.csv*"))
    if len(files) != 1:
        raise DataError(
            f"{place} has {len(files)} tables mimic-cxr-*-{name}.csv; leave the one that is meant"
        )
    wanted = _NAMES[name]
    with reading(files[0], "get it anew"):
        return pv.read_csv(
            pa.input_stream(str(files[0]), compression="detect"),
            convert_options=pv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()),
                strings_can_be_null=False,
                include_columns=list(wanted),
            ),
        )
