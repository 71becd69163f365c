"""What a real Ollama said: its log, answers and streams, as captured on 2026-11-30.

Ollama at commit fb3076099 (2026-08-21; it calls itself 0.0.0), its llama-server at b10488 (it calls itself build 0),
both built for the CPU; SmolLM2-135M Q4_1, 4 slots, a context of 512. Left out: lines of the inner server's start that
nothing reads. The double of Ollama says these lines and nothing else of its own; the parsers are tested on them.
"""

# From `ollama serve` until it listens, before any model is loaded.
UP = r"""time=2026-11-30T06:57:51.627Z level=INFO source=routes.go:1951 msg="server config" env="map[CUDA_VISIBLE_DEVICES: GGML_VK_VISIBLE_DEVICES: GPU_DEVICE_ORDINAL: HIP_VISIBLE_DEVICES: HSA_OVERRIDE_GFX_VERSION: HTTPS_PROXY: HTTP_PROXY: LLAMA_ARG_FIT: LLAMA_ARG_FIT_TARGET: NO_PROXY: OLLAMA_CONTEXT_LENGTH:512 OLLAMA_DEBUG:INFO OLLAMA_DEBUG_LOG_REQUESTS:false OLLAMA_EDITOR: OLLAMA_FLASH_ATTENTION:false OLLAMA_GO_TEMPLATE:true OLLAMA_GPU_OVERHEAD:0 OLLAMA_HOST:http://127.0.0.1:11600 OLLAMA_IGPU_ENABLE: OLLAMA_KEEP_ALIVE:2562047h47m16.854775807s OLLAMA_KV_CACHE_TYPE: OLLAMA_LLM_LIBRARY: OLLAMA_LOAD_TIMEOUT:5m0s OLLAMA_MAX_LOADED_MODELS:1 OLLAMA_MAX_QUEUE:512 OLLAMA_MAX_TRANSFER_STREAMS:4 OLLAMA_MODELS:/models OLLAMA_NOHISTORY:false OLLAMA_NOPRUNE:true OLLAMA_NO_CLOUD:true OLLAMA_NUM_PARALLEL:4 OLLAMA_ORIGINS:[http://localhost https://localhost http://localhost:* https://localhost:* http://127.0.0.1 https://127.0.0.1 http://127.0.0.1:* https://127.0.0.1:* http://0.0.0.0 https://0.0.0.0 http://0.0.0.0:* https://0.0.0.0:* app://* file://* tauri://* vscode-webview://* vscode-file://*] OLLAMA_REMOTES:[ollama.com] OLLAMA_SCHED_SPREAD:false OLLAMA_VULKAN:true ROCR_VISIBLE_DEVICES: http_proxy: https_proxy: no_proxy:]"
time=2026-11-30T06:57:51.628Z level=INFO source=routes.go:1953 msg="Ollama cloud disabled: true"

 - using env:	export GIN_MODE=release
 - using code:	gin.SetMode(gin.ReleaseMode)

time=2026-11-30T06:57:51.629Z level=INFO source=routes.go:2008 msg="Listening on 127.0.0.1:11600 (version 0.0.0)"
time=2026-11-30T06:57:51.629Z level=INFO source=model_recommendations.go:177 msg="model recommendations cache sleep scheduled" wait=3h24m31.597368429s consecutive_failures=0
time=2026-11-30T06:57:51.630Z level=INFO source=runner.go:60 msg="discovering available GPUs..."
time=2026-11-30T06:57:51.634Z level=INFO source=model_list_cache.go:112 msg="model list cache hydration complete" models=3 failures=0 elapsed=4.752982ms
time=2026-11-30T06:57:51.713Z level=INFO source=types.go:50 msg="inference compute" id=cpu library=cpu compute="" name=cpu description=cpu libdirs=ollama driver="" pci_id="" type="" total="23.5 GiB" available="23.1 GiB"
time=2026-11-30T06:57:51.713Z level=INFO source=routes.go:2058 msg="vram-based default context" total_vram="0 B" default_num_ctx=4096
"""  # noqa: E501

# A model is loaded: before the inner server speaks, ...
SPAWN = r"""time=2026-11-30T06:57:53.181Z level=INFO source=sched.go:1147 msg="disabling mmap for llama-server load by default" model=/models/blobs/sha256-941f309b54caaad6747569ba43712bcde44a2be3bae16c3282ff499c37c54af5 reason=cpu
time=2026-11-30T06:57:53.181Z level=INFO source=server.go:109 msg="using llama-server for model" model=/models/blobs/sha256-941f309b54caaad6747569ba43712bcde44a2be3bae16c3282ff499c37c54af5
time=2026-11-30T06:57:53.181Z level=INFO source=llama_server.go:433 msg="starting llama-server" cmd="/usr/lib/ollama/llama-server --model /models/blobs/sha256-941f309b54caaad6747569ba43712bcde44a2be3bae16c3282ff499c37c54af5 --port 42129 --host 127.0.0.1 --no-webui --offline -c 2048 -np 4 --log-verbosity 4 --no-log-prefix --no-log-timestamps --no-jinja --chat-template chatml --load-mode none --flash-attn auto -b 512 -ub 512 --context-shift --keep 4"
time=2026-11-30T06:57:53.182Z level=INFO source=sched.go:613 msg="system memory" total="23.5 GiB" free="23.1 GiB" free_swap="0 B"
time=2026-11-30T06:57:53.182Z level=INFO source=llama_server.go:1048 msg="loading model via llama-server" model=/models/blobs/sha256-941f309b54caaad6747569ba43712bcde44a2be3bae16c3282ff499c37c54af5
time=2026-11-30T06:57:53.182Z level=INFO source=llama_server.go:1295 msg="waiting for llama-server to start responding"
time=2026-11-30T06:57:53.182Z level=INFO source=llama_server.go:1350 msg="waiting for llama-server to become available" status="llm server not responding"
"""  # noqa: E501

# ... the inner server's start, ...
INNER = r"""cmn  common_param: common_params_print_info: build 0 (unknown) with GNU 12.2.0 for Linux x86_64
cmn  common_param: common_params_print_info: verbosity = 4 (adjust with the `-lv N` CLI arg)
cmn  common_param: system_info: n_threads = 2 (n_threads_batch = 2) / 2 | CPU : SSE3 = 1 | SSSE3 = 1 | AVX = 1 | AVX2 = 1 | F16C = 1 | FMA = 1 | BMI2 = 1 | LLAMAFILE = 1 | REPACK = 1 | 
srv    load_model: loading model '/models/blobs/sha256-941f309b54caaad6747569ba43712bcde44a2be3bae16c3282ff499c37c54af5'
srv    load_model: local path '/models/blobs/sha256-941f309b54caaad6747569ba43712bcde44a2be3bae16c3282ff499c37c54af5'
llama_context: n_seq_max             = 4
llama_context: n_ctx                 = 2048
llama_context: n_ctx_seq             = 512
llama_context: n_batch               = 512
llama_context: n_ubatch              = 512
llama_context: kv_unified            = false
llama_context: n_rs_seq              = 0
llama_context: n_outputs_max         = 4
llama_context: n_outputs_max_per_seq = 1
llama_context: n_ctx_seq (512) < n_ctx_train (8192) -- the full capacity of the model will not be utilized
cmn          init: llama threadpool init, n_threads = 2
srv    load_model: initializing, n_slots = 4, n_ctx_slot = 512, kv_unified = 'false'
slot   load_model: id  0 | task -1 | new slot, n_ctx = 512
slot   load_model: id  1 | task -1 | new slot, n_ctx = 512
slot   load_model: id  2 | task -1 | new slot, n_ctx = 512
slot   load_model: id  3 | task -1 | new slot, n_ctx = 512
srv    load_model: prompt cache is enabled, size limit: 8192 MiB
srv    load_model: use `--cache-ram 0` to disable the prompt cache
srv    load_model: for more info see https://github.com/ggml-org/llama.cpp/pull/16391
srv    load_model: context checkpoints enabled, max = 32, min spacing = 8192
srv  llama_server: model loaded
srv  llama_server: listening on http://127.0.0.1:42129
"""  # noqa: E501, W291

# ... and after it: "started in" stands twice for one start.
STARTED = r"""time=2026-11-30T06:57:53.686Z level=INFO source=llama_server.go:1362 msg="llama-server started in 0.50 seconds"
time=2026-11-30T06:57:53.699Z level=INFO source=images.go:381 msg="template selection" model=registry.ollama.ai/library/smollm2:latest selected=go_template renderer="" parser="" go_template=[completion] chat_template=[completion] harmony=null renderer_parser=null
time=2026-11-30T06:57:53.699Z level=INFO source=sched.go:728 msg="loaded runners" count=1
time=2026-11-30T06:57:53.699Z level=INFO source=llama_server.go:1295 msg="waiting for llama-server to start responding"
time=2026-11-30T06:57:53.699Z level=INFO source=llama_server.go:1362 msg="llama-server started in 0.52 seconds"
"""  # noqa: E501

# One chat request.
REQUEST = r"""slot get_availabl: id  3 | task -1 | selected slot by LRU, t_last = -1
srv  get_availabl: updating prompt cache
srv          load:  - looking for better prompt, base f_keep = -1.000, f_sim = 0.000
srv        update:  - cache state: 0 prompts, 0.000 MiB (limits: 8192.000 MiB, 2048 tokens, 8589934592 est)
srv  get_availabl: prompt cache update took 0.01 ms
slot launch_slot_: id  3 | task -1 | sampler chain: logits -> ?penalties -> ?dry -> ?top-n-sigma -> top-k -> ?typical -> ?top-p -> ?min-p -> ?xtc -> temp-ext -> dist 
slot launch_slot_: id  3 | task -1 | sampler params: 
	repeat_last_n = 64, repeat_penalty = 1.000, frequency_penalty = 0.000, presence_penalty = 0.000
	dry_multiplier = 0.000, dry_base = 1.750, dry_allowed_length = 2, dry_penalty_last_n = 64
	top_k = 40, top_p = 1.000, min_p = 0.000, xtc_probability = 0.000, xtc_threshold = 0.100, typical_p = 1.000, top_n_sigma = -1.000, temp = 0.000
	mirostat = 0, mirostat_lr = 0.100, mirostat_ent = 5.000, adaptive_target = -1.000, adaptive_decay = 0.900
slot launch_slot_: id  3 | task 0 | processing task, is_child = 0
slot process_sing: id  0 | task -1 | saving idle slot to prompt cache
slot process_sing: id  1 | task -1 | saving idle slot to prompt cache
slot process_sing: id  2 | task -1 | saving idle slot to prompt cache
slot   operator(): id  3 | task 0 | new prompt, n_ctx_slot = 512, n_keep = 4, task.n_tokens = 12
slot   operator(): id  3 | task 0 | cached n_tokens = 0, memory_seq_rm [0, end)
slot init_sampler: id  3 | task 0 | init sampler, took 0.02 ms, tokens: text = 12, total = 12
slot print_timing: id  3 | task 0 | prompt eval time =      47.03 ms /    12 tokens (    3.92 ms per token,   255.15 tokens per second)
slot print_timing: id  3 | task 0 |        eval time =      58.49 ms /     6 tokens (   11.70 ms per token,    85.49 tokens per second)
slot print_timing: id  3 | task 0 |       total time =     105.52 ms /    18 tokens
slot print_timing: id  3 | task 0 |    graphs reused =          5
slot      release: id  3 | task 0 | stop processing: n_tokens = 17, truncated = 0
"""  # noqa: E501, W291

# A prompt of 1,210 tokens in a context of 512.
TRUNCATED = r"""time=2026-11-30T06:36:21.677Z level=WARN source=llama_server.go:317 msg="truncating input prompt" limit=258 prompt=1210 keep=4 new=258
"""  # noqa: E501

# More requests at once than OLLAMA_MAX_QUEUE: 503, whose body was not captured.
QUEUE_FULL = r"""[GIN] 2026/11/30 - 06:50:39 | 503 |   21.672014ms |       127.0.0.1 | POST     "/v1/chat/completions"
"""

# A reply of 600 tokens in a context of 256.
SHIFT = r"""slot   operator(): id  0 | task 0 | slot context shift, n_keep = 4, n_left = 251, n_discard = 125
slot   operator(): id  0 | task 0 | slot context shift, n_keep = 4, n_left = 251, n_discard = 125
slot   operator(): id  0 | task 0 | slot context shift, n_keep = 4, n_left = 251, n_discard = 125
slot      release: id  0 | task 0 | stop processing: n_tokens = 249, truncated = 1
"""

# /api/version, an entry of /api/tags, of /api/ps (loaded), of /v1/models, /api/show (tensors and model_info cut).
VERSION = {"version": "0.0.0"}
TAG = {
    "name": "smollm2:latest",
    "model": "smollm2:latest",
    "modified_at": "2026-11-30T06:07:47.575135762Z",
    "size": 98362745,
    "digest": "fd5f44c0b5aff6453726119fc560d73a8a995a55b4a49804bc24b1969ecf1794",
    "details": {
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": "134.52M",
        "quantization_level": "Q4_1",
        "context_length": 8192,
        "embedding_length": 576,
    },
    "capabilities": ["completion"],
}
LOADED = {
    "name": "smollm2:latest",
    "model": "smollm2:latest",
    "size": 159236750,
    "digest": "fd5f44c0b5aff6453726119fc560d73a8a995a55b4a49804bc24b1969ecf1794",
    "details": {
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": "134.52M",
        "quantization_level": "Q4_1",
    },
    "expires_at": "2319-03-12T06:45:10.554948811Z",
    "size_vram": 0,
    "context_length": 512,
}
LISTED = {"id": "smollm2:latest", "object": "model", "created": 1796018867, "owned_by": "library"}
SHOWN = {
    "parameters": 'stop                           "<|im_start|>"\nstop                           "<|im_end|>"',
    "template": "{{- range .Messages }}<|im_start|>{{ .Role }}\n"
    "{{ .Content }}<|im_end|>\n"
    "{{ end }}<|im_start|>assistant\n",
    "details": {
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": "134.52M",
        "quantization_level": "Q4_1",
    },
    "capabilities": ["completion"],
    "modified_at": "2026-11-30T06:07:47.575135762Z",
}
# The reply to a request that only loads the model, and to one for a model that is not there.
LOAD = {
    "model": "smollm2:latest",
    "created_at": "2026-11-30T06:57:53.699843099Z",
    "response": "",
    "done": True,
    "done_reason": "load",
}
UNKNOWN_MODEL = {"error": {"message": "model 'nope' not found", "type": "not_found_error", "param": None, "code": None}}
NO_THINKING = {
    "error": {
        "message": '"smollm2:latest" does not support thinking',
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
}
# The chunks of a streamed chat reply: the first, another one, the last of a choice, the usage.
FIRST = {
    "id": "chatcmpl-31",
    "object": "chat.completion.chunk",
    "created": 1796021874,
    "model": "smollm2:latest",
    "system_fingerprint": "fp_ollama",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": "I"}, "finish_reason": None}],
}
CHUNK = {
    "id": "chatcmpl-31",
    "object": "chat.completion.chunk",
    "created": 1796021874,
    "model": "smollm2:latest",
    "system_fingerprint": "fp_ollama",
    "choices": [{"index": 0, "delta": {"content": "'m"}, "finish_reason": None}],
}
FINISH = {
    "id": "chatcmpl-31",
    "object": "chat.completion.chunk",
    "created": 1796021874,
    "model": "smollm2:latest",
    "system_fingerprint": "fp_ollama",
    "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
}
USAGE = {
    "id": "chatcmpl-31",
    "object": "chat.completion.chunk",
    "created": 1796021874,
    "model": "smollm2:latest",
    "system_fingerprint": "fp_ollama",
    "choices": [],
    "usage": {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18},
}
# A reply that is not streamed, to the prompt of 1,210 tokens.
WHOLE = {
    "id": "chatcmpl-905",
    "object": "chat.completion",
    "created": 1796021875,
    "model": "smollm2:latest",
    "system_fingerprint": "fp_ollama",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "The quick brown fox"}, "finish_reason": "length"}
    ],
    "usage": {"prompt_tokens": 258, "completion_tokens": 4, "total_tokens": 262},
}
# The last chunk of a reply whose inner server was killed; no [DONE] follows, and the HTTP message ends well.
CUT = {
    "id": "chatcmpl-353",
    "object": "chat.completion.chunk",
    "created": 1796020608,
    "model": "",
    "system_fingerprint": "fp_ollama",
    "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}],
}
# Chunks of a thinking model's reply of 4 tokens, of which 3 arrive: the first, another one, the usage.
THINKING = [
    {
        "id": "chatcmpl-411",
        "object": "chat.completion.chunk",
        "created": 1796021874,
        "model": "thinker",
        "system_fingerprint": "fp_ollama",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    for delta, finish_reason in (
        ({"role": "assistant", "content": "", "reasoning": "I"}, None),
        ({"content": "", "reasoning": "'m"}, None),
        ({"content": "", "reasoning": " here"}, None),
        ({}, "length"),
    )
] + [
    {
        "id": "chatcmpl-411",
        "object": "chat.completion.chunk",
        "created": 1796021874,
        "model": "thinker",
        "system_fingerprint": "fp_ollama",
        "choices": [],
        "usage": {"prompt_tokens": 16, "completion_tokens": 4, "total_tokens": 20},
    }
]
