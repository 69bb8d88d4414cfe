"""Which slow tests come first."""

from __future__ import annotations

import random
import subprocess

import pytest

from tests.chosen.order import changed_files, ordered

REACHES = {
    "tests/flows/test_a.py": {"tests/flows/test_a.py": 0, "dpal/one.py": 1, "dpal/all.py": 2},
    "tests/flows/test_b.py": {"tests/flows/test_b.py": 0, "dpal/all.py": 1},
    "tests/flows/test_c.py": {"tests/flows/test_c.py": 0, "dpal/all.py": 1},
    "tests/store/test_d.py": {"tests/store/test_d.py": 0, "dpal/all.py": 1},
    "tests/store/test_e.py": {"tests/store/test_e.py": 0},
}


def names(changed, seed=0):
    return [choice.file for choice in ordered(REACHES, changed, rng=random.Random(seed))]


@pytest.mark.parametrize("seed", range(5))
def test_the_file_that_fewest_tests_reach_has_the_first_turn(seed):
    first, second, *rest = names(["dpal/all.py", "dpal/one.py"], seed)
    assert first == "tests/flows/test_a.py"
    assert second == "tests/store/test_d.py", "of three that are equally near, of another room"
    assert rest[-1] == "tests/store/test_e.py", "what reaches nothing comes last"
    assert {first, second, *rest} == set(REACHES)


def test_a_test_that_changed_is_nearest_to_itself():
    assert names(["tests/store/test_e.py"])[0] == "tests/store/test_e.py"


def test_what_nothing_reaches_is_by_chance_and_a_seed_repeats_it():
    orders = {tuple(names(["docs/a.md"], seed)) for seed in range(20)}
    assert len(orders) > 5
    assert names(["docs/a.md"], 3) == names(["docs/a.md"], 3)
    whys = {choice.why for choice in ordered(REACHES, [], rng=random.Random(0))}
    assert whys == {"by chance"}


@pytest.mark.parametrize("changed", [None, [], ["dpal/one.py"]])
def test_what_looks_at_the_whole_project_is_first_whatever_changed(changed):
    reaches = REACHES | {"tests/contracts/test_c.py": {}}
    first, *rest = ordered(reaches, changed, rng=random.Random(0))
    assert first.file == "tests/contracts/test_c.py"
    assert {choice.file for choice in rest} == set(REACHES)


@pytest.mark.parametrize("changed", [None, ["pyproject.toml", "dpal/one.py"]])
def test_where_anything_may_have_changed_every_test_may_be_reached(changed):
    choices = list(ordered(REACHES, changed, rng=random.Random(0)))
    assert {choice.why for choice in choices} == {"may be reached"}
    assert {choice.file for choice in choices} == set(REACHES)


@pytest.fixture
def project(tmp_path):
    """A repository whose main has two landings, the second one by merge."""

    def git(*arguments):
        named = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *named, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(name):
        (tmp_path / name).write_text(name, encoding="utf-8")
        git("add", ".")
        git("commit", "-q", "-m", name)

    git("init", "-q", "-b", "main")
    commit("first")
    git("checkout", "-q", "-b", "branch")
    commit("second")
    commit("third")
    git("checkout", "-q", "main")
    git("merge", "-q", "--no-ff", "-m", "landing", "branch")
    return tmp_path, git


def test_a_landing_is_compared_with_its_first_parent(project):
    root, _ = project
    assert changed_files(root, None) == ("second", "third")
    assert changed_files(root, "branch~1") == ("third",)


def test_a_branch_is_compared_with_where_it_left_main(project):
    root, git = project
    git("checkout", "-q", "branch")
    git("update-ref", "refs/remotes/origin/main", "main~1")
    assert changed_files(root, None) == ("second", "third")


def test_without_a_history_nothing_is_known(project, tmp_path_factory):
    root, git = project
    git("checkout", "-q", "main~1")
    assert changed_files(root, None) is None
    assert changed_files(tmp_path_factory.mktemp("bare"), None) is None
