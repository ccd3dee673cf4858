#!/usr/bin/env bash
# run.sh [TABLE]: applies each mutation of the table (default: table.txt beside this script) and runs the tests
# it names. Fails if they still pass, and also if a mutation changes nothing, does not compile, or names tests
# that do not exist or fail without it. The checkout is never touched: the changed file is laid over it with
# go's -overlay.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
table=$(realpath "${1:-$here/table.txt}")
cd "$here/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
declare -A baseline # test arguments -> ok | what is wrong with them
caught=0 wrong=0

# run_tests LOG ARG...: runs the tests, output into LOG. A mutant that hangs is ended by the timeout.
run_tests() {
	local log=$1
	shift
	go test -count=1 -vet=off -timeout 5m -v "$@" >"$log" 2>&1
}

# check_baseline TEST: sets baseline[TEST], once for each.
check_baseline() {
	[[ -n ${baseline[$1]:-} ]] && return
	local args
	read -ra args <<<"$1"
	if ! run_tests "$work/log" "${args[@]}"; then
		baseline[$1]="the tests fail without the mutation"
		tail -n 20 "$work/log"
	elif ! grep -q '^--- PASS' "$work/log"; then
		baseline[$1]="the arguments match no test that passes"
	else
		baseline[$1]=ok
	fi
}

# catcher LOG: the test that failed; one that ended the process has no verdict, so it is the last that began.
catcher() {
	awk '/^--- FAIL: / {print $3; found = 1; exit} /^=== RUN / {last = $3} END {if (!found) print last}' "$1"
}

# try NAME FILE SED TEST: prints one line of verdict.
try() {
	local name=$1 file=$2 script=$3 test=$4 args verdict start
	if [[ -z $file || -z $script || -z $test ]]; then
		verdict="the block lacks file, sed or test"
	elif ! sed -E "$script" "$file" >"$work/mutant.go"; then
		verdict="sed fails"
	elif cmp -s "$file" "$work/mutant.go"; then
		verdict="the mutation changes nothing in $file"
	else
		check_baseline "$test"
		verdict=${baseline[$test]}
	fi
	if [[ $verdict == ok ]]; then
		printf '{"Replace": {"%s": "%s"}}\n' "$PWD/$file" "$work/mutant.go" >"$work/overlay.json"
		read -ra args <<<"$test"
		start=$SECONDS
		if GOFLAGS="${GOFLAGS:-} -overlay=$work/overlay.json" run_tests "$work/log" "${args[@]}"; then
			verdict="SURVIVED: go test $test passes"
		elif ! grep -qE '^(\s*--- FAIL|panic:|fatal error:|WARNING: DATA RACE)' "$work/log"; then
			verdict="did not get as far as a failing test"
			tail -n 20 "$work/log"
		fi
	fi
	if [[ $verdict == ok ]]; then
		caught=$((caught + 1))
		echo "mutant $name caught by $(catcher "$work/log") in $((SECONDS - start)) s"
	else
		wrong=$((wrong + 1))
		echo "mutant $name WRONG: $verdict"
	fi
}

name='' file='' script='' test=''
finish() {
	[[ -n $name ]] && try "$name" "$file" "$script" "$test"
	name='' file='' script='' test=''
}
while IFS= read -r line || [[ -n $line ]]; do
	value=${line#*: }
	value=${value#"${value%%[![:space:]]*}"}
	case $line in
	'#'*) ;;
	'') finish ;;
	mutant:*) finish; name=$value ;;
	breaks:*) ;; # for the reader
	file:*) file=$value ;;
	sed:*) script=$value ;;
	test:*) test=$value ;;
	*) echo "WRONG: line not understood: $line"; wrong=$((wrong + 1)) ;;
	esac
done <"$table"
finish

echo "$caught caught, $wrong wrong, $SECONDS s"
((wrong == 0))
