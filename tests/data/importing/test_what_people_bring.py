"""Tables as people have them: read as they are meant, told of, or refused in one sentence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.importing.column_encoding import CategoryColumn, TableEncoding
from dpal.data.importing.column_roles import roles_of
from dpal.data.importing.import_report import ImportReport
from dpal.data.importing.importers import TRAIN
from dpal.data.importing.parts import drawn_part
from dpal.data.importing.recipe import ImportRecipe, recipe_in
from dpal.data.importing.settings import ImportSettings, PictureRule, Unsure
from dpal.data.importing.source_table import SourceTable
from dpal.data.importing.write_pool import import_source
from dpal.data.sources import Content
from dpal.errors import DataError
from dpal.labels import Task
from dpal.runs.first_settings import look_at

N = 200
SHARE = 0.3


def imported(place: Path, *, like: Path | None = None, **settings: Any) -> ImportReport:
    """What an import tells; the pool lies beside its source, as pool.parquet or new.parquet."""
    to = place.with_name("pool.parquet" if like is None else "new.parquet")
    earlier = None if like is None else recipe_in(like)
    to.unlink(missing_ok=True)
    settings = {"held_out": SHARE, **settings} if like is None else {"whole": True, **settings}
    return import_source(place, to, ImportSettings(**settings), like=earlier)


def people(**columns: Any) -> pd.DataFrame:
    given = {
        "id": [f"p{k}" for k in range(N)],
        "age": [20 + k / 7 for k in range(N)],
        "sex": ["f", "m"] * (N // 2),
        **columns,
    }
    return pd.DataFrame({**given, "label": ["no", "yes", "yes", "no"] * (N // 4)})


def csv(folder: Path, table: pd.DataFrame, **how: Any) -> Path:
    place = folder / "table.csv"
    table.to_csv(place, index=False, **how)
    return place


def lines(place: Path, rows: Iterable[Mapping[Any, Any]]) -> Path:
    place.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return place


def test_lines_that_spell_fields_otherwise_are_refused(tmp_path: Path) -> None:
    rows = people().to_dict("records")
    imported(lines(tmp_path / "t.jsonl", rows))
    otherwise = [{"id": row["id"], "AGE": row["age"], "sex": row["sex"]} for row in rows]
    with pytest.raises(DataError, match="'age'"):
        imported(lines(tmp_path / "n.jsonl", otherwise), like=tmp_path / "pool.parquet")


def test_blanks_around_names_of_fields_are_as_in_other_tables(tmp_path: Path) -> None:
    table = people(group=[f"g{k // 4}" for k in range(N)])
    named = table.rename(
        columns={"label": " label", "group": "group ", "age": " age", "id": " id "}
    )
    found = imported(lines(tmp_path / "t.jsonl", named.to_dict("records")), group="group")
    assert (found.classes, set(found.columns)) == (("no", "yes"), {"age", "sex"})
    pool = pq.read_table(tmp_path / "pool.parquet").to_pandas()
    same = imported(csv(tmp_path, table), group="group")
    assert (same.classes, same.columns, same.rows) == (found.classes, found.columns, found.rows)
    other = pq.read_table(tmp_path / "pool.parquet").to_pandas()
    assert pool.drop(columns="features").equals(other.drop(columns="features"))
    assert np.array_equal(np.stack(pool.features), np.stack(other.features))


def test_fields_that_differ_by_blanks_are_refused(tmp_path: Path) -> None:
    rows = [{**row, " age ": 7} for row in people().to_dict("records")]
    with pytest.raises(DataError) as refused:
        imported(lines(tmp_path / "t.jsonl", rows))
    assert "'age'" in refused.value.for_owner() and "age" not in str(refused.value)


def test_fields_of_an_earlier_import_keep_the_blanks_that_it_kept(tmp_path: Path) -> None:
    rows = people().rename(columns={"age": " age"}).to_dict("records")
    recipe = earlier_recipe(imported(lines(tmp_path / "t.jsonl", rows)), tmp_path)
    import_source(
        tmp_path / "t.jsonl", tmp_path / "new.parquet", ImportSettings(whole=True), like=recipe
    )
    ours, new = (pq.read_table(tmp_path / name).to_pandas().set_index("id")
                 for name in ("pool.parquet", "new.parquet"))  # fmt: skip
    assert all((ours.features[name] == new.features[name]).all() for name in ours.index)


def earlier_recipe(report: ImportReport, folder: Path) -> ImportRecipe:
    """As a version wrote it that took names of fields with their blanks."""
    recipe = recipe_in(folder / "pool.parquet")
    assert set(report.columns) == {"age", "sex"} and recipe is not None and recipe.columns
    columns = (replace(c, name=" age") if c.name == "age" else c for c in recipe.columns.columns)
    return replace(recipe, columns=TableEncoding(tuple(columns)))


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_lines_in_another_encoding_are_told_which_one_is_read(
    tmp_path: Path, encoding: str
) -> None:
    said = [json.dumps({"text": f"caf\xe9 {k}", "label": k % 2}, ensure_ascii=False)
            for k in range(N)]  # fmt: skip
    (tmp_path / "t.jsonl").write_text("\n".join(said), encoding=encoding)
    with pytest.raises(DataError, match=r"t\.jsonl .*UTF-8"):
        imported(tmp_path / "t.jsonl")


def test_lines_that_call_a_field_in_two_ways_are_read_by_the_first(tmp_path: Path) -> None:
    """The same one decides which lines name the fields, and which are held out then."""
    rows = people().drop(columns="id").to_dict("records")
    named = [{**row, "ID": f"p{k}", "id": f"q{k}"} for k, row in enumerate(rows)]
    imported(lines(tmp_path / "t.jsonl", named))
    pool = pq.read_table(tmp_path / "pool.parquet").to_pandas()
    assert set(pool.id) == {f"p{k}" for k in range(N)}
    parts = [{**row, "Split": ["test", "train"][k % 2], "split": "train"}
             for k, row in enumerate(rows)]  # fmt: skip
    assert imported(lines(tmp_path / "t.jsonl", parts), held_out=None).rows["test"] == N // 2


def test_a_field_of_names_that_private_lines_alone_have_is_one(tmp_path: Path) -> None:
    """Else they were drawn by their names first, and by their numbers then."""
    rows = people().drop(columns="id").to_dict("records")
    private = [k for k in range(N) if drawn_part(f"t-{k + 1}", SHARE) == TRAIN
               and drawn_part(f"p{k}", SHARE) == TRAIN]  # fmt: skip
    for k in private[:3]:
        rows[k]["id"] = f"p{k}"
    imported(lines(tmp_path / "t.jsonl", rows))
    pool = pq.read_table(tmp_path / "pool.parquet").to_pandas()
    assert {f"p{k}" for k in private[:3]} <= set(pool.id)


@pytest.mark.parametrize(
    "table", ["age,label", "age,label\n", "age,label\r\n\r\n", '"a\nge",label\n']
)
@pytest.mark.parametrize("earlier", [False, True])
def test_a_table_that_names_columns_alone_has_no_record(
    tmp_path: Path, table: str, earlier: bool
) -> None:
    imported(csv(tmp_path, people()))
    (tmp_path / "empty.csv").write_text(table, encoding="utf-8", newline="")
    with pytest.raises(DataError, match="no record") as refused:
        imported(tmp_path / "empty.csv", like=tmp_path / "pool.parquet" if earlier else None)
    assert "empty.csv" in str(refused.value) and "--" not in str(refused.value)


def test_a_record_behind_many_blank_lines_is_one(tmp_path: Path) -> None:
    place = csv(tmp_path, people())
    head, rows = place.read_text(encoding="utf-8").split("\n", 1)
    place.write_text(head + "\n" * 2**17 + rows, encoding="utf-8")
    assert sum(imported(place).rows.values()) == N


@pytest.mark.parametrize(
    ("named", "settings", "remedies"),
    [
        ("ID", {}, {"--leave-out ID", "--id"}),
        ("id", {"id": "id"}, {"--leave-out id", "--id"}),
        ("visit", {"id": "visit"}, {"--id"}),
        ("image", {"picture": "image"}, {"--id"}),
        ("id", {"whole": True, "held_out": None}, {"--id"}),
    ],
)
def test_names_that_repeat_are_refused_with_what_helps(
    tmp_path: Path, named: str, settings: Mapping[str, Any], remedies: set[str]
) -> None:
    for k in range(2):
        Image.new("L", (4, 4), k).save(tmp_path / f"{k}.png")
    imported(csv(tmp_path, people()))
    shutil.move(tmp_path / "pool.parquet", tmp_path / "like.parquet")
    table = people().drop(columns="id")
    table.insert(0, named, [f"{k % 2}.png" for k in range(N)])
    place = csv(tmp_path, table)
    like = recipe_in(tmp_path / "like.parquet") if settings.get("whole") else None
    with pytest.raises(DataError) as refused:
        import_source(
            place,
            tmp_path / "pool.parquet",
            ImportSettings(**{"held_out": SHARE, **settings}),
            like=like,
        )
    said = str(refused.value)
    assert set(re.findall(r"--[a-z-]+(?: (?i:id)\b)?", said)) == remedies, said
    if "--leave-out" in said:
        found = imported(place, left_out=(named,))
        assert sum(found.rows.values()) == N


def test_a_missing_category_is_told_where_none_was(tmp_path: Path) -> None:
    imported(csv(tmp_path, people()))
    blank = people(sex=["", "m"] * (N // 2))
    found = imported(csv(tmp_path, blank), like=tmp_path / "pool.parquet")
    assert found.imputed == {"sex": N // 2}
    before = CategoryColumn(name="sex", values=("f", "m"))  # as earlier versions wrote it
    assert before.has_missing


@pytest.mark.parametrize("name", ["text", "review", "sentence"])
def test_numbers_are_no_texts_whatever_their_column_is_called(tmp_path: Path, name: str) -> None:
    found = imported(csv(tmp_path, people(**{name: [k % 5 + 1 for k in range(N)]})))
    assert found.content is Content.FEATURES
    assert set(found.columns) == {"age", "sex", name}


def test_held_out_records_alone_say_whether_a_column_is_of_texts(tmp_path: Path) -> None:
    """One private record would otherwise decide what a model is."""
    split = ["test" if k % 3 == 0 else "train" for k in range(N)]
    stars: list[Any] = [k % 5 + 1 for k in range(N)]
    for odd, content in ((1, Content.FEATURES), (0, Content.TEXT)):
        told = [*stars]
        told[odd] = "wonderful"
        place = csv(tmp_path, people(review=told, split=split))
        assert imported(place, held_out=None).content is content


def test_held_out_records_alone_say_whether_a_column_names_pictures(tmp_path: Path) -> None:
    """Also where they come last: a private record, the first one, says nothing."""
    split = ["train" if k < 7 * N // 10 else "test" for k in range(N)]
    for ours, theirs, content in ((".png", ".doc", Content.FEATURES), (".doc", ".png", None)):
        files = [f"{k}{ours if part == 'train' else theirs}" for k, part in enumerate(split)]
        place = csv(tmp_path, people(file=files, split=split))
        if content:
            assert imported(place, held_out=None).content is content
        else:
            with pytest.raises(DataError, match="pictures that are not there"):
                imported(place, held_out=None)


@pytest.mark.parametrize(("name", "kind"), [("image", pa.binary()), ("text", pa.string())])
def test_where_types_say_what_a_column_is_nothing_is_read_for_it(name: str, kind: Any) -> None:
    """A table of embedded pictures may be large, and begin with all that are not held out."""

    def unread() -> Any:
        raise AssertionError("rows were read")

    schema = pa.schema([("id", pa.string()), (name, kind), ("label", pa.int64())])
    table = SourceTable(
        place=Path("t.parquet"), columns=tuple(schema.names), rows=unread, schema=schema
    )
    roles = roles_of(table, ImportSettings(held_out=SHARE), None)
    assert name in (roles.picture, *roles.texts)


def test_lines_may_end_as_on_an_old_mac(tmp_path: Path) -> None:
    place = csv(tmp_path, people())
    place.write_text(place.read_text().replace("\n", "\r"), newline="")
    assert sum(imported(place).rows.values()) == N


@pytest.mark.parametrize("name", ["review", "path", "id"])
def test_what_is_left_out_is_nothing_else_either(tmp_path: Path, name: str) -> None:
    words = [f"seen on ward {k}" for k in range(N)] if name == "review" else ["7"] * N
    found = imported(csv(tmp_path, people(**{name: words})), left_out=(name,))
    assert name not in found.columns
    assert sum(found.rows.values()) == N
    assert found.content is Content.FEATURES
    with pytest.raises(DataError, match="two classes"):
        imported(csv(tmp_path, people(y=words)), left_out=("y", "label"))


def test_one_odd_cell_does_not_decide_what_a_column_is(tmp_path: Path) -> None:
    for odd in ("unknown", "inf"):
        doses = [f"{k / 3:.2f}" for k in range(N)]
        for place in range(0, N, 40):  # some of them held out, whoever is
            doses[place] = odd
        found = imported(csv(tmp_path, people(dose=doses)))
        assert "numbers" in found.columns["dose"]
        assert found.unread == {"dose": N // 40}


def test_no_word_is_the_moment_of_the_import(tmp_path: Path) -> None:
    words = ["now", "today", "2024-01-01", "2023-05-06"] * (N // 4)
    found = imported(csv(tmp_path, people(word=words)))
    assert "categories" in found.columns["word"] and "2026" not in found.columns["word"]


def test_whole_numbers_that_no_float_has_are_read(tmp_path: Path) -> None:
    table = people(account=[2**60 + 3 * k for k in range(N)])
    place = tmp_path / "table.parquet"
    table.to_parquet(place)
    assert "numbers" in imported(place).columns["account"]


def test_lists_without_quotes_are_no_record_without_labels(tmp_path: Path) -> None:
    tags = [json.dumps(["a", "b"]), "[a, b]"] * (N // 2)
    with pytest.raises(DataError, match="of JSON"):
        imported(csv(tmp_path, people().assign(label=tags)), labels=("label",))
    empty = [json.dumps(["a", "b"]), "[]"] * (N // 2)
    found = imported(csv(tmp_path, people().assign(label=empty)), labels=("label",))
    assert found.task is Task.MULTI_LABEL


def test_lists_of_no_numbers_are_refused_without_a_cell(tmp_path: Path) -> None:
    place = tmp_path / "table.parquet"
    pq.write_table(pa.table({"features": [["secret"]] * N, "label": ["a", "b"] * (N // 2)}), place)
    with pytest.raises(DataError, match="lists of type string") as refused:
        imported(place)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ({}, Content.FEATURES),
        ({"texts": ("text",)}, Content.TEXT),
        ({"left_out": ("features",)}, Content.TEXT),
        ({"left_out": ("features", "text")}, None),
        ({"left_out": ("text",)}, Content.FEATURES),
    ],
)
def test_a_column_of_lists_beside_others_is_what_its_owner_says(
    tmp_path: Path, options: dict[str, Any], content: Content | None
) -> None:
    place = tmp_path / "table.parquet"
    people(features=[[1.0, 2.0, 3.0]] * N, text=[f"note {k}" for k in range(N)]).to_parquet(place)
    found = imported(place, **options)
    assert found.content is (content or Content.FEATURES)
    assert set(found.columns) == ({"age", "sex"} if content is None else set())


def test_lists_beside_the_columns_that_a_model_learned_from_are_none_of_its_records(
    tmp_path: Path,
) -> None:
    earlier = imported(csv(tmp_path, people()))
    later: Any = [[float(k)] * earlier.features for k in range(N)]
    people(features=later).to_parquet(tmp_path / "later.parquet")
    found = imported(tmp_path / "later.parquet", like=tmp_path / "pool.parquet")
    assert set(found.columns) == {"age", "sex"}


def test_blanks_around_names_of_columns_are_none_in_parquet_either(tmp_path: Path) -> None:
    place = tmp_path / "table.parquet"
    people().rename(columns={"label": " label", "sex": "sex "}).to_parquet(place)
    assert set(imported(place).columns) == {"age", "sex"}


def test_a_header_may_be_long_and_hold_commas(tmp_path: Path) -> None:
    genes = {f"gene_{k:0150d}": np.arange(N) % (k + 3) for k in range(450)}  # 70 kB
    found = imported(csv(tmp_path, people(**genes)))
    assert found.features > 450
    quoted = people().rename(columns={"age": "age, in years, rounded"})
    found = imported(csv(tmp_path, quoted, sep=";"))
    assert "age, in years, rounded" in found.columns
    place = tmp_path / "table.csv"
    place.write_text("sep=;\n" + place.read_text())
    with pytest.raises(DataError, match="delete it"):
        imported(place)


@pytest.mark.parametrize("before", ["Report of March\n", ""], ids=["a title", "marks at the end"])
def test_rows_that_all_have_other_fields_than_the_header_are_refused_with_the_remedy(
    tmp_path: Path, before: str
) -> None:
    place = csv(tmp_path, people())
    header, *rows = place.read_text().splitlines()
    place.write_text(before + "\n".join([header, *(row + "," * (not before) for row in rows)]))
    with pytest.raises(DataError, match="first line"):
        imported(place, header=True)


def test_pictures_as_windows_saves_them_from_a_browser_are_read(tmp_path: Path) -> None:
    for number in range(40):
        folder = tmp_path / "pictures" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.full((8, 8, 3), 5 * number, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jfif", "jpeg")
    assert sum(imported(tmp_path / "pictures").rows.values()) == 40


def test_a_column_of_one_text_names_nobody(tmp_path: Path) -> None:
    assert imported(csv(tmp_path, people(ward=["north"] * N))).repeated == ()


@pytest.mark.parametrize("size", [None, (4, 4)])
def test_a_picture_beyond_sixteen_bits_is_not_cut_off(
    tmp_path: Path, size: tuple[int, int] | None
) -> None:
    folder = tmp_path / "pictures"
    for number in range(40):
        (folder / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        pixels = np.full((8, 8), 70_000 if number == 7 else 60_000, np.int32)
        Image.fromarray(pixels).save(folder / "ab"[number % 2] / f"{number}.tiff")
    settings = ImportSettings(held_out=SHARE, picture_rule=PictureRule(size=size))
    found = import_source(folder, tmp_path / "p.parquet", settings)
    assert sum(found.rows.values()) == 39
    assert sum(found.dropped.values()) == 1


@pytest.mark.parametrize("head", ['id\tsize 12"\tlabel', 'id\t"size\n""12"""\tlabel'])
def test_a_quote_in_the_middle_of_a_name_is_a_character(tmp_path: Path, head: str) -> None:
    place = tmp_path / "table.tsv"
    rows = [f"p{k}\t{k / 7}\t{k % 2}" for k in range(20 * N)]
    place.write_text("\n".join([head, *rows]) + "\n")
    assert sum(imported(place).rows.values()) == 20 * N


def test_fingerprints_are_numbers(tmp_path: Path) -> None:
    place = tmp_path / "table.parquet"
    bits = [[k % 2 == 0, k % 3 == 0] for k in range(N)]
    pq.write_table(pa.table({"features": bits, "label": ["a", "b"] * (N // 2)}), place)
    assert imported(place).content is Content.FEATURES


def test_who_is_held_out_does_not_depend_on_a_column_that_is_left_out(tmp_path: Path) -> None:
    rows = [{"id": f"p{k % 3}", "a": k / 7, "label": k % 2} for k in range(N)]
    found = imported(lines(tmp_path / "t.jsonl", rows), left_out=("id",))
    assert sum(found.rows.values()) == N and set(found.columns) == {"a"}


def test_a_label_is_not_its_own_record(tmp_path: Path) -> None:
    for role in ({"texts": ("label",)}, {"id": "label"}):
        with pytest.raises(DataError, match="'label'"):
            imported(csv(tmp_path, people()), labels=("label",), **role)


@pytest.mark.parametrize("above", ["", "C:\\scans\\", "\\\\server\\share\\scans\\", ".\\"])
def test_pictures_are_found_as_tables_from_windows_name_them(tmp_path: Path, above: str) -> None:
    rows = ["image,label"]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for k in range(20):
            Image.new("L", (6, 6), k).save(tmp_path / folder / f"{k}.png")
            rows.append(f"{above}{folder}\\{k}.png,{folder}")
    place = tmp_path / "table.csv"
    place.write_text("\r\n".join([*rows, f"{above}..\\a\\0.png,a"]), encoding="utf-8")
    found = imported(place)
    assert sum(found.rows.values()) == 40
    assert list(found.dropped.values()) == [1]


def test_a_blank_text_of_labels_is_what_its_owner_declares(tmp_path: Path) -> None:
    tags = ["p|q", "p", "", "q"] * (N // 4)
    place = csv(tmp_path, people().assign(label=tags))
    unknown = imported(place, labels=("label",), separator="|")
    assert list(unknown.dropped.values()) == [N // 4]
    without = imported(place, labels=("label",), separator="|", blank=Unsure.NO)
    assert sum(without.rows.values()) == N and not without.dropped and not without.unknown
    one_class = imported(csv(tmp_path, people()), labels=("label",), blank=Unsure.NO)
    assert one_class.task is Task.SINGLE_LABEL


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("march.XLSX", "CSV"),
        ("march.json", ".jsonl"),
        ("march.tar.gz", "unpack"),
        ("a.JPG", "folder"),
        ("a.doc", "IDX"),
    ],
)
def test_files_of_other_programs_are_refused_with_what_to_save_instead(
    tmp_path: Path, name: str, remedy: str
) -> None:
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(DataError) as refused:
        imported(tmp_path / name)
    said = str(refused.value)
    assert remedy in said and (name == "a.doc" or len(said) < len(str(tmp_path)) + 120)


def test_names_of_sixteen_bytes_are_no_feature(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(people(), preserve_index=False)
    raw = pa.array([bytes([k % 256]) * 16 for k in range(N)], pa.binary(16))
    visit = pa.ExtensionArray.from_storage(pa.uuid(), raw)
    pq.write_table(table.append_column("visit", visit), tmp_path / "table.parquet")
    found = imported(tmp_path / "table.parquet")
    assert set(found.left_out) == {"visit"} and set(found.columns) == {"age", "sex"}


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("text", pa.string_view(), [f"note {k}" for k in range(N)]),
        ("ward", pa.string_view(), ["a", "b"] * (N // 2)),
        ("bytes", pa.binary_view(), [b"x"] * N),
    ],
)
def test_columns_of_views_are_read_as_others(
    tmp_path: Path, name: str, kind: Any, values: list[Any]
) -> None:
    table = pa.Table.from_pandas(people(), preserve_index=False)
    pq.write_table(table.append_column(name, pa.array(values, kind)), tmp_path / "views.parquet")
    usual = pa.Table.from_pandas(people(**{name: values}), preserve_index=False)
    pq.write_table(usual, tmp_path / "usual.parquet")
    viewed, plain = (imported(tmp_path / f"{form}.parquet") for form in ("views", "usual"))
    assert (viewed.content, set(viewed.columns)) == (plain.content, set(plain.columns))
    assert viewed.rows.keys() == plain.rows.keys()


def test_groups_that_no_record_has_are_refused(tmp_path: Path) -> None:
    """Whoever asked for groups would take for granted that all of a person's records are one."""
    empty = csv(tmp_path, people(patient=["", "NA"] * (N // 2)))
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, x=np.ones((N, 3)), y=np.arange(N) % 2)
    for place in (empty, arrays):
        with pytest.raises(DataError) as refused:
            imported(place, group="patient")
        assert "--group patient" in str(refused.value)
        assert not place.with_name("pool.parquet").exists()
    assert imported(csv(tmp_path, people(patient=["", "a"] * (N // 2))), group="patient").grouped


@pytest.mark.parametrize(
    "options",
    [
        {"labels": ("ill",)},
        {"id": "visit"},
        {"texts": ("report",)},
        {"picture": "scan"},
        {"left_out": ("age",)},
        {"split": "part", "held_out": None},
    ],
)
def test_what_names_columns_is_refused_where_there_are_none(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    for label in ("a", "b"):
        (tmp_path / "p" / label).mkdir(parents=True)
        for k in range(20):
            Image.new("L", (6, 6), k).save(tmp_path / "p" / label / f"{k}.png")
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, x=np.ones((N, 3)), y=np.arange(N) % 2)
    for place in (tmp_path / "p", arrays):
        with pytest.raises(DataError, match="no table"):
            imported(place, **options)
        assert sum(imported(place).rows.values())


def test_endings_in_capitals_are_the_same_endings(tmp_path: Path) -> None:
    """A pool of a table that is imported again would not say who decided on its numbers."""
    imported(csv(tmp_path, people()))
    pool = (tmp_path / "pool.parquet").rename(tmp_path / "OTHER.PARQUET")
    with pytest.raises(DataError, match="is a pool"):
        imported(pool)
    assert look_at(pool).told
    np.save(tmp_path / "lists.npy", np.ones((N, 3)))
    (tmp_path / "lists.npy").rename(tmp_path / "LISTS.NPY")
    with pytest.raises(DataError, match="two classes"):  # it has no labels
        imported(tmp_path / "LISTS.NPY")
