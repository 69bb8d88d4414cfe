"""Pages and exports that show a ledger: whose they are, and that they are as they were signed."""

from __future__ import annotations

import json
import shutil

import pytest

from dpal.canonical import canonical_json, file_digest
from dpal.certificate.check_outcome import any_failed
from dpal.certificate.signature_trust import Trust
from dpal.certificate.signed_exports import files_in, head_of, sign_export, verify_export
from dpal.certificate.signed_statement import head_statement, sign_statement
from dpal.errors import CertificateError
from dpal.files.artifacts import signature_of
from dpal.ledger.export_table import export_ledger
from dpal.ledger.signing_key import SigningKey
from tests.certificate.certifying import failures
from tests.flows.calling import call, sentence


@pytest.fixture
def export(visible, tmp_path):
    """A ledger's export, and its signature beside it."""
    path = tmp_path / "ledger.csv"
    export_ledger(visible.entries, path)
    files = {path.name: file_digest(path)}
    signature_of(path).write_text(sign_export(head_of(visible.entries), files, visible.signer))
    return path


@pytest.fixture
def trust(visible):
    return Trust(keys={visible.key: "the owner"}, exclusive=True)


def verified(visible, export, trust, **others):
    files = {export.name: file_digest(export)}
    return verify_export(signature_of(export).read_text(), files, trust, **others)


def test_it_is_the_owners_and_shows_this_ledger(visible, export, trust):
    assert files_in(signature_of(export).read_text()) == ["ledger.csv"]
    checks, author = verified(visible, export, trust, ledger=visible.entries)
    assert not any_failed(checks) and author.known
    assert not verified(visible, export, Trust())[1].known


def test_a_longer_ledger_still_has_what_is_shown_and_a_shorter_one_has_not(visible, export, trust):
    earlier = visible.entries[:-2]
    text = sign_export(head_of(earlier), {}, visible.signer)
    assert not any_failed(verify_export(text, {}, trust, ledger=visible.entries)[0])
    checks, _ = verified(visible, export, trust, ledger=earlier)
    assert "it is an older copy" in failures(checks)["ledger"]


def test_a_changed_or_missing_file_is_named(visible, export, trust):
    text = signature_of(export).read_text()
    assert "not beside" in failures(verify_export(text, {}, trust)[0])["files"]
    export.write_text(export.read_text().replace("hold", "held", 1))
    assert "changed after" in failures(verified(visible, export, trust)[0])["files"]


def test_another_key_or_ledger_is_refused(visible, export, trust, tmp_path):
    forger = SigningKey(tmp_path / "forger")
    text = sign_export(head_of(visible.entries), {}, forger)
    assert "author" in failures(verify_export(text, {}, trust)[0])
    found = failures(verify_export(text, {}, Trust(), ledger=visible.entries)[0])
    assert "nor adopted" in found["author"]
    other = [visible.entries[1], *visible.entries[1:]]
    assert "ledger" in failures(verified(visible, export, trust, ledger=other)[0])


CHANGES = {
    "another head": lambda said: said["predicate"]["ledger"].update(head="f" * 64),
    "no such number": lambda said: said["predicate"]["ledger"].update(sequence="12"),
    "no ledger": lambda said: said["predicate"].pop("ledger"),
    "more": lambda said: said.update(audited=True),
    "more about a file": lambda said: said["subject"][0].update(uri="https://example.org"),
    "no subject": lambda said: said.update(subject=[]),
    "another type": lambda said: said.update(predicateType="urn:x-dpal:certificate:1"),
    "no such subject": lambda said: said.update(subject=["ledger.csv", "entry"]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_statement_that_is_none_of_ours_is_refused_whoever_signed(visible, export, trust, change):
    files = {export.name: file_digest(export)}
    statement = head_statement(head_of(visible.entries), files, visible.key)
    statement = json.loads(canonical_json(statement))
    change(statement)
    assert any_failed(verify_export(sign_statement(statement, visible.signer), files, trust)[0])


def test_the_command_finds_the_signature_beside_the_file(visible, export):
    for named in (export, signature_of(export)):
        arguments = ["verify", str(named), "--ledger", str(visible.file)]
        known = call(*arguments, "--key", visible.key)
        assert known.returncode == 0, known
        last = known.stdout.splitlines()[-1]
        assert last.startswith("ok: ")
        assert "signed head" in last and "ok: the signed head of a ledger; signed by" in last
        assert call(*arguments).returncode == 3
    content = json.loads(call("verify", str(export), "--json").stdout)
    assert (content["verified"], content["consistent"]) == (False, True)
    export.write_text("another")
    assert call("verify", str(export), "--key", visible.key).returncode == 1


def test_what_has_no_signature_is_said(export):
    signature_of(export).unlink()
    assert "is not signed" in sentence(call("verify", str(export)))
    signature_of(export).write_text("{}")
    assert "signature that" in sentence(call("verify", str(export)))
    with pytest.raises(CertificateError, match="no signature"):
        files_in("{}")


def test_a_strangers_statement_names_no_file_elsewhere(visible, tmp_path):
    """Names are those of files beside the signature, whatever path they pretend to have."""
    secret = tmp_path / "secret.txt"
    secret.write_text("private")
    place = tmp_path / "export"
    place.mkdir()
    text = sign_export(
        head_of(visible.entries), {"../secret.txt": file_digest(secret)}, visible.signer
    )
    (place / "ledger.dsse.json").write_text(text)
    result = call("verify", str(place / "ledger.dsse.json"), "--key", visible.key)
    assert result.returncode == 1
    assert "beside its" in result.stdout
    shutil.rmtree(place)
