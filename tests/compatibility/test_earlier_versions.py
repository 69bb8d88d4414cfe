"""What earlier versions wrote is read, verified and charged as it was then."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from dpal.accounting.events import from_record, to_record
from dpal.canonical import canonical_json
from dpal.certificate.check_against import Model
from dpal.certificate.check_outcome import CheckOutcome
from dpal.certificate.dsse import public_key_from
from dpal.certificate.read_and_seal import parse_entry, read_certificate
from dpal.certificate.signature_trust import Trust, author_of
from dpal.certificate.verify import verify_certificate
from dpal.data.labeling_state import (
    RETIRED,
    cohort_column,
    labels_of,
    read_labels,
    read_retired,
    read_selection,
)
from dpal.errors import ParameterError
from dpal.ledger.campaign_account import campaign_account
from dpal.ledger.entries import EntryKind
from dpal.ledger.export_table import export_ledger
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.release_json import release_of, release_record
from tests.certificate.certifying import failures
from tests.compatibility import make
from tests.ledger.raw import fill, rows

VERSIONS = sorted(costs.parent for costs in Path(__file__).parent.glob("*/costs.json"))
SAME: dict[str, Any] = {"rel": 1e-6, "abs": 1e-9}  # another processor's transforms differ by less


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def earlier(request) -> Path:
    return request.param


@pytest.fixture
def costs(earlier):
    return json.loads((earlier / "costs.json").read_text(encoding="utf-8"))


@pytest.fixture
def store(earlier, tmp_path):
    """The ledger, copied: to open one is to write into its header."""
    shutil.copy(earlier / "ledger.sqlite", tmp_path)
    with closing(LedgerStore(tmp_path / "ledger.sqlite", create=False)) as opened:
        yield opened


def same(found: object, told: object) -> None:
    """Asserts that two JSON values are equal, numbers up to rounding."""
    if isinstance(told, dict):
        assert isinstance(found, dict) and set(found) == set(told)
        for key, value in told.items():
            same(found[key], value)
    elif isinstance(told, list):
        assert isinstance(found, list) and len(found) == len(told)
        for ours, value in zip(found, told, strict=True):
            same(ours, value)
    elif isinstance(told, float):
        assert found == approx(told, **SAME)
    else:
        assert found == told


def test_there_is_something_of_an_earlier_version():
    assert VERSIONS


def test_every_event_is_read_written_and_charged_as_it_was(costs):
    for told in costs["events"]:
        # In the same order, too: the ledger's canonical JSON sorts, what people see does not.
        assert list(to_record(from_record(told["record"])).items()) == list(told["record"].items())
        same(make.costs_of_event(told["record"]), told)


def test_a_data_set_is_charged_what_it_was(costs):
    same(make.filter_charges(make.releases_of_every_event()[:6]), costs["charges"])


def test_the_ledger_opens_and_its_campaigns_have_spent_what_they_had(store, costs):
    assert {entry.kind for entry in store.entries()} == set(EntryKind)
    same(make.costs_of_ledger(store), costs["ledger"])


def test_every_charge_in_the_ledger_is_written_as_it_stands(store):
    reserved = [entry for entry in store.entries() if entry.kind is EntryKind.RESERVE]
    mechanisms = set()
    for entry in reserved:
        written = release_record(release_of(entry))
        assert canonical_json(written["charges"]) == canonical_json(entry.body["charges"])
        mechanisms |= {charge["event"]["mechanism"] for charge in written["charges"]}
    assert mechanisms == {record["mechanism"] for record in make.RECORDS}


def test_a_mechanism_of_a_later_version_is_refused(store, tmp_path):
    """What it costs is not known here, so its campaign has no account and releases nothing."""
    (held,) = [entry for entry in store.entries(make.EVERY_EVENT) if entry.kind is EntryKind.HOLD]
    body = json.loads(canonical_json(held.body).replace("noisy_moments", "noisier_moments"))
    with closing(LedgerStore(tmp_path / "ledger.sqlite")) as later:
        later.append(campaign="later", kind=EntryKind.HOLD, release="", body=body)
        with pytest.raises(ParameterError, match="'noisier_moments' is unknown"):
            campaign_account(later.verified(), "later")


def test_the_ledger_grows_and_stays_one_chain(store, tmp_path):
    before = rows(tmp_path / "ledger.sqlite")
    with closing(LedgerStore(tmp_path / "ledger.sqlite")) as grown:
        fill(grown, "new")
        assert [entry.sequence for entry in grown.verified()] == list(range(1, len(before) + 2))
    assert rows(tmp_path / "ledger.sqlite")[:-1] == before


def test_the_ledger_is_exported(store, tmp_path):
    for name in ("ledger.parquet", "ledger.csv"):
        export_ledger(store.entries(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0


def test_certificates_verify_with_their_ledgers_models_and_signatures(earlier):
    folder = earlier / "certificates"
    names = [path.name.removesuffix(".pem") for path in folder.glob("*.pem")]
    assert len(names) == 7  # one of every kind
    for name in names:
        document = read_certificate((folder / f"{name}.json").read_text(encoding="utf-8"))
        lines = (folder / f"{name}.ledger.jsonl").read_text(encoding="utf-8").splitlines()
        model = folder / f"{name}.safetensors"
        checks = verify_certificate(
            document,
            ledger=[parse_entry(json.loads(line)) for line in lines] or None,
            model=Model.at(model) if model.is_file() else None,
        )
        assert failures(checks) == {}, name
        key = public_key_from((folder / f"{name}.pem").read_text(encoding="utf-8"))
        signature = (folder / f"{name}.dsse.json").read_text(encoding="utf-8")
        author = author_of(document, signature, Trust(keys={key: "owner"}))
        assert author.check.outcome is CheckOutcome.OK, (name, author.check.detail)
        assert author.known


def test_a_changed_certificate_does_not_verify(earlier):
    """The test above can fail."""
    text = (earlier / "certificates" / "campaign.json").read_text(encoding="utf-8")
    tag = "poisson_subsampled_gaussian"
    assert failures(verify_certificate(read_certificate(text.replace(tag, "subsampled_gaussian"))))


def test_the_files_of_a_phase_are_read(earlier):
    files = earlier / "artifacts"
    assert read_selection(files / "selection.parquet") == list(make.LABELS)
    assert read_retired(files / "selection.parquet") == ["r-00006"]
    assert read_labels(files / "labels.parquet") == make.LABELS
    assert labels_of(files / "pool.parquet") == make.LABELS
    assert (cohort_column(files / "pool.parquet") == RETIRED).sum() == 1
