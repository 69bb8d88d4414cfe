"""DSSE envelopes: bytes of a named type, and Ed25519 signatures over both.

Source:
  Dead Simple Signing Envelope 1.0, github.com/secure-systems-lab/dsse: protocol.md (what is
  signed, how it is verified), envelope.md (the JSON object).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpal.certificate.read_and_seal import read_object
from dpal.errors import CertificateError

SUFFIX = ".dsse.json"

_HEX_KEY = re.compile(r"[0-9a-f]{64}")
_PEM = "-----BEGIN PUBLIC KEY-----"
_FINGERPRINT_DIGITS = 32  # 128 bits: nobody makes a second key of the same fingerprint


class Signer(Protocol):
    """Whoever holds an Ed25519 key."""

    def public_key(self) -> str:
        """The public half, 64 hexadecimal digits."""

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """A signed payload as it was read; nothing about it is verified yet.

    Attributes:
      payload_type: says how the payload is read; covered by the signatures.
      payload: what was signed.
      signatures: at least one, by keys that the envelope does not prove.
    """

    payload_type: str
    payload: bytes
    signatures: tuple[bytes, ...]

    def signers(self, keys: Iterable[str]) -> set[str]:
        """Returns which of some public keys signed this."""
        message = pre_authentication_encoding(self.payload_type, self.payload)
        return {key for key in keys if any(_holds(key, sig, message) for sig in self.signatures)}


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed; lengths keep type and payload apart.

    >>> pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def signed_envelope(payload_type: str, payload: bytes, signer: Signer) -> str:
    """Signs a payload and returns the envelope as a file's text; equal input, equal text."""
    signature = signer.sign(pre_authentication_encoding(payload_type, payload))
    content = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [
            {"keyid": key_id(signer.public_key()), "sig": base64.b64encode(signature).decode()}
        ],
    }
    return json.dumps(content, indent=2) + "\n"


def read_envelope(text: str) -> Envelope:
    """Reads an envelope.

    Raises:
      CertificateError: it is none.
    """
    content = read_object(text, "no signature")
    try:
        signatures = tuple(_decoded(signature["sig"]) for signature in content["signatures"])
        payload_type = content["payloadType"]
        if not signatures or not isinstance(payload_type, str):
            raise ValueError("it has no signature, or no type")
        return Envelope(
            payload_type=payload_type,
            payload=_decoded(content["payload"]),
            signatures=signatures,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"this is no signature that can be read ({error})") from error


def public_key_from(text: str) -> str:
    """Reads an Ed25519 public key: 64 hexadecimal digits, or PEM.

    Returns:
      64 hexadecimal digits.

    Raises:
      CertificateError: it is neither.
    """
    stripped = text.strip()
    try:
        if stripped.startswith(_PEM):
            key = serialization.load_pem_public_key(stripped.encode())
            if isinstance(key, Ed25519PublicKey):
                return key.public_bytes_raw().hex()
        elif _HEX_KEY.fullmatch(stripped.lower()):
            return stripped.lower()
    except ValueError:
        pass
    raise CertificateError(
        "this is no Ed25519 public key; give its 64 hexadecimal digits, or a PEM file that begins "
        f"with {_PEM} (dpal ledger key prints both)"
    )


def as_pem(key: str) -> str:
    """A public key as a PEM file."""
    return (
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def key_id(key: str) -> str:
    """SHA-256 of a public key's 32 bytes; a hint for those who look for it, and no proof."""
    return hashlib.sha256(bytes.fromhex(key)).hexdigest()


def fingerprint(key: str) -> str:
    """What two people compare aloud: the first 128 bits of the key's SHA-256, in groups of four.

    >>> fingerprint("00" * 32)
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digits = key_id(key)[:_FINGERPRINT_DIGITS]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def _holds(key: str, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _decoded(text: Any) -> bytes:
    """Base64 of either alphabet, as the protocol asks of those who verify."""
    if not isinstance(text, str):
        raise ValueError("payload and signatures are base64")
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"base64: {error}") from error
