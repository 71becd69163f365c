"""Make the table of what is predicted of each setting at most, and how much of it was reached. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from servebench.engines import ADAPTERS
from servebench.outlook import limits
from servebench.outlook.requirements import Memory
from servebench.plan import Setting
from servebench.store.measurements import Record
from servebench.tables.files import Row, rows_of, table
from servebench.tables.groups import PLACE


def predicted(
    settings_table: pa.Table,
    records: Sequence[Record],
    needs: Mapping[str, Memory],
    settings: Mapping[str, Setting],
    bandwidth_gb_s: float | None,
) -> pa.Table:
    """Predict each launched setting from its weights and the device of its first launch, a row for each of its levels.

    `needs`: the memory of settings, by name; `settings`: as configured; `bandwidth_gb_s`: as configured.
    """
    first: dict[str, Record] = {}
    for launched in sorted(records, key=lambda record: record.identity.round):
        if launched.session.facts is not None:  # its server was up
            first.setdefault(launched.identity.setting, launched)
    rows = []
    for row in rows_of({"settings": settings_table}, "settings"):
        name = row["setting"]
        setting, need, record = settings.get(name), needs.get(name), first.get(name)
        if setting and need and record:
            rows.append({name: row[name] for name in PLACE} | _predicted(row, setting, need, record, bandwidth_gb_s))
    return table("predicted", rows)


def _predicted(row: Row, setting: Setting, need: Memory, record: Record, configured_gb_s: float | None) -> Row:
    machine, model = record.provenance.machine, record.provenance.model
    devices = record.session.devices or [gpu.uuid for gpu in machine.gpus]
    gpu = next((gpu for gpu in machine.gpus if gpu.uuid in devices), None)
    count = max(1, ADAPTERS[setting.engine.kind].gpus(setting)) if gpu else 1
    memory_gib = gpu.memory_gib * count if gpu else machine.memory_gib or 0.0
    found = limits.bandwidth(gpu.name if gpu else None, configured_gb_s, machine.copied_gb_s)
    limit = limits.limit(
        need,
        (model.facts if model else None) or {},
        memory_gib=memory_gib,
        bandwidth_gb_s=found.gb_s * count if found else None,
    )
    stream = limit.stream_tok_s
    output = stream * min(row["users"], setting.slots) if stream and not setting.paced else None
    return {
        "bandwidth_gb_s": found.gb_s * count if found else None,
        "bandwidth_from": found.source if found else None,
        "weights_gib": need.weights_gib,
        "slots_fit": limit.slots,
        "stream_tok_s": stream,
        "output_tok_s": output,
        **{f"user_share_{end}": _share(row[f"user_tok_s_{end}"], stream) for end in ("min", "max")},
        **{f"output_share_{end}": _share(row[f"output_tok_s_{end}"], output) for end in ("min", "max")},
    }


def _share(value: float | None, most: float | None) -> float | None:
    return None if value is None or most is None else value / most
