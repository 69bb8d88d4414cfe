"""A certificate that is true passes; one in which anything was changed does not."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from dpal.accounting.events import NEVER_SELECTED
from dpal.certificate.check_against import Model, PoolCommitment, tags_of
from dpal.certificate.check_outcome import CheckOutcome, any_failed
from dpal.certificate.read_and_seal import (
    entry_digest,
    parse_entry,
    read_certificate,
    to_text,
)
from dpal.certificate.verify import verify_certificate
from dpal.errors import CertificateError
from dpal.ledger.entries import EntryKind
from tests.certificate.certifying import (
    POOL,
    SALT,
    asserted,
    certified,
    failures,
    forged,
    outcome,
    plan_of,
    run,
)


def everything(campaign):
    """All that a certificate can be held against."""
    weights = campaign.place / "small" / campaign.document["model"]["file"]
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    return {
        "ledger": campaign.entries,
        "model": Model(sha256=sha256, tags=tags_of(campaign.document)),
        "pool": PoolCommitment(digest=hashlib.sha256(POOL).hexdigest(), salt=SALT),
    }


def test_a_true_certificate_passes_every_check(campaign):
    checks = verify_certificate(campaign.document, **everything(campaign))
    assert failures(checks) == {}
    unchecked = [one.name for one in checks if one.outcome is CheckOutcome.UNCHECKED]
    assert unchecked == ["other campaigns"]
    assert len(checks) == 14


def test_alone_it_says_what_it_could_not_check(campaign):
    checks = verify_certificate(campaign.document)
    assert failures(checks) == {}
    unchecked = {one.name: one.detail for one in checks if one.outcome is CheckOutcome.UNCHECKED}
    assert set(unchecked) == {"ledger", "model", "pool's file", "other campaigns"}
    assert "summed" in unchecked["other campaigns"]


def test_it_says_everything_that_an_epsilon_needs(campaign):
    document = campaign.document
    assert document["promise"] == {
        "epsilon": 8.0,
        "delta": 1 / 6000,
        "adjacency": "zero_out",
        "unit": "record",
        "accountant": "pld",
    }
    assert document["selection"]["mode"] in ("hidden", "visible", "paper")
    assert [one["planned_size"] for one in document["cohorts"]] == [100, 200, 200, 100]
    assert document["cohorts"][-1]["cohort"] == NEVER_SELECTED
    assert 7.9 < document["epsilon"]["pld"] <= 8 < document["epsilon"]["rdp"]
    assert [one["file"] for one in document["models"]] == [
        f"phase-{index}/model.safetensors" for index in range(3)
    ]
    assert {f"R{number}" for number in range(1, 11)} == set(document["assumptions"])


def test_neither_salt_nor_file_digest_of_the_pool_is_in_it(campaign):
    text = to_text(campaign.document)
    assert campaign.document["pool"]["commitment"] in text
    for secret in (SALT.decode(), SALT.hex(), hashlib.sha256(POOL).hexdigest()):
        assert secret not in text


def test_random_selection_is_certified_as_such(tmp_path):
    plan = plan_of("visible", acquisition="random")
    _, entries = run(tmp_path, plan)
    document = certified(entries, plan)
    assert document["selection"]["mode"] == "random"
    assert document["cohorts"][-1]["events"] == []
    assert failures(verify_certificate(document, ledger=entries)) == {}


def cheaper(entry, body):
    """Less is charged, everywhere: an epsilon of its own, and lower."""
    if entry.kind in (EntryKind.HOLD, EntryKind.RESERVE) and entry.campaign == "small":
        for release in body.get("releases", [body]):
            for charge in release["charges"]:
                if "steps" in charge["event"]:
                    charge["event"]["steps"] = 1


def test_an_invention_that_charges_less_than_its_plan_does_is_found(visible):
    invented = certified(forged(visible.entries, cheaper), visible.plan)
    assert invented["epsilon"]["pld"] < visible.document["epsilon"]["pld"] - 0.1
    found = failures(verify_certificate(invented))
    assert "cohort 0 and does" in found["plan"]


def test_only_the_ledger_shows_an_invention_that_fits_together(visible):
    def relabeled(entry, body):
        if entry.kind is EntryKind.COMMIT and entry.campaign == "small":
            body["artifacts"] = dict.fromkeys(body["artifacts"], "0" * 64)

    invented = certified(forged(visible.entries, relabeled), visible.plan)
    alone = verify_certificate(invented)
    assert failures(alone) == {}
    assert outcome(alone, "ledger") is CheckOutcome.UNCHECKED
    assert (
        "is another one in the ledger"
        in failures(verify_certificate(invented, ledger=visible.entries))["ledger"]
    )


def test_releases_that_the_plan_does_not_cover_are_found(tmp_path, visible):
    """A planner with a bug: what it does to the never-selected is not charged to them."""
    releases = [
        replace(
            release,
            charges=tuple(
                replace(one, cohorts=tuple(set(one.cohorts) - {NEVER_SELECTED}))
                for one in release.charges
            ),
        )
        for release in visible.plan.releases()
    ]
    _, entries = run(tmp_path, visible.plan, releases=releases)
    found = failures(verify_certificate(certified(entries, visible.plan), ledger=entries))
    assert set(found) == {"plan"}
    assert "from cohort never_selected" in found["plan"]


def test_a_campaign_that_goes_on_is_not_certified(tmp_path, visible):
    _, entries = run(tmp_path, visible.plan, stop_after=3, end=False)
    found = failures(verify_certificate(certified(entries, visible.plan)))
    assert "held plan" in found["releases"]


def test_a_campaign_that_ended_early_is_certified_for_what_it_released(tmp_path, visible):
    _, entries = run(tmp_path, visible.plan, stop_after=3)
    document = certified(entries, visible.plan)
    assert failures(verify_certificate(document, ledger=entries)) == {}
    assert len(document["models"]) == 2
    assert document["cohorts"][2]["events"] == visible.document["cohorts"][2]["events"][:2]


def test_a_promise_that_the_events_break_is_said(tmp_path, visible):
    target = replace(visible.plan.spec.target, epsilon=4.0)
    plan = replace(visible.plan, spec=replace(visible.plan.spec, target=target))
    with pytest.raises(Exception, match="could take"):
        run(tmp_path, plan)  # the ledger refuses it first
    loose = forged(visible.entries, _promising(4.0))
    with pytest.raises(CertificateError, match="4 was promised"):
        certified(loose, visible.plan)
    found = failures(verify_certificate(asserted(loose, visible.plan)))
    assert "the plan was made for another promise" in found["plan"]
    strict = plan.digest

    def promised(entry, body):
        _promising(4.0)(entry, body)
        if entry.kind is EntryKind.HOLD and entry.campaign == "small":
            body["plan"] = strict

    found = failures(verify_certificate(asserted(forged(visible.entries, promised), plan)))
    assert "4 promised" in found["promise"]


def _promising(epsilon):
    def change(entry, body):
        if entry.kind is EntryKind.HOLD and entry.campaign == "small":
            body["epsilon"] = epsilon

    return change


def test_a_ledger_with_more_than_the_certificate_is_refused(visible):
    """Somebody drew again after the certificate was written."""
    last = visible.entries[-1]
    own = [entry for entry in visible.entries if entry.campaign == "small"]
    more = replace(
        next(entry for entry in own if entry.kind is EntryKind.RESERVE),
        sequence=last.sequence + 1,
        release="phase-0/training#2",
        previous=last.digest,
    )
    more = replace(more, digest=entry_digest(more))
    found = failures(verify_certificate(visible.document, ledger=[*visible.entries, more]))
    assert "(reserve phase-0/training#2)" in found["ledger"]
    said = replace(more, kind=EntryKind.FORFEIT, body={})
    said = replace(said, digest=entry_digest(said))
    assert failures(verify_certificate(visible.document, ledger=[*visible.entries, said])) == {}


def test_another_or_a_broken_ledger_is_refused(tmp_path, visible):
    _, others = run(tmp_path, visible.plan)
    assert (
        "another ledger" in failures(verify_certificate(visible.document, ledger=others))["ledger"]
    )
    assert "another ledger" in failures(verify_certificate(visible.document, ledger=[]))["ledger"]
    cut = failures(verify_certificate(visible.document, ledger=visible.entries[:-1]))["ledger"]
    assert "certificate is" in cut
    altered = [*visible.entries]
    altered[2] = replace(altered[2], recorded_at="2000-01-01")
    found = failures(verify_certificate(visible.document, ledger=altered))["ledger"]
    assert "ledger entry 3 was altered" in found


def test_a_model_is_one_that_was_committed(visible):
    first = visible.document["models"][0]
    earlier = verify_certificate(visible.document, model=Model(sha256=first["sha256"]))
    assert "another phase's" in next(c.detail for c in earlier if c.name == "model")
    other = failures(verify_certificate(visible.document, model=Model(sha256="0" * 64)))["model"]
    assert "none of small's" in other


@pytest.mark.parametrize("key", sorted(tags_of({
    "promise": {"epsilon": 1, "delta": 1, "adjacency": "", "unit": ""}, "campaign": "",
    "digest": "", "ledger": {"head": {"sequence": 1, "digest": ""}}})))  # fmt: skip
def test_a_registry_tag_that_does_not_fit_is_named(visible, key):
    sha256, tags = visible.document["model"]["sha256"], tags_of(visible.document)
    for wrong in ({**tags, key: "0.1"}, {k: v for k, v in tags.items() if k != key}):
        found = failures(
            verify_certificate(visible.document, model=Model(sha256=sha256, tags=wrong))
        )
        assert f"tag {key} is" in found["model"]


@pytest.mark.parametrize("digest, salt", [(b"other", SALT), (POOL, b"t" * 32)])
def test_another_pool_or_salt_does_not_open_the_commitment(visible, digest, salt):
    pool = PoolCommitment(digest=hashlib.sha256(digest).hexdigest(), salt=salt)
    assert (
        "not the file" in failures(verify_certificate(visible.document, pool=pool))["pool's file"]
    )


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nonsense", '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 100_000],
)
def test_what_has_no_single_meaning_is_not_read(text):
    with pytest.raises(CertificateError):
        read_certificate(text)


@pytest.mark.parametrize("text", ["{}", '{"ledger": 1}', '{"ledger": {"entries": [{}]}}'])
def test_a_strangers_object_is_refused_and_breaks_nothing(text):
    assert any_failed(verify_certificate(read_certificate(text)))


def test_entries_survive_the_file(visible):
    records = visible.document["ledger"]["entries"]
    assert [parse_entry(one) for one in records] == [
        one for one in visible.entries if one.campaign == "small"
    ]
