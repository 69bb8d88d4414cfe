"""What sources write otherwise than one thinks is read as it is meant, told of, or refused."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.importing import picture_files
from dpal.data.importing.ambiguous_cells import COMMAS, DATES
from dpal.data.importing.column_encoding import CategoryColumn, NumberColumn
from dpal.data.importing.picture_files import MISSING, UNREADABLE
from dpal.data.importing.pool_batches import NO_LABEL, OTHER_LABEL
from dpal.data.importing.recipe import recipe_in
from dpal.data.importing.settings import ImportSettings, PictureRule
from dpal.data.importing.tables import LINE_BREAKS
from dpal.data.importing.write_pool import import_source
from dpal.errors import DataError
from dpal.labels import Task

RNG = np.random.default_rng(5)
N = 120


def imported(place: Path, target: Path, *, like: Path | None = None, **settings):
    """The report, and the table that was written, by name."""
    earlier = None if like is None else recipe_in(like)
    report = import_source(place, target, ImportSettings(**settings), like=earlier)
    return report, pq.read_table(target).to_pandas().set_index("id")


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def csv(path: Path, head: str, rows) -> Path:
    return written(path, "\n".join([head, *rows]) + "\n")


def people(**columns) -> pd.DataFrame:
    """Records whose label is told by no column."""
    given = {"id": [f"p{k}" for k in range(N)], "age": [20 + k / 7 for k in range(N)], **columns}
    return pd.DataFrame({**given, "label": ["no", "yes"] * (N // 2)})


# Cells


FLAGS = [0, 1, 1] * (N // 3)
BOOLEANS = [flag == 1 for flag in FLAGS]


@pytest.mark.parametrize(
    ("first", "later", "ending"),
    [
        (FLAGS, [float(flag) for flag in FLAGS], "csv"),
        (FLAGS, [float(flag) for flag in FLAGS], "parquet"),
        (BOOLEANS, BOOLEANS, "parquet"),
        (BOOLEANS, [str(flag).upper() for flag in BOOLEANS], "csv"),
        (BOOLEANS, BOOLEANS, "jsonl"),
    ],
)
def test_one_category_is_one_whatever_writes_it(tmp_path, first, later, ending):
    people(flag=first).to_csv(tmp_path / "a.csv", index=False)
    _, one = imported(tmp_path / "a.csv", tmp_path / "a.parquet", held_out=0.3)
    place, table = tmp_path / f"later.{ending}", people(flag=later)
    if ending == "csv":
        table.to_csv(place, index=False)
    elif ending == "parquet":
        table.to_parquet(place, index=False)
    else:
        table.to_json(place, orient="records", lines=True)
    _, other = imported(place, tmp_path / "b.parquet", like=tmp_path / "a.parquet")
    assert all((one.features[name] == other.features[name]).all() for name in one.index)


def test_labels_that_mix_1_and_1_0_are_of_two_classes_and_codes_stay(tmp_path):
    rows = [f"{k},{['250.00', '250.0', 'V07'][k % 3]},{[k % 2, f'{k % 2}.0'][k % 5 > 2]}"
            for k in range(N)]  # fmt: skip
    place = csv(tmp_path / "a.csv", "age,code,label", rows)
    report, _ = imported(place, tmp_path / "a.parquet", held_out=0.4)
    assert report.classes == ("0", "1")
    names = json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[b"feature_names"])
    assert {"code=250.00", "code=250", "code=V07"} <= set(names)


@pytest.mark.parametrize(
    ("column", "form"),
    [("age", lambda text: f'"{text.replace(".", ",")}"'), ("seen", lambda text: f"on {text}")],
)
def test_cells_that_are_no_numbers_are_counted_and_refused_if_all_are(tmp_path, column, form):
    def row(k: int, change: bool) -> str:
        cells = {"age": f"{20 + k}.5", "seen": f"2020-01-{1 + k % 28:02}"}
        if change:
            cells[column] = form(cells[column])
        return f"p{k},{cells['age']},{cells['seen']},{'ab'[k % 2]}"

    head = "id,age,seen,label"
    first = csv(tmp_path / "a.csv", head, [row(k, False) for k in range(N)])
    report, _ = imported(first, tmp_path / "a.parquet", held_out=0.3)
    assert report.unread == {}
    some = csv(tmp_path / "b.csv", head, [row(k, k % 3 == 0) for k in range(N)])
    report, _ = imported(some, tmp_path / "b.parquet", like=tmp_path / "a.parquet")
    assert report.unread == {column: N // 3}
    every = csv(tmp_path / "c.csv", head, [row(k, True) for k in range(N)])
    with pytest.raises(DataError, match=column):
        imported(every, tmp_path / "c.parquet", like=tmp_path / "a.parquet")
    assert not (tmp_path / "c.parquet").exists()


@pytest.mark.parametrize("huge", ["1.8e308", "1e400", "-1.7976931348623157e308", "9e200"])
@pytest.mark.parametrize("every", [6, 40])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_number_that_nobody_measured_is_a_missing_one(tmp_path, huge, every, ending):
    """Also where many records have it, and one that came later: it moves no other number."""
    table = people(weight=[50 + k / 3 if k % every else float(huge) for k in range(N)])
    place = tmp_path / f"source.{ending}"
    if ending == "csv":
        texts = [str(number) if k % every else huge for k, number in enumerate(table.weight)]
        table.assign(weight=texts).to_csv(place, index=False)
    else:
        table.to_parquet(place, index=False)
    report, pool = imported(place, tmp_path / "a.parquet", held_out=0.5)
    assert set(report.columns) == {"age", "weight"}
    features = np.stack(pool.features)
    assert np.isfinite(features).all()
    assert (features[::every, 1:] == [0, 1]).all()
    assert len(np.unique(features[:, 1])) > N / 3
    usable = ending == "csv" or np.isfinite(float(huge))  # Arrow holds infinities, as no cell
    assert report.unread == ({"weight": N // every} if usable else {})


def test_a_column_of_numbers_that_nobody_measured_is_left_out(tmp_path):
    people(weight=[f"{1 + k % 7}e300" for k in range(N)]).to_csv(tmp_path / "a.csv", index=False)
    report, _ = imported(tmp_path / "a.csv", tmp_path / "a.parquet", held_out=0.5)
    assert set(report.columns) == {"age"} and set(report.left_out) == {"weight"}


def test_dates_far_away_are_where_they_are(tmp_path):
    rows = [f"{['0001-01-01', '2020-02-01', '9999-12-31'][k % 3]},{'ab'[k % 2]}" for k in range(N)]
    place = csv(tmp_path / "a.csv", "seen,label", rows)
    imported(place, tmp_path / "a.parquet", held_out=0.3)
    recipe = recipe_in(tmp_path / "a.parquet")
    assert recipe is not None
    assert recipe is not None and recipe.columns is not None
    column = recipe.columns.columns[0]
    days = np.array(["0001-01-01", "9999-12-31"], "datetime64[D]").astype(int).tolist()
    assert [column.low, column.high] == days  # type: ignore[union-attr]


def test_a_row_is_numbered_as_its_file_numbers_it(tmp_path):
    """A bad line moves no other row's name, wherever it is, and none is lost from the count."""
    head, odd = 'age,"la\nbel",label', (1, 2, 50, N)
    rows = [f"{k},x{k % 3},{'ab'[k % 2]}{',more' if k in odd else ''}" for k in range(1, N + 1)]
    report, table = imported(csv(tmp_path / "a.csv", head, rows), tmp_path / "a.parquet",
                             held_out=0.3)  # fmt: skip
    assert sum(report.dropped.values()) == len(odd)
    assert set(table.index) == {f"a-{k}" for k in range(1, N + 1) if k not in odd}
    assert all(table.label[f"a-{k}"] == k % 2 for k in range(3, 40))
    every = csv(tmp_path / "b.csv", "age,label", ["1,2,3"] * 3)
    with pytest.raises(DataError, match="rows") as error:
        imported(every, tmp_path / "b.parquet", held_out=0.3)
    assert "3" in error.value.for_owner()


@pytest.mark.parametrize("ending", ["csv", "CSV.gz", "jsonl"])
def test_dots_of_a_files_name_are_of_its_rows_names(tmp_path, ending):
    """visits.2025.csv and visits.2026.csv would have rows of the same names."""
    table, place = people().drop(columns="id"), tmp_path / f"visits.2026.{ending}"
    if ending == "jsonl":
        table.to_json(place, orient="records", lines=True)
    else:
        table.to_csv(place, index=False, compression="gzip" if ending == "CSV.gz" else None)
    _, named = imported(place, tmp_path / "x.parquet", held_out=0.3)
    assert set(named.index) == {f"visits.2026-{k}" for k in range(1, N + 1)}


def test_who_imports_like_before_is_asked_for_no_text_that_they_did_not_name(tmp_path):
    before = people().assign(text=[f"word {k} of some" for k in range(N)])
    (place := tmp_path / "a.csv").write_text(before.to_csv(index=False), encoding="utf-8")
    imported(place, tmp_path / "a.parquet", held_out=0.3, texts=("text",))
    place.write_text(before.rename(columns={"text": "words"}).to_csv(index=False), encoding="utf-8")
    with pytest.raises(DataError, match="'text'") as error:
        imported(place, tmp_path / "b.parquet", like=tmp_path / "a.parquet")
    assert "--text names" not in str(error.value)  # nobody gave it


def test_rows_that_a_stray_quote_swallowed_are_told_of(tmp_path):
    rows = [f"p{k},{k},x{k % 3},{'ab'[k % 2]}" for k in range(N)]
    rows[30], rows[90] = 'p30,1,"oops,a', 'p90,1,b" c,a'
    place = csv(tmp_path / "a.csv", "id,age,colour,label", rows)
    report, table = imported(place, tmp_path / "a.parquet", held_out=0.4)
    assert len(table) < N
    assert report.noted == {LINE_BREAKS: 60}
    rows[90] = "p90,1,b,a"  # the quote ends with the file: one odd row
    place = csv(tmp_path / "b.csv", "id,age,colour,label", rows)
    report, _ = imported(place, tmp_path / "b.parquet", held_out=0.4)
    assert (sum(report.dropped.values()), report.noted[LINE_BREAKS]) == (1, 89)


# Labels


def test_none_is_a_category_of_words_and_no_number(tmp_path):
    """Not insured is not the same as not recorded; a number that is none is a missing one."""
    payers = ["public", "private", "none", ""]
    rows = [f"{'none' if k % 5 == 1 else k},{payers[k % 4]},{'ab'[k % 2]}" for k in range(N)]
    place = csv(tmp_path / "a.csv", "age,payer,label", rows)
    report, table = imported(place, tmp_path / "a.parquet", held_out=0.3)
    recipe = recipe_in(tmp_path / "a.parquet")
    assert recipe is not None and recipe.columns is not None
    age, payer = recipe.columns.columns
    assert isinstance(age, NumberColumn) and isinstance(payer, CategoryColumn)
    assert (payer.values, age.marks_missing) == (("none", "private", "public"), True)
    assert report.unread == {}
    features = np.stack(table.features)
    assert features[:, -5:].sum(axis=0)[[0, 3, 4]].tolist() == [N / 4, 0, N / 4]
    assert features[:, 1].sum() == N / 5


def test_numbers_and_dates_in_other_forms_are_told_from_texts(tmp_path):
    rows = [
        f'"{20 + k / 10:.1f}'.replace(".", ",") + f'",{1 + k % 28:02}/0{1 + k % 9}/{1900 + k},'
        f"{1 + k % 28}.1.{1900 + k},note {k},{k},{'ab'[k % 2]}"
        for k in range(N)
    ]
    place = csv(tmp_path / "a.csv", "bmi,seen,born,note,age,label", rows)
    report, _ = imported(place, tmp_path / "a.parquet", held_out=0.3)
    assert report.left_out.pop("note") not in (COMMAS, DATES)
    assert report.left_out == {"bmi": COMMAS, "seen": DATES, "born": DATES}
    own = [f'"{k},5",{"ab"[k % 2]}' for k in range(N)]
    alone = csv(tmp_path / "b.csv", "bmi,label", own)
    with pytest.raises(DataError) as refused:
        imported(alone, tmp_path / "b.parquet", held_out=0.3)
    assert "bmi" in refused.value.for_owner()


@pytest.mark.parametrize("form", ["{:,.2f}", "{:.3E}"])
def test_numbers_as_half_of_europe_writes_them_are_told_from_texts(tmp_path, form):
    swap = str.maketrans(",.", ".,")
    rows = [f"{form.format(17.3 * k).translate(swap)};{k};{'ab'[k % 2]}" for k in range(N)]
    place = csv(tmp_path / "a.csv", "cost;age;label", rows)
    report, _ = imported(place, tmp_path / "a.parquet", held_out=0.3)
    assert report.left_out == {"cost": COMMAS} and not report.repeated


def test_an_import_tells_how_each_column_is_read(tmp_path):
    """By held-out records alone: a code of one private record is not told."""
    rows = [f"0{k},{'ABCDEFGHIJ'[k % 10]}x,2020-01-{1 + k % 28},a" for k in range(N)]
    held_out = [f"{row},test,{'ab'[k % 2]}" for k, row in enumerate(rows)]
    private = [f"99999,Zx,2031-01-01,b,train,{'ab'[k % 2]}" for k in range(N)]
    place = csv(tmp_path / "a.csv", "postcode,icd,seen,same,split,label", held_out + private)
    report, _ = imported(place, tmp_path / "a.parquet")
    assert list(report.columns) == ["postcode", "icd", "seen"]
    told = [set(re.findall(r"[0-9]+(?:-[0-9]+)*|[A-Z]x", said)) for said in report.columns.values()]
    first = {f"{letter}x" for letter in "ABCDEFGH"}
    assert told == [{"0", "119"}, first | {"2"}, {"2020-01-01", "2020-01-28"}]
    later, _ = imported(place, tmp_path / "b.parquet", like=tmp_path / "a.parquet")
    assert later.columns == report.columns


def test_a_model_that_took_none_for_missing_still_does():
    earlier = CategoryColumn(name="payer", values=("private", "public"))
    assert earlier.encode(pa.array(["none", "", "public", "else"])).argmax(axis=1).tolist() == [
        3, 3, 1, 2
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["none", "NA", "-", "None"])
def test_a_declared_class_may_be_called_none(tmp_path, name):
    rows = [f"{name if k % 3 == 1 else k},{k},{[name, 'mild', ''][k % 3]}" for k in range(N)]
    place = csv(tmp_path / "a.csv", "id,age,label", rows)
    report, table = imported(
        place, tmp_path / "a.parquet", held_out=0.3, classes=(name, "mild"), id="age"
    )
    assert report.dropped == {NO_LABEL: N // 3}
    assert sorted(set(table.label)) == [0, 1]


def test_names_and_texts_are_what_they_are(tmp_path):
    lines = [{"id": "NA" if k == 3 else f"{k}.0", "text": ["none", "True", "1.0"][k % 3],
              "label": k % 2} for k in range(N)]  # fmt: skip
    place = written(tmp_path / "a.jsonl", "\ufeff" + "\n".join(map(json.dumps, lines)))
    _, table = imported(place, tmp_path / "a.parquet", held_out=0.3)
    assert {"NA", "5.0"} <= set(table.index)
    assert set(table.text_a) == {"none", "True", "1.0"}


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_names_of_classes_go_with_labels_that_are_numbers(tmp_path, ending):
    labels, place = np.arange(N) % 2, tmp_path / f"a.{ending}"
    if ending == "csv":
        csv(place, "age,label", [f"{k},{label}" for k, label in enumerate(labels)])
    else:
        np.savez(place, x=RNG.normal(size=(N, 2)), y=labels)
    report, table = imported(place, tmp_path / "a.parquet", held_out=0.3, classes=("cat", "dog"))
    assert report.classes == ("cat", "dog")
    assert table.label.value_counts().to_dict() == {0: N // 2, 1: N // 2}
    _, later = imported(place, tmp_path / "b.parquet", like=tmp_path / "a.parquet")
    assert (later.label == table.label[later.index]).all()
    more = csv(tmp_path / "c.csv", "age,label", [f"{k},{1 + k % 2}" for k in range(N)])
    with pytest.raises(DataError, match="2"):
        imported(more, tmp_path / "c.parquet", held_out=0.3, classes=("cat", "dog"))


def test_labels_of_another_kind_than_before_are_refused(tmp_path):
    rows = [f"{k},{'ab'[k % 2]}" for k in range(N)]
    imported(csv(tmp_path / "a.csv", "age,label", rows), tmp_path / "a.parquet", held_out=0.3)
    lists = csv(tmp_path / "b.csv", "age,label", [f"{k},a|b" for k in range(N)])
    unseen = csv(tmp_path / "c.csv", "age,label", [f"{k},c" for k in range(N)])
    for place, settings in ((lists, {"separator": "|"}), (unseen, {})):
        with pytest.raises(DataError):
            imported(place, tmp_path / "l.parquet", like=tmp_path / "a.parquet", **settings)


def test_classes_that_nobody_named_are_counted_once(tmp_path):
    rows = [f"{k},{'abc'[k % 3]}" for k in range(N)]
    place = csv(tmp_path / "a.csv", "x,label", rows)
    report, _ = imported(place, tmp_path / "a.parquet", held_out=0.3, classes=("a", "b"))
    assert report.dropped == {OTHER_LABEL: sum(k % 3 == 2 for k in range(N))}
    with pytest.raises(DataError) as refused:
        imported(place, tmp_path / "b.parquet", held_out=0.3, classes=("A", "B"))
    assert refused.value.for_owner().count(str(N)) == 1


def test_a_label_that_no_held_out_record_has_is_counted(tmp_path):
    rows = [f"{k},{['a', 'b', 'rare', 'a|rare'][k % 4]},{('train', 'test')[k % 4 < 2]}"
            for k in range(N)]  # fmt: skip
    place = csv(tmp_path / "a.csv", "text,label,split", [*rows, "x,a,train"])
    report, table = imported(place, tmp_path / "a.parquet", separator="|")
    assert list(report.noted.values()) == [N // 2]
    assert table.label["a-4"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "task", "classes"),
    [
        (np.eye(3, dtype=int)[np.arange(N) % 2], Task.MULTI_LABEL, ("0", "1", "2")),
        (np.where(np.arange(N)[:, None] % 5 == 1, np.nan, np.eye(2)[np.arange(N) % 2]),
         Task.MULTI_LABEL, ("0", "1")),
        (np.array([b"cat", b"dog"])[np.arange(N) % 2], Task.SINGLE_LABEL, ("cat", "dog")),
        (np.array([1.0, 2.0, np.nan])[np.arange(N) % 3], Task.SINGLE_LABEL, ("1", "2")),
        (np.arange(N) / 10, None, ()),
        (np.array([b"\xff"] * N), None, ()),
        (np.stack([np.arange(N) % 3, np.zeros(N)], axis=1), None, ()),
        (np.full((N, 2), 0.9), None, ()),
        (np.zeros((N, 2, 2)), None, ()),
        (np.zeros(()), None, ()),
        (np.full((N, 2), "a"), None, ()),
        (np.zeros(N - 1), None, ()),
    ],
)  # fmt: skip
def test_labels_of_arrays_are_whole_or_refused(tmp_path, labels, task, classes):
    np.savez(tmp_path / "a.npz", x=RNG.normal(size=(N, 2)), y=labels)
    if task is None:
        with pytest.raises(DataError):
            imported(tmp_path / "a.npz", tmp_path / "a.parquet", held_out=0.4)
        return
    report, _ = imported(tmp_path / "a.npz", tmp_path / "a.parquet", held_out=0.4)
    assert (report.task, report.classes) == (task, classes)


@pytest.mark.parametrize("ending", ["npz", "csv"])
def test_a_share_goes_before_parts_of_the_source(tmp_path, ending):
    if ending == "npz":
        np.savez(tmp_path / "a.npz", x_train=RNG.normal(size=(N, 2)), y_train=np.arange(N) % 2)
    else:
        csv(tmp_path / "a.csv", "age,label,split", [f"{k},{k % 2},train" for k in range(N)])
    place = tmp_path / f"a.{ending}"
    report, _ = imported(place, tmp_path / "a.parquet", held_out=0.4)
    assert min(report.rows.values()) > 10  # binomial, 48 of 120 expected: by chance below 1e-13
    with pytest.raises(DataError, match="--split"):
        imported(place, tmp_path / "b.parquet")


# Arrays and pictures


def drawn(place: Path) -> None:
    """A picture in a file, whatever its name and that of its folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (4, 4), np.uint8)).save(picture, "PNG")
    place.write_bytes(picture.getvalue())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("odd", ["p/a/caf\xe9.png", "p/caf\xe9/1.png", "p/caf\xe9/no.txt"])
def test_a_name_that_is_no_text_is_told_to_its_owner(tmp_path, odd):
    """As one wrote it where names were in another encoding; what is no picture may be called so."""
    for k in range(60):
        drawn(tmp_path / "p" / "ab"[k % 2] / f"{k}.png")
    drawn(tmp_path / "p" / "a" / os.fsdecode(b"\xff.txt"))
    assert imported(tmp_path / "p", tmp_path / "a.parquet", held_out=0.4)[0].rows
    drawn(tmp_path / os.fsdecode(odd.encode("latin-1")))
    with pytest.raises(DataError, match="UTF-8") as refused:
        imported(tmp_path / "p", tmp_path / "b.parquet", held_out=0.4)
    assert r"caf\xe9" in refused.value.for_owner() and "caf" not in str(refused.value)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("ending", ["", ".csv"])
def test_a_source_whose_name_is_no_text_is_refused(tmp_path, ending):
    odd = tmp_path / os.fsdecode(b"caf\xe9" + ending.encode())
    if ending:
        people().to_csv(tmp_path / "a.csv", index=False)
        (tmp_path / "a.csv").rename(odd)
    else:
        drawn(odd / "a" / "1.png")
    with pytest.raises(DataError, match="UTF-8") as refused:
        imported(odd, tmp_path / "b.parquet", held_out=0.4)
    assert r"caf\xe9" in refused.value.for_owner()


PIXELS = RNG.integers(0, 256, (40, 6, 6))


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (PIXELS > 127, np.where(PIXELS > 127, 255, 0)),
        (PIXELS, PIXELS),
        (PIXELS.astype(np.float32) / 255, None),
        (PIXELS.astype(np.int16) * 16, None),
        (PIXELS - 1, None),
        (PIXELS[..., None].repeat(3, axis=3).astype(np.uint16) * 256, None),
        (PIXELS[:, None].repeat(12, axis=1).repeat(2, axis=3), None),  # volumes
        (PIXELS[:, :0], None),
        (PIXELS + 1j, None),
    ],
)
def test_pixels_are_what_they_mean_or_a_range_is_wanted(tmp_path, pixels, expected):
    np.savez(tmp_path / "a.npz", images=pixels, labels=np.arange(40) % 2)
    if expected is None:
        with pytest.raises(DataError):
            imported(tmp_path / "a.npz", tmp_path / "a.parquet", held_out=0.4)
        return
    _, table = imported(tmp_path / "a.npz", tmp_path / "a.parquet", held_out=0.4)
    assert all(
        (np.asarray(Image.open(io.BytesIO(table.image[f"a-{k}"]))) == expected[k]).all()
        for k in range(40)
    )


def test_a_range_is_remembered_for_later_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", images=PIXELS / 255, labels=np.arange(40) % 2)
    _, one = imported(tmp_path / "a.npz", tmp_path / "a.parquet", held_out=0.4, value_range=(0, 1))
    _, other = imported(tmp_path / "a.npz", tmp_path / "b.parquet", like=tmp_path / "a.parquet")
    assert (one.image == other.image[one.index]).all()


@pytest.mark.parametrize(
    "held",
    [
        {"x_train": np.zeros((9, 3)), "x_test": np.zeros((9, 4))},
        {"x_train": np.zeros((9, 3)), "x_test": np.zeros((9, 2, 2), np.uint8)},
        {"x": np.zeros((9, 0))},
    ],
)
def test_shapes_that_do_not_fit_are_refused(tmp_path, held):
    labels = {name.replace("x", "y"): np.arange(9) % 2 for name in held}
    np.savez(tmp_path / "a.npz", **(held | labels))
    with pytest.raises(DataError):
        imported(tmp_path / "a.npz", tmp_path / "a.parquet", held_out=0.4)


def folders(place: Path) -> Path:
    """Two classes of 20 pictures."""
    for k in range(40):
        path = place / ("cat", "dog")[k % 2] / f"{k:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 12), (k, k, k)).save(path)
    return place


def test_folders_that_programs_make_are_no_classes(tmp_path):
    place = folders(tmp_path / "p")
    for name in (".ipynb_checkpoints", "__MACOSX", "cat/.thumbs"):
        (place / name).mkdir()
        Image.new("RGB", (2, 2)).save(place / name / "0.png")
    report, table = imported(place, tmp_path / "a.parquet", held_out=0.4)
    assert (report.classes, len(table)) == (("cat", "dog"), 40)
    (place / "bird").symlink_to(place / "cat")
    with pytest.raises(DataError, match="links"):
        imported(place, tmp_path / "b.parquet", held_out=0.4)


def test_pictures_are_seen_as_people_see_them(tmp_path):
    """Turned as their camera noted, white where they are transparent, unread where of fractions."""
    place = folders(tmp_path / "p")
    pixels = np.zeros((12, 12, 3), np.uint8)
    pixels[:, :6] = 255
    noted = Image.Exif()
    noted[0x0112] = 6  # to be turned by a quarter
    Image.fromarray(pixels).save(place / "cat" / "turned.jpg", exif=noted)
    clear = np.zeros((12, 12, 4), np.uint8)
    clear[..., 0] = 255
    Image.fromarray(clear).save(place / "cat" / "clear.png")
    Image.fromarray(np.zeros((12, 12), np.float32)).save(place / "cat" / "fractions.tif")
    report, table = imported(place, tmp_path / "a.parquet", held_out=0.4)
    assert report.dropped == {UNREADABLE: 1}
    seen = {name: np.asarray(Image.open(io.BytesIO(table.image[f"cat/{name}"])))
            for name in ("turned.jpg", "clear.png")}  # fmt: skip
    assert [round(row) for row in seen["turned.jpg"].mean((1, 2))[[0, -1]]] == [255, 0]
    assert (seen["clear.png"] == 255).all()


def test_a_photo_that_is_made_smaller_may_be_large(tmp_path):
    place = folders(tmp_path / "p")
    Image.new("L", (5000, 3500)).save(place / "cat" / "large.png")
    size = PictureRule(size=(12, 12), grey=True)
    report, _ = imported(place, tmp_path / "a.parquet", held_out=0.4, picture_rule=size)
    assert (report.dropped, sum(report.rows.values())) == ({}, 41)


def test_large_pictures_are_held_a_few_at_a_time(tmp_path, monkeypatch):
    place = folders(tmp_path / "p")
    sizes = [path.stat().st_size for path in place.glob("*/*.png")]
    monkeypatch.setattr(picture_files, "_MOST_HELD", 3 * max(sizes))
    rows: list[int] = []
    settings, target = ImportSettings(held_out=0.4), tmp_path / "a.parquet"
    import_source(place, target, settings, on_rows=rows.append)
    assert sum(rows) == 40
    assert max(rows) <= 3 * max(sizes) / min(sizes) + 1


def test_a_name_that_two_pictures_have_is_nobodys(tmp_path):
    for k in range(20):
        for folder in ("a", "b") if k < 5 else ("a",):
            (tmp_path / "p" / folder).mkdir(parents=True, exist_ok=True)
            Image.new("L", (6, 6), k).save(tmp_path / "p" / folder / f"{k}.png")
    rows = ["", *(f"{k}.png,{k % 2}" for k in range(20))]
    rows[0] = ",1"  # the first one names none, and it is a table of pictures all the same
    place = csv(tmp_path / "p" / "t.csv", "image,label", rows)
    report, _ = imported(place, tmp_path / "a.parquet", held_out=0.4)
    assert report.dropped == {MISSING: 6}


def test_a_column_that_is_called_like_a_label_stays_a_feature(tmp_path):
    people(category=FLAGS).rename(columns={"label": "ill"}).to_csv(tmp_path / "a.csv", index=False)
    _, one = imported(tmp_path / "a.csv", tmp_path / "a.parquet", held_out=0.3, labels=("ill",))
    settings = ImportSettings(whole=True)
    recipe = recipe_in(tmp_path / "a.parquet")
    import_source(tmp_path / "a.csv", tmp_path / "b.parquet", settings, like=recipe)
    other = pq.read_table(tmp_path / "b.parquet").to_pandas().set_index("id")
    assert all((one.features[name] == other.features[name]).all() for name in one.index)


def test_columns_that_become_no_features_are_told_of(tmp_path):
    table = pa.Table.from_pandas(people(index=range(N), weight=[1.0, np.inf, 3.0] * (N // 3)))
    lists = {"listed": pa.array([[1, 2]] * N), "bytes": pa.array([b"\xff"] * N, pa.large_binary())}
    for name, column in lists.items():
        table = table.append_column(name, column)
    pq.write_table(table.replace_schema_metadata(None), tmp_path / "a.parquet")
    report, _ = imported(tmp_path / "a.parquet", tmp_path / "b.parquet", held_out=0.4)
    assert set(report.left_out) == {"index", "listed", "bytes"}
    assert report.features == 5  # an infinite weight is a missing one


@pytest.mark.parametrize("line", [r'{"text": "\ud800", "label": "a"}', "[1]", '{"text": '])
def test_a_line_that_is_no_json_of_texts_is_said(tmp_path, line):
    place = written(tmp_path / "a.jsonl", f'{{"text": "x", "label": "a"}}\n{line}\n')
    with pytest.raises(DataError) as error:
        imported(place, tmp_path / "a.parquet", held_out=0.4)
    assert " 2 " in error.value.for_owner()


# What cannot be learned from is said in a sentence that helps


@pytest.mark.parametrize("wards", [1, 2])
def test_groups_that_are_too_few_to_hold_some_out_are_said(tmp_path, wards):
    place = tmp_path / "a.csv"
    people(ward=[f"w{k % wards}" for k in range(N)]).to_csv(place, index=False)
    with pytest.raises(DataError, match=r"--split 0\.\d+, .* --group"):
        imported(place, tmp_path / "a.parquet", held_out=0.01, group="ward")
    with pytest.raises(DataError, match=r"all records .* --group"):
        imported(place, tmp_path / "a.parquet", held_out=0.99, group="ward")


def test_a_share_that_holds_none_of_few_records_out_is_said(tmp_path):
    place = csv(tmp_path / "a.csv", "age,label", ["1,a", "2,b"])
    with pytest.raises(DataError, match="another share"):
        imported(place, tmp_path / "a.parquet", held_out=1e-6)


def test_a_measured_number_is_no_class(tmp_path):
    prices = np.round(RNG.normal(0, 100, N), 2)
    place = csv(tmp_path / "a.csv", "age,price", [f"{k},{p}" for k, p in enumerate(prices)])
    with pytest.raises(DataError, match="--label") as caught:
        imported(place, tmp_path / "a.parquet", labels=("price",), held_out=0.3)
    assert not any(digit in str(caught.value) for digit in "0123456789")  # for its owner alone
    assert not list(tmp_path.glob("*.parquet"))
    # Many classes that repeat are classes, and so are few that do not.
    rows = [f"{k},kind {k % 30}" for k in range(900)]
    report, _ = imported(
        csv(tmp_path / "b.csv", "age,class", rows), tmp_path / "b.parquet", held_out=0.3
    )
    assert len(report.classes) == 30
    rows = [f"{k},kind {k % 4}" for k in range(40)]
    report, _ = imported(
        csv(tmp_path / "c.csv", "age,class", rows), tmp_path / "c.parquet", held_out=0.15
    )
    assert len(report.classes) >= 2


def test_a_table_of_texts_says_how_one_is_named(tmp_path):
    rows = [f"story {k} of {k * 7},ending {k},{k % 2}" for k in range(N)]
    place = csv(tmp_path / "a.csv", "start,end,label", rows)
    with pytest.raises(DataError, match="--text") as caught:
        imported(place, tmp_path / "a.parquet", held_out=0.3)
    assert "start, end" in caught.value.for_owner()
    report, _ = imported(place, tmp_path / "a.parquet", held_out=0.3, texts=("start", "end"))
    assert report.about == "texts"


def test_the_index_that_pandas_writes_is_no_feature(tmp_path):
    table = people()
    table.index = pd.Index(RNG.permutation(N))
    table.to_parquet(tmp_path / "a.parquet")
    report, _ = imported(tmp_path / "a.parquet", tmp_path / "b.parquet", held_out=0.3)
    assert (report.features, list(report.left_out)) == (1, ["__index_level_0__"])
