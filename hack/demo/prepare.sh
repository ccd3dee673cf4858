#!/usr/bin/env bash
# Checks what the demo needs from the system, in one line each; missing Debian packages are installed when this user may.
set -euo pipefail

fail() { echo "demo: $*" >&2; exit 1; }

command -v go >/dev/null || fail "Go is not installed (1.25 or newer: https://go.dev/dl)"
version=$(GOTOOLCHAIN=local go env GOVERSION)
minor=${version#go1.}
minor=${minor%%[!0-9]*}
[[ -n $minor && $minor -lt 25 ]] && fail "$version is too old: install Go 1.25 or newer (https://go.dev/dl)"

[[ -e /dev/fuse ]] || fail "/dev/fuse is missing: load the kernel module fuse, or give the container the device"

missing=()
for pair in sqlite3:sqlite3 git:git tar:tar fusermount3:fuse3; do
	command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [[ ${#missing[@]} -gt 0 ]]; then
	[[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || fail "install first: ${missing[*]}"
	apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi
