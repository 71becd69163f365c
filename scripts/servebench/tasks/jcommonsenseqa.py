"""JCommonsenseQA: five choices, zero-shot, the index is the answer.

Data: JGLUE (Yahoo Japan and Waseda University), CC BY-SA 4.0, one JSON object a line with `q_id, question,
choice0 … choice4, label`. Keyed by q_id, never by text: one question text stands there three times.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from servebench.tasks.task import DataError, Extraction, Question, Source, Task, json_lines, require, unique

CHOICES = 5

PROMPT = """\
次の質問の答えとして最も適切なものを、選択肢から一つ選んでください。
選んだ選択肢の番号（0〜4の数字一つ）だけを出力し、ほかには何も書かないでください。

質問: {question}
選択肢:
{choices}"""


def load(path: Path) -> list[Question]:
    """Questions in file order, texts verbatim (a few begin or end with a space)."""
    questions = []
    for line, record in json_lines(path):
        label = require(record, "label", int, path, line)
        if label not in range(CHOICES):
            raise DataError(path, line, "label", f"{label} is no index of a choice; 0 to {CHOICES - 1} are")
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


_WHOLE = re.compile(r"[\s「(]*([0-4])[\s.。、:)」]*")
_FIRST = re.compile(r"([0-4])[.、:\s]")
_ALONE = re.compile(r"(?<![0-9A-Za-z])[0-4](?![0-9A-Za-z])")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip()


def extract(answer: str, question: Question) -> Extraction:
    """The chosen index, "0" to "4". Rules, in order, after NFKC:

    `index` the reply is an index, perhaps bracketed or with a full stop; `index-first` it begins with one
    ("4.3Dプリンター"); `choice` it is the text of exactly one choice ("3Dプリンター", "1円玉": before the next
    rule, which would read the digit); `index-within` the digits 0 to 4 that stand alone have one value.
    """
    reply = _folded(answer)
    if match := _WHOLE.fullmatch(reply):
        return Extraction(match[1], "index")
    if match := _FIRST.match(reply):
        return Extraction(match[1], "index-first")
    same = [i for i, choice in enumerate(question.choices) if _folded(choice) == reply]
    if len(same) == 1:
        return Extraction(str(same[0]), "choice")
    digits = set(_ALONE.findall(reply))
    if len(digits) == 1:
        return Extraction(digits.pop(), "index-within")
    return Extraction()


def is_correct(extracted: str, question: Question) -> bool:
    return extracted == question.gold


TASK = Task(
    name="jcommonsenseqa",
    load=load,
    prompt=prompt,
    extract=extract,
    is_correct=is_correct,
    strict_rules=frozenset({"index", "index-first"}),
    max_tokens=64,
    source=Source(
        url="https://raw.githubusercontent.com/yahoojapan/JGLUE/v1.3.0/datasets/jcommonsenseqa-v1.3/valid-v1.3.json",
        sha256="0d8d76f3bfa0d174866939882faccdd01fbc2bcd5a76c43748ba0c40a7b3b8d4",
        questions=1119,
        licence="CC BY-SA 4.0",
    ),
)
