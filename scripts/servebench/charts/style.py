"""Give all charts one look: a colour per engine, a shape per quantization, fonts, and words in two languages."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from servebench.faults import Fault
from servebench.plan import Plan
from servebench.tables.files import Row
from servebench.words import spoken

FONT = "Noto Sans JP"
LABEL_GAP_PX = 13.0


# The page's own families: English is not set in a Japanese face.
FONTS: Mapping[str, str] = {
    "en": "system-ui, -apple-system, Segoe UI, Noto Sans, Helvetica, Arial, sans-serif",
    "ja": f"{FONT}, Noto Sans CJK JP, Hiragino Sans, Yu Gothic, Meiryo, system-ui, sans-serif",
}


# (light, dark): charts are drawn light, and the page swaps the colours. Colour-blind readers can tell them apart;
# labels, dashes and shapes distinguish what is alike in grey.
ENGINES: Mapping[str, tuple[str, str]] = {
    "llama-server": ("#2062d6", "#5b9bff"),
    "ollama": ("#b85c00", "#ffb04d"),
    "vllm": ("#166749", "#7df0c9"),
    "sglang": ("#59208e", "#dcc2ff"),
    "url": ("#6b7480", "#9aa4b1"),
    "simulator": ("#7a1b50", "#ff5a94"),
}


# Shades of an engine's colour, (light, dark), from few to many slots: the more, the farther from the paper. All stand
# out from it as lines must (3 to 1), and no shade looks like one of another engine.
SHADES: Mapping[str, Sequence[tuple[str, str]]] = {
    "llama-server": (("#4a89fa", "#2b69c8"), ("#3375eb", "#4382e3"), ENGINES["llama-server"]),
    "ollama": (("#d3742c", "#da8d1f"), ("#b85d00", "#ea9d36"), ("#964a03", "#ffb04d")),
    "vllm": (("#4d9776", "#6fe3bc"), ("#337f5f", "#84f7cf"), ("#16674a", "#cafeea")),
    "sglang": (("#5e2794", "#cfb5f1"), ("#511484", "#dcc2ff"), ("#460078", "#e9ddfc")),
    "url": (("#828c98", "#9aa4b1"), ("#77808c", "#a6b0be"), ("#6b7481", "#b3bdca")),
    "simulator": (("#7b1b50", "#d42e70"), ("#550534", "#e94582"), ("#34031f", "#ff5a94")),
}


SHAPES: Mapping[str, str] = {
    "4 bit": "circle",
    "5 bit": "triangle-up",
    "6 bit": "triangle-down",
    "8 bit": "diamond",
    "16 bit": "square",
    "other": "cross",
}


DASHES: Sequence[Sequence[int]] = ([1, 0], [7, 3], [2, 3], [10, 3, 2, 3], [4, 2], [1, 2], [12, 4])


INK = ("#1d2530", "#e8ecf1")


FAINT = ("#d9dee5", "#39424e")


MUTED = ("#59636f", "#a3adb9")


PAPER = ("#fffffe", "#14181d")


LINE = ("#b3202c", "#ff8a8f")


class FontMissing(Fault):
    """No font for the Japanese text of a chart is installed."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """Hold the look of a chart: language, size of the plot in pixels, the experiment's rounds and line.

    `sizes`: the configured width and height, which take precedence over a chart's own. `slots`: by engine, the
    different numbers of slots of the experiment's settings, rising.
    """

    language: str = "en"
    width: int = 640
    height: int = 340
    sizes: Mapping[str, int] = field(default_factory=dict)
    rounds: int = 2
    line: Mapping[str, float] = field(default_factory=lambda: {"ttft_p95_s": 2.0, "user_tok_s": 10.0})
    slots: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def configured(cls, charts: Mapping[str, Any], plan: Plan) -> Style:
        """Make a style from the configuration's `charts` section and the experiment's rounds and line."""
        limits = {"ttft_p95_s": plan.line.ttft_p95_s, "user_tok_s": plan.line.user_tok_s}
        sizes = {name: charts[name] for name in ("width", "height") if name in charts}
        slots: dict[str, set[int]] = {}
        for setting in plan.settings.values():
            slots.setdefault(setting.engine.kind, set()).add(setting.slots)
        rising = {kind: sorted(own) for kind, own in slots.items()}
        return cls(**charts, sizes=sizes, rounds=plan.rounds, line=limits, slots=rising)

    def say(self, key: str, **values: Any) -> str:
        """Say the words at `key` in this style's language, with `{names}` filled in."""
        return spoken(key, rounds=self.rounds, **values)[self.language]

    def colour(self, engine_kind: str) -> str:
        """Return the colour of an engine, the same in every chart."""
        return ENGINES.get(engine_kind, ENGINES["url"])[0]

    def shade(self, engine_kind: str, slots: int) -> str:
        """Return the engine's colour for a setting with this number of slots: its own where all have the same."""
        known = self.slots.get(engine_kind, ())
        if len(known) < 2 or slots not in known:
            return self.colour(engine_kind)
        shades = SHADES.get(engine_kind, SHADES["url"])
        return shades[known.index(slots) * (len(shades) - 1) // (len(known) - 1)][0]

    def sized(self, width: int, height: int, panels: int = 1) -> Style:
        """Return this style with a chart's own size, where the configuration gives none.

        `width` is that of each of `panels` side by side; a configured width is that of all of them.
        """
        asked = self.sizes.get("width")
        return replace(self, width=width if asked is None else asked // panels, height=self.sizes.get("height", height))

    def title(self, key: str, **values: Any) -> alt.TitleParams:
        """Make title and subtitle of the chart called `key`."""
        return alt.TitleParams(
            self.say(f"charts.{key}.title", **values), subtitle=lines(self.say(f"charts.{key}.subtitle", **values))
        )

    def finished(self, chart: Any, key: str, *, room: float = 0, **values: Any) -> Any:
        """Add to `chart` its title, and a description for those who cannot see it.

        `room`: pixels that the plot's x domain leaves to text on the right; the page keeps them free when it draws
        the chart at another width.
        """
        return chart.properties(
            title=self.title(key, **values),
            description=self.say(f"charts.{key}.alt", **values),
            usermeta={"room": round(room)},
        )

    def tooltip(self, **fields: str) -> list[alt.Tooltip]:
        """Make the tooltip of a point from fields by their names under charts.tooltip."""
        return [alt.Tooltip(field, title=self.say(f"charts.tooltip.{name}")) for name, field in fields.items()]

    def look(self, chart: Any) -> alt.TopLevelMixin:
        """Apply the common look; for the outermost chart only."""
        ink, muted, faint = INK[0], MUTED[0], FAINT[0]
        text = {"labelColor": muted, "titleColor": ink, "labelFontSize": 11.5, "titleFontSize": 12}
        look: alt.TopLevelMixin = (
            chart.configure(font=FONTS[self.language], background=PAPER[0], padding=14)
            .configure_axis(
                **text,
                gridColor=faint,
                domainColor=muted,
                tickColor=muted,
                titleFontWeight="normal",
                titlePadding=8,
                labelOverlap="greedy",
                labelSeparation=5,
            )
            .configure_view(stroke=None)
            .configure_title(
                color=ink,
                subtitleColor=muted,
                fontSize=17,
                fontWeight="normal",
                subtitleFontSize=12,
                subtitlePadding=6,
                anchor="start",
                offset=14,
                frame="group",
            )
            .configure_legend(**text, titleFontWeight="normal", symbolStrokeWidth=1.5)
            .configure_header(**text)
            .configure_text(color=ink, fontSize=11.5)
        )
        return look

    def nothing(self, key: str, **values: Any) -> Any:
        """Make a chart that says it has no data."""
        note = alt.Chart(inline([{"text": "\n".join(lines(self.say("charts.nothing"), 46))}]))
        said = note.mark_text(fontSize=14, lineHeight=20, lineBreak="\n", color=MUTED[0]).encode(text="text:N")
        title = alt.TitleParams(self.say(f"charts.{key}.title", **values), subtitle=[self.say("charts.no_data")])
        return said.properties(
            width=self.width, height=120, title=title, description=self.say("charts.nothing"), usermeta={"room": 0}
        )


def grouped(rows: Sequence[Row], draw: Callable[[list[Row], bool], Any]) -> Any:
    """Stack the charts of each `group` of rows; `draw` gets the rows and whether the group is the last."""
    groups = list(dict.fromkeys(row.get("group", "") for row in rows))
    if not any(groups):
        return draw(list(rows), True)
    charts = []
    for group in groups:
        title = alt.TitleParams(group, anchor="start", fontSize=13, fontWeight="normal", offset=4, frame="group")
        own = [row for row in rows if row.get("group", "") == group]
        charts.append(draw(own, group == groups[-1]).properties(title=title))
    return alt.vconcat(*charts, spacing=10)


def inline(values: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Turn rows into a chart's data; the same rows become one data set, however often used.

    A data frame, because Altair checks every value of plain rows against its schema, which takes minutes.
    """
    return pd.DataFrame([dict(row) for row in values])


def written(colour: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the looks of a text that stays readable on lines: first its edge in the colour of the paper.

    A colour of None is that of the encoding.
    """
    return {"stroke": PAPER[0], "strokeWidth": 3, "color": PAPER[0]}, {} if colour is None else {"color": colour}


def lines(text: str, width: int = 104) -> list[str]:
    """Break text into lines of at most `width` half-width characters, at spaces and anywhere after Japanese."""
    done: list[str] = []
    line, used = "", 0
    for piece in _pieces(text):
        size = sum(2 if ord(c) > 0x2E7F else 1 for c in piece)
        if line and used + size - piece.endswith(" ") > width and piece not in "、。）」":
            done, line, used = [*done, line.rstrip()], "", 0
        line, used = line + piece, used + size
    return [*done, line.rstrip()]


def width_px(text: str) -> float:
    """Estimate a label's width in pixels."""
    return sum(11.5 if ord(c) > 0x2E7F else 6.4 for c in text)


def _pieces(text: str) -> list[str]:
    pieces, word = [], ""
    for c in text:
        if ord(c) > 0x2E7F:
            pieces += [word, c] if word else [c]
            word = ""
        else:
            word += c
            if c == " ":
                pieces, word = [*pieces, word], ""
    return [*pieces, word] if word else pieces


def bits(quantization: str | None) -> str:
    """Name a quantization's number of bits: `4 bit` … `16 bit`, or `other`."""
    name = (quantization or "").upper()
    if name in ("BF16", "F16", "FP16"):
        return "16 bit"
    digits = next((c for c in name if c.isdigit()), "")
    return f"{digits} bit" if digits in ("4", "5", "6", "8") else "other"


def font_directory() -> Path:
    """Find the folder of Noto Sans JP; raises FontMissing when the font is not installed."""
    found = importlib.util.find_spec("pylopdf_fonts_jp")
    if found is None or found.origin is None or not (Path(found.origin).parent / "NotoSansJP-Regular.otf").is_file():
        raise FontMissing(
            f"charts in Japanese need the font {FONT}, and the Python package pylopdf-fonts-jp that carries it is not "
            "installed: install it, or draw in English only"
        )
    return Path(found.origin).parent


@dataclass(frozen=True)
class Axis:
    """Convert values of a vertical axis to pixels from the top, and back."""

    domain: tuple[float, float]
    height: int
    log: bool

    def pixel(self, value: float) -> float:
        low, high = (math.log(end) for end in self.domain) if self.log else self.domain
        return self.height * (1 - ((math.log(value) if self.log else value) - low) / (high - low))

    def value(self, pixel: float) -> float:
        low, high = (math.log(end) for end in self.domain) if self.log else self.domain
        at = low + (1 - pixel / self.height) * (high - low)
        return math.exp(at) if self.log else at

    def apart(self, values: Sequence[float]) -> list[float]:
        """Move falling values so that labels at them are a line of text apart and the last is within the plot."""
        moved: list[float] = []
        for pixel in map(self.pixel, values):
            moved.append(max(pixel, moved[-1] + LABEL_GAP_PX) if moved else pixel)
        ceiling = self.height + LABEL_GAP_PX - 4
        for n in reversed(range(len(moved))):
            moved[n] = ceiling = min(moved[n], ceiling - LABEL_GAP_PX)
        return [self.value(pixel) for pixel in moved]


def log_ticks(low: float, high: float) -> list[float]:
    """Choose the labels of a logarithmic axis: 1, 2 and 5 times the powers of ten.

    There are fewer over many powers of ten, and more where hardly any would fall between `low` and `high`, down to
    equal steps between neighbours.
    """
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    for steps in ((1, 3),) if len(powers) > 3 else ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        ticks = [round(step * 10.0**n, 12) for n in powers for step in steps if low <= step * 10.0**n <= high]
        if len(ticks) >= 3:
            return ticks
    return ticks_between(low, high)


def ticks_between(low: float, high: float) -> list[float]:
    """Choose the labels of a linear axis, in equal steps from `low` to `high`."""
    least = (high - low) / 6
    step = next(size * 10.0**n for n in range(-12, 13) for size in (1, 2, 5) if size * 10.0**n >= least)
    return [round(n * step, 12) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
