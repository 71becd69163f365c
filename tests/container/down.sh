#!/usr/bin/env bash
# Stops the docker and the registry that tests/container/up.sh started, by their pid files, and nothing else. With
# --purge it also removes their state; the Debian packages stay.
set -uo pipefail

STATE=${CONTAINER_TEST_STATE:-/var/tmp/servebench-container}
export DOCKER_HOST=unix://$STATE/docker.sock

stop() { # name, program it must still be
    local file="$STATE/$1.pid" pid
    [ -s "$file" ] || return 0
    pid=$(cat "$file")
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ]; then
        kill -TERM "$pid"
        for _ in $(seq 200); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        if kill -KILL "$pid" 2>/dev/null; then echo "tests/container/down.sh: $2 ($pid) did not end by SIGTERM" >&2; fi
    fi
    rm -f "$file"
}

if left=$(timeout 20 docker ps --all --quiet 2>/dev/null) && [ -n "$left" ]; then
    echo "$left" | xargs docker rm --force >/dev/null
fi
stop dockerd dockerd
stop registry docker-registry
if [ "${1:-}" = --purge ]; then rm -rf "$STATE"; fi
