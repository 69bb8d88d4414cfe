"""What errors of ours are, by code, and how they say it: the wording stands in one file.

After a better sentence: python -m tests.contracts.test_messages > tests/golden/messages.txt
"""

from __future__ import annotations

import ast
import inspect
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from dpal.errors import AnchorError, DataError, DpalError, LedgerError, LedgerTampered
from flows.cli.terminal import run_and_explain_errors
from tasks import boundary
from tests.contracts.test_errors import OURS, ROOT, SOURCES, family

GOLDEN = ROOT / "tests" / "golden" / "messages.txt"
FINDINGS = ("missing", "altered", "foreign", "behind", "forked", "lost", "another")
SAMPLES = {"int": 2, "float": 1.5}
EVERY = family()


def samples() -> Iterator[DpalError]:
    """One error of every class, and of every finding; texts are the names of arguments."""
    for kind in EVERY:
        wanted = [one for one in inspect.signature(kind.__init__).parameters.values()
                  if one.kind is one.POSITIONAL_OR_KEYWORD][1:]  # fmt: skip
        given = [
            SAMPLES.get(one.annotation, one.name.upper())
            if one.default is one.empty
            else one.default
            for one in wanted
        ]
        if kind is AnchorError:
            yield from (AnchorError("LEDGER", finding, 7, "DIGEST") for finding in FINDINGS)
        else:
            yield kind(*given) if wanted else kind("SENTENCE")


def messages() -> str:
    """Code and message of every sample, a line each."""
    return "".join(sorted(f"{error.code}: {error}\n" for error in samples()))


def test_messages_are_as_they_were_agreed_on():
    assert messages() == GOLDEN.read_text(encoding="utf-8")


def test_every_error_has_a_code_of_its_own():
    codes = [vars(kind).get("code", "") for kind in EVERY]
    assert "" not in codes, "give the class a code that later versions will keep"
    assert len(set(codes)) == len(codes)
    assert all(code.replace("-", "").isalpha() and code.islower() for code in codes)


@pytest.mark.parametrize("error", list(samples()), ids=lambda one: one.code)
def test_that_nothing_was_released_is_said_once_or_not_at_all(error):
    claimed = error.released is False
    assert str(error).count("nothing was") == str(error).count(error.closing) + (
        "nothing was lost" in str(error) and not claimed
    )
    assert str(error).endswith(f"; {error.closing}") is claimed
    assert pickle.loads(pickle.dumps(error)).released is error.released


@pytest.mark.parametrize("kind", [DataError, LedgerError])
def test_where_it_is_certain_the_one_who_raises_says_so(kind):
    error = kind.before_release("row {row} has no label", row=7)
    assert str(error) == "row [...] has no label; nothing was released"
    assert error.for_owner() == "row 7 has no label; nothing was released"
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.released, str(again)) == (error.code, False, str(error))
    assert kind("row 7 has no label").released is None


@pytest.mark.parametrize(("kind", "exit_code"), [(DataError, 2), (LedgerTampered, 1)])
def test_programs_read_code_and_fact_beside_the_sentence(kind, exit_code, capsys):
    def refuse() -> None:
        if kind is DataError:
            raise DataError.before_release("row {row} is torn", row=7)
        raise kind(3, "its body")

    assert run_and_explain_errors(refuse, as_json=True) == exit_code
    shown = capsys.readouterr()
    told = json.loads(shown.out)["error"]
    assert (told["code"], told["released"]) == (kind.code, False if kind is DataError else None)
    assert "7" not in shown.out  # what programs read may be kept where others see it
    assert run_and_explain_errors(refuse) == exit_code
    assert capsys.readouterr().out == ""


def test_the_state_of_a_flow_carries_the_error_with_its_code():
    @boundary.flow()
    def refuse() -> None:
        raise DataError.before_release("a teacher has no record")

    state: Any = refuse.fn()  # not the None that it would return
    assert state.message == "a teacher has no record; nothing was released"
    assert (state.data.code, state.data.released) == ("data", False)


def written_by_hand(tree: ast.Module) -> list[int]:
    """Lines of calls that make an error of ours with the sentence in their text."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).partition(".")[0] in OURS
        and any(
            isinstance(one, ast.Constant) and CLOSING in str(one.value)
            for argument in node.args
            for one in ast.walk(argument)
        )
    ]


CLOSING = DpalError.closing
# It says what was not released a second time, which no field can.
OTHERWISE = {"dpal/ledger/ledger_store.py"}


def test_nobody_writes_the_sentence_by_hand():
    sources = [*SOURCES, *(ROOT / "flows").rglob("*.py")]
    a_word = CLOSING.split()[-1]  # quicker to find than to take all apart
    found = {str(path.relative_to(ROOT)) for path in sources
             if a_word in (text := path.read_text(encoding="utf-8"))
             and written_by_hand(ast.parse(text))}  # fmt: skip
    assert found == OTHERWISE


def test_the_search_finds_it():
    for text in ('"no; nothing was released"', 'f"{no}, " "nothing was released"'):
        assert written_by_hand(ast.parse(f"raise DataError({text})"))
        assert written_by_hand(ast.parse(f"raise DataError.before_release({text})"))
    assert not written_by_hand(ast.parse('raise DataError("no")'))


if __name__ == "__main__":
    print(messages(), end="")  # noqa: T201
