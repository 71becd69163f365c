"""What an experiment needs, how long it takes, what it has and what is missing."""
