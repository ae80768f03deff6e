#!/usr/bin/env bash
# A real agent, set up by `interlock setup` in an empty home and driven by the scripted model of scripted.mjs: Codex, Claude
# Code, Gemini CLI or opencode, at a pinned version. Needs npm and the network (for npm only).
#
#   cargo build && tests/agents/setup.sh codex|claude-code|gemini|opencode [target/debug/interlock]
#
# Each scene has a home, a project, a state directory and a gateway of its own. Set AGENTS_DIR to keep the installed
# packages between two runs, SCENES to run some of them, WAIT for another wait than three minutes.
set -euo pipefail

source "$(dirname "$0")/common.sh"

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
