# What the scripts of this directory share. Sourced, with `here` set; sets `interlock`, `work`,
# `packages`, `javascript` and `openclaw`.
#
# Everything lies in one temporary directory, which is removed. Set INTEROP_DIR to keep the
# installed packages between two runs.

interlock=$(realpath "${1:-$here/../../target/debug/interlock}")
work=$(mktemp -d /tmp/interlock-interop-XXXXXX)
packages=${INTEROP_DIR:-$work/packages}
pids=()

finish() {
    # Each leads a session: they start themselves again as other processes, and all of them are to end.
    for pid in "${pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    for log in "$work"/*.log; do echo "--- $log" >&2; tail -20 "$log" >&2; done
    exit 1
}

expect() { # NAME TEXT ANSWER
    case "$3" in *"$2"*) echo "ok: $1" ;; *) fail "$1: wanted $2 in: $3" ;; esac
}

expect_not() { # NAME TEXT ANSWER
    case "$3" in *"$2"*) fail "$1: did not want $2 in: $3" ;; *) echo "ok: $1" ;; esac
}

# A process in a session of its own: start LOG COMMAND…
start() {
    local log=$1
    shift
    setsid "$@" >>"$log" 2>&1 &
    pids+=($!)
    started=$!
}

# Waits until a command succeeds, as long as the last started process lives.
await() { # NAME COMMAND…
    local name=$1
    shift
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        kill -0 "$started" 2>/dev/null || fail "$name: the process ended"
        sleep 0.2
    done
    fail "$name: too late"
}

# The first value of a property in JSON.
first() { grep -o "\"$1\": *\"[^\"]*\"" | head -1 | cut -d'"' -f4; }

if [ ! -e "$packages/node_modules/openclaw" ]; then
    echo "installing openclaw@2026.5.19 and node@24"
    mkdir -p "$packages"
    (cd "$packages" && npm init -y >/dev/null && npm install --no-audit --no-fund node@24 openclaw@2026.5.19 >"$work/npm.log" 2>&1) || fail npm
fi
export PACKAGES=$packages
javascript=$packages/node_modules/node/bin/node
openclaw=$packages/node_modules/openclaw/openclaw.mjs
