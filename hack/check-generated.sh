#!/usr/bin/env bash
# check-generated.sh TOOLS [PROTO...]: fails, showing the difference, unless the checked-in *.pb.go are
# exactly what the named .proto files give.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$1
shift
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

hack/generate.sh "$tools" "$fresh" "$@" >/dev/null

status=0
while read -r file; do
	if [[ ! -e $fresh/$file ]]; then
		echo "$file: no .proto gives this file"
		status=1
	fi
done < <(find api server -name '*.pb.go' 2>/dev/null | sort)
while read -r file; do
	diff -u "$file" "$fresh/$file" || status=1
done < <(cd "$fresh" && find . -name '*.pb.go' -printf '%P\n' | sort)

if ((status)); then
	echo "generated code is stale: run 'make generate' and commit"
fi
exit "$status"
