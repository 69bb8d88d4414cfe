"""A campaign on what a public model of another library makes of pictures, up to its predictions."""

from __future__ import annotations

import io
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from torch import Tensor

import dpal
from dpal.data.importing.settings import ImportSettings
from dpal.features import extractors
from dpal.features.spec import PictureForm
from dpal.files.artifacts import CampaignFolder
from dpal.inference.released_model import DESCRIPTION, WEIGHTS
from dpal.runs.bundle_inference_code import write_bundle
from dpal.runs.first_settings import first_settings, look_at
from dpal.runs.predict import open_model, predict
from dpal.runs.released_phase import released_figures, released_weights
from tests.features.library_models import write_picture_model

pytestmark = pytest.mark.slow

ROWS, HELD_OUT = 700, 175


def write_pictures(path: Path) -> Path:
    """Bright ones and dark ones, of which a quarter is held out."""
    rng = np.random.default_rng(4)

    def png(label: int) -> bytes:
        stream = io.BytesIO()
        grey = rng.integers(0, 128, (12, 10)) + 127 * label
        Image.fromarray(grey.astype(np.uint8)).save(stream, "PNG")
        return stream.getvalue()

    labels = rng.integers(0, 2, ROWS).tolist()
    table = {
        "id": [f"p{row}" for row in range(ROWS)],
        "image": pa.array([png(label) for label in labels]),
        "label": labels,
        "split": ["test" if row % 4 == 0 else "train" for row in range(ROWS)],
    }
    pq.write_table(pa.table(table), path)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Iterator[tuple[CampaignFolder, int]]:
    """A campaign of three phases with a store, and how many pictures went through the model."""
    place = tmp_path_factory.mktemp("backbone")
    weights = write_picture_model(place / "vit", "vit")
    pool = write_pictures(place / "pool.parquet")
    text = first_settings(look_at(pool), "seen", why_public="made up", weights=weights)
    values = yaml.safe_load(text)
    values["runtime"] = {
        "artifacts": str(place / "artifacts"),
        "store": (place / "store").as_uri(),
        "store_holds": "everything",
    }
    values["privacy"]["selection"] = "visible"
    values["acquisition"] = "margin"
    values["schedule"] |= {"initial": 100, "queries": [50, 50], "batch_size": 100}
    whole, seen = extractors.brought_to, list[int]()

    def counted(form: PictureForm, part: Tensor) -> Tensor:
        seen.append(len(part))
        return whole(form, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extractors, "brought_to", counted)
        yield dpal.run(dpal.settings(values)), sum(seen)


def test_each_record_is_embedded_once_in_all_phases(finished):
    folder, seen = finished
    assert len(folder.finished_phases()) == 3
    samples = 10  # one of each file, to learn of which shape features are
    assert ROWS <= seen <= ROWS + samples


def test_it_learns(finished):
    assert finished[0].finished_phases()[-1]["validation_accuracy"] > 0.9


def test_features_are_confidential_and_stay_here(finished):
    folder, _ = finished
    files = sorted(folder.features.iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    stored = [path.name for path in (folder.root.parent.parent / "store").rglob("*")]
    assert "labels.parquet" in stored
    assert not {path.name for path in files} & set(stored)


def answers(folder: CampaignFolder, target: Path) -> dict[str, list[float]]:
    pool = folder.root.parent.parent / "pool.parquet"
    predict(open_model(folder.root), pool, target, ImportSettings())
    table = pq.read_table(target)
    return dict(zip(table["id"].to_pylist(), table["probabilities"].to_pylist(), strict=True))


def test_it_predicts_as_it_was_judged(finished, tmp_path):
    folder, _ = finished
    said = answers(folder, tmp_path / "answers.parquet")
    table = pq.read_table(folder.root.parent.parent / "pool.parquet").to_pydict()
    right = [
        int(np.argmax(said[name])) == label
        for name, label, part in zip(table["id"], table["label"], table["split"], strict=True)
        if part == "test"
    ]
    assert len(right) == HELD_OUT
    released = released_figures(folder)
    assert released is not None and np.mean(right) == released["validation_accuracy"]


SERVED = """
import io, json, sys
sys.path.insert(0, {code!r})
import pandas as pd, pyarrow.parquet as pq
from pathlib import Path
from importlib import import_module
served = import_module({name!r} + ".inference.served")
table = pq.read_table({pool!r}).slice(0, 20)
records = pd.DataFrame({{"image": table["image"].to_pylist()}})
answer = served.BundledModel(Path({kept!r})).answer(records)
assert not [name for name in sys.modules if name.partition(".")[0] == "dpal"]
print(json.dumps(answer.probabilities.tolist()))
"""


def test_what_is_beside_a_served_model_is_all_that_it_needs(finished, tmp_path):
    """In a process that never imports dpal."""
    folder, _ = finished
    model, kept = open_model(folder.root), tmp_path / "kept"
    bundle = write_bundle(tmp_path / "code", model)
    named = {line.partition("==")[0] for line in bundle.requirements}
    assert "transformers" in named and "timm" not in named
    kept.mkdir()
    shutil.copytree(model.extractor.weights or "", kept / "backbone")
    shutil.copyfile(released_weights(folder), kept / WEIGHTS)
    facts = {**folder.read_record()["model"], "temperature": model.temperature}
    (kept / DESCRIPTION).write_text(json.dumps(facts), encoding="utf-8")
    pool = folder.root.parent.parent / "pool.parquet"
    program = SERVED.format(
        code=str(tmp_path / "code"), name=bundle.name, pool=str(pool), kept=str(kept)
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    said = answers(folder, tmp_path / "answers.parquet")
    expected = [said[f"p{row}"] for row in range(20)]
    assert np.allclose(json.loads(done.stdout), expected, atol=1e-9)
