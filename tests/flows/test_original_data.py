"""Configurations of the papers' settings: their commands, on small likenesses of the originals."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy.io import savemat

from tests.flows.calling import call, sentence

PAPERS = Path(__file__).resolve().parent.parent.parent / "flows" / "configs" / "papers"
RNG = np.random.default_rng(9)


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
    from dpal.data.importing.known_tables import CHEXPERT_LABELS

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


def svhn() -> None:
    Path("svhn").mkdir()
    for place, rows in (("svhn/train", 60), ("svhn/test", 24), ("extra", 60)):
        pixels = RNG.integers(0, 256, (32, 32, 3, rows), dtype=np.uint8)
        savemat(f"{place}_32x32.mat", {"X": pixels, "y": 1 + np.arange(rows)[:, None] % 10})


ORIGINALS = {
    "svhn-public": svhn,
    "bloodmnist": lambda: medmnist("bloodmnist_64.npz", (3,), 8),
    "octmnist": lambda: medmnist("octmnist_64.npz", (), 4),
    "cifar10": cifar,
    "snli-pairs": snli,
    "chexpert": chexpert,
}


def commands(name: str) -> list[str]:
    """The commands in a file's head, in their order."""
    lines = (PAPERS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line.removeprefix("#   ") for line in lines if line.startswith("#   "))
    return text.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("name", ORIGINALS)
def test_an_original_is_imported_by_the_commands_of_its_file_and_can_be_planned(
    tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    ORIGINALS[name]()
    before = [line for line in commands(name) if not line.startswith("dpal ")]
    subprocess.run(["bash", "-ec", "\n".join(before)], check=True)
    orders = [line for line in commands(name) if line.startswith("dpal import ")]
    for order, counts in zip(orders, ("60,24", "60,0"), strict=False):
        words = shlex.split(order)[1:]
        target, counted = Path(words[words.index("--to") + 1]), words.index("--expect") + 1
        assert re.fullmatch(r"\d{5,},\d+", words[counted])
        assert "--expect" in sentence(call(*words))  # this is not all of it
        assert not target.exists()
        words[counted] = counts
        done = call(*words)
        assert done.returncode == 0, done.stderr
        assert pq.read_table(target, columns=["id"]).num_rows == sum(map(int, counts.split(",")))
    small = [
        "schedule.initial=20",
        "schedule.queries=[10]",
        "schedule.batch_size=10",
        "acquisition=random",
    ]
    settings = [word for each in small for word in ("--set", each)]
    if name in ("snli-pairs", "chexpert"):  # weights are not shipped
        settings += ["--set", "model.name=logistic", "--set", "model.weights=null"]
    if name == "snli-pairs":
        return  # texts want an encoder
    if name == "svhn-public":
        settings = ["--set", "choice.labels=10", "--set", "choice.each=1"]
        settings += ["--set", "start.batch_size=20", "--set", "choice.components=2"]
    done = call("plan", str(PAPERS / f"{name}.yaml"), *settings)
    assert done.returncode == 0, done.stderr
