"""Whether a validation set is about what a pool teaches, and not made of its records.

Asked once, before a campaign begins: what was begun goes on with the files it was begun with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpal.data.hash_runs import Rows
from dpal.data.inspect_rows import SEEN, Inventory, RowHashes
from dpal.data.known_records import COINCIDENCE
from dpal.data.sources import Source
from dpal.errors import DataError
from dpal.labels import Task

_BY_CHANCE = 3  # records that another one is like: a share of few says little
_SHOWN = 5  # classes named in one remark
_APART = 100.0  # by which scales of features may differ


def require_numbering(pool: Inventory, validation: Inventory, *, names: int) -> None:
    """Requires classes to be numbered from 0, in both files alike.

    Args:
      pool: of single labels, or without labels.
      validation: what figures are measured on.
      names: how many classes are named in the files; 0 for none.

    Raises:
      DataError: labels run from 1, in both files or in one, or beyond the names.
    """
    given = sorted({*pool.present, *validation.present})
    if validation.task is not Task.SINGLE_LABEL or not given:
        return
    least, most = given[0], given[-1]
    if least == 1 and (most == names or (not names and most == len(given))):
        raise DataError(
            "labels run from 1, and classes are numbered from 0; subtract 1 from the "
            "labels of both files, or name all classes in class_names if class 0 only happens to "
            "be missing"
        )
    if _runs(pool, 0) and _runs(validation, 1) and max(validation.present) > max(pool.present):
        raise _shifted("pool", pool, "validation set", validation)
    if _runs(validation, 0) and _runs(pool, 1) and max(pool.present) > max(validation.present):
        raise _shifted("validation set", validation, "pool", pool)
    if names and most >= names:
        raise DataError(
            f"class_names names {names} classes, 0 to {names - 1}, and there are labels above "
            "that; name all classes, or correct the labels"
        )


def require_same_names(pool: Source, other: Source) -> None:
    """Requires that a class has the same name in both, where both name it.

    Args:
      pool: what is learned from, or measured on.
      other: a validation set, or other records whose labels mean the same classes.

    Raises:
      DataError: a number stands for one class in one of them and for another in the other.
    """
    pairs = zip(pool.class_names, other.class_names, strict=False)
    for number, (one, two) in enumerate(pairs):
        if one != two:
            raise DataError(
                f"class {number} is {one!r} in {pool.name} and {two!r} in {other.name}; bring the "
                "classes of both to one order (dpal import does so with --like), labels with them"
            )


def class_remarks(
    pool: Inventory, validation: Inventory, class_names: Sequence[str]
) -> tuple[str, ...]:
    """What a person should know of classes that only one of the files has.

    They say something about private labels: for whoever may see the pool, and nobody else.
    """
    if not (pool.present and pool.fully_labeled and validation.present):
        return ()
    unlearned = sorted(set(validation.present) - set(pool.present))
    unmeasured = sorted(set(pool.present) - set(validation.present))
    said = []
    if unlearned:
        said.append(
            f"no record of the pool has {_named(unlearned, class_names)}, which the validation "
            "set measures: nothing can learn it there"
        )
    if unmeasured:
        said.append(
            f"no record of the validation set has {_named(unmeasured, class_names)}, which the "
            "pool teaches: how well it is learned will not be measured"
        )
    return tuple(said)


def scale_remarks(deviations: Sequence[float]) -> tuple[str, ...]:
    """What a person should know where features of public records differ in scale.

    Args:
      deviations: the standard deviation of each feature.
    """
    there = [value for value in deviations if value > 0]
    usual = float(np.median(there)) if there else 0.0  # a rare category is small, and no trouble
    if not there or max(there) <= _APART * usual:
        return ()
    return (
        f"a feature of the validation set is {max(there) / usual:,.0f} times as large as most, so "
        "that it alone would decide gradients; set data.normalisation: {kind: validation}",
    )


def require_other_records(
    pool: RowHashes, validation: RowHashes, *, names: tuple[str, str], protected: bool = False
) -> None:
    """Requires a validation set that is not made of records of the pool.

    Records of small tables are alike by chance: as often as records of the pool are like each
    other is no sign, nor are a few where the set is public. One with the same name as well is one
    record: a protected set may have none.

    Args:
      pool: private records, as `inspect` saw them.
      validation: of which none should be a record of the pool, seen under the same salt.
      names: of both, for messages.
      protected: whether its records are promised something of their own, which one that is in both
        would lose twice.

    Raises:
      DataError: more of it is in the pool.
    """
    own = np.concatenate([np.zeros(0, SEEN), *validation.rows.in_order()])
    shared, both, alike = np.zeros(own.size, bool), np.zeros(own.size, bool), 0
    for rows in pool.rows.in_order():
        contents = rows["high"].copy()
        alike += _alike(contents)
        places = np.minimum(np.searchsorted(contents, own["high"]), contents.size - 1)
        found = np.flatnonzero(contents[places] == own["high"])
        if found.size:
            there = rows[np.isin(contents, own["high"][found])]
            shared[found], both[found] = True, np.isin(_pairs(own[found]), _pairs(there))
    if protected and both.any():
        raise DataError.before_release(
            f"{{both}} of {both.size:,} rows of {names[1]} have the id and the content of rows of "
            f"the pool {names[0]}, and a record in both would lose what is promised twice; leave "
            "them out of one, or give other people's records ids of their own",
            both=f"{int(both.sum()):,}",
        )
    by_chance = 2 * alike / max(1, pool.rows.size)
    copied = shared.mean() > COINCIDENCE + by_chance
    if both.mean() > COINCIDENCE or (copied and shared.sum() > (0 if protected else _BY_CHANCE)):
        raise DataError.before_release(
            f"{{shared}} of {shared.size:,} rows of {names[1]} are rows of the pool "
            f"{names[0]}, so that figures would tell how well they were learned by heart; keep "
            "records of the pool out of the validation set",
            shared=f"{int(shared.sum()):,}",
        )


def _alike(contents: NDArray[np.uint64]) -> int:
    """How many of some records, in the order of their hashes, another one is like."""
    same = np.flatnonzero(contents[1:] == contents[:-1])
    return np.union1d(same, same + 1).size


def _pairs(rows: Rows) -> NDArray[np.uint64]:
    """One hash of content and name, (n,)."""
    pairs: NDArray[np.uint64] = rows["high"] ^ (rows["name"] << np.uint64(1))
    return pairs


def _runs(held: Inventory, first: int) -> bool:
    """Whether labels run from a number on without gaps, two at least."""
    numbers = held.present
    return len(numbers) > 1 and numbers == tuple(range(first, first + len(numbers)))


def _shifted(zero_name: str, zero: Inventory, other: str, shifted: Inventory) -> DataError:
    return DataError(
        f"labels of the {zero_name} run from 0 and those of the {other} from 1; number classes "
        "from 0 in both, subtract 1 there"
    )


def _named(classes: Sequence[int], names: Sequence[str]) -> str:
    shown = [
        f"{number} ({names[number]})" if number < len(names) else f"{number}"
        for number in classes[:_SHOWN]
    ]
    more = f" and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else ""
    return f"class{'es' if len(classes) > 1 else ''} {', '.join(shown)}{more}"
