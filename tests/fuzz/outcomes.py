"""How a command may end on whatever it is given: done, or one sentence of ours."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.flows.calling import Result, call

_ENDS = (0, 1, 2, 3)  # done; a check failed; refused; consistent, and the author unknown
_UNEXPECTED = ("Traceback", "unexpected ")


@dataclass
class Tally:
    """What came of many corrupted inputs.

    Attributes:
      ends: how often each exit code was seen.
      astray: what ended in anything but a result or one sentence.
    """

    ends: dict[int, int] = field(default_factory=dict)
    astray: list[str] = field(default_factory=list)

    def run(self, about: str, *arguments: str) -> Result | None:
        """Calls the command, and notes how it ended."""
        try:
            result = call(*arguments)
        except BaseException as error:
            self.astray.append(f"{about}: {' '.join(arguments)}: {type(error).__name__}: {error}")
            return None
        self.note(f"{about}: {' '.join(arguments)}", result)
        return result

    def note(self, about: str, result: Result) -> None:
        """Notes how something ended."""
        self.ends[result.returncode] = self.ends.get(result.returncode, 0) + 1
        if fault := fault_of(result):
            self.astray.append(f"{about}: {fault}")

    @property
    def total(self) -> int:
        return sum(self.ends.values())


def fault_of(result: Result) -> str:
    """What is wrong with how a command ended; empty if nothing is."""
    said = result.stderr.strip()
    if result.returncode not in _ENDS or any(one in said for one in _UNEXPECTED):
        return f"exit code {result.returncode}, {said[-300:]!r}"
    if result.returncode == 2:
        begun = ("starting Prefect ...", "planning ")
        lines = [line for line in said.splitlines() if not line.startswith(begun)]
        if not lines or not lines[-1].startswith("dpal: "):
            return f"no sentence of ours: {said[-300:]!r}"
    return ""
