"""A labeler in one file is named by settings, runs a campaign, and is known wherever one is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import dpal
from dpal.certificate.check_outcome import any_failed
from dpal.config.campaign import CampaignConfig, parse_config
from dpal.config.improvement import PublicConfig
from dpal.data.labeling_state import read_labels
from dpal.errors import ConfigError, LabelError, ParameterError
from dpal.labeling.registered_labelers import LABELERS, labeler_named
from dpal.runs.labelers import NamedLabeler, labeler_of, people_label, register_labeler
from dpal.runs.labeling import deliver_labels
from flows.ops.doctor_stack import labeler as examine_labeler
from tests.conftest import CLASSES, small_values

MOST_LINES = 60
FILE = Path(__file__).parent / "toy_labeler.py"


@pytest.fixture
def toy(monkeypatch):
    """The labeler, which other tests do not know of."""
    from tests.runs import toy_labeler  # which registers it, the first time

    monkeypatch.setitem(LABELERS, "toy", toy_labeler.Toy())
    yield toy_labeler
    monkeypatch.undo()
    LABELERS.pop("toy", None)


def settings_file(folder, **overrides):
    file = folder / "toy.yaml"
    file.write_text(yaml.safe_dump(small_values(labeler__kind="toy", **overrides)))
    return file


def test_it_is_one_short_file():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.usefixtures("toy")
def test_settings_name_it_and_a_campaign_runs(workplace):
    folder = dpal.run(dpal.settings(settings_file(workplace)))
    assert len(folder.finished_phases()) == 3
    assert not any_failed(dpal.verify(folder, ledger=Path("artifacts/ledger.sqlite")))
    given = read_labels(folder.phase(1).labels)
    assert len(given) >= 20
    assert set(given.values()) <= set(range(CLASSES))
    with pytest.raises(LabelError, match="largest feature"):
        deliver_labels(folder, workplace / "labels.csv")


@pytest.mark.usefixtures("toy")
def test_a_wrong_answer_is_not_believed(workplace, monkeypatch):
    config = dpal.settings(settings_file(workplace))
    monkeypatch.setattr(
        "tests.runs.toy_labeler.LargestFeature.label", lambda _, ids: dict.fromkeys(ids, CLASSES)
    )
    with pytest.raises(LabelError, match="not a class from 0 to"):
        dpal.run(config)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("settings", [CampaignConfig, PublicConfig])
def test_forms_offer_it(settings):
    schema = settings.model_json_schema()["$defs"]
    assert schema["LabelerKind"]["enum"] == list(LABELERS)
    assert (
        "toy: the largest feature." in schema["LabelerConfig"]["properties"]["kind"]["description"]
    )


@pytest.mark.usefixtures("toy")
def test_its_needs_are_checked_with_the_settings():
    for values in ({"labeler__trusted_page": True}, {"schedule__initial": 301}):
        with pytest.raises(ConfigError, match=r"labeler\.kind toy"):
            parse_config(small_values(labeler__kind="toy", **values))


@pytest.mark.usefixtures("toy")
def test_the_doctor_asks_it():
    config = parse_config(small_values(labeler__kind="toy"))
    assert [(one.what, one.state) for one in examine_labeler(config)] == [
        ("toy", "looks at features")
    ]


@pytest.mark.usefixtures("toy")
def test_no_other_labeler_takes_its_name():
    for name in ("toy", "file"):
        other = type("Other", (NamedLabeler,), {"name": name, "about": "another", "place": "none"})
        with pytest.raises(ParameterError, match=f"{name} names another labeler"):
            register_labeler(other)
        assert not isinstance(labeler_named(name), other)


def test_an_unknown_one_is_refused_with_those_that_there_are():
    for refused in (
        lambda: labeler_of("toy"),
        lambda: parse_config(small_values(labeler__kind="toy")),
    ):
        with pytest.raises(ConfigError) as error:
            refused()
        assert "'toy'" in str(error.value)
        assert ", ".join(LABELERS) in str(error.value)


@pytest.mark.parametrize(
    ("labeler", "people"),
    [({"kind": "file"}, True), ({"kind": "form"}, True), ({"kind": "oracle"}, False),
     ({"kind": "of another program"}, False), ({}, False)],
)  # fmt: skip
def test_whose_labels_a_record_has(labeler, people):
    """Whoever reads a run need not know its labeler."""
    assert people_label({"config": {"labeler": labeler}}) == people
    assert not people_label({"config": {}})


@pytest.mark.parametrize("name", list(LABELERS))
def test_every_labeler_says_what_it_is(name):
    labeler = labeler_of(name)
    assert labeler.name == name
    assert labeler.about
    assert labeler.place
    assert (labeler.projects is not None) == (name == "label_studio")
    # A form's answers would be read by nobody.
    assert labeler.on_page == (type(labeler).form is not NamedLabeler.form)
