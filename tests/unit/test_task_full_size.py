"""All 1,119 + 250 + 300 questions, asked twice of five targets: the published table, p-values and agreement come out
of the replies to the digit."""

import json
import os
from pathlib import Path

import pytest

import model_double
from answer_forms import FORMS
from model_double import BASELINE, PUBLISHED, SIGN_TESTS, TARGETS, disagreements
from servebench.faults import Fault
from servebench.tables.evaluated.comparisons import comparisons
from servebench.tables.evaluated.scores import agreement, positions, proofreading_outcomes, rescored, scores
from servebench.tasks import TASKS, mgsm, proofreading
from servebench.tasks.answers import answer_row, table
from servebench.tasks.scoring import score_replies
from servebench.tasks.task import Question

CONFIG = Path(__file__).parents[2] / "config" / "tasks"
MARGINS = {"jcommonsenseqa": 2.0, "mgsm": 5.0, "proof_fixed": 6.0}


def synthetic_choices():
    return [
        Question(question_id=str(8939 + i), text=f"問{i}", choices=tuple("甲乙丙丁戊"), gold=str(i % 5))
        for i in range(1119)
    ]


def synthetic_numbers():
    return [Question(question_id=str(i), text=f"問{i}", gold=f"{37 * i:,}") for i in range(1, 251)]


def published(name, task):
    root = os.environ.get("SERVEBENCH_DATA")
    if not root or not (path := Path(root) / name).exists():
        pytest.skip(f"needs {name} (directory in SERVEBENCH_DATA)")
    return TASKS[task].load(path)


@pytest.fixture(scope="module", params=["synthetic", "published"])
def questions(request):
    ours = proofreading.load(CONFIG / "proofreading" / "sentences.jsonl")
    if request.param == "synthetic":
        return {"jcommonsenseqa": synthetic_choices(), "mgsm": synthetic_numbers(), "proofreading": ours}
    return {
        "jcommonsenseqa": published("jcommonsenseqa/valid-v1.3.json", "jcommonsenseqa"),
        "mgsm": published("mgsm/mgsm_ja.tsv", "mgsm"),
        "proofreading": ours,
    }


@pytest.fixture(scope="module")
def double():
    return model_double.scripts()


@pytest.fixture(scope="module")
def answers(questions, double):
    return table(
        answer_row(target, task, repeat, question, reply, tokens=len(reply.text or ""), latency_s=0.1)
        for target, task, repeat, question, reply in model_double.replies(questions, double)
    )


@pytest.fixture(scope="module")
def compared(answers, questions):
    return comparisons(answers, questions, BASELINE, MARGINS).to_pylist()


def test_everything_was_asked(answers):
    assert answers.num_rows == 5 * 2 * (1119 + 250 + 300)


def test_the_published_scores(answers, questions):
    rows = [row for row in scores(answers, questions).to_pylist() if row["headline"]]
    assert len(rows) == 5 * 2 * 4
    for target, figures in PUBLISHED.items():
        for measure in ("jcommonsenseqa", "mgsm", "proof_fixed", "proof_rewritten"):
            shares = [row["share"] for row in rows if row["target"] == target and row["measure"] == measure]
            found = [round(100 * share, 1) for share in (min(shares), max(shares))]
            wanted = (
                [figures["proof_rewritten"]] * 2
                if measure == "proof_rewritten"
                else [figures[f"{measure}_min"], figures[f"{measure}_max"]]
            )
            assert found == wanted, (target, measure)


def test_the_published_discordant_pairs_and_p(compared):
    assert len(compared) == 2 * len(SIGN_TESTS)
    for (measure, target), figures in SIGN_TESTS.items():
        rows = [row for row in compared if (row["measure"], row["target"]) == (measure, target)]
        for row in rows:
            run = f"run{row['repeat']}"
            assert (row["base_only"], row["other_only"]) == (figures[f"{run}_base_only"], figures[f"{run}_other_only"])
        adjusted = [row["p_holm"] for row in rows]
        assert round(min(adjusted), 2) == figures["p_holm_min"]
        assert round(max(adjusted), 2) == figures["p_holm_max"]


def test_the_published_agreement(answers, questions):
    rows = agreement(answers, questions).to_pylist()
    assert len(rows) == 5 * 3
    for row in rows:
        assert row["n"] - row["same_answer"] == disagreements(row["task"], row["target"])
        column = {"proofreading": "agree_proof"}.get(row["task"], f"agree_{row['task']}")
        assert round(100 * row["same_answer_share"], 1) == PUBLISHED[row["target"]][column]
        assert row["low"] < row["same_answer_share"] < row["high"]


def test_equal_texts_are_those_worded_the_same_with_the_same_answer(answers, questions, double):
    rows = {row["target"]: row for row in agreement(answers, questions).to_pylist() if row["task"] == "mgsm"}
    for target, true in double["mgsm"].true.items():
        changed = {place for place in range(250) if true[place, 0] != true[place, 1]} | double["mgsm"].changed[target]
        silent = {p for p in range(250) if not true[p].any() and p not in changed and p % 6 != 5}
        reworded = set(range(0, 250, 3)) - silent
        assert rows[target]["same_text"] == 250 - len(changed | reworded)
        assert rows[target]["first_difference_median"] == len("まず")


def test_the_ways_to_give_no_answer_are_counted_apart(answers, questions, double):
    rows = [row for row in scores(answers, questions).to_pylist() if row["measure"] == "mgsm"]
    for row in rows:
        true, changed = double["mgsm"].true[row["target"]], double["mgsm"].changed[row["target"]]
        silent = [place for place in range(250) if not true[place].any() and place not in changed]
        for kind, outcome in enumerate(("empty", "reasoning_leaked", "truncated", "refused", "unparsable")):
            assert row[outcome] == sum(place % 6 == kind for place in silent)
        assert row["correct"] == row["count"] == true[:, row["repeat"] - 1].sum()
        assert row["reasoning_replies"] == row["reasoning_leaked"]
        assert sum(row[outcome] for outcome in ("correct", "wrong")) + sum(p % 6 != 5 for p in silent) == 250


def test_answers_in_another_form_than_asked_for_are_told_apart(answers, questions):
    rows = {(r["measure"], r["target"], r["repeat"]): r for r in scores(answers, questions).to_pylist()}
    for (measure, target, repeat), row in rows.items():
        if measure == "mgsm_as_asked_for":
            assert 0 < row["count"] < rows["mgsm", target, repeat]["count"]
        if measure == "proof_fixed_lenient":
            assert row["count"] == rows["proof_fixed", target, repeat]["count"]


def test_the_damaged_items_are_left_out_beside(answers, questions):
    rows = {row["measure"]: row for row in scores(answers, questions).to_pylist() if row["repeat"] == 1}
    damaged = sum(proofread is not None for proofread in map(_damaged, questions["mgsm"]))
    assert rows["mgsm"]["n"] - rows["mgsm_undamaged"]["n"] == damaged


def _damaged(question):
    from servebench.tasks.mgsm import is_damaged

    return question.question_id if is_damaged(question) else None


def test_the_combined_difference_is_the_mean_of_the_repeats(compared):
    for measure, target in SIGN_TESTS:
        rows = [row for row in compared if (row["measure"], row["target"]) == (measure, target)]
        mean = sum(row["difference"] for row in rows) / 2
        assert all(row["combined_difference"] == pytest.approx(mean) for row in rows)
        assert len({row["combined_p"] for row in rows}) == 1
        assert rows[0]["combined_p_holm"] >= rows[0]["combined_p"]
    strongest = min(compared, key=lambda row: row["combined_p"])
    assert (strongest["measure"], strongest["target"]) == ("proof_fixed", "Q4_K_M")


def test_the_baselines_own_noise_stands_beside(compared, double):
    for row in compared:
        base = double[row["measure"]].true[BASELINE]
        assert row["noise_first_only"] == (base[:, 0] & ~base[:, 1] & 1).sum()
        assert row["noise_second_only"] == (base[:, 1] & ~base[:, 0] & 1).sum()


def test_equivalence_is_judged_against_declared_margins_only(compared):
    for row in compared:
        if row["measure"] == "proof_rewritten":
            assert row["margin"] is None
            assert row["equivalent"] is None
        else:
            inside = -row["margin"] < row["equivalence_low"] and row["equivalence_high"] < row["margin"]
            assert row["equivalent"] is inside


def test_a_real_difference_is_found_with_its_direction(answers, questions):
    rows = answers.to_pylist()
    for row in rows:
        if row["target"] == "Q4_K_M" and row["task"] == "mgsm" and int(row["question_id"]) % 5 == 0:
            row["correct"] = False
    found = comparisons(table(rows), questions, BASELINE).to_pylist()
    (row,) = (r for r in found if (r["measure"], r["target"], r["repeat"]) == ("mgsm", "Q4_K_M", 1))
    assert row["verdict"] == "difference"
    assert row["difference"] == pytest.approx(100 * (row["other_only"] - row["base_only"]) / row["n"])
    assert -20 < row["difference"] <= -10


def test_positions(answers, questions):
    rows = positions(answers, questions).to_pylist()
    assert len(rows) == 5 * 2 * 5
    gold = [sum(q.gold == str(place) for q in questions["jcommonsenseqa"]) for place in range(5)]
    for row in rows:
        assert row["gold"] == gold[row["position"]]
    if questions["jcommonsenseqa"][0].text != "問0":
        assert gold == [216, 237, 240, 228, 198]
    one = [row for row in rows if (row["target"], row["repeat"]) == (BASELINE, 1)]
    assert sum(row["correct"] for row in one) == 1056
    assert one[0]["p"] > 0.5  # the double has no leaning


def test_proofreading_outcomes(answers, questions, double):
    rows = {(r["target"], r["repeat"], r["category"]): r for r in proofreading_outcomes(answers, questions).to_pylist()}
    errors = rows["Q4_K_M", 1, "all-errors"]
    assert (errors["n"], errors["exact"], errors["unchanged"], errors["other_edit"]) == (200, 109, 91, 0)
    assert errors["precision"] == 1.0
    assert errors["recall"] < 1.0
    clean = rows["Q4_K_M", 1, "all-clean"]
    assert (clean["n"], clean["exact"], clean["other_edit"]) == (100, 92, 8)
    assert clean["edit_distance_mean"] == pytest.approx(0.08)
    second = rows["Q4_K_M", 2, "all-errors"]
    assert second["other_edit"] == len(double["proof_fixed"].changed["Q4_K_M"])
    by_category = [r for (target, repeat, c), r in rows.items() if (target, repeat) == ("Q6_K", 2) and "all" not in c]
    assert len(by_category) == 11
    assert sum(r["exact"] for r in by_category) == 121 + 95


def test_scoring_anew_changes_nothing(answers, questions):
    assert rescored(answers, questions).equals(answers)


@pytest.mark.parametrize("task", list(TASKS))
def test_the_same_through_files(tmp_path, questions, double, task):
    """The verb's path: published formats in, scored lines out."""
    data = tmp_path / "data"
    lines = {
        "jcommonsenseqa": lambda q: json.dumps(
            {
                "q_id": int(q.question_id),
                "question": q.text,
                **{f"choice{i}": choice for i, choice in enumerate(q.choices)},
                "label": int(q.gold),
            },
            ensure_ascii=False,
        ),
        "mgsm": lambda q: f"{q.text}\t{q.gold}",
    }
    if task == "proofreading":
        data = CONFIG / "proofreading" / "sentences.jsonl"
    else:
        data.write_text("".join(lines[task](q) + "\n" for q in questions[task]), encoding="utf-8")
    replies = tmp_path / "replies.jsonl"
    with replies.open("w", encoding="utf-8") as file:
        for target, of_task, repeat, question, reply in model_double.replies(questions, double):
            if (target, of_task, repeat) == ("Q5_K_M", task, 2):
                record = {
                    "question_id": question.question_id,
                    "reply": reply.text,
                    "finish_reason": reply.finish_reason,
                }
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
    totals = score_replies(TASKS[task], replies, lambda: data, tmp_path / "out.jsonl")
    wanted = {"jcommonsenseqa": 1053, "mgsm": 208, "proofreading": 115 + 96}[task]
    assert totals.correct == wanted
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sum(line["correct"] for line in written) == wanted
    assert len(written) == len(questions[task])


def test_what_does_not_fit_is_refused(answers, questions):
    with pytest.raises(Fault, match="baseline: 'F32' answered nothing; one of Q8_0"):
        comparisons(answers, questions, "F32")
    with pytest.raises(Fault, match="margins: 'mgsm_undamaged' is not compared"):
        comparisons(answers, questions, BASELINE, {"mgsm_undamaged": 5.0})
    rows = answers.slice(0, 1).to_pylist()
    with pytest.raises(Fault, match="answered twice"):
        scores(table(rows * 2), questions)
    with pytest.raises(Fault, match="no such question"):
        scores(table([rows[0] | {"question_id": "0"}]), questions)
    with pytest.raises(Fault, match="answers: tokens: is only in the schema"):
        table([{name: value for name, value in rows[0].items() if name != "tokens"}])


def test_one_repeat_is_compared_without_what_needs_two(answers, questions):
    once = table([row for row in answers.to_pylist() if row["repeat"] == 1])
    rows = comparisons(once, questions, BASELINE).to_pylist()
    assert len(rows) == len(SIGN_TESTS)
    assert {row["combined_p"] for row in rows} == {row["noise_changed"] for row in rows} == {None}
    assert agreement(once, questions).num_rows == 0


def test_every_target_of_a_few_questions(answers, questions):
    """As in the quick start: ten questions of a task, three targets."""
    few = {task: asked[:10] for task, asked in questions.items()}
    kept = {(task, question.question_id) for task, asked in few.items() for question in asked}
    rows = [
        row
        for row in answers.to_pylist()
        if (row["task"], row["question_id"]) in kept and row["target"] in (BASELINE, *TARGETS[:2])
    ]
    found = comparisons(table(rows), few, BASELINE).to_pylist()
    assert {row["comparisons"] for row in found} == {2}
    assert {row["verdict"] for row in found} <= {"cannot_be_significant", "none_detected"}
    assert scores(table(rows), few).num_rows > 0


def test_every_gold_is_read_in_every_form(questions):
    for question in questions["mgsm"]:
        for form in FORMS:
            extracted = mgsm.extract(form.format(n=question.gold), question).extracted
            assert extracted is not None and mgsm.is_correct(extracted, question), (form, question.gold, extracted)
