#!/usr/bin/env bash
# generate.sh TOOLS OUT [PROTO...]: writes the Go code of the named .proto files below OUT.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$1 out=$2
shift 2
if (($# == 0)); then
	echo "no .proto files"
	exit 0
fi
"$tools/protogen" -root . -out "$out" -plugins "$tools" "$@"
