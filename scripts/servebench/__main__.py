"""`python -m servebench VERB …`, as the rules call it."""

from servebench.cli.app import main

main()
