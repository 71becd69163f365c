"""Check the rules of the proofreading set: `python -m servebench.tasks.proofreading_check FILE`.

A sentence is one JSON object a line: `id, category, text, reference, accepted, edit`. Replacing
`text[start:end]` (code points) by `edit.replacement` gives the reference; a clean sentence has `edit: null`
and its text is its reference.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from servebench.tasks.proofreading import CLEAN_CATEGORIES, ERROR_CATEGORIES, Edit, Sentence, read_sentences
from servebench.tasks.task import DataError

LENGTH = range(20, 81)
EDIT_CHARACTERS = 3
SAME_PAIR = 3
COUNTS: Mapping[str, int] = {**ERROR_CATEGORIES, **CLEAN_CATEGORIES}


def is_kanji(text: str) -> bool:
    return any("\u4e00" <= character <= "\u9fff" or character in "々〆ヶ" for character in text)


def is_hiragana(text: str) -> bool:
    return bool(text) and all("\u3041" <= character <= "\u309f" for character in text)


def _repeats(sentence: Sentence, edit: Edit) -> bool:
    size = edit.end - edit.start
    removed = sentence.text[edit.start : edit.end]
    before = sentence.text[max(0, edit.start - size) : edit.start]
    return removed in (before, sentence.text[edit.end : edit.end + size])


def _shape(sentence: Sentence, edit: Edit) -> bool:
    """Tell whether the edit is of the kind that its category names."""
    removed, added = sentence.text[edit.start : edit.end], edit.replacement
    shapes: dict[str, Callable[[], bool]] = {
        "same-reading": lambda: bool(removed and added) and is_kanji(removed + added),
        "near-reading": lambda: bool(removed and added) and is_kanji(removed + added),
        "missing": lambda: not removed and bool(added),
        "extra": lambda: len(removed) == 1 and not added and not _repeats(sentence, edit),
        "repeated": lambda: bool(removed) and not added and _repeats(sentence, edit),
        "substitution": lambda: len(removed) == 1 and len(added) == 1,
        "transposition": lambda: len(removed) > 1 and sorted(removed) == sorted(added),
        "particle": lambda: is_hiragana(removed + added),
        "agreement": lambda: True,
    }
    return shapes[sentence.category]()


SHAPES = {
    "same-reading": "kanji replaced by kanji or kana",
    "near-reading": "kanji replaced by kanji or kana",
    "missing": "text[start:end] empty, replacement not",
    "extra": "one character taken out, replacement empty, not a repetition of its neighbour",
    "repeated": "what is taken out repeats its neighbour, replacement empty",
    "substitution": "one character for one character",
    "transposition": "the same characters in another order",
    "particle": "hiragana only",
    "agreement": "any",
}


def _plain(name: str, value: str, *, measured: bool = True) -> Iterator[tuple[str, str]]:
    """Check the rules of every text field: NFC, no outer white space, no control character, length."""
    if value != unicodedata.normalize("NFC", value):
        yield name, "is not in Unicode form NFC; normalise it"
    if value != value.strip() or value.startswith("\ufeff"):
        yield name, "has white space at its beginning or end; remove it"
    if any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") for character in value):
        yield name, "has a line break, tab or invisible character; remove it"
    if measured and len(value) not in LENGTH:
        yield name, f"has {len(value)} characters; {LENGTH.start} to {LENGTH.stop - 1} are wanted"


def _edit_problems(sentence: Sentence, edit: Edit) -> Iterator[tuple[str, str]]:
    text, removed = sentence.text, sentence.text[edit.start : edit.end]
    if not 0 <= edit.start <= edit.end <= len(text):
        yield (
            "edit",
            f"[{edit.start}, {edit.end}) is not a span of the text's {len(text)} characters; correct it",
        )
        return
    made = text[: edit.start] + edit.replacement + text[edit.end :]
    if made != sentence.reference:
        yield (
            "edit",
            f"replacing {removed!r} by {edit.replacement!r} gives {made!r}, not the reference; correct the span",
        )
    if removed == edit.replacement:
        yield "edit", f"replaces {removed!r} by itself; an erroneous sentence differs from its reference"
    if max(len(removed), len(edit.replacement)) > EDIT_CHARACTERS:
        yield (
            "edit",
            f"{removed!r} → {edit.replacement!r} is longer than {EDIT_CHARACTERS} characters; choose a smaller error",
        )
    if removed and edit.replacement and (removed[0] == edit.replacement[0] or removed[-1] == edit.replacement[-1]):
        yield (
            "edit",
            f"{removed!r} → {edit.replacement!r} begins or ends alike on both sides; narrow the span to what changes",
        )
    if not _shape(sentence, edit):
        wanted = SHAPES[sentence.category]
        yield "category", f"{sentence.category} with {removed!r} → {edit.replacement!r}; this category needs: {wanted}"


def _sentence_problems(sentence: Sentence) -> Iterator[tuple[str, str]]:
    if sentence.category not in COUNTS:
        yield "category", f"{sentence.category!r} is unknown; one of {', '.join(COUNTS)}"
        return
    yield from _plain("id", sentence.id, measured=False)
    yield from _plain("text", sentence.text)
    yield from _plain("reference", sentence.reference)
    right = [sentence.reference, *sentence.accepted]
    for other in sentence.accepted:
        yield from _plain("accepted", other)
    if len(set(right)) < len(right):
        yield "accepted", "repeats the reference or itself; list each other right sentence once"
    if sentence.category in CLEAN_CATEGORIES:
        if sentence.text != sentence.reference:
            yield "reference", "differs from the text, but the category says clean; make them equal"
        if sentence.edit is not None:
            yield "edit", "must be null in a clean sentence"
        if sentence.accepted:
            yield "accepted", "must be empty in a clean sentence: only the sentence itself is right"
        return
    if sentence.text in right:
        yield "text", "is itself the reference or accepted; an erroneous sentence must be wrong"
    if sentence.edit is None:
        yield "edit", "is null, but the category names an error; give start, end, replacement"
    else:
        yield from _edit_problems(sentence, sentence.edit)


def _twice(sentences: Sequence[Sentence]) -> Iterator[tuple[int, str, str]]:
    """Find ids, texts and right answers that occur in two sentences (a right answer as another's text included)."""
    owner: dict[tuple[str, str], int] = {}
    for line, sentence in enumerate(sentences, 1):
        for key, value in (
            ("id", sentence.id),
            *(("sentence", s) for s in dict.fromkeys((sentence.text, sentence.reference, *sentence.accepted))),
        ):
            first = owner.setdefault((key, value), line)
            if first != line:
                yield line, key, f"{value!r} is already in sentence {first} of the file; write another"


def _pairs(sentences: Sequence[Sentence]) -> Iterator[tuple[int, str, str]]:
    """Find confusion pairs, in either direction, that occur too often. An omission or addition is not a pair."""
    seen: Counter[frozenset[str]] = Counter()
    for line, sentence in enumerate(sentences, 1):
        if (edit := sentence.edit) is None or not edit.replacement or edit.start == edit.end:
            continue
        pair = frozenset((sentence.text[edit.start : edit.end], edit.replacement))
        seen[pair] += 1
        if seen[pair] > SAME_PAIR:
            yield line, "edit", f"{' / '.join(sorted(pair))} occurs more than {SAME_PAIR} times; choose another"


def problems(sentences: Sequence[Sentence], counts: Mapping[str, int] = COUNTS) -> list[tuple[int, str, str]]:
    """List what breaks a rule, as (sentence, key, problem and remedy).

    `sentence` is its number in file order, from 1; 0 stands for the whole set.
    """
    found = [(n, key, problem) for n, s in enumerate(sentences, 1) for key, problem in _sentence_problems(s)]
    found += [*_twice(sentences), *_pairs(sentences)]
    have = Counter(sentence.category for sentence in sentences)
    found += [
        (0, "category", f"{category} occurs {have[category]} times; {wanted} are wanted")
        for category, wanted in counts.items()
        if have[category] != wanted
    ]
    return sorted(found)


def main(arguments: Sequence[str]) -> int:
    """Print every problem of FILE; exit status 0 when the file has none, 1 otherwise."""
    if len(arguments) != 1:
        print("usage: python -m servebench.tasks.proofreading_check FILE.jsonl", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    try:
        sentences = read_sentences(path)
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    found = problems(sentences)
    for number, key, problem in found:
        where = f"sentence {number} ({sentences[number - 1].id})" if number else "whole set"
        print(f"{path}: {where}: {key}: {problem}", file=sys.stderr)
    print(f"{path}: {len(sentences)} sentences, {len(found)} problems")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
