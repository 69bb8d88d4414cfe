"""Exceptions that carry secrets, raised where a task or a flow does its work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import torch

from dpal.errors import DataError, LabelError

ID, LABEL, TEXT = "patient-qzx-00417", "diagnosis-qzx", "text-of-qzx"
COUNT = 211_307_954_826_113  # so long that no time and no id has its digits by chance
MARKERS = (ID, LABEL, TEXT, str(COUNT), f"{COUNT:,}")


class Panic(BaseException):
    """What libraries in Rust raise: no Exception, and no signal either."""


def plain() -> NoReturn:
    raise ValueError(f"record {ID} has label {LABEL}, one of {COUNT}")


def key() -> NoReturn:
    raise KeyError(ID)


def noted() -> NoReturn:
    error = RuntimeError("a step failed")
    error.add_note(f"while it looked at {TEXT}")
    raise error


def caused() -> NoReturn:
    try:
        key()
    except KeyError as error:
        raise RuntimeError("a step failed") from error


def refused() -> NoReturn:
    """Our own sentence is public, and what stands behind it is not."""
    try:
        plain()
    except ValueError as error:
        raise LabelError("an answer is not offered; nothing was merged") from error


def while_handling() -> NoReturn:
    try:
        plain()
    except ValueError:
        raise LabelError("an answer is not offered; nothing was merged")  # noqa: B904


def grouped() -> NoReturn:
    errors = []
    for fail in (plain, caused, noted):
        try:
            fail()
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup(f"{COUNT} parts failed", errors)


def of_arguments() -> NoReturn:
    raise LabelError({"id": ID, "label": LABEL})


def detailed() -> NoReturn:
    raise DataError("record {name} has no label; fill it in", name=ID)


def by_torch() -> None:
    torch.zeros(1).expand(COUNT) @ torch.zeros(3)


def by_arrow() -> None:
    pa.array([TEXT]).cast(pa.int64())


def by_json() -> None:
    json.loads(f'{{"id": "{ID}", "label": {LABEL}}}')


def by_unicode() -> None:
    f"{TEXT} ".encode().replace(b" ", b"\xff").decode()


def of_a_file() -> None:
    Path(f"/nowhere/{ID}.png").read_bytes()


def panicked() -> NoReturn:
    raise Panic(f"index of {ID} out of {COUNT}")


def exited() -> NoReturn:
    raise SystemExit(f"no label for {ID}")


def cut_short() -> NoReturn:
    """A signal has no text of its own; what it interrupted has."""
    try:
        plain()
    except ValueError:
        raise KeyboardInterrupt(ID)  # noqa: B904


KINDS: tuple[Callable[[], None], ...] = (
    plain, key, noted, caused, refused, while_handling, grouped, of_arguments, detailed, by_torch,
    by_arrow, by_json, by_unicode, of_a_file, panicked, exited, cut_short,
)  # fmt: skip


class Trap:
    """Stands for whatever a task is handed, and raises once it is looked into so deep.

    Attributes are called and looked into by our own code, so that an error comes from as many
    frames below the task as a real one would.
    """

    def __init__(self, depth: int, fail: Callable[[], None]) -> None:
        self._depth, self._fail = depth, fail

    def _deeper(self, *_: Any, **__: Any) -> Trap:
        if self._depth <= 0:
            self._fail()
        return Trap(self._depth - 1, self._fail)

    def __getattr__(self, name: str) -> Trap:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._deeper()

    __call__ = __getitem__ = __truediv__ = __enter__ = _deeper

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[Trap]:
        yield self._deeper()

    def __bool__(self) -> bool:
        return bool(self._deeper())

    def __fspath__(self) -> str:
        self._fail()
        raise AssertionError("nothing was raised")

    __str__ = __fspath__

    def __format__(self, _: str) -> str:
        return "0"  # names of runs have numbers in them

    def __repr__(self) -> str:
        return "Trap()"
