#!/usr/bin/env bash
# Stops the SLURM that tests/slurm/up.sh started, by its pid files, and nothing else. With --purge it also removes its
# state and its configuration; the Debian packages stay.
set -uo pipefail

STATE=${SLURM_TEST_STATE:-/var/tmp/servebench-slurm}
MARK="# made by tests/slurm/up.sh"

source "$(dirname "$0")/../services.sh"

# Jobs first: a slurmstepd outlives its slurmd.
if [ -s "$STATE/slurmctld.pid" ] && jobs=$(timeout 10 squeue --noheader --format %A) && [ -n "$jobs" ]; then
    echo "$jobs" | xargs scancel
    for _ in $(seq 400); do
        [ -n "$(timeout 10 squeue --noheader --format %A)" ] || break
        sleep 0.1
    done
fi
for file in "$STATE"/slurmd-*.pid; do stop "$(basename "$file" .pid)" slurmd; done
stop slurmctld slurmctld
stop munged munged

if [ "${1:-}" = --purge ]; then
    for file in /etc/slurm/slurm.conf /etc/slurm/gres.conf; do
        if grep -qsF "$MARK" "$file"; then rm "$file"; fi
    done
    rm -rf "$STATE"
fi
