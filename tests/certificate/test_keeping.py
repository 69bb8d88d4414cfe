"""Writing a certificate and its signature: once, together, and by whoever may."""

from __future__ import annotations

import json

import pytest

from dpal.canonical import plain
from dpal.certificate.make_campaign_certificate import certificate_of
from dpal.certificate.read_and_seal import read_certificate
from dpal.certificate.signature_trust import Trust, author_of
from dpal.config.runtime import RuntimeConfig
from dpal.files.artifacts import CampaignFolder, signature_of
from dpal.runs.write_certificate import keep_certificate, sign_files


@pytest.fixture
def kept(visible, tmp_path):
    """Writes the certificate of the finished campaign, as anybody with the ledger would."""

    def keep(*, anchors=None, dpal="1"):
        runtime = RuntimeConfig(
            artifacts=tmp_path / "artifacts", anchors=anchors or visible.signer.folder
        )
        folder = CampaignFolder(runtime.artifacts / "small")

        def certified(form):
            versions = {"dpal": dpal}
            return certificate_of(
                visible.entries, "small", plain(visible.plan), versions=versions, form=form
            )

        keep_certificate(folder, certified, runtime)
        return folder

    return keep


def known(folder, key):
    document = read_certificate(folder.certificate.read_text())
    trust = Trust(keys={key: "the owner's"}, exclusive=True)
    text = folder.signature.read_text() if folder.signature.is_file() else None
    return author_of(document, text, trust).known


def test_it_is_signed_by_the_ledgers_key_and_written_once(visible, kept):
    folder = kept()
    assert known(folder, visible.key)
    assert [one.name for one in folder.certified] == ["certificate.json", "certificate.dsse.json"]
    before = [one.stat().st_mtime_ns for one in folder.certified]
    kept(dpal="2")  # after an upgrade
    assert [one.stat().st_mtime_ns for one in folder.certified] == before
    assert read_certificate(folder.certificate.read_text())["versions"] == {"dpal": "1"}


@pytest.mark.parametrize("damage", ["", "{}", "missing"])
def test_a_signature_that_was_lost_or_damaged_is_made_again(visible, kept, damage):
    folder = kept()
    if damage == "missing":
        folder.signature.unlink()
    else:
        folder.signature.write_text(damage)
    assert not known(folder, visible.key)
    kept()
    assert known(folder, visible.key)


def test_a_machine_whose_key_the_certificate_does_not_know_keeps_the_signature(
    visible, kept, tmp_path
):
    """It may look at the campaign again; only a key of the ledger vouches for what is in it."""
    folder = kept()
    text = folder.signature.read_text()
    kept(anchors=tmp_path / "others")
    assert folder.signature.read_text() == text
    folder.signature.write_text("{}")
    kept(anchors=tmp_path / "others")
    assert not folder.signature.exists()
    assert folder.certified == [folder.certificate]


def test_pages_are_signed_where_the_ledger_knows_the_key(visible, tmp_path):
    page = tmp_path / "ledger.html"
    page.write_text("the ledger")
    runtime = RuntimeConfig(artifacts=tmp_path / "artifacts", anchors=visible.signer.folder)
    assert sign_files(visible.entries, [page], runtime, upto=3) == signature_of(page)
    content = json.loads(signature_of(page).read_text())
    assert content["payloadType"] == "application/vnd.in-toto+json"
    others = runtime.model_copy(update={"anchors": tmp_path / "others"})
    assert sign_files(visible.entries, [page], others) is None
    assert not signature_of(page).exists()  # what was said of another content is no more
    sign_files(visible.entries, [page], runtime)
    assert sign_files([], [page], runtime) is None
    assert not signature_of(page).exists()
