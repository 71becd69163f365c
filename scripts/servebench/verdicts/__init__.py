"""Turn tables into claims: what may be concluded, once, as data. No sentence is built anywhere else."""
