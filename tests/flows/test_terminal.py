"""Tables in a terminal: no word is broken, however narrow it is."""

from __future__ import annotations

import pytest

from dpal.reports.campaigns_side_by_side import Compared, comparison_table
from dpal.reports.report import Table
from flows.cli import terminal

NAMES = ("clinic-north-0001", "clinic-north-0002", "first")


def campaigns(*names: str) -> Table:
    """A comparison of campaigns that differ in all that sets them apart."""
    compared = []
    for number, name in enumerate(names):
        summary = {
            "name": name,
            "phases": [{}] * 3,
            "target_epsilon": 3 + number,
            "delta": 1e-4 / (1 + number),
            "adjacency": ("zero_out", "replace_one")[number % 2],
            "unit": ("record", "group")[number % 2],
            "acquisition": ("random", "entropy")[number % 2],
            "selection": "visible",
            "strategy": ("step_amplification", "noise_reduction")[number % 2],
        }
        phase = {"labels": 1000, "campaign_epsilon": 2.9986, "validation_accuracy": 0.961}
        compared.append(Compared(summary=summary, phases=[phase]))
    return comparison_table(compared)


@pytest.mark.parametrize("count", [2, 3])
def test_a_comparison_breaks_no_word_at_80_columns(monkeypatch, capsys, count):
    monkeypatch.setattr(terminal.out, "width", 80)
    table = campaigns(*NAMES[:count])
    terminal.print_table(table)
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    words = {word for row in (table.columns, *table.rows) for cell in row for word in cell.split()}
    assert words <= set(said.split())


def test_a_table_that_fits_stays_as_it_is(monkeypatch, capsys):
    monkeypatch.setattr(terminal.out, "width", 200)
    table = campaigns(*NAMES)
    terminal.print_table(table)
    header = next(line for line in capsys.readouterr().out.splitlines() if "campaign" in line)
    assert "strategy" in header and NAMES[0] not in header


@pytest.mark.parametrize("name", ["digits [/draft]", "study [final]", "[b]"])
def test_what_people_call_things_is_no_markup(capsys, name):
    terminal.print_table(Table(name, (name, "records"), ((name, "3"),)))
    terminal.out.print(f"{name}: done")
    terminal.err.print(f"{name}: done")
    said = capsys.readouterr()
    assert said.out.count(name) == 4 and said.err.count(name) == 1


def test_a_sentence_that_begins_with_a_number_is_no_number():
    table = Table("Campaigns", ("name", "plan"), (("a", "2.9986 of epsilon 3 at delta 0.0001"),))
    assert not table.is_number(1)
