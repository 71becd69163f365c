"""The machine underneath: locks, parents that die, cache, CPUs, GPUs, sampling, identity."""
