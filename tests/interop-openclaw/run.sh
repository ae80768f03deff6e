#!/usr/bin/env bash
# A node of this program with a gateway of another one, OpenClaw 2026.5.19 and 2026.9.6, whose own tool `exec` runs commands
# on it. Needs npm and the network, so it is no part of the usual tests; `.ci/run` runs a short form where npm is reachable.
#
#   cargo build && tests/interop-openclaw/run.sh [target/debug/interlock]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
token=interop-token-$$
port=$(free_port)

call() { "$javascript" "$here/call.mjs" "$port" "$token" "$1" "$2"; }
invoke() { call node.invoke "{\"nodeId\":\"$device\",\"command\":\"$1\",\"params\":$2,\"idempotencyKey\":\"$RANDOM$RANDOM\"}" 2>&1 || true; }

# Their tool `exec`, inside of their gateway: run COMMAND [SECURITY ASK]
run() {
    curl -s --max-time 120 --unix-socket "$work/$version.sock" http://gateway/ -d "{\"options\":{\"host\":\"node\",\"node\":\"$name\",
        \"security\":\"${2:-allowlist}\",\"ask\":\"${3:-on-miss}\",\"agentId\":\"main\",\"sessionKey\":\"agent:main:main\"},
        \"args\":{\"command\":\"$1\",\"host\":\"node\",\"workdir\":\"$place\"}}"
}

# The same while an approver watches, who decides; sets `answer`: with_approver DECISION COMMAND [WHAT TO DO BEFORE…]
with_approver() {
    local decision=$1 command=$2 ready=$work/ready-$RANDOM$RANDOM decided
    shift 2
    "$javascript" "$here/decide.mjs" "$port" "$token" "$ready" "$decision" "$@" >"$work/decided" 2>&1 &
    decided=$!
    until [ -e "$ready" ]; do sleep 0.05; done
    answer=$(run "$command")
    wait "$decided" || fail "$command: $(cat "$work/decided"); $answer"
    expect "an approver was asked: $command" '"answer":{"ok":true' "$(cat "$work/decided")"
}

gateway() {
    local home=$work/home-$version
    mkdir -p "$home/.openclaw"
    cat >"$home/.openclaw/openclaw.json" <<JSON
{ "gateway": { "mode": "local", "port": $port, "auth": { "mode": "token", "token": "$token" } } }
JSON
    start "$work/gateway-$version.log" env -i HOME="$home" PATH="$PATH" NODE_OPTIONS="--import=$here/inside.mjs" \
        EXEC_SOCKET="$work/$version.sock" EXEC_PORT="$port" EXEC_DIST="$(dirname "$openclaw")/dist" \
        "$javascript" "$openclaw" gateway run --port "$port" --bind loopback --auth token --token "$token"
    gateway_pid=$started
    await "the gateway" curl -fs "http://127.0.0.1:$port/healthz"
    await "its tool" test -S "$work/$version.sock"
}

node_command() {
    "${as[@]}" env -i HOME="$home" PATH=/usr/bin:/bin INTERLOCK_BASE=none "$interlock" --state-dir "$home/state" "$@"
}
is_connected() { node_command node status --json | grep -q '"standing": *"connected"'; }

# The node of an account: three programs are allowed, others are asked about.
node() {
    become "$account"
    home=$work/$version-$account
    place=$home/work
    name=interop-$account
    log=$work/node-$version-$account.log
    own "$account" "$home" "$place"
    node_command approvals set --stdin >>"$log" 2>&1 <<'JSON'
{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" },
  "agents": { "*": { "allowlist": [ { "pattern": "/usr/bin/whoami" }, { "pattern": "/usr/bin/uname" }, { "pattern": "/usr/bin/sleep" } ] } } }
JSON
    start "$log" "${as[@]}" env -i HOME="$home" PATH=/usr/bin:/bin INTERLOCK_BASE=none OPENCLAW_GATEWAY_TOKEN="$token" \
        "$interlock" --state-dir "$home/state" node run --host 127.0.0.1 --port "$port" --display-name "$name"
    node_pid=$started
    await "the node" is_connected
    echo "ok: connected and signed"
    local request=
    for _ in $(seq 40); do
        request=$(call node.pair.list '{}' | first requestId) || true
        [ -z "$request" ] || break
        sleep 0.5
    done
    [ -n "$request" ] || fail "no request to pair the node"
    call node.pair.approve "{\"requestId\":\"$request\"}" >"$work/approve.log" 2>&1 || fail "approve"
    device=$(first deviceId <"$home/state/identity/device.json")
}

# What an older gateway lets run is awaited: its answer came before.
made() { await "$1 to be made" test -e "$place/$1"; }
# Such a file is not made; by then the node has refused.
refused() { await "the refusal" grep -q "$1" "$log"; }

commands() {
    local user=$account second
    echo "== $version: the seed's five commands, by their tool, as $account"
    expect "by its path" "$user" "$(run /usr/bin/whoami)"
    expect "behind env" "$user" "$(run 'env /usr/bin/whoami')"
    expect "by its name" "$user" "$(run whoami)"
    expect "two commands" "Linux" "$(run 'uname && whoami')"
    expect "a pipe" "Linux" "$(run 'uname | head -n 1')"

    echo "== $version: approvals, as $account"
    with_approver allow-once 'touch once'
    made once
    with_approver deny 'touch denied'
    [ ! -e "$place/denied" ] || fail "what was denied ran"
    with_approver allow-always 'touch always'
    expect "always is offered" '"allow-always"' "$(cat "$work/decided")"
    made always
    rm -f "$place/always"
    second=$(run 'touch always')
    expect "what is always allowed is not asked about again" '"status":"completed"' "$second"
    [ -e "$place/always" ] || fail "what is always allowed did not run"
    # Other arguments are another question.
    with_approver deny 'touch other'
    [ ! -e "$place/other" ] || fail "what was denied ran"
    "${as[@]}" sh -c "echo 'touch ran' >'$place/script.sh'"
    with_approver allow-once 'sh script.sh' sh -c "echo 'touch changed' >'$place/script.sh'"
    refused 'APPROVAL_DRIFT'
    [ ! -e "$place/ran" ] && [ ! -e "$place/changed" ] || fail "a script ran that was changed since it was shown"
    [ "$version" = 2026.5.19 ] || expect "a newer gateway knows that it did not run" 'denied before execution' "$answer"
    echo "ok: a script that was changed since it was shown does not run"
}

# By the words of the protocol, without their tool.
protocol() {
    echo "== $version: the protocol"
    expect "system.which" '/uname' "$(invoke system.which '{"bins":["uname"]}')"
    expect "blocked environment" "blocked override keys: LD_PRELOAD" "$(invoke system.run '{"command":["uname"],"env":{"LD_PRELOAD":"x"}}')"
    expect "without an approval" "SYSTEM_RUN_DENIED: approval required" "$(invoke system.run '{"command":["/bin/sh","-lc","id"]}')"
    expect "the code of a denial" '"code":"SYSTEM_RUN_DENIED"' "$(invoke system.run '{"command":["/bin/sh","-lc","id"]}')"
    expect "the document" '/usr/bin/whoami' "$(call exec.approvals.node.get "{\"nodeId\":\"$device\"}" 2>&1 || true)"
    node_command exec-policy set --security allowlist --ask off >>"$log" 2>&1
    expect "no approver is asked in vain" "allowlist miss" "$(run 'id -gn')"
    node_command exec-policy set --security allowlist --ask on-miss >>"$log" 2>&1
}

# A run for which no approver of the gateway was asked: the operator of the node decides, where a companion program listens.
operator() {
    local command="{\"command\":[\"/bin/sh\",\"-lc\",\"touch by-operator\"],\"cwd\":\"$place\"}"
    echo "== $version: the operator of the node"
    expect "without one nothing runs" "approval required" "$(invoke system.run "$command")"
    start "$work/watch.log" "${as[@]}" env -i HOME="$home" PATH=/usr/bin:/bin TERM=xterm INTERLOCK_BASE=none \
        script -qfc "'$interlock' --state-dir '$home/state' approvals watch" /dev/null
    local watch=$started
    await "the companion" test -S "$home/state/exec-approvals.sock"
    invoke system.run "$command" >"$work/operator" 2>&1 &
    local running=$!
    waits() { node_command approvals pending --json | grep -q by-operator; }
    await "the operator to be asked" waits
    node_command approvals approve "$(node_command approvals pending --json | first id)" >>"$log" 2>&1
    wait "$running" || true
    expect "what the operator of the node allows runs" '"success":true' "$(cat "$work/operator")"
    made by-operator
    stop "$watch"
}

long() {
    echo "== $version: a command of 35 seconds"
    case $version in
        # The gateway gives up after 30 seconds, whichever node it has.
        2026.5.*) expect "sleep 35" 'timed out' "$(run 'sleep 35')" ;;
        *) expect "sleep 35" '"exitCode":0' "$(run 'sleep 35')" ;;
    esac
}

for each in $versions; do
    install "$each"
    gateway
    for account in $(accounts); do
        node
        commands
        if [ "$account" = "$(id -un)" ]; then
            protocol
            operator
            [ -n "$is_short" ] || long
        fi
        stop "$node_pid"
    done
    stop "$gateway_pid"
done
echo "all good"
