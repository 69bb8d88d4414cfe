from __future__ import annotations

import pytest

from dpal.config.campaign import parse_config
from dpal.errors import ConfigError
from dpal.labeling.label_studio_rules import Agreement, Rules
from tests.conftest import having, small_values

FORM = {"kind": "form", "trusted_page": True}


def test_rules_come_from_the_settings():
    people = {"annotators": 3, "agreement": "adjudicate", "url": "http://labels.local:8080/"}
    config = parse_config(small_values(labeler__label_studio=people))
    settings = config.labeler.label_studio
    assert settings.to_rules() == Rules(annotators=3, agreement=Agreement.ADJUDICATE)
    assert settings.url == "http://labels.local:8080"


@pytest.mark.parametrize(
    ("labeler", "sentence"),
    [
        ({"kind": "form"}, "labeler.trusted_page: true"),
        (FORM, "20 records, .*100"),
        ({"label_studio": {"url": "labels.local"}}, "https:// address"),
        ({"label_studio": {"url": "http://me:word@labels.local"}}, "LABEL_STUDIO_API_KEY"),
        ({"label_studio": {"webhook": "http://x/?token=1"}}, "label_studio.webhook holds"),
    ],
)
def test_what_cannot_be_is_refused(labeler, sentence):
    with pytest.raises(ConfigError, match=sentence, check=having(fault="value_error")):
        parse_config(small_values(labeler=labeler))


def test_a_kind_that_is_none_is_named_with_what_was_meant():
    expected = having(setting="labeler.kind", meant="label_studio")
    with pytest.raises(ConfigError, check=expected):
        parse_config(small_values(labeler={"kind": "label-studio"}))


def test_a_tiny_form_is_allowed():
    parse_config(small_values(labeler=FORM, schedule={"initial": 20, "queries": [5]}))
