"""Proofreading: one business sentence, corrected and nothing else (our own 300 sentences)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servebench.tasks.edits import CharacterEdit, character_edits, distance
from servebench.tasks.scoring import without_reasoning
from servebench.tasks.task import (
    FULL,
    Answer,
    DataError,
    Extraction,
    Measure,
    Question,
    Task,
    json_lines,
    require,
    unique,
)

PROMPT = """\
次の文に、誤字、脱字、変換の誤り、助詞の誤りなどがあれば、その箇所だけを直してください。
誤りがなければ、入力された文をそのまま返してください。
出力は訂正後の文だけにし、説明や引用符を付けないでください。

{sentence}"""

# How many sentences of each kind the full set has. The proportions follow the error kinds of Japanese
# Wikipedia revisions (JWTD v2); the names are ours.
ERROR_CATEGORIES: Mapping[str, int] = {
    "same-reading": 60,
    "near-reading": 16,
    "missing": 30,
    "extra": 20,
    "repeated": 14,
    "substitution": 24,
    "transposition": 12,
    "particle": 14,
    "agreement": 10,
}
CLEAN_CATEGORIES: Mapping[str, int] = {"clean": 60, "clean-hard": 40}


@dataclass(frozen=True, slots=True)
class Edit:
    """Hold the correction of a text: its characters [start, end) become `replacement`."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """Hold one line of `sentences.jsonl`."""

    id: str
    category: str
    text: str
    reference: str
    accepted: tuple[str, ...]
    edit: Edit | None


def read_sentences(path: Path) -> list[Sentence]:
    """Read the sentences of a JSON Lines file, in order. DataError names the first line of another form."""
    sentences = []
    fields = ("id", "category", "text", "reference", "accepted", "edit")
    for line, record in json_lines(path):
        if unknown := sorted(record.keys() - set(fields)):
            raise DataError(path, line, unknown[0], f"is not a field of a sentence; fields are {', '.join(fields)}")
        accepted = require(record, "accepted", list, path, line)
        if not all(isinstance(other, str) for other in accepted):
            raise DataError(path, line, "accepted", f"{accepted!r} is not a list of sentences")
        if "edit" not in record:
            raise DataError(path, line, "edit", "missing; give start, end, replacement, or null when clean")
        edit = None
        if record["edit"] is not None:
            span = require(record, "edit", dict, path, line)
            edit = Edit(
                start=require(span, "start", int, path, line),
                end=require(span, "end", int, path, line),
                replacement=require(span, "replacement", str, path, line),
            )
        sentences.append(
            Sentence(
                id=require(record, "id", str, path, line),
                category=require(record, "category", str, path, line),
                text=require(record, "text", str, path, line),
                reference=require(record, "reference", str, path, line),
                accepted=tuple(accepted),
                edit=edit,
            )
        )
    return sentences


def load(path: Path) -> list[Question]:
    """Read the sentences as questions: text is to be proofread, gold is the reference."""
    return unique(
        [
            Question(
                question_id=sentence.id,
                text=sentence.text,
                gold=sentence.reference,
                accepted=sentence.accepted,
                category=sentence.category,
            )
            for sentence in read_sentences(path)
        ],
        path,
    )


def prompt(question: Question) -> str:
    return PROMPT.format(sentence=question.text)


def is_clean(question: Question) -> bool:
    return question.category in CLEAN_CATEGORIES


def _normalised(answer: str) -> str:
    """Normalise a reply: CRLF to LF, NFC, outer white space (U+3000 included) and byte order marks off.

    Not NFKC: it would let a sentence whose full-width signs were rewritten pass as untouched.
    """
    return re.sub(r"^[\s\ufeff]+|[\s\ufeff]+$", "", unicodedata.normalize("NFC", answer.replace("\r\n", "\n")))


def extract(answer: str, question: Question) -> Extraction:
    """Extract the corrected sentence (rule `sentence`): the whole reply, normalised.

    None when the reply has several lines, or when more than half of its characters differ from the question: then it is
    an explanation, not a correction.
    """
    reply = _normalised(answer)
    if "\n" in reply or not reply:
        return Extraction()
    if 2 * distance(character_edits(question.text, reply)) > max(len(reply), len(question.text)):
        return Extraction()
    return Extraction(reply, "sentence")


def is_correct(extracted: str, question: Question) -> bool:
    """Tell whether the sentence is the reference or an accepted alternative, character by character."""
    return any(extracted == unicodedata.normalize("NFC", right) for right in (question.gold, *question.accepted))


_NAMED = r"(?:(?:修正|訂正|校正)(?:後|済み|された|した)?の?文?章?|正しい文章?)"
_LABEL = re.compile(rf"[#\s]*(?:\*\*{_NAMED}(?:\s*:\*\*|\*\*\s*:)|{_NAMED}\s*:)\s*")
_OPENED = re.compile(r"```\w*\n|>\s*")
_QUOTES = (("「", "」"), ("『", "』"), ('"', '"'), ("“", "”"), ("**", "**"), ("```", "```"), ("`", "`"))


def lenient(answer: str, question: Question) -> tuple[bool, bool]:
    """Judge a reply as (right, format violated), forgiving its form.

    Only its first line counts, in NFKC, without a label, an opened block or one outer pair of marks that the input
    lacks. The format is violated when one of these had to be taken off, or more lines followed.
    """
    reply, source = (unicodedata.normalize("NFKC", text) for text in (_normalised(answer), question.text))
    bare = reply
    for lead in (_LABEL, _OPENED):
        if (found := lead.match(bare)) and not lead.match(source):
            bare = bare[found.end() :]
    bare = bare.split("\n")[0].strip()
    for opening, closing in _QUOTES:
        inner = bare.removeprefix(opening).removesuffix(closing)
        if len(bare) - len(inner) == len(opening + closing) and not source.startswith(opening):
            bare = inner
            break
    right = (unicodedata.normalize("NFKC", text) for text in (question.gold, *question.accepted))
    return bare in right, bare != reply


Split = Literal["exact", "fixed_with_extra_edits", "unchanged", "other_edit", "unparsable"]
SPLITS: tuple[Split, ...] = ("exact", "fixed_with_extra_edits", "unchanged", "other_edit", "unparsable")


@dataclass(frozen=True, slots=True)
class EditCounts:
    """Count the character edits of one reply: made by it, wanted by the nearest right answer, and both."""

    made: int
    wanted: int
    shared: int


def f_beta(counts: EditCounts) -> tuple[float | None, float | None, float | None]:
    """Compute (precision, recall, F0.5) of character edits; None where the denominator is 0.

    F0.5 weighs precision twice as much as recall, as is usual for grammar correction.
    """
    precision = counts.shared / counts.made if counts.made else None
    recall = counts.shared / counts.wanted if counts.wanted else None
    weighted = counts.made + 0.25 * counts.wanted
    return precision, recall, 1.25 * counts.shared / weighted if weighted else None


def _wanted(made: set[CharacterEdit], question: Question) -> set[CharacterEdit]:
    """Find the edits to the right answer that shares most with the edits made; the reference when equal."""
    rights = [set(character_edits(question.text, right)) for right in (question.gold, *question.accepted)]
    return max(rights, key=lambda edits: len(edits & made) - len(edits - made))


def compare(extracted: str | None, question: Question) -> tuple[Split, EditCounts | None]:
    """Say which of five things the reply did, and its character edits (None without a sentence).

    `exact`; `fixed_with_extra_edits`: every wanted edit and more; `unchanged`: the input as it was (in an
    erroneous sentence: missed); `other_edit`; `unparsable`. A clean sentence left alone is `exact`.
    """
    if extracted is None:
        return "unparsable", None
    made = set(character_edits(question.text, extracted))
    wanted = _wanted(made, question)
    counts = EditCounts(len(made), len(wanted), len(made & wanted))
    if is_correct(extracted, question):
        return "exact", counts
    if not made:
        return "unchanged", counts
    return "fixed_with_extra_edits" if wanted and wanted <= made else "other_edit", counts


def touches_form_only(extracted: str, question: Question) -> bool:
    """Tell whether the reply changed only punctuation, spaces or the width of characters."""

    def letters(text: str) -> str:
        return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c)[0] not in "PSZ")

    return extracted != question.text and letters(extracted) == letters(question.text)


def _is_erroneous(question: Question) -> bool:
    return not is_clean(question)


def _leniently_right(answer: Answer) -> bool:
    text = without_reasoning(answer.reply.text or "")[0]
    return answer.outcome != "truncated" and lenient(text or "", answer.question)[0]


def _rewritten(answer: Answer) -> bool:
    return not answer.correct


def _leniently_rewritten(answer: Answer) -> bool:
    return not _leniently_right(answer)


TASK = Task(
    name="proofreading",
    load=load,
    prompt=prompt,
    extract=extract,
    is_correct=is_correct,
    strict_rules=frozenset({"sentence"}),
    measures=(
        Measure("proof_fixed", "proofreading", asked=_is_erroneous, headline=True),
        Measure("proof_fixed_lenient", "proofreading", _leniently_right, asked=_is_erroneous),
        Measure("proof_rewritten", "proofreading", _rewritten, asked=is_clean, headline=True, lower_is_better=True),
        Measure("proof_rewritten_lenient", "proofreading", _leniently_rewritten, asked=is_clean, lower_is_better=True),
    ),
    max_tokens=256,
    reply_tokens=50,
    source=None,
    own={FULL: "proofreading/sentences.jsonl"},
)
