# What the scripts of this directory share. Sourced, with `here` set; sets `interlock` and `work`, and `install` sets
# `version`, `packages`, `javascript` and `openclaw`.
#
# Everything lies in one temporary directory, which is removed. Set INTEROP_DIR to keep the installed packages between
# two runs. INTEROP_VERSIONS says which versions are tried, by default both. INTEROP_SHORT=1 leaves out what takes long, and
# other accounts than the one that runs the script.

interlock=$(realpath "${1:-$here/../../target/debug/interlock}")
work=$(mktemp -d /tmp/interlock-interop-XXXXXX)
# Other accounts go through it.
chmod 755 "$work"
versions=${INTEROP_VERSIONS:-2026.5.19 2026.9.6}
is_short=${INTEROP_SHORT:-}
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

# Ends a process that `start` started, with all that it started.
stop() {
    kill -- "-$1" 2>/dev/null || true
    for _ in $(seq 100); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.1; done
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

# The accounts that commands are tried under: the seed's defect depends on who owns the programs.
accounts() { if [ "$(id -u)" = 0 ] && [ -z "$is_short" ]; then echo root nobody; else id -un; fi; }

# A port that was free a moment ago.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Sets `as`, the words in front of a command that an account runs.
become() { # ACCOUNT
    as=()
    [ "$1" = "$(id -un)" ] || as=(setpriv --reuid "$1" --regid "$(id -g "$1")" --clear-groups)
}

# A directory of an account.
own() { # ACCOUNT DIRECTORY…
    local account=$1
    shift
    mkdir -p "$@"
    [ "$account" = "$(id -un)" ] || chown -R "$account" "$@"
}

install() { # VERSION
    version=$1
    local own=${INTEROP_DIR:-$work/packages}
    case $version in 2026.5.*) packages=$own ;; *) packages=$own-${version%.*} ;; esac
    javascript=$packages/node_modules/node/bin/node
    openclaw=$packages/node_modules/openclaw/openclaw.mjs
    export PACKAGES=$packages
    [ ! -e "$openclaw" ] || return 0
    echo "installing openclaw@$version and node@24"
    mkdir -p "$packages"
    # Its installation wants a JavaScript runtime that the machine may not have.
    (cd "$packages" && npm init -y >/dev/null && npm install --no-audit --no-fund --silent node@24 &&
        PATH="$packages/node_modules/node/bin:$PATH" npm install --no-audit --no-fund --silent "openclaw@$version") \
        >"$work/npm.log" 2>&1 || fail npm
}
