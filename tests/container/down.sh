#!/usr/bin/env bash
# Stops the docker and the registry that tests/container/up.sh started, by their pid files, removes its podman's
# containers, and touches nothing else. With --purge it also removes their state; the Debian packages stay.
set -uo pipefail

STATE=${CONTAINER_TEST_STATE:-/var/tmp/servebench-container}
export DOCKER_HOST=unix://$STATE/docker.sock

source "$(dirname "$0")/../services.sh"

if left=$(timeout 20 docker ps --all --quiet 2>/dev/null) && [ -n "$left" ]; then
    echo "$left" | xargs docker rm --force >/dev/null
fi
if [ -d "$STATE/podman" ]; then
    export CONTAINERS_CONF=$STATE/podman/containers.conf CONTAINERS_STORAGE_CONF=$STATE/podman/storage.conf
    timeout 60 podman rm --all --force --time 0 >/dev/null
fi
stop dockerd dockerd
stop registry docker-registry
if [ "${1:-}" = --purge ]; then rm -rf "$STATE"; fi
