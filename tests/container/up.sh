#!/usr/bin/env bash
# A real docker on one Debian machine, for tests/engine/test_real_containers.py: a daemon of its own, a registry on
# 127.0.0.1:5000, and in it an image of llama.cpp's server, made of this machine's python3 and of the wheel. With --podman
# also a podman that keeps everything in a folder of its own.
#
#   tests/container/up.sh PYTHON [--podman]    PYTHON: of the environment envs/llama-cpp.lock makes
#   tests/container/down.sh                    stops what this started
#
# Needs root. Installs docker, the registry and podman from Debian if need be. A second call finds everything running and
# changes nothing. Prints the variables that the tests need: DOCKER_HOST, IMAGE (repository@digest), CONTAINERS_...
set -euo pipefail

STATE=${CONTAINER_TEST_STATE:-/var/tmp/servebench-container}
SOCKET=$STATE/docker.sock
REGISTRY=127.0.0.1:5000
PYTHON=$1
HERE=$(cd "$(dirname "$0")/../.." && pwd)

source "$(dirname "$0")/../services.sh"

install() {
    for program in dockerd docker-registry; do
        if ! command -v $program >/dev/null; then
            export DEBIAN_FRONTEND=noninteractive
            apt-get update -qq
            apt-get install -y -qq --no-install-recommends docker.io docker-registry >/dev/null
            return
        fi
    done
}

copied() { # root, then what ends up in it: programs and libraries with all that they load
    local root=$1
    shift
    { printf '%s\n' "$@"; ldd "$@" 2>/dev/null | grep -o '/[^ :]*' ; } | sort -u | while read -r file; do
        [ ! -e "$file" ] || cp -L --parents "$file" "$root"
    done
}

image() { # a minimal root: python3, its library, the wheel, and llama_wheel.py as the entry point
    local root packages python library
    root=$(mktemp -d "$STATE/root.XXXX")
    packages=$("$PYTHON" -c 'import pathlib, xllamacpp; print(pathlib.Path(xllamacpp.__file__).parent)')
    python=$(readlink -f /usr/bin/python3)
    mkdir -p "$root"/{app,tmp,usr/bin,usr/lib/python3/dist-packages,proc,dev,models}
    library=$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    cp -r --parents "$library" "$root"
    cp -r "$packages" "$root/usr/lib/python3/dist-packages/"
    [ ! -e "$packages.libs" ] || cp -r "$packages.libs" "$root/usr/lib/python3/dist-packages/"
    copied "$root" "$python" /lib64/ld-linux-x86-64.so.2 "$library"/lib-dynload/*.so "$packages"/*.so
    ln -sf "$(basename "$python")" "$root/usr/bin/python3"
    { echo '#!/usr/bin/python3'; cat "$HERE/scripts/servebench/engines/llama_wheel.py"; } >"$root/app/llama-server"
    chmod 755 "$root/app/llama-server"
    chmod 1777 "$root/tmp"
    tar -C "$root" -c . | docker import --change 'ENTRYPOINT ["/app/llama-server"]' - $REGISTRY/llama-cpp:wheel
    rm -rf "$root"
    docker push --quiet $REGISTRY/llama-cpp:wheel
}

podman_up() { # files of podman's settings, in $STATE/podman
    if ! command -v podman catatonit >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends podman catatonit >/dev/null
    fi
    mkdir -p "$STATE/podman"
    # Below the limits of this machine: root in a virtual machine may not be allowed to raise them, as podman else does.
    # runc: crun 1.8 refuses machines that have both kinds of control groups.
    cat >"$STATE/podman/containers.conf" <<END
[containers]
default_ulimits = ["nofile=8192:8192", "nproc=8192:8192"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
END
    printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' \
        "$STATE/podman/data" "$STATE/podman/run" >"$STATE/podman/storage.conf"
    printf '[[registry]]\nlocation = "%s"\ninsecure = true\n' $REGISTRY >"$STATE/podman/registries.conf"
}

version() { # python
    "$1" -c 'import sys; print(*sys.version_info[:2], sep=".")'
}

[ "$(id -u)" = 0 ] || fail "needs root"
[ "$(version "$PYTHON")" = "$(version /usr/bin/python3)" ] || fail "the wheel is not for /usr/bin/python3"
mkdir -p "$STATE"
exec 3>&1 >&2
install
export DOCKER_HOST=unix://$SOCKET
start dockerd dockerd --data-root "$STATE/data" --exec-root "$STATE/exec" --pidfile "$STATE/docker.pid" --host "$DOCKER_HOST"
cat >"$STATE/registry.yml" <<END
version: 0.1
storage: {filesystem: {rootdirectory: $STATE/registry}}
http: {addr: "$REGISTRY"}
END
start registry docker-registry serve "$STATE/registry.yml"
within 60 docker version || fail "docker does not answer; see $STATE/dockerd.out"
within 20 python3 -c "import urllib.request; urllib.request.urlopen('http://$REGISTRY/v2/')" ||
    fail "the registry does not answer; see $STATE/registry.out"
docker image inspect $REGISTRY/llama-cpp:wheel >/dev/null 2>&1 || image
echo "DOCKER_HOST=$DOCKER_HOST" >&3
[ "${2:-}" != --podman ] || podman_up
echo "CONTAINERS_CONF=$STATE/podman/containers.conf" >&3
echo "CONTAINERS_STORAGE_CONF=$STATE/podman/storage.conf" >&3
echo "CONTAINERS_REGISTRIES_CONF=$STATE/podman/registries.conf" >&3
echo "IMAGE=$(docker image inspect --format '{{index .RepoDigests 0}}' $REGISTRY/llama-cpp:wheel)" >&3
