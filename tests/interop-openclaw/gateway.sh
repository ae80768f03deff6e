#!/usr/bin/env bash
# The other way round: a gateway of this program, with nodes and the command lines of OpenClaw 2026.5.19 and 2026.9.6. Needs npm and
# the network, so it is no part of the usual tests.
#
#   cargo build && tests/interop-openclaw/gateway.sh [target/debug/interlock]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
port=$(free_port)
proxy_port=$(free_port)

ours() { env -i HOME="$base/own" PATH=/usr/bin:/bin INTERLOCK_BASE=none "$interlock" --state-dir "$base/state" "$@"; }
quietly() { "$@" >>"$work/config.log" 2>&1; }
theirs() { env -i HOME="$base/theirs" PATH=/usr/bin:/bin NO_COLOR=1 "$javascript" "$openclaw" "$@" 2>&1 || true; }
far() { env -i HOME="$base/far" PATH=/usr/bin:/bin NO_COLOR=1 "$javascript" "$openclaw" "$@" 2>&1 || true; }
exec_on() { curl -s -H "Authorization: Bearer $agent" "http://127.0.0.1:$port/tools/invoke" -d "{\"tool\":\"exec\",\"args\":$1}"; }
run() { exec_on "{\"command\":\"$1\",\"workdir\":\"$place\"}"; }
is_connected() { ours nodes list --json | grep -q '"connected": *true'; }
is_newer() { [ "$version" != 2026.5.19 ]; }

start_gateway() {
    start "$work/gateway-$version.log" env -i HOME="$base/own" PATH=/usr/bin:/bin INTERLOCK_BASE=none \
        "$interlock" --state-dir "$base/state" gateway run --port "$port" --json
    gateway_pid=$started
    await "the gateway" curl -fs "http://127.0.0.1:$port/healthz"
}

# A gateway with an empty state, and their command line with a config that names it.
gateway() {
    base=$work/$version
    mkdir -p "$base/own" "$base/theirs/.openclaw" "$base/far/.openclaw"
    chmod 755 "$base"
    quietly ours config set tools.exec.host node
    quietly ours config set tools.exec.approvalWaitMs 1000
    start_gateway
    token=$(ours gateway token --new)
    agent=$(ours agents token main --json | first token)
    cat >"$base/theirs/.openclaw/openclaw.json" <<JSON
{ "gateway": { "mode": "remote", "remote": { "url": "ws://127.0.0.1:$port", "token": "$token" } } }
JSON
    cat >"$base/far/.openclaw/openclaw.json" <<JSON
{ "gateway": { "mode": "remote", "remote": { "url": "ws://127.0.0.1:$proxy_port", "token": "$token" } } }
JSON
}

documents() {
    echo "== $version: their command line: connection and documents"
    expect "health" '"ok": true' "$(theirs health --json)"
    expect "approvals get" 'on-miss' "$(theirs approvals get --gateway --json)"
    expect "allowlist add" '/usr/bin/uname' "$(theirs approvals allowlist add --gateway --agent main /usr/bin/uname --json)"
    expect "our command line sees it" '/usr/bin/uname' "$(ours approvals get --agent main)"
    expect_not "allowlist remove" '/usr/bin/uname' "$(theirs approvals allowlist remove --gateway --agent main /usr/bin/uname --json)"
    cat >"$work/document.json" <<'JSON'
{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss", "askFallback": "deny" },
  "agents": { "main": { "allowlist": [ { "pattern": "/usr/bin/whoami" } ] } } }
JSON
    expect "approvals set" '/usr/bin/whoami' "$(theirs approvals set --gateway --file "$work/document.json" --json)"
    expect "our command line sees that too" '/usr/bin/whoami' "$(ours approvals get --agent main)"
    # The newer one has no device of its own on the same machine.
    is_newer || expect "devices list" 'operator.admin' "$(theirs devices list --json)"
}

# Their node, under an account: node PORT
node() {
    become "$account"
    home=$base/node-$account
    place=$home/work
    log=$work/node-$version-$account.log
    own "$account" "$home" "$place"
    start "$log" "${as[@]}" env -i HOME="$home" PATH=/usr/bin:/bin OPENCLAW_GATEWAY_TOKEN="$token" NO_COLOR=1 \
        "$javascript" "$openclaw" node run --host 127.0.0.1 --port "$1" --display-name "foreign-$account"
    node_pid=$started
}

waits() { ours devices list --json | grep -q '"requestId"'; }
pair_through_proxy() {
    echo "== $version: their node, through a proxy: no node is let in without an approval"
    start "$work/proxy.log" "$javascript" "$here/proxy.mjs" "$proxy_port" "$port"
    proxy_pid=$started
    node "$proxy_port"
    await "its request" waits
    local pending
    pending=$(theirs devices list --json)
    expect "the request is listed" 'requestId' "$pending"
    expect "devices approve" 'Approved' "$(theirs devices approve "$(first requestId <<<"$pending")")"
    # It was told to try again, so it is still there.
    await "the node to come back by itself" is_connected
    echo "ok: it comes in by itself once it is approved"
}

commands_of_node() {
    local request
    echo "== $version: its commands"
    expect "not yet used" 'not allowed' "$(theirs nodes invoke --node "$name" --command system.which --params '{"bins":["uname"]}')"
    request=$(theirs nodes pending --json | first requestId)
    expect "nodes approve" '"system.run"' "$(theirs nodes approve "$request" --json)"
    expect "nodes status" 'connected' "$(theirs nodes status | tr -s '│\n ' ' ')"
    expect "nodes list" "$name" "$(theirs nodes list --json)"
    expect "nodes describe" 'system.run.prepare' "$(theirs nodes describe --node "$name" --json)"
    expect "nodes rename" 'other' "$(theirs nodes rename --node "$name" --name other --json)"
    expect "system.which by theirs" '/usr/bin/uname' "$(theirs nodes invoke --node other --command system.which --params '{"bins":["uname"]}')"
    expect "system.which by ours" '/usr/bin/uname' "$(ours nodes invoke other system.which --params '{"bins":["uname"]}' 2>&1)"
    expect "system.run is for exec" 'use the exec tool' "$(theirs nodes invoke --node other --command system.run --params '{"command":["uname"]}')"
    expect "the node's document by theirs" '"file"' "$(theirs approvals get --node other --json)"
    expect "allowlist add on the node by theirs" '/usr/bin/whoami' "$(theirs approvals allowlist add --node other --agent main /usr/bin/whoami --json)"
}

# What the node allows, and the name that the gateway has for it.
allow_on_node() {
    cat >"$work/node.json" <<'JSON'
{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" },
  "agents": { "main": { "allowlist": [ { "pattern": "/usr/bin/whoami" }, { "pattern": "/usr/bin/uname" }, { "pattern": "/usr/bin/sleep" }, { "pattern": "/usr/bin/printenv" } ] } } }
JSON
    quietly ours approvals set --node "$name" --file "$work/node.json"
    expect "the node's document by ours" '/usr/bin/uname' "$(ours approvals get --node "$name")"
}

told() { ours events --session agent:main:main | grep -q "$1"; }
# The approval of the call that was made last, and whose answer is in `asked`.
approval() { first approvalId <<<"$asked"; }
wait_for_file() { await "$1 to be made" test -e "$place/$1"; }

runs() {
    echo "== $version: the seed's five commands on their node, as $account"
    expect "a program by its path" "$account" "$(run /usr/bin/whoami)"
    expect "behind env" "$account" "$(run 'env /usr/bin/whoami')"
    expect "by its name" "$account" "$(run whoami)"
    # A newer node makes no plan of these two; it runs them, since it allows them by itself.
    expect "two commands" 'Linux' "$(run 'uname && whoami')"
    expect "a pipe" 'Linux' "$(run 'uname | head -n 1')"
    expect "an exit code" '"exitCode":1' "$(run 'uname --no-such-option')"
    expect "blocked environment" 'LD_PRELOAD' "$(exec_on '{"command":"uname","env":{"LD_PRELOAD":"x"}}')"

    echo "== $version: approvals on their node, as $account"
    asked=$(run '/usr/bin/touch once')
    expect "a program by its path is asked about here" 'approval-pending' "$asked"
    quietly ours approvals approve "$(approval)"
    wait_for_file once
    echo "ok: what the seed's defect refused to root runs"
    asked=$(run 'touch denied')
    quietly ours approvals deny "$(approval)"
    await "what was denied to be told" told 'Exec denied'
    [ ! -e "$place/denied" ] || fail "what was denied ran"
    echo "ok: what is denied does not run"
    asked=$(run 'touch always')
    quietly ours approvals approve --always "$(approval)"
    wait_for_file always
    rm -f "$place/always"
    expect "what is always allowed is not asked about again" '"status":"completed"' "$(run 'touch always')"
    [ -e "$place/always" ] || fail "what is always allowed did not run"
    "${as[@]}" sh -c "echo 'touch ran' >'$place/script.sh'"
    asked=$(run 'sh script.sh')
    expect "a script is asked about" 'approval-pending' "$asked"
    "${as[@]}" sh -c "echo 'touch changed' >'$place/script.sh'"
    quietly ours approvals approve "$(approval)"
    await "the refusal to be told" told 'invoke-failed\|SYSTEM_RUN_DENIED\|script operand changed'
    [ ! -e "$place/ran" ] && [ ! -e "$place/changed" ] || fail "a script ran that was changed since it was shown"
    echo "ok: a script that was changed since it was shown does not run"

    echo "== $version: variables"
    expect "a plain command gets them" 'sky' "$(exec_on '{"command":"printenv COLOR_OF","env":{"COLOR_OF":"sky"}}')"
    expect "shell text does not, and the result says so" 'COLOR_OF' "$(exec_on '{"command":"uname && whoami","env":{"COLOR_OF":"sky"}}')"
}

# What their command line does with approvals of this gateway.
decide_with_theirs() {
    echo "== $version: approvals by their command line"
    # Another program: an older node keeps *always* for all arguments.
    asked=$(run 'mkdir by-theirs')
    local id
    id=$(approval)
    if is_newer; then
        expect "approvals pending" 'mkdir by-theirs' "$(theirs approvals pending)"
        expect "approvals resolve" 'resolved allow-once' "$(theirs approvals resolve "$id" allow-once)"
        wait_for_file by-theirs
        expect "a second decision" 'already resolved' "$(theirs approvals resolve "$id" allow-once)"
        expect "approvals grants" 'grants' "$(theirs approvals grants list --json)"
        asked=$(run 'mkdir denied-by-theirs')
        theirs approvals pending >/dev/null
        expect "approvals resolve deny" 'resolved deny' "$(theirs approvals resolve "$(approval)" deny)"
    else
        # It has no such commands.
        quietly ours approvals approve "$id"
        wait_for_file by-theirs
    fi
}

restart() {
    echo "== $version: a gateway that is started again finds its node"
    stop "$gateway_pid"
    start_gateway
    await "the node" is_connected
    expect "and it runs" "$account" "$(run whoami)"
}

long() {
    echo "== $version: a command of 35 seconds"
    expect "sleep 35" '"exitCode":0' "$(curl -s --max-time 120 -H "Authorization: Bearer $agent" "http://127.0.0.1:$port/tools/invoke" \
        -d '{"tool":"exec","args":{"command":"sleep 35","yieldMs":60000}}')"
}

from_afar() {
    echo "== $version: a command line from afar, and tokens"
    local request device
    if is_newer; then
        # It shows no device, and a token alone opens little to a client from afar.
        expect "it may do nothing" 'missing scope' "$(far approvals get --gateway)"
    else
        expect "it waits for an approver" 'pairing required' "$(far approvals get --gateway)"
        request=$(theirs devices list --json | first requestId)
        expect "it is approved" 'Approved' "$(theirs devices approve "$request")"
        expect "then it may" '/usr/bin/whoami' "$(far approvals get --gateway --json)"
    fi
    device=$(ours devices list --json | "$javascript" -e '
      const { paired } = JSON.parse(require("fs").readFileSync(0));
      console.log(paired.find((device) => device.roles.includes("node")).deviceId)')
    expect "devices revoke" 'revokedAtMs' "$(theirs devices revoke --device "$device" --role node --json)"
    expect "nodes remove" "$device" "$(theirs nodes remove --node "$name" --json)"
    expect "devices remove" "$device" "$(theirs devices remove "$device" --json)"
}

for each in $versions; do
    install "$each"
    gateway
    documents
    for account in $(accounts); do
        name=foreign-$account
        if [ "$account" = "$(id -un)" ]; then
            pair_through_proxy
            commands_of_node
            name=other
            allow_on_node
            runs
            decide_with_theirs
            restart
            [ -n "$is_short" ] || long
            from_afar
            stop "$proxy_pid"
        else
            node "$port"
            await "the node" is_connected
            for _ in $(seq 40); do
                request=$(ours nodes list --json | first nodeId)
                quietly ours nodes approve "$name" && break
                sleep 0.5
            done
            allow_on_node
            runs
        fi
        stop "$node_pid"
    done
    stop "$gateway_pid"
done
echo "all good"
