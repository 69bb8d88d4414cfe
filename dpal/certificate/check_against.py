"""Checks of a certificate against what it speaks of: the ledger, a model, the pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpal.certificate.check_outcome import Check, check_from_faults, unchecked
from dpal.certificate.evidence import LedgerEvidence
from dpal.certificate.read_and_seal import entry_record, is_same_json
from dpal.certificate.safetensors_header import Weights, read_weights, shape_mismatch
from dpal.data.pool_files import commitment
from dpal.errors import LedgerTampered
from dpal.ledger.chain import verify_chain
from dpal.ledger.entries import Entry, EntryKind

_SPENDING = (EntryKind.HOLD, EntryKind.RESERVE, EntryKind.CHECKPOINT, EntryKind.COMMIT)


@dataclass(frozen=True, kw_only=True)
class PoolCommitment:
    """The pool's files, as far as a commitment needs them.

    Attributes:
      digest: SHA-256 of the bytes of each, in order, in hexadecimal.
      salt: the campaign's random bytes, which never leave its folder.
    """

    digest: str
    salt: bytes

    @property
    def commitment(self) -> str:
        """What a ledger and a certificate may show of the pool."""
        return commitment(self.salt, self.digest)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that came with a certificate.

    Attributes:
      sha256: digest of its weights' file.
      weights: what the file holds; None where only its digest is known.
      tags: what its registry says about it; None for a bare file.
    """

    sha256: str
    weights: Weights | None = None
    tags: Mapping[str, str] | None = None

    @classmethod
    def at(cls, path: Path, tags: Mapping[str, str] | None = None) -> Model:
        """Opens a model's file.

        Raises:
          CertificateError: it cannot be read.
        """
        weights = read_weights(path)
        return cls(sha256=weights.sha256, weights=weights, tags=tags)


def tags_of(document: Mapping[str, Any]) -> dict[str, str]:
    """What a registry shows about a certified model."""
    promise, head = document["promise"], document["ledger"]["head"]
    return {
        "epsilon": f"{promise['epsilon']:g}",
        "delta": f"{promise['delta']:.6g}",
        "adjacency": promise["adjacency"],
        "unit": promise["unit"],
        "dpal.campaign": document["campaign"],
        "dpal.certificate": document["digest"],
        "ledger.sequence": str(head["sequence"]),
        "ledger.head": head["digest"],
    }


def check_ledger(evidence: LedgerEvidence, ledger: Sequence[Entry] | None) -> Check:
    """Whether the certificate covers all that the ledger has of the campaign, and no more."""
    if ledger is None:
        reason = "no ledger given (--ledger): entries that fit each other could be invented"
        return unchecked("ledger", reason)
    fine = f"{len(ledger)} entries, sound from the first; the campaign's are all here"
    return check_from_faults("ledger", _ledger_faults(evidence, ledger), fine)


def _ledger_faults(evidence: LedgerEvidence, ledger: Sequence[Entry]) -> Iterator[str]:
    try:
        verify_chain(ledger)
    except LedgerTampered as error:
        yield str(error)
    if not ledger or ledger[0].digest != evidence.identity:
        yield "this is another ledger than the one that the certificate names"
    campaign = evidence.hold.campaign
    last = evidence.entries[-1].sequence
    adopted = [
        entry for entry in ledger if entry.kind is EntryKind.ADOPT and 1 < entry.sequence < last
    ]
    if evidence.adoptions is not None and list(evidence.adoptions) != adopted:
        yield "people vouched for this ledger in other entries than the certificate lists"
    certified = {entry.sequence: entry for entry in evidence.entries}
    there = {entry.sequence: entry for entry in ledger if entry.campaign == campaign}
    for sequence in sorted(certified.keys() | there.keys()):
        if sequence not in there:
            yield f"entry {sequence} of the certificate is not in the ledger"
        elif sequence in certified:
            if not is_same_json(entry_record(certified[sequence]), entry_record(there[sequence])):
                yield f"entry {sequence} is another one in the ledger"
        elif there[sequence].kind in _SPENDING or sequence < last:
            yield (
                f"entry {sequence} of the ledger ({there[sequence].kind} "
                f"{there[sequence].release}) is not covered by the certificate"
            )


def check_model(document: Mapping[str, Any], model: Model | None) -> Check:
    """Whether a model is one that the campaign committed, and is tagged as certified."""
    if model is None:
        return unchecked("model", "no model given (--model FILE or models:/NAME/VERSION)")
    if "model" not in document:
        return check_from_faults(
            "model", [f"{document['kind']} is certified here, and no model"], ""
        )
    by_digest = {record["sha256"]: record["file"] for record in document["models"]}
    final = document["model"]["sha256"] == model.sha256
    which = f"the released model of {document['campaign']}" if final else "another phase's model"
    told = "known by its digest, not opened"
    if model.weights is not None:
        told = f"safetensors, {model.weights.parameters:,} parameters"
    return check_from_faults(
        "model",
        _model_faults(document, model, by_digest),
        f"{by_digest.get(model.sha256, '')}, {which}: {told}, digest {model.sha256[:12]}",
    )


def _model_faults(
    document: Mapping[str, Any], model: Model, by_digest: Mapping[str, str]
) -> Iterator[str]:
    if model.sha256 not in by_digest:
        yield f"weights of digest {model.sha256[:12]} are none of {document['campaign']}'s"
    if model.weights is not None:
        defect = shape_mismatch(model.weights, document["plan"]["content"]["spec"].get("model"))
        if defect is not None:
            yield f"this is not the certified model: {defect}"
    if model.tags is not None:
        for key, value in tags_of(document).items():
            if model.tags.get(key) != value:
                yield (
                    f"the registry's tag {key} is {model.tags.get(key)!r}, the certificate says "
                    f"{value!r}"
                )


def check_pool(document: Mapping[str, Any], pool: PoolCommitment | None, reason: str) -> Check:
    """Whether this is the pool's file that the campaign was started on."""
    if pool is None:
        return unchecked("pool's file", reason)
    committed = document["pool"]["commitment"]
    other = "these are not the files that were committed to (a folder may have grown since)"
    faults = [] if pool.commitment == committed else [other]
    return check_from_faults(
        "pool's file", faults, f"commitment {committed[:12]}, opened with the salt"
    )
