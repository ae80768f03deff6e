#!/usr/bin/env bash
# Pairs a node of this program with a gateway of another one, OpenClaw 2026.5.19, and has it run
# commands. Needs npm and the network, so it is no part of the usual tests.
#
#   cargo build && tests/interop-openclaw/run.sh [target/debug/interlock]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
token=interop-token-$$
port=${INTEROP_PORT:-28789}

mkdir -p "$work/home/.openclaw"
cat >"$work/home/.openclaw/openclaw.json" <<JSON
{ "gateway": { "mode": "local", "port": $port, "auth": { "mode": "token", "token": "$token" } } }
JSON
start "$work/gateway.log" env -i HOME="$work/home" PATH="$PATH" INTERLOCK_BASE=none \
    "$javascript" "$openclaw" gateway run --port "$port" --bind loopback --auth token --token "$token"
await "the gateway" curl -fs "http://127.0.0.1:$port/healthz"

# The node: two programs are allowed, no approver is asked.
node_command() { env -i HOME="$work/home" PATH="/usr/bin:/bin" INTERLOCK_BASE=none "$interlock" --state-dir "$work/state" "$@"; }
node_command approvals set --stdin <<'JSON'
{ "version": 1, "defaults": { "security": "allowlist", "ask": "off" },
  "agents": { "*": { "allowlist": [ { "pattern": "/usr/bin/whoami" }, { "pattern": "/usr/bin/uname" } ] } } }
JSON
start "$work/node.log" env -i HOME="$work/home" PATH="/usr/bin:/bin" INTERLOCK_BASE=none OPENCLAW_GATEWAY_TOKEN="$token" \
    "$interlock" --state-dir "$work/state" node run --host 127.0.0.1 --port "$port" --display-name interop
is_connected() { node_command node status --json | grep -q '"standing": *"connected"'; }
await "the node" is_connected
echo "ok: connected and signed"

call() { "$javascript" "$here/call.mjs" "$port" "$token" "$1" "$2"; }
request=
for _ in $(seq 20); do
    request=$(call node.pair.list '{}' | first requestId) || true
    [ -n "$request" ] && break
    sleep 0.5
done
[ -n "$request" ] || fail "no request to pair the node"
call node.pair.approve "{\"requestId\":\"$request\"}" >"$work/approve.log" 2>&1 || fail "approve"
echo "ok: commands approved"

device=$(first deviceId <"$work/state/identity/device.json")
invoke() { call node.invoke "{\"nodeId\":\"$device\",\"command\":\"$1\",\"params\":$2,\"idempotencyKey\":\"$RANDOM$RANDOM\"}" 2>&1 || true; }
user=$(id -un)
expect "system.which" '/uname' "$(invoke system.which '{"bins":["uname"]}')"
expect "a program by its path" "$user" "$(invoke system.run '{"command":["/bin/sh","-lc","/usr/bin/whoami"],"rawCommand":"/usr/bin/whoami"}')"
expect "behind env" "$user" "$(invoke system.run '{"command":["/bin/sh","-lc","env /usr/bin/whoami"]}')"
expect "two commands" "Linux" "$(invoke system.run '{"command":["/bin/sh","-lc","uname && whoami"]}')"
expect "prepare" '"commandPreview":"/usr/bin/whoami"' "$(invoke system.run.prepare '{"command":["/bin/sh","-lc","/usr/bin/whoami"],"rawCommand":"/usr/bin/whoami"}')"
expect "a miss is denied" "SYSTEM_RUN_DENIED: allowlist miss" "$(invoke system.run '{"command":["/bin/sh","-lc","id"]}')"
expect "blocked environment" "blocked override keys: LD_PRELOAD" "$(invoke system.run '{"command":["uname"],"env":{"LD_PRELOAD":"x"}}')"
expect "the document" '/usr/bin/whoami' "$(call exec.approvals.node.get "{\"nodeId\":\"$device\"}" 2>&1 || true)"

# With a question: the plan that the node prepared comes back with the approval.
node_command exec-policy set --ask on-miss --security allowlist >/dev/null
prepared=$(invoke system.run.prepare '{"command":["/bin/sh","-lc","id -un"],"rawCommand":"id -un","agentId":"main"}')
plan=$(printf '%s' "$prepared" | "$javascript" -e 'console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0)).payload.plan))')
ask="{\"id\":\"interop-approval\",\"systemRunPlan\":$plan,\"nodeId\":\"$device\",\"host\":\"node\",\"agentId\":\"main\",\"timeoutMs\":60000}"
run_approved() { invoke system.run "{\"command\":[\"/bin/sh\",\"-lc\",\"id -un\"],\"rawCommand\":\"id -un\",\"agentId\":\"main\",\"runId\":\"interop-approval\",\"approved\":true,\"approvalDecision\":\"allow-once\"}"; }
decided=$("$javascript" "$here/approve.mjs" "$port" "$token" "$ask" 2>&1 || true)
expect "decided" '"decision":"allow-once"' "$decided"
expect "an approved plan runs" "$user" "$(run_approved)"
expect "and only once" "approval required" "$(run_approved)"
echo "all good"
