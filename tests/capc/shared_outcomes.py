"""What `dpal capc cnn` leaves, made of plain models: shares of outcomes, and files of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpal.capc.precomputed_shares import HeldShares, SharedQueries
from dpal.capc.terms import SiteModel, Terms, VoteMode
from tests.capc.together import numbers_of

Sides = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


def in_mode(terms: Terms, mode: VoteMode) -> Terms:
    """The same vote in another mode."""
    features = 0 if mode is VoteMode.SHARES else terms.features or 1
    return replace(terms, mode=mode, features=features)


def evaluated(model: SiteModel, features: np.ndarray, rng: np.random.Generator) -> Sides:
    """Arrays of the files of who asks, and of the site."""
    bits = (numbers_of(model, features) >= 0).astype(np.uint64)
    mask = rng.integers(0, 1 << 64, bits.shape, dtype=np.uint64)
    evaluation = rng.integers(0, 256, 16, dtype=np.uint8)
    images = [hashlib.sha256(row.tobytes()).digest() for row in features]
    digests = np.frombuffer(b"".join(images), np.uint8).reshape(len(features), 32)
    return (
        {"evaluation": evaluation, "shares": bits + mask, "queries": digests},
        {"evaluation": evaluation, "shares": np.uint64(0) - mask},
    )


def held(arrays: Mapping[str, np.ndarray]) -> HeldShares:
    """As `read_shares` has it."""
    return HeldShares(
        arrays["evaluation"].tobytes(), arrays["shares"].astype(np.uint32), arrays.get("queries")
    )


def shared(
    models: Mapping[str, SiteModel], features: np.ndarray, folder: Path | None = None
) -> tuple[SharedQueries, dict[str, dict[bytes, HeldShares]]]:
    """What who asks holds of all queries, and every site.

    Args:
      models: of the sites.
      features: the queries.
      folder: where sites have a folder each, to which a file is added.
    """
    asker, sites = {}, {}
    for site, model in models.items():
        own, other = evaluated(model, features, np.random.default_rng())
        asker[site], taken = held(own), held(other)
        sites[site] = {taken.evaluation: taken}
        if folder is not None:
            write_shares(folder / site / f"{taken.evaluation.hex()}.npz", other)
    rows = np.arange(len(features), dtype=np.uint32)
    return SharedQueries(rows, asker), sites


def write_shares(file: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file
