"""JCommonsenseQA: five choices, zero-shot, the index is the answer.

Data: JGLUE (Yahoo Japan and Waseda University), CC BY-SA 4.0, one JSON object a line with `q_id, question,
choice0 … choice4, label`. Keyed by q_id, never by text: one text occurs three times.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from servebench.tasks.task import (
    SMALL,
    Answer,
    DataError,
    Extraction,
    Measure,
    Question,
    Source,
    Task,
    json_lines,
    require,
    unique,
)

CHOICES = 5

PROMPT = """\
次の質問の答えとして最も適切なものを、選択肢から一つ選んでください。
選んだ選択肢の番号（0〜4の数字一つ）だけを出力し、ほかには何も書かないでください。

質問: {question}
選択肢:
{choices}"""


def load(path: Path) -> list[Question]:
    """Read the questions in file order, texts verbatim (a few begin or end with a space)."""
    questions = []
    for line, record in json_lines(path):
        label = require(record, "label", int, path, line)
        if label not in range(CHOICES):
            raise DataError(path, line, "label", f"{label} is not the index of a choice; give 0 to {CHOICES - 1}")
        questions.append(
            Question(
                question_id=str(require(record, "q_id", int, path, line)),
                text=require(record, "question", str, path, line),
                choices=tuple(require(record, f"choice{i}", str, path, line) for i in range(CHOICES)),
                gold=str(label),
            )
        )
    return unique(questions, path)


def prompt(question: Question) -> str:
    choices = "\n".join(f"{i}. {choice.strip()}" for i, choice in enumerate(question.choices))
    return PROMPT.format(question=question.text.strip(), choices=choices)


_WHOLE = re.compile(r"[\s「(【\[]*([0-4])(?:\.0+)?[\s.。、:)」】\]]*")
_FIRST = re.compile(r"([0-4])([.、:]?\s*)")
# A digit that is not part of a number (2.0, -1) or a word (3D), not a count (1つ, 2人, 3か月), not denied (0ではなく).
_INDEX = (
    r"(?<![0-9A-Za-z])(?<![0-9][.,])(?<!^[-−‐–])(?<![^0-9][-−‐–])([0-4])(?!\s?(?:つ|番目)|(?!番)[0-9A-Za-z一-鿿]|[.,][0-9]|か[一-鿿]"
    r"|番?(?:では|じゃ)(?:なく|ありません|ない(?!か|で)))"
)
_WITHIN = re.compile(_INDEX)
_MARK = r"(?:答え|正解|回答|解答|answer)(?:の番号)?[\s」】]*(?:[は:]|\bis\b)"
_MARKED = re.compile(
    rf"(?:{_MARK}|boxed\{{)[\s「(【\[]*(?:選択肢|番号)?[\s「(【\[:]*{_INDEX}"
    r"(?![\s」)】\]]*(?:か|と|や|または|あるいは|[,、/~・])[\s「(【\[]*[0-9])",
    re.IGNORECASE,
)
_DRESSED = re.compile(rf"(?:{_MARK})?[\s「『\"(]*(.*?)[\s」』\")]*(?:です)?[\s。.]*", re.IGNORECASE)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("**", "").strip()


def _begins_with_index(reply: str, choices: list[str]) -> re.Match[str] | None:
    """Match an index before a stop, colon, comma, line end or choice's text; None when the reply lists choices."""
    if sum(f"{i}{mark}{choice}" in reply for i, choice in enumerate(choices) for mark in (".", ". ", ": ")) > 1:
        return None
    if match := _FIRST.match(reply):
        mark, rest = match[2], reply[match.end() :]
        if (mark.strip() and not rest[:1].isdigit()) or "\n" in mark or rest.startswith(tuple(choices)):
            return match
    return None


def _names_another(reply: str, index: re.Match[str], choices: list[str]) -> bool:
    """Tell whether another choice's text follows the index up to the end of the line: 1. and choice 0."""
    following = reply[index.end(1) :].lstrip(" \n.、:,)」】番の").split("\n")[0]
    dressed = _DRESSED.fullmatch(following)
    return dressed is not None and dressed[1] in choices and dressed[1] != choices[int(index[1])]


def extract(answer: str, question: Question) -> Extraction:
    """Extract the chosen index, "0" to "4". Rules, in order, after NFKC and without bold:

    `index` the reply is an index, perhaps bracketed or with a full stop; `choice` the reply is the text of exactly
    one choice, perhaps quoted or in 「答えは…です。」; `index-marked` an index follows the last 「答え:」, 「正解は」,
    "Answer:" or `\\boxed{`; `index-first` the reply begins with an index ("4.3Dプリンター"); `index-within` all
    indices in the reply have the same value. A digit in the text of a choice (1円玉) or a count (1つ) is not an
    index. An index before the text of another choice is not an answer.
    """
    reply = _folded(answer)
    choices = [_folded(choice) for choice in question.choices]
    if match := _WHOLE.fullmatch(reply):
        return Extraction(match[1], "index")
    dressed = _DRESSED.fullmatch(reply)
    same = [i for i, choice in enumerate(choices) if choice in (reply, dressed and dressed[1])]
    if len(same) == 1:
        return Extraction(str(same[0]), "choice")
    rest = reply
    for choice in choices:
        if re.search(r"\d\D|\D\d", choice):  # 1円玉, but not 1
            rest = rest.replace(choice, " " * len(choice))
    if marked := list(_MARKED.finditer(rest)):
        index, rule = marked[-1], "index-marked"
    elif first := _begins_with_index(reply, choices):
        index, rule = first, "index-first"
    else:
        indices = list(_WITHIN.finditer(rest))
        if len({index[1] for index in indices}) != 1:
            return Extraction()
        index, rule = indices[-1], "index-within"
    return Extraction() if _names_another(reply, index, choices) else Extraction(index[1], rule)


def is_correct(extracted: str, question: Question) -> bool:
    return extracted == question.gold


STRICT_RULES = frozenset({"index", "index-first"})


def _as_asked_for(answer: Answer) -> bool:
    return answer.correct and answer.rule in STRICT_RULES


TASK = Task(
    name="jcommonsenseqa",
    load=load,
    prompt=prompt,
    extract=extract,
    is_correct=is_correct,
    strict_rules=STRICT_RULES,
    measures=(
        Measure("jcommonsenseqa", "jcommonsenseqa", headline=True),
        Measure("jcommonsenseqa_as_asked_for", "jcommonsenseqa", _as_asked_for),
    ),
    max_tokens=64,
    reply_tokens=8,
    source=Source(
        url="https://raw.githubusercontent.com/yahoojapan/JGLUE/v1.3.0/datasets/jcommonsenseqa-v1.3/valid-v1.3.json",
        sha256="0d8d76f3bfa0d174866939882faccdd01fbc2bcd5a76c43748ba0c40a7b3b8d4",
        questions=1119,
    ),
    own={SMALL: "jcommonsenseqa-small/questions.jsonl"},
)
