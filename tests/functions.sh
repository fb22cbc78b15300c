# SPDX-License-Identifier: BSD-3-Clause

# Library of the integration tests, for bash.  A test begins with
#
#   . "$(dirname "$0")/../functions.sh"
#   requires nbdinfo jq
#   make_tmpdir
#
# and exits 0 (passed), 77 (skipped, with the reason) or otherwise (failed).
#
# From the environment, all optional:
#
#   NBDKIT            the nbdkit to run: one program, may be a wrapper
#   FATBATCH_SO       the plugin
#   abs_top_builddir  where plugin and test programs were built
#   TMPDIR            for scratch files; O_DIRECT should work there
#   TEST_TIMEOUT      seconds after which a test that hangs has failed

set -euo pipefail

# Whatever hangs, client or server: timeout(1) ends the whole process group,
# and so the clean-up runs.
if [ -z "${FATBATCH_TEST_BOUNDED:-}" ]; then
  export FATBATCH_TEST_BOUNDED=yes
  exec timeout -k 30 "${TEST_TIMEOUT:-300}" "$BASH" "$0" "$@"
fi

tests_srcdir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top_srcdir_abs=$(dirname "$tests_srcdir")
top_builddir_abs=${abs_top_builddir:-$top_srcdir_abs}

# Messages are compared with.
export LC_ALL=C
NBDKIT=${NBDKIT:-nbdkit}
PATH=$PATH:/usr/sbin:/sbin

cache_modes="writeback writethrough none directsync unsafe"

# fail MSG: ends the test, and shows what the servers said.
fail () {
  local log
  echo "$0: FAILED: $*" >&2
  for log in ${tmpdir:+"$tmpdir"/server.*.log}; do
    if [ -s "$log" ]; then
      echo "--- ${log##*/}" >&2
      tail -n 30 "$log" >&2
    fi
  done
  exit 1
}

skip () {
  echo "$0: skipped: $*" >&2
  exit 77
}

# requires PROG...: each must be in PATH, or be a program of our tests/.
requires () {
  local prog
  for prog in "$@"; do
    case $prog in
      nbdop) [ -x "$nbdop" ] || skip "$nbdop is not built" ;;
      faultfs) [ -x "$faultfs" ] || skip "$faultfs is not built"
               [ -w /dev/fuse ] || skip "/dev/fuse cannot be used" ;;
      *) command -v "$prog" >/dev/null || skip "$prog is not installed" ;;
    esac
  done
}

nbdop=${NBDOP:-$top_builddir_abs/tests/nbdop}
faultfs=${FAULTFS:-$top_builddir_abs/tests/faultfs}

# make leaves a link to what libtool built.
find_plugin () {
  local so
  for so in "$top_builddir_abs/fatbatch.so" \
            "$top_builddir_abs/plugin/.libs/nbdkit-fatbatch-plugin.so"; do
    if [ -e "$so" ]; then
      echo "$so"
      return
    fi
  done
  skip "fatbatch.so is not built"
}
FATBATCH_SO=${FATBATCH_SO:-$(find_plugin)}

# ---- clean-up: last registered, first run, on every way out ----

cleanup_stack=()

# cleanup_fn CMD ARG...: run it when the test ends.
cleanup_fn () {
  cleanup_stack+=("$(printf '%q ' "$@")")
}

run_cleanup () {
  local status=$? i
  trap '' INT TERM HUP
  trap - EXIT
  set +e
  for ((i = ${#cleanup_stack[@]} - 1; i >= 0; i--)); do
    eval "${cleanup_stack[i]}"
  done
  exit "$status"
}
trap run_cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

make_tmpdir () {
  tmpdir=$(mktemp -d "${TMPDIR:-/var/tmp}/fatbatch-test.XXXXXX")
  cleanup_fn rm -rf "$tmpdir"
}

# kill_job JOB: for the clean-up; maybe gone by now, and its number another
# process's: only a child of this shell is ended.
kill_job () {
  local parent
  parent=$(sed 's/.*) . //; s/ .*//' "/proc/$1/stat" 2>/dev/null)
  if [ "$parent" = $$ ]; then
    kill "$1" 2>/dev/null
    wait_until 5 job_ended "$1" || kill -9 "$1" 2>/dev/null
  fi
  wait "$1" 2>/dev/null
}

job_ended () {
  local state
  state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) || return 0
  [ -z "$state" ] || [ "$state" = Z ]
}

# wait_until SECONDS CMD ARG...: false if the time ran out.
wait_until () {
  local end=$((SECONDS + $1 + 1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}

# ---- servers ----

declare -A server_jobs=() server_logs=()
server_count=0

# start_server [NBDKIT-OPTION... --] PLUGIN-ARGUMENT...
#
# Sets, for the newest server: pid (nbdkit itself, also behind a wrapper),
# sock, uri, server_log.
start_server () {
  try_server "$@" || fail "server does not start: $*"
}

# The same, but false if the server ends by itself before it is ready.
try_server () {
  local options=() job pidfile i
  for ((i = 1; i <= $#; i++)); do
    if [ "${!i}" = -- ]; then
      options=("${@:1:i-1}")
      shift "$i"
      break
    fi
  done

  server_count=$((server_count + 1))
  sock=$tmpdir/server.$server_count.sock
  server_log=$tmpdir/server.$server_count.log
  pidfile=$tmpdir/server.$server_count.pid
  uri="nbd+unix:///?socket=$sock"
  "$NBDKIT" -f -P "$pidfile" -U "$sock" --exit-with-parent \
    ${options[@]+"${options[@]}"} "$FATBATCH_SO" "$@" \
    >"$server_log" 2>&1 </dev/null &
  job=$!
  cleanup_fn kill_job "$job"

  # A signal to the job could end a wrapper only: a server that does not
  # become ready is ended by --exit-with-parent.
  wait_until 20 server_settled "$job" "$pidfile" ||
    fail "server neither ready nor ended: $*"
  if [ ! -s "$pidfile" ]; then
    return 1
  fi
  pid=$(cat "$pidfile")
  server_jobs[$pid]=$job
  server_logs[$pid]=$server_log
}

server_settled () {
  [ -s "$2" ] || job_ended "$1"
}

# stop_server [PID]: SIGTERM; the server must then end with status 0.
stop_server () {
  local which=${1:-$pid} status=0
  local job=${server_jobs[$which]}
  kill "$which" || fail "server $which is gone: nothing to stop"
  wait_until 20 job_ended "$job" || fail "server $which ignores SIGTERM"
  wait "$job" || status=$?
  unset "server_jobs[$which]"
  [ "$status" -eq 0 ] || fail "server $which ended with status $status"
}

# kill_server [PID]: SIGKILL, and waits until it is gone.
kill_server () {
  local which=${1:-$pid}
  local job=${server_jobs[$which]}
  # The shell would report the death.
  { kill -9 "$which" && wait_until 20 job_ended "$job" && wait "$job"; } \
    2>/dev/null || true
  job_ended "$job" || fail "server $which survives SIGKILL"
  unset "server_jobs[$which]"
}

# server_says WORD...: each must be in the newest server's log.
server_says () {
  local word
  for word in "$@"; do
    grep -qiF -- "$word" "$server_log" ||
      fail "server does not say '$word': $(cat "$server_log")"
  done
}

# ---- expectations ----

# expect_fail WORD... -- CMD ARG...: CMD must fail, not by a signal nor by
# running out of time, and its stderr must contain each word.
expect_fail () {
  local words=() word status=0 err=$tmpdir/expect_fail.err
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  "$@" 2>"$err" </dev/null || status=$?
  [ "$status" -ne 0 ] || fail "should fail, but does not: $*"
  [ "$status" -lt 124 ] ||
    fail "status $status: $*: $(tail -n 5 "$err")"
  for word in ${words[@]+"${words[@]}"}; do
    grep -qiF -- "$word" "$err" ||
      fail "stderr lacks '$word': $*: $(cat "$err")"
  done
}

# expect_bad_start WORD... -- [NBDKIT-OPTION... --] PLUGIN-ARGUMENT...
#
# nbdkit must refuse to start, and tell each word.
expect_bad_start () {
  local words=() options=() i
  while [ "$1" != -- ]; do
    words+=("$1")
    shift
  done
  shift
  for ((i = 1; i <= $#; i++)); do
    if [ "${!i}" = -- ]; then
      options=("${@:1:i-1}")
      shift "$i"
      break
    fi
  done
  rm -f "$tmpdir/bad.sock"
  expect_fail ${words[@]+"${words[@]}"} -- \
    timeout 10 "$NBDKIT" -f -U "$tmpdir/bad.sock" \
    ${options[@]+"${options[@]}"} "$FATBATCH_SO" "$@"
}

# expect_answers ANSWER... -- OP...: nbdop on $uri must print exactly these,
# one for each operation.
expect_answers () {
  local want=() got
  while [ "$1" != -- ]; do
    want+=("$1")
    shift
  done
  shift
  got=$(timeout 60 "$nbdop" "$uri" "$@" 2>/dev/null | paste -sd,) || true
  [ "$got" = "$(IFS=,; echo "${want[*]}")" ] ||
    fail "nbdop $*: wanted '${want[*]}', got '$got'"
}

# ---- images and machines ----

# make_fat32 IMG SIZE [mkfs.fat option...]
make_fat32 () {
  local img=$1 size=$2
  shift 2
  rm -f "$img"
  truncate -s "$size" "$img"
  mkfs.fat -F 32 "$@" "$img" >/dev/null
}

# make_random FILE BYTES
make_random () {
  head -c "$2" /dev/urandom >"$1"
}

# Skips if files in $tmpdir cannot be opened with O_DIRECT.
requires_o_direct () {
  dd if=/dev/zero of="$tmpdir/direct" bs=4096 count=1 oflag=direct \
    2>/dev/null || skip "no O_DIRECT in $tmpdir; set TMPDIR"
  rm -f "$tmpdir/direct"
}

# Sets io_leaves to the values of io= that must work here.  Whether the
# kernel lets us have io_uring is judged by fio, not by the server.
find_io_leaves () {
  io_leaves="posix"
  "$NBDKIT" --dump-plugin "$FATBATCH_SO" |
    grep -q '^fatbatch_io_uring=yes' || return 0
  if command -v fio >/dev/null &&
     ! fio --name=probe --ioengine=io_uring --filename="$tmpdir/probe" \
       --size=4k --rw=write >/dev/null 2>&1; then
    echo "$0: note: no io_uring here, io=uring is not tested" >&2
  else
    io_leaves="posix uring"
  fi
  rm -f "$tmpdir/probe"
}

# open_flags PID FILE: the octal open flags of each descriptor that PID has
# on FILE, one a line.
open_flags () {
  local fd
  for fd in "/proc/$1/fd"/*; do
    if [ "$fd" -ef "$2" ]; then
      sed -n 's/^flags:[[:space:]]*//p' "/proc/$1/fdinfo/${fd##*/}"
    fi
  done
}

# has_flag OCTAL-FLAGS OCTAL-BIT
has_flag () {
  [ $((8#$1 & 8#$2)) -ne 0 ]
}

# O_DIRECT as open_flags shows it.
case $(uname -m) in
  aarch64 | arm*) o_direct=0200000 ;;
  ppc*) o_direct=0400000 ;;
  *) o_direct=040000 ;;
esac

# ---- the fault file system ----

# mount_faultfs [OPTION...]: $tmpdir/backing is seen through $tmpdir/faulty.
# Sets fault_log.
mount_faultfs () {
  local job
  fault_log=$tmpdir/fault.log
  mkdir -p "$tmpdir/backing" "$tmpdir/faulty"
  : >"$fault_log"
  "$faultfs" -f --control="$tmpdir/faults" --log="$fault_log" "$@" \
    "$tmpdir/backing" "$tmpdir/faulty" >"$tmpdir/server.faultfs.log" 2>&1 &
  job=$!
  cleanup_fn kill_job "$job"
  cleanup_fn unmount_quietly "$tmpdir/faulty"
  wait_until 10 mountpoint -q "$tmpdir/faulty" ||
    fail "faultfs is not mounted"
}

# set_faults [KEY=VALUE...]: these and no others, from now on.
set_faults () {
  printf '%s\n' "$@" >"$tmpdir/faults.new"
  mv "$tmpdir/faults.new" "$tmpdir/faults"
}

unmount_quietly () {
  ! mountpoint -q "$1" || fusermount3 -u "$1" || fusermount3 -uz "$1"
}
