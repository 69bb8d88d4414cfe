"""Projects in a real Label Studio: made, filled, read, and made anew."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dpal.data.sources import Role, open_source
from dpal.errors import LabelingProjectOpen, LabelStudioError
from dpal.labeling.label_studio import LabelStudioLabeler
from dpal.labeling.label_studio_api import LabelStudio
from dpal.labeling.label_studio_project import GONE, REFILLED
from dpal.labeling.label_studio_questions import Question
from dpal.labeling.label_studio_rules import Agreement, Media, Rules, Skipped
from tests.labeling.annotators import Annotator, LabelStudioServer, label_studio  # noqa: F401

pytestmark = pytest.mark.slow
IDS = ["patient-1", "patient-3", "patient-5"]


@pytest.fixture(scope="module")
def people(label_studio: LabelStudioServer) -> list[Annotator]:  # noqa: F811
    return [label_studio.annotator(), label_studio.hire(), label_studio.hire()]


@pytest.fixture
def labeler(label_studio, tmp_path):  # noqa: F811
    """Makes labelers for one query."""
    pictures = [png(number) for number in range(8)]
    table = pa.table({"id": [f"patient-{one}" for one in range(8)], "image": pictures})
    pq.write_table(table, tmp_path / "pool.parquet")
    source = open_source(tmp_path / "pool.parquet", Role.POOL, label_column="label")

    def make(*, token: str | None = None, url: str | None = None, **rules) -> LabelStudioLabeler:
        return LabelStudioLabeler(
            source=source,
            question=Question.about(source, classes=3, class_names=["cat", "dog", "a & <b>"]),
            rules=Rules(**rules),
            server=LabelStudio(url or label_studio.url, token or label_studio.token),
            title="clinic, phase-1",
            folder=tmp_path / "query",
            delivered=tmp_path / "labels.parquet",
            command="dpal label artifacts/clinic",
        )

    return make


def png(number: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((8, 8), 20 * number, np.uint8)).save(content, format="PNG")
    return content.getvalue()


def projects(one: LabelStudioLabeler) -> dict[str, int]:
    return dict(one._read()["projects"])


def tasks_of(person: Annotator, one: LabelStudioLabeler, role: str = "label") -> dict[str, int]:
    """Numbers of the tasks by the record that they stand for."""
    keys = one._read()["keys"]
    there = person.tasks(projects(one)[role])
    return {keys[task["data"]["dpal_key"]]: task["id"] for task in there}


@pytest.mark.parametrize("media", list(Media))
def test_tasks_go_out_and_answers_come_back(labeler, people, media):
    one = labeler(media=media)
    with pytest.raises(LabelingProjectOpen, match=r"wanted in http.*/projects/\d+"):
        one.label(IDS)
    (first, *_), tasks = people, tasks_of(people[0], one)
    assert set(tasks) == set(IDS)
    shown = [task["data"] for task in first.tasks(projects(one)["label"])]
    assert not any("patient" in str(data) for data in shown)
    if media is Media.HOSTED:
        assert first.client.get(shown[0]["image"]).content == png(1)
    first.answer(tasks["patient-1"], "dog")
    first.answer(tasks["patient-3"], "a & <b>")
    assert one.look(IDS).waiting == IDS  # nothing is downloaded before all can be there
    assert one.look(IDS, partly=True).waiting == ["patient-5"]
    first.answer(tasks["patient-5"], "cat")
    assert one.label(IDS) == {"patient-1": 1, "patient-3": 2, "patient-5": 0}
    assert one.clean() == 1
    assert first.client.get(f"/api/projects/{projects(one)['label']}/").status_code == 404


def test_a_query_of_nobody_is_waited_for_like_any_other(labeler):
    one = labeler()
    with pytest.raises(LabelingProjectOpen):
        one.label([])
    assert one.label([]) == {}
    assert one.clean() == 1


def test_three_annotators_disagree(labeler, people):
    one = labeler(annotators=3)
    one.look(IDS)
    tasks = tasks_of(people[0], one)
    votes = {"patient-1": ["cat", "dog", "dog"], "patient-3": ["cat", "dog", "a & <b>"],
             "patient-5": ["skip", "skip", "cat"]}  # fmt: skip
    for seconds, (record, said) in zip([4.5, None, 30.0], votes.items(), strict=True):
        for person, word in zip(people, said, strict=True):
            if word == "skip":
                person.skip(tasks[record])
            else:
                person.answer(tasks[record], word, seconds=seconds)
    progress = one.look(IDS)
    assert progress.labels == {"patient-1": 1}
    assert (progress.skipped, progress.disputed) == (["patient-5"], ["patient-3"])
    (to_decide,) = people[1].tasks(projects(one)["decide"])
    assert to_decide["data"]["said"] == "cat, dog, a & <b>"
    people[1].answer(to_decide["id"], "a & <b>", seconds=1000.0)
    assert one.label(IDS) == {"patient-1": 1, "patient-3": 2}
    figures = one.look(IDS).figures
    assert (figures.records, figures.unlabeled) == (3, {"skipped": 1})
    assert (figures.annotators, figures.answers, figures.compared) == (3, 7, 2)
    assert (figures.unanimous, figures.pairwise) == (0, pytest.approx(1 / 6))
    # Whoever decides is not counted: neither the label nor its time.
    assert (figures.timed, figures.median_seconds) == (4, 4.5)
    assert figures.labels_per_hour == pytest.approx(4 * 3600 / (3 * 4.5 + 30))
    one.clean()


def test_every_disagreement_and_skip_can_be_decided_by_one(labeler, people):
    one = labeler(annotators=2, agreement=Agreement.ADJUDICATE, skipped=Skipped.ASK_AGAIN)
    one.look(IDS)
    tasks = tasks_of(people[0], one)
    for person, word in zip(people, ["cat", "dog"], strict=False):
        person.answer(tasks["patient-1"], word)
        person.answer(tasks["patient-3"], "dog")
        person.skip(tasks["patient-5"])
    assert sorted(one.look(IDS).disputed) == ["patient-1", "patient-5"]
    again = tasks_of(people[2], one, "decide")
    people[2].skip(again["patient-5"])
    people[2].answer(again["patient-1"], "cat")
    assert one.look(IDS).disputed == ["patient-5"]  # skipping does not end it
    people[2].answer(again["patient-5"], "cat")
    assert one.label(IDS) == {"patient-1": 0, "patient-3": 1, "patient-5": 0}
    one.clean()


def test_an_answer_that_is_not_offered_keeps_it_open(labeler, people):
    one = labeler()
    one.look(IDS)
    tasks = tasks_of(people[0], one)
    for record in IDS:
        people[0].answer(tasks[record], "zebra" if record == "patient-3" else "cat")
    progress = one.look(IDS)
    assert progress.waiting == ["patient-3"]
    assert progress.invalid == [tasks["patient-3"]]
    people[0].answer(tasks["patient-3"], "dog")
    assert one.look(IDS).complete
    one.clean()


def test_deleted_tasks_and_projects_are_made_anew(labeler, people):
    one, first = labeler(), people[0]
    one.look(IDS)
    tasks = tasks_of(first, one)
    first.answer(tasks["patient-1"], "cat")
    first.client.delete(f"/api/tasks/{tasks['patient-3']}/").raise_for_status()
    assert one.look(IDS).news == [REFILLED]
    assert set(tasks_of(first, one)) == set(IDS)
    before = projects(one)["label"]
    first.client.delete(f"/api/projects/{before}/").raise_for_status()
    assert one.look(IDS).news == [GONE]
    assert projects(one)["label"] != before
    assert one.look(IDS).news == []
    assert set(tasks_of(first, one)) == set(IDS)
    one.clean()


def test_a_project_whose_maker_was_killed_is_found(labeler, people, label_studio):  # noqa: F811
    """Killed after the server made it and before its number was written down."""
    one = labeler()
    one.look(IDS)
    made = projects(one)["label"]
    one._write(one._read() | {"projects": {}})
    one.look(IDS)
    assert projects(one)["label"] == made
    assert len(people[0].tasks(made)) == 3
    one.clean()


def test_troubles_are_one_sentence(labeler, label_studio):  # noqa: F811
    for token in ("0" * 40, "a.b.c"):
        with pytest.raises(LabelStudioError, match="does not accept the token; copy a new token"):
            labeler(token=token).look(IDS)
    with pytest.raises(LabelStudioError, match="does not answer"):
        labeler(url="http://127.0.0.1:9").look(IDS)


def test_a_personal_token_is_exchanged(labeler, people):
    made = people[0].client.post("/api/token/").json()["token"]
    assert labeler(token=made).look(IDS).waiting == IDS
    one = labeler(token=made)
    one.server._access = "expired"
    assert one.look(IDS).waiting == IDS
    one.clean()


def test_a_server_that_comes_back_still_has_everything(labeler, people, label_studio):  # noqa: F811
    one = labeler()
    one.look(IDS)
    tasks = tasks_of(people[0], one)
    people[0].answer(tasks["patient-1"], "cat")
    label_studio.stop()
    with pytest.raises(LabelStudioError, match="does not answer"):
        one.look(IDS)
    label_studio.start()
    assert one.look(IDS, partly=True).waiting == IDS[1:]
    for record in IDS[1:]:
        people[0].answer(tasks[record], "cat")
    assert one.label(IDS) == dict.fromkeys(IDS, 0)


def test_what_a_model_says_is_filled_in_and_people_correct_it(labeler, people):
    one = replace(labeler(), suggest=lambda ids: {name: 1 for name in ids if name != "patient-3"})
    one.look(IDS)
    keys, first = one._read()["keys"], people[0]
    number = projects(one)["label"]
    found = {keys[task["data"]["dpal_key"]]: task for task in first.tasks(number)}
    for name in IDS:
        predictions = first.client.get(f"/api/tasks/{found[name]['id']}/").json()["predictions"]
        if name == "patient-3":
            assert not predictions
            continue
        [prediction] = predictions
        assert one.question.read(prediction["result"]) == 1
        assert not prediction.get("score")
    assert first.client.get(f"/api/projects/{number}/").json()["show_collab_predictions"]
    assert one.look(IDS, partly=True).waiting == IDS, "nobody has confirmed anything"
    for name, task in found.items():
        first.answer(task["id"], "dog" if name == "patient-1" else "cat")
    assert one.label(IDS) == {"patient-1": 1, "patient-3": 0, "patient-5": 0}
