#!/usr/bin/env bash
# Installs the gateway and the node host as services of a real systemd: the manager of an ordinary
# user, in mounts and control groups of its own, so that nothing of this machine is touched. Needs
# root, systemd and a kernel with cgroup v2.
#
#   cargo build && tests/service-systemd/run.sh [target/debug/interlock]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${SERVICE_INSIDE:-}" ]; then
    binary=$(realpath "${1:-$here/../../target/debug/interlock}")
    [ "$(id -u)" = 0 ] && [ -x /lib/systemd/systemd ] || { echo "skipped: needs root and systemd"; exit 0; }
    work=$(mktemp -d /tmp/interlock-service-XXXXXX)
    group=interlock-service-$$
    status=0
    SERVICE_INSIDE=$work SERVICE_GROUP=$group exec_binary=$binary unshare --mount "$0" || status=$?
    rm -rf "$work"
    exit "$status"
fi

work=$SERVICE_INSIDE
user=64321
# A manager wants to see that the system was started by one, and one tree of groups.
mount --make-rprivate /
umount -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup || { echo "skipped: no cgroup v2"; exit 0; }
mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && mkdir /run/systemd/system
top=/sys/fs/cgroup/$SERVICE_GROUP
mkdir -p "$top/user"
echo $$ >"$top/cgroup.procs"
chown -R "$user" "$top/user"

# Odd on purpose: everything that means something in a unit.
home="$work/home of 100% \$USER \"x\" back\\s"
bin="$work/bin of 100% \$USER"
mkdir -p "$home" "$bin" "$work/runtime"
cp "$exec_binary" "$bin/interlock"
chmod -R go+rX "$bin"
chmod 711 "$work"
chmod 700 "$work/runtime"
chown -R "$user:$user" "$home" "$work/runtime"
as_user() {
    env -i HOME="$home" XDG_RUNTIME_DIR="$work/runtime" PATH=/usr/bin:/bin INTERLOCK_BASE=none "${extra[@]}" \
        setpriv --reuid "$user" --regid "$user" --clear-groups -- "$@"
}
extra=(LC_ALL=C)
interlock() { as_user "$bin/interlock" "$@"; }

finish() {
    # The groups hold all that was started, and nothing else.
    echo $$ >/sys/fs/cgroup/cgroup.procs
    [ ! -e "$top/cgroup.kill" ] || echo 1 >"$top/cgroup.kill"
    for _ in $(seq 50); do
        find "$top" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ -d "$top" ] || break
        sleep 0.1
    done
}
trap finish EXIT
fail() {
    echo "FAILED: $*" >&2
    tail -20 "$work/manager.log" >&2
    exit 1
}
await() { # NAME COMMAND…
    local name=$1
    shift
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && { echo "ok: $name"; return; }
        sleep 0.1
    done
    fail "$name"
}
field() { grep -o "\"$1\": *[^,]*" | head -1 | sed 's/^[^:]*: *//; s/"//g'; }

(
    echo "$BASHPID" >"$top/user/cgroup.procs"
    cd "$home"
    exec env -i HOME="$home" XDG_RUNTIME_DIR="$work/runtime" PATH=/usr/bin:/bin INTERLOCK_BASE=none SYSTEMD_LOG_TARGET=console \
        setpriv --reuid "$user" --regid "$user" --clear-groups -- /lib/systemd/systemd --user
) >"$work/manager.log" 2>&1 &
await "a manager answers" as_user systemctl --user show --property=Version

echo "== the gateway"
interlock exec-policy preset yolo >/dev/null 2>&1
interlock gateway install --port 0 || fail "install"
[ "$(interlock gateway status --json | field active)" = true ] || fail "the status does not know the service"
first=$(interlock gateway status --json | field pid)
shown=$(as_user systemctl --user show interlock-gateway --property=ExecStart --property=KillMode --property=Delegate)
case $shown in *"path=$bin/interlock "*Delegate=yes*KillMode=process*) echo "ok: systemd reads the paths as they are" ;; *) fail "$shown" ;; esac
interlock gateway install --port 0 >/dev/null || fail "install again"
[ "$(interlock gateway status --json | field pid)" = "$first" ] || fail "installing again started it again"
echo "ok: installing again changes nothing"

# A run that the gateway started, and that goes on through all that happens to the gateway.
token=$(interlock gateway token --new)
address=$(interlock gateway status --json | field address)
curl -fs -H "Authorization: Bearer $token" "http://$address/tools/invoke" \
    -d '{"tool":"exec","args":{"command":"sleep 1234","background":true}}' >"$work/started" || fail "exec"
run() { pgrep -u "$user" -x -f 'sleep 1234'; }
sleeper=$(run) || fail "the run does not run"
kill -KILL "$first"
again() { local pid; pid=$(interlock gateway status --json | field pid) && [ -n "$pid" ] && [ "$pid" != "$1" ]; }
await "a gateway that was killed is started again" again "$first"
[ "$(run)" = "$sleeper" ] || fail "the run ended with its gateway"
second=$(interlock gateway status --json | field pid)
# Everything in the service's control group: the supervisor is not in it.
as_user systemctl --user kill --kill-who=all --signal=KILL interlock-gateway
await "a service that was killed as a whole is started again" again "$second"
[ "$(run)" = "$sleeper" ] || fail "the run ended with the service's group"
second=$(interlock gateway status --json | field pid)
interlock gateway restart >/dev/null || fail "restart"
again "$second" || fail "restart did not start another one"
[ "$(run)" = "$sleeper" ] || fail "the run ended with a restart"
interlock gateway stop 2>/dev/null || fail "stop"
[ "$(run)" = "$sleeper" ] || fail "the run ended with a stop"
echo "ok: its run outlives kills, a restart and a stop"
[ "$(as_user systemctl --user is-active interlock-gateway || true)" = inactive ] || fail "it is still active"
interlock gateway start >/dev/null || fail "start"
interlock process list | grep -q 'sleep 1234' || fail "the run is not found again"
echo "ok: and is found again"

echo "== the node"
port=$(interlock gateway status --json | field port)
node_token=$(interlock nodes enroll)
extra=(INTERLOCK_GATEWAY_TOKEN="$node_token")
interlock node install --host 127.0.0.1 --port "$port" >"$work/installed" || fail "install the node"
extra=(LC_ALL=C)
! grep -rq "$node_token" "$home/.config" "$work/installed" || fail "the token is in a unit"
connected() { interlock node status --json | grep -q '"standing": *"connected"'; }
await "the node is connected" connected
# With a wrong token it ends with 78, and that is the end of it.
echo wrong >"$home/.interlock/node.token"
rm -f "$home/.interlock/identity/device-auth.json"
interlock node restart >/dev/null 2>&1 || true
given_up() {
    local said
    said=$(as_user systemctl --user show interlock-node --property=ExecMainStatus --property=ActiveState)
    case $said in *ActiveState=failed*) ;; *) return 1 ;; esac
    case $said in *ExecMainStatus=78*) ;; *) return 1 ;; esac
}
await "a node that is refused for good is not started again" given_up

echo "== and away"
interlock node uninstall >/dev/null || fail "uninstall the node"
interlock gateway uninstall >/dev/null || fail "uninstall"
[ -z "$(find "$home/.config/systemd" -type f)" ] || fail "something is left: $(find "$home/.config/systemd")"
[ ! -e "$home/.interlock/node.token" ] || fail "the token is left"
as_user systemctl --user cat interlock-gateway >/dev/null 2>&1 && fail "systemd still knows it"
[ "$(run)" = "$sleeper" ] || fail "the run ended with the service"
echo "all good"
