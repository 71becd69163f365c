"""Serve by llama.cpp's own HTTP server in the wheel `xllamacpp`, started by llama-server's own flags.

    ENVIRONMENT/bin/python llama_wheel.py -m MODEL.gguf -np 4 -c 2048 --port 8080 …

It runs in the engine's environment and needs nothing but the standard library and the wheel. A flag it does not know is
an error (exit status 2), never ignored, so that one setting means the same on the wheel and on the `llama-server`
binary. Where an omitted flag has another default in the wheel than in the binary, the binary's is set.
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import xllamacpp as llama

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
ON_OFF_AUTO = {"on": 1, "off": 0, "auto": -1}
Set = Callable[[Any, Any], object]


def attribute(path: str) -> Set:
    """Make a setter of one attribute of the wheel's parameters, e.g. `cpuparams.n_threads`."""
    *parents, name = path.split(".")

    def put(params: Any, value: Any) -> None:
        for parent in parents:
            params = getattr(params, parent)
        setattr(params, name, value)

    return put


def constant(path: str, value: Any) -> Set:
    """Make a setter for a flag without a value."""
    put = attribute(path)
    return lambda params, _: put(params, value)


def cache_type(path: str) -> Set:
    """Make a setter of a type of the KV cache."""
    put = attribute(path)
    return lambda params, value: put(params, getattr(llama.ggml_type, f"GGML_TYPE_{value.upper()}"))


def member(path: str, enumeration: str, names: dict[str, str]) -> Set:
    """Make a setter that turns a word into a member of one of llama.cpp's enumerations."""
    put = attribute(path)
    return lambda params, value: put(params, getattr(getattr(llama, enumeration), names[value]))


def reasoning(params: Any, value: str) -> None:
    """Set `--reasoning on|off|auto`, and what it tells the chat template."""
    params.enable_reasoning = ON_OFF_AUTO[value]
    if value != "auto":
        params.default_template_kwargs = {
            **params.default_template_kwargs,
            "enable_thinking": "true" if value == "on" else "false",
        }


def template_kwargs(params: Any, value: str) -> None:
    """Set `--chat-template-kwargs JSON`; each value stays JSON text, as in llama-server."""
    params.default_template_kwargs = {
        **params.default_template_kwargs,
        **{key: json.dumps(entry) for key, entry in json.loads(value).items()},
    }


def time_out(params: Any, value: int) -> None:
    """Set `-to SECONDS`, for reading and writing."""
    params.timeout_read = params.timeout_write = value


def gpu_layers(params: Any, value: str) -> None:
    """Set `-ngl N`, `auto` or `all`."""
    params.n_gpu_layers = {"auto": -1, "all": -2}.get(value) or int(value)


FLASH = {
    "on": "LLAMA_FLASH_ATTN_TYPE_ENABLED",
    "off": "LLAMA_FLASH_ATTN_TYPE_DISABLED",
    "auto": "LLAMA_FLASH_ATTN_TYPE_AUTO",
}
FORMAT = {
    "none": "COMMON_REASONING_FORMAT_NONE",
    "auto": "COMMON_REASONING_FORMAT_AUTO",
    "deepseek": "COMMON_REASONING_FORMAT_DEEPSEEK",
    "deepseek-legacy": "COMMON_REASONING_FORMAT_DEEPSEEK_LEGACY",
}
LOAD = {
    "auto": "LLAMA_LOAD_MODE_AUTO",
    "none": "LLAMA_LOAD_MODE_NONE",
    "mmap": "LLAMA_LOAD_MODE_MMAP",
    "mlock": "LLAMA_LOAD_MODE_MLOCK",
    "mmap+mlock": "LLAMA_LOAD_MODE_MMAP_MLOCK",
    "dio": "LLAMA_LOAD_MODE_DIRECT_IO",
}
# Flags, the type or choices of their value (None: no value), and where it goes.
FLAGS: list[tuple[str, Any, Set]] = [
    ("-m --model", str, attribute("model.path")),
    ("-a --alias", str, lambda params, value: setattr(params, "model_alias", set(value.split(",")))),
    ("--host", str, lambda params, value: setattr(params, "hostnames", [value])),
    ("--port", int, attribute("port")),
    ("-np --parallel", int, attribute("n_parallel")),
    ("-c --ctx-size", int, attribute("n_ctx")),
    ("-b --batch-size", int, attribute("n_batch")),
    ("-ub --ubatch-size", int, attribute("n_ubatch")),
    ("-n --predict --n-predict", int, attribute("n_predict")),
    ("-t --threads", int, attribute("cpuparams.n_threads")),
    ("-tb --threads-batch", int, attribute("cpuparams_batch.n_threads")),
    ("--threads-http", int, attribute("n_threads_http")),
    ("-ngl --gpu-layers --n-gpu-layers", str, gpu_layers),
    ("-mg --main-gpu", int, attribute("main_gpu")),
    ("-fa --flash-attn", list(FLASH), member("flash_attn_type", "llama_flash_attn_type", FLASH)),
    ("-ctk --cache-type-k", list(CACHE_TYPES), cache_type("cache_type_k")),
    ("-ctv --cache-type-v", list(CACHE_TYPES), cache_type("cache_type_v")),
    ("-kvu --kv-unified", None, constant("kv_unified", True)),
    ("-no-kvu --no-kv-unified", None, constant("kv_unified", False)),
    ("-cram --cache-ram", int, attribute("cache_ram_mib")),
    ("--cache-prompt", None, constant("cache_prompt", True)),
    ("--no-cache-prompt", None, constant("cache_prompt", False)),
    ("--cache-reuse", int, attribute("n_cache_reuse")),
    ("--cache-idle-slots", None, constant("cache_idle_slots", True)),
    ("--no-cache-idle-slots", None, constant("cache_idle_slots", False)),
    ("-ctxcp --ctx-checkpoints --swa-checkpoints", int, attribute("n_ctx_checkpoints")),
    ("-sps --slot-prompt-similarity", float, attribute("slot_prompt_similarity")),
    ("--swa-full", None, constant("swa_full", True)),
    ("--context-shift", None, constant("ctx_shift", True)),
    ("--no-context-shift", None, constant("ctx_shift", False)),
    ("-cb --cont-batching", None, constant("cont_batching", True)),
    ("-nocb --no-cont-batching", None, constant("cont_batching", False)),
    ("-fit --fit", ["on", "off"], lambda params, value: setattr(params, "fit_params", value == "on")),
    ("-lm --load-mode", list(LOAD), member("load_mode", "llama_load_mode", LOAD)),
    ("--jinja", None, constant("use_jinja", True)),
    ("--no-jinja", None, constant("use_jinja", False)),
    ("--chat-template", str, attribute("chat_template")),
    ("--chat-template-kwargs", str, template_kwargs),
    ("--skip-chat-parsing", None, constant("force_pure_content_parser", True)),
    ("-rea --reasoning", list(ON_OFF_AUTO), reasoning),
    ("--reasoning-budget", int, attribute("sampling.reasoning_budget_tokens")),
    ("--reasoning-format", list(FORMAT), member("reasoning_format", "common_reasoning_format", FORMAT)),
    ("--metrics", None, constant("endpoint_metrics", True)),
    ("--slots", None, constant("endpoint_slots", True)),
    ("--no-slots", None, constant("endpoint_slots", False)),
    ("--props", None, constant("endpoint_props", True)),
    ("--webui --ui", None, constant("ui", True)),
    ("--no-webui --no-ui", None, constant("ui", False)),
    ("--offline", None, constant("offline", True)),
    ("--warmup", None, constant("warmup", True)),
    ("--no-warmup", None, constant("warmup", False)),
    ("--check-tensors", None, constant("check_tensors", True)),
    ("-s --seed", int, attribute("sampling.seed")),
    ("--temp --temperature", float, attribute("sampling.temp")),
    ("--top-k", int, attribute("sampling.top_k")),
    ("--top-p", float, attribute("sampling.top_p")),
    ("--min-p", float, attribute("sampling.min_p")),
    ("-to --timeout", int, time_out),
    ("--sse-ping-interval", int, attribute("sse_ping_interval")),
    ("-lv --verbosity --log-verbosity", int, attribute("verbosity")),
]


class Parser(argparse.ArgumentParser):
    """Parse arguments, with one sentence for an error."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        print(f"llama_wheel: {message}; run it with --help for the flags it knows", file=sys.stderr)
        sys.exit(2)


def parameters(arguments: list[str]) -> Any:
    """Return the wheel's parameters for llama-server's `arguments`, in their order: a later flag wins."""
    parser = Parser(
        prog="llama_wheel", description=__doc__, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    for number, (names, kind, _) in enumerate(FLAGS):
        kept: dict[str, Any] = {"action": "append_const", "const": (number, None)}
        if kind is not None:
            choices = kind if isinstance(kind, list) else None
            convert = str if choices else kind
            kept = {
                "action": "append",
                "type": _numbered(number, convert, choices),
                "metavar": "|".join(choices) if choices else "N",
            }
        parser.add_argument(*names.split(), dest="given", **kept)
    found, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(f"{unknown[0]} is not a flag of llama-server that this launcher knows")
    params = llama.CommonParams()
    params.n_parallel = -1  # llama-server's default: four slots sharing one cache
    for number, value in found.given or []:
        FLAGS[number][2](params, value)
    if not params.model.path:
        parser.error("-m MODEL is missing")
    return params


def _numbered(
    number: int, convert: Callable[[str], Any], choices: list[str] | None
) -> Callable[[str], tuple[int, Any]]:
    def read(text: str) -> tuple[int, Any]:
        if choices and text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        try:
            return number, convert(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None

    return read


def main() -> None:
    """Serve until a signal ends the process.

    No handler: the wheel's own end waits without end for a main loop that had not begun when it was asked to end.
    """
    params = parameters(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print(
        f"llama_wheel: xllamacpp {llama.__version__}, {llama.get_system_info().strip(' |')}",
        file=sys.stderr,
        flush=True,
    )
    _server = llama.Server(params)  # it serves for as long as it is held
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
