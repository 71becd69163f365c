"""Say claims in both languages; the texts are in labels.yaml under `claims`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from typing import Any

from servebench.claims import Claim
from servebench.marks import Mark
from servebench.words import COMMA, LANGUAGES, labels, marks, numbers, polished, words
from servebench.words.numbers import digits

_STOP = {"en": " ", "ja": ""}
_LIMITED = ("ttft_p95_s", "user_tok_s")
_SUREST = 99  # percent; beyond it "over 99 %" is said
LINE = "line"  # the objective that sentences call the target
_RANGES = ("requests_s", "ttft_p50_s", "base_ttft_p50_s", "band", "reply_s", "streams", "usd", "seconds", "joules")


# Marks that weaken what is concluded itself, and are said with it; the other marks of its rows stand with the rows.
_WEAKENING = (
    *("measured_unlike", "reply_lengths_differ", "other_prompt_tokens", "cached_prompts", "few_requests"),
    *("short_replies", "discarded_before"),
)


def said(claim: Claim) -> dict[str, str]:
    """Say a claim in each language: its sentence, then the settings it leaves out, and whether its rows are invalid."""
    return {language: _said(claim, language) for language in LANGUAGES}


def said_pair(claim: Claim | None) -> dict[str, str]:
    """Say in each language, in a few words for a table, what a claim of kind `pair` says; None: nothing to compare."""
    texts = labels()["page"]["compare"]["verdicts"]
    values = claim.values if claim else {}
    return {
        language: texts[claim.verdict if claim else "not_both"][language].format(
            low=digits(values.get("low")),
            high=digits(values.get("high")),
            parts=COMMA[language].join(labels()["claims"]["parts"][part][language] for part in values.get("parts", ())),
        )
        for language in LANGUAGES
    }


def _said(claim: Claim, language: str) -> str:
    texts = labels()["claims"][claim.kind]
    entry = texts[claim.verdict]
    if claim.figure in entry:
        entry = entry[claim.figure]
    filled = _values(claim, language)
    run = labels()["claims"]["run"][language].format(run=claim.run) if claim.several and claim.run else ""
    sentences = [run + entry[language].format(**filled)]
    also = (
        "memory_compared",
        "gaps",
        "open",
        "met_above",
        "missed",
        "beyond",
        "unsure",
        "absent",
        "excluded",
        "discarded",
        *(("parts", "models") if claim.kind == "size" else ()),
    )
    also_said = labels()["claims"]["also"] | (labels()["claims"]["also"]["at_rates"] if claim.kind == "rate" else {})
    for name in also:
        if claim.values.get(name):
            sentences.append(also_said[name][language].format(**filled))
    if claim.values.get("loop") == "open":
        sentences.append(words("claims.also.open_loop")[language].format(**filled))
    if not claim.values.get("within", True):
        outside = "not_shown" if claim.values["within"] is None else "outside"
        sentences.append(words(f"claims.also.{outside}")[language])
    if claim.values.get("valid") is False:
        missing = any(found.kind == "missing_round" for found in claim.caveats)
        missing |= claim.values.get("next_verdict") == "few_rounds"
        cause = "missing_round" if missing and claim.kind != "leader" else claim.kind
        sentences.append(words(f"claims.also.not_valid.{cause}")[language])
    caveats = [found for found in claim.caveats if claim.kind == "level" or _weakens(found)]
    if caveats:
        told = marks.told(caveats, language)
        sentences.append(labels()["claims"]["also"]["marks"][language].format(marks=told))
    return polished(_STOP[language].join(sentences))


def _weakens(found: Mark) -> bool:
    return found.kind in _WEAKENING or found.kind.startswith("mixed_")


def _values(claim: Claim, language: str) -> dict[str, str]:
    """Format the values that the templates fill in."""
    comma = COMMA[language]
    values = claim.values
    filled: dict[str, str] = {name: _text(value, comma) for name, value in values.items()}
    filled |= {name: _span(values[name], language) for name in _RANGES if name in values}
    filled |= {"users": digits(claim.users), "setting": claim.subjects[0] if claim.subjects else "–"}
    filled |= {"sure": _sure(claim.confidence, language), "objective": objective(LINE)[language]}
    if "mode" in values:
        filled |= {"rate": f"{values['rate']:g}" if values["rate"] else "–"}
        load = values["mode"] if values["mode"] in labels()["claims"]["load"] else "users"
        filled |= {"load": words(f"claims.load.{load}")[language].format(**filled)}
        per = words(f"claims.per.{'users' if load == 'users' else 'replies'}")[language]
        filled |= {"per": per.format(limit="")}
    if "ratio" in values:
        filled |= {"ratios": words(f"claims.ratios.{claim.figure}")[language].format(**filled)}
    if "apart" in values:
        of = words("claims.size_of")[language].format(**filled) if values["pairs"] > 1 else ""
        filled |= {"of": of, "size": _span([values["low"], values["high"]], language)}
        filled |= {"sizes": words(f"claims.sizes.{claim.figure}")[language].format(**filled)}
    if "line" in values:
        line = values["line"]
        filled |= {name: _span(values[name], language, line[name]) for name in _LIMITED}
    if "engine" in values:
        about = [values["engine"], values["quantization"]]
        named = words("claims.named")[language]
        filled |= {"first": named.format(name=values["first"], range=comma.join(filter(None, about)))}
    if ranges := values.get("ranges"):
        filled |= {"range": _span(ranges[values["first"]], language)}
        if "second" in values:
            filled |= {"second_range": _span(ranges[values["second"]], language)}
        if "others" in values:
            named = words("claims.named")[language]
            others = (named.format(name=name, range=_span(ranges[name], language)) for name in values["others"])
            filled |= {"others": comma.join(others)}
    if "limits" in values:
        least = words("claims.at_least")[language].format(limit=f"{values['line']['user_tok_s']:g}")
        shown = filled | {"per": per.format(limit=least), "limit_ttft_p95_s": f"{values['line']['ttft_p95_s']:g}"}
        texts = (words(f"claims.limits.{limit}")[language].format(**shown) for limit in values["limits"])
        filled |= {"limits": comma.join(texts)}
    if "discarded" in values:
        filled |= {"discarded": comma.join(_discarded(item, language) for item in values["discarded"])}
    if "spans" in values:
        spans = ((f"{first:g}" if first == last else f"{first:g}–{last:g}") for first, last in values["spans"])
        filled |= {"spans": _span_dash(comma.join(spans), language)}
        most = max(values["open"], default=0) < values.get("most", 0)
        filled |= {"tried": words("claims.most_tried")[language] if most else ""}
        filled |= {"objective": objective(values["objective"])[language]}
    if claim.kind == "rate":  # written out: one step of a search may lie in the third decimal place
        listed = {name: comma.join(f"{value:g}" for value in values[name]) for name in ("gaps", "open")}
        filled |= listed | {name: f"{values[name]:g}" for name in ("most", "misses") if name in values}
    if "choose" in values:
        chosen = ((name, values["means"][name]) for name in values["choose"])
        text = words("claims.choose")[language]
        filled |= {"choose": comma.join(text.format(name=n, about=comma.join(_means(m, language))) for n, m in chosen)}
    if "next_verdict" in values:
        filled |= {"next_verdict": words(f"claims.next.{values['next_verdict']}")[language]}
    if "people" in values:
        pause = words("claims.pause")[language]
        found = (pause.format(pause=digits(p), people=_span(ends, language)) for p, *ends in values["people"])
        filled |= {"people": comma.join(found)}
    if "used_percent" in values:
        use = "always" if values["used_percent"] == 100 else "share"
        filled |= {"used": words(f"claims.used.{use}")[language].format(percent=digits(values["used_percent"]))}
    if "persons" in values:
        person = words("claims.person")[language]
        each = ((_pause(p, language), ends) for p, *ends in values["persons"])
        filled |= {"persons": comma.join(person.format(pause=p, usd=_span(ends, language)) for p, ends in each)}
    if "source" in values:
        filled |= {"source": words(f"claims.bandwidths.{values['source']}")[language]}
        filled |= {"percent": _span(values["percents"], language)}
    if "think" in values:
        filled |= {"think": _pause(values["think"], language)}
    if "minutes" in values:
        filled |= {"minutes": f"{values['minutes']:g}"}
    if "memory" in values:
        filled |= {"memory": words(f"claims.memories.{values['memory']}")[language]}
    if "measure" in values:
        filled |= {"measure": measure(values["measure"])[language]}
    if "lower_is_better" in values:
        up = claim.verdict == "higher"
        ends = (values["low"], values["high"]) if up else (-values["high"], -values["low"])
        filled |= dict(zip(("size", "least", "most"), map(digits, (abs(values["points"]), *ends)), strict=True))
        sense = words(f"claims.sense.{'worse' if up else 'better'}")[language]
        filled |= {"sense": sense if values["lower_is_better"] else ""}
    if "parts" in values:
        filled |= {"parts": comma.join(words(f"claims.parts.{part}")[language] for part in values["parts"])}
    if models := values.get("models"):
        filled |= dict(zip(("model_a", "model_b"), map(comma.join, models), strict=True))
    if "differs" in values:
        filled |= {"differs": differs(values["differs"])[language]}
    if "reasons" in values:
        filled |= {"reasons": comma.join(_reason(reason, language) for reason in values["reasons"])}
    return filled


def objective(name: str) -> dict[str, str]:
    """Name an objective in each language; the line is called the target."""
    texts = words("claims.the_line" if name == LINE else "claims.objectives")
    return {language: text.format(name=name) for language, text in texts.items()}


def answers(found: Mapping[str, Any], language: str) -> Iterator[str]:
    """Say in a few words what is concluded of the answers of a setting's model file."""
    texts = labels()["claims"]["means"]
    if found["target"] is None:
        yield texts["not_evaluated"][language]
    elif found["baseline"]:
        yield texts["baseline"][language]
    elif found["differs"]:
        for name, points in found["differs"]:
            yield texts["differs"][language].format(measure=measure(name)[language], points=f"{points:+.1f}")
    else:
        yield texts["not_judged" if found["open"] else "none_detected"][language]


def _means(found: Mapping[str, Any], language: str) -> Iterator[str]:
    """Say what a setting gives and costs: output, memory, money, answers; what is not known is left out."""
    for name in ("output_tok_s", "gib", "usd"):
        value = found[name]
        if value is not None:
            text = _span(value, language) if isinstance(value, Sequence) else digits(value)
            yield words(f"claims.means.{name}")[language].format(**{name: text})
    yield from answers(found["answers"], language)


def measure(name: str) -> dict[str, str]:
    """Name a measure of the evaluations in each language."""
    return dict(words(f"claims.measures.{name}"))


def task(name: str) -> dict[str, str]:
    """Name a task of the evaluations in each language."""
    return dict(words(f"claims.tasks.{name}"))


def differs(names: Sequence[str]) -> dict[str, str]:
    """Say in what two settings differ, in each language; an argument stays as it is."""
    texts = labels()["claims"]["differs"]
    return {
        language: COMMA[language].join(texts[name][language] if name in texts else name for name in names)
        for language in LANGUAGES
    }


def _pause(pause: float | str, language: str) -> str:
    """Say a pause: seconds, or a distribution as in the configuration (`exp:5`)."""
    kind, colon, parameters = str(pause).partition(":")
    first, _, second = (parameters if colon else kind).partition(",")
    text = words(f"claims.pauses.{kind if colon else 'constant'}")[language]
    return text.format(first=_plain(first), second=_plain(second))


def _plain(number: str) -> str:
    return f"{float(number):g}" if number else ""


def _discarded(item: Sequence[Any], language: str) -> str:
    setting, users, count = item
    text = words("claims.discard_of_schedule" if users is None else "claims.discard")[language]
    return text.format(setting=setting, users=digits(users), count=digits(count))


def _sure(confidence: float | None, language: str) -> str:
    """Write a confidence in whole percent, rounded down."""
    if confidence is None:
        return "–"
    percent = floor(100 * confidence)
    text = words(f"claims.sure.{'over' if percent >= _SUREST else 'whole'}")[language]
    return text.format(percent=min(percent, _SUREST))


def _reason(reason: Mapping[str, Any], language: str) -> str:
    return words(f"claims.reasons.{reason['kind']}")[language].format(**reason)


def _span(ends: Sequence[float] | None, language: str, limit: float | None = None) -> str:
    """Format a range over the rounds with the dash of the language; `limit` as in `numbers.digits`."""
    low, high = ends or (None, None)
    written = numbers.span(low, high, limit)
    return _span_dash(written, language) if ends else written


def _span_dash(written: str, language: str) -> str:
    return written.replace("–", "〜") if language == "ja" else written


def _text(value: Any, comma: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return comma.join(_text(item, comma) for item in value)
    return digits(value) if isinstance(value, int | float) or value is None else ""
