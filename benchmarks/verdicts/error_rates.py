"""How often a page claims a leader or a difference among equal settings, and how often it finds a real lead.

A simulated page has `cells` settings × users, `settings` of them at each level, `rounds` rounds each; all settings of a
level are equal, so that every claim is false. Three kinds of noise: the same 2 % everywhere (normal, and Student's t
with 3 degrees of freedom), and a spread of each cell's own as in the 53 published pairs (median 5 %, 90 % point 20 %).

    python benchmarks/verdicts/error_rates.py --pages 1000
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from servebench.tables.evaluated.statistics import sign_flip_test
from servebench.verdicts import noise

NOISES = ("equal", "heavy tails", "as published")


@dataclass(frozen=True)
class Page:
    """What is simulated; `lead`: by how much the first setting of the first level is truly ahead (0.1: 10 %)."""

    cells: int
    settings: int
    rounds: int
    noise: str
    lead: float = 0.0

    def rows(self, random: np.random.Generator) -> np.ndarray:
        """Shape (levels, settings, rounds): a figure around 100."""
        shape = (max(1, self.cells // self.settings), self.settings, self.rounds)
        spread = np.full(shape[:2], 0.02)
        if self.noise == "as published":
            spread = np.exp(np.log(0.05) + random.normal(size=shape[:2]) * np.log(4) / 1.2816)
        drawn = (
            random.standard_t(3, size=shape) / np.sqrt(3) if self.noise == "heavy tails" else random.normal(size=shape)
        )
        rows = 100 * np.exp(spread[..., None] * drawn)
        rows[0, 0] *= 1 + self.lead
        return rows


def claimed(rows: np.ndarray) -> tuple[list[str | None], list[bool]]:
    """What is claimed of a page: the leader of each level (None: none), and which neighbours differ."""
    known = noise.noise([list(cell) for level in rows for cell in level])
    gaps = [noise.gap({str(name): list(cell) for name, cell in enumerate(level)}, known) for level in rows]
    leads = noise.rejected([None if g.p is None else g.p if g.every_round else 1.0 for g in gaps])
    pairs = [noise.ratio(list(one), list(other), known).p for level in rows for one, other in itertools.pairwise(level)]
    return [g.first if lead else None for g, lead in zip(gaps, leads, strict=True)], noise.rejected(pairs)


def rates(page: Page, pages: int, seed: int = 1) -> tuple[float, float]:
    """(share of pages with a false leader, share with a false difference); with a lead the share of pages that find it
    at its level, and of those with a false leader elsewhere."""
    random = np.random.default_rng(seed)
    first = second = 0
    for _ in range(pages):
        leaders, differ = claimed(page.rows(random))
        if page.lead:
            first += leaders[0] == "0"
            second += any(leaders[1:])
        else:
            first += any(leaders)
            second += any(differ)
    return first / pages, second / pages


@dataclass(frozen=True)
class Exam:
    """Targets that answer as the baseline does, on `measures` of `questions` each, twice.

    A question is easy, hard or between (`right`: the mean share of right answers); `steady`: the chance that the second
    repeat of an answer is as right as the first.
    """

    targets: int
    measures: int
    questions: int
    right: float = 0.76
    steady: float = 0.9

    def false_claims(self, random: np.random.Generator) -> int:
        """Count the differences claimed among targets that do not differ (kinds `score` and `under_load`)."""
        chances = []
        for _ in range(self.measures):
            eased = random.beta(2 * self.right, 2 * (1 - self.right), self.questions)
            base, *others = (self._answers(eased, random) for _ in range(self.targets + 1))
            chances += [sign_flip_test(other - base) for other in others]
        return sum(noise.rejected(chances))

    def _answers(self, eased: np.ndarray, random: np.random.Generator) -> np.ndarray:
        first = random.random(len(eased)) < eased
        again = np.where(random.random(len(eased)) < self.steady, first, random.random(len(eased)) < eased)
        return first.astype(np.int64) + again


def exam_rate(exam: Exam, pages: int, seed: int = 1) -> float:
    """Return the share of pages with a false difference between answers."""
    random = np.random.default_rng(seed)
    return sum(exam.false_claims(random) > 0 for _ in range(pages)) / pages


def across_rate(page: Page, pages: int, seed: int = 1) -> float:
    """Return the share of comparisons of two equal experiments (`servebench compare`) with a false difference."""
    random = np.random.default_rng(seed)
    found = 0
    for _ in range(pages):
        one, other = (page.rows(random).reshape(-1, page.rounds) for _ in range(2))
        known = noise.noise([list(cell) for cell in (*one, *other)])
        found += any(noise.rejected([noise.ratio(list(a), list(b), known).p for a, b in zip(one, other, strict=True)]))
    return found / pages


def exams() -> Iterator[Exam]:
    for targets, measures, questions in ((2, 1, 40), (2, 4, 40), (5, 4, 250), (5, 4, 1119)):
        yield Exam(targets=targets, measures=measures, questions=questions)


def grid() -> Iterator[Page]:
    for kind, rounds, (cells, settings) in itertools.product(
        NOISES, (2, 3, 4, 8), ((8, 2), (20, 2), (20, 4), (53, 2), (53, 4), (53, 9))
    ):
        yield Page(cells=cells, settings=settings, rounds=rounds, noise=kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1000)
    pages = parser.parse_args().pages
    print(
        "| noise | rounds | cells | settings at a level | false leader | false difference |\n|---|---|---|---|---|---|"
    )
    for page in grid():
        leader, difference = rates(page, pages)
        where = f"{page.noise} | {page.rounds} | {page.cells} | {page.settings}"
        print(f"| {where} | {leader:.3f} | {difference:.3f} |", flush=True)
    print("\n| noise | rounds | cells | false difference between two experiments |\n|---|---|---|---|")
    for kind, rounds, cells in itertools.product(NOISES, (2, 4), (10, 53)):
        rate = across_rate(Page(cells, 1, rounds, kind), pages)
        print(f"| {kind} | {rounds} | {cells} | {rate:.3f} |", flush=True)
    print("\n| targets | measures | questions | false difference between answers |\n|---|---|---|---|")
    for exam in exams():
        print(f"| {exam.targets} | {exam.measures} | {exam.questions} | {exam_rate(exam, pages):.3f} |", flush=True)
    print("\n| noise | rounds | a lead of 5 % is found | of 10 % | of 20 % |\n|---|---|---|---|---|")
    for kind, rounds in itertools.product(NOISES, (2, 3, 4, 8)):
        found = [rates(Page(53, 4, rounds, kind, lead), pages)[0] for lead in (0.05, 0.1, 0.2)]
        print(f"| {kind} | {rounds} | {' | '.join(f'{share:.2f}' for share in found)} |", flush=True)


if __name__ == "__main__":
    main()
