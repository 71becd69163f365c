"""How often a page claims a leader or a difference among equal settings, and how often it finds a real lead.

A simulated page has `cells` settings × users, `settings` of them at each level, each measured by three figures in so
many rounds; all settings of a level are equal, so that every claim is false. As on a page, the leaders by two figures
at all levels are one family, the differences by three figures another. Three kinds of noise: the same 2 % everywhere
(normal, and Student's t with 3 degrees of freedom), and a spread of each cell's own as in the 53 published pairs
(median 5 %, 90 % point 20 %). With mixed rounds, as a search for a capacity leaves them, three cells of ten were
measured in more rounds.

    python benchmarks/verdicts/error_rates.py --pages 1000
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from servebench.tables.evaluated.statistics import sign_flip_test
from servebench.verdicts import noise
from servebench.verdicts.leaders import FIGURES, PAIRED

NOISES = ("equal", "heavy tails", "as published")
MORE = 0.3  # share of the cells with more rounds, where rounds are mixed

Cells = Sequence[Sequence[Sequence[float]]]  # by level and setting: one figure's rounds


@dataclass(frozen=True)
class Page:
    """What is simulated.

    `most`: the rounds of a cell measured more often than others. `lead`: by how much the first setting of the first
    level is truly ahead (0.1: 10 %), by every figure.
    """

    cells: int
    settings: int
    rounds: int
    noise: str
    lead: float = 0.0
    most: int | None = None

    @property
    def judged(self) -> bool:
        """Whether its rounds suffice for any claim."""
        return max(self.rounds, self.most or 0) >= noise.ROUNDS_WITH_FEW or self.cells >= noise.FEW_CELLS

    def figures(self, random: np.random.Generator) -> list[Cells]:
        """Draw the rounds of each cell by each of PAIRED, around 100; figures scatter independently of each other."""
        shape = (max(1, self.cells // self.settings), self.settings)
        more = random.random(shape) < MORE if self.most else np.zeros(shape, bool)
        rounds = np.where(more, self.most or 0, self.rounds)
        return [self._cells(rounds, random) for _ in PAIRED]

    def _cells(self, rounds: np.ndarray, random: np.random.Generator) -> Cells:
        spread = np.full(rounds.shape, 0.02)
        if self.noise == "as published":
            spread = np.exp(np.log(0.05) + random.normal(size=rounds.shape) * np.log(4) / 1.2816)
        shape = (*rounds.shape, int(rounds.max()))
        drawn = (
            random.standard_t(3, size=shape) / np.sqrt(3) if self.noise == "heavy tails" else random.normal(size=shape)
        )
        values = 100 * np.exp(spread[..., None] * drawn)
        values[0, 0] *= 1 + self.lead
        return [
            [list(cell[:count]) for cell, count in zip(*level, strict=True)]
            for level in zip(values, rounds, strict=True)
        ]


def claimed(figures: Sequence[Cells]) -> tuple[list[str | None], list[bool]]:
    """What is claimed of a page: each level's leader by each of FIGURES (None: none), and which neighbours differ."""
    known = [noise.noise([cell for level in cells for cell in level]) for cells in figures]
    gaps = [
        noise.gap({str(name): cell for name, cell in enumerate(level)}, own)
        for cells, own in list(zip(figures, known, strict=True))[: len(FIGURES)]
        for level in cells
    ]
    leads = noise.rejected([None if g.p is None else g.p if g.every_round else 1.0 for g in gaps])
    pairs = [
        noise.ratio(one, other, own).p
        for cells, own in zip(figures, known, strict=True)
        for level in cells
        for one, other in itertools.pairwise(level)
    ]
    return [g.first if lead else None for g, lead in zip(gaps, leads, strict=True)], noise.rejected(pairs)


def rates(page: Page, pages: int, seed: int = 1) -> tuple[float, float]:
    """(share of pages with a false leader, share with a false difference); with a lead the share of pages that find it
    at its level by the first figure, and of those with a false leader at another level."""
    random = np.random.default_rng(seed)
    first = second = 0
    for _ in range(pages):
        figures = page.figures(random)
        leaders, differ = claimed(figures)
        if page.lead:
            first += leaders[0] == "0"
            second += any(leader for place, leader in enumerate(leaders) if place % len(figures[0]))
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
        both = [[list(itertools.chain(*cells)) for cells in page.figures(random)] for _ in range(2)]
        chances = []
        for one, other in zip(*both, strict=True):
            known = noise.noise([*one, *other])
            chances += [noise.ratio(a, b, known).p for a, b in zip(one, other, strict=True)]
        found += any(noise.rejected(chances))
    return found / pages


def exams() -> Iterator[Exam]:
    for targets, measures, questions in ((2, 1, 40), (2, 4, 40), (5, 4, 250), (5, 4, 1119)):
        yield Exam(targets=targets, measures=measures, questions=questions)


ROUNDS = ((2, None), (3, None), (4, None), (8, None), (2, 4), (2, 8))  # of each cell, and of those measured more often
SHAPES = ((8, 2), (20, 2), (20, 4), (53, 2), (53, 4), (53, 9))  # cells, settings at a level


def grid() -> Iterator[Page]:
    for kind, (rounds, most), (cells, settings) in itertools.product(NOISES, ROUNDS, SHAPES):
        yield Page(cells=cells, settings=settings, rounds=rounds, noise=kind, most=most)


def told(page: Page) -> str:
    """Write the rounds of a page's cells: "2", "2 or 4"."""
    return f"{page.rounds} or {page.most}" if page.most else str(page.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1000)
    pages = parser.parse_args().pages
    print(
        "| noise | rounds | cells | settings at a level | false leader | false difference |\n|---|---|---|---|---|---|"
    )
    for page in grid():
        shown = [f"{rate:.3f}" for rate in rates(page, pages)] if page.judged else ["–", "–"]
        print(f"| {page.noise} | {told(page)} | {page.cells} | {page.settings} | {' | '.join(shown)} |", flush=True)
    print("\n| noise | rounds | cells | false difference between two experiments |\n|---|---|---|---|")
    for kind, (rounds, most), cells in itertools.product(NOISES, ((2, None), (4, None), (2, 4)), (10, 53)):
        page = Page(cells, 1, rounds, kind, most=most)
        shown = f"{across_rate(page, pages):.3f}" if cells > 10 or page.judged else "–"
        print(f"| {kind} | {told(page)} | {cells} | {shown} |", flush=True)
    print("\n| targets | measures | questions | false difference between answers |\n|---|---|---|---|")
    for exam in exams():
        print(f"| {exam.targets} | {exam.measures} | {exam.questions} | {exam_rate(exam, pages):.3f} |", flush=True)
    print("\n| noise | rounds | a lead of 5 % is found | of 10 % | of 20 % |\n|---|---|---|---|---|")
    for kind, rounds in itertools.product(NOISES, (2, 3, 4, 8)):
        found = [rates(Page(53, 4, rounds, kind, lead), pages)[0] for lead in (0.05, 0.1, 0.2)]
        print(f"| {kind} | {rounds} | {' | '.join(f'{share:.2f}' for share in found)} |", flush=True)


if __name__ == "__main__":
    main()
