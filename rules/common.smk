"""The experiment behind all rules: `servebench.workflow` knows every file of it, and what each job takes."""

import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from servebench import workflow as rules_of

# The interpreter that runs this workflow also runs its jobs, whether or not its environment is activated.
shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")

TARGETS = rules_of.load(config, workflow)
LAYOUT = TARGETS.layout
# Says what a job's files are made of, in place of what they were made of.
NEW_SPEC = 'rm -f "$(dirname {output.spec:q})"/* && touch {output.spec:q} && '


wildcard_constraints:
    **TARGETS.wildcards(),
