"""Public keys on the command line: which ones a person trusts, and this machine's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dpal.certificate.dsse import public_key_from
from dpal.certificate.signature_trust import Trust
from dpal.config.runtime import RuntimeConfig
from dpal.errors import CertificateError, DpalError
from dpal.ledger.signing_key import SigningKey

OWN = "own"

Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="KEY|FILE|own",
        help="A public key that you trust: 64 hexadecimal digits, a PEM file, or own for this "
        "machine's. From the data owner (dpal ledger key), not from where the file came from. "
        "Repeatable.",
    ),
]


def trust_in(words: Sequence[str]) -> Trust:
    """The keys that words of the command line mean; no others are trusted.

    Args:
      words: of --key.

    Raises:
      CertificateError: a word is no key, or this machine has none.
    """
    keys: dict[str, str] = {}
    for word in words:
        if word == OWN:
            keys[own_key()] = "this machine's own key"
        elif Path(word).is_file():
            keys[_key_in(Path(word))] = f"the key in {word}"
        else:
            keys[public_key_from(word)] = "the key that you named"
    return Trust(keys=keys, exclusive=bool(keys))


def own_key(folder: Path | None = None) -> str:
    """The public half of the key by which this machine signs ledgers and certificates.

    Args:
      folder: of anchors that settings name (runtime.anchors); None for this user's own.

    Raises:
      CertificateError: there is none yet.
    """
    try:
        from dpal.runs.open_ledger import anchors_of
    except ImportError as error:
        raise CertificateError(
            f"this machine's own key is found where campaigns can run ({error}); name the key with "
            "--key KEY"
        ) from error
    # Not what a campaign's folder says of its anchors: that folder may be a stranger's.
    key = anchors_of(RuntimeConfig()).key if folder is None else SigningKey(folder.expanduser())
    if not key.exists():
        raise CertificateError(
            f"this machine has no key yet (there is none in {key.folder}): it is made when a "
            "campaign first runs here; name the data owner's key with --key KEY"
        )
    return key.public_key()


def is_own(key: str | None) -> bool:
    """Whether a key is this machine's own."""
    try:
        return key is not None and own_key() == key
    except DpalError:
        return False


def _key_in(path: Path) -> str:
    try:
        return public_key_from(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise CertificateError(f"{path} holds no public key that can be read") from error
