"""What a lineage server is told of a run: files that it read and made, and what it promised.

Names of files, and digests of what was released. Never a digest of private records, an id, a
count, or anything else that is not released (`docs/operations.md`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dpal.canonical import file_digest
from dpal.certificate.read_and_seal import read_certificate
from dpal.config.guarded_settings import guarded_settings
from dpal.config.runtime import RunConfig
from dpal.files.artifacts import CampaignFolder, PhaseFolder
from dpal.files.stored_objects import Place, StoredObject
from dpal.runs.released_phase import released_weights
from dpal.runs.run import Run

_OWN = ("runtime.", "labeler.")  # where a run works and asks: nothing that it learns from
_RELEASED = ("model.safetensors", "released.parquet")  # what a released folder is about


@dataclass(frozen=True, kw_only=True)
class LineageFile:
    """A file, folder or database that a run reads or makes.

    Attributes:
      namespace: "file" on this machine, else the store or server that has it.
      name: unique there.
      digest: of what was released, as the ledger has it; empty for what is private.
    """

    namespace: str
    name: str
    digest: str = ""


def files_read(run: Run[Any], config: RunConfig) -> Iterator[LineageFile]:
    """Yields what a run reads: pools, held-out and public records, weights, ballots, labels.

    Args:
      run: planned, begun or finished.
      config: its settings.
    """
    for setting in guarded_settings(config):
        if isinstance(setting.value, Path | StoredObject) and not setting.key.startswith(_OWN):
            yield lineage_file(setting.value)
    if run.start_from is not None:
        before = CampaignFolder(run.runtime.artifacts / run.start_from)
        if before.finished_phases():
            yield lineage_file(weights := released_weights(before), digest=file_digest(weights))
    for folder in map(PhaseFolder, run.released()):
        if folder.labels.is_file():
            yield lineage_file(folder.labels)


def files_made(run: Run[Any]) -> Iterator[LineageFile]:
    """Yields what a run has released by now: models, labels, ledger, certificate."""
    for folder in run.released():
        kept = PhaseFolder(folder)
        stated = kept.stated_files() if kept.manifest.is_file() else {}
        for path in (folder / name for name in _RELEASED):
            if path.is_file():
                digest = stated.get(kept.name_of(path)) or file_digest(path)
                yield lineage_file(path, digest=digest)
    certificate, head = run.folder.certificate, ""
    if certificate.is_file():
        document = read_certificate(certificate.read_text(encoding="utf-8"))
        head = str((document.get("ledger") or {}).get("head", {}).get("digest", ""))
        yield lineage_file(certificate, digest=str(document["digest"]))
    if run.is_held():
        yield lineage_file(run.runtime.ledger or run.folder.ledger, digest=head)


def promise_facts(run: Run[Any]) -> dict[str, Any]:
    """A run's promise, and what its certified plan adds up to; docs/lineage-promise.json."""
    target = run.plan.target
    return {
        "epsilon": target.epsilon,
        "delta": target.delta,
        "adjacency": target.adjacency.value,
        "unit": target.unit.value,
        "accountant": run.plan.accountant.value,
        "certifiedEpsilon": run.certified.epsilon,
        "plan": run.plan.digest,
    }


def lineage_file(place: Place | str, *, digest: str = "") -> LineageFile:
    """A place by the two names that lineage has for one, without a password.

    >>> lineage_file("postgresql://dpal@db:5433/dpal_ledger")
    LineageFile(namespace='postgres://db:5433', name='dpal_ledger', digest='')
    >>> lineage_file(Path("/srv/clinic/2026.parquet")).name
    '/srv/clinic/2026.parquet'
    """
    parts = urlsplit(str(place))
    if not parts.netloc and "://" not in str(place):
        return LineageFile(namespace="file", name=str(Path(str(place)).absolute()), digest=digest)
    scheme = {"postgresql": "postgres"}.get(parts.scheme, parts.scheme)
    server = parts.netloc.rpartition("@")[2]
    return LineageFile(namespace=f"{scheme}://{server}", name=parts.path.lstrip("/"), digest=digest)
