"""Whatever is changed in a certificate is found, and the change is named."""

from __future__ import annotations

import pytest

from dpal.certificate.verify import verify_certificate
from tests.certificate.certifying import changed, failures

NOISE = ("cohorts", 0, "events", 0, "noise_multiplier")
FIRST_RESERVE = ("ledger", "entries", 1, "body", "charges", 0, "event", "noise_multiplier")


@pytest.mark.parametrize(
    ("path", "to", "check", "words"),
    [
        (("epsilon", "pld"), 3.0, "epsilon, our accountant", "stated as 3.0000"),
        (("epsilon", "pld"), 3.0, "epsilon, dp-accounting", "too little is stated"),
        (("epsilon", "rdp"), 3.0, "epsilon, dp-accounting", "too little is stated"),
        (("epsilon", "dp_accounting"), 7.0, "epsilon, our accountant", "epsilon.dp_accounting"),
        (("cohorts", 1, "epsilon_pld"), 1.0, "cohorts, dp-accounting", "cohort 1: epsilon_pld"),
        (("cohorts", 1, "epsilon_rdp"), 1.0, "cohorts, dp-accounting", "cohort 1: epsilon_rdp"),
        (("cohorts", 1, "epsilon_pld"), 9.0, "epsilon, our accountant", "cohorts.1.epsilon_pld"),
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
        (NOISE, 9.0, "events by cohort", "cohort 0 lists other"),
        (("ledger", "head", "digest"), "0" * 64, "ledger entries", "the head is not the last"),
        (("ledger", "head", "sequence"), 99, "ledger entries", "the head is not the last"),
        (("ledger", "identity"), "0" * 64, "ledger entries", "ledger's identity"),
        (("ledger", "opening"), None, "ledger entries", "first entry"),
        (FIRST_RESERVE, 9.0, "ledger entries", "was altered: its content does not match"),
        (("plan", "content", "phases", 1, "cohort_size"), 1, "plan", "whose digest"),
        (("format",), 3, "certificate", "format 3"),
    ],
)  # fmt: skip
def test_a_changed_certificate_is_refused_and_the_change_named(visible, path, to, check, words):
    found = failures(verify_certificate(changed(visible.document, *path, to=to)))
    assert words in found.get(check, ""), found
    untouched = verify_certificate(changed(visible.document, *path, to=to, seal=False))
    assert "changed after" in failures(untouched)["certificate"] or path == ("format",)


@pytest.mark.parametrize(
    ("path", "check", "words"),
    [
        (("cohorts", 0, "events", 0), "events by cohort", "cohort 0 lists other"),
        (("cohorts", 2), "events by cohort", "cohorts are missing"),
        (("ledger", "entries", 1), "releases", "phase-0/training was committed"),
        (("ledger", "entries", 2), "releases", "phase-0/training was reserved"),
        (("ledger", "entries", -1), "ledger entries", "entries are missing"),
        (("ledger", "entries", -2), "releases", "phase-2/training was reserved"),
        (("ledger", "entries", -1, "body", "releases", 0), "releases", "other releases"),
        (("ledger", "entries", 0), "ledger entries", "holds 0 plans"),
    ],
)
def test_what_is_left_out_is_missed(visible, path, check, words):
    found = failures(verify_certificate(changed(visible.document, *path, drop=True)))
    assert words in found.get(check, ""), found
