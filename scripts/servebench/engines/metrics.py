"""Read Prometheus metrics from an engine's /metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from prometheus_client.samples import Sample


@dataclass(frozen=True)
class Metrics:
    """Hold all samples of one scrape."""

    samples: tuple[Sample, ...]

    def total(self, name: str) -> float | None:
        """Sum a metric over all its labels; None when the server has no such metric."""
        values = [float(sample.value) for sample in self.samples if sample.name == name]
        return sum(values) if values else None

    def labels(self, name: str) -> dict[str, str]:
        """Return the labels of the first sample of `name`; {} when there is no such sample."""
        return next((sample.labels for sample in self.samples if sample.name == name), {})


def scrape(client: httpx.Client) -> Metrics:
    """Get and parse /metrics; no samples from a server without such a page. Raises httpx.HTTPError."""
    response = client.get("/metrics")
    if not response.is_success:
        return Metrics(())
    try:
        return parse(response.text)
    except ValueError:
        return Metrics(())


def parse(text: str) -> Metrics:
    """Parse Prometheus' text format; raises ValueError for any other text."""
    from prometheus_client.parser import text_string_to_metric_families  # a package that `servebench load` has not

    return Metrics(tuple(sample for family in text_string_to_metric_families(text) for sample in family.samples))
