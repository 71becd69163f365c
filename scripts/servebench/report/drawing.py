"""Collect the charts of a page: what stands beside each, and the input of the page's script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from altair.utils.schemapi import debug_mode

from servebench.charts.style import ENGINES, FAINT, INK, LINE, MUTED, PAPER, SHADES, Style
from servebench.report.fold import Fold

COLOURS = [
    list(pair)
    for pair in dict.fromkeys(
        (*ENGINES.values(), *(shade for own in SHADES.values() for shade in own), INK, FAINT, MUTED, PAPER, LINE)
    )
]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Hold `figures`, each with key, texts by language and table of values, and `data`, for the script."""

    figures: list[dict[str, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=lambda: {"charts": {}, "datasets": {}, "colours": COLOURS})

    def add(
        self,
        key: str,
        made: Mapping[str, tuple[Style, Any]],
        found: Mapping[str, str],
        listed: Fold,
        **more: Any,
    ) -> None:
        """Add a chart: by language its style and the chart without the common look, and the finding that it shows."""
        said: dict[str, dict[str, str]] = {}
        own = self.data["charts"][key] = {}
        for language, (style, chart) in made.items():
            with debug_mode(False):  # the charts' tests check every specification; here that would take half the time
                spec = style.look(chart).to_dict()
            title = spec.pop("title")
            joined = (" " if language == "en" else "").join(title["subtitle"])
            alt = f"{spec.get('description', '')} {found[language]}".strip()
            said[language] = {"title": title["text"], "subtitle": joined, "alt": alt}
            self.data["datasets"] |= _short(spec.pop("datasets", {}))
            own[language] = spec
        self.figures.append({"key": key, "said": said, "listed": listed, **more})


def _short(value: Any) -> Any:
    """Round every number to seven significant digits: a chart shows no more."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list) else value
