"""Shares of what a site's model says to queries, computed before the vote by another program.

For each query and label who asks and the site hold a number modulo 2**32; the two add up to 1 for
yes, to 0 for no. The site's is a uniform mask, so that neither finds the outcome.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dpal.capc.messages import EVALUATION_BYTES
from dpal.capc.ring import BITS, Ring
from dpal.errors import DataError, ParameterError

DIGEST_BYTES = 32  # of a query, by which who asks sees that all sites were asked the same


@dataclass(frozen=True, eq=False)
class HeldShares:
    """One party's shares of one evaluation of a site's model.

    Attributes:
      evaluation: 16 bytes that tell it from all others; the same for both parties.
      values: (queries, labels) its shares; private.
      queries: (queries, 32) digests of the queries; none of the site, which does not know them.
    """

    evaluation: bytes
    values: Ring
    queries: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class SharedQueries:
    """Queries of a batch whose outcomes who asks and every site hold in shares.

    Attributes:
      rows: of the evaluations, one for each query.
      held: by site, the shares of who asks; private.
    """

    rows: np.ndarray
    held: Mapping[str, HeldShares]

    def __len__(self) -> int:
        """How many queries."""
        return len(self.rows)

    def require_sites(self, sites: tuple[str, ...], labels: int) -> None:
        """Requires shares of every site that is there.

        Raises:
          ParameterError: there are none of one of them, or they are of other labels.
        """
        for site in sites:
            if site not in self.held:
                raise ParameterError.before_release(
                    f"{site} is there, and who asks holds no shares of what its model says; "
                    "evaluate it (dpal capc cnn), and name the file in shares"
                )
            if self.held[site].values.shape[1] != labels:
                raise ParameterError.before_release(
                    f"shares of {site} are of {self.held[site].values.shape[1]:,} labels, and "
                    f"{labels:,} were agreed on"
                )


@dataclass(eq=False)
class ShareFolder:
    """A folder of files with a site's shares, to which more may come while it serves.

    Attributes:
      path: of the folder.
    """

    path: Path
    _read: dict[Path, HeldShares] = field(default_factory=dict)

    def held(self) -> Mapping[bytes, HeldShares]:
        """By evaluation, all that lies there now.

        Raises:
          DataError: a file holds no shares.
        """
        there = sorted(self.path.glob("*.npz"))
        self._read = {file: self._read.get(file) or read_shares(file) for file in there}
        return {held.evaluation: held for held in self._read.values()}


def read_shares(path: Path) -> HeldShares:
    """Reads what `dpal capc cnn` wrote.

    Raises:
      DataError: the file is missing or holds anything else.
    """
    try:
        # No pickled object is loaded, unless numpy is told to.
        with path.open("rb") as stream, np.load(stream) as given:
            found = {name: given[name] for name in given.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError.before_release(f"{path} cannot be read as shares (.npz)") from error
    shares, evaluation = found.pop("shares", None), found.pop("evaluation", None)
    queries = found.pop("queries", None)
    fits = (
        not found
        and shares is not None
        and evaluation is not None
        and (shares.dtype, shares.ndim) == (np.dtype(np.uint64), 2)
        and (evaluation.dtype, evaluation.shape) == (np.dtype(np.uint8), (EVALUATION_BYTES,))
        and (queries is None or queries.shape == (len(shares), DIGEST_BYTES))
    )
    if not fits or shares is None or evaluation is None:
        raise DataError.before_release(
            f"{path} holds no shares as dpal capc cnn writes them; evaluate the net again"
        )
    # Sums modulo 2**64 are sums modulo 2**32 of the lowest bits.
    lowest = shares & np.uint64((1 << BITS) - 1)
    return HeldShares(evaluation.tobytes(), lowest.astype(np.uint32), queries)
