"""Make the tables of the evaluations."""
