from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import flows
from dpal.accounting.cohort_spending import Accountant
from dpal.canonical import canonical_json, digest, place_digest
from dpal.config.campaign import AcquisitionWish, CampaignConfig, override, parse_config
from dpal.config.improvement import PublicConfig
from dpal.config.pate import PateConfig
from dpal.config.vote import VoteConfig
from dpal.errors import ConfigError, ParameterError
from dpal.ledger.model_choice_and_stopping import ReleaseRule, StopRule
from dpal.planning.campaign_spec import Acquisition, LabelCap, SelectionMode, ThresholdStart
from dpal.runs.kinds import parse_any
from tests.conftest import having, small_spec, small_values

CONFIGS = Path(flows.__file__).parent / "configs"


NEEDS_WEIGHTS = {"snli", "snli-pairs", "sst2"}


SHIPPED = [
    path
    for path in sorted(CONFIGS.rglob("*.yaml"))
    if path.stem != "watch" and path.parent.name != "books"
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_configuration_is_valid(path):
    values = yaml.safe_load(path.read_text())
    if path.stem in NEEDS_WEIGHTS:
        with pytest.raises(ConfigError, match=r"needs model\.weights"):
            parse_config(values)
        override(values, "model.weights", "somewhere")
    config = parse_any(values)
    assert config.name == path.stem
    if not isinstance(config, VoteConfig):  # nothing is trained
        assert isinstance(config, CampaignConfig | PublicConfig | PateConfig)
        config.training.to_recipe()
    if isinstance(config, PublicConfig):
        config.choice.to_spec(public_records=20_000)
        config.fine_tuning.to_spec()


@pytest.mark.parametrize(
    ("key", "value", "fault", "meant"),
    [
        ("privacy.epsilom", 3, "extra_forbidden", "privacy.epsilon"),
        ("epsilon", 3, "extra_forbidden", "privacy.epsilon"),
        ("trainig", {}, "extra_forbidden", "training"),
        ("privacy.zzz", 3, "extra_forbidden", ""),
        ("privacy.epsilon", "many", "float_parsing", ""),
        ("privacy.epsilon", -1, "greater_than", ""),
        ("privacy.epsilon", float("nan"), "greater_than", ""),
        ("privacy.selection", "papr", "enum", "paper"),
        ("privacy.selection", "hiden", "enum", "hidden"),
        ("privacy.accountant", "pdl", "enum", "pld"),
        ("privacy.accountant", "moments", "enum", ""),
        ("privacy.threshold_noise", 0, "greater_than", ""),
        ("strategy", "noise_reduce", "enum", "noise_reduction"),
        ("acquisition", "bold", "enum", "bald"),
        ("acquisition", "coreset", "enum", ""),
        ("model.name", "tutorialcnn", "enum", "tutorial_cnn"),
        ("model.name", "resnet", "enum", "resnet9"),
        ("model.max_tokens", 0, "greater_than_equal", ""),
        ("multiplicity", 4, "extra_forbidden", "training.augmentation.multiplicity"),
        ("training.clip", "flat", "extra_forbidden", "training.clipping"),
        ("training.clipping.kind", "layer", "enum", "per_layer"),
        ("training.clipping.quantil", 0.3, "extra_forbidden", "training.clipping.quantile"),
        ("training.clipping.quantile", 1.0, "less_than", ""),
        ("training.averaging.kind", "ema", "enum", ""),
        ("training.rate_schedule", "cosin", "enum", "cosine"),
        ("training.warmup", 1.0, "less_than_equal", ""),
        ("training.precision", "half", "enum", ""),
        ("training.weight_decay", -0.1, "greater_than_equal", ""),
        ("training.optimizer", "sgdagc", "enum", "sgd_agc"),
        ("runtime.backend", "functorch", "enum", "functional"),
        ("runtime.processes", 0, "greater_than_equal", ""),
        ("schedule.queries", 5, "list_type", ""),
        ("name", "Not A Name", "string_pattern_mismatch", ""),
        ("runtime.device", "gpu", "string_pattern_mismatch", ""),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_was_meant(key, value, fault, meant):
    values = small_values()
    override(values, key, value)
    expected = having(setting=key, fault=fault, meant=meant)
    with pytest.raises(ConfigError, check=expected) as found:
        parse_config(values)
    told = str(found.value)
    assert told.startswith(f"{key} ") and "\n" not in told
    if fault != "extra_forbidden":
        assert repr(value) in told
    assert meant in told


@pytest.mark.parametrize(
    ("key", "value", "choices"),
    [
        ("privacy.accountant", "moments", "pld, rdp"),
        ("training.averaging.kind", "ema", "none, exponential, tail"),
        ("training.precision", "half", "fp32, tf32, bf16"),
        ("privacy.zzz", 3, "epsilon, delta"),
        ("runtime.device", "gpu", "cpu, cuda"),
    ],
)
def test_what_could_be_is_listed_where_nothing_is_near(key, value, choices):
    values = small_values()
    override(values, key, value)
    with pytest.raises(ConfigError, match=choices, check=having(setting=key, meant="")):
        parse_config(values)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model.hidden", [5], "model.hidden .*logistic"),
        ("model.name", "mlp", r"model\.hidden, .*\[128\]"),
        ("model.name", "text_classifier", r"model\.weights, .*folder"),
        ("model.dropout", 0.3, "logistic .*dropout"),
        ("model.weights", "a/folder", r"logistic; .*\.safetensors"),
        ("data.extractor", "backbone", "data.backbone"),
        ("data.normalisation", {"kind": "constants", "mean": [0.5]}, "and has 1 and 0"),
        ("data.normalisation", {"std": [0.5]}, "kind constants, .*none"),
        ("name", "mlflow", "is taken"),
    ],
)
def test_what_contradicts_is_one_sentence(key, value, words):
    values = small_values()
    override(values, key, value)
    with pytest.raises(ConfigError, match=words, check=having(fault="value_error")) as found:
        parse_config(values)
    assert "\n" not in str(found.value)


def test_a_missing_name_is_said():
    with pytest.raises(ConfigError, match="--set", check=having(setting="name", fault="missing")):
        parse_config({})


def test_settings_are_overridden_by_dotted_keys():
    values: dict = {"name": "x"}
    override(values, "privacy.epsilon", 3)
    assert parse_config(values).privacy.epsilon == 3
    with pytest.raises(ConfigError, match="a section"):
        override(values, "name.first", 1)


def test_defaults_are_filled_in():
    found = small_spec()
    assert found.target.delta == 1 / 6000
    assert found.accountant is Accountant.PLD
    assert found.selection_epsilon == 2.0
    assert small_spec(acquisition="random").selection_epsilon == 0.0
    assert small_spec(privacy={}).selection is SelectionMode.HIDDEN
    assert small_spec(privacy={}).selection_epsilon == 0.0
    assert small_spec(schedule__queries=[]).selection_epsilon == 0.0


@pytest.mark.parametrize("backend", ["opacus", "functional"])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_low_precision_is_for_the_backend_whose_rounding_is_covered(backend, precision):
    values = small_values(training__precision=precision, runtime__backend=backend)
    with pytest.raises(ConfigError, match=f"precision {precision} .*{backend}"):
        parse_config(values)
    parse_config(small_values(training__precision=precision))


def test_pixels_are_moved_before_features_or_not_at_all():
    values = small_values(data__extractor="scattering", training__augmentation={"flip": True})
    with pytest.raises(ConfigError, match="into features"):
        parse_config(values)


@pytest.mark.parametrize("key", ["data__content", "data__extractor"])
def test_a_text_model_reads_texts(key):
    model = {"name": "text_classifier", "weights": "somewhere"}
    parse_config(small_values(model=model, data__content="text"))
    other = {"data__content": "image", "data__extractor": "scattering"}[key]
    with pytest.raises(ConfigError, match=r"text_classifier .*data\.content: text"):
        parse_config(small_values(model=model, **{key: other}))


def test_runtime_is_no_part_of_the_plan():
    elsewhere: dict[str, Any] = {
        "runtime__physical_batch": 7,
        "runtime__artifacts": "elsewhere",
        "runtime__backend": "functional",
        "runtime__processes": 4,
        "runtime__cache_mib": 1,
    }
    assert small_spec(**elsewhere) == small_spec()


def test_which_phase_is_released_and_when_buying_stops_is_no_part_of_the_plan():
    """Both follow from what was released, and old plans keep their digests."""
    assert small_spec(release="last", stop={"patience": 2}) == small_spec()
    usual = parse_config(small_values())
    assert (usual.release, usual.stop) == (ReleaseRule.BEST, None)
    ruled = parse_config(small_values(stop={}))
    assert ruled.stop is not None
    assert ruled.stop.rule() == StopRule(patience=1, least_gain=0.005)


@pytest.mark.parametrize(
    "wrong",
    [
        {"release": "first"},
        {"stop": {"patience": 0}},
        {"stop": {"least_gain": -0.1}},
        {"stop": {"least_gain": float("nan")}},
        {"stop": True},
    ],
)
def test_a_rule_that_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigError):
        parse_config(small_values(**wrong))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("training__learning_rate", 0.1),
        ("training__weight_decay", 0.1),
        ("training__optimizer", "adamw"),
        ("training__agc_clipping", 0.2),
        ("training__clipping", {"kind": "adaptive"}),
        ("training__clipping", {"quantile": 0.7}),
        ("training__averaging", {"kind": "tail"}),
        ("training__rate_schedule", "cosine"),
        ("training__warmup", 0.1),
        ("training__precision", "bf16"),
        ("model__trainable", ["1"]),
        ("model__seed", 1),
        ("data__normalisation", {"kind": "constants", "mean": [0.0] * 8, "std": [2.0] * 8}),
    ],
)
def test_whatever_decides_what_is_computed_is_part_of_the_plan(key, value):
    assert digest(small_spec(**{key: value})) != digest(small_spec())


def test_a_plan_commits_to_what_public_weights_are_and_not_to_where(tmp_path):
    (tmp_path / "deeper").mkdir()
    here, there = tmp_path / "a.safetensors", tmp_path / "deeper" / "b.safetensors"
    for place in (here, there):
        place.write_bytes(b"the same")
    one, other = (small_spec(model__weights=str(place)) for place in (here, there))
    assert one.model.weights == str(here)
    assert digest(one) == digest(other) != digest(small_spec())
    assert str(tmp_path) not in canonical_json(one)
    there.write_bytes(b"not the same")
    assert digest(small_spec(model__weights=str(there))) != digest(one)
    there.unlink()
    with pytest.raises(ParameterError, match="is no file, and no folder with files in it"):
        small_spec(model__weights=str(there))


def test_a_folder_of_weights_is_known_by_its_files_and_their_names(tmp_path):
    inside = tmp_path / "model" / "part"
    inside.mkdir(parents=True)
    (inside / "weights").write_bytes(b"1")
    known = place_digest(tmp_path)
    (tmp_path / ".cache").write_bytes(b"notes of a download")
    assert place_digest(tmp_path) == known
    (inside / "weights").rename(inside / "other")
    assert place_digest(tmp_path) != known
    (inside / "other").rename(inside / "weights")
    (tmp_path / "config.json").write_bytes(b"{}")
    assert place_digest(tmp_path) != known


def test_constants_are_given_as_they_are_printed():
    """Pixels are printed from 0 to 1, and models see them from -1 to 1."""
    normalisation = {"kind": "constants", "mean": [0.25], "std": [0.5]}
    config = parse_config(small_values(data__normalisation=normalisation))
    image = config.to_spec(pool_size=600, input_shape=(1, 28, 28), classes=2).model.normalisation
    assert image is not None
    assert (image.mean, image.std) == ((-0.5,), (1.0,))
    features = config.to_spec(pool_size=600, input_shape=(1,), classes=2).model.normalisation
    assert features is not None
    assert (features.mean, features.std) == ((0.25,), (0.5,))
    measured = parse_config(small_values(data__normalisation={"kind": "validation"}))
    with pytest.raises(ParameterError, match="own numbers"):
        measured.to_spec(pool_size=600, input_shape=(1,), classes=2)
    found = measured.to_spec(pool_size=600, input_shape=(1,), classes=2, measured=features)
    assert found.model.normalisation == features


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"privacy__delta": 0.01}, r"1/600 .*use 0\.000167"),
        ({"privacy__selection_epsilon": 9}, "leaves nothing"),
        ({"privacy__selection_epsilon": 0}, "be private"),
        ({"acquisition": "random", "privacy__selection_epsilon": 1}, "wasted"),
        ({"privacy__selection_epsilon": 1e-7}, "5e-08 for .*1e-06 to 64"),
        ({"privacy__selection": "hidden", "privacy__selection_epsilon": 1}, "to pay"),
        ({"training__augmentation": {"shift": 2}}, r"shape \(8,\); .*shift: 0"),
        ({"training__augmentation": {"multiplicity": 4}}, "one view"),
        ({"schedule__initial": 600}, "680 labels .*600"),
    ],
)
def test_contradictions_name_what_would_work(overrides, sentence):
    with pytest.raises(ParameterError, match=sentence):
        small_spec(**overrides)


@pytest.mark.parametrize(("queries", "wrong"), [([40, 0], 0), ([-3], -3)])
def test_a_query_asks_for_labels(queries, wrong):
    expected = having(parameter="schedule.queries")
    with pytest.raises(ParameterError, match=f"got {wrong}$", check=expected):
        small_spec(schedule__queries=queries)


TEACHERS = {"kind": "teachers", "teachers": "ward"}


@pytest.mark.parametrize(
    ("labeler", "chosen", "cap"),
    [
        ({}, None, LabelCap.SUM),
        ({"kind": "file"}, None, LabelCap.SUM),
        ({"kind": "file"}, "query", LabelCap.QUERY),
        (TEACHERS, None, LabelCap.QUERY),
        (TEACHERS, "query", LabelCap.QUERY),
    ],
)
def test_the_sum_is_capped_unless_somebody_is_paid_by_query(labeler, chosen, cap):
    spec = small_spec(
        labeler=labeler, privacy={"selection": "hidden", "label_cap": chosen}, name="capped"
    )
    assert spec.label_cap is cap
    assert spec.threshold_start is ThresholdStart.VALIDATION


def test_a_sum_is_no_cap_for_who_is_paid_by_query():
    with pytest.raises(ConfigError) as refusal:
        parse_config(small_values(labeler=TEACHERS, privacy={"label_cap": "sum"}))
    assert "label_cap" in str(refusal.value)


@pytest.mark.parametrize(
    "changes",
    [{"privacy__selection": "visible"}, {"acquisition": "random"}, {"schedule__queries": []}],
)
def test_who_looks_for_no_hidden_threshold_has_a_plan_as_before(changes):
    spec = small_spec(**changes)
    assert (spec.threshold_start, spec.label_cap) == (ThresholdStart.PLAIN, LabelCap.QUERY)


def test_every_acquisition_can_be_wished_for_or_left_open():
    wishes = {wish.value for wish in AcquisitionWish}
    assert wishes == {"auto", *(acquisition.value for acquisition in Acquisition)}
    assert not parse_config(small_values()).is_to_be_chosen
    privacy = {"selection_epsilon": 1, "candidates": 300}
    auto = parse_config(small_values(acquisition="auto", privacy=privacy))
    assert auto.is_to_be_chosen
    named = auto.settled(Acquisition.RANDOM)
    assert (named.acquisition.value, named.privacy.selection_epsilon) == ("random", None)
    assert named.privacy.candidates is None
    assert not named.is_to_be_chosen
    scored = auto.settled(Acquisition.MARGIN).privacy
    assert (scored.selection_epsilon, scored.candidates) == (1, 300)


def test_several_files_of_a_pool_are_a_list_again_once_they_were_written_down():
    pools = ["january.parquet", "s3://bucket/march.parquet"]
    config = parse_config(small_values(data__pool=pools))
    written = config.model_dump(mode="json")
    assert written["data"]["pool"] == pools
    assert parse_config(written).data.pool == config.data.pool
