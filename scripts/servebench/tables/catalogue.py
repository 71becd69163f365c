"""The list of tables: what each one holds, what it is made from, when it exists, and its columns.

To add a table, write its maker in a module of `servebench.tables` and add an entry to `TABLES`. The workflow, the
checks on writing and reading, the page, `servebench columns` and docs/tables.md follow from the entry. An entry stands
below the tables it is made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from servebench.plan import Plan
from servebench.schema import schema
from servebench.tasks import answers
from servebench.tasks.task import OUTCOMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Describe one table.

    row: what a row stands for. columns: a line of name, type and meaning for each column (`servebench.schema`).
    made: the function of `servebench.tables` that makes the table, as `module.function`; None when the table is itself
    one of the sources. of: the function's arguments, each a table or an attribute of `sources.Sources`. needs: the
    section of the plan without which the table does not exist; None when every experiment has it.
    """

    name: str
    row: str
    columns: str
    made: str | None = None
    of: tuple[str, ...] = ()
    needs: Literal["cost", "reference", "evaluations"] | None = None


_PLACE = """
run text! name of the run
setting text! name of the setting
users int! simulated users
"""
_SETTING = """
run text! name of the run
setting text! name of the setting
rank int! place of the setting in its experiment, from 0
engine text! key in the configuration
engine_kind text! llama-server, ollama, vllm, ...
model text! key in the configuration
model_name text! name of the model, for people
quantization text Q4_K_M, BF16, ...; null if not said
slots int! requests that the server handles at once
context int tokens that a request may use, prompt and reply together
"""
# Figures of one measurement (docs/figures.md); `settings` holds the smaller and larger of the rounds of each.
_FIGURES = """
output_tok_s real tokens of all users that arrived in the window, over its length
user_tok_s real median speed of a reply's stream after its first arrival
ttft_p50_s real time to the first token, over the successful target requests
ttft_p95_s real 95th percentile of the time to the first token
ttft_p95_all_s real over all target requests, a failure as an endless wait; null when the rank falls on a failure
target_requests int requests sent (open loop: due) in the window
failures int target requests that failed
reasoning_replies int replies with reasoning
prompt_tokens_p50 real median prompt length in tokens
output_tokens_mean real mean reply length in tokens
client_cpu_ratio real CPU seconds per second of the busiest load process
requests_s real successful target requests over the window's length (open loop: requests that ended in it)
ttft_mean_s real mean time to the first token
ttft_p99_s real 99th percentile of the time to the first token
ttft_answer_p95_s real time to the first token that is not reasoning
one_chunk_requests int successful targets that came in one chunk and therefore have no speed
steadiness real tokens of the window's second half over those of its first
in_flight_mean real requests sent and not yet ended, averaged over the window
goodput_requests_s real requests per second that each met the line
cached_share real share of the prompt tokens that came from the server's cache
prefill_p50_s real the server's own time for the prompt
prompt_tok_s real median of newly computed prompt tokens over TTFT: the prefill speed one user sees, queueing included
queue_wait_p50_s real TTFT minus the server's own time for the prompt
send_delay_p99_s real how long after its due time a request was sent
inter_chunk_p50_s real gaps between the chunks of a reply
inter_chunk_p95_s real 95th percentile of the gaps between the chunks of a reply
inter_chunk_p99_s real 99th percentile of the gaps between the chunks of a reply
tpot_p50_s real seconds for each output token after the first
tpot_p95_s real 95th percentile of the seconds for each output token after the first
tpot_p99_s real 99th percentile of the seconds for each output token after the first
e2e_p50_s real from sending (or from the due time) to the end of the reply
e2e_p95_s real 95th percentile of the time to the end of the reply
e2e_p99_s real 99th percentile of the time to the end of the reply
"""
# The rest of them, in `measurements` alone.
_DETAILS = """
failures_http_error int target requests that failed with an HTTP error status
failures_connect_error int target requests without a connection
failures_timeout int target requests that did not end in time
failures_idle_timeout int target requests that were silent for too long
failures_reset int target requests whose connection was lost during the reply
failures_truncated int target requests whose reply ended too early or was not valid HTTP
failures_in_band_error int target requests with an error inside the stream
failures_empty int target requests with a reply without content
other_failures int failures among requests that are not targets
resent int requests sent twice because a kept-alive connection had died
finished_by_length int target replies that ended at max_tokens
without_done int target replies whose stream had no [DONE]
left_open int replies whose HTTP message did not end after [DONE]
tokens_from_usage int requests whose tokens the server counted
tokens_from_tokenizer int requests whose tokens the model's tokenizer counted
tokens_from_chunks int requests whose chunks were counted as tokens
tokens_per_chunk real mean number of tokens in a chunk
prompt_tokens_mean real mean prompt length in tokens
prompt_tokens_min real shortest prompt, tokens
prompt_tokens_max real longest prompt, tokens
output_tokens_p50 real median reply length in tokens
output_tokens_min real shortest reply, tokens
output_tokens_max real longest reply, tokens
cached_tokens_mean real prompt tokens from the server's cache
ttft_max_s real longest time to the first token
ttft_p95_all_infinite bool the rank of ttft_p95_all_s falls on a failure
ttft_answer_p50_s real time to the first token that is not reasoning
e2e_mean_s real mean time from sending (or from the due time) to the end of the reply
backlog_start int open loop, trace: requests due but not over when the window began
backlog_end int open loop, trace: requests due but not over when the window ended
prefill_p95_s real 95th percentile of the server's own time for the prompt
queue_wait_p95_s real 95th percentile of TTFT minus the server's own time for the prompt
goodput_share real share of the target requests that each met the line
client_loop_lag_p99_s real how late the event loop of a load process was
client_loop_lag_max_s real the latest that the event loop of a load process was
send_delay_p50_s real how long after its due time a request was sent
"""


def _kinds(lines: str) -> Mapping[str, str]:
    return {line.split()[0]: line.split()[1] for line in lines.split("\n")[1:-1]}


FIGURES: Mapping[str, str] = _kinds(_FIGURES)
DETAILS: Mapping[str, str] = _kinds(_DETAILS)
# The figures of which rounds and settings are compared.
COMPARED = ("output_tok_s", "user_tok_s", "ttft_p95_s")
_RANGES = "\n".join(
    f"{name}_min {kind} smaller of the rounds\n{name}_max {kind} larger of the rounds" for name, kind in FIGURES.items()
)

_COMPARISONS = """
measure text! what is counted: see docs/evaluations.md
target text! name of the target
baseline text! name of the baseline
repeat int! 1 or 2: everything is asked twice
n int! questions that both answered
questions int! number of questions
base_only int! questions for which the measure is true for the baseline only
other_only int! questions for which the measure is true for the target only
difference real! target minus baseline, points
low real! Tango score interval, 95 %, points
high real! Tango score interval, 95 %, points
p real! exact two-sided sign test
p_mid real! mid-p version of that test
p_holm real! p after Holm over the targets of this measure and repeat
comparisons int! number of comparisons in that family
verdict text! difference, none_detected or cannot_be_significant
detectable real smallest difference detected with 80 % power after Holm if mistakes are unrelated, points; null if none
detectable_alone real the same for p < 0.05 without Holm
margin real declared before the run, points
equivalent bool 90 % Tango interval within the margin; null without a margin
equivalence_low real! Tango score interval, 90 %, points
equivalence_high real! Tango score interval, 90 %, points
provable_margin real! margin that a true difference of 0 would satisfy with 80 % power, points
changed int! questions with another answer than the baseline's, right or wrong
noise_first_only int baseline: true in repeat 1 only
noise_second_only int baseline: true in repeat 2 only
noise_changed int baseline: another answer in repeat 2
combined_n int questions both answered in both repeats
combined_difference real target minus baseline, means of two repeats, points
combined_p real exact sign-flip test of the questions' means
combined_p_holm real after Holm over the targets of this measure
cochran_q real Cochran's Q: whether the targets of this measure and repeat differ at all; null if no question differs
cochran_p real p of that test
"""

TABLES = (
    Table(
        name="measurements",
        row="a measurement: (run, setting, users, round)",
        made="measured.measurements",
        of=("records", "line"),
        columns=_SETTING
        + """
users int! simulated users
round int! from 1
status text! ok or failed
reason marks! why it failed; empty if it did not
"""
        + _FIGURES
        + _DETAILS
        + """
window_s real length of the window
memory_gib real largest memory of the server's processes so far in its session
memory_kind text nvml (GPU) or host
utilisation real how busy the server kept its GPUs, else the CPUs, over the window; null when a sample is unknown
power_w real mean power of all the server's GPUs over the window; null when a sample is unknown
joules_per_token real energy of the server's GPUs for each output token of the window
foreign_samples int samples in which others used the device more than runtime.foreign_use allows
foreign_unknown int! samples that do not show whether others used the device
foreign_limit int samples with foreign use from which the measurement is not valid (runtime.foreign_use of its session)
telemetry_samples int! samples of the machine
meets_line bool within the line: both limits, no failure, enough target requests, no growing backlog
in_time_requests int target requests whose first token came within the line's limit
line_confidence real confidence that the true TTFT p95 is within the line, from in_time_requests
reference_only bool fewer target requests than the line needs
valid bool no reason speaks against the measurement
invalid_reasons marks! reasons against it (docs/figures.md)
session_id text the launch that the measurement belongs to
server_age_s real how long the server had been up
users_before ints numbers of users that the server had served before
started_at text ISO 8601 UTC
device text the node and the device that the session had to itself
engine_version text as the engine reports it
engine_build text commit or build that the engine reports
engine_pin text image digest or hash of the lock
argv texts the whole command line of the server
model_sha256 text SHA-256 of the model file, or over its files
machine text name of the GPU, or of the CPU when there is none
fingerprint text identity of the machine
servebench_version text version of servebench that measured
protocol int version of the load protocol
digest text! name in the store
""",
    ),
    Table(
        name="prompt_lengths",
        row="a prompt that a setting was sent, over all rounds and numbers of users",
        made="measured.prompt_lengths",
        of=("records",),
        columns="""
run text! name of the run
setting text! name of the setting
prompt_id text! the document or prompt; of a conversation its first turn
requests int! successful ones that tell their prompt tokens
tokens_mean real! prompt tokens
""",
    ),
    Table(
        name="settings",
        row="(run, setting, users), with the smaller and the larger of its rounds",
        made="derived.settings",
        of=("measurements", "rounds", "prompt_lengths"),
        columns=_SETTING
        + """
users int! simulated users
rounds int! rounds with a good measurement
"""
        + _RANGES
        + """
memory_gib_max real largest memory of the server's processes in any round
joules_per_token_min real energy of the server's GPUs for each output token
joules_per_token_max real the larger of the rounds
meets_line_both_rounds bool null when a round is missing, failed or discarded
line_confidence_min real confidence that the true TTFT p95 is within the line, in the worse round
unstable bool some figure changed by 20 % or more between rounds; null with fewer than two rounds
largest_change real largest |ratio - 1| between rounds
reference_only bool fewer target requests than the line needs, in some round
marks marks! reasons not to trust the row
failure marks! why rounds failed or gave no output
""",
    ),
    Table(
        name="sessions",
        row="a launch of an engine: (run, setting, round)",
        made="measured.sessions",
        of=("records",),
        columns=_SETTING
        + """
round int! from 1
session_id text! which launch
launched_at text ISO 8601 UTC
device text the node and the device that the session had to itself
process_s real cold start: from launch until the process runs
healthy_s real from launch until the server reports that it is healthy
first_token_s real from launch until the server has answered with a token
round_trip_p50_s real round trip to a server at a URL: median of small requests on an open connection, before the load
round_trip_min_s real the shortest of these round trips
round_trip_max_s real the longest of these round trips
memory_gib real largest memory of the server's processes
memory_kind text nvml (GPU) or host
engine_version text as the engine reports it
engine_build text commit or build that the engine reports
engine_pin text image digest or hash of the lock
argv texts the whole command line of the server
env text JSON
cpus int CPUs that the server was given
threads int threads that the server reports
facts text JSON, what the server reports about itself
users ints! numbers of users measured in the session
machine text name of the GPU, or of the CPU when there is none
cores int CPU cores of the machine
machine_memory_gib real memory of the machine, without that of its GPUs
fingerprint text identity of the machine
model_sha256 text SHA-256 of the model file, or over its files
model_size_bytes int size of the model file
model_fetch_s real time of the model's download before the launch; null unless it came over a network in one go
log text path of the engine's log
""",
    ),
    Table(
        name="expected",
        row="a fact that the configuration expects of a server, for each launch",
        made="expected.expected",
        of=("sessions", "plan"),
        columns="""
run text! name of the run
setting text! name of the setting
round int! from 1
session_id text! which launch
what text! name of the fact
published text! what the source's server reported about itself
found text what this server reports; null if it reports nothing
met bool whether both agree; null if the server reports nothing
""",
    ),
    Table(
        name="unstable",
        row="a pair of rounds in which some figure changed by 20 % or more",
        made="derived.unstable",
        of=("measurements",),
        columns=_PLACE
        + """
figure text! the figure that changed most
first real! its value in the first of the two rounds
second real! its value in the second of the two rounds
ratio real! second over first
change real! |ratio - 1|; rows are in this order, largest first
target_requests_min int target requests in the round with fewer
""",
    ),
    Table(
        name="queueing",
        row="(setting, users) with at least as many users as slots",
        made="derived.queueing",
        of=("settings",),
        columns=_SETTING
        + """
users int! simulated users
multiple real! users over slots, 1 or more
ttft_p50_s_min real median time to the first token, smaller of the rounds
ttft_p50_s_max real larger of the rounds
ttft_p95_s_min real 95th percentile of the time to the first token, smaller of the rounds
ttft_p95_s_max real larger of the rounds
marks marks! reasons not to trust the row
""",
    ),
    Table(
        name="ratios",
        row="a figure of a setting over that of its baseline, both in the same round",
        made="ratios.ratios",
        of=("measurements", "settings", "plan"),
        columns="""
kind text! control, engine, slots, quantization or drift (the same setting in two runs)
run text! name of the run
setting text! name of the setting
baseline_run text! run of the baseline
baseline text! name of the baseline
users int! simulated users
figure text! name of the figure
ratio_min real! over the rounds, each within one round
ratio_max real! the largest of these ratios
rounds int! rounds compared
marks marks! reasons not to trust either of the two
""",
    ),
    Table(
        name="slow_requests",
        row="(run, setting, users): requests with a TTFT over 1 s, inside and outside the run's band of prompt lengths",
        made="measured.slow_requests",
        of=("records", "bands"),
        columns=_PLACE
        + """
band_low int prompt tokens: first of the band
band_high int prompt tokens: last of the band
band_slow int slow requests whose prompt is in the band; null without a band
band_total int requests whose prompt is in the band; null without a band
other_slow int! slow requests with other prompts
other_total int! requests with other prompts
""",
    ),
    Table(
        name="slow_by_micro_batch",
        row="slow requests of one kind of engine with one micro-batch",
        made="derived.slow_by_micro_batch",
        of=("slow_requests", "sessions"),
        columns="""
run text! name of the run
engine_kind text! llama-server, ollama, vllm, ...
micro_batch int! prompt tokens that the server processes in one computation
users_most int! largest number of users of the counted measurements
settings texts! names of the settings
band_slow int! slow requests whose prompt is in the band; null without a band
band_total int! requests whose prompt is in the band; null without a band
other_slow int! slow requests with other prompts
other_total int! requests with other prompts
""",
    ),
    Table(
        name="served",
        row="a request in llama-server's log",
        made="served.served",
        of=("records",),
        columns=_PLACE
        + """
round int! from 1
task int! the request's number in the server's log
slot int! number of the slot that served it
started_s real seconds from the server's start until the request got its slot; null in a log without time stamps
busy_slots int! busy slots at that moment, including its own
prompt_ms real time of the prompt's evaluation; null when the request ended earlier
prompt_tokens int newly computed prompt tokens, without those from a cache
eval_ms real time of the reply's generation
eval_tokens int generated tokens
draft_acceptance real share of the speculated tokens that were accepted
total_tokens int tokens in the slot when it was released
truncated bool the context was full
cancelled bool! the client closed the connection
all_prompt_tokens int the prompt's tokens; null unless the server logs at verbosity 4, as Ollama's does
cached_tokens int of them from a cache; null as before
context_shifts int times that tokens were dropped from the context so that the reply could go on
""",
    ),
    Table(
        name="slow_prefills",
        row="(run, setting, users): prompts that took over 1 s on a lightly loaded server",
        made="served.slow_prefills",
        of=("served", "prefill_bands"),
        columns=_PLACE
        + """
band_low int! newly computed prompt tokens, first of the band
band_high int! newly computed prompt tokens, last of the band
slow int! requests in the band whose prompt took more than 1 s
total int! requests in the band that started with at most 2 busy slots, including their own
""",
    ),
    Table(
        name="ttft",
        row="a measurement, with the TTFT of each of its target requests",
        made="measured.ttft",
        of=("records",),
        columns=_PLACE
        + """
round int! from 1
ttft_s reals! TTFT of each successful target request, ascending
failures int! target requests that failed
""",
    ),
    Table(
        name="timeline",
        row="a second of a window",
        made="measured.timeline",
        of=("records",),
        columns=_PLACE
        + """
round int! from 1
second int! from the start of the window
running real! requests in flight, mean over the second
output_tok_s real! tokens that arrived in the second
foreign_utilisation real largest use of the device by others in the second, percent
""",
    ),
    Table(
        name="telemetry",
        row="a sample of the machine while it is loaded, two a second",
        made="measured.telemetry",
        of=("records",),
        columns=_PLACE
        + """
round int! from 1
second real! time of the sample from the start of the window; negative before it
memory_gib real memory of the server's processes: on its GPUs, else resident
device_memory_gib real memory in use by all processes, on its GPUs, else of the machine
utilisation real use of the GPUs (mean), else of the CPUs, by the server's processes
foreign_utilisation real use by processes other than server and load generator: of the most used GPU, else of the CPUs
device_utilisation real use by all processes
power_w real power of all GPUs together
clock_mhz int clock of the slowest GPU
temperature_c int temperature of the hottest GPU
throttle text reasons that lower the clocks of a GPU, joined by commas; empty without one
ecc_errors int uncorrected memory errors since the driver was loaded
cpu_throttled_s real time so far that a quota kept the server from its CPUs, summed over CPUs
client_cpu_throttled_s real the same for the load generator
host_memory_gib real host memory of the server's processes, without that of the GPUs
host_foreign_utilisation real use of the CPUs by others, without that of the GPUs
""",
    ),
    Table(
        name="discarded",
        row="a measurement that was discarded",
        made="measured.discarded",
        of=("thrown_out",),
        columns=_PLACE
        + """
round int! from 1
why text! reason that was given
discarded_at text! ISO 8601 UTC
started_at text ISO 8601 UTC
session_id text which launch
""",
    ),
    Table(
        name="depth",
        row="a setting with prompts of a fixed length, in which alone it differs from others, with the fewest users",
        made="depth.depth",
        of=("settings", "asked_settings"),
        columns="""
series text! what the names of the series' settings have in common
run text! name of the run
setting text! name of the setting
engine_kind text! llama-server, ollama, vllm, ...
users int! the fewest simulated users that were measured
prompt_tokens int! length of the prompts asked for
reply_tokens text length of the replies asked for, or the most tokens of a reply
prompt_tokens_p50_min real smaller median of the prompts' lengths over the rounds, as the server counts them
prompt_tokens_p50_max real larger
prompt_tok_s_min real prefill speed: smaller median over the rounds
prompt_tok_s_max real larger
user_tok_s_min real decode speed: smaller median over the rounds
user_tok_s_max real larger
marks marks! as in `settings`
""",
    ),
    Table(
        name="turns",
        row="a turn of the conversations of a measurement, over its successful target requests",
        made="measured.turns",
        of=("records",),
        columns=_PLACE
        + """
round int! from 1
turn int! of the conversation, from 1
requests int! successful target requests
prompt_tokens_mean real mean prompt length with the history, tokens
cached_share real share of the prompt tokens that came from the server's cache
ttft_p50_s real median time to the first token
""",
    ),
    Table(
        name="memory",
        row="a setting: device memory, measured and predicted",
        made="memory.memory",
        of=("sessions", "measurements", "caches", "asked_settings"),
        columns=_SETTING
        + """
measured_gib real largest device memory over the sessions
memory_kind text nvml (GPU) or host
weights_gib real size of the model file
kv_cache_tokens int tokens that fit into the KV cache: as the server reports, else context times slots
kv_cache_gib real predicted for all slots, each with its share of the tokens, for the requested types and windows
rest_gib real measured_gib minus weights minus KV cache
request_tokens real tokens of prompt and answer: mean over the measurements of median prompt plus mean answer
requests_fit int KV cache over the tokens of a request, rounded down; does not consider the number of slots
""",
    ),
    Table(
        name="predicted",
        row="(run, setting, users) of a launched setting: the most that is predicted of it, and how much it reached",
        made="predicted.predicted",
        of=("settings", "records", "needs", "asked_settings", "bandwidth_gb_s"),
        columns=_PLACE
        + """
bandwidth_gb_s real of the device's memory, GB/s
bandwidth_from text configured, data_sheet (a GPU's) or copied (measured by copying memory)
weights_gib real size of the model file, read once for each token of all streams together
slots_fit int predicted: slots whose full contexts fit into the device's memory beside the weights
stream_tok_s real predicted: most tokens a second of one reply's stream, bandwidth over weights
output_tok_s real predicted: most of all users, stream_tok_s times users or slots, whichever is less; null of a schedule
user_share_min real user_tok_s in the slower round, over stream_tok_s; above 1 where a cache holds weights
user_share_max real in the faster round
output_share_min real output_tok_s measured in the slower round, over output_tok_s
output_share_max real in the faster round
""",
    ),
    Table(
        name="cost",
        row="(run, setting, users), if a price is configured",
        made="cost.cost",
        of=("settings", "price_per_hour"),
        needs="cost",
        columns=_PLACE
        + """
price_per_hour real! USD
usd_per_million_tokens_min real price of a million output tokens, USD, in the best round
usd_per_million_tokens_max real price of a million output tokens, USD, in the worst round
tokens_per_s_per_usd_h_min real output tok/s for each USD an hour, in the worst round
tokens_per_s_per_usd_h_max real output tok/s for each USD an hour, in the best round
joules_per_token_min real energy of the server's GPUs for each output token; null if their power is unknown
joules_per_token_max real the larger of the rounds
""",
    ),
    Table(
        name="paid_idle",
        row="a setting, if a price is configured: the cost of time in which nobody is served",
        made="cost.paid_idle",
        of=("sessions", "price_per_hour", "idle_after_min"),
        needs="cost",
        columns="""
run text! name of the run
setting text! name of the setting
price_per_hour real! USD
first_token_s_min real from launch until the first token, over the launches; null at a URL, where nothing is launched
first_token_s_max real the longest of these launches
usd_start_min real cost of that start, before anyone is served
usd_start_max real cost of the longest start
idle_after_min real as configured: minutes without a request until the machine is released
usd_idle real cost of those minutes each time
""",
    ),
    Table(
        name="calibration",
        row="a variant of the clock server and a number of users",
        made="measured.calibration",
        of=("records",),
        columns="""
run text! name of the run
created_at text ISO 8601 UTC
variant text! schedule of the clock server
users int! simulated users
ttft_error_p50_s real delay with which the load generator saw the first token
ttft_error_p99_s real 99th percentile of that delay
arrival_error_p50_s real delay with which the load generator saw a chunk
arrival_error_p99_s real 99th percentile of that delay
delivered_ratio real delivered tokens over the tokens that an ideal client would have received
cpu_ratio real CPU seconds per second of the busiest load process
max_users int! largest number of users that this machine can load accurately
""",
    ),
    Table(
        name="reproduction",
        row="a cell of the published table, beside our value",
        made="derived.reproduction",
        of=("settings", "published"),
        needs="reference",
        columns=_PLACE
        + """
figure text! name of the figure
published_min real! smaller of the published values
published_max real! larger of the published values
measured_min real smaller of our rounds
measured_max real larger of our rounds
ratio real middle of our range over the middle of the published range
overlap bool whether the two ranges overlap
""",
    ),
    Table(
        name="answers",
        row="a reply: (target, task, repeat, question)",
        needs="evaluations",
        columns=answers.COLUMNS,
    ),
    Table(
        name="targets",
        row="a target of the evaluations: (engine, model file)",
        made="evaluated.targets.targets",
        of=("evaluations", "evaluated", "answers"),
        needs="evaluations",
        columns="""
target text! name of the target
rank int! place of the target in its experiment, from 0
baseline bool! the target that the others are compared with
engine text! key in the configuration
engine_kind text! llama-server, ollama, vllm, ...
model text! key in the configuration
model_name text! name of the model, for people
quantization text Q4_K_M, BF16, ...; null if not said
slots int! requests that the server handles at once
context int tokens that a request may use, prompt and reply together
concurrency int! questions asked at once
status text! ok; or failed: some questions were never asked
reason marks! why it failed; empty if it did not
asked int! questions to ask, of all tasks and repeats
answered int! questions with a reply
failures int! questions with an error or a time-out
same_prompts bool the server tokenizes the same questions to the ids of the baseline's; by numbers of tokens only false
prompt_tokens_sha256 text SHA-256 of those ids; null when the server does not report them
chat_template_sha256 text SHA-256 of the chat template that the server reports
marks marks! reasons not to trust the target's answers
sessions int! number of launches
engine_version text of the last launch, like all columns below
engine_build text commit or build that the engine reports
engine_pin text image digest or hash of the lock
argv texts the whole command line of the server
model_sha256 text SHA-256 of the model file, or over its files
machine text name of the GPU, or of the CPU when there is none
fingerprint text identity of the machine
started_at text ISO 8601 UTC
""",
    ),
    Table(
        name="scores",
        row="(target, task, measure, repeat)",
        made="evaluated.scores.scores",
        of=("answers_of_targets", "questions"),
        needs="evaluations",
        columns="""
target text! name of the target
task text! jcommonsenseqa, mgsm or proofreading
measure text! what is counted: see docs/evaluations.md
headline bool! one of the four measures that are compared
lower_is_better bool! whether a lower share is better
repeat int! 1 or 2: everything is asked twice
n int! questions answered
questions int! number of questions
count int! questions for which the measure is true
share real! count over n
low real! Clopper-Pearson, 95 %
high real! Clopper-Pearson, 95 %
"""
        + "\n".join(f"{outcome} int! replies with this outcome" for outcome in OUTCOMES)
        + """
reasoning_replies int! replies with reasoning; there should be none
simplified_chinese int! replies with characters that only simplified Chinese has
english int! replies with English that the question does not have
characters_mean real length of the replies
tokens_mean real output tokens of the replies
""",
    ),
    Table(
        name="comparisons",
        row="a target against the baseline, by measure",
        made="evaluated.targets.compared",
        of=("answers_of_targets", "questions", "evaluations"),
        needs="evaluations",
        columns=_COMPARISONS,
    ),
    Table(
        name="agreement",
        row="a target and a task: the two repeats compared",
        made="evaluated.scores.agreement",
        of=("answers_of_targets", "questions"),
        needs="evaluations",
        columns="""
target text! name of the target
task text! jcommonsenseqa, mgsm or proofreading
n int! questions answered in both repeats
same_answer int! questions with the same extracted answer
same_answer_share real! same_answer over n
low real! Clopper-Pearson, 95 %
high real! Clopper-Pearson, 95 %
both_unanswered int! questions without an extracted answer in either repeat; counted as the same
same_text int! questions with the same raw text, byte for byte
same_text_share real! same_text over n
first_difference_median real median number of characters before two texts differ, if they do
""",
    ),
    Table(
        name="proofreading",
        row="(target, repeat, category)",
        made="evaluated.scores.proofreading_outcomes",
        of=("answers_of_targets", "questions"),
        needs="evaluations",
        columns="""
target text! name of the target
repeat int! 1 or 2: everything is asked twice
category text! kind of error, clean, clean-hard, or all-errors, all-clean
n int! sentences answered
exact int! sentences exactly right; a clean sentence: left as it was
fixed_with_extra_edits int! sentences with the error corrected and more changed
unchanged int! sentences with the error left as it was
other_edit int! sentences with another change
unparsable int! replies that are not a single sentence
precision real of character edits
recall real of character edits
f05 real of character edits
edit_distance_mean real changed characters per parsable sentence
form_only int! sentences wrongly changed in punctuation, spaces or width only
format_violations int! replies with a label, quotation marks or further lines
""",
    ),
    Table(
        name="positions",
        row="(target, repeat, place of the choice) of JCommonsenseQA",
        made="evaluated.scores.positions",
        of=("answers_of_targets", "questions"),
        needs="evaluations",
        columns="""
target text! name of the target
repeat int! 1 or 2: everything is asked twice
position int! of the choice, from 0
gold int! questions whose right answer is at this place
correct int! questions of these that were answered right
chosen int! answers that chose this place
chi_square real chosen against gold over all positions of this target and repeat
p real p of that test
""",
    ),
    Table(
        name="under_load",
        row="the same questions asked of a busy and of an idle server",
        made="evaluated.targets.under_load",
        of=("evaluations", "answers", "questions"),
        needs="evaluations",
        columns=_COMPARISONS,
    ),
)

SCHEMAS: Mapping[str, pa.Schema] = {table.name: schema(table.columns) for table in TABLES}
# The columns that describe a setting, in every table of settings.
SETTING = tuple(schema(_SETTING).names)


def tables_of(plan: Plan) -> list[Table]:
    """List the tables that an experiment has, each after those it is made from."""
    return [table for table in TABLES if table.needs is None or getattr(plan, table.needs)]
