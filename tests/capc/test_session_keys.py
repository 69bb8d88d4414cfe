"""Keys of a session: alike for two parties, others for everybody else, none if told apart."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from dpal.capc.certificate_authority import PartyRole, revoke
from dpal.capc.session_keys import Sealed, _signed, agree_on_keys, greet, invite
from dpal.errors import ProtocolError
from tests.capc.parties import Authority
from tests.capc.together import terms_of

TERMS = terms_of(3)
NAMES = ("ministry", *TERMS.sites)


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    authority = Authority.made(tmp_path_factory.mktemp("keys") / "authority")
    found = {site: authority.enrolled(site, PartyRole.SITE) for site in TERMS.sites}
    return {**found, "ministry": authority.enrolled("ministry", PartyRole.QUERIER), "": authority}


def greeted(identities, invitation):
    both = {name: greet(invitation, identities[name]) for name in NAMES}
    private = {name: key for name, (key, _) in both.items()}
    return private, {name: greeting for name, (_, greeting) in both.items()}


def agreed(identities, invitation, private, greetings):
    return {name: agree_on_keys(invitation, TERMS, greetings, private[name], identities[name])
            for name in NAMES}  # fmt: skip


def test_every_two_parties_have_one_secret_that_nobody_else_has(identities):
    invitation = invite(TERMS, "ministry", TERMS.sites)
    keys = agreed(identities, invitation, *greeted(identities, invitation))
    assert len({one.transcript for one in keys.values()}) == 1
    secrets = [keys[a].secrets[b] for a, b in combinations(NAMES, 2)]
    assert [keys[b].secrets[a] for a, b in combinations(NAMES, 2)] == secrets
    assert len(set(secrets)) == len(secrets) == 6
    sealed = keys["ministry"].outgoing["site-1"].seal(b"a query")
    assert keys["site-1"].incoming["ministry"].open(sealed) == b"a query"
    with pytest.raises(ProtocolError):
        keys["site-2"].incoming["ministry"].open(sealed)


def test_no_secret_is_shown_by_what_prints_keys(identities):
    invitation = invite(TERMS, "ministry", TERMS.sites)
    keys = agreed(identities, invitation, *greeted(identities, invitation))["site-1"]
    assert "secrets" not in repr(keys) and keys.secrets["site-2"].hex() not in repr(keys)


def test_who_is_not_among_the_invited_agrees_on_no_keys(identities):
    invitation = invite(TERMS, "ministry", TERMS.sites[1:])
    private, greetings = greeted(identities, invitation)
    del greetings["site-1"]
    with pytest.raises(ProtocolError):
        agree_on_keys(invitation, TERMS, greetings, private["site-1"], identities["site-1"])


def test_another_session_has_other_keys(identities):
    """So that a process which died, and with it its keys, can only begin anew."""
    first, second = (invite(TERMS, "ministry", TERMS.sites) for _ in range(2))
    keys = [agreed(identities, one, *greeted(identities, one)) for one in (first, second)]
    assert keys[0]["site-1"].secrets["site-2"] != keys[1]["site-1"].secrets["site-2"]
    sealed = keys[0]["ministry"].outgoing["site-1"].seal(b"a query")
    with pytest.raises(ProtocolError):
        keys[1]["site-1"].incoming["ministry"].open(sealed)


def test_messages_are_refused_when_altered_repeated_left_out_or_reordered():
    def ends():
        return Sealed(bytes(32)), Sealed(bytes(32))

    one, other = ends()
    first, second = one.seal(b"first"), one.seal(b"second")
    assert (other.open(first), other.open(second)) == (b"first", b"second")
    for wrong in ((first, first), (second,), (first[:-1],), (first + b"\0",), (b"",),
                  (bytes([first[0] ^ 1]) + first[1:],)):  # fmt: skip
        _, other = ends()
        with pytest.raises(ProtocolError):
            for message in wrong:
                other.open(message)


def test_a_guardian_that_puts_a_key_of_its_own_in_between_is_found_out(identities):
    invitation = invite(TERMS, "ministry", TERMS.sites)
    private, greetings = greeted(identities, invitation)
    _, own = greet(invitation, identities["site-3"])
    unsigned = replace(greetings["site-1"], key=own.key)
    elsewhere = greet(invite(TERMS, "ministry", TERMS.sites), identities["site-1"])[1]
    for wrong in (
        {**greetings, "site-1": unsigned},
        {**greetings, "site-1": own},
        {**greetings, "site-1": elsewhere},
        {**greetings, "site-1": replace(greetings["site-1"], certificate="none")},
        {**greetings, "site-1": replace(greetings["site-1"], signature="")},
        {**greetings, "site-1": greetings["ministry"]},
        {**greetings, "stranger": own},
        {name: one for name, one in greetings.items() if name != "site-1"},
        {**greetings, "site-2": greet(invitation, identities["site-2"])[1]},
    ):
        with pytest.raises(ProtocolError):
            agree_on_keys(invitation, TERMS, wrong, private["site-2"], identities["site-2"])


def test_a_key_that_makes_every_secret_alike_is_refused_though_it_is_signed(identities):
    invitation = invite(TERMS, "ministry", TERMS.sites)
    private, greetings = greeted(identities, invitation)
    key = bytes(32)
    signature = identities["site-1"].key.sign(_signed(invitation, key), ec.ECDSA(SHA256()))
    weak = replace(greetings["site-1"], key=key.hex(), signature=signature.hex())
    wrong = {**greetings, "site-1": weak}
    with pytest.raises(ProtocolError):
        agree_on_keys(invitation, TERMS, wrong, private["site-2"], identities["site-2"])


def test_other_terms_are_refused(identities):
    invitation = invite(TERMS, "ministry", TERMS.sites)
    private, greetings = greeted(identities, invitation)
    for terms in (
        replace(TERMS, sigma=0.5),
        replace(TERMS, batches=9),
        replace(TERMS, colluding=1),
    ):
        with pytest.raises(ProtocolError):
            agree_on_keys(invitation, terms, greetings, private["site-1"], identities["site-1"])


def test_parties_that_were_told_different_things_share_no_key(identities):
    invitation = invite(TERMS, "ministry", TERMS.sites)
    private, greetings = greeted(identities, invitation)
    second = greet(invitation, identities["site-3"])[1]  # site-3 signs twice
    one = agree_on_keys(invitation, TERMS, greetings, private["site-1"], identities["site-1"])
    other = agree_on_keys(invitation, TERMS, {**greetings, "site-3": second}, private["site-2"],
                  identities["site-2"])  # fmt: skip
    assert one.transcript != other.transcript
    assert one.secrets["site-2"] != other.secrets["site-1"]


def test_a_revoked_party_is_refused_by_whoever_has_the_list(identities, tmp_path):
    authority = identities[""]
    invitation = invite(TERMS, "ministry", TERMS.sites)
    private, greetings = greeted(identities, invitation)
    revoke(authority.folder, identities["site-3"].folder / "certificate.pem")
    newest = authority.enrolled("site-2", PartyRole.SITE, tmp_path / "newest")
    with pytest.raises(ProtocolError):
        agree_on_keys(invitation, TERMS, greetings, private["site-2"], newest)
