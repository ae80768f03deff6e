# What setup.sh and sandbox.sh share: the agent at its pinned version, the scripted model, and how both are driven. It is
# sourced, with the agent and the program as arguments; each scene then sets `run` to its directory.
#
# Set AGENTS_DIR to keep the installed packages between two runs.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
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
# home as far as they heed these; it is no sandbox. The home is empty: the model is named by variables and flags. `as` is
# what a scene puts in front to be another user.
as=()
clean() {
    "${as[@]}" env -i HOME="$run/home" PATH="$bin:/usr/bin:/bin" INTERLOCK_BASE=none TERM=xterm-256color LANG=C.UTF-8 \
        HTTP_PROXY=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 NO_PROXY=127.0.0.1 \
        ANTHROPIC_BASE_URL="http://127.0.0.1:$port" ANTHROPIC_API_KEY=scripted ENABLE_TOOL_SEARCH=false \
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 \
        GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:$port" GEMINI_API_KEY=scripted \
        GEMINI_CLI_TRUST_WORKSPACE=true \
        OPENCODE_CONFIG_CONTENT="{\"model\":\"scripted/m\",\"provider\":{\"scripted\":{\"npm\":\"@ai-sdk/openai-compatible\",\"options\":{\"baseURL\":\"http://127.0.0.1:$port/v1\",\"apiKey\":\"x\"},\"models\":{\"m\":{}}}}}" \
        OPENCODE_DISABLE_AUTOUPDATE=1 \
        "$@"
}
host() { "${as[@]}" env -i HOME="$run/home" PATH=/usr/bin:/bin INTERLOCK_BASE=none "$interlock" --state-dir "$run/state" "$@"; }
setup() { (cd "$run/project" && clean "$interlock" --state-dir "$run/state" setup "$agent" "$@") >>"$run/setup.log" 2>&1; }

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
