from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest

from dpal.errors import DataError
from dpal.models.haiku_weights import read_haiku

MODULES: dict[str, dict[str, Any]] = {
    "net/~/conv": {"w": np.arange(24, dtype=np.float64).reshape(1, 2, 3, 4)},
    "net/~/linear": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3)},
    "net/~/block": {"skip_gain": np.float32(0.5)},
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_gives_torch_layouts(tmp_path, save):
    path = tmp_path / "archive.npz"
    save(path, **{f"{m}/{n}": v for m, part in MODULES.items() for n, v in part.items()})
    found = read_haiku(path)
    assert set(found) == {f"{m}/{n}" for m, part in MODULES.items() for n in part}
    filters = found["net/~/conv/w"]
    assert filters.shape == (4, 3, 1, 2)
    assert filters[3, 2, 0, 1] == MODULES["net/~/conv"]["w"][0, 1, 2, 3]
    assert found["net/~/linear/w"][2, 1] == MODULES["net/~/linear"]["w"][1, 2]
    assert found["net/~/linear/b"].shape == (3,)
    assert found["net/~/block/skip_gain"].shape == ()
    assert {str(value.dtype) for value in found.values()} == {"torch.float32"}


def test_what_the_refusal_says_makes_an_archive_of_a_pickle(forked, tmp_path):
    published, path = tmp_path / "F0_haiku.npz", tmp_path / "F0.npz"
    published.write_bytes(pickle.dumps(MODULES))
    with pytest.raises(DataError, match=r"is no \.npz archive") as refused:
        read_haiku(published)
    told = "numpy.savez" + str(refused.value).partition("numpy.savez")[2]
    told = told.replace("FILE", repr(str(published))).replace("NEW", repr(str(path)))
    forked.run(f"import numpy, pickle; {told}").check_returncode()
    assert read_haiku(path)["net/~/linear/w"][2, 1] == MODULES["net/~/linear"]["w"][1, 2]


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
    with pytest.raises(DataError, match=r"pickle, .*run code"):
        read_haiku(path)
    assert not mark.exists()
    pickle.loads(harmful)  # so it would have
    assert mark.exists()


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def called(name: str, module: str = "numpy") -> bytes:
    return text(module) + text(name) + b"\x93"


def with_an_address() -> bytes:
    """A scalar whose bytes are an address, made by NumPy's own classes: reading it crashes."""
    kind = called("dtype") + text("O8") + b"\x89\x88\x87R"
    # With the flags that say "objects" taken away, NumPy no longer refuses the bytes.
    kind += b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    scalar = called("scalar", "numpy._core.multiarray") + kind + b"C\x08AAAAAAAA\x86R"
    return b"\x80\x04}" + text("net") + b"}" + text("w") + scalar + b"ss."


def nested() -> bytes:
    """A tuple in a tuple and so on as a key: even an unpickler without any class crashes."""
    return b"\x80\x04})" + b"\x85" * 2_000_000 + b"Ns."


@pytest.mark.parametrize("content", [with_an_address, nested])
def test_a_pickle_cannot_crash_the_process(forked, tmp_path, content):
    path = tmp_path / "weights.npz"
    path.write_bytes(content())
    script = (
        "import sys, pathlib\nfrom dpal.errors import DataError\n"
        "from dpal.models.haiku_weights import read_haiku\n"
        "try:\n    read_haiku(pathlib.Path(sys.argv[1]))\n"
        "except DataError:\n    print('refused')\n"
    )
    # In a process of its own: where it is loaded, that process dies of signal 11.
    ran = forked.run(script, str(path))
    assert (ran.returncode, ran.stdout) == (0, "refused\n")


def test_an_archive_of_objects_is_not_unpickled(tmp_path):
    path, mark = tmp_path / "weights.npz", tmp_path / "mark"
    np.savez(path, w=np.array([Touches(mark)], dtype=object))
    with pytest.raises(DataError, match="no archive"):
        read_haiku(path)
    assert not mark.exists()


def archive_of(content: bytes, name: str = "net/w.npy") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def array_of(array: np.ndarray) -> bytes:
    whole = io.BytesIO()
    np.save(whole, array)
    return whole.getvalue()


def enormous() -> bytes:
    """An array that says it has 4 EiB, and has 12 bytes."""
    return array_of(np.ones(3, "f4")).replace(b"(3,), }" + 18 * b" ", b"(1152921504606846976,), }")


def damaged() -> bytes:
    """An archive whose compressed bytes were overwritten."""
    whole = bytearray(archive_of(array_of(np.random.default_rng(0).normal(size=500))))
    whole[300:400] = bytes(100)
    return bytes(whole)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"not weights at all", "is no .npz archive"),
        (damaged(), "no archive"),
        (archive_of(b"\x93NUMPY"), "no archive"),
        (archive_of(enormous()), "no archive .*MemoryError"),
        (archive_of(b"text", "net/w"), "net/w, which"),
        (archive_of(array_of(np.array(["a"]))), "net/w, which"),
        (archive_of(array_of(np.array([1, 2]))), "net/w, which"),
    ],
)
def test_other_files_are_refused(tmp_path, content, sentence):
    path = tmp_path / "weights.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        read_haiku(path)
