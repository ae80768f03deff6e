#!/usr/bin/env bash
# Containers of a real Docker Engine and a real Podman, each with its own socket, data and images: the module
# `containers` of the test program `sandbox`. Needs root. Installs the packages that are missing, where apt is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
missing=()
for pair in dockerd:docker.io podman:podman runc:runc busybox:busybox-static catatonit:catatonit docker-init:tini; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}"
fi
place=$(mktemp -d /tmp/interlock-engines-XXXXXX)
socket=$place/docker.sock
dockerd --iptables=false --ip6tables=false --bridge=none -H "unix://$socket" \
  --data-root "$place/docker" --exec-root "$place/docker-exec" -p "$place/docker.pid" >"$place/dockerd.log" 2>&1 &
engine=$!
cat >"$place/containers.conf" <<'CONF'
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
CONF
export DOCKER_HOST=unix://$socket CONTAINERS_CONF=$place/containers.conf
account=interlock-heavy
clean() {
  userdel -r "$account" >/dev/null 2>&1 || true
  docker ps -aq | xargs -r docker rm -f >/dev/null 2>&1 || true
  podman ps -aq --filter label=interlock.directory | xargs -r podman rm -f >/dev/null 2>&1 || true
  podman rmi -f interlock-tiny:1 interlock-other:1 interlock-moving:1 >/dev/null 2>&1 || true
  kill "$engine" 2>/dev/null || true
  wait "$engine" 2>/dev/null || true
  rm -rf "$place"
}
trap clean EXIT
for _ in $(seq 300); do docker info >/dev/null 2>&1 && break; kill -0 "$engine"; sleep 0.1; done
for name in tiny other; do
  root=$place/$name
  mkdir -p "$root"/{bin,etc,home,usr,var}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for applet in $(busybox --list); do [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"; done
  echo "ID=$name" >"$root/etc/os-release"
  tar -C "$root" -cf "$place/$name.tar" .
  docker import "$place/$name.tar" "interlock-$name:1" >/dev/null
  podman import "$place/$name.tar" "interlock-$name:1" >/dev/null
done
# A rootless Podman of an ordinary account; and that the group of Docker is not enough, without a container left behind.
rootless() {
  useradd -m -G docker "$account"
  grep -q "^$account:" /etc/subuid || usermod --add-subuids 700000-765535 --add-subgids 700000-765535 "$account"
  local home run
  home=$(getent passwd "$account" | cut -d: -f6)
  run=$(mktemp -d "$place/run-XXXXXX")
  chmod 755 "$place"
  install -m 755 target/debug/interlock "$place/interlock"
  chgrp docker "$socket"
  chown "$account" "$run"
  as_account() {
    (cd "$home" && setpriv --reuid "$account" --regid "$account" --init-groups env -i HOME="$home" PATH=/usr/bin:/bin:/usr/sbin \
      XDG_RUNTIME_DIR="$run" CONTAINERS_CONF="$CONTAINERS_CONF" DOCKER_HOST="$DOCKER_HOST" INTERLOCK_BASE=none "$@")
  }
  chmod 644 "$place/containers.conf" "$place/tiny.tar"
  as_account podman import "$place/tiny.tar" interlock-tiny:1 >/dev/null
  as_account mkdir -p -m 700 .interlock work
  as_account "$place/interlock" exec-policy show >/dev/null
  settings() {
    echo "{ agents: { defaults: { workspace: '$home/work', sandbox: { mode: 'all', workspaceAccess: 'rw', backend: '$1', docker: { image: 'interlock-tiny:1' } } } } }" >"$home/.interlock/interlock.json"
  }
  settings podman
  [ "$(as_account "$place/interlock" exec --cwd "$home/work" -- 'cat /etc/os-release; touch made')" = ID=tiny ]
  [ "$(stat -c %U "$home/work/made")" = "$account" ]
  as_account "$place/interlock" sandbox explain --verify >/dev/null
  settings docker
  if as_account "$place/interlock" exec --cwd "$home/work" -- 'touch trace' 2>"$place/refused"; then return 1; fi
  grep -q 'rootless podman' "$place/refused"
  [ ! -e "$home/work/trace" ] && [ -z "$(docker ps -aq)" ]
  as_account "$place/interlock" sandbox recreate --all
  [ -z "$(as_account podman ps -aq)" ]
  echo "rootless: ok"
}

INTERLOCK_TEST_DOCKER_HOST=$DOCKER_HOST INTERLOCK_TEST_CONTAINERS_CONF=$CONTAINERS_CONF \
  cargo test --locked -p interlock --test sandbox containers:: -- --nocapture --test-threads 2 "$@"
rootless
