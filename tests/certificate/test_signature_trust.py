"""Who wrote a certificate: signatures by the ledger's key, forgeries, and other implementations."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from dpal.canonical import canonical_json
from dpal.certificate.check_outcome import CheckOutcome
from dpal.certificate.dsse import (
    as_pem,
    fingerprint,
    pre_authentication_encoding,
    public_key_from,
    read_envelope,
    signed_envelope,
)
from dpal.certificate.read_and_seal import sealed_certificate
from dpal.certificate.signature_trust import Trust, author_of, ledger_keys
from dpal.certificate.signed_statement import (
    CERTIFICATE,
    PAYLOAD_TYPE,
    certificate_statement,
    read_statement,
    sign_statement,
)
from dpal.certificate.verify import verify_certificate
from dpal.errors import CertificateError, ParameterError
from dpal.ledger.ledger_store import LedgerStore
from dpal.ledger.signing_key import SigningKey
from tests.certificate.certifying import certified, failures, forged, opened, plan_of, run


@pytest.fixture
def trust(certificate):
    return Trust(keys={certificate.key: "the owner"}, exclusive=True)


def outcome(author):
    return author.check.outcome


def test_the_owner_is_known_by_the_key_and_by_nothing_else(certificate, trust, tmp_path):
    document, signature = certificate.document, certificate.signature
    author = author_of(document, signature, trust, ledger=certificate.entries or None)
    assert (author.known, author.key) == (True, certificate.key)
    assert fingerprint(certificate.key) in author.check.detail
    nobody = author_of(document, signature, Trust())
    assert (nobody.known, outcome(nobody), nobody.key) == (
        False,
        CheckOutcome.UNCHECKED,
        certificate.key,
    )
    other = SigningKey(tmp_path).public_key()
    named = author_of(document, signature, Trust(keys={other: "another"}, exclusive=True))
    assert (named.known, outcome(named)) == (False, CheckOutcome.FAILED)
    shown = author_of(document, signature, Trust(keys={other: "another"}))
    assert (shown.known, outcome(shown)) == (False, CheckOutcome.UNCHECKED)


def test_a_forger_with_a_ledger_of_his_own_stays_unknown(visible, tmp_path):
    """Everything is made anew around a file, and signed: it passes, by nobody's key."""
    _, entries = run(tmp_path, visible.plan)
    document, signer = certified(entries, visible.plan), SigningKey(tmp_path / "anchors")
    signature = sign_statement(certificate_statement(document, signer.public_key()), signer)
    assert failures(verify_certificate(document, ledger=entries)) == {}
    assert outcome(author_of(document, signature, Trust())) is CheckOutcome.UNCHECKED
    owner = Trust(keys={visible.key: "the owner"}, exclusive=True)
    assert outcome(author_of(document, signature, owner)) is CheckOutcome.FAILED


def test_a_forger_who_names_the_owners_key_cannot_sign(visible, tmp_path):
    """The true ledger's first entry, and a statement that names its key."""
    forger = SigningKey(tmp_path)
    as_owner = certificate_statement(visible.document, visible.key)
    author = author_of(visible.document, sign_statement(as_owner, forger), Trust())
    assert outcome(author) is CheckOutcome.FAILED
    assert "it was altered" in author.check.detail
    own = certificate_statement(visible.document, forger.public_key())
    author = author_of(visible.document, sign_statement(own, forger), Trust())
    assert "nor adopted" in author.check.detail


def turned(text, *path):
    """The envelope with one bit of a part turned."""
    content = json.loads(text)
    place = content
    for key in path[:-1]:
        place = place[key]
    raw = bytearray(base64.b64decode(place[path[-1]]))
    raw[len(raw) // 2] ^= 1
    place[path[-1]] = base64.b64encode(bytes(raw)).decode()
    return json.dumps(content)


def without(text, *path):
    content = json.loads(text)
    place = content
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return json.dumps(content)


BROKEN = {
    "nothing": lambda text: "",
    "no JSON": lambda text: "signed",
    "a list": lambda text: "[]",
    "cut short": lambda text: text[:-20],
    "a key twice": lambda text: text.replace('"payload"', '"payload": "", "payload"', 1),
    "no signature": lambda text: json.dumps({**json.loads(text), "signatures": []}),
    "other signatures": lambda text: json.dumps({**json.loads(text), "signatures": 5}),
    "an empty signature": lambda text: json.dumps(
        {**json.loads(text), "signatures": [{"keyid": "", "sig": ""}]}
    ),
    "a signature with odd letters": lambda text: json.dumps(
        {**json.loads(text), "signatures": [{"sig": "!"}]}
    ),
    "a signature with one bit turned": lambda text: turned(text, "signatures", 0, "sig"),
    "a payload with one bit turned": lambda text: turned(text, "payload"),
    "no payload": lambda text: without(text, "payload"),
    "no type": lambda text: without(text, "payloadType"),
    "another type": lambda text: json.dumps({**json.loads(text), "payloadType": "text/plain"}),
    "a type that is a number": lambda text: json.dumps({**json.loads(text), "payloadType": 1}),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_an_envelope_that_was_changed_is_refused(visible, change):
    trust = Trust(keys={visible.key: "the owner"})
    author = author_of(visible.document, change(visible.signature), trust)
    assert (author.known, outcome(author)) == (False, CheckOutcome.FAILED)


SAYS = {
    "another type of statement": lambda said: said.update(_type="https://in-toto.io/Statement/v0"),
    "another predicate": lambda said: said.update(predicateType="urn:x-dpal:ledger-head:1"),
    "more": lambda said: said.update(audited=True),
    "more in the predicate": lambda said: said["predicate"].update(audited=True),
    "no subject": lambda said: said.update(subject=[]),
    "another model": lambda said: said["subject"][0]["digest"].update(sha256="f" * 64),
    "another head": lambda said: said["predicate"]["ledger"].update(head="f" * 64),
    "another promise": lambda said: said["predicate"]["promise"].update(epsilon=0.1),
    "another certificate": lambda said: said["predicate"].update(certificate="f" * 64),
    "no key": lambda said: said["predicate"].pop("key"),
    "no such key": lambda said: said["predicate"].update(key="z" * 64),
    "no predicate": lambda said: said.pop("predicate"),
}


@pytest.mark.parametrize("change", SAYS.values(), ids=SAYS)
def test_a_statement_that_says_something_else_is_refused_although_the_owner_signed(visible, change):
    statement = json.loads(canonical_json(certificate_statement(visible.document, visible.key)))
    change(statement)
    trust = Trust(keys={visible.key: "the owner"})
    author = author_of(visible.document, sign_statement(statement, visible.signer), trust)
    assert (author.known, outcome(author)) == (False, CheckOutcome.FAILED)


def test_a_signature_of_one_certificate_holds_for_no_other(visible):
    other = sealed_certificate({**visible.document, "versions": {"dpal": "9"}})
    trust = Trust(keys={visible.key: "the owner"})
    assert outcome(author_of(other, visible.signature, trust)) is CheckOutcome.FAILED


def test_a_second_signature_counts_where_its_key_is_trusted(visible, tmp_path):
    """Somebody else vouches as well: an auditor, say."""
    auditor = SigningKey(tmp_path)
    statement = certificate_statement(visible.document, visible.key)
    own, theirs = (json.loads(sign_statement(statement, one)) for one in (visible.signer, auditor))
    both = json.dumps({**own, "signatures": [*own["signatures"], *theirs["signatures"]]})
    trust = Trust(keys={auditor.public_key(): "the auditor's key"}, exclusive=True)
    author = author_of(visible.document, both, trust)
    assert (author.known_as, author.key) == ("the auditor's key", auditor.public_key())
    assert not author_of(visible.document, json.dumps(theirs), trust).known


def test_a_machine_that_adopted_the_ledger_signs_what_it_wrote(tmp_path):
    """The adoption is in the certificate, so that the key is known without the ledger."""
    plan = plan_of("visible")
    run(tmp_path, plan, campaign="other")
    first = SigningKey(tmp_path / "anchors").public_key()
    shutil.move(tmp_path / "anchors", tmp_path / "former")
    store = opened(tmp_path)
    store.adopt(reason="moved to another machine")
    store.close()
    _, entries = run(tmp_path, plan)
    signer, document = SigningKey(tmp_path / "anchors"), certified(entries, plan)
    assert [one["body"]["reason"] for one in document["ledger"]["adoptions"]] == [
        "moved to another machine"
    ]
    assert ledger_keys(document) == {first, signer.public_key()}
    assert failures(verify_certificate(document, ledger=entries)) == {}
    signature = sign_statement(certificate_statement(document, signer.public_key()), signer)
    trust = Trust(keys={signer.public_key(): "the second machine"}, exclusive=True)
    assert author_of(document, signature, trust).known

    forgotten = json.loads(json.dumps(document))
    forgotten["ledger"]["adoptions"] = []
    forgotten = sealed_certificate(forgotten)
    assert failures(verify_certificate(forgotten)) == {}
    assert "vouched" in failures(verify_certificate(forgotten, ledger=entries))["ledger"]
    again = sign_statement(certificate_statement(forgotten, signer.public_key()), signer)
    assert outcome(author_of(forgotten, again, trust)) is CheckOutcome.FAILED
    assert author_of(forgotten, again, trust, ledger=entries).known  # the ledger knows it

    invented = json.loads(json.dumps(document))
    invented["ledger"]["adoptions"][0]["body"]["key"] = "f" * 64
    found = failures(verify_certificate(sealed_certificate(invented)))
    assert "was altered" in found["ledger entries"]


def test_a_later_adoption_does_not_change_the_certificate(visible, tmp_path):
    """A campaign that is run again, after somebody vouched for its ledger, keeps it."""
    shutil.copy(visible.file, tmp_path / "ledger.sqlite")
    store = LedgerStore(tmp_path / "ledger.sqlite", anchors=tmp_path / "others")
    store.adopt(reason="restored")
    entries = store.verified()
    store.close()
    assert certified(entries, visible.plan) == visible.document


def test_the_payload_type_is_signed_as_the_specification_says():
    # The test vector of the protocol, and lengths in bytes.
    assert pre_authentication_encoding("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert pre_authentication_encoding("é", b"\n") == b"DSSEv1 2 \xc3\xa9 1 \n"


def test_an_anchor_can_never_pass_for_an_envelope(tmp_path):
    with pytest.raises(ParameterError, match="an anchor"):
        SigningKey(tmp_path).sign(b'{"identity": "0"}')


def test_keys_are_read_as_digits_and_as_pem(visible):
    assert public_key_from(visible.key) == public_key_from(f" {visible.key.upper()}\n")
    assert public_key_from(as_pem(visible.key)) == visible.key
    for wrong in ("", "own", visible.key[:-1], "-----BEGIN PUBLIC KEY-----\nxx", "z" * 64):
        with pytest.raises(CertificateError, match="no Ed25519 public key"):
            public_key_from(wrong)
    of_another_kind = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEKqGbo5Wc4TfTb1m5sIphPNVZLz0e
-----END PUBLIC KEY-----"""
    with pytest.raises(CertificateError, match="no Ed25519 public key"):
        public_key_from(of_another_kind)


def test_another_implementation_accepts_our_envelope_and_refuses_a_changed_one(certificate):
    """securesystemslib, which TUF and in-toto sign with."""
    key = SSlibKey("owner", "ed25519", "ed25519", {"public": certificate.key})
    theirs = TheirEnvelope.from_dict(
        {
            **json.loads(certificate.signature),
            "signatures": [
                {**one, "keyid": "owner"} for one in json.loads(certificate.signature)["signatures"]
            ],
        }
    )
    assert set(theirs.verify([key], 1)) == {"owner"}
    theirs.payload += b" "
    with pytest.raises(VerificationError):
        theirs.verify([key], 1)


def test_our_reader_accepts_the_envelope_of_another_implementation(visible):
    private = Ed25519PrivateKey.generate()
    signer = CryptoSigner(private)
    payload = canonical_json(certificate_statement(visible.document, visible.key)).encode()
    theirs = TheirEnvelope(payload, PAYLOAD_TYPE, {})
    theirs.sign(signer)
    read = read_envelope(json.dumps(theirs.to_dict()))
    public = private.public_key().public_bytes_raw().hex()
    assert (read.payload, read.payload_type) == (payload, PAYLOAD_TYPE)
    assert read.signers([public, visible.key]) == {public}


def test_another_implementation_reads_our_statement(certificate):
    """in-toto's own library: a statement of version 1, whose subjects have digests."""
    _, statement = read_statement(certificate.signature)
    subjects = [
        ResourceDescriptor(name=one["name"], digest=one["digest"]).pb
        for one in statement["subject"]
    ]
    theirs = Statement(subjects, statement["predicateType"], statement["predicate"])
    theirs.validate()
    assert theirs.pb.type == statement["_type"]
    assert theirs.pb.predicate_type == CERTIFICATE
    files = [one["file"] for one in certificate.document.get("models", [])]
    head = certificate.document["ledger"]["head"]
    entry = [f"ledger entry {head['sequence']}"] if head["sequence"] else []
    assert [one.name for one in theirs.pb.subject] == [*files, *entry]


def test_the_same_statement_gives_the_same_envelope(visible):
    assert visible.signature == visible.signature
    payload = canonical_json(certificate_statement(visible.document, visible.key)).encode()
    assert signed_envelope(PAYLOAD_TYPE, payload, visible.signer) == visible.signature


def test_times_in_the_ledger_are_covered_by_the_signature(visible):
    """What agrees with itself under another history is another certificate."""

    def earlier(entry, body):
        return None

    moved = [replace(one, recorded_at="2000-01-01T00:00:00.000+00:00") for one in visible.entries]
    document = certified(forged(moved, earlier), visible.plan)
    assert failures(verify_certificate(document)) == {}
    assert outcome(author_of(document, visible.signature, Trust())) is CheckOutcome.FAILED
