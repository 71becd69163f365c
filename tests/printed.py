"""Find the configurations that the documentation prints, and what the text around them takes for granted."""

import re
from typing import Any

import yaml
from snakemake.utils import update_config

from servebench import ROOT

PAGES = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
KEYS = {"experiment", "settings", "runtime", "evaluations", "workload", "engines", "models", "runs", "line", "cost"}
# What the text around a part of a configuration takes for granted: names that its reader has defined.
MODEL = {"source": "file:///path/to/model.gguf", "sha256": "0" * 64}
AROUND = {
    "experiment": "mine",
    "engines": {
        name: {"kind": "llama-server", "runtime": "binary", "binary": "/path/to/llama-server"}
        for name in ("llama-cpp", "llama-server")
    },
    "models": {
        "qwen3-14b-q8_0": {**MODEL, "name": "Qwen3-14B", "quantization": "Q8_0"},
        "qwen3-14b-q4_k_m": {**MODEL, "name": "Qwen3-14B", "quantization": "Q4_K_M"},
    },
    "workload": {"prompts": "en-short", "max_tokens": 8, "warmup_s": 1, "window_s": 1},
    "settings": {"np4": {"engine": "llama-cpp", "model": "qwen3-14b-q8_0", "slots": 4, "context": 1024, "users": [1]}},
}


def printed() -> dict[str, dict[str, Any]]:
    """Find the configurations, by page and number: blocks of YAML, fenced or indented."""
    found: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fenced = re.findall(r"^```yaml\n(.*?)^```", text, re.S | re.M)
        indented = re.findall(r"(?:^ {4}.*\n|^\n)+", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
        for block in (*fenced, *indented):
            if re.match(rf"\s*({'|'.join(KEYS)}):", block):
                content = yaml.safe_load(block.replace("4f27…", "0" * 64))
                found[f"{page.relative_to(ROOT)} {len(found) + 1}"] = content
    return found


def completed(content: dict[str, Any]) -> dict[str, Any]:
    """Return a whole configuration: a part gets what is around it."""
    whole = {"experiment", "engines", "settings"} <= set(content)
    config: dict[str, Any] = {}
    if not whole:
        update_config(config, AROUND)
        if "settings" in content:
            del config["settings"]
    update_config(config, content)
    return config
