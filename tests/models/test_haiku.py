from __future__ import annotations

import pickle
from collections import OrderedDict

import numpy as np
import pytest

from dpal.errors import DataError
from dpal.models.haiku import read_haiku

MODULES = {
    "net/~/conv": {"w": np.arange(24, dtype=np.float64).reshape(1, 2, 3, 4)},
    "net/~/linear": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3)},
    "net/~/block": {"skip_gain": np.float32(0.5)},
}


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_both_kinds_of_files_give_torch_layouts(tmp_path, protocol):
    archive, pickled = tmp_path / "archive.npz", tmp_path / "pickled.npz"
    np.savez(archive, **{f"{m}/{n}": v for m, part in MODULES.items() for n, v in part.items()})
    pickled.write_bytes(pickle.dumps(OrderedDict(MODULES), protocol=protocol))
    for path in (archive, pickled):
        found = read_haiku(path)
        assert set(found) == {f"{m}/{n}" for m, part in MODULES.items() for n in part}
        filters = found["net/~/conv/w"]
        assert filters.shape == (4, 3, 1, 2)
        assert filters[3, 2, 0, 1] == MODULES["net/~/conv"]["w"][0, 1, 2, 3]
        assert found["net/~/linear/w"][2, 1] == MODULES["net/~/linear"]["w"][1, 2]
        assert found["net/~/linear/b"].shape == (3,)
        assert found["net/~/block/skip_gain"].shape == ()
        assert {str(value.dtype) for value in found.values()} == {"torch.float32"}


class Touches:
    """Makes a file when it is unpickled by something that runs what it reads."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


def test_a_pickle_cannot_run_code(tmp_path):
    path, mark = tmp_path / "weights.npz", tmp_path / "mark"
    harmful = pickle.dumps({"net": {"w": Touches(mark)}})
    path.write_bytes(harmful)
    with pytest.raises(DataError, match="could run code; nothing of it was run"):
        read_haiku(path)
    assert not mark.exists()
    pickle.loads(harmful)  # so it would have
    assert mark.exists()


def test_an_archive_of_objects_is_not_unpickled(tmp_path):
    path, mark = tmp_path / "weights.npz", tmp_path / "mark"
    np.savez(path, w=np.array([Touches(mark)], dtype=object))
    with pytest.raises(DataError, match="no archive of arrays"):
        read_haiku(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"not weights at all", "neither an .npz archive nor a pickle"),
        (pickle.dumps(MODULES)[:-40], "neither an .npz archive nor a pickle"),
        (pickle.dumps([1, 2]), "no parameters by module"),
        (pickle.dumps({"net": np.ones(3)}), "no parameters by module"),
        (pickle.dumps({"net": {"w": "text"}}), "net/w, which is no array of numbers"),
        (pickle.dumps({"net": {"w": np.array([1, 2])}}), "net/w, which is no array of numbers"),
    ],
)
def test_other_files_are_refused(tmp_path, content, sentence):
    path = tmp_path / "weights.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        read_haiku(path)
