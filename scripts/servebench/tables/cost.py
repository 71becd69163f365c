"""Make the tables of what serving costs, and of what a machine costs while it serves nobody. Pure."""

from __future__ import annotations

import pyarrow as pa

from servebench.tables.files import table
from servebench.tables.groups import PLACE, groups, span_of


def cost(settings_table: pa.Table, price_per_hour: float) -> pa.Table:
    """Compute USD for a million output tokens = price ÷ 3600 ÷ output tok/s × 10⁶, at a price in USD an hour."""
    rows = []
    for row in settings_table.to_pylist():
        low, high = row["output_tok_s_min"], row["output_tok_s_max"]
        if low and high:
            rows.append(
                {name: row[name] for name in PLACE}
                | {
                    "price_per_hour": price_per_hour,
                    "usd_per_million_tokens_min": usd_per_million_tokens(price_per_hour, high),
                    "usd_per_million_tokens_max": usd_per_million_tokens(price_per_hour, low),
                    "tokens_per_s_per_usd_h_min": low / price_per_hour,
                    "tokens_per_s_per_usd_h_max": high / price_per_hour,
                    "joules_per_token_min": row["joules_per_token_min"],
                    "joules_per_token_max": row["joules_per_token_max"],
                }
            )
    return table("cost", rows)


def paid_idle(sessions: pa.Table, price_per_hour: float, idle_after_min: float | None) -> pa.Table:
    """Compute what a machine costs while it serves nobody: from launch to the first token, and until it is given back.

    A server at a URL is not launched by servebench and has no start cost.
    """
    rows = []
    for group in groups(sessions, ("run", "setting")):
        low, high = span_of(row["first_token_s"] for row in group if row["engine_kind"] != "url")
        rows.append(
            {
                "run": group[0]["run"],
                "setting": group[0]["setting"],
                "price_per_hour": price_per_hour,
                "first_token_s_min": low,
                "first_token_s_max": high,
                "usd_start_min": None if low is None else usd(price_per_hour, low),
                "usd_start_max": None if high is None else usd(price_per_hour, high),
                "idle_after_min": idle_after_min,
                "usd_idle": None if idle_after_min is None else usd(price_per_hour, 60 * idle_after_min),
            }
        )
    return table("paid_idle", rows)


def usd(price_per_hour: float, seconds: float) -> float:
    """Compute USD for a number of seconds at this price (USD an hour)."""
    return price_per_hour / 3600 * seconds


def usd_per_million_tokens(price_per_hour: float, output_tok_s: float) -> float:
    """Compute USD for a million output tokens at this price (USD an hour) and speed (tokens/s)."""
    return price_per_hour / 3600 / output_tok_s * 1e6
