#!/usr/bin/env bash
# The other way round: a gateway of this program, with a node and the command line of OpenClaw
# 2026.5.19. Needs npm and the network, so it is no part of the usual tests.
#
#   cargo build && tests/interop-openclaw/gateway.sh [target/debug/interlock]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
port=${INTEROP_PORT:-28790}
proxy_port=$((port + 1))
user=$(id -un)
mkdir -p "$work/own" "$work/theirs/.openclaw" "$work/node" "$work/far"

ours() { env -i HOME="$work/own" PATH=/usr/bin:/bin INTERLOCK_BASE=none "$interlock" --state-dir "$work/state" "$@"; }
ours config set tools.exec.host node 2>"$work/config.log"
ours config set tools.exec.approvalWaitMs 1000 2>>"$work/config.log"
start "$work/gateway.log" env -i HOME="$work/own" PATH=/usr/bin:/bin INTERLOCK_BASE=none \
    "$interlock" --state-dir "$work/state" gateway run --port "$port" --json
await "the gateway" curl -fs "http://127.0.0.1:$port/healthz"
token=$(ours gateway token --new)
agent=$(ours agents token main --json | first token)

# Their command line, told of our gateway in its own config.
theirs() { env -i HOME="$work/theirs" PATH=/usr/bin:/bin NO_COLOR=1 "$javascript" "$openclaw" "$@" 2>&1 || true; }
cat >"$work/theirs/.openclaw/openclaw.json" <<JSON
{ "gateway": { "mode": "remote", "remote": { "url": "ws://127.0.0.1:$port", "token": "$token" } } }
JSON

echo "== their command line: connection and documents"
expect "health" '"ok": true' "$(theirs health --json)"
expect "approvals get" 'security=allowlist, ask=on-miss' "$(theirs approvals get --gateway)"
expect "allowlist add" '/usr/bin/uname' "$(theirs approvals allowlist add --gateway --agent main /usr/bin/uname --json)"
expect "our command line sees it" '/usr/bin/uname' "$(ours approvals get --agent main)"
expect_not "allowlist remove" '/usr/bin/uname' "$(theirs approvals allowlist remove --gateway --agent main /usr/bin/uname --json)"
cat >"$work/document.json" <<'JSON'
{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss", "askFallback": "deny" },
  "agents": { "main": { "allowlist": [ { "pattern": "/usr/bin/whoami" } ] } } }
JSON
expect "approvals set" '/usr/bin/whoami' "$(theirs approvals set --gateway --file "$work/document.json" --json)"
expect "our command line sees that too" '/usr/bin/whoami' "$(ours approvals get --agent main)"
expect "devices list" 'operator.admin' "$(theirs devices list --json)"

echo "== their node, through a proxy: no node is let in without an approval"
start "$work/proxy.log" "$javascript" "$here/proxy.mjs" "$proxy_port" "$port"
node() {
    start "$work/node.log" env -i HOME="$work/node" PATH=/usr/bin:/bin OPENCLAW_GATEWAY_TOKEN="$token" NO_COLOR=1 \
        "$javascript" "$openclaw" node run --host 127.0.0.1 --port "$1" --display-name foreign
}
node "$proxy_port"
waits() { ours devices list --json | grep -q '"requestId"'; }
await "its request" waits
pending=$(theirs devices list --json)
expect "the request is listed" 'not-paired' "$pending"
expect "devices approve" 'Approved' "$(theirs devices approve "$(first requestId <<<"$pending")")"
# It was told to try again, so it is still there.
is_connected() { ours nodes list --json | grep -q '"connected": *true'; }
await "the node to come back by itself" is_connected
echo "ok: it comes in by itself once it is approved"

echo "== its commands"
expect "not yet approved" 'unpaired' "$(theirs nodes status)"
expect "nor used" 'not allowed' "$(theirs nodes invoke --node foreign --command system.which --params '{"bins":["uname"]}')"
request=$(theirs nodes pending --json | first requestId)
expect "nodes approve" '"system.run"' "$(theirs nodes approve "$request" --json)"
expect "nodes status" 'paired · connected' "$(theirs nodes status | tr -s '│\n ' ' ')"
expect "nodes list" 'foreign' "$(theirs nodes list)"
expect "nodes describe" 'system.run.prepare' "$(theirs nodes describe --node foreign)"
expect "nodes rename" 'other' "$(theirs nodes rename --node foreign --name other --json)"
expect "system.which by theirs" '/usr/bin/uname' "$(theirs nodes invoke --node other --command system.which --params '{"bins":["uname"]}')"
expect "system.which by ours" '/usr/bin/uname' "$(ours nodes invoke other system.which --params '{"bins":["uname"]}' 2>&1)"
expect "system.run is for exec" 'use the exec tool' "$(theirs nodes invoke --node other --command system.run --params '{"command":["uname"]}')"
expect "the node's document by theirs" 'exec-approvals.json' "$(theirs approvals get --node other)"
expect "allowlist add on the node by theirs" '/usr/bin/whoami' "$(theirs approvals allowlist add --node other --agent main /usr/bin/whoami --json)"
cat >"$work/node.json" <<'JSON'
{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" },
  "agents": { "main": { "allowlist": [ { "pattern": "/usr/bin/whoami" }, { "pattern": "/usr/bin/uname" } ] } } }
JSON
ours approvals set --node other --file "$work/node.json" >>"$work/config.log" 2>&1
expect "the node's document by ours" '/usr/bin/uname' "$(ours approvals get --node other)"

echo "== runs on their node"
exec_on() { curl -s -H "Authorization: Bearer $agent" "http://127.0.0.1:$port/tools/invoke" -d "{\"tool\":\"exec\",\"args\":$1}"; }
expect "a program by its path" "$user" "$(exec_on '{"command":"/usr/bin/whoami"}')"
expect "by its name" "$user" "$(exec_on '{"command":"whoami"}')"
expect "behind env" "$user" "$(exec_on '{"command":"env /usr/bin/whoami"}')"
expect "two commands" 'Linux' "$(exec_on '{"command":"uname && whoami"}')"
expect "an exit code" '"exitCode":1' "$(exec_on '{"command":"uname --no-such-option"}')"
expect "blocked environment" 'LD_PRELOAD' "$(exec_on '{"command":"uname","env":{"LD_PRELOAD":"x"}}')"
asked=$(exec_on '{"command":"id -un"}')
expect "a miss is asked about here" 'approval-pending' "$asked"
ours approvals approve "$(first approvalId <<<"$asked")" 2>>"$work/config.log" >>"$work/config.log"
told() { ours events --session agent:main:main | grep -q 'Exec finished'; }
await "the end of the approved run" told
expect "the approved run ran" "$user" "$(ours events --session agent:main:main)"
asked=$(exec_on '{"command":"id -gn"}')
ours approvals deny "$(first approvalId <<<"$asked")" 2>>"$work/config.log" >>"$work/config.log"
denied() { ours events --session agent:main:main | grep -q 'Exec denied'; }
await "what was denied to be told" denied
echo "ok: what is denied does not run"
asked=$(exec_on '{"command":"id -u"}')
ours approvals approve --always "$(first approvalId <<<"$asked")" 2>>"$work/config.log" >>"$work/config.log"
kept() { ours approvals get --node other | grep -q '/usr/bin/id'; }
await "an entry on the node" kept
expect "what is always allowed is not asked about again" '"status":"completed"' "$(exec_on '{"command":"id -u"}')"

echo "== a gateway that is started again finds its node"
kill "${pids[0]}"
for _ in $(seq 100); do kill -0 "${pids[0]}" 2>/dev/null || break; sleep 0.1; done
start "$work/gateway.log" env -i HOME="$work/own" PATH=/usr/bin:/bin INTERLOCK_BASE=none \
    "$interlock" --state-dir "$work/state" gateway run --port "$port" --json
await "the gateway" curl -fs "http://127.0.0.1:$port/healthz"
await "the node" is_connected
expect "and it runs" "$user" "$(exec_on '{"command":"whoami"}')"

echo "== a command line from afar, and tokens"
cat >"$work/far.json" <<JSON
{ "gateway": { "mode": "remote", "remote": { "url": "ws://127.0.0.1:$proxy_port", "token": "$token" } } }
JSON
mkdir -p "$work/far/.openclaw" && mv "$work/far.json" "$work/far/.openclaw/openclaw.json"
far() { env -i HOME="$work/far" PATH=/usr/bin:/bin NO_COLOR=1 "$javascript" "$openclaw" "$@" 2>&1 || true; }
expect "it waits for a person" 'pairing required' "$(far approvals get --gateway)"
request=$(theirs devices list --json | first requestId)
expect "who approves it" 'Approved' "$(theirs devices approve "$request")"
expect "then it may" '/usr/bin/whoami' "$(far approvals get --gateway)"
device=$(ours devices list --json | "$javascript" -e '
  const { paired } = JSON.parse(require("fs").readFileSync(0));
  console.log(paired.find((device) => device.roles.includes("node")).deviceId)')
expect "devices revoke" 'revokedAtMs' "$(theirs devices revoke --device "$device" --role node --json)"
expect "it is shown as revoked" '(revoked)' "$(theirs devices list)"
expect "nodes remove" "$device" "$(theirs nodes remove --node other --json)"
expect "devices remove" "$device" "$(theirs devices remove "$device" --json)"
echo "all good"
