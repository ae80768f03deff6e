#!/usr/bin/env bash
# Builds the static binary, the Debian package and the image, and tries all three. Takes long: it is a release build.
#
#   tests/packaging-heavy/run.sh [BINARY]      default: built here
#
# The image is made where docker or podman answers; else that is said.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

binary=${1:-$(packaging/build-static)}
echo "ok: static binary, $(du -h "$binary" | cut -f1)"
# Nothing of the system but the kernel: an empty root.
mkdir -p "$work/empty"
cp "$binary" "$work/empty/interlock"
if [ "$(id -u)" = 0 ]; then
    chroot "$work/empty" /interlock version
    echo "ok: it runs in an empty root"
fi

package=$(packaging/build-deb "$binary" "$work")
dpkg-deb --extract "$package" "$work/unpacked"
"$work/unpacked/usr/bin/interlock" version
zcat "$work/unpacked/usr/share/man/man1/interlock.1.gz" | grep -q interlock
echo "ok: $(basename "$package"), $(du -h "$package" | cut -f1)"

# Podman without systemd, as in most containers.
cat >"$work/containers.conf" <<'CONF'
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
CONF
export CONTAINERS_CONF=$work/containers.conf
for docker in docker podman; do
    "$docker" info >/dev/null 2>&1 || continue
    tag=$(DOCKER=$docker packaging/build-image "$binary" interlock:packaging-test)
    "$docker" run --rm --network none "$tag" version
    "$docker" run --rm --network none "$tag" security audit
    "$docker" rmi "$tag" >/dev/null
    echo "ok: an image by $docker"
    exit 0
done
echo "skipped: neither docker nor podman answers, so no image was made"
