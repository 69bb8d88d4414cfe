"""What came of a verification: its lines, its last sentence, its exit code, its JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpal.certificate.check_outcome import Check, CheckOutcome, any_failed
from dpal.certificate.dsse import fingerprint
from dpal.certificate.signature_trust import Author
from flows.cli.terminal import out

KNOWN, FAILED, UNKNOWN_AUTHOR = 0, 1, 3  # 2 is for what a person can correct, as everywhere

_STYLES = {
    CheckOutcome.OK: "green",
    CheckOutcome.FAILED: "bold red",
    CheckOutcome.UNCHECKED: "yellow",
}
_OUTCOME_WIDTH = 13
_NARROWEST = 40  # columns for a detail; less is left to the terminal


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """All that a verification found.

    Attributes:
      what: certificate or file.
      subject: which one, for JSON.
      checks: one a line, the author's among them.
      author: who wrote it, as far as that is known.
    """

    what: str
    subject: Mapping[str, Any]
    checks: Sequence[Check]
    author: Author

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        if any_failed(self.checks):
            return FAILED
        return KNOWN if self.author.known else UNKNOWN_AUTHOR

    @property
    def style(self) -> str:
        """The color of the last line."""
        return {KNOWN: "green", FAILED: "bold red", UNKNOWN_AUTHOR: "yellow"}[self.exit_code]

    def as_object(self) -> dict[str, Any]:
        """The same as JSON; `verified` only where the author is known, too."""
        key = self.author.key
        return {
            **self.subject,
            "verified": self.exit_code == KNOWN,
            "consistent": not any_failed(self.checks),
            "author": {
                "known": self.author.known,
                "key": key,
                "fingerprint": None if key is None else fingerprint(key),
            },
            "exit": self.exit_code,
            "checks": [
                {"check": check.name, "outcome": check.outcome.value, "detail": check.detail}
                for check in self.checks
            ],
        }

    def verdict(self, promised: str, command: str, *, own: bool) -> str:
        """The last line.

        Args:
          promised: what is certified.
          command: that was typed, to be typed again with a key.
          own: whether this machine's own key signed.
        """
        if any_failed(self.checks):
            return f"FAILED: do not rely on this {self.what}"
        others = [
            check.name
            for check in self.checks
            if check.outcome is CheckOutcome.UNCHECKED and check is not self.author.check
        ]
        rest = f"; not checked: {', '.join(others)}" if others else ""
        if self.author.known:
            return f"ok: {promised}; {self.author.check.detail}{rest}"
        return f"consistent, author unknown: {promised}{rest}. {self._what_to_do(command, own)}"

    def _what_to_do(self, command: str, own: bool) -> str:
        anybody = "Nothing contradicts it, but anybody could have written it"
        if own:
            return (
                f"{anybody}, unless you trust the key that signed it. It is this machine's own, so "
                f"that you may type: {command} --key own"
            )
        ask = "by phone or in person, not from where this file came from"
        if self.author.key is None:
            return (
                f"{anybody}: it is not signed (nor are certificates of earlier versions). Ask the "
                "data owner to run the same `dpal run` again, which signs it, and for their public "
                f"key ({ask}; `dpal ledger key` prints it there). Then: {command} --key KEY"
            )
        return (
            f"{anybody}, with a key of their own. Ask the data owner for their public key ({ask}; "
            f"`dpal ledger key` prints it there). Then: {command} --key KEY"
        )


def tell_checks(checks: Sequence[Check]) -> None:
    """One line a check: words read from the left, so this is no table of numbers."""
    names = max(len(check.name) for check in checks) + 2
    margin = _OUTCOME_WIDTH + names
    room = out.width - margin
    for check in checks:
        detail = check.detail
        if out.is_terminal and room >= _NARROWEST:  # in a file or a pipe a line stays a line
            detail = f"\n{' ' * margin}".join(textwrap.wrap(detail, room))
        out.print(f"{check.outcome:<{_OUTCOME_WIDTH}}", style=_STYLES[check.outcome], end="")
        out.print(f"{check.name:<{names}}{detail}", markup=False)
