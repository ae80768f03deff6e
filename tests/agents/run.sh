#!/usr/bin/env bash
# A real agent with interlock as its MCP server: Codex or Claude Code, at a pinned version, driven by
# the scripted model of model.mjs. Needs npm, the network (for npm only) and tmux, so it is no part of
# the usual tests.
#
#   cargo build && tests/agents/run.sh codex|claude-code [target/debug/interlock]
#
# The policy is `cautious`, so the one command that the model calls is asked about. Each run has a
# home, a state directory and a gateway of its own. What is checked each time: how often the command
# ran, and what the agent shows in the end.
#
#   outside       headless; decided by `interlock approvals approve|deny` while the call waits
#   no approver   headless, with `--elicitation`: no approver can see the prompt, and nothing runs by it.
#                 `codex exec` declines every prompt, which is a no. `claude -p` cancels it, which
#                 leaves the question to the other surfaces.
#   too long      headless, with `--elicitation`: both agents would cut the message of a long command and
#                 take an answer all the same, so they are not asked
#   prompt        the agent's terminal interface, with `--elicitation`: a person answers the form there
#
# Set AGENTS_DIR to keep the installed packages between two runs.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
agent=${1:?codex or claude-code}
interlock=$(realpath "${2:-$here/../../target/debug/interlock}")
work=$(mktemp -d /tmp/interlock-agents-XXXXXX)
case $agent in
    codex) package=@openai/codex@0.166.0 program=codex client=codex-mcp-client ;;
    claude-code) package=@anthropic-ai/claude-code@2.1.325 program=claude client=claude-code ;;
    *) echo "unknown: $agent" >&2; exit 2 ;;
esac

# Every process of a run names its directory, be it in its arguments or in its environment.
ours() { grep -lsF "$work" /proc/[0-9]*/cmdline /proc/[0-9]*/environ | cut -d/ -f3 | sort -u | grep -vx "$$" || true; }
finish() {
    for signal in TERM KILL; do
        for pid in $(ours); do kill -s "$signal" "$pid" 2>/dev/null || true; done
        for _ in $(seq 50); do [ -n "$(ours)" ] || break; sleep 0.1; done
    done
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    for log in "$run"/*.log; do echo "--- $log" >&2; tail -30 "$log" >&2; done
    exit 1
}

await() { # NAME COMMAND…: until it succeeds, two minutes at most
    local name=$1 end=$((SECONDS + 120))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "$name: too late"
        sleep 0.2
    done
}

run=$work
packages=${AGENTS_DIR:-$work/packages}/$agent
if [ "$(cat "$packages/installed" 2>/dev/null)" != "$package" ]; then
    echo "installing $package"
    mkdir -p "$packages"
    npm install --prefix "$packages" --no-audit --no-fund node@24.21.0 "$package" >"$work/npm.log" 2>&1 || fail npm
    echo "$package" >"$packages/installed"
fi
bin=$packages/node_modules/.bin

# What goes to other machines by the proxy settings meets a proxy that does not exist. That keeps the
# agents from calling home as far as they heed these; it is no sandbox.
agent() {
    env -i HOME="$run/home" PATH="$bin:/usr/bin:/bin" INTERLOCK_BASE=none TERM=xterm-256color LANG=C.UTF-8 \
        HTTP_PROXY=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 NO_PROXY=127.0.0.1 \
        ANTHROPIC_BASE_URL="http://127.0.0.1:$port" ANTHROPIC_API_KEY=scripted \
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 ENABLE_TOOL_SEARCH=false \
        "$bin/$program" "$@"
}
host() { env -i HOME="$run/own" PATH=/usr/bin:/bin INTERLOCK_BASE=none "$interlock" --state-dir "$run/state" "$@"; }

# It shows what is not in its text. A native program: scripts are never asked about in a client's prompt.
job="expr 1234 '*' 4321"
answer=5332114

# A directory for one run, the model, and the agent's settings: begin NAME [--elicitation [COMMAND]]
begin() {
    echo "== $agent: $1"
    run=$work/${1//[ ,]/-}
    mkdir -p "$run/home/.codex" "$run/own" "$run/project"
    host exec-policy preset cautious >"$run/preset.log" 2>&1
    "$bin/node" "$here/model.mjs" "${3:-$job}" "$run/model.log" >"$run/port" 2>>"$run/model.log" &
    await "the model" test -s "$run/port"
    port=$(cat "$run/port")
    "$agent-settings" ${2:+"$2"}
}

# Codex would ask about tools by itself, and refuses them where no approver can be asked: here interlock asks.
codex-settings() {
    cat >"$run/home/.codex/config.toml" <<TOML
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
analytics.enabled = false
projects."$run/project".trust_level = "trusted"

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:$port/v1"
wire_api = "responses"

[mcp_servers.interlock]
command = "$interlock"
args = ["--state-dir", "$run/state", "mcp"${1:+, \"$1\"}]
startup_timeout_sec = 60
default_tools_approval_mode = "approve"
TOML
}

claude-code-settings() {
    cat >"$run/mcp.json" <<JSON
{ "mcpServers": { "interlock": { "command": "$interlock", "args": ["--state-dir", "$run/state", "mcp"${1:+, \"$1\"}] } } }
JSON
    cat >"$run/home/.claude.json" <<JSON
{ "hasCompletedOnboarding": true, "theme": "dark", "customApiKeyResponses": { "approved": ["scripted"] },
  "projects": { "$run/project": { "hasTrustDialogAccepted": true } } }
JSON
    claude_options=(--mcp-config "$run/mcp.json" --strict-mcp-config --allowedTools mcp__interlock__exec)
}

# The agent without a terminal, in the background. Its last words go to `said`.
headless() {
    cd "$run/project"
    case $agent in
        codex) agent exec --skip-git-repo-check --output-last-message "$run/said" 'Run the job.' ;;
        claude-code) agent -p 'Run the job.' "${claude_options[@]}" >"$run/said" ;;
    esac </dev/null >>"$run/agent.log" 2>&1 &
    headless=$!
    cd "$here"
}
ended() { ! kill -0 "$headless" 2>/dev/null; }
finally() { # NAME TEXT: its last words
    await "the end of the agent" ended
    wait "$headless" || fail "the agent ended with $?"
    expect "$1" "$2" "$(cat "$run/said")"
}

# The agent on a terminal, with a person's keys.
terminal() { tmux -S "$run/tmux" -f /dev/null "$@"; }
interactive() { # ARGUMENT…
    local line
    line=$(printf ' %q' "$@")
    terminal new-session -d -x 300 -y 50 -c "$run/project" \
        "$(declare -f agent); run='$run' bin='$bin' port='$port' program='$program'; agent$line 2>>'$run/agent.log'"
}
screen() { terminal capture-pane -p -S - >"$run/screen.log" 2>&1 && tr -s ' \n' ' ' <"$run/screen.log"; }
shows() { screen | grep -qF -- "$1"; }
ends() { screen | grep -q -- "The tool said:.*$1"; }
await_end() { await "the agent's text with '$1'" ends "$1"; }
await_screen() { await "the screen with '$1'" shows "$1"; }
keys() { terminal send-keys "$@"; }

# Until the form is on the screen.
prompted() {
    case $agent in
        codex)
            interactive --no-daemon --no-alt-screen 'Run the job.'
            await_screen '1. allow-once'
            ;;
        claude-code)
            # It does not wait for its MCP servers: a model that was not offered the tool is asked again.
            interactive "${claude_options[@]}"
            await_screen 'for agents'
            await "a turn with the tool" turn_with_tool
            await_screen 'requests your input'
            ;;
    esac
    expect "the form shows the command" "Run: $job in " "$(screen)"
}
turn_with_tool() {
    local turns end=$((SECONDS + 20))
    turns=$(turns)
    keys -l 'Run the job.'
    keys Enter
    until [ "$(turns)" -gt "$turns" ]; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
    tail -1 "$run/model.log" | grep -q '"offered":true'
}
turns() { grep -c '"offered"' "$run/model.log" || true; }

pending() { host approvals pending --json | grep -o '"id": *"[^"]*"' | head -1 | cut -d'"' -f4; }
waits() { [ -n "$(pending)" ]; }
waits_or_ended() { waits || ended; }
decide() { # approve|deny
    await "the question" waits_or_ended
    waits || fail "the agent ended and nothing was asked"
    host approvals "$1" "$(pending)" >>"$run/decide.log" 2>&1
}

# A form that is just being drawn may miss a key.
answers() {
    local end=$((SECONDS + 10))
    keys Enter
    until ! waits; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}

ran() { # TIMES
    local times
    times=$(host audit log --kind run-started | grep -c run-started || true)
    [ "$times" = "$1" ] || fail "the command ran $times times instead of $1"
    [ -z "$(pending)" ] || fail "a question is left"
}
expect() { # NAME TEXT ANSWER
    case "$3" in *"$2"*) echo "ok: $1" ;; *) fail "$1: wanted $2 in: $3" ;; esac
}
decided() { # DECISION: at the prompt
    expect "the record says that it was decided there" "decision=$1 decider='elicitation by $client " "$(host audit log --kind decision)"
}

begin "approved from outside"
headless
decide approve
finally "the agent tells what the command said" "$answer"
ran 1

begin "denied from outside"
headless
decide deny
finally "the agent tells that it was denied" 'was denied'
ran 0

begin "a prompt without an approver" --elicitation
headless
case $agent in
    codex)
        finally "its decline is a no" 'was denied by elicitation by codex-mcp-client'
        ran 0
        ;;
    claude-code)
        # It called again with its answer before this is decided, or finds it decided then.
        decide approve
        finally "a cancelled prompt leaves the question to others" "$answer"
        ran 1
        ;;
esac

begin "too long for a prompt" --elicitation "$job$(printf ' + 0%.0s' {1..50})"
headless
decide approve
finally "a long command is left to others" "$answer"
ran 1
case "$(host audit log --kind delivery)" in *surface=elicitation*) fail "the prompt was shown" ;; esac

begin "allowed at the prompt" --elicitation
prompted
case $agent in
    codex) keys Enter ;;
    claude-code)
        keys Right
        await_screen '❯ ◯ allow-once'
        keys Enter
        await_screen 'Decision: allow-once'
        await_screen '❯ Accept'
        await "the answer" answers
        ;;
esac
await_end "$answer"
ran 1
decided allow-once

begin "denied at the prompt" --elicitation
prompted
case $agent in
    codex)
        keys Down
        await_screen '› 2. deny'
        keys Enter
        ;;
    claude-code)
        keys Down
        await_screen '❯ Accept'
        keys Right
        await_screen '❯ Decline'
        await "the answer" answers
        ;;
esac
await_end 'was denied'
ran 0
decided deny
echo "all good"
