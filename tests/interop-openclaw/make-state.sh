#!/usr/bin/env bash
# Makes a state directory with the real program: a policy, an allowlist and a config, by its own command line.
#
#   make-state.sh NODE OPENCLAW HOME
#
# NODE is the JavaScript runtime, OPENCLAW its `openclaw.mjs`, HOME an empty directory; the state is in
# HOME/.openclaw. Each command is what a user would type.
set -euo pipefail
javascript=$1 openclaw=$2 home=$3

theirs() { env -i HOME="$home" PATH=/usr/bin:/bin NO_COLOR=1 "$javascript" "$openclaw" "$@"; }
# A key that a version does not have is left out, and said.
configure() { theirs config set "$@" >/dev/null 2>&1 || echo "not in this version: config set $*"; }

theirs exec-policy preset cautious >/dev/null
theirs approvals set --stdin >/dev/null <<'JSON'
{ "version": 1,
  "defaults": { "security": "full", "ask": "always", "askFallback": "full", "autoAllowSkills": true },
  "agents": {
    "main": { "security": "allowlist", "ask": "on-miss", "allowlist": [
      { "pattern": "/usr/bin/git", "argPattern": "^status( |$)" },
      { "pattern": "/usr/bin/make", "argPattern": "^(?!install)" },
      { "pattern": "/usr/bin/touch", "source": "allow-always", "lastUsedAt": 1737150000000, "lastUsedCommand": "touch a" } ] },
    "lab": { "security": "deny" } } }
JSON
theirs approvals allowlist add --agent main /usr/bin/uname >/dev/null
theirs approvals allowlist add --agent '*' '~/Projects/**/bin/rg' >/dev/null
theirs approvals allowlist add --agent '*' head >/dev/null
configure tools.exec.strictInlineEval true
configure tools.exec.safeBins '["cut", "jq", "mytool"]'
configure tools.exec.safeBinTrustedDirs '["/opt/tools/bin"]'
configure tools.exec.timeoutSec 900
configure tools.exec.timeoutSeconds 900
configure tools.exec.backgroundMs 5000
configure tools.exec.pathPrepend '["/opt/tools/bin"]'
configure tools.exec.commandHighlighting true
configure tools.exec.applyPatch.workspaceOnly false
configure tools.deny '["browser", "group:fs"]'
configure agents.defaults.workspace "$home/workspace"
configure agents.list '[{ "id": "main" }, { "id": "lab", "tools": { "exec": { "security": "deny" } } }]'
configure agents.defaults.sandbox.mode off
configure gateway.port 18999
configure gateway.bind loopback
configure gateway.auth.mode token
configure gateway.auth.token fixture-secret-token
configure channels.telegram.botToken 123456:fixture-secret-bot
configure channels.telegram.enabled false
