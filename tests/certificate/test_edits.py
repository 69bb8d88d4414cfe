"""Whatever is changed in a certificate is found, and the change is named."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpal.canonical import canonical_json
from dpal.certificate.checks import refuted
from dpal.certificate.document import INFORMATIVE, sealed_certificate
from dpal.certificate.verify import verify
from tests.certificate.certifying import changed, failures

NOISE = ("cohorts", 0, "events", 0, "noise_multiplier")
FIRST_RESERVE = ("ledger", "entries", 1, "body", "charges", 0, "event", "noise_multiplier")


@pytest.mark.parametrize(
    ("path", "to", "check", "words"),
    [
        (("epsilon", "pld"), 3.0, "epsilon, our accountant", "stated as 3.0000, and the events"),
        (("epsilon", "pld"), 3.0, "epsilon, dp-accounting", "too little is stated"),
        (("epsilon", "rdp"), 3.0, "epsilon, dp-accounting", "too little is stated"),
        (("epsilon", "dp_accounting"), 7.0, "epsilon, our accountant", "by dp_accounting"),
        (("cohorts", 1, "epsilon_pld"), 1.0, "cohorts, dp-accounting", "cohort 1: epsilon_pld"),
        (("cohorts", 1, "epsilon_rdp"), 1.0, "cohorts, dp-accounting", "cohort 1: epsilon_rdp"),
        (("cohorts", 1, "epsilon_pld"), 9.0, "epsilon, our accountant", "cohort 1, epsilon_pld"),
        (("cohorts", 3, "epsilon_pld"), 0.0, "cohorts, dp-accounting", "cohort never_selected"),
        (("promise", "epsilon"), 4.0, "statements", "promise"),
        (("promise", "delta"), 1e-9, "statements", "promise"),
        (("promise", "adjacency"), "replace_one", "statements", "promise"),
        (("promise", "unit"), "group", "statements", "promise"),
        (("selection", "mode"), "hidden", "statements", "selection"),
        (("pool", "size"), 10**6, "statements", "pool"),
        (("cohorts", 1, "planned_size"), 1, "statements", "cohorts"),
        (("model", "sha256"), "0" * 64, "statements", "model"),
        (("models", 1, "sha256"), "0" * 64, "statements", "models"),
        (("assumptions", "R9"), "persons are protected", "statements", "assumptions"),
        (("exceptions",), [], "statements", "exceptions"),
        (("tuning",), "tuning is covered", "statements", "tuning"),
        (NOISE, 9.0, "events by cohort", "cohort 0 lists other events"),
        (("ledger", "head", "digest"), "0" * 64, "ledger entries", "the head is not the last"),
        (("ledger", "head", "sequence"), 99, "ledger entries", "the head is not the last"),
        (("ledger", "identity"), "0" * 64, "ledger entries", "the ledger's identity"),
        (("ledger", "opening"), None, "ledger entries", "first entry is missing"),
        (FIRST_RESERVE, 9.0, "ledger entries", "was altered: its content does not match"),
        (("plan", "content", "phases", 1, "cohort_size"), 1, "plan", "not the one whose digest"),
        (("format",), 2, "certificate", "format 2 is unknown here"),
    ],
)  # fmt: skip
def test_a_changed_certificate_is_refused_and_the_change_named(visible, path, to, check, words):
    found = failures(verify(changed(visible.document, *path, to=to)))
    assert words in found.get(check, ""), found
    untouched = verify(changed(visible.document, *path, to=to, seal=False))
    assert "the file was changed after" in failures(untouched)["certificate"] or path == ("format",)


@pytest.mark.parametrize(
    ("path", "check", "words"),
    [
        (("cohorts", 0, "events", 0), "events by cohort", "cohort 0 lists other events"),
        (("cohorts", 2), "events by cohort", "cohorts are missing"),
        (("ledger", "entries", 1), "releases", "phase-0/training was committed and never reser"),
        (("ledger", "entries", 2), "releases", "phase-0/training was reserved and never"),
        (("ledger", "entries", -1), "ledger entries", "entries are missing"),
        (("ledger", "entries", -2), "releases", "phase-2/training was reserved and never"),
        (("ledger", "entries", -1, "body", "releases", 0), "releases", "ended with other releases"),
        (("ledger", "entries", 0), "ledger entries", "holds 0 plans"),
    ],
)
def test_what_is_left_out_is_missed(visible, path, check, words):
    found = failures(verify(changed(visible.document, *path, drop=True)))
    assert words in found.get(check, ""), found


def places(value, path=()):
    """Every place of a JSON value, the whole first."""
    yield path
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def others(value):
    """What may stand in the place of a value: something else, or something like it."""
    found = [None, True, "x", 0, -1, 0.5, [], {}]
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Figures are compared as numbers; closer than the accountants agree is no edit.
        found += [value * 2 + 1, value - 0.5, value + 1]
    if isinstance(value, str):
        found += [value + "0", value[1:], value.upper()]
    if isinstance(value, dict):
        found += [{**value, "more": 1}]
    if isinstance(value, list) and value:
        found += [value[1:], value[:-1], [*value, value[-1]], value[::-1]]
    return found


@settings(max_examples=150, deadline=None)
@given(where=st.integers(0, 10**6), what=st.integers(0, 10**6), drop=st.booleans())
def test_any_single_edit_is_found(visible, where, what, drop):
    """A value replaced, a key dropped or added, a list cut or reordered, anywhere.

    Also by somebody who computes the certificate's own digest again.
    """
    document = visible.document
    _, *paths = places(document)
    path = paths[where % len(paths)]
    instead = others(at(document, path))
    if drop:
        edited = changed(document, *path, drop=True, seal=False)
    else:
        edited = changed(document, *path, to=lambda _: instead[what % len(instead)], seal=False)
    assume(canonical_json(edited) != canonical_json(document))
    assert refuted(verify(edited)), path
    if path[0] not in (*INFORMATIVE, "digest"):
        assert refuted(verify(sealed_certificate(edited))), path


def test_what_is_informative_is_found_by_the_seal_alone(visible):
    assert INFORMATIVE == ("versions",)
    edited = changed(visible.document, "versions", "dpal", to="9", seal=False)
    assert set(failures(verify(edited))) == {"certificate"}
    assert not refuted(verify(sealed_certificate(edited)))
