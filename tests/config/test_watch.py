"""What a person may write for a watch, and what they read when it is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

import flows
from dpal.config.campaign import parse_config
from dpal.config.watch import is_watch, parse_watch
from dpal.errors import ConfigError
from flows.cli.any_settings import load_watch
from tests.conftest import having, small_values
from tests.flows.watching import small_watch, watch_values

SHIPPED = Path(flows.__file__).parent / "configs" / "watch.yaml"


def test_a_campaign_has_the_template_s_settings_and_the_watch_s_data():
    config = small_watch(campaign__runtime__cron="0 6 * * *")
    campaign = config.campaign_on("clinic-0007", Path("pool"), start_from="clinic-0006")
    assert (campaign.name, campaign.start_from) == ("clinic-0007", "clinic-0006")
    assert (campaign.data.pool, campaign.data.dataset) == (Path("pool"), "clinic")
    assert campaign.model.name == "logistic"
    assert campaign.runtime.cron is None  # the watch starts it, and no clock besides


def test_the_form_does_not_ask_what_the_watch_decides():
    schema = type(small_watch()).model_json_schema()["$defs"]
    assert not {"name"} & set(schema["WatchedCampaignConfig"]["properties"])
    assert not {"pool", "dataset"} & set(schema["WatchedDataConfig"]["properties"])
    assert "validation" in schema["WatchedDataConfig"]["properties"]


def test_settings_survive_the_way_to_a_deployment():
    config = small_watch(cron="0 6 * * 1")
    assert parse_watch(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"cron": "every day"}, "'every day' is"),
        ({"cron": "0 6 * * 9"}, "Bad day-of-week"),
        ({"timezone": "Mars"}, "'Mars' is"),
        ({"cron": "0 6 * * 1", "every_minutes": 5}, "keep one"),
        ({"folder": "s3://key:secret@bucket/inbox"}, "folder holds"),
        ({"quarantine": "inbox/"}, "folder itself"),
        ({"campaign__data__extractor": "backbone"}, "campaign: data.extractor backbone"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(changes, match):
    with pytest.raises(ConfigError, match=match, check=having(fault="value_error")):
        small_watch(**changes)


@pytest.mark.parametrize(
    ("changes", "setting", "fault", "meant"),
    [
        ({"dataset": "A B"}, "dataset", "string_pattern_mismatch", ""),
        ({"campaign__name": "x"}, "campaign.name", "extra_forbidden", "name"),
        ({"campaign__data__dataset": "x"}, "campaign.data.dataset", "extra_forbidden", "dataset"),
        ({"foldr": "x"}, "foldr", "extra_forbidden", "folder"),
        ({"every_minutes": 1e10}, "every_minutes", "less_than_equal", ""),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_what_was_meant(changes, setting, fault, meant):
    with pytest.raises(ConfigError, check=having(setting=setting, fault=fault, meant=meant)):
        small_watch(**changes)


def test_the_next_look_is_by_the_clock_of_its_time_zone():
    after = datetime(2026, 7, 6, 3, 30, tzinfo=UTC)
    assert small_watch(every_minutes=90).next_look(after) == datetime(2026, 7, 6, 5, tzinfo=UTC)
    berlin = small_watch(cron="0 6 * * *", timezone="Europe/Berlin")
    assert berlin.next_look(after) == datetime(2026, 7, 6, 4, tzinfo=UTC)


def test_the_shipped_watch_is_one():
    config = load_watch(SHIPPED)
    assert config.minutes == 5
    assert is_watch(yaml.safe_load(SHIPPED.read_text()))


def test_a_campaign_s_own_file_can_be_the_template(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    campaign = small_values(data__dataset="clinic", schedule__initial=77)
    Path("clinic.yaml").write_text(yaml.safe_dump(campaign))
    Path("watch.yaml").write_text(yaml.safe_dump({**watch_values(), "campaign": "clinic.yaml"}))
    assert not is_watch(campaign)
    made = load_watch(Path("watch.yaml"), ["every_minutes=3"])
    assert made.minutes == 3
    wanted = small_values(
        name="clinic-0001", data__pool="pool", data__dataset="clinic", schedule__initial=77
    )
    assert made.campaign_on("clinic-0001", Path("pool")) == parse_config(wanted)
    Path("clinic.yaml").write_text(yaml.safe_dump({**campaign, "data": {"dataset": "hospital"}}))
    with pytest.raises(ConfigError, match=r"data\.dataset is hospital"):
        load_watch(Path("watch.yaml"))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"runtime__cron": "* *"}, r"runtime.cron '\* \*' is"),
        ({"runtime__timezone": "Mars"}, "runtime.timezone 'Mars' is"),
    ],
)
def test_a_campaign_s_clock_is_checked(changes, match):
    with pytest.raises(ConfigError, match=match):
        parse_config(small_values(**changes))
    parse_config(small_values(runtime__cron="0 6 * * 1", runtime__timezone="Europe/Berlin"))
