"""Who is who: one authority signs requests, keys stay private, the revoked count no more."""

from __future__ import annotations

import shutil
import stat

import pytest
from cryptography import x509

from dpal.capc import certificate_authority
from dpal.capc.certificate_authority import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    REQUEST,
    REVOKED,
    PartyRole,
    enrol,
    load_identity,
    make_authority,
    make_key,
    name_in,
    request_fingerprint,
    requested,
    revoke,
)
from dpal.errors import DataError
from tests.capc.parties import Authority


@pytest.fixture
def authority(tmp_path):
    return Authority.made(tmp_path / "authority")


def test_a_party_is_enrolled_and_its_key_stays_its_own(authority):
    north = authority.enrolled("north", PartyRole.SITE)
    assert (north.name, name_in(north.certificate)) == ("north", ("north", PartyRole.SITE))
    for folder in (north.folder, authority.folder):
        assert stat.S_IMODE((folder / KEY).stat().st_mode) == 0o600
    issued = list((authority.folder / "issued").iterdir())
    assert len(issued) == 1 and b"PRIVATE" not in issued[0].read_bytes()


def test_two_people_compare_one_fingerprint(authority, tmp_path):
    request = make_key(tmp_path / "south", "south", PartyRole.SITE)
    assert request_fingerprint(request) == request_fingerprint(tmp_path / "south" / REQUEST)
    assert request_fingerprint(
        make_key(tmp_path / "west", "south", PartyRole.SITE)
    ) != request_fingerprint(request)


def test_the_key_that_is_signed_is_the_one_that_was_compared(authority, tmp_path, monkeypatch):
    """Whoever can write the file could replace it while the authority looks at it."""
    request = make_key(tmp_path / "south", "south", PartyRole.SITE)
    make_key(tmp_path / "thief", "south", PartyRole.SITE)
    file = tmp_path / "south" / REQUEST
    look = certificate_authority.request_fingerprint

    def look_and_replace(asked):
        found = look(asked)
        shutil.copy(tmp_path / "thief" / REQUEST, file)
        return found

    monkeypatch.setattr(certificate_authority, "request_fingerprint", look_and_replace)
    place = enrol(authority.folder, file, look(request))
    signed = x509.load_pem_x509_certificate(place.read_bytes())
    assert signed.public_key() == request.public_key()


def test_keys_are_never_overwritten(authority, tmp_path):
    make_key(tmp_path / "south", "south", PartyRole.SITE)
    for again in (lambda: make_key(tmp_path / "south", "south", PartyRole.SITE),
                  lambda: make_authority(authority.folder, "again")):  # fmt: skip
        with pytest.raises(DataError):
            again()


def test_a_key_that_others_can_read_is_refused(authority):
    north = authority.enrolled("north", PartyRole.SITE)
    (north.folder / KEY).chmod(0o640)
    with pytest.raises(DataError):
        load_identity(north.folder, "north", PartyRole.SITE)


@pytest.mark.parametrize(
    ("name", "role"), [("south", PartyRole.SITE), ("north", PartyRole.GUARDIAN)]
)
def test_nobody_is_somebody_else(authority, name, role):
    north = authority.enrolled("north", PartyRole.SITE)
    with pytest.raises(DataError):
        load_identity(north.folder, name, role)


def test_revoked_certificates_and_those_of_other_authorities_do_not_count(authority, tmp_path):
    north = authority.enrolled("north", PartyRole.SITE)
    assert revoke(authority.folder, north.folder / CERTIFICATE) == 1
    assert load_identity(north.folder, "north", PartyRole.SITE), "it has not the new list yet"
    authority.copy_to(north.folder)
    with pytest.raises(DataError):
        load_identity(north.folder, "north", PartyRole.SITE)
    # A new key under the old name is another certificate.
    assert authority.enrolled("north", PartyRole.SITE, tmp_path / "rotated").name == "north"
    other = Authority.made(tmp_path / "other")
    south = other.enrolled("south", PartyRole.SITE, tmp_path / "south")
    authority.copy_to(south.folder)
    with pytest.raises(DataError):
        load_identity(south.folder, "south", PartyRole.SITE)


@pytest.mark.parametrize("file", [KEY, CERTIFICATE, AUTHORITY, REVOKED])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nAA\n"])
def test_files_that_are_missing_or_damaged_are_refused(authority, file, content):
    north = authority.enrolled("north", PartyRole.SITE)
    (north.folder / file).unlink()
    if content is not None:
        (north.folder / file).write_bytes(content)
        (north.folder / file).chmod(0o600)
    with pytest.raises(DataError):
        load_identity(north.folder, "north", PartyRole.SITE)


def test_another_partys_certificate_and_a_forged_list_are_refused(authority, tmp_path):
    north, south = (authority.enrolled(name, PartyRole.SITE) for name in ("north", "south"))
    shutil.copy(south.folder / CERTIFICATE, north.folder / CERTIFICATE)
    with pytest.raises(DataError):
        load_identity(north.folder, "north", PartyRole.SITE)
    other = Authority.made(tmp_path / "other")
    shutil.copy(other.folder / REVOKED, south.folder / REVOKED)
    with pytest.raises(DataError):
        load_identity(south.folder, "south", PartyRole.SITE)


def test_an_altered_request_is_not_signed(authority, tmp_path):
    make_key(tmp_path / "south", "south", PartyRole.SITE)
    for content in (b"nothing", b""):
        (tmp_path / "south" / REQUEST).write_bytes(content)
        with pytest.raises(DataError):
            enrol(authority.folder, tmp_path / "south" / REQUEST, "")


def test_only_the_request_that_was_told_of_is_signed(authority, tmp_path):
    """Somebody may ask for another role under a known name, or for a name that is a path."""
    make_key(tmp_path / "south", "south", PartyRole.SITE)
    request = tmp_path / "south" / REQUEST
    fingerprint = requested(request)[2]
    for other in ("", "ab", fingerprint[:-1]):
        with pytest.raises(DataError):
            enrol(authority.folder, request, other)
    issued = enrol(authority.folder, request, fingerprint.replace(" ", "").upper())
    make_key(tmp_path / "again", "south", PartyRole.GUARDIAN)
    again = tmp_path / "again" / REQUEST
    with pytest.raises(DataError):
        enrol(authority.folder, again, requested(again)[2])
    revoke(authority.folder, issued)
    assert enrol(authority.folder, again, requested(again)[2]).is_file()
    for name in ("../south", "", "söuth", "South", "a" * 64):
        with pytest.raises(DataError):
            make_key(tmp_path / "named", name, PartyRole.SITE)
