#!/usr/bin/env bash
# A real agent works a whole task in a sandbox, driven by the scripted model of scripted.mjs: it reads the task, edits a
# file, runs tests, wants a host that no entry lists, gets it because an approver allows the name, and finishes. Codex or
# Claude Code, at a pinned version. Needs root, npm, python3, git and curl, and the network (for npm only).
#
#   cargo build && tests/agents/sandbox.sh codex|claude-code [target/debug/interlock]
#
# All of it happens in a network namespace with two names of its own, as root and as an ordinary user, with the workspaces
# `cow` and `rw`. What is checked: the files of the project, the audit records, the requests that the server of the names
# got, what the model was told, and that the agent finds no secret of its owner. Set AGENTS_DIR to keep the packages.
set -euo pipefail

if [ -z "${INSIDE_NETWORK:-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "needs root: it makes a network with names of its own" >&2; exit 2; }
    packages_of_run=
    if [ -z "${AGENTS_DIR:-}" ]; then
        packages_of_run=$(mktemp -d /tmp/interlock-packages-XXXXXX)
        chmod 755 "$packages_of_run"
        export AGENTS_DIR=$packages_of_run
    fi
    # Installed before there is no network.
    (source "$(dirname "$0")/common.sh")
    code=0
    INSIDE_NETWORK=1 unshare --net --mount -- "$0" "$@" || code=$?
    [ -z "$packages_of_run" ] || rm -rf "$packages_of_run"
    exit "$code"
fi

source "$(dirname "$0")/common.sh"
chmod 755 "$work"
# The build directory may be closed to others.
cp "$interlock" "$work/interlock"
interlock=$work/interlock

ip link set lo up
ip addr add 93.184.216.35/32 dev lo
mount --make-rprivate /
printf '127.0.0.1 localhost\n93.184.216.35 rates.test tracker.test\n' >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
mkdir "$work/site"
echo '{"EUR": 2, "source": "served by rates.test"}' >"$work/site/rates.json"
python3 -u -m http.server --bind 93.184.216.35 --directory "$work/site" 80 >>"$work/server.log" 2>&1 &
await "the server of the names" curl -sf -o "$work/first" http://rates.test/rates.json

# The calls of the model. SECRETS is where the owner's secrets are.
script() {
    sed "s|SECRETS|$run/home|g" <<'JSON'
[
  {"tool": "exec", "input": {"command": "cat TASK.md; hostname; cat /proc/1/comm"}},
  {"tool": "apply_patch", "input": {"input": "*** Begin Patch\n*** Update File: convert.py\n@@\n def convert(amount, currency):\n-    return amount\n+    with open(\"rates.json\") as file:\n+        return amount * json.load(file)[currency]\n*** End Patch"}},
  {"tool": "exec", "input": {"command": "python3 -B -m unittest -q 2>&1 | tail -3"}},
  {"tool": "exec", "input": {"command": "curl -sSf --max-time 40 http://tracker.test/rates.json -o rates.json || echo the tracker was not reached"}},
  {"tool": "exec", "input": {"command": "curl -sSf --max-time 40 http://rates.test/rates.json -o rates.json && cat rates.json"}},
  {"tool": "exec", "input": {"command": "cat SECRETS/.ssh/id_test SECRETS/../state/interlock.json; echo looked; echo mine > SECRETS/.bashrc; ls -a SECRETS/.ssh 2>&1"}},
  {"tool": "exec", "input": {"command": "python3 -B -m unittest -q 2>&1 | tail -3 && git add -A && git -c user.name=agent -c user.email=agent@test commit -qm 'Convert by rates' && git log --oneline && echo the task is done: $((6 * 7))"}}
]
JSON
}

project() {
    mkdir -p "$run/home/.ssh" "$run/project"
    echo "the owner's key" >"$run/home/.ssh/id_test"
    cat >"$run/project/TASK.md" <<'TEXT'
convert() ignores the currency. Let it use the rates that http://rates.test/rates.json serves, and make the test pass.
TEXT
    printf 'import json\n\n\ndef convert(amount, currency):\n    return amount\n' >"$run/project/convert.py"
    cat >"$run/project/test_convert.py" <<'TEXT'
import unittest
from convert import convert


class ConvertTest(unittest.TestCase):
    def test_euros(self):
        self.assertEqual(convert(21, "EUR"), 42)
TEXT
    git -c init.defaultBranch=main init -q "$run/project"
    git -C "$run/project" add -A
    git -C "$run/project" -c user.name=owner -c user.email=owner@test commit -qm 'A task'
}

records() { host audit log --json --limit 1000 ${1:+--kind "$1"}; }
question() { # HOST:PORT: the approval about it
    host approvals pending --json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["approvals"]:
    if one["command"] == "reach " + sys.argv[1]:
        print(one["shortId"])' "$1"
}
asked_or_ended() { [ -n "$(question "$1")" ] || ended; }
decide() { # approve|deny HOST:PORT
    await "the question about $2" asked_or_ended "$2"
    ! ended || fail "the agent ended and nothing was asked about $2"
    host approvals "$1" "$(question "$2")" >>"$run/decide.log" 2>&1 || fail "$1 $2"
}

# What the calls of the model gave, as text: agents hand on the parts of a result as JSON.
told() {
    tail -1 "$run/model.log" | python3 -c '
import json, sys
def parts(value):
    if isinstance(value, list):
        return "\n".join(map(parts, value))
    return value.get("text", "") if isinstance(value, dict) else str(value)
for result in json.load(sys.stdin)["results"]:
    print(parts(json.loads(result)) if result.startswith("[") else result)'
}

# The records say that every run was in the sandbox, and which hosts were reached by which of them.
check_records() { # ACCESS
    records >"$run/audit.json"
    python3 - "$run/audit.json" "$1" <<'PYTHON' || fail "the audit records"
import json, sys
records = json.load(open(sys.argv[1]))["records"]
def of(kind):
    return [one["body"] for one in records if one["kind"] == kind]
started, access = of("run-started"), sys.argv[2]
assert len(started) == 6, [one.get("runId") for one in started]
for run in started:
    sandbox = run["sandbox"]
    assert sandbox["workspaceAccess"] == access and sandbox["network"] == "every name asks", run
    assert run["shield"] == "in its sandbox", run
decisions = [one["decision"] for one in of("decision")]
assert decisions == ["deny", "allow-once"], decisions
met = [(one["host"], one["port"], one["verdict"]) for one in of("connection")]
assert ("tracker.test", 80, "denied") in met and ("rates.test", 80, "allowed") in met and len(met) == 2, met
allowed = [one for one in of("connection") if one["verdict"] == "allowed"][0]
assert allowed["runId"] == started[3]["runId"] and allowed["bytesReceived"] > 40, allowed
if access == "cow":
    committed = [one for one in of("effect") if one["outcome"] == "committed"]
    paths = {path["path"] for one in committed for path in one["paths"]}
    assert "rates.json" in paths, paths
PYTHON
    echo "ok: the audit has six runs in the sandbox, one name denied and one allowed"
    host audit verify >>"$run/verify.log" 2>&1 || fail "audit verify"
}

scene() { # USER ACCESS
    echo "== $agent: a task in the sandbox, as $1, workspace $2"
    run=$work/$1-$2
    project
    as=()
    if [ "$1" != root ]; then
        as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
        chown -R 65534:65534 "$run"
    fi
    for setting in mode=all "workspaceAccess=$2" network.ask=true; do
        host config set "agents.defaults.sandbox.${setting%%=*}" "${setting#*=}" >>"$run/preset.log" 2>&1
    done
    script >"$run/script.json"
    "$bin/node" "$here/scripted.mjs" "$run/script.json" "$run/model.log" >"$run/port" 2>>"$run/model.log" &
    await "the model" test -s "$run/port"
    port=$(cat "$run/port")
    setup || fail "setup"
    : >"$work/server.log"
    headless
    decide deny tracker.test:80
    decide approve rates.test:80
    finally "the agent finished the task" 'the task is done: 42'
    told=$(told)
    expect "the model read that it works inside" $'sandbox\ninterlock-init' "$told"
    expect "the tests failed before the rates were there" 'FAILED' "$told"
    expect "the denied name was not reached" 'the tracker was not reached' "$told"
    expect "the approved name was reached" 'served by rates.test' "$told"
    expect "the agent looked for secrets" 'looked' "$told"
    case "$told" in *"the owner's key"* | *'"token"'*) fail "a secret was read" ;; esac
    expect "the file was edited" 'json.load(file)[currency]' "$(cat "$run/project/convert.py")"
    expect "the fetched file is there" 'served by rates.test' "$(cat "$run/project/rates.json")"
    expect "the commit is there" 'Convert by rates' "$(git -c safe.directory='*' -C "$run/project" log --oneline)"
    [ -z "$(git -c safe.directory='*' -C "$run/project" status --short)" ] || fail "the project is not clean"
    [ "$(stat -c %u "$run/project/rates.json")" = "$(stat -c %u "$run/project")" ] || fail "the file has another owner"
    [ ! -e "$run/home/.bashrc" ] || fail "the agent wrote to the home of its owner"
    [ "$(grep -c 'GET /rates.json' "$work/server.log")" = 1 ] || fail "the server got other requests: $(cat "$work/server.log")"
    [ -z "$(grep -v 'GET /rates.json' "$work/server.log")" ] || fail "the server got other requests: $(cat "$work/server.log")"
    check_records "$2"
}

scene root cow
scene root rw
scene ordinary cow
scene ordinary rw
echo "all good"
