"""Make synthetic records whose figures equal, by construction, those of a list of cells; nothing was measured.

A cell is one setting at one number of users with the smaller and larger value of its rounds, as in
config/references/h200-concurrency.csv. Requests are sent evenly over the window, so that the number of targets is
exact; each has a TTFT so placed that the nearest-rank p95 is exact, and the speed that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from servebench.load.calibration import Calibration, Level
from servebench.load.line import Line
from servebench.load.measurement import Client, LoadMeta
from servebench.load.records import CHUNKS_SCHEMA, REQUESTS_SCHEMA
from servebench.machine.gpu import Gpu
from servebench.machine.identity import Machine
from servebench.marks import mark
from servebench.models.kv_cache import Cache
from servebench.outlook.requirements import Memory
from servebench.plan import Engine, Model, Plan, Runtime, Setting
from servebench.store.measurements import Discarded, Record
from servebench.store.records import (
    ColdStart,
    Identity,
    ModelFile,
    Provenance,
    SessionFacts,
    Software,
)
from servebench.store.replies import Evaluated, EvaluationFacts, Evaluator
from servebench.tables.catalogue import TABLES
from servebench.tables.files import read_reference
from servebench.tables.sources import Sources
from servebench.tasks.answers import Questions, table

Struct = TypeVar("Struct", bound=msgspec.Struct)
ROOT = Path(__file__).resolve().parents[1]
REFERENCES = ROOT / "config" / "references"
S = 10**9
ENDS = ("min", "max")
HEAD_TOKENS, CHUNKS_EACH = 67, 32
KINDS = {"ollama": "ollama", "llama": "llama-server", "vllm": "vllm"}
VERSIONS = {"ollama": "0.40.16", "llama": "12242 (3b4d6ab3f)", "vllm": "0.33.0"}
BYTES = {"Q4_K_M": 9_000_000_000, "Q8_0": 15_700_000_000, "BF16": 29_500_000_000}
H200 = Machine(
    cpu="Xeon",
    cores=96,
    gpus=[Gpu(uuid="GPU-0", name="NVIDIA H200", memory_gib=139.8, driver="610.1", cuda="13.2", mig=False)],
    fingerprint="a-gpu",
)
LAPTOP = Machine(cpu="Two-core CPU", cores=2, fingerprint="a-cpu")
CALIBRATION = Calibration(
    created_at="2026-11-14T08:00:00+00:00",
    max_users=256,
    levels=[
        Level(
            variant=variant,
            users=users,
            ttft_error_p50_s=0.0002 * (1 + users / 200),
            ttft_error_p99_s=0.0004 * (1 + users / 100) * (1 + n),
            arrival_error_p50_s=0.00005,
            arrival_error_p99_s=0.0003,
            delivered_ratio=0.9995,
            cpu_ratio=0.05 + users / 1000,
        )
        for n, variant in enumerate(("steady", "lockstep"))
        for users in (1, 16, 64, 256)
    ],
)
# Not published: plausible, so that a page of full size can be made.
UNPUBLISHED = {"ttft_p50_s": 0.3, "ttft_p95_s": 0.6, "target_requests": 60, "user_tok_s": 30.0, "output_tok_s": 150.0}


def h200_cells() -> list[dict[str, Any]]:
    """Return all 53 + 21 cells with the published ranges; unpublished values are filled in."""
    return [_filled(cell) for cell in read_reference(REFERENCES / "h200-concurrency.csv")]


def _filled(cell: Mapping[str, Any]) -> dict[str, Any]:
    full = dict(cell)
    users = cell["users"]
    for figure, value in UNPUBLISHED.items():
        for end in ENDS:
            if full[f"{figure}_{end}"] is None:
                full[f"{figure}_{end}"] = value if figure.startswith("ttft") else value * (0.9 if end == "min" else 1)
    if cell["target_requests_min"] is None:
        full["target_requests_min"] = full["target_requests_max"] = max(36, round(full["output_tok_s_min"] * 60 / 140))
    if cell["user_tok_s_min"] is None:
        full["user_tok_s_min"] = full["user_tok_s_max"] = round(1.1 * full["output_tok_s_min"] / users, 1)
    if cell["ttft_p50_s_min"] is None:
        full["ttft_p50_s_min"] = full["ttft_p50_s_max"] = full["ttft_p95_s_min"] * 0.8
    return full


def rounds_of(cell: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the two rounds of a cell: the published pair if any, else the smaller values first."""
    figures = ("output_tok_s", "user_tok_s", "ttft_p50_s", "ttft_p95_s", "target_requests")
    first, second = ({f: cell[f"{f}_{end}"] for f in figures} for end in ENDS)
    for pair in read_reference(REFERENCES / "h200-unstable.csv"):
        same = (cell["setting"], cell["users"]) == (pair["setting"], pair["users"])
        if same and {pair["output_tok_s_r1"], pair["output_tok_s_r2"]} == {cell[f"output_tok_s_{e}"] for e in ENDS}:
            for figure in ("output_tok_s", "user_tok_s", "ttft_p95_s"):
                first[figure], second[figure] = pair[f"{figure}_r1"], pair[f"{figure}_r2"]
    return first, second


def setting_of(name: str, run: str, users: tuple[int, ...]) -> Setting:
    """Make a setting whose arguments follow from its name as in the H200 experiment."""
    family, *rest = name.split("-")
    quantization = "Q8_0" if "q8_0" in name else "BF16" if family == "vllm" else "Q4_K_M"
    number = next((int(p.lstrip("np")) for p in rest if p.lstrip("np").isdigit()), 16)
    slots = 256 if family == "vllm" else number
    flags = {
        "unified": ("--kv-unified",),
        "t8": ("-t", "8"),
        "ram0": ("--cache-ram", "0"),
        "ub2048": ("-b", "2048", "-ub", "2048"),
    }
    return Setting(
        name=name,
        run=run,
        engine=Engine(key=family, kind=KINDS[family], pin=f"sha256:{family}"),
        model=model_of(quantization),
        slots=slots,
        context=4096,
        args=tuple(flag for part in rest for flag in flags.get(part, ())),
        users=users,
        prompts_sha256="0" * 64,
        workload={"mode": "closed", "prompts": "ja-business", "max_tokens": 256, "warmup_s": 15, "window_s": 60},
    )


def model_of(quantization: str) -> Model:
    return Model(
        key=f"qwen3-14b-{quantization.lower()}",
        name="Qwen3-14B",
        source="hf://Qwen/Qwen3-14B-GGUF",
        sha256=f"{BYTES[quantization]:064x}",
        size_bytes=BYTES[quantization],
        quantization=quantization,
    )


def plan_of(cells: list[dict[str, Any]], experiment: str = "h200") -> Plan:
    """Make the plan whose measurements are these cells."""
    users: dict[tuple[str, str], list[int]] = {}
    for cell in cells:
        users.setdefault((cell["run"], cell["setting"]), []).append(cell["users"])
    settings = {name: setting_of(name, run, tuple(levels)) for (run, name), levels in users.items()}
    runs: dict[str, dict[str, Any]] = {run: {} for run in dict.fromkeys(run for run, _ in users)}
    if "extra" in runs:
        runs["extra"]["control"] = "llama-np16-control"
    return Plan(
        experiment=experiment,
        title={"en": "Qwen3 14B on one H200 (synthetic)", "ja": "Qwen3 14B、H200 1 基（合成データ）"},
        rounds=2,
        line=Line(),
        models={s.model.key: s.model for s in settings.values()},
        engines={s.engine.key: s.engine for s in settings.values()},
        settings=settings,
        runs=runs,
        charts={},
        runtime=Runtime(),
    )


def records_of(
    cells: list[dict[str, Any]], plan: Plan, window_s: int = 60, machine: Machine = H200
) -> Iterator[Record]:
    """Make the records of both rounds of every cell."""
    ranks = {name: n for n, name in enumerate(plan.settings)}
    for cell in cells:
        setting = plan.settings[cell["setting"]]
        for number, figures in enumerate(rounds_of(cell), 1):
            yield record(setting, ranks[setting.name], cell["users"], number, figures, window_s, machine)


def record(
    setting: Setting,
    rank: int,
    users: int,
    number: int,
    figures: Mapping[str, float],
    window_s: int = 60,
    machine: Machine = H200,
) -> Record:
    """Make one successful measurement with these figures."""
    start_ns = S * (1000 + 100 * number)
    requests, chunks = exchanges(users, figures, start_ns, window_s, seed=hash_of(setting.name, users, number))
    meta = LoadMeta(
        mode="closed",
        users=users,
        load_start_ns=int(min(requests["sent_ns"].to_pylist())),
        window_start_ns=start_ns,
        window_end_ns=start_ns + window_s * S,
        load_end_ns=int(max(requests["end_ns"].to_pylist())),
        client=Client(cpu_ratio=0.02 + users / 1500),
        workload=dict(setting.workload),
    )
    times = list(range(start_ns - 15 * S, start_ns + window_s * S, S // 2))
    session_id = f"{setting.run}-{setting.name}-{number}"
    index = setting.users.index(users)
    return Record(
        identity=Identity.of(
            setting,
            experiment="h200",
            rank=rank,
            round_=number,
            users=users,
            digest=f"{hash_of(setting.name, users, number):020x}",
        ),
        status="ok",
        requests=requests,
        chunks=chunks,
        meta=meta,
        telemetry={
            "time_ns": times,
            "memory_bytes": [int(memory_gib(setting) * 2**30)] * len(times),
            "foreign_utilisation": [0.0] * len(times),
        },
        session=SessionFacts(
            session_id=session_id,
            launched_at=f"2026-11-{14 + number:02d}T09:{rank:02d}:00+00:00",
            engine_version=VERSIONS[setting.engine.key],
            engine_build=setting.engine.pin,
            argv=["llama-server", "-np", str(setting.slots), *setting.args],
            env={},
            cold_start_s=ColdStart(process_s=0.1, healthy_s=4.0 + rank, first_token_s=4.5 + rank),
            facts={"n_ctx_slot": setting.context, "slots": setting.slots},
            memory_gib=memory_gib(setting),
            memory_kind="nvml" if machine.gpus else "host",
            server_age_s=30.0 + 90 * index,
            users_before=list(setting.users[:index]),
            log=f"logs/{session_id}.log",
        ),
        provenance=Provenance(
            machine=machine,
            model=ModelFile(
                key=setting.model.key,
                name=setting.model.name,
                sha256=setting.model.sha256 or "",
                size_bytes=setting.model.size_bytes or 0,
                quantization=setting.model.quantization,
                note=setting.model.note,
            ),
            engine=setting.engine,
            servebench=Software(version="0.1.0", protocol=1),
            calibration=CALIBRATION,
            started_at=f"2026-11-{14 + number:02d}T10:{rank:02d}:{index:02d}+00:00",
        ),
    )


def failed(good: Record, reason: str) -> Record:
    """Make the record of a measurement that failed for this reason, in the place of a successful one."""
    nothing = {"requests": REQUESTS_SCHEMA.empty_table(), "chunks": CHUNKS_SCHEMA.empty_table()}
    return replace(good, status="failed", reason=[mark("failed", reason=reason)], meta=None, telemetry={}, **nothing)


def evaluated(target: str, digest: str, reason: str | None = None) -> Evaluated:
    """Make the result of a target that answered nothing, for a `reason` or because it was asked nothing."""
    facts = EvaluationFacts(
        target=target,
        digest=digest,
        status="failed" if reason else "ok",
        reason=[mark("failed", reason=reason)] if reason else [],
        asked=0,
        answered=0,
        failures=0,
        setting={},
        sessions=[],
        servebench=Evaluator(version="0.1.0", prompts=1),
    )
    return Evaluated(table([]), facts)


def changed(struct: Struct, **changes: Any) -> Struct:
    """Replace fields of a struct; a dict replaces fields of the nested struct."""
    own = {name: getattr(struct, name) for name in changes}
    deep = {name: isinstance(own[name], msgspec.Struct) and isinstance(value, dict) for name, value in changes.items()}
    values = {name: changed(own[name], **value) if deep[name] else value for name, value in changes.items()}
    return replace(struct, **values)


def unanswered(good: Record) -> Record:
    """Make the record of a measurement in which the server answered every request with HTTP 500."""
    columns = {
        name: [None] * len(good.requests)
        for name in ("first_token_ns", "first_answer_ns", "last_token_ns", "completion_tokens", "tokens_from")
    }
    columns |= {"status": ["http_error"] * len(good.requests), "chunks": [0] * len(good.requests)}
    rows = good.requests.to_pydict() | columns
    return replace(good, requests=_typed(rows, REQUESTS_SCHEMA), chunks=CHUNKS_SCHEMA.empty_table())


def memory_gib(setting: Setting) -> float:
    published = {row["setting"]: row["gpu_memory_gib"] for row in read_reference(REFERENCES / "h200-gpu-memory.csv")}
    return float(published.get(setting.name, 19.1 if setting.engine.key == "llama" else 49.4))


def hash_of(*parts: object) -> int:
    return sum(ord(c) * (n + 1) * 7919 for n, c in enumerate("|".join(map(str, parts))))


def exchanges(
    users: int, figures: Mapping[str, float], start_ns: int, window_s: int, seed: int
) -> tuple[pa.Table, pa.Table]:
    """Make requests and chunks with these figures, as the module's docstring describes."""
    random = np.random.default_rng(seed)
    targets = int(figures["target_requests"])
    gap_ns = window_s * S // targets
    tokens = max(2, round(figures["output_tok_s"] * window_s / targets))
    credited = np.diff(np.arange(CHUNKS_EACH + 1) * tokens // CHUNKS_EACH)
    answer_ns = (tokens - max(1, credited[0])) / figures["user_tok_s"] * S
    # A steady window needs every answer that would reach into it, so the warm-up is as long as the longest.
    warmup_ns = max(15 * S, int(1.1 * figures["ttft_p95_s"] * S + answer_ns))
    before = -(-warmup_ns // gap_ns)
    spread_s = quantiles(targets, max(figures["ttft_p50_s"], 0.02), max(figures["ttft_p95_s"], 0.04))
    ttft_s = np.concatenate([random.choice(spread_s, before), random.permutation(spread_s)])
    sent = start_ns + (np.arange(-before, targets)) * gap_ns
    first = sent + np.rint(ttft_s * S).astype(np.int64)
    arrivals = first[:, None] + np.rint(answer_ns * np.linspace(0, 1, CHUNKS_EACH)).astype(np.int64)
    count = len(sent)
    end = arrivals[:, -1] + 1_000_000
    columns = {
        "request_id": np.arange(count),
        "user": np.arange(count) % users,
        "process": np.zeros(count, int),
        "prompt_id": [f"doc{n % 400:03d}" for n in range(count)],
        "phase": ["warmup" if s < start_ns else "window" for s in sent],
        "scheduled_ns": sent,
        "sent_ns": sent,
        "first_byte_ns": first - 1000,
        "first_token_ns": first,
        "first_answer_ns": first,
        "last_token_ns": arrivals[:, -1],
        "end_ns": end,
        "status": ["ok"] * count,
        "http_status": [200] * count,
        "error": [None] * count,
        "resent": [False] * count,
        "prompt_tokens": [560 + 7919 * (n % 400) % 160 for n in range(count)],  # a document has one length
        "completion_tokens": [tokens] * count,
        "reasoning_tokens": [None] * count,
        "cached_tokens": [HEAD_TOKENS] * count,
        "tokens_from": ["usage"] * count,
        "chunks": [CHUNKS_EACH] * count,
        "finish_reason": ["stop"] * count,
        "done": [True] * count,
        "left_open": [False] * count,
        "reasoning_chars": [0] * count,
        "text_sha256": ["0" * 64] * count,
        "text": [None] * count,
        "timings": [None] * count,
    }
    chunks = {
        "request_id": np.repeat(np.arange(count), CHUNKS_EACH),
        "arrival_ns": arrivals.reshape(-1),
        "tokens": np.tile(credited, count),
    }
    return _typed(columns, REQUESTS_SCHEMA), _typed(chunks, CHUNKS_SCHEMA)


def _typed(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.table({f.name: pa.array(columns[f.name], f.type) for f in schema}, schema=schema)


def quantiles(count: int, p50: float, p95: float) -> np.ndarray:
    """Return `count` ascending values with median `p50` and nearest-rank p95 `p95`."""
    rank = -(-95 * count // 100)
    lower, middle = (count - 1) // 2, count // 2
    values = np.empty(count)
    values[: middle + 1] = np.linspace(0.8 * p50, p50, middle + 1)
    values[lower : middle + 1] = p50
    values[middle:rank] = np.linspace(p50, max(p95, p50), rank - middle)
    values[rank - 1 :] = np.linspace(p95, 1.05 * p95, count - rank + 1)
    return np.sort(values)


def quickstart_cells() -> list[dict[str, Any]]:
    """Return the cells of a small experiment like the quick start, with made-up values."""
    names = ("setting", "users", "output_tok_s", "user_tok_s", "ttft_p50_s", "ttft_p95_s", "target_requests")
    cells = [
        ("llama-np1", 1, 61, 78.0, 0.08, 0.12, 38),
        ("llama-np1", 2, 62, 79.0, 0.35, 0.44, 39),
        ("llama-np1", 4, 60, 78.0, 0.95, 1.2, 37),
        ("llama-np4", 1, 60, 76.0, 0.08, 0.13, 37),
        ("llama-np4", 2, 84, 55.0, 0.1, 0.2, 52),
        ("llama-np4", 4, 101, 34.0, 0.15, 0.33, 62),
        ("llama-np4", 8, 99, 33.0, 0.9, 1.1, 61),
        ("llama-np4-kv-unified", 4, 104, 35.0, 0.14, 0.31, 63),
        ("llama-np4-kv-unified", 8, 103, 34.0, 0.85, 1.05, 62),
        ("llama-np4-q8_0", 1, 41, 52.0, 0.1, 0.16, 26),
        ("llama-np4-q8_0", 4, 66, 22.0, 0.2, 0.5, 41),
    ]
    rows = []
    for cell in cells:
        row: dict[str, Any] = {"run": "main", **dict(zip(names, cell, strict=True))}
        for name in names[2:]:
            value = row.pop(name)
            row[f"{name}_min"], row[f"{name}_max"] = value, value * 1.04 if name != "target_requests" else value + 2
        rows.append(row)
    return rows


def from_records(
    records: Sequence[Record],
    thrown_out: Iterable[Discarded],
    plan: Plan,
    caches: Mapping[str, Cache] | None = None,
) -> dict[str, pa.Table]:
    """Make every table that follows from the records alone, by name. `caches` are KV caches by model key."""
    sources = Sources(plan=plan, records=records, thrown_out=thrown_out, caches=caches or {}, needs=needs_of(plan))
    return sources.tables(table for table in TABLES if table.needs is None)


def needs_of(plan: Plan) -> dict[str, Memory]:
    """Return the memory that each setting needs: its weights, and a quarter of a GiB for each slot."""
    return {
        setting.name: Memory(
            setting=setting.name,
            weights_gib=BYTES.get(setting.model.quantization or "", 2**27) / 2**30,
            cache_gib=setting.slots / 4,
            streams=setting.slots,
        )
        for setting in plan.settings.values()
    }


def from_answers(plan: Plan, evaluated: Sequence[Evaluated], questions: Questions) -> dict[str, pa.Table]:
    """Make every table of the evaluations, by name. `evaluated` is in the order of the plan's targets."""
    sources = Sources(plan=plan, evaluated=evaluated, questions=questions)
    return sources.tables(table for table in TABLES if table.needs == "evaluations")


def loaded(folder: Path, users: int = 4, model: str = "m", workload: Mapping[str, Any] = {}, **figures: Any) -> Path:
    """Write a folder as `servebench load` writes it."""
    meta = {
        "protocol": 2,
        "users": users,
        "started_at": "2026-11-30T12:00:00+00:00",
        "workload": {"mode": "closed", "prompts": "en-short", "window_s": 20.0} | workload,
    }
    meta |= {"target": {"url": "http://127.0.0.1:8000", "model": model, "extra": {}}}
    summary = {"output_tok_s": 100.0, "user_tok_s": 30.0, "ttft_p95_s": 0.2, "target_requests": 60, "failures": 0}
    summary |= {
        "invalid_reasons": [],
        "valid": True,
        "meets_line": True,
        "reference_only": False,
        "meta": meta,
    } | figures
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder
