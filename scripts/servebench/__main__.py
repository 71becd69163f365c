"""`python -m servebench VERB …`, as the rules call it."""

from servebench.cli import main

main()
