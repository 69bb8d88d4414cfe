"""Sources of every kind become pools that runs read, and what is left out is told."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.importing.importers import IMPORTERS, Importer, importer_of, register_importer
from dpal.data.importing.parts import drawn_part
from dpal.data.importing.picture_files import MISSING, UNREADABLE
from dpal.data.importing.pool_batches import NO_LABEL
from dpal.data.importing.recipe import recipe_in
from dpal.data.importing.settings import ImportSettings, PictureRule, Unsure
from dpal.data.importing.tables import NO_TEXT
from dpal.data.importing.write_pool import import_source
from dpal.data.inspect_rows import inspect
from dpal.data.labeling_state import load_all
from dpal.data.sources import Content, Role, open_source
from dpal.errors import DataError, ParameterError
from dpal.labels import Task

RNG = np.random.default_rng(1)


def imported(place: Path, tmp_path: Path, *, like=None, **settings):
    target = tmp_path / "pool.parquet"
    report = import_source(place, target, ImportSettings(**settings), like=like)
    return report, target


def held(target: Path, role: Role):
    """What runs read of a file: its inventory, and all of it."""
    source = open_source(target, role, label_column="label")
    return inspect(source), load_all(source)


def picture(path: Path, *, size=(8, 6), mode="L", level=100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = level if mode in ("L", "I;16") else (level, 20, 30)
    Image.new(mode, size, colour).save(path)
    return path


# Tables


CSV = "age,job,seen,note,sex,income\n" + "".join(
    f"{20 + k},{('nurse', 'cook', '')[k % 3]},2020-0{1 + k % 9}-01,text {k},f,"
    f"{('no', 'yes')[k % 2]}\n"
    for k in range(200)
)


def test_a_table_becomes_features_by_held_out_records_alone(tmp_path):
    """Numbers have mean 0 and deviation 1 there; a category that none of them has is `other`."""
    private = next(k for k in range(0, 200, 3) if drawn_part(f"people-{k + 1}", 0.3) == "train")
    rows = CSV.replace(f"{20 + private},nurse", f"{20 + private},spy")  # a job that one record has
    (tmp_path / "people.csv").write_text(rows, encoding="utf-8")
    report, target = imported(tmp_path / "people.csv", tmp_path, held_out=0.3)
    inventory, (features, labels) = held(target, Role.VALIDATION)
    _, (pool, _) = held(target, Role.POOL)
    names = json.loads(pq.read_schema(target).metadata[b"feature_names"])
    assert (report.content, report.task, report.classes) == (
        Content.FEATURES, Task.SINGLE_LABEL, ("no", "yes")
    )  # fmt: skip
    assert report.rows == {"train": len(pool), "test": len(features)}
    assert set(report.left_out) == {"note", "sex"}
    assert names == ["age", "job=cook", "job=nurse", "job=(other)", "job=(missing)", "seen"]
    assert inventory.input_shape == (len(names),)
    for number in (0, 5):
        assert features[:, number].mean().item() == pytest.approx(0, abs=1e-6)
        assert features[:, number].std(unbiased=False).item() == pytest.approx(1, abs=1e-6)
    assert np.allclose(features[:, 1:5].sum(dim=1), 1)
    assert pool[:, 3].sum().item() == 1
    assert set(labels.tolist()) == {0, 1}


def test_a_private_record_changes_only_its_own_row(tmp_path):
    """Adding one with a new category and a huge number moves no other record and no width."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "people.csv").write_text("id," + CSV.replace("\n", "\nr", 1), encoding="utf-8")
    lines = CSV.splitlines()
    with_ids = ["id," + lines[0], *(f"r{k},{line}" for k, line in enumerate(lines[1:]))]
    plain, other = tmp_path / "a" / "people.csv", tmp_path / "b" / "people.csv"
    plain.write_text("\n".join(with_ids) + "\n", encoding="utf-8")
    _, first = imported(plain, tmp_path / "a", held_out=0.3)
    table = pq.read_table(first).to_pandas()
    private = int(table.index[table.split == "train"][0])
    name = table.id[private]
    with_ids[1 + int(name[1:])] = f"{name},1e30,spy,never,x,m,no"
    other.write_text("\n".join(with_ids) + "\n", encoding="utf-8")
    _, second = imported(other, tmp_path / "b", held_out=0.3)
    changed = pq.read_table(second).to_pandas()
    same = [a.tolist() == b.tolist() for a, b in zip(table.features, changed.features, strict=True)]
    assert [k for k, equal in enumerate(same) if not equal] == [private]
    assert (table.split == changed.split).all()
    assert changed.features[private].max() < 10  # the number was brought to the nearest of theirs


def test_a_later_table_is_imported_like_an_earlier_one(tmp_path):
    (tmp_path / "a.csv").write_text(CSV, encoding="utf-8")
    _, target = imported(tmp_path / "a.csv", tmp_path, held_out=0.3)
    (tmp_path / "later").mkdir()
    (tmp_path / "later.csv").write_text(
        "income,job,age,seen\nyes,cook,33,2020-05-01\nno,pilot,,\n", encoding="utf-8"
    )
    report, later = imported(tmp_path / "later.csv", tmp_path / "later", like=recipe_in(target))
    _, (features, labels) = held(later, Role.POOL)
    assert report.rows == {"train": 2}
    assert labels.tolist() == [1, 0]
    assert "split" not in pq.read_schema(later).names
    assert features[:, 1:5].tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert features[1, 0].item() == 0  # a missing number is the mean
    (tmp_path / "less.csv").write_text("income,job\nyes,cook\n", encoding="utf-8")
    with pytest.raises(DataError, match="'age'"):
        imported(tmp_path / "less.csv", tmp_path / "later" / "x", like=recipe_in(target))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_whatever_separates_fields_quoted_or_compressed(tmp_path, delimiter):
    text = CSV.replace("nurse", '"nurse, head"' if delimiter == "," else "nurse").replace(
        ",", delimiter
    )
    if delimiter == ",":
        text = CSV.replace("nurse", '"nurse, head"')
    with gzip.open(tmp_path / "people.csv.gz", "wt", encoding="utf-8") as file:
        file.write(text + "1,2\n")  # too few fields
    report, _ = imported(tmp_path / "people.csv.gz", tmp_path, held_out=0.3)
    assert report.features == 6
    assert sum(report.rows.values()) == 200
    assert list(report.dropped.values()) == [1]


def test_labels_run_from_any_number_and_rows_without_are_left_out(tmp_path):
    rows = [f"{k},{k % 7},{(k % 3) + 1 if k % 10 else ''}" for k in range(300)]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "\n".join(rows), encoding="utf-8")
    report, target = imported(tmp_path / "t.csv", tmp_path, held_out=0.3)
    assert report.classes == ("1", "2", "3")
    assert report.dropped == {NO_LABEL: 30}
    assert set(held(target, Role.POOL)[1][1].tolist()) == {0, 1, 2}
    _, kept = imported(tmp_path / "t.csv", tmp_path / "k", held_out=0.3, keep_unlabeled=True)
    source = open_source(kept, Role.POOL, label_column="label")
    assert not inspect(source).fully_labeled


def test_groups_stay_together(tmp_path):
    rows = [f"{k},{k % 5},p{k // 4},{k % 2}" for k in range(400)]
    (tmp_path / "t.csv").write_text("a,b,patient,y\n" + "\n".join(rows), encoding="utf-8")
    report, target = imported(tmp_path / "t.csv", tmp_path, held_out=0.3, group="patient")
    table = pq.read_table(target).to_pandas()
    assert report.grouped
    assert table.groupby("group").split.nunique().max() == 1
    assert 60 < (table.split == "test").sum() < 180  # a binomial of 100 groups, six deviations
    assert report.features == 2  # who it is about is no feature


def test_a_left_out_column_whose_texts_repeat_may_name_persons(tmp_path):
    """It is told by held-out records alone; a text of each record's own names nobody else's."""
    head = "patient,note,age,split,label\n"
    held_out = [f"p{k * 2 // 3},text {k},{k},test,{'ab'[k % 2]}\n" for k in range(40)]
    private = [f"q{k},same,{k},train,{'ab'[k % 2]}\n" for k in range(40)]
    (tmp_path / "visits.csv").write_text(head + "".join(held_out + private), encoding="utf-8")
    report, target = imported(tmp_path / "visits.csv", tmp_path)
    assert (set(report.left_out), report.repeated) == ({"patient", "note"}, ("patient",))
    target.unlink()
    report, _ = imported(tmp_path / "visits.csv", tmp_path, group="patient")
    assert (report.grouped, report.repeated) == (True, ())


def test_a_split_column_is_obeyed(tmp_path):
    rows = [f"{k},{k % 2},{('train', 'Val', 'test', '?')[k % 4]}" for k in range(80)]
    (tmp_path / "t.csv").write_text("a,y,part\n" + "\n".join(rows), encoding="utf-8")
    with pytest.raises(DataError, match="two classes"):  # those held out are odd and even
        imported(tmp_path / "t.csv", tmp_path, split="part", classes=("0",))
    report, _ = imported(tmp_path / "t.csv", tmp_path, split="part")
    assert report.rows == {"train": 20, "test": 40}
    assert sum(report.dropped.values()) == 20


def test_parquet_with_one_column_a_feature(tmp_path):
    values = RNG.normal(100, 5, 300)
    table = pa.table(
        {
            "size": values,
            "flag": values > 100,
            "kind": pa.array(["a", "b", None] * 100).dictionary_encode(),
            "target": [k % 2 for k in range(300)],
        }
    )
    pq.write_table(table, tmp_path / "wide.parquet")
    report, target = imported(tmp_path / "wide.parquet", tmp_path, held_out=0.3)
    names = json.loads(pq.read_schema(target).metadata[b"feature_names"])
    assert report.classes == ("0", "1")
    assert names[0] == "size"
    assert {"flag=true", "flag=false", "kind=a", "kind=b", "kind=(missing)"} <= set(names)


# Texts


def test_json_lines_of_texts(tmp_path):
    lines = [{"text": f"words {k}", "label": ("neg", "pos")[k % 2]} for k in range(100)]
    lines[3]["text"] = ""
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    report, target = imported(tmp_path / "t.jsonl", tmp_path, held_out=0.3)
    assert (report.content, report.classes) == (Content.TEXT, ("neg", "pos"))
    assert report.dropped == {NO_TEXT: 1}
    assert "text_a" in pq.read_schema(target).names


def test_json_lines_of_pairs_with_several_labels(tmp_path):
    lines = [
        {"premise": "a", "hypothesis": f"b{k}", "labels": ["x", "y"][: k % 3]} for k in range(90)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    report, target = imported(tmp_path / "t.jsonl", tmp_path, held_out=0.4)
    assert (report.task, report.classes) == (Task.MULTI_LABEL, ("x", "y"))
    table = pq.read_table(target).to_pandas()
    assert {tuple(label) for label in table.label} == {(0, 0), (1, 0), (1, 1)}
    assert {"text_a", "text_b"} <= set(table.columns)


# Pictures


def test_folders_of_classes(tmp_path):
    for part in ("train", "val"):
        for number, name in enumerate(("cat", "dog")):
            for k in range(5):
                picture(tmp_path / "pets" / part / name / f"{k}.png", level=10 * k + number)
    (tmp_path / "pets" / "train" / "cat" / "broken.png").write_bytes(b"no picture")
    report, target = imported(tmp_path / "pets", tmp_path)
    assert report.rows == {"train": 10, "test": 10}
    assert report.classes == ("cat", "dog")
    assert report.dropped == {UNREADABLE: 1}
    inventory, (pixels, labels) = held(target, Role.POOL)
    assert inventory.input_shape == (1, 6, 8)
    assert pixels[:5, 0, 0, 0].tolist() == [0, 10, 20, 30, 40]
    assert labels.tolist() == [0] * 5 + [1] * 5


def test_pictures_of_two_sizes_want_one(tmp_path):
    for k in range(10):
        picture(tmp_path / "p" / "ab"[k % 2] / f"{k}.jpg", size=(8 + k, 6), mode="RGB")
    with pytest.raises(DataError, match="--size") as error:
        imported(tmp_path / "p", tmp_path, held_out=0.4)
    assert "8x6" in error.value.for_owner()
    assert "8x6" not in str(error.value)
    assert not (tmp_path / "pool.parquet").exists()
    rule = PictureRule(size=(4, 4), crop=True, grey=True)
    _, target = imported(tmp_path / "p", tmp_path, held_out=0.4, picture_rule=rule)
    assert held(target, Role.POOL)[0].input_shape == (1, 4, 4)


def test_the_middle_is_cut_without_stretching(tmp_path):
    wide = np.zeros((10, 30), np.uint8)
    wide[:, 10:20] = 200
    (tmp_path / "p" / "a").mkdir(parents=True)
    (tmp_path / "p" / "b").mkdir()
    for name in "ab":
        for k in range(8):
            Image.fromarray(wide).save(tmp_path / "p" / name / f"{k}.bmp")
    rule = PictureRule(size=(10, 10), crop=True)
    _, target = imported(tmp_path / "p", tmp_path, held_out=0.4, picture_rule=rule)
    assert (held(target, Role.POOL)[1][0] == 200).all()


def test_sixteen_bits_stay_sixteen_bits(tmp_path):
    for k in range(12):
        pixels = np.full((6, 6), 3000 + 50 * k, np.uint16)
        path = tmp_path / "p" / "ab"[k % 2] / f"{k:02}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    rule = PictureRule(bits=12, size=(3, 3))
    _, target = imported(tmp_path / "p", tmp_path, held_out=0.4, picture_rule=rule)
    found = {
        int(np.asarray(Image.open(io.BytesIO(each)))[0, 0])
        for each in pq.read_table(target)["image"].to_pylist()
    }
    assert found == {16 * (3000 + 50 * k) for k in range(12)}


def chexpert(tmp_path: Path) -> Path:
    from dpal.data.importing.known_tables import CHEXPERT_LABELS

    head = ",".join(("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *CHEXPERT_LABELS))
    answers = ("1.0", "0.0", "-1.0", "")
    rows = []
    for k in range(40):
        path = f"CheXpert-v1.0-small/train/patient{k // 2:05}/study1/view{k % 2}_frontal.png"
        picture(
            tmp_path / "x" / "train" / f"patient{k // 2:05}" / "study1" / f"view{k % 2}_frontal.png"
        )
        said = ",".join(answers[(k + place) % 4] for place in range(14))
        rows.append(f"{path},Male,60,Frontal,AP,{said}")
    table = tmp_path / "x" / "train.csv"
    table.write_text("\n".join([head, *rows]), encoding="utf-8")
    return table


def test_chexpert_has_labels_that_are_not_known(tmp_path):
    table = chexpert(tmp_path)
    report, target = imported(table, tmp_path, held_out=0.4)
    assert (report.task, len(report.classes), report.grouped) == (Task.MULTI_LABEL, 14, True)
    stored = pq.read_table(target).to_pandas()
    first = stored.set_index("id").label[stored.id[0]]
    assert first[:4].tolist() == [1, 0, -1, -1]
    assert report.unknown == 40 * 7
    assert stored.groupby("group").split.nunique().max() == 1
    assert held(target, Role.POOL)[0].fully_labeled
    said = {"uncertain": Unsure.YES, "blank": Unsure.NO}
    _, other = imported(table, tmp_path / "other", held_out=0.4, **said)
    assert pq.read_table(other).to_pandas().label[0][:4].tolist() == [1, 0, 1, 0]


def test_nih_padchest_and_mimic_by_their_columns(tmp_path):
    for k in range(30):
        picture(tmp_path / "nih" / "images_001" / "images" / f"{k:04}.png")
        picture(tmp_path / "pad" / f"{k}.png")
        picture(tmp_path / "mimic" / "files" / f"p10/p10{k:02}/s5{k}" / "one.png", level=k)
    (tmp_path / "nih" / "t.csv").write_text(
        "Image Index,Finding Labels,Follow-up #,Patient ID\n"
        + "\n".join(
            f"{k:04}.png,{('No Finding', 'Mass|Hernia', 'Mass')[k % 3]},0,{k}" for k in range(30)
        ),
        encoding="utf-8",
    )
    report, target = imported(tmp_path / "nih" / "t.csv", tmp_path / "1", held_out=0.4)
    assert report.classes == ("Hernia", "Mass")
    labels = pq.read_table(target).to_pandas().set_index("id").label
    assert [labels[f"{k:04}.png"].tolist() for k in range(3)] == [[0, 0], [1, 1], [0, 1]]
    (tmp_path / "pad" / "t.csv").write_text(
        "ImageID,PatientID,Labels\n"
        + "\n".join(f"{k}.png,{k},\"['{('normal', 'nodule')[k % 2]}']\"" for k in range(31)),
        encoding="utf-8",
    )
    report, target = imported(tmp_path / "pad" / "t.csv", tmp_path / "2", held_out=0.4)
    assert report.classes == ("nodule",)
    assert report.dropped == {MISSING: 1}
    head = chexpert(tmp_path).read_text(encoding="utf-8").splitlines()[0].split(",")[5:]
    (tmp_path / "mimic" / "t.csv").write_text(
        ",".join(["subject_id", "study_id", *head])
        + "".join(f"\n10{k:02},5{k}" + ",1.0,,,0.0" + "," * 10 for k in range(30)),
        encoding="utf-8",
    )
    report, target = imported(tmp_path / "mimic" / "t.csv", tmp_path / "3", held_out=0.4)
    assert sum(report.rows.values()) == 30
    assert pq.read_table(target).to_pandas().label[0][:4].tolist() == [1, -1, -1, 0]


def test_a_table_reads_no_picture_outside_of_its_folder(tmp_path):
    secret = picture(tmp_path / "secret.png")
    rows = [f"{'../secret.png' if k % 2 else secret},{k % 2}" for k in range(10)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.csv").write_text("path,label\n" + "\n".join(rows), encoding="utf-8")
    with pytest.raises(DataError, match="there"):
        imported(tmp_path / "in" / "t.csv", tmp_path, held_out=0.4)


VOC = """<annotation><filename>{name}.jpg</filename>
{objects}<size><width>8</width></size></annotation>"""
OBJECT = "<object><name>{}</name><difficult>{}</difficult><part><name>head</name></part></object>"


def test_pascal_voc_lists_objects(tmp_path):
    said = [[("cat", 0)], [("cat", 0), ("dog", 0)], [("dog", 1)], []] * 5
    for k, objects in enumerate(said):
        picture(tmp_path / "voc" / "JPEGImages" / f"{k:02}.jpg", mode="RGB")
        text = VOC.format(name=k, objects="".join(OBJECT.format(*each) for each in objects))
        path = tmp_path / "voc" / "Annotations" / f"{k:02}.xml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    main = tmp_path / "voc" / "ImageSets" / "Main"
    main.mkdir(parents=True)
    (main / "train.txt").write_text("\n".join(f"{k:02}" for k in range(12)), encoding="utf-8")
    (main / "val.txt").write_text("\n".join(f"{k:02}" for k in range(12, 20)), encoding="utf-8")
    report, target = imported(tmp_path / "voc", tmp_path)
    assert (report.rows, report.classes) == ({"train": 12, "test": 8}, ("cat", "dog"))
    labels = pq.read_table(target).to_pandas().label
    assert [label.tolist() for label in labels[:4]] == [[1, 0], [1, 1], [0, -1], [0, 0]]
    bomb = '<!DOCTYPE a [<!ENTITY x "y">]><annotation>&x;</annotation>'
    (tmp_path / "voc" / "Annotations" / "00.xml").write_text(bomb, encoding="utf-8")
    with pytest.raises(DataError, match="entities"):
        imported(tmp_path / "voc", tmp_path / "b")


def test_hugging_face_pictures_and_names(tmp_path):
    files = [picture(tmp_path / f"{k}.png", level=k).read_bytes() for k in range(20)]
    structs = pa.array([{"bytes": each, "path": None} for each in files],
                       pa.struct([("bytes", pa.binary()), ("path", pa.string())]))  # fmt: skip
    about = {"info": {"features": {"label": {"names": ["ham", "spam"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": structs, "label": [k % 2 for k in range(20)]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
    (tmp_path / "hf" / "data").mkdir(parents=True)
    pq.write_table(table.slice(0, 14), tmp_path / "hf" / "data" / "train-00000-of-00001.parquet")
    pq.write_table(table.slice(14), tmp_path / "hf" / "data" / "test-00000-of-00001.parquet")
    report, target = imported(tmp_path / "hf", tmp_path)
    assert (report.rows, report.classes) == ({"train": 14, "test": 6}, ("ham", "spam"))
    _, (pixels, labels) = held(target, Role.POOL)
    assert pixels[:, 0, 0, 0].tolist() == list(range(14))
    assert labels.tolist() == [k % 2 for k in range(14)]


# Arrays


def test_arrays_of_pictures_by_parts(tmp_path):
    pixels = RNG.integers(0, 256, (30, 6, 5, 3), dtype=np.uint8)
    labels = np.arange(30)[:, None] % 3
    np.savez(tmp_path / "m.npz", train_images=pixels[:20], train_labels=labels[:20],
             val_images=pixels[20:25], val_labels=labels[20:25],
             test_images=pixels[25:], test_labels=labels[25:])  # fmt: skip
    report, target = imported(tmp_path / "m.npz", tmp_path)
    assert report.rows == {"train": 20, "test": 10}
    _, (found, _) = held(target, Role.POOL)
    assert np.array_equal(found.numpy().transpose(0, 2, 3, 1), pixels[:20])


def test_arrays_of_features_and_of_fractions(tmp_path):
    np.savez(tmp_path / "f.npz", X=RNG.normal(size=(40, 7)), y=np.arange(40.0) % 2)
    report, _ = imported(tmp_path / "f.npz", tmp_path / "a", held_out=0.4)
    assert (report.content, report.classes) == (Content.FEATURES, ("0", "1"))
    np.savez(tmp_path / "g.npz", images=RNG.random((40, 5, 5)), labels=np.arange(40) % 2)
    with pytest.raises(DataError, match="--range"):
        imported(tmp_path / "g.npz", tmp_path / "b", held_out=0.4)
    report, target = imported(tmp_path / "g.npz", tmp_path / "b", held_out=0.4, value_range=(0, 1))
    assert held(target, Role.POOL)[0].input_shape == (1, 5, 5)


def test_arrays_of_objects_are_not_run(tmp_path):
    np.savez(tmp_path / "o.npz", images=np.array([object()], dtype=object), labels=np.array([0]))
    with pytest.raises(DataError):
        imported(tmp_path / "o.npz", tmp_path, held_out=0.4)


@pytest.mark.parametrize("hundred", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_cifar_as_published(tmp_path, hundred, binary):
    folder = tmp_path / "cifar"
    folder.mkdir()
    rows = RNG.integers(0, 256, (12, 3072), dtype=np.uint8)
    numbers = [k % 10 for k in range(12)]
    names = {True: ("train", "test"), False: ("data_batch_1", "test_batch")}[hundred]
    for name, part in zip(names, (slice(0, 8), slice(8, 12)), strict=True):
        if binary:
            coarse = [np.zeros(4 if part.start else 8, np.uint8)] if hundred else []
            columns = [*coarse, np.array(numbers[part], np.uint8)]
            content = np.concatenate([np.stack(columns, axis=1), rows[part]], axis=1)
            content.tofile(folder / f"{name}.bin")
        else:
            key = b"fine_labels" if hundred else b"labels"
            (folder / name).write_bytes(pickle.dumps({b"data": rows[part], key: numbers[part]}))
    if hundred:
        classes = [f"c{k}" for k in range(100)]
        (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": classes}))
        (folder / "fine_label_names.txt").write_text("\n".join(classes), encoding="utf-8")
    report, target = imported(folder, tmp_path)
    assert report.rows == {"train": 8, "test": 4}
    assert len(report.classes) == (100 if hundred else 10)
    _, (pixels, labels) = held(target, Role.POOL)
    assert np.array_equal(pixels.numpy().reshape(8, -1), rows[:8])
    assert labels.tolist() == numbers[:8]


def test_a_pickle_that_runs_code_is_not_read(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    folder = tmp_path / "cifar"
    folder.mkdir()
    for name in ("data_batch_1", "test_batch"):
        (folder / name).write_bytes(pickle.dumps({b"data": Evil(), b"labels": [1]}))
    with pytest.raises(DataError):
        imported(folder, tmp_path)
    assert not (tmp_path / "ran").exists()


# Refusals


@pytest.mark.parametrize(
    ("text", "settings", "sentence"),
    [
        (CSV, {}, "--split 0.2"),
        (CSV, {"held_out": 0.3, "labels": ("salary",)}, "'salary'"),
        (CSV.replace("income", "what"), {"held_out": 0.3}, "--label NAME"),
        ("", {"held_out": 0.3}, "empty line"),
        ("a,a\n1,2\n", {"held_out": 0.3}, "two columns"),
        ("id,a,y\n1,2,0\n1,3,1\n", {"held_out": 0.3}, "--id"),
        ("a,y\n\xff1,2\n", {"held_out": 0.3}, "UTF-8"),
        ("a,b,c\n1,0,1\n2,7,0\n", {"held_out": 0.3, "labels": ("b", "c")}, "-1 nor"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do_and_write_nothing(tmp_path, text, settings, sentence):
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=sentence):
        imported(tmp_path / "t.csv", tmp_path, **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_one_registers_an_importer_of_ones_own(tmp_path):
    importer = Importer(
        name="lines", about="files of lines", reads=lambda place: place.suffix == ".lines",
        opens="dpal.data.importing.csv_tables.open_csv",
    )  # fmt: skip
    (tmp_path / "p.lines").write_text(CSV, encoding="utf-8")
    try:
        register_importer(importer)
        assert importer_of(tmp_path / "p.lines") is importer
        assert imported(tmp_path / "p.lines", tmp_path, held_out=0.3)[0].importer == "lines"
        with pytest.raises(ParameterError):
            register_importer(Importer(name="table", about="", reads=bool, opens=""))
    finally:
        IMPORTERS.pop("lines", None)
    with pytest.raises(DataError, match="kind"):
        importer_of(tmp_path / "p.lines")
