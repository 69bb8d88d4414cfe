"""Certificates as earlier versions wrote them verify as ever, with their own words; unsigned.

The files were written by `dpal run` and `dpal vote` of the last version that wrote format 1: a
campaign, improvements (near_private, and of a declared start), private voting with a student, votes
from ballots, and votes within a bound; all but one in one ledger.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpal.certificate.check_against import Model
from dpal.certificate.check_outcome import CheckOutcome
from dpal.certificate.evidence import evidence_from
from dpal.certificate.make_campaign_certificate import certificate_of, text_to_keep
from dpal.certificate.read_and_seal import (
    parse_entry,
    read_certificate,
    sealed_certificate,
    to_text,
)
from dpal.certificate.sentences import statements
from dpal.certificate.signature_trust import Trust, author_of
from dpal.certificate.signed_statement import certificate_statement, sign_statement
from dpal.certificate.verify import verify_certificate
from dpal.ledger.signing_key import SigningKey
from tests.certificate.certifying import failures

HERE = Path(__file__).parent / "format-1"
NAMES = ("small", "near", "declared", "votes", "plain", "bounded")


def text_of(name: str) -> str:
    return (HERE / f"{name}.json").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def ledger():
    return [parse_entry(one) for one in json.loads(text_of("ledger"))]


@pytest.mark.parametrize("name", NAMES)
def test_it_verifies_against_its_ledger_and_its_model(name, ledger):
    document, model = read_certificate(text_of(name)), HERE / f"{name}.safetensors"
    assert document["format"] == 1
    given = Model.at(model) if model.is_file() else None
    checks = verify_certificate(document, ledger=ledger, model=given)
    assert failures(checks) == {}
    outcomes = {one.name: one.outcome for one in checks}
    assert outcomes.get("model", CheckOutcome.UNCHECKED) is (
        CheckOutcome.OK if given else CheckOutcome.UNCHECKED
    )


def test_it_has_the_words_of_its_format():
    document = read_certificate(text_of("small"))
    old, new = statements("campaign", 1), statements("campaign")
    assert document["exceptions"] == old["exceptions"]
    assert len(new["exceptions"]) == len(old["exceptions"]) + 2
    assert "adoptions" not in document["ledger"]


@pytest.mark.parametrize("name", NAMES)
def test_its_author_is_unknown(name):
    author = author_of(read_certificate(text_of(name)), None, Trust())
    assert (author.known, author.check.outcome) == (False, CheckOutcome.UNCHECKED)


def test_a_campaign_that_is_run_again_keeps_it(ledger):
    text = text_of("small")
    plan = evidence_from(read_certificate(text)).plan

    def certified(form):
        return certificate_of(ledger, "small", plan, versions={"dpal": "9"}, form=form)

    assert text_to_keep(certified, text) == text
    assert json.loads(text_to_keep(certified, None))["format"] == 2
    other = text.replace('"recorded_at": "2026', '"recorded_at": "2025', 1)
    assert json.loads(text_to_keep(certified, other))["format"] == 2


@pytest.mark.parametrize(("moved", "kept"), [(1e-8, True), (0.01, False)])
def test_the_last_digits_of_another_processor_change_nothing(ledger, moved, kept):
    stated = read_certificate(text_of("small"))
    stated["epsilon"]["pld"] -= moved
    text = to_text(sealed_certificate(stated))

    def certified(form):
        plan = evidence_from(stated).plan
        return certificate_of(ledger, "small", plan, versions={"dpal": "9"}, form=form)

    assert (text_to_keep(certified, text) == text) is kept


def test_another_machine_cannot_sign_it(tmp_path):
    """Its own machine can, once the same run is run again; this one has another key."""
    document, signer = read_certificate(text_of("small")), SigningKey(tmp_path)
    key = signer.public_key()
    envelope = sign_statement(certificate_statement(document, key), signer)
    author = author_of(document, envelope, Trust(keys={key: "mine"}))
    assert author.check.outcome is CheckOutcome.FAILED
    assert "nor adopted" in author.check.detail
