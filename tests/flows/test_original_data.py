"""Configurations of the papers' settings: their commands, on small likenesses of the originals."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy.io import savemat

from dpal.data.class_names import class_names_in
from dpal.data.importing.known_tables import CHEXPERT_LABELS
from tests.data.importing.test_published_digits import idx
from tests.flows.calling import call, sentence
from tests.variants import quick_and_slow

PAPERS = Path(__file__).resolve().parent.parent.parent / "flows" / "configs" / "papers"
RNG = np.random.default_rng(9)
FINDINGS = ("rib fracture", "nodule", "laminar atelectasis", "normal", "pleural effusion")


def medmnist(name: str, channels: tuple[int, ...], classes: int) -> None:
    held: dict[str, Any] = {}
    for part, rows in (("train", 60), ("val", 10), ("test", 14)):
        held[f"{part}_images"] = RNG.integers(0, 256, (rows, 64, 64, *channels), dtype=np.uint8)
        held[f"{part}_labels"] = np.arange(rows, dtype=np.uint8).reshape(-1, 1) % classes
    np.savez(name, **held)


def cifar() -> None:
    folder = Path("cifar-10-batches-py")
    folder.mkdir()
    for name, rows in (("data_batch_1", 40), ("data_batch_2", 20), ("test_batch", 24)):
        labels = np.arange(rows, dtype=np.uint8).reshape(-1, 1) % 10
        pixels = RNG.integers(0, 256, (rows, 3072), dtype=np.uint8)
        np.hstack([labels, pixels]).tofile(folder / f"{name}.bin")


def snli() -> None:
    labels = ("entailment", "neutral", "contradiction")
    for part, rows in (("train", 60), ("dev", 24)):
        lines = [
            {"annotator_labels": ["neutral"], "gold_label": labels[k % 3],
             "sentence1": f"A dog {k}.", "sentence2": f"An animal {k}."}
            for k in range(rows)
        ]  # fmt: skip
        lines.append({**lines[0], "gold_label": "-"})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        Path(f"snli_1.0_{part}.jsonl").write_text(text, encoding="utf-8")


def chexpert() -> None:
    root = Path("CheXpert-v1.0-small")
    head = ",".join(("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *CHEXPERT_LABELS))
    answers = ("1.0", "0.0", "-1.0", "")
    for part, rows in (("train", 60), ("valid", 24)):  # pictures of their own: rows + k
        lines = [head]
        for k in range(rows):
            place = f"{part}/patient{k:05}/study1/view1_frontal.jpg"
            (root / place).parent.mkdir(parents=True)
            Image.new("L", (80, 70), k + rows).save(root / place)
            said = ",".join(answers[(k + label) % 4] for label in range(14))
            lines.append(f"CheXpert-v1.0-small/{place},Male,60,Frontal,AP,{said}")
        (root / f"{part}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def mimic() -> None:
    root = Path("mimic-cxr-jpg")
    tables: dict[str, list[str]] = {
        "split": ["dicom_id,study_id,subject_id,split"],
        "metadata": ["dicom_id,subject_id,study_id,ViewPosition,Rows"],
        "chexpert": [",".join(("subject_id", "study_id", *CHEXPERT_LABELS))],
    }
    answers = ("1.0", "0.0", "-1.0", "")
    for k in range(90):
        part = "train" if k < 60 else "test" if k < 75 else "validate"
        subject, study, view = f"1{k:07}", f"5{k:07}", ("PA", "AP", "LL")[k % 3]
        tables["split"].append(f"d{k},{study},{subject},{part}")
        tables["metadata"].append(f"d{k},{subject},{study},{view},70")
        said = ",".join(answers[(k + label) % 4] for label in range(14))
        tables["chexpert"].append(f"{subject},{study},{said}")
        place = root / f"files/p{subject[:2]}/p{subject}/s{study}/d{k}.jpg"
        place.parent.mkdir(parents=True)
        Image.new("L", (80, 70), k).save(place)
    for name, lines in tables.items():
        text = "\n".join(lines) + "\n"
        (root / f"mimic-cxr-2.0.0-{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


def padchest() -> None:
    lines = [",ImageID,ImageDir,StudyDate_DICOM,StudyID,PatientID,Projection,Report,Labels"]
    for k in range(120):
        folder = Path("images") / str(k % 3)
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.full((70, 80), 500 * k, np.uint16)
        Image.fromarray(pixels).save(folder / f"2168_{k}.png")
        said = [FINDINGS[(k + step) % 5] for step in range(1 + k % 2)]
        view = ("PA", "AP", "L")[k // 10 % 3]
        lines.append(f'{k},2168_{k}.png,{k % 3},2010,77,{900 + k},{view},"sin, cambios","{said}"')
    text = "\n".join(lines) + "\n"
    Path("PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv").write_text(text, encoding="utf-8")


def voc() -> None:
    root = Path("VOCdevkit/VOC2012")
    names = [f"2008_{k:06}" for k in range(110)]
    for k, name in enumerate(names):
        objects = "".join(
            f"<object><name>{kind}</name><difficult>{k % 3 // 2}</difficult></object>"
            for kind in (("person", "dog"), ("cat",), ("dog",))[k % 3]
        )
        for folder, ending, content in (
            ("Annotations", "xml", f"<annotation>{objects}</annotation>"),
            ("JPEGImages", "jpg", None),
        ):
            path = root / folder / f"{name}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                Image.new("RGB", (90 + k % 2, 70), (k, 2 * k, 9)).save(path)
            else:
                path.write_text(content, encoding="utf-8")
    main = root / "ImageSets" / "Main"
    main.mkdir(parents=True)
    for part, chosen in (("train", names[:50]), ("val", names[50:100])):  # others of no part
        (main / f"{part}.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")


def qmnist() -> None:
    Path("mnist").mkdir()
    for name, rows in (("mnist/train", 60), ("mnist/t10k", 24), ("qmnist-test", 10_050)):
        pixels = RNG.integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        classes = np.arange(rows, dtype=np.uint8) % 10
        for what, content in (("images-idx3", idx(pixels, 8)), ("labels-idx1", idx(classes, 8))):
            packed = gzip.compress(content, compresslevel=1)
            Path(f"{name}-{what}-ubyte.gz").write_bytes(packed)


def svhn() -> None:
    Path("svhn").mkdir()
    for place, rows in (("svhn/train", 60), ("svhn/test", 24), ("extra", 60)):
        pixels = RNG.integers(0, 256, (32, 32, 3, rows), dtype=np.uint8)
        savemat(f"{place}_32x32.mat", {"X": pixels, "y": 1 + np.arange(rows)[:, None] % 10})


@dataclass(frozen=True)
class Original:
    """A likeness of a published source, and what comes of it.

    Attributes:
      make: writes it into the working folder.
      counts: of each import, what the source has for the pool and held out; "" where nobody knows.
      written: records of each import's file, where they are not all of the source.
      small: settings that let so few records be planned.
      found: of several labels, those that a record of the first import has.
      plans: whether it can be planned without files that are not shipped.
    """

    make: Callable[[], None]
    counts: tuple[str, ...] = ("60,24",)
    written: tuple[int, ...] = ()
    small: tuple[str, ...] = (
        "schedule.initial=20", "schedule.queries=[10]", "schedule.batch_size=10",
        "acquisition=random",
    )  # fmt: skip
    found: tuple[str, ...] = ()
    plans: bool = True


_WEIGHTS = ("model.name=logistic", "model.weights=null")  # such as are not shipped
_IMPROVED = ("choice.labels=10", "choice.each=1", "start.batch_size=20", "choice.components=2")
_VOTED = (
    "data.extractor=none", "data.backbone=null", "teachers.count=3", "voting.queries=4",
    "baselines.run=[non_private]",
)  # fmt: skip
_FOUND = ("atelectasis", "effusion", "fracture", "nodule")
ORIGINALS = {
    "svhn-public": Original(svhn, ("60,24", "60,0"), small=_IMPROVED),
    "qmnist-public": Original(qmnist, ("60,24", "10050,0"), (84, 50), _IMPROVED),
    "bloodmnist": Original(lambda: medmnist("bloodmnist_64.npz", (3,), 8)),
    "octmnist": Original(lambda: medmnist("octmnist_64.npz", (), 4)),
    "cifar10": Original(cifar),
    "snli-pairs": Original(snli, plans=False),  # texts want an encoder
    "chexpert": Original(chexpert, small=(*Original.small, *_WEIGHTS)),
    "votes-chexpert": Original(chexpert, ("60,24", "60,24"), (78, 6), _VOTED),
    "votes-mimic": Original(mimic, ("60,30", "60,30"), (50, 10), _VOTED),
    "votes-padchest": Original(padchest, ("", ""), (72, 8), _VOTED, _FOUND),
    "votes-voc": Original(voc, ("50,50", "50,50"), (50, 50), _VOTED, ("cat", "dog", "person")),
}
SAYS = "import json, sys; print(json.dumps(sys.argv[1:]))"  # what a command was given


def commands(name: str) -> list[list[str]]:
    """The commands of dpal in a file's head, in their order, after all others were run."""
    lines = (PAPERS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line.removeprefix("#   ") for line in lines if line.startswith("#   "))
    say = f"dpal() {{ '{sys.executable}' -c '{SAYS}' \"$@\"; }}\n"
    done = subprocess.run(["bash", "-ec", say + text], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "name",
    quick_and_slow(["octmnist", "snli-pairs", "votes-voc"], ORIGINALS),
)
def test_an_original_is_imported_by_the_commands_of_its_file_and_can_be_planned(
    tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    original = ORIGINALS[name]
    original.make()
    orders = [words for words in commands(name) if words[0] == "import"]
    kept = original.written or [sum(map(int, counts.split(","))) for counts in original.counts]
    assert len(orders) == len(original.counts)
    for words, counts, rows in zip(orders, original.counts, kept, strict=True):
        target = Path(words[words.index("--to") + 1])
        if counts:
            counted = words.index("--expect") + 1
            assert re.fullmatch(r"\d{4,},\d+", words[counted])
            assert "--expect" in sentence(call(*words))  # this is not all of it
            assert not target.exists()
            words[counted] = counts
        done = call(*words)
        assert done.returncode == 0, done.stderr
        assert pq.read_table(target, columns=["id"]).num_rows == rows
    if original.found:
        held = pq.read_table(orders[0][orders[0].index("--to") + 1])
        labels = np.array(held.column("label").to_pylist())
        names = class_names_in(held.schema, "it")
        found = [name for name, row in zip(names, labels.T, strict=True) if 1 in row]
        assert found == list(original.found)
    if not original.plans:
        return
    settings = [word for each in original.small for word in ("--set", each)]
    done = call("plan", str(PAPERS / f"{name}.yaml"), *settings)
    assert done.returncode == 0, done.stderr
