# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC1091,SC2034,SC2154
#
# Library of the tests of `fatbatch bench`: source it first.

# The subject is the client.  Which plugin serves is changed as we go.
FATBATCH_SO=memory
. "$(dirname "${BASH_SOURCE[0]}")/../functions.sh"
fatbatch=${FATBATCH:-$top_builddir_abs/tools/fatbatch}
[ -x "$fatbatch" ] || skip "$fatbatch is not built"
requires jq mkfs.fat fsck.fat nbdcopy
make_tmpdir
traces=$tests_srcdir/bench/traces
size=320M

# serve PLUGIN [NBDKIT-OPTION... --] ARG...: with a log of all requests.
serve () {
  FATBATCH_SO=$1
  shift
  log=$tmpdir/requests
  rm -f "$log"
  case " $* " in
    *" -- "*) start_server --filter=log "$@" logfile="$log" ;;
    *) start_server --filter=log -- "$@" logfile="$log" ;;
  esac
}

# bench ARG...: must succeed, with both checks passed.  Sets json.
bench () {
  json=$tmpdir/result.json
  "$fatbatch" bench "$1" "$uri" "${@:2}" --json --output="$json" ||
    fail "bench $* ends with status $?"
  jq -e . "$json" >/dev/null || fail "bench $*: not JSON: $(cat "$json")"
  [ "$(field .workload)" = "$1" ] || fail "JSON is of another workload"
  [ "$(field .verify.data)" = ok ] || fail "bench $*: data is not ok"
}

field () {
  jq -r "$1" "$json"
}

# expect FILTER VALUE
expect () {
  [ "$(field "$1")" = "$2" ] || fail "$1 is $(field "$1") instead of $2"
}

# logged PATTERN: how many requests.
logged () {
  grep -c -E -- "$1" "$log" || true
}

# expect_status STATUS WORD... -- CMD ARG...: stderr must contain each word.
expect_status () {
  local want=$1 words=() status=0 word err=$tmpdir/err
  shift
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  "$@" >"$tmpdir/out" 2>"$err" </dev/null || status=$?
  [ "$status" -eq "$want" ] ||
    fail "status $status instead of $want: $*: $(cat "$err")"
  for word in ${words[@]+"${words[@]}"}; do
    grep -qF -- "$word" "$err" ||
      fail "stderr lacks '$word': $*: $(cat "$err")"
  done
}
