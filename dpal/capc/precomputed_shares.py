"""Shares of what a site's model says to queries, computed before the vote by another program.

For each query and label who asks and the site hold a number modulo 2**32; the two add up to 1 for
yes, to 0 for no. The site's is a uniform mask, so that neither finds the outcome.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dpal.capc.messages import EVALUATION_BYTES
from dpal.capc.ring import BITS, Ring
from dpal.errors import DataError, ParameterError

_MOST_BYTES = 1 << 24  # of a file: shares of 1,024 queries and labels are 2**23
_Version = tuple[int, int, int]  # inode, time and size of a file

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

    A file that holds no shares of a site ends no vote: it is passed over, and told to whoever runs
    the site. A vote that wants its shares finds none.

    Attributes:
      path: of the folder.
      say: is told of such files, a line each, once.
    """

    path: Path
    say: Callable[[str], None]
    _read: dict[Path, tuple[_Version, HeldShares | None]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def require(self) -> None:
        """Requires a folder.

        Raises:
          DataError: there is none.
        """
        if not self.path.is_dir():
            raise DataError.before_release(
                f"{self.path} is no folder; shares (dpal capc cnn) are looked for in it"
            )

    def held(self) -> Mapping[bytes, HeldShares]:
        """By evaluation, all that lies there now."""
        self._read = {file: self._looked_at(file) for file in sorted(self.path.glob("*.npz"))}
        found: dict[bytes, HeldShares] = {}
        doubtful: set[bytes] = set()
        for _, held in self._read.values():
            if held is None:
                continue
            other = found.setdefault(held.evaluation, held)
            if not np.array_equal(other.values, held.values):
                doubtful.add(held.evaluation)
        for evaluation in doubtful:
            self._tell(f"two files differ in their shares of {evaluation.hex()[:8]}; none is used")
            del found[evaluation]
        return found

    def _looked_at(self, file: Path) -> tuple[_Version, HeldShares | None]:
        before = self._read.get(file)
        try:
            about = file.stat()
            version = (about.st_ino, about.st_mtime_ns, about.st_size)
            if before is not None and before[0] == version:
                return before
            held = read_shares(file)
            if held.queries is not None:
                raise DataError.before_release(f"{file} has shares of who asks, and not of a site")
        except (OSError, DataError) as error:
            self._tell(f"{error}; it is passed over")
            return (0, 0, 0), None
        return version, held

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self.say(line)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name; none that is larger than shares can be is unpacked."""
    with zipfile.ZipFile(path) as packed:
        if sum(member.file_size for member in packed.infolist()) > _MOST_BYTES:
            raise ValueError("too large")
    # No pickled object is loaded, unless numpy is told to.
    with path.open("rb") as stream, np.load(stream) as given:
        return {name: np.asarray(given[name]) for name in given.files}


def read_shares(path: Path) -> HeldShares:
    """Reads what `dpal capc cnn` wrote.

    Raises:
      DataError: the file is missing or holds anything else.
    """
    try:
        found = _arrays(path)
    except Exception as error:  # numpy and zipfile raise many kinds, by what is wrong with a file
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
