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
run text!
setting text!
users int! simulated people
"""
_SETTING = """
run text!
setting text!
rank int! place of the setting in its experiment, from 0
engine text! key in the configuration
engine_kind text! llama-server, ollama, vllm, ...
model text! key in the configuration
model_name text!
quantization text
slots int! requests the server works on at once
context int tokens a request may use
"""
# Figures of one measurement (docs/figures.md); `settings` holds the smaller and larger of the rounds of each.
_FIGURES = """
output_tok_s real tokens that arrived in the window over its length, all users together
user_tok_s real median speed of one stream, from its first chunk to its last
ttft_p50_s real time to the first token, over the successful target requests
ttft_p95_s real
ttft_p95_all_s real over all target requests, a failure being an endless wait; null when the rank falls on one
target_requests int requests sent (open loop: due) in the window
failures int those of them that failed
reasoning_replies int replies with reasoning in them
prompt_tokens_p50 real
output_tokens_mean real
client_cpu_ratio real CPU seconds per second of the busiest load process
requests_s real successful target requests over the window
ttft_mean_s real
ttft_p99_s real
ttft_answer_p95_s real to the first token that is not reasoning
one_chunk_requests int successful targets that came in one chunk and so have no speed
steadiness real tokens of the window's second half over those of its first
in_flight_mean real requests between sending and end, averaged over the window
goodput_requests_s real requests that met the line each on its own
cached_share real of the prompt tokens, those from the server's cache
prefill_p50_s real the server's own time for the prompt
queue_wait_p50_s real TTFT less that
send_delay_p99_s real sent after it was due
inter_chunk_p50_s real gaps between the chunks of a reply
inter_chunk_p95_s real
inter_chunk_p99_s real
tpot_p50_s real seconds for each output token after the first
tpot_p95_s real
tpot_p99_s real
e2e_p50_s real from sending (or due) to the end of the reply
e2e_p95_s real
e2e_p99_s real
"""
# The rest of them, in `measurements` alone.
_DETAILS = """
failures_http_error int of the target requests, by what failed: an HTTP status that is no success
failures_connect_error int no connection
failures_timeout int not ended in time
failures_idle_timeout int nothing arrived for too long
failures_reset int connection lost in the reply
failures_truncated int ended too early, or is no HTTP that can be read
failures_in_band_error int an error inside the stream
failures_empty int a reply without content
other_failures int failures among requests that are no targets
resent int requests sent twice because a kept-alive connection had died
finished_by_length int target replies that ended at max_tokens
without_done int target replies without the stream's closing word
tokens_from_usage int requests whose tokens the server counted
tokens_from_tokenizer int requests whose tokens the model's tokenizer counted
tokens_from_chunks int requests whose chunks stand for tokens
tokens_per_chunk real
prompt_tokens_mean real
prompt_tokens_min real
prompt_tokens_max real
output_tokens_p50 real
output_tokens_min real
output_tokens_max real
cached_tokens_mean real prompt tokens from the server's cache
ttft_max_s real
ttft_p95_all_infinite bool the rank of ttft_p95_all_s falls on a failure
ttft_answer_p50_s real to the first token that is not reasoning
e2e_mean_s real
backlog_start int open loop, trace: requests due and not over when the window began
backlog_end int open loop, trace: the same when it ended
prefill_p95_s real
queue_wait_p95_s real
goodput_share real of the target requests, those that met the line each on its own
client_loop_lag_p99_s real how late the event loop of a load process was
client_loop_lag_max_s real
send_delay_p50_s real sent after it was due
"""


def _kinds(lines: str) -> Mapping[str, str]:
    return {line.split()[0]: line.split()[1] for line in lines.split("\n")[1:-1]}


FIGURES: Mapping[str, str] = _kinds(_FIGURES)
DETAILS: Mapping[str, str] = _kinds(_DETAILS)
_RANGES = "\n".join(f"{name}_min {kind} over the rounds\n{name}_max {kind}" for name, kind in FIGURES.items())

_COMPARISONS = """
measure text!
target text!
baseline text!
repeat int!
n int! questions that both answered
questions int! questions there are
base_only int! questions of which the measure is true for the baseline only
other_only int! for the target only
difference real! target minus baseline, points
low real! Tango score interval, 95 %, points
high real! Tango score interval, 95 %, points
p real! exact two-sided sign test
p_mid real! the same, mid-p
p_holm real! p after Holm over the targets of this measure and repeat
comparisons int! how many that are
verdict text! difference, none_detected or cannot_be_significant
detectable real smallest true difference found with 80 % power after Holm, points; null: none is
detectable_alone real the same for p < 0.05 without Holm
margin real declared before the run, points
equivalent bool 90 % Tango interval within the margin; null without one
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
cochran_q real do the targets of this measure and repeat differ at all; null: no question does
cochran_p real
"""

TABLES = (
    Table(
        name="measurements",
        row="a measurement: (run, setting, users, round)",
        made="measured.measurements",
        of=("records", "line"),
        columns=_SETTING
        + """
users int! simulated people
round int! from 1
status text! ok or failed
reason marks! why it failed; empty where it did not
"""
        + _FIGURES
        + _DETAILS
        + """
window_s real length of the window
memory_gib real largest memory of the server's processes so far in its session
memory_kind text nvml (GPU) or host
utilisation real how busy the server kept its GPUs, else the CPUs, over the window; null with a sample of it unknown
power_w real of the server's GPUs together, mean over the window; null when a sample of it is unknown
joules_per_token real of the server's GPUs, for each output token of the window
foreign_samples int samples in which others used the device more than runtime.foreign_use allows
foreign_unknown int! samples that do not tell whether others used it
foreign_limit int from so many samples of foreign use on it is not valid: runtime.foreign_use as it was measured
telemetry_samples int! samples there are of the machine
meets_line bool within the line: both limits, no failure, enough target requests
in_time_requests int target requests whose first token came within the line
line_confidence real that the true TTFT p95 is within the line, from in_time_requests
reference_only bool fewer target requests than the line asks for
valid bool nothing speaks against it
invalid_reasons marks! what does (docs/figures.md)
session_id text the launch it belongs to
server_age_s real how long the server had been up
users_before ints numbers of users the server had served before
started_at text ISO 8601 UTC
device text the node and its device the session had for itself
engine_version text
engine_build text
engine_pin text image digest or hash of the lock
argv texts
model_sha256 text
machine text name of the GPU, or of the CPU when there is none
fingerprint text of the machine
servebench_version text
protocol int version of the load protocol
digest text! name in the store
""",
    ),
    Table(
        name="settings",
        row="(run, setting, users), with the smaller and the larger of its rounds",
        made="derived.settings",
        of=("measurements", "rounds"),
        columns=_SETTING
        + """
users int! simulated people
rounds int! rounds with a good measurement
"""
        + _RANGES
        + """
memory_gib_max real
joules_per_token_min real of the server's GPUs, for each output token
joules_per_token_max real
meets_line_both_rounds bool null when a round is missing, failed or discarded
line_confidence_min real
unstable bool some figure changed by 20 % or more between rounds; null with fewer than two
largest_change real largest |ratio - 1| between rounds
reference_only bool fewer target requests than the line asks for, in some round
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
round int!
session_id text!
launched_at text ISO 8601 UTC
device text the node and its device the session had for itself
process_s real cold start: from launch until the process runs
healthy_s real from launch until it says it is healthy
first_token_s real from launch until it has answered with a token
round_trip_p50_s real to a server at a URL: median of small requests on an open connection, before the load
round_trip_min_s real the shortest of them
round_trip_max_s real the longest of them
memory_gib real largest memory of the server's processes
memory_kind text
engine_version text
engine_build text
engine_pin text image digest or hash of the lock
argv texts
env text JSON
cpus int CPUs the server was given
threads int threads the server says it computes with
facts text JSON, what the server says about itself
users ints! numbers of users measured in it
machine text
cores int of the machine
machine_memory_gib real of the machine, beside that of its GPUs
fingerprint text
model_sha256 text
model_size_bytes int
model_fetch_s real its download, before the launch; null where it did not come over a network in one go
log text
""",
    ),
    Table(
        name="expected",
        row="a fact the configuration expects of a server, for each launch",
        made="derived.expected",
        of=("sessions", "plan"),
        columns="""
run text!
setting text!
round int!
session_id text!
what text! name of the fact
published text! what the source's server said of itself
found text what this one says; null when it does not tell
met bool null when it does not tell
""",
    ),
    Table(
        name="unstable",
        row="a pair of rounds in which some figure changed by 20 % or more",
        made="derived.unstable",
        of=("measurements",),
        columns=_PLACE
        + """
figure text! the one that changed most
first real! in the first of the two rounds
second real!
ratio real! second over first
change real! |ratio - 1|; rows are in this order, largest first
target_requests_min int
""",
    ),
    Table(
        name="queueing",
        row="(setting, users) with as many users as slots, or more",
        made="derived.queueing",
        of=("settings",),
        columns=_SETTING
        + """
users int! simulated people
multiple real! users over slots, 1 or more
ttft_p50_s_min real
ttft_p50_s_max real
ttft_p95_s_min real
ttft_p95_s_max real
marks marks! reasons not to trust the row
""",
    ),
    Table(
        name="ratios",
        row="a figure of a setting over that of its baseline, both of the same round",
        made="derived.ratios",
        of=("measurements", "settings", "plan"),
        columns="""
kind text! control, engine, slots, quantization or drift (the same setting in two runs)
run text!
setting text!
baseline_run text!
baseline text!
users int!
figure text!
ratio_min real! over the rounds, each within one round
ratio_max real!
rounds int!
marks marks! reasons not to trust either of the two
""",
    ),
    Table(
        name="slow_requests",
        row="(run, setting, users): those with a TTFT over 1 s, in the run's band of prompt lengths and not",
        made="measured.slow_requests",
        of=("records", "bands"),
        columns=_PLACE
        + """
band_low int prompt tokens, first of the band
band_high int last of the band
band_slow int
band_total int
other_slow int!
other_total int!
""",
    ),
    Table(
        name="slow_by_micro_batch",
        row="the same by engine and micro-batch",
        made="derived.slow_by_micro_batch",
        of=("slow_requests", "sessions"),
        columns="""
run text!
engine_kind text!
micro_batch int! prompt tokens the server takes in one computation
users_most int! of the measurements that are counted
settings texts!
band_slow int!
band_total int!
other_slow int!
other_total int!
""",
    ),
    Table(
        name="served",
        row="a request as llama-server's log tells of it",
        made="served.served",
        of=("records",),
        columns=_PLACE
        + """
round int!
task int! the request's number in the server's log
slot int!
started_s real seconds from the server's start to when it got its slot; null in a log without time stamps
busy_slots int! at that moment, its own included
prompt_ms real the prompt's evaluation; null when the request ended before it did
prompt_tokens int newly computed ones, those from a cache not among them
eval_ms real
eval_tokens int
draft_acceptance real share of the speculated tokens that were right
total_tokens int in the slot when it was released
truncated bool
cancelled bool! its client went away
""",
    ),
    Table(
        name="slow_prefills",
        row="(run, setting, users): prompts that took over 1 s on a server with little to do",
        made="served.slow_prefills",
        of=("served", "prefill_bands"),
        columns=_PLACE
        + """
band_low int! newly computed prompt tokens, first of the band
band_high int! last of the band
slow int! evaluated in more than 1 s
total int! requests in the band that started with at most 2 busy slots, their own included
""",
    ),
    Table(
        name="ttft",
        row="a measurement, with the TTFT of each of its target requests",
        made="measured.ttft",
        of=("records",),
        columns=_PLACE
        + """
round int!
ttft_s reals! of the successful target requests, ascending
failures int! target requests without one
""",
    ),
    Table(
        name="timeline",
        row="a second of a window",
        made="measured.timeline",
        of=("records",),
        columns=_PLACE
        + """
round int!
second int! from the start of the window
running real! requests in flight, mean over the second
output_tok_s real! tokens that arrived in the second
foreign_utilisation real largest in the second, percent of the device
""",
    ),
    Table(
        name="telemetry",
        row="a sample of the machine while it is loaded, two a second",
        made="measured.telemetry",
        of=("records",),
        columns=_PLACE
        + """
round int!
second real! of the sample, from the start of the window; negative before it
memory_gib real of the server's processes: on its GPUs, else resident
device_memory_gib real in use by anybody, on its GPUs, else of the machine
utilisation real of the GPUs (mean), else of the CPUs, by the server's processes
foreign_utilisation real of the GPU where it is most, else of the CPUs, by others than server and load generator
device_utilisation real by anybody
power_w real of the GPUs together
clock_mhz int of the slowest GPU
temperature_c int of the hottest GPU
throttle text what slows the clocks of a GPU, joined by commas; empty: nothing
ecc_errors int uncorrected, since the driver was loaded
cpu_throttled_s real so far a quota kept the server from its CPUs, all together
client_cpu_throttled_s real the same of the load generator
host_memory_gib real of the server's processes, beside that of the GPUs
host_foreign_utilisation real of the CPUs by others, beside that of the GPUs
""",
    ),
    Table(
        name="discarded",
        row="a measurement that was thrown out",
        made="measured.discarded",
        of=("thrown_out",),
        columns=_PLACE
        + """
round int!
why text!
discarded_at text! ISO 8601 UTC
started_at text
session_id text
""",
    ),
    Table(
        name="memory",
        row="a setting: device memory, measured and predicted",
        made="derived.memory",
        of=("sessions", "measurements", "caches", "asked_settings"),
        columns=_SETTING
        + """
measured_gib real largest over the sessions
memory_kind text
weights_gib real size of the model file
kv_cache_tokens int room of the KV cache: as the server says, else context times slots
kv_cache_gib real predicted, in the types asked for: of all slots, each with its part of the tokens, within windows
rest_gib real measured less weights less KV cache
request_tokens real prompt and answer: mean over the measurements of median prompt and mean answer
requests_fit int KV cache over the tokens of a request, rounded down; how many slots there are apart
""",
    ),
    Table(
        name="cost",
        row="(run, setting, users), where a price is configured",
        made="derived.cost",
        of=("settings", "price_per_hour"),
        needs="cost",
        columns=_PLACE
        + """
price_per_hour real! USD
usd_per_million_tokens_min real
usd_per_million_tokens_max real
tokens_per_s_per_usd_h_min real output tok/s for each USD an hour
tokens_per_s_per_usd_h_max real
joules_per_token_min real of the server's GPUs, for each output token; null where its power is unknown
joules_per_token_max real
""",
    ),
    Table(
        name="paid_idle",
        row="a setting, where a price is configured: what is paid while nobody is served",
        made="derived.paid_idle",
        of=("sessions", "price_per_hour", "idle_after_min"),
        needs="cost",
        columns="""
run text!
setting text!
price_per_hour real! USD
first_token_s_min real from launch until the first token, over the launches; null at a URL, where nothing is launched
first_token_s_max real
usd_start_min real what that start costs before it serves anybody
usd_start_max real
idle_after_min real as configured: minutes without a request until the machine is given back
usd_idle real what they cost each time
""",
    ),
    Table(
        name="calibration",
        row="a variant of the clock server and a number of users",
        made="measured.calibration",
        of=("records",),
        columns="""
run text!
created_at text ISO 8601 UTC
variant text! schedule of the clock server
users int!
ttft_error_p50_s real by how much the load generator saw the first token too late
ttft_error_p99_s real
arrival_error_p50_s real
arrival_error_p99_s real
delivered_ratio real tokens delivered over tokens an ideal client would have been sent
cpu_ratio real of the busiest load process
max_users int! most users this machine can load truthfully
""",
    ),
    Table(
        name="reproduction",
        row="a cell of the published table, beside ours",
        made="derived.reproduction",
        of=("settings", "published"),
        needs="reference",
        columns=_PLACE
        + """
figure text!
published_min real!
published_max real!
measured_min real
measured_max real
ratio real middle of ours over middle of the published
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
target text!
rank int! place of the target in its experiment, from 0
baseline bool! the one that the others are compared with
engine text! key in the configuration
engine_kind text! llama-server, ollama, vllm, ...
model text! key in the configuration
model_name text!
quantization text
slots int! requests the server works on at once
context int tokens a request may use
concurrency int! questions asked at once
status text! ok; or failed: some questions were never asked
reason marks! why it failed; empty where it did not
asked int! questions of all tasks and repeats that were to be asked
answered int! of these, with a reply
failures int! of these, with an error or none in time
same_prompts bool the server makes the same token ids of the same questions as the baseline's does
prompt_tokens_sha256 text of those ids; null when the server does not say them
chat_template_sha256 text as the server gives it
marks marks! reasons not to trust the target's answers
sessions int! launches it took
engine_version text of the last launch, as all below
engine_build text
engine_pin text image digest or hash of the lock
argv texts
model_sha256 text
machine text name of the GPU, or of the CPU when there is none
fingerprint text of the machine
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
target text!
task text!
measure text! what is counted: see docs/evaluations.md
headline bool! one of the four measures that are compared
lower_is_better bool!
repeat int!
n int! questions answered
questions int! questions there are
count int! questions of which the measure is true
share real! count of n
low real! Clopper-Pearson, 95 %
high real! Clopper-Pearson, 95 %
"""
        + "\n".join(f"{outcome} int! replies that ended so" for outcome in OUTCOMES)
        + """
reasoning_replies int! replies with reasoning in them; none is wanted
simplified_chinese int! replies with characters that only simplified Chinese has
english int! replies with English in them that the question has not
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
        row="a target and a task: the two repeats beside each other",
        made="evaluated.scores.agreement",
        of=("answers_of_targets", "questions"),
        needs="evaluations",
        columns="""
target text!
task text!
n int! questions answered in both repeats
same_answer int! the extracted answer is the same
same_answer_share real!
low real! Clopper-Pearson, 95 %
high real! Clopper-Pearson, 95 %
both_unanswered int! no answer could be read in either repeat; counted as the same
same_text int! the raw text is the same, byte for byte
same_text_share real!
first_difference_median real characters in common before two texts part, where they do
""",
    ),
    Table(
        name="proofreading",
        row="(target, repeat, category)",
        made="evaluated.scores.proofreading_outcomes",
        of=("answers_of_targets", "questions"),
        needs="evaluations",
        columns="""
target text!
repeat int!
category text! kind of error, clean, clean-hard, or all-errors, all-clean
n int! sentences answered
exact int! exactly right; a clean sentence: left as it was
fixed_with_extra_edits int! the error corrected, and more changed
unchanged int! the error left as it was
other_edit int! something else changed
unparsable int! no single sentence came back
precision real of character edits
recall real of character edits
f05 real of character edits
edit_distance_mean real characters changed per sentence that came back
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
target text!
repeat int!
position int! of the choice, from 0
gold int! questions whose right answer stands there
correct int! of these, answered rightly
chosen int! answers that chose it
chi_square real chosen against gold over all positions of this target and repeat
p real
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


def tables_of(plan: Plan) -> list[Table]:
    """List the tables that an experiment has, each after those it is made from."""
    return [table for table in TABLES if table.needs is None or getattr(plan, table.needs)]
