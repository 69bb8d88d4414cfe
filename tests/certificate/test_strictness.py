"""One strictness for every kind: the same changes are refused, whatever is certified."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpal.canonical import canonical_json
from dpal.certificate.check_against import Model
from dpal.certificate.check_outcome import CheckOutcome, any_failed
from dpal.certificate.read_and_seal import (
    INFORMATIVE,
    entry_record,
    parse_entry,
    read_certificate,
    sealed_certificate,
)
from dpal.certificate.signature_trust import Trust, author_of
from dpal.certificate.verify import verify_certificate
from dpal.errors import CertificateError
from tests.certificate.certifying import changed, failures, forged
from tests.certificate.edits import EDITS, SEAL, at, edited, lists
from tests.certificate.kinds import KINDS
from tests.variants import quick_and_slow


def is_refused(text):
    """Whether a text is no certificate, or one that fails by itself: no ledger, no signature."""
    try:
        return any_failed(verify_certificate(read_certificate(text)))
    except CertificateError:
        return True


def test_the_table_is_worth_its_name():
    assert len(EDITS) + len(SEAL) >= 80
    assert len(KINDS) == 7


def test_unchanged_every_kind_passes(certificate):
    model = None if certificate.model is None else Model.at(certificate.model)
    checks = verify_certificate(certificate.document, ledger=certificate.entries, model=model)
    assert failures(checks) == {}
    assert failures(verify_certificate(certificate.document)) == {}


@pytest.mark.parametrize(
    "certificate",
    quick_and_slow([kind for kind in KINDS if kind not in ("near", "free")], KINDS),
    indirect=True,
)
def test_every_edit_is_refused(certificate):
    """Naive ones, and those by somebody who computes the certificate's own digest again."""
    texts = {
        (name, seal): edited(certificate.document, edit, seal=seal)
        for name, edit in EDITS.items()
        for seal in (False, True)
    }
    texts |= {(name, False): edited(certificate.document, edit, seal=False)
              for name, edit in SEAL.items()}  # fmt: skip
    assert [name for name, text in texts.items() if not is_refused(text)] == []


def test_a_signature_does_not_hold_for_anything_else(certificate):
    """Whoever computes the digest again cannot sign again."""
    accepted, trust = [], Trust(keys={certificate.key: "the owner's"})
    for name, edit in EDITS.items():
        try:
            document = read_certificate(edited(certificate.document, edit, seal=True))
        except CertificateError:
            continue
        author = author_of(document, certificate.signature, trust)
        if author.known or author.check.outcome is not CheckOutcome.FAILED:
            accepted.append(name)
    assert accepted == []


def test_what_only_the_signature_finds(all_kinds):
    """An invention that fits together passes by itself, and carries nobody's signature."""
    for name, made in all_kinds.items():
        invented = changed(made.document, "versions", "dpal", to="9")
        if name in ("near", "free", "declared", "student"):
            # No entry stands for weights that were learned from public records.
            for place in ("model", "models"):
                models = invented[place] if place == "models" else [invented[place]]
                for one in models:
                    one["sha256"] = "f" * 64
            invented = sealed_certificate(invented)
        assert failures(verify_certificate(invented)) == {}, name
        trust = Trust(keys={made.key: "the owner's"})
        assert author_of(made.document, made.signature, trust).known
        author = author_of(invented, made.signature, trust)
        assert author.check.outcome is CheckOutcome.FAILED, name


def test_a_ledger_whose_chain_was_made_anew_passes_alone(all_kinds):
    """All entries a day later: only the true ledger, or the signature, tells them from the old."""
    made = all_kinds["votes"]

    def later(entry, body):
        body.update(pool="0" * 64) if entry.kind == "hold" else None

    entries = [parse_entry(one) for one in made.document["ledger"]["entries"]]
    first = parse_entry(made.document["ledger"]["opening"])
    again = forged([first, *entries], later)
    invented = json.loads(json.dumps(made.document))
    invented["ledger"]["entries"] = [entry_record(one) for one in again[1:]]
    invented["ledger"]["head"] = {"sequence": again[-1].sequence, "digest": again[-1].digest}
    invented = sealed_certificate(invented)
    assert failures(verify_certificate(invented)) == {}
    assert set(failures(verify_certificate(invented, ledger=made.entries))) == {"ledger"}
    author = author_of(invented, made.signature, Trust())
    assert author.check.outcome is CheckOutcome.FAILED


def places(value, path=()):
    """Every place of a JSON value, the whole first."""
    yield path
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, key))


def others(value):
    """What may stand in the place of a value: something else, or something like it."""
    found: list[object] = [None, True, "x", 0, -1, 0.5, [], {}]
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


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    where=st.integers(0, 10**6),
    what=st.integers(0, 10**6),
    drop=st.booleans(),
)
def test_any_single_edit_is_found(all_kinds, kind, where, what, drop):
    """A value replaced, a key dropped or added, a list cut or reordered, anywhere.

    Also by somebody who computes the certificate's own digest again.
    """
    document = all_kinds[kind].document
    _, *paths = places(document)
    path = paths[where % len(paths)]
    instead = others(at(document, path))
    if drop:
        edited = changed(document, *path, drop=True, seal=False)
    else:
        edited = changed(document, *path, to=lambda _: instead[what % len(instead)], seal=False)
    assume(canonical_json(edited) != canonical_json(document))
    assert any_failed(verify_certificate(edited)), path
    if path[0] not in (*INFORMATIVE, "digest"):
        assert any_failed(verify_certificate(sealed_certificate(edited))), path


def test_what_is_informative_is_found_by_the_seal_and_the_signature_alone(certificate):
    assert INFORMATIVE == ("versions",)
    edited = changed(certificate.document, "versions", "dpal", to="9", seal=False)
    assert set(failures(verify_certificate(edited))) == {"certificate"}
    assert not any_failed(verify_certificate(sealed_certificate(edited)))


@pytest.mark.parametrize("kind", ["campaign", "near", "votes"])
def test_two_entries_that_changed_places_are_found(all_kinds, kind):
    """Each is as it was written; only their order is not."""
    document = json.loads(json.dumps(all_kinds[kind].document))
    listed = document["ledger"]["entries"]
    listed[1], listed[2] = listed[2], listed[1]
    assert (
        "of order" in failures(verify_certificate(sealed_certificate(document)))["ledger entries"]
    )


def test_lists_of_a_document_are_all_found():
    assert list(lists({"a": [1, [2]], "b": {"c": []}})) == [[1, [2]], [2], []]
