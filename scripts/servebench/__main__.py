"""Run `python -m servebench VERB …`, as the rules do."""

from servebench.cli.app import main

main()
