"""Settings that suit data nobody has planned on: they plan, whatever the data is."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from safetensors.torch import save_file

import dpal
from dpal.config.campaign import parse_config
from dpal.errors import ConfigError, DataError
from dpal.models.build_model import build_model
from dpal.models.spec import ModelSpec
from dpal.planning.campaign_plan import Plan
from dpal.privacy import Unit
from dpal.runs.first_settings import first_settings, look_at
from tests.conftest import write_blobs
from tests.features.library_models import write_picture_model
from tests.models.tiny_bert import write_folder
from tests.variants import quick_and_slow

RNG = np.random.default_rng(4)


def features(path: Path, rows: int, *, scale: float = 1.0, labels=None, **columns) -> Path:
    values = RNG.normal(0, 1, (rows, 6)).astype(np.float32) * np.array([1, 1, 1, 1, 1, scale], "f4")
    table = {
        "id": [f"r{k}" for k in range(rows)],
        "features": pa.array(values.tolist(), pa.list_(pa.float32())),
        "label": labels if labels is not None else (np.arange(rows) // 4 % 2).tolist(),
        "split": ["test" if k % 4 == 0 else "train" for k in range(rows)],
        **columns,
    }
    pq.write_table(pa.table(table), path)
    return path


def pictures(path: Path, rows: int, *, size: int, labeled: bool = True) -> Path:
    def png() -> bytes:
        stream = io.BytesIO()
        Image.fromarray(RNG.integers(0, 256, (size, size), dtype=np.uint8)).save(stream, "PNG")
        return stream.getvalue()

    split = ["test" if k % 4 == 0 else "train" for k in range(rows)]
    labels = [k // 4 % 5 if labeled or part == "test" else None for k, part in enumerate(split)]
    table = {"id": [f"p{k}" for k in range(rows)], "image": [png() for _ in range(rows)],
             "label": pa.array(labels, pa.int64()), "split": split}  # fmt: skip
    pq.write_table(pa.table(table), path)
    return path


def written(path: Path, *, public: bool = True, **wishes):
    look = look_at(path)
    why = "made up for a test" if public else None
    text = first_settings(look, "mine", why_public=why, **wishes)
    return text, dpal.settings(yaml.safe_load(text))


TABLES = list(product((80, 400, 3000), (0.5, 8)))


@pytest.mark.parametrize(("rows", "epsilon"), quick_and_slow([(80, 0.5), (3000, 8)], TABLES))
def test_what_is_written_for_tables_plans(tmp_path, rows, epsilon):
    _, config = written(features(tmp_path / "t.parquet", rows), epsilon=epsilon)
    certified = dpal.plan(config)
    assert 0.9 * epsilon < certified.epsilon <= epsilon
    assert (config.model.name, config.labeler.kind) == ("logistic", "oracle")


def test_features_are_normalised_by_public_records(tmp_path):
    path = features(tmp_path / "b.parquet", 200, scale=5000)
    _, scaled = written(path)
    _, protected = written(path, public=False)
    kinds = [config.data.normalisation.kind.value for config in (scaled, protected)]
    assert kinds == ["validation", "none"]


@pytest.mark.parametrize("public", [True, False])
def test_groups_are_protected_as_a_whole_by_a_schedule_of_groups(tmp_path, public):
    path = tmp_path / "b.parquet"
    features(path, 1600, group=[f"g{k % 4}-{k // 16}" for k in range(1600)])
    _, config = written(path, public=public)
    assert (config.privacy.unit, config.data.group_column) == (Unit.GROUP, "group")
    assert (config.schedule.initial, config.schedule.batch_size) == (300, 150)
    assert 0.9 * 8 < dpal.plan(config).epsilon <= 8


def test_rates_are_of_as_many_groups(tmp_path):
    groups = [f"g{k % 4}-{k // 16}" for k in range(1600)]
    _, grouped = written(features(tmp_path / "g.parquet", 1600, group=groups))
    _, alone = written(features(tmp_path / "a.parquet", 1600))
    _, few = written(features(tmp_path / "f.parquet", 400))
    assert grouped.training.learning_rate < alone.training.learning_rate / 2
    assert grouped.training == few.training


@pytest.mark.parametrize("groups", [[f"g{k % 40}" for k in range(400)],
                                    [None, *(f"g{k}" for k in range(1, 400))]])  # fmt: skip
def test_groups_that_are_few_or_not_of_all_are_left_to_a_person(tmp_path, groups):
    _, config = written(features(tmp_path / "b.parquet", 400, group=groups))
    assert (config.privacy.unit, config.data.group_column) == (Unit.RECORD, None)
    assert config.schedule.initial == 300
    dpal.plan(config)


def test_a_share_of_groups_is_held_out(tmp_path):
    """The settings plan: no group is split, and the schedule counts those that are left."""
    path = features(tmp_path / "b.parquet", 1600, group=[f"g{k // 4}" for k in range(1600)])
    pq.write_table(pq.read_table(path).drop_columns(["split"]), path)
    _, config = written(path, public=False)
    assert config.privacy.unit is Unit.GROUP
    assert 250 < config.schedule.initial < 390
    assert dpal.plan(config).epsilon <= 8


def test_rates_follow_labels_and_epsilon(tmp_path):
    path = features(tmp_path / "t.parquet", 3000)
    configs = [written(path, labels=100)[1], written(path)[1], written(path, epsilon=1)[1]]
    few, many, careful = (config.training.learning_rate for config in configs)
    assert few < many / 5
    assert careful < many / 2


def test_pictures_get_features_that_cost_nothing_and_people_label(tmp_path):
    _, small = written(pictures(tmp_path / "s.parquet", 200, size=16))
    assert (small.data.extractor.value, small.model.name) == ("scattering", "logistic")
    _, large = written(pictures(tmp_path / "l.parquet", 80, size=80, labeled=False))
    assert (large.data.extractor.value, large.model.name) == ("coarse_scattering", "logistic")
    assert large.labeler.kind == "file"
    assert large.schedule.initial == 30  # half of those that are not held out
    _, tiny = written(pictures(tmp_path / "t.parquet", 200, size=8))
    assert (tiny.data.extractor.value, tiny.model.name) == ("none", "logistic")
    assert dpal.plan(tiny).epsilon <= 8


def test_held_out_records_are_protected_unless_they_are_public(tmp_path):
    look = look_at(pictures(tmp_path / "p.parquet", 2400, size=12))
    config = parse_config(yaml.safe_load(first_settings(look, "mine", why_public=None)))
    assert config.validation is not None
    assert config.validation.protected
    assert dpal.plan(config).epsilon <= 8
    with pytest.raises(ConfigError, match="--why-public"):
        first_settings(replace(look, told=True), "mine", why_public=None)


def test_a_share_is_held_out_where_nothing_says_which_records_are(tmp_path):
    path = features(tmp_path / "t.parquet", 1000)
    pq.write_table(pq.read_table(path).drop(["split"]), path)
    look = look_at(path)
    assert look.validation is None
    assert look.rows + look.validation_rows == 1000 and 150 < look.validation_rows < 250
    config = parse_config(yaml.safe_load(first_settings(look, "mine", why_public=None)))
    assert config.validation is not None
    assert (config.validation.share, config.data.validation) == (0.2, None)
    assert dpal.plan(config).epsilon <= 8
    with pytest.raises(ConfigError, match="--why-public"):
        first_settings(look, "mine", why_public="everybody may see them")


def test_nothing_can_be_held_out_of_what_has_no_labels(tmp_path):
    path = features(tmp_path / "t.parquet", 200)
    pq.write_table(pq.read_table(path).drop(["split", "label"]), path)
    with pytest.raises(DataError, match="label"):
        look_at(path)


@pytest.mark.slow
def test_labels_that_are_many_are_bought_where_the_model_is_unsure(tmp_path):
    _, config = written(pictures(tmp_path / "p.parquet", 2800, size=9), labels=600)
    assert (config.schedule.initial, config.schedule.queries) == (360, [120, 120])
    assert config.acquisition.value == "margin"


def test_several_labels(tmp_path):
    rows = [[k % 2, -1 if k % 3 == 0 else 1] for k in range(200)]
    path = features(tmp_path / "m.parquet", 200, labels=pa.array(rows, pa.list_(pa.int8())))
    _, config = written(path)
    assert look_at(path).classes == 2
    assert dpal.plan(config).epsilon <= 8


def test_texts_want_a_pretrained_model(tmp_path):
    table = pa.table({"id": [str(k) for k in range(100)], "text_a": ["words"] * 100,
                      "label": [k % 2 for k in range(100)],
                      "split": ["test" if k < 20 else "train" for k in range(100)]})  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match="--weights"):
        written(tmp_path / "t.parquet")
    _, config = written(tmp_path / "t.parquet", weights=write_folder(tmp_path / "bert"))
    assert (config.data.extractor.value, config.model.name) == ("backbone", "logistic")
    assert dpal.plan(config).epsilon <= 8


def test_what_cannot_be_planned_is_refused(tmp_path):
    write_blobs(tmp_path / "whole.parquet", 100, seed=1)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    for path, word in ((tmp_path / "t.csv", "import"),
                       (features(tmp_path / "few.parquet", 40), "30 records")):  # fmt: skip
        with pytest.raises(DataError, match=word):
            look_at(path)
    with pytest.raises(ConfigError, match="--labels 301"):
        written(features(tmp_path / "f.parquet", 400), labels=301)
    two = look_at(tmp_path / "whole.parquet", write_blobs(tmp_path / "v.parquet", 60, seed=2))
    assert (two.rows, two.validation_rows, two.classes) == (100, 60, 3)


def test_names_with_quotes_stay_names(tmp_path):
    folder = tmp_path / 'it\'s: #"1"'
    folder.mkdir()
    _, config = written(features(folder / "t.parquet", 80))
    assert config.data.pool == folder / "t.parquet"
    assert json.loads(json.dumps(config.validation.why)) == "made up for a test"


def planned_shape(config) -> tuple[int, ...]:
    plan = dpal.plan(config).plan
    assert isinstance(plan, Plan)
    return plan.spec.model.input_shape


def test_pictures_are_read_by_a_public_model_in_a_folder(tmp_path):
    folder = write_picture_model(tmp_path / "vit", "vit")
    path = pictures(tmp_path / "p.parquet", 400, size=24)
    text, config = written(path, weights=folder)
    backbone = config.data.backbone
    assert backbone is not None
    assert (config.data.extractor.value, backbone.model) == ("backbone", "transformers_image")
    assert planned_shape(config) == (16,)
    assert "scattering" not in text
    for wishes in (
        {"weights": folder / "model.safetensors"},  # nothing says of which model
        {"weights": folder, "backbone": "resnet51"},
        {"weights": folder, "backbone": "timm"},
    ):
        with pytest.raises(ConfigError):
            written(path, **wishes)
    with pytest.raises(ConfigError):
        written(features(tmp_path / "t.parquet", 200), weights=folder)


def test_a_backbone_of_our_own_is_named(tmp_path):
    path = pictures(tmp_path / "p.parquet", 400, size=16)
    weights = tmp_path / "public.safetensors"
    spec = ModelSpec(name="tutorial_cnn", input_shape=(1, 16, 16), classes=5)
    save_file(build_model(spec).state_dict(), weights)
    _, config = written(path, weights=weights, backbone="tutorial_cnn")
    assert planned_shape(config) == (32,)


def test_other_models_of_texts_than_bert_are_read_by_transformers(tmp_path):
    folder = write_folder(tmp_path / "electra")
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    path = tmp_path / "x.parquet"
    table = {"id": [f"t{k}" for k in range(200)], "text_a": ["a good film"] * 200,
             "label": [k // 4 % 2 for k in range(200)],
             "split": ["test" if k % 4 == 0 else "train" for k in range(200)]}  # fmt: skip
    pq.write_table(pa.table(table), path)
    named = []
    for kind in ("bert", "electra"):
        (folder / "config.json").write_text(json.dumps({**said, "model_type": kind}), "utf-8")
        backbone = written(path, weights=folder)[1].data.backbone
        assert backbone is not None
        named.append(backbone.model)
    assert named == ["text_classifier", "transformers_text"]
