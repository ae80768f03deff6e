#!/usr/bin/env bash
# Has OpenClaw 2026.5.19 and 2026.9.6 write a state directory each, by their own command lines, and imports both.
# Needs npm and the network, so it is no part of the usual tests; those use small copies of such directories.
#
#   cargo build && tests/interop-openclaw/import.sh [target/debug/interlock]
#
# With UPDATE_FIXTURES=1 it also makes tests/fixtures/openclaw-* anew.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
import_of() { # VERSION FORM
    install "$1"
    local form=$2 home=$work/home-$1 report again
    mkdir -p "$home"
    echo "== OpenClaw $version writes its state"
    "$here/make-state.sh" "$javascript" "$openclaw" "$home"
    ours() { env -i HOME="$work/own-$version" PATH=/usr/bin:/bin INTERLOCK_BASE=none "$interlock" --state-dir "$work/state-$version" "$@"; }
    mkdir -p "$work/own-$version"
    ours import openclaw --from "$home/.openclaw" --dry-run >"$work/dry-$version.log" 2>&1 || fail "dry run"
    report=$(ours import openclaw --from "$home/.openclaw" --json 2>"$work/import-$version.log") || fail "import"
    expect "$version: the version" "\"version\": \"$version\"" "$report"
    expect "$version: the form" "\"document\": \"$form\"" "$report"
    expect "$version: an entry" '/usr/bin/uname' "$(ours approvals get --agent main 2>&1)"
    expect "$version: a stricter level" '"ask": "always"' "$(ours approvals get --json)"
    expect "$version: a looser level is left" 'full would loosen allowlist' "$report"
    expect "$version: an inert entry is named" 'matches nothing' "$report"
    expect "$version: a config key" 'true' "$(ours config get tools.exec.strictInlineEval)"
    expect "$version: an agent" 'deny' "$(ours exec-policy show --agent lab)"
    expect_not "$version: no secret is shown" 'fixture-secret' "$report"
    expect_not "$version: no secret is kept" 'fixture-secret' "$(grep -rl fixture-secret "$work/state-$version" || true)"
    again=$(ours import openclaw --from "$home/.openclaw" --json 2>/dev/null)
    expect "$version: a second import takes nothing" '"taken": []' "$again"
    if [ -n "${UPDATE_FIXTURES:-}" ]; then
        "$javascript" "$here/reduce-state.mjs" "$home" "$here/../fixtures/openclaw-${version%.*}"
    fi
}

import_of 2026.5.19 json
import_of 2026.9.6 sqlite
echo "all good"
