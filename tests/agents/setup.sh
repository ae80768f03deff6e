#!/usr/bin/env bash
# A real agent, set up by `interlock setup` in an empty home and driven by the scripted model of scripted.mjs: Codex, Claude
# Code, Gemini CLI or opencode, at a pinned version. Needs npm and the network (for npm only).
#
#   cargo build && tests/agents/setup.sh codex|claude-code|gemini|opencode [target/debug/interlock]
#
# Each scene has a home, a project, a state directory and a gateway of its own. Set AGENTS_DIR to keep the installed
# packages between two runs, SCENES to run some of them, WAIT for another wait than three minutes.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
agent=${1:?codex, claude-code, gemini or opencode}
interlock=$(realpath "${2:-$here/../../target/debug/interlock}")
work=$(mktemp -d /tmp/interlock-agents-XXXXXX)
# The tools that must not be offered when only Interlock may run commands.
case $agent in
    codex) package=@openai/codex@0.166.0 program=codex shell='shell exec_command local_shell write_stdin unified_exec' ;;
    claude-code) package=@anthropic-ai/claude-code@2.1.325 program=claude shell='Bash Monitor' ;;
    gemini) package=@google/gemini-cli@0.61.0 program=gemini shell=run_shell_command ;;
    opencode) package=opencode-ai@1.18.33 program=opencode shell=bash ;;
    *) echo "unknown: $agent" >&2; exit 2 ;;
esac

# Every process of a scene names its directory, be it in its arguments or in its environment.
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
    echo "FAILED: $agent: $*" >&2
    for log in "$run"/*.log; do echo "--- $log" >&2; tail -c 3000 "$log" >&2; done
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
expect() { # NAME TEXT ANSWER
    case "$3" in *"$2"*) echo "ok: $1" ;; *) fail "$1: wanted $2 in: ${3:0:2000}" ;; esac
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

# What goes to other machines by the proxy settings meets a proxy that does not exist. That keeps the agents from calling
# home as far as they heed these; it is no sandbox. The home is empty: the model is named by variables and flags.
clean() {
    env -i HOME="$run/home" PATH="$bin:/usr/bin:/bin" INTERLOCK_BASE=none TERM=xterm-256color LANG=C.UTF-8 \
        HTTP_PROXY=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 NO_PROXY=127.0.0.1 \
        ANTHROPIC_BASE_URL="http://127.0.0.1:$port" ANTHROPIC_API_KEY=scripted ENABLE_TOOL_SEARCH=false \
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 \
        GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:$port" GEMINI_API_KEY=scripted \
        GEMINI_CLI_TRUST_WORKSPACE=true \
        OPENCODE_CONFIG_CONTENT="{\"model\":\"scripted/m\",\"provider\":{\"scripted\":{\"npm\":\"@ai-sdk/openai-compatible\",\"options\":{\"baseURL\":\"http://127.0.0.1:$port/v1\",\"apiKey\":\"x\"},\"models\":{\"m\":{}}}}}" \
        OPENCODE_DISABLE_AUTOUPDATE=1 \
        "$@"
}
host() { env -i HOME="$run/home" PATH=/usr/bin:/bin INTERLOCK_BASE=none "$interlock" --state-dir "$run/state" "$@"; }
setup() { (cd "$run/project" && clean "$interlock" --state-dir "$run/state" setup "$agent" "$@") >>"$run/setup.log" 2>&1; }

begin() { # NAME PRESET SCRIPT [FLAG…]: a scene, its model, and the agent set up
    echo "== $agent: $1"
    run=$work/${1//[ ,]/-}
    mkdir -p "$run/home" "$run/project"
    # It shows what is not in its text, and counts itself.
    printf '#!/bin/sh\necho ran >>count\necho "answer=$((6 * 7))"\n' >"$run/project/job"
    printf '#!/bin/sh\nsleep 2\necho "slow answer=$((6 * 7))"\n' >"$run/project/slow"
    printf '#!/bin/sh\necho "first=$((2 + 1))"\nhead -c 1000000 /dev/zero | tr "\\0" x | fold -w 99\necho\necho "last=$((6 * 7))"\n' >"$run/project/loud"
    chmod +x "$run/project/"{job,slow,loud}
    # The login that Gemini CLI has stored for its user.
    [ "$agent" != gemini ] || { mkdir "$run/home/.gemini"; echo "{\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}}" >"$run/home/.gemini/settings.json"; }
    host exec-policy preset "$2" >"$run/preset.log" 2>&1
    printf '%s' "$3" >"$run/script.json"
    "$bin/node" "$here/scripted.mjs" "$run/script.json" "$run/model.log" >"$run/port" 2>>"$run/model.log" &
    await "the model" test -s "$run/port"
    port=$(cat "$run/port")
    setup "${@:4}" || fail "setup"
}

# The agent without a terminal, in the background.
headless() { # FLAG…
    (
        cd "$run/project"
        case $agent in
            codex)
                clean "$bin/codex" exec --skip-git-repo-check -c model=scripted -c model_provider=scripted \
                    -c "model_providers.scripted={name=\"scripted\",base_url=\"http://127.0.0.1:$port/v1\",wire_api=\"responses\"}" \
                    --output-last-message "$run/said" "$@" 'Run the job.'
                ;;
            claude-code) clean "$bin/claude" -p 'Run the job.' "$@" >"$run/said" ;;
            gemini) clean "$bin/gemini" -p 'Run the job.' "$@" >"$run/said" ;;
            opencode) clean "$bin/opencode" run "$@" 'Run the job.' >"$run/said" ;;
        esac
    ) </dev/null >>"$run/agent.log" 2>&1 &
    headless=$!
}
ended() { ! kill -0 "$headless" 2>/dev/null; }
finally() { # NAME TEXT: its last words
    await "the end of the agent" ended
    wait "$headless" || fail "the agent ended with $?"
    expect "$1" "$2" "$(cat "$run/said")"
}
results() { tail -1 "$run/model.log"; }

pending() { host approvals pending --json | grep -o '"id": *"[^"]*"' | head -1 | cut -d'"' -f4; }
waits_or_ended() { [ -n "$(pending)" ] || ended; }
decide() { # approve|deny FLAG…
    await "the approval" waits_or_ended
    [ -n "$(pending)" ] || fail "the agent ended and nothing was asked"
    host approvals "$1" "$(pending)" "${@:2}" >>"$run/decide.log" 2>&1 || fail "$1"
}
ran() { # TIMES
    local times=0
    [ ! -e "$run/project/count" ] || times=$(wc -l <"$run/project/count")
    [ "$times" = "$1" ] || fail "the command ran $times times instead of $1"
    [ -z "$(pending)" ] || fail "an approval is left"
}
offered() { grep -o '"offered":\[[^]]*\]' "$run/model.log" | tr ',[]' '\n\n\n' | tr -d '"' | sort -u; }

job='[{"tool":"exec","input":{"command":"./job"}}]'

scene_run() {
    begin run yolo "$job"
    headless
    finally "the agent tells what the command said" 'answer=42'
    ran 1
}

scene_approve() {
    begin "ask and approve" cautious "$job"
    headless
    decide approve
    finally "the agent tells what the command said" 'answer=42'
    ran 1
}

scene_deny() {
    begin "deny with a reason" cautious "$job"
    headless
    decide deny --reason 'use make check instead'
    finally "the model reads the reason" 'use make check instead'
    ran 0
}

scene_background() {
    begin "background and poll" yolo '[{"tool":"exec","input":{"command":"./slow","background":true}},
        {"tool":"process","input":{"action":"poll","sessionId":"SESSION","timeout":20000}}]'
    headless
    finally "the poll has the output" 'slow answer=42'
}

scene_loud() {
    begin "one megabyte" yolo '[{"tool":"exec","input":{"command":"./loud"}}]'
    headless
    finally "the agent lives" 'The tool said'
    expect "the model has the first line" 'first=3' "$(results)"
    expect "the model has the last line" 'last=42' "$(results)"
    [ "$(results | wc -c)" -lt 100000 ] || fail "the model was given $(results | wc -c) characters"
}

scene_wait() {
    begin "a long wait" cautious "$job"
    headless
    await "the approval" waits_or_ended
    sleep "${WAIT:-180}"
    ! ended || fail "the agent did not wait"
    decide approve
    finally "the agent waited" 'answer=42'
    ran 1
}

scene_only() {
    begin "only Interlock" yolo "$job" --only-interlock
    headless
    finally "Interlock runs it" 'answer=42'
    for tool in $shell; do
        ! offered | grep -qx "$tool" || fail "$tool is offered"
    done
    echo "ok: no shell of its own is offered"
}

scene_undo() {
    begin undo yolo "$job"
    headless
    finally "it works" 'answer=42'
    setup --undo || fail "undo"
    [ -z "$(grep -rlF '"interlock"' "$run/home" --include=settings.json --include=.claude.json --include=opencode.json --include=config.toml || true)" ] ||
        fail "the entry is left"
    # In a home of which the agent has not written to its files meanwhile, each byte is what it was.
    rm -rf "$run/home"
    mkdir -p "$run/home"/{.claude,.codex,.gemini,.config/opencode}
    printf '{"mine":  1}\n' | tee "$run/home/.claude.json" "$run/home/.claude/settings.json" "$run/home/.gemini/settings.json" >"$run/home/.config/opencode/opencode.json"
    printf '# mine\nmodel = "x"\n' >"$run/home/.codex/config.toml"
    cp -a "$run/home" "$run/before"
    # The gateway stays what it was, and the agent itself is not asked: it might write.
    (cd "$run/project" && host setup "$agent" --only-interlock && host setup "$agent" --undo) >>"$run/setup.log" 2>&1 || fail "setup and undo"
    diff -r "$run/before" "$run/home" || fail "undo left something"
    echo "ok: undo restores each byte"
}

# The agent's own shell, judged by the hook.
scene_hook() {
    local own flags=()
    case $agent in
        claude-code) own=Bash ;;
        gemini) own=run_shell_command flags=(--approval-mode yolo) ;;
        codex) own=exec_command flags=(--dangerously-bypass-hook-trust --dangerously-bypass-approvals-and-sandbox) ;;
        *) return 0 ;;
    esac
    local field=command
    [ "$agent" != codex ] || field=cmd
    local script="[{\"own\":\"$own\",\"input\":{\"$field\":\"./job\",\"description\":\"run it\"}}]"
    [ "$agent" != codex ] || script="[{\"own\":\"$own\",\"input\":{\"$field\":\"./job\"}}]"
    begin "hook, approved" cautious "$script" --hook
    headless "${flags[@]}"
    decide approve
    finally "the agent's own shell runs it" 'answer=42'
    ran 1
    begin "hook, denied" cautious "$script" --hook
    headless "${flags[@]}"
    decide deny
    await "the end of the agent" ended
    expect "the model reads the denial" 'was denied' "$(cat "$run/model.log")"
    ran 0
}

for scene in ${SCENES:-run approve deny background loud only undo hook wait}; do "scene_$scene"; done
echo "all good"
