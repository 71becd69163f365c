"""MGSM, Japanese: school problems in words, zero-shot, reasoning written out, the last line is the answer.

Data: google-research/url-nlp, CC BY 4.0: problem, tab, answer; no header, no quoting. A question's id is its
row, from 1. Four rows lost a number in translation, so that their published answer does not follow from the
text: all rows are scored as published, and once more without those four.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
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
    text_lines,
    unique,
)

PROMPT = """\
次の文章題を解いてください。まず考え方と計算を順に書き、最後の行に「答え: 」に続けて答えの数を書いてください。\
最後の行の数のあとには、単位も説明も付けないでください。

{question}"""

# Row and published answer: another file may have other rows under these numbers.
DAMAGED = {"78": "100", "140": "70", "172": "1210", "250": "5,600"}


def load(path: Path) -> list[Question]:
    """Read the problems in file order; gold as published ("2,125" keeps its comma)."""
    questions = []
    for row, line in text_lines(path):
        text, tab, gold = line.partition("\t")
        if not tab or "\t" in gold:
            raise DataError(path, row, "line", f"has {line.count(chr(9))} tabs; problem, one tab, answer")
        if not re.fullmatch(_NUMBER, gold, re.ASCII):
            raise DataError(path, row, "answer", f"{gold!r} is not a number; write it in digits")
        questions.append(Question(question_id=str(row), text=text, gold=gold))
    return unique(questions, path)


def prompt(question: Question) -> str:
    return PROMPT.format(question=question.text)


def is_damaged(question: Question) -> bool:
    """Tell whether this is one of the four published items whose answer cannot be derived."""
    return DAMAGED.get(question.question_id) == question.gold


_NUMBER = r"(?:\d+(?:,\d{3}(?!\d))*(?:\.\d+)?|\.\d+)"
_MYRIADS = r"(?:\s?[百千]?[万億]|[百千])"
_AMOUNT = re.compile(
    rf"((?<![\dA-Za-z)])-\s?)?[$¥€£]?\s?({_NUMBER}(?:{_MYRIADS}(?:{_NUMBER})?)*)(?:\s?/\s?({_NUMBER}))?", re.ASCII
)
_PART = re.compile(rf"({_NUMBER})\s?([百千万億]*)", re.ASCII)
_KANJI = re.compile(r"[\s*「約]*([〇零一二三四五六七八九十百千万億]+)")
# 答: but not 解答: or 問答は; not 答えは合っています, which speaks of an answer and states none
_MARK = re.compile(r"(?:答え|(?<![一-鿿])答)[\s*_」】}]*[:は](?!\s*(?:合って|正し|確か|間違|妥当))")
_HEADING = re.compile(r"[\W_]*(?:最終的な)?答え?[\W_]*")
_BRACKETS = re.compile(r"\([^()]*\)")
_EQUALS = re.compile(r"[=≒≈]|\\approx")
_SUM = re.compile(r"[\d)][^\d=]{0,4}[+×÷*/xX-]\s?[^\d=]{0,2}\d")
_SENTENCE_END = re.compile(r"[。!?]")
_COUNT = re.compile(rf"{_NUMBER}[^\d、。=]{{1,4}}で(?!す|し|あ|は|の)(?=[^、。]*\d)", re.ASCII)
_DENIED = re.compile(rf"{_NUMBER}[^\d、。=]{{0,4}}(?:では|じゃ)(?:なく|ありません|ない)", re.ASCII)
_PER = re.compile(rf"{_NUMBER}[^\d、。]{{1,8}}?(?:あたり|当たり|につき)", re.ASCII)

_UNITS = {"十": 10, "百": 100, "千": 1000}
_POWERS = {"万": 10**4, "億": 10**8}
_KANJI_DIGITS = {character: digit for digit, character in enumerate("〇一二三四五六七八九")} | {"零": 0}


def _folded(text: str) -> str:
    """Normalise a text (NFKC) so that its numbers can be read.

    Every dash before a digit becomes a minus sign, LaTeX's fractions become `a/b`; exponents (cm², m2), bullets,
    LaTeX's thin spaces, guarded commas and bold are removed.
    """
    text = unicodedata.normalize("NFKC", text)
    text = text.replace("{,}", ",").replace("\\,", "").replace("\\!", "").replace("\\$", "$").replace("**", "")
    text = re.sub(r"(?<!\d)(\d{1,3}(?:、\d{3})+)(?![\d、])", lambda found: found[1].replace("、", ","), text)  # 1、234
    text = re.sub(r"\^\s?(?:\{[^{}]*\}|\d+)|(?<![A-Za-z])([ckm]?m)[23](?!\d)", r"\1", text)
    text = re.sub(rf"\\[dt]?frac\s?\{{({_NUMBER})\}}\s?\{{({_NUMBER})\}}", r" \1/\2", text, flags=re.ASCII)
    text = re.sub(r"(?m)^[ \t]*-[ \t]+", "", text)
    text = re.sub(r"[\u2012\u2013\u2014\u2212](?=\s?[$¥€£]?\s?[.\d])", "-", text)
    return re.sub(r"マイナス(?=\s?[.\d])", "-", text)


def _amount(match: re.Match[str]) -> Decimal:
    """Compute the value of an _AMOUNT: 7万5千 is 75000, 1億2,000万 is 120000000, -$5 is -5, 3/4 is 0.75."""
    total = section = Decimal(0)
    for number, units in _PART.findall(match[2]):
        value = Decimal(number.replace(",", ""))
        for unit in units:
            if unit in _POWERS:
                total += (section + value) * _POWERS[unit]
                section = value = Decimal(0)
            else:
                value *= _UNITS[unit]
        section += value
    value = total + section
    if match[3] and (divisor := Decimal(match[3].replace(",", ""))):
        value /= divisor
    return -value if match[1] else value


def _kanji_amount(numeral: str) -> Decimal:
    """Compute the value of a kanji numeral: 十八 is 18, 七万 70000, 二〇 20."""
    total = section = digits = 0
    for character in numeral:
        if character in _POWERS:
            total += (section + digits or 1) * _POWERS[character]
            section = digits = 0
        elif character in _UNITS:
            section += (digits or 1) * _UNITS[character]
            digits = 0
        else:
            digits = 10 * digits + _KANJI_DIGITS[character]
    return Decimal(total + section + digits)


def _result(text: str) -> str:
    """Find an equation's result: the left side of `8 = 5+3`, else what follows the last `=` or `≒`."""
    sides = _EQUALS.split(text)
    if len(sides) == 2 and _AMOUNT.search(sides[0]) and not _SUM.search(sides[0]) and _SUM.search(sides[1]):
        return sides[0]
    return sides[-1]


def _first_amount(text: str) -> Decimal | None:
    """Find the first number of the result (`_result`).

    Passed over, unless there is no other number: numbers in brackets, the base of a rate (1人あたり34ドル), the
    count of a share (2人で18個), and numbers that are denied (5個ではなく).
    """
    for candidate in (_BRACKETS.sub(" ", text), text):
        result = _result(candidate)
        for kept in (_DENIED.sub(" ", _COUNT.sub(" ", _PER.sub(" ", result))), _DENIED.sub(" ", result), result):
            if match := _AMOUNT.search(kept):
                return _amount(match)
        if match := _KANJI.match(result):
            return _kanji_amount(match[1])
    return None


def _stated(text: str) -> Iterator[tuple[str, str, str]]:
    """List each place that states an answer, last first: (rule, text that should hold the number, text that may).

    After an answer mark the number should stand in the same sentence and may stand in the same line; a mark in
    brackets counts only in a line that has no other. Below a line that says just 「答え」 the number is the only one of
    the next line.
    """
    lines = text.splitlines()
    for place in reversed(range(len(lines))):
        line = lines[place]
        if _HEADING.fullmatch(line):
            below = next((later for later in lines[place + 1 :] if later.strip()), "")
            if len(_AMOUNT.findall(below)) == 1:
                yield "answer-below", below, below
        outside = _BRACKETS.sub(lambda brackets: " " * len(brackets[0]), line)
        for mark in reversed(list(_MARK.finditer(outside)) or list(_MARK.finditer(line))):
            following = line[mark.end() :]
            yield "answer-line", _SENTENCE_END.split(following, maxsplit=1)[0], following


def _last_boxed(text: str) -> str | None:
    """Return the contents of the last complete `\\boxed{…}`, braces balanced."""
    for start in reversed([match.end() for match in re.finditer(r"\\boxed\s*\{", text)]):
        depth = 1
        for position in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return text[start:position]
    return None


def _canonical(value: Decimal) -> str:
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def extract(answer: str, question: Question) -> Extraction:
    """Extract the number answered, as plain digits ("18", "-5", "2.5"). Rules, in order:

    `answer-line` the number after the last mark (「答え:」, 「答えは」, 「答:」) whose own sentence has one;
    `answer-below` the only number of the line under one that says just 「答え」, where that comes last; then the last
    mark with a number later in its line; `boxed` the last `\\boxed{…}`; `last-number` the last number of the reply.
    Only the first is the format asked for; the others are marked by their names.

    The last mark counts because a reply goes from its workings to its answer, in one line too: 「答え：最初3個あり、
    2個もらったので、答えは5個です」 is 5. A mark that states no number (「答えは合っています。2回確認」) answers
    nothing.
    """
    text = _folded(answer)
    stated = list(_stated(text))
    for rule, passage in [(rule, should) for rule, should, _ in stated] + [(rule, may) for rule, _, may in stated]:
        if (value := _first_amount(passage)) is not None:
            return Extraction(_canonical(value), rule)
    if (boxed := _last_boxed(text)) is not None and (value := _first_amount(boxed)) is not None:
        return Extraction(_canonical(value), "boxed")
    if amounts := list(_AMOUNT.finditer(text)):
        return Extraction(_canonical(_amount(amounts[-1])), "last-number")
    return Extraction()


def is_correct(extracted: str, question: Question) -> bool:
    return Decimal(extracted) == Decimal(question.gold.replace(",", ""))


STRICT_RULES = frozenset({"answer-line"})


def _as_asked_for(answer: Answer) -> bool:
    return answer.correct and answer.rule in STRICT_RULES


TASK = Task(
    name="mgsm",
    load=load,
    prompt=prompt,
    extract=extract,
    is_correct=is_correct,
    strict_rules=STRICT_RULES,
    measures=(
        Measure("mgsm", "mgsm", headline=True),
        Measure("mgsm_as_asked_for", "mgsm", _as_asked_for),
        Measure("mgsm_undamaged", "mgsm", asked=lambda question: not is_damaged(question)),
    ),
    max_tokens=2048,
    reply_tokens=350,
    source=Source(
        url="https://raw.githubusercontent.com/google-research/url-nlp/4b1e7a43efb517abadd16041e8b47f3be975c76e/mgsm/mgsm_ja.tsv",
        sha256="59a2b50debe77981fd784cb3b2bef1505e3abf2a37116dc9d7a366ab029b4637",
        questions=250,
    ),
    own={SMALL: "mgsm-small/questions.tsv"},
)
