"""How often a page recommends a setting among equal ones, or calls one outdone, and how often it finds a true lead.

A simulated page has equal settings of one job at 1, 2, 4, … users. TTFT grows and speed falls with the users, so that
the settings keep the line up to a number of users drawn for the page, which the page does not know. A window has 60
requests, whose TTFT scatters; each cell (setting × users) repeats with one of the three noises of `error_rates.py`. The
rows go through `servebench.verdicts.choices` as measured ones do.

    python benchmarks/verdicts/choices.py --pages 1000
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from error_rates import NOISES

from servebench.claims import Claim
from servebench.load.line import Line
from servebench.load.percentiles import percentile
from servebench.plan import Engine, Model, Plan, Setting
from servebench.plan.differences import MEASURED
from servebench.tables.catalogue import SCHEMAS
from servebench.verdicts.choices import choices

LINE = Line()
REQUESTS, WITHIN = 60, 0.3  # of a window; spread of one request's TTFT, as a log
_FIGURES = ("output_tok_s", "user_tok_s", "ttft_p50_s", "ttft_p95_s", "target_requests", "failures", "cached_share")
_COLUMNS = ("run", "setting", "users", "round", "status", "reason", "valid", "invalid_reasons", *_FIGURES)
_ALIKE = ("output_tokens_mean", "output_tokens_p50", *MEASURED)  # unknown, so that nothing sets the settings apart
SCHEMA = pa.schema([SCHEMAS["measurements"].field(name) for name in (*_COLUMNS, *_ALIKE)])


@dataclass(frozen=True)
class Page:
    """What is simulated. `lead`: by how much the first setting's output is truly higher at every number of users.

    `serves`: how many times as many users the first setting serves; `trade`: by how much the others' output and speed
    are higher with 1 user, so that the first outdoes none of them where it is above 5 %.
    """

    settings: int
    levels: int
    rounds: int
    noise: str
    lead: float = 0.0
    serves: float = 1.0
    trade: float = 0.0

    @property
    def plan(self) -> Plan:
        model, engine = Model(key="m", name="m"), Engine(key="e", kind="simulated")
        users = tuple(2**level for level in range(self.levels))
        about: dict[str, Any] = {"run": "main", "engine": engine, "model": model, "slots": 16, "users": users}
        settings = {str(number): Setting(name=str(number), **about) for number in range(self.settings)}
        return Plan(
            experiment="e",
            title="e",
            rounds=self.rounds,
            line=LINE,
            models={"m": model},
            engines={"e": engine},
            settings=settings,
            runs={"main": {}},
        )


class Drawn:
    """One page: the truth, drawn at random, and the claims on rows measured of it."""

    def __init__(self, page: Page, random: np.random.Generator) -> None:
        self.page, self.random, self.plan = page, random, page.plan
        most = float(2 ** random.uniform(-1, page.levels))  # users with which the limit is just kept
        self.serves = {name: most * (page.serves if name == "0" else 1) for name in self.plan.settings}
        self.steep = random.uniform(0.3, 1.5)

    def truth(self, name: str, users: int) -> tuple[float, float, float]:
        """Output and speed (tokens/s), and the TTFT p95 (s), in an endless window without noise."""
        share = users / self.serves[name]
        better = 1 + (self.page.lead if name == "0" else self.page.trade * (users == 1))
        speed = LINE.user_tok_s * 1.2 * max(share, users / max(self.serves.values())) ** (-self.steep / 3)
        return 100 * users**0.7 * better, speed * better, LINE.ttft_p95_s * share**self.steep

    def keeps(self, name: str, users: int) -> bool:
        """Whether the setting is truly within the line with so many users."""
        _, speed, ttft_s = self.truth(name, users)
        return ttft_s <= LINE.ttft_p95_s and speed >= LINE.user_tok_s

    def claims(self) -> list[Claim]:
        table = pa.Table.from_pylist(list(self._rows()), schema=SCHEMA)
        return choices({"measurements": table}, self.plan, [])

    def _rows(self) -> Iterator[dict[str, Any]]:
        draw = self.random
        for name, users in itertools.product(self.plan.settings, next(iter(self.plan.settings.values())).users):
            output, speed, ttft_s = self.truth(name, users)
            spread = 0.02
            if self.page.noise == "as published":
                spread = float(np.exp(np.log(0.05) + draw.normal() * np.log(4) / 1.2816))
            for number in range(1, self.page.rounds + 1):
                heavy = self.page.noise == "heavy tails"
                faster = np.exp(spread * (draw.standard_t(3, size=3) / np.sqrt(3) if heavy else draw.normal(size=3)))
                middle = ttft_s / np.exp(1.6449 * WITHIN) / faster[2]
                waits = middle * np.exp(WITHIN * draw.normal(size=REQUESTS))
                yield {
                    **{"run": "main", "setting": name, "users": users, "round": number, "status": "ok", "reason": []},
                    **{"valid": True, "invalid_reasons": [], "target_requests": REQUESTS, "failures": 0},
                    **{"output_tok_s": float(output * faster[0]), "user_tok_s": float(speed * faster[1])},
                    **{"ttft_p50_s": float(np.median(waits)), "ttft_p95_s": percentile(waits, 95)},
                }


@dataclass(frozen=True)
class Rates:
    """Shares of pages with a setting recommended, with one called outdone (by verdict), and with a false statement on
    who surely keeps or misses the line. Among equal settings the first three are false too."""

    recommended: float
    fewer_users: float
    less_output: float
    surely: float


def rates(page: Page, pages: int, seed: int = 1) -> Rates:
    random = np.random.default_rng(seed)
    counts = np.zeros(4)
    for _ in range(pages):
        drawn = Drawn(page, random)
        found = drawn.claims()
        verdicts = {claim.verdict for claim in found}
        surely = any(_misstated(drawn, claim) for claim in found if claim.kind == "choice")
        counts += ["recommended" in verdicts, "fewer_users" in verdicts, "less_output" in verdicts, surely]
    return Rates(*map(float, counts / pages))


def _misstated(drawn: Drawn, choice: Claim) -> bool:
    """Whether a setting that is said to keep the line surely misses it in truth, or the other way round."""
    users = choice.users or 0
    kept, missed = choice.values["means"], choice.values["beyond"]
    return any(not drawn.keeps(name, users) for name in kept) or any(drawn.keeps(name, users) for name in missed)


SHAPES = ((2, 6), (2, 12), (4, 6), (9, 6))  # settings, numbers of users
GAINS = (0.07, 0.1, 0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=300)
    pages = parser.parse_args().pages
    print("| noise | rounds | settings | numbers of users | recommended | fewer users | less output | surely |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, rounds, (settings, levels) in itertools.product(NOISES, (2, 3, 4, 8), SHAPES):
        found = rates(Page(settings, levels, rounds, kind), pages)
        shown = " | ".join(f"{share:.3f}" for share in vars(found).values())
        print(f"| {kind} | {rounds} | {settings} | {levels} | {shown} |", flush=True)
    print("\n| noise | rounds | truly outdone | 7 % faster with 1 user | 10 % | 20 % |\n|---|---|---|---|---|---|")
    for kind, rounds in itertools.product(NOISES, (2, 4)):
        traded = [rates(Page(2, 6, rounds, kind, serves=3, trade=gain), pages).fewer_users for gain in (0, *GAINS)]
        print(f"| {kind} | {rounds} | {' | '.join(f'{share:.3f}' for share in traded)} |", flush=True)
    print("\n| noise | rounds | a lead of 5 % is recommended | of 10 % | of 20 % |\n|---|---|---|---|---|")
    for kind, rounds in itertools.product(NOISES, (2, 4)):
        leads = [rates(Page(4, 7, rounds, kind, lead=lead), pages).recommended for lead in (0.05, 0.1, 0.2)]
        print(f"| {kind} | {rounds} | {' | '.join(f'{share:.2f}' for share in leads)} |", flush=True)


if __name__ == "__main__":
    main()
