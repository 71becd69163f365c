"""The tables of the evaluations: every column with its meaning. Shares are 0 to 1, differences in points.

Null means that nothing was measured, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from servebench import schema
from servebench.tasks.task import OUTCOMES

# Of a question that got no reply, or an error; it counts as not answered.
FAILED = "failed"

_SCHEMAS: dict[str, pa.Schema] = {
    "answers": schema.schema(
        f"""
target text! engine and model file that answered
task text! jcommonsenseqa, mgsm or proofreading
repeat int! 1 or 2: everything is asked twice
question_id text! as in the data file
text text content of the message, raw; null when it was null
reasoning text what the server put beside the content
extracted text the answer read from the text; null when no rule found one
rule text the rule that found it
outcome text! {", ".join(OUTCOMES)}; or {FAILED}: no reply came
reason text why it failed
correct bool! outcome is correct
tokens int output tokens as the server counts them
finish_reason text as the server gave it
latency_s real from sending to the end of the reply
"""
    ),
    "targets": schema.schema(
        """
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
reason text why it failed
asked int! questions of all tasks and repeats that were to be asked
answered int! of these, with a reply
failures int! of these, with an error or none in time
same_prompts bool the server makes the same token ids of the same questions as the baseline's does
prompt_tokens_sha256 text of those ids; null when the server does not say them
chat_template_sha256 text as the server gives it
marks texts! reasons not to trust the target's answers, each as kind or kind: evidence
sessions int! launches it took
engine_version text of the last launch, as all below
engine_build text
engine_pin text image digest or hash of the lock
argv texts
model_sha256 text
machine text name of the GPU, or of the CPU when there is none
fingerprint text of the machine
started_at text ISO 8601 UTC
"""
    ),
    "scores": schema.schema(
        """
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
"""
    ),
    "comparisons": schema.schema(
        """
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
    ),
    "agreement": schema.schema(
        """
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
"""
    ),
    "proofreading": schema.schema(
        """
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
"""
    ),
    "positions": schema.schema(
        """
target text!
repeat int!
position int! of the choice, from 0
gold int! questions whose right answer stands there
correct int! of these, answered rightly
chosen int! answers that chose it
chi_square real chosen against gold over all positions of this target and repeat
p real
"""
    ),
}
# The same questions of a busy and of an idle server; the idle one is the baseline.
SCHEMAS: Mapping[str, pa.Schema] = {**_SCHEMAS, "under_load": _SCHEMAS["comparisons"]}


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as the table called `name`, as `schema.table`."""
    return schema.table(name, SCHEMAS[name], rows)


def check(name: str, content: pa.Table) -> pa.Table:
    """The table itself, as `schema.check`."""
    return schema.check(name, SCHEMAS[name], content)
