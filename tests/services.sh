# What tests/slurm and tests/container share: services started and stopped by pid files in $STATE.

fail() {
    echo "$0: $1" >&2
    exit 1
}

running() { # pid file
    [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null
}

within() { # seconds command...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}

start() { # name command... : in a session of its own, its output in a log, its pid in a file
    local name=$1
    shift
    running "$STATE/$name.pid" && return
    setsid "$@" >"$STATE/$name.out" 2>&1 </dev/null &
    echo $! >"$STATE/$name.pid"
}

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
        if kill -KILL "$pid" 2>/dev/null; then echo "$0: $2 ($pid) did not end by SIGTERM" >&2; fi
    fi
    rm -f "$file"
}
