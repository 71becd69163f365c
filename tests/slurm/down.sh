#!/usr/bin/env bash
# Stops the SLURM that tests/slurm/up.sh started, by its pid files, and nothing else. With --purge it also removes its
# state and its configuration; the Debian packages stay.
set -uo pipefail

STATE=${SLURM_TEST_STATE:-/var/tmp/servebench-slurm}
MARK="# made by tests/slurm/up.sh"

stop() { # name, program it must still be
    local file="$STATE/$1.pid" pid
    [ -s "$file" ] || return 0
    pid=$(cat "$file")
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ]; then
        kill -TERM "$pid"
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        if kill -KILL "$pid" 2>/dev/null; then echo "tests/slurm/down.sh: $2 ($pid) did not end by SIGTERM" >&2; fi
    fi
    rm -f "$file"
}

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
