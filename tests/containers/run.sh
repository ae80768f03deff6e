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
clean() {
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
INTERLOCK_TEST_DOCKER_HOST=$DOCKER_HOST INTERLOCK_TEST_CONTAINERS_CONF=$CONTAINERS_CONF \
  cargo test --locked -p interlock --test sandbox containers:: -- --nocapture --test-threads 2 "$@"
