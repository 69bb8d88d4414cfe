"""A small certificate authority for the parties of a vote: who is who, for TLS and signatures.

A party makes its own key and a request; the authority signs the request after somebody compared
its fingerprint over another channel. Private keys never leave the folder that they were made in,
and only their owner can read them. A certificate says a party's name and its role.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dpal.errors import DataError
from dpal.files.atomic_writes import atomic_write

KEY, REQUEST, CERTIFICATE = "key.pem", "request.pem", "certificate.pem"
AUTHORITY, REVOKED = "authority.pem", "revoked.pem"

_NAME: Final = re.compile("[a-z0-9][a-z0-9_-]{0,62}")  # as settings name parties
_LONGEST_NAME: Final = 64  # of an authority: a common name in a certificate
_YEARS: Final = 10
_DAYS_OF_PARTIES: Final = 365
_SLACK: Final = datetime.timedelta(hours=1)  # between clocks

Certificate = x509.Certificate
PrivateKey = ec.EllipticCurvePrivateKey
T = TypeVar("T")


class PartyRole(StrEnum):
    """What a party may be; each name has one role."""

    GUARDIAN = "guardian"
    SITE = "site"
    QUERIER = "querier"


@dataclass(frozen=True)
class Identity:
    """A party's own key and certificate, and the authority that it believes.

    Attributes:
      folder: where the files lie.
      key: private.
      certificate: its own.
      authority: whose signatures count.
    """

    folder: Path
    key: PrivateKey
    certificate: Certificate
    authority: Certificate

    @property
    def name(self) -> str:
        """As the certificate says it."""
        return name_in(self.certificate)[0]

    def secret(self, purpose: str) -> bytes:
        """32 bytes that only who has the key can compute, for one purpose."""
        private = self.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        return hashlib.blake2b(purpose.encode(), key=hashlib.sha256(private).digest()).digest()[:32]

    @property
    def pem(self) -> bytes:
        """The certificate's bytes."""
        return self.certificate.public_bytes(Encoding.PEM)


def make_key(folder: Path, name: str, role: PartyRole) -> x509.CertificateSigningRequest:
    """Makes a key and a request for a party; refuses where a key lies already.

    Raises:
      DataError: there is a key.
      StorageError: the folder cannot be written.
    """
    _party_name(name)
    if (folder / KEY).exists():
        raise DataError(
            f"{folder / KEY} is a key already; to replace it, move the folder away and have the "
            "old certificate revoked"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject(name, role))
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / KEY, key)
    _write(folder / REQUEST, request.public_bytes(Encoding.PEM))
    return request


def make_authority(folder: Path, name: str) -> Certificate:
    """Makes an authority with nobody revoked; refuses where one lies already.

    Raises:
      DataError: there is one, or certificates cannot hold the name.
    """
    if not 0 < len(name) <= _LONGEST_NAME:
        raise DataError(
            f"an authority's name has 1 to {_LONGEST_NAME} characters, got {len(name)}; choose "
            "another one"
        )
    if (folder / KEY).exists():
        raise DataError(f"{folder / KEY} is the key of an authority already")
    key = ec.generate_private_key(ec.SECP256R1())
    subject, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), _now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_others=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / KEY, key)
    _write(folder / AUTHORITY, certificate.public_bytes(Encoding.PEM))
    _write_revoked(folder, key, certificate, frozenset())
    return certificate


def requested(request: Path) -> tuple[str, PartyRole, str]:
    """Name, role and fingerprint of a party's request: what two people read to each other.

    Raises:
      DataError: it cannot be read, was altered, or says no name and role.
    """
    asked = _request_in(request)
    return *_name_and_role(asked.subject, request), request_fingerprint(asked)


def _request_in(path: Path) -> x509.CertificateSigningRequest:
    asked = _parsed(path, x509.load_pem_x509_csr, "is no request for a certificate")
    if not asked.is_signature_valid:
        raise DataError(f"{path} was altered: its signature does not fit")
    return asked


def enrol(folder: Path, request: Path, fingerprint: str) -> Path:
    """Signs a request; the certificate lies in the authority's folder.

    Args:
      folder: of the authority.
      request: a party's file.
      fingerprint: of the request, as the party told it over another channel.

    Raises:
      DataError: one of both cannot be read, the request says no name and role or is another one,
        or the name is that of a party with another role.
    """
    key, authority = _load_key(folder / KEY), _load_certificate(folder / AUTHORITY)
    asked = _request_in(request)  # read once: what is compared is what is signed
    (name, role), found = _name_and_role(asked.subject, request), request_fingerprint(asked)
    if "".join(fingerprint.split()).lower() != "".join(found.split()):
        raise DataError(
            f"{request} is a request of the {role} {name} with the fingerprint {found}, which is "
            "not the one given; sign it only if that party reads this one to you"
        )
    _require_one_role(folder, authority, name, role)
    now = _now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_subject(name, role))
        .issuer_name(authority.subject)
        .public_key(asked.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + datetime.timedelta(days=_DAYS_OF_PARTIES))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_others=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            ),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    place = folder / "issued" / f"{name}-{certificate.serial_number:x}.pem"
    _write(place, certificate.public_bytes(Encoding.PEM))
    return place


def _require_one_role(folder: Path, authority: Certificate, name: str, role: PartyRole) -> None:
    revoked = load_revoked(folder / REVOKED, authority)
    for path in sorted((folder / "issued").glob(f"{name}-*.pem")):
        issued = _load_certificate(path)
        whose, what = name_in(issued)
        if whose == name and what is not role and not fault_of(issued, authority, revoked):
            raise DataError(
                f"{name} is a {what} already ({path}), and each name has one role; give the {role} "
                "another name, or revoke that certificate"
            )


def revoke(folder: Path, certificate: Path) -> int:
    """Lists a certificate as one that counts no more; gives how many are listed.

    Whoever is to refuse it needs the new list beside its own key.
    """
    key, authority = _load_key(folder / KEY), _load_certificate(folder / AUTHORITY)
    listed = load_revoked(folder / REVOKED, authority)
    listed |= {_load_certificate(certificate).serial_number}
    _write_revoked(folder, key, authority, listed)
    return len(listed)


def load_identity(folder: Path, name: str, role: PartyRole) -> Identity:
    """Reads a party's files, and requires that they are what they should be.

    Raises:
      DataError: a file is missing or is another party's, or others can read the key.
    """
    key = _load_key(folder / KEY)
    if (folder / KEY).stat().st_mode & 0o077:
        raise DataError(
            f"{folder / KEY} can be read by others; if nobody did: chmod 600 {folder / KEY}, "
            "else make another key and have this one's certificate revoked"
        )
    certificate = _load_certificate(folder / CERTIFICATE)
    authority = _load_certificate(folder / AUTHORITY)
    if certificate.public_key() != key.public_key():
        raise DataError(f"{folder / CERTIFICATE} is not the certificate of the key beside it")
    revoked = load_revoked(folder / REVOKED, authority)
    problem = fault_of(certificate, authority, revoked)
    if problem:
        raise DataError(f"{folder / CERTIFICATE} {problem}; have another one issued")
    whose, what = name_in(certificate)
    if (whose, what) != (name, role):
        raise DataError(
            f"{folder / CERTIFICATE} is of the {what} {whose}, and the {role} {name} is needed"
        )
    return Identity(folder, key, certificate, authority)


def fault_of(certificate: Certificate, authority: Certificate, revoked: frozenset[int]) -> str:
    """Why a certificate does not count, as the end of a sentence; empty where it does."""
    now = _now()
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return "was not issued by the authority of this vote"
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        return "is out of date"
    return "was revoked" if certificate.serial_number in revoked else ""


def name_in(certificate: Certificate) -> tuple[str, PartyRole]:
    """Name and role that a certificate says.

    Raises:
      DataError: it says none.
    """
    return _name_and_role(certificate.subject, Path(CERTIFICATE))


def request_fingerprint(request: x509.CertificateSigningRequest | Path) -> str:
    """Of a request: what two people compare before one of them signs."""
    if isinstance(request, Path):
        request = _parsed(request, x509.load_pem_x509_csr, "is no request for a certificate")
    digest = hashes.Hash(hashes.SHA256())
    digest.update(request.public_bytes(Encoding.DER))
    text = digest.finalize().hex()
    return " ".join(text[start : start + 8] for start in range(0, 64, 8))


def _subject(name: str, role: PartyRole) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role.value),
        ]
    )


def _name_and_role(subject: x509.Name, place: Path) -> tuple[str, PartyRole]:
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    roles = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    if len(names) != 1 or len(roles) != 1 or roles[0].value not in set(PartyRole):
        raise DataError(f"{place} says no name and role of a party")
    return _party_name(str(names[0].value)), PartyRole(str(roles[0].value))


def _party_name(name: str) -> str:
    # Part of file names, and of the names that TLS compares.
    if not _NAME.fullmatch(name):
        raise DataError(
            "a party's name has small letters, digits, - and _ only, 63 at most, and begins with a "
            "letter or digit; choose another one"
        )
    return name


def _usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_revoked(
    folder: Path, key: PrivateKey, authority: Certificate, serials: frozenset[int]
) -> None:
    now = _now()
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - _SLACK)
        .next_update(now + datetime.timedelta(days=365 * _YEARS))
    )
    for serial in sorted(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    _write(folder / REVOKED, builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def load_revoked(path: Path, authority: Certificate) -> frozenset[int]:
    """Serial numbers that count no more.

    Raises:
      DataError: the list is missing, or this authority did not sign it.
    """
    listed = _parsed(path, x509.load_pem_x509_crl, "is no list of revoked certificates")
    key = authority.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not listed.is_signature_valid(key):
        raise DataError(f"{path} was not signed by the authority beside it")
    return frozenset(entry.serial_number for entry in listed)


def _load_certificate(path: Path) -> Certificate:
    return _parsed(path, x509.load_pem_x509_certificate, "is no certificate")


def _load_key(path: Path) -> PrivateKey:
    key = _parsed(path, lambda data: load_pem_private_key(data, None), "is no private key")
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(f"{path} is a key of another kind than `dpal capc key` makes")
    return key


def _parsed(path: Path, load: Callable[[bytes], T], otherwise: str) -> T:
    try:
        return load(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing") from error
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} {otherwise}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from error


def _write_key(path: Path, key: PrivateKey) -> None:
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _write(path: Path, data: bytes) -> None:
    with atomic_write(path) as temporary:  # mode 0600
        temporary.write_bytes(data)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
