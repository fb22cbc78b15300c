# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154
#
# For the tests of deferred mirrors.  A test begins with
#
#   . "$(dirname "$0")/mirror-lib.sh"
#   requires ...
#   make_tmpdir
#
. "$(dirname "${BASH_SOURCE[0]}")/../functions.sh"

# Tests here start many servers; what the others said is of no use.
fail () {
  local log
  echo "$0: FAILED: $*" >&2
  for log in "${server_log:-}" ${tmpdir:+"$tmpdir/server.faultfs.log"}; do
    if [ -s "$log" ]; then
      echo "--- ${log##*/}" >&2
      grep -v ' debug: ' "$log" | tail -n 20 >&2
    fi
  done
  exit 1
}

mirror_stream=$top_builddir_abs/tests/integration/mirror-stream
mirror_load=$top_builddir_abs/tests/integration/mirror-load
fatbatch=$top_builddir_abs/tools/fatbatch
traces=$tests_srcdir/bench/traces

# requires_helpers PROG...: of those above.
requires_helpers () {
  local prog
  for prog in "$@"; do
    [ -x "${!prog}" ] || skip "${!prog} is not built"
  done
}

# Nothing is written by itself for as long as a test runs.
never="mirror-delay=3600 mirror-batch=64M"

# ---- the seed of all that is random ----

# choose_seed: sets seed, from FATBATCH_SEED or by chance, and tells it.
choose_seed () {
  seed=${FATBATCH_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
  echo "$0: seed=$seed; replay with FATBATCH_SEED=$seed"
}

# draw N WHAT: a number from 0 on, below N, which follows from the seed, what
# it is for, and the round.
round=0
draw () {
  local hash
  hash=$(cksum <<<"$seed $round $2")
  echo $((${hash%% *} % $1))
}

# ---- images ----

# number FILE BYTE SIZE: the little-endian number there.
number () {
  od -An -v -j "$2" -N "$3" -t "u$3" --endian=little "$1" | tr -d ' '
}

# locate_volume IMAGE [BYTE]: where the parts of the FAT volume are that begins
# at that byte (0).  Sets fat1, mirror, fat_size, sector, and volume, as
# fat-volume.h has it.
locate_volume () {
  local img=$1 start=${2:-0} b reserved fats sectors end
  read -r -d '' -a b < <(od -An -v -tu1 -j "$start" -N 64 "$img") || true
  sector=$((b[11] | b[12] << 8))
  reserved=$((b[14] | b[15] << 8))
  fats=${b[16]}
  sectors=$((b[22] | b[23] << 8))
  [ "$sectors" -ne 0 ] ||
    sectors=$((b[36] | b[37] << 8 | b[38] << 16 | b[39] << 24))
  end=$((b[19] | b[20] << 8))
  [ "$end" -ne 0 ] ||
    end=$((b[32] | b[33] << 8 | b[34] << 16 | b[35] << 24))
  fat1=$((start + reserved * sector))
  fat_size=$((sectors * sector))
  mirror=$((fat1 + fat_size))
  [ "$fats" -ge 2 ] || fats=2
  volume=$start:$fat1:$mirror:$fat_size:$sector
  volume+=:$((fat1 + fats * fat_size)):$((start + end * sector))
}

# make_volume IMAGE [mkfs.fat option...]: a FAT32 volume with some files in it,
# whose FATs are a bit longer than one window each (512 KiB); and locates it.
make_volume () {
  local img=$1 i
  shift
  make_fat32 "$img" 72M -s 1 -f 2 "$@"
  for i in 1 2 3; do
    make_random "$tmpdir/file" $((i * 100000))
    MTOOLS_SKIP_CHECK=1 mcopy -i "$img" "$tmpdir/file" "::/file$i"
  done
  locate_volume "$img"
}

# make_load_volume IMAGE: one for mirror-load: its clusters begin with a
# directory of empty files and a long file.  Sets load_geometry, for
# `mirror-load new`.
make_load_volume () {
  local img=$1 i
  make_fat32 "$img" 72M -s 1 -f 2
  mkdir "$tmpdir/names"
  for ((i = 100; i < 190; i++)); do
    : >"$tmpdir/names/E$i"
  done
  make_random "$tmpdir/long" 1M
  # Two steps: mcopy lets a directory grow when it is done.
  MTOOLS_SKIP_CHECK=1 mcopy -i "$img" "$tmpdir/names"/E* ::/
  MTOOLS_SKIP_CHECK=1 mcopy -i "$img" "$tmpdir/long" ::/LONG
  rm -r "$tmpdir/names"
  locate_volume "$img"
  load_geometry=("$volume" 6 2048)
}

# copy_image FROM TO: holes stay holes; no record is left over.
copy_image () {
  rm -f "$2" "$2".fatbatch*
  cp "$1" "$2"
}

# same_image A B: byte for byte, as qemu-img sees it, which skips holes.
same_image () {
  qemu-img compare -q -U -f raw -F raw "$1" "$2" >/dev/null ||
    { cmp "$1" "$2" || true; return 1; }
}

# fats_differ IMAGE: do both copies differ, in the file?
fats_differ () {
  ! cmp -s -n "$fat_size" -i "$fat1:$mirror" "$1" "$1"
}

# slot N, mirror_slot N: byte of the image.
slot () {
  echo $((fat1 + $1 * sector))
}
mirror_slot () {
  echo $((mirror + $1 * sector))
}

# ---- servers ----

# Their counters are logged when they stop; requests are not.
debug_options=(-v -D fatbatch.stats=1
               -D nbdkit.backend.datapath=0 -D nbdkit.backend.controlpath=0)

# serve [NBDKIT-OPTION... --] IMAGE PARAMETER...
serve () {
  if [[ " $* " == *" -- "* ]]; then
    start_server "${debug_options[@]}" "$@"
  else
    start_server "${debug_options[@]}" -- "$@"
  fi
}

# The judge: a server without any knowledge of FATs.
serve_plainly () {
  FATBATCH_SO="file" start_server "$1"
}

# counter NAME: its value, from the log of the newest server, which has ended.
counter () {
  local value
  value=$(sed -n "s/.* stats: $1=\([0-9]*\) .*/\1/p" "$server_log")
  [ -n "$value" ] || fail "the log has no counter $1"
  echo "$value"
}

# stop_cleanly IMAGE: and no record must be left (D8).
stop_cleanly () {
  stop_server
  [ ! -e "$1.fatbatch" ] || fail "$1.fatbatch is there after a clean stop"
}

# messages: what a user sees of the newest server, without the debug log.
messages () {
  grep -v ' debug: ' "$server_log" || true
}

# expect_message WORD...: one line of the newest server has all of them.
expect_message () {
  local lines word
  lines=$(messages)
  for word in "$@"; do
    lines=$(grep -iF -- "$word" <<<"$lines") ||
      fail "no line has '$word' with the other words of: $*:" \
           "$(messages)"
  done
  [ "$(wc -l <<<"$lines")" -eq 1 ] || fail "more than one line: $lines"
}

expect_no_message () {
  [ -z "$(messages)" ] || fail "unexpected: $(messages)"
}

# hold_open OP...: runs these (all must say ok), and keeps the connection,
# until let_go.
hold_open () {
  local op answers=()
  held=$tmpdir/held.$server_count
  rm -f "$held"
  mkfifo "$held"
  "$nbdop" "$uri" "$@" wait <"$held" >"$held.out" 2>"$held.err" &
  held_job=$!
  cleanup_fn kill_job "$held_job"
  exec 7>"$held"
  wait_until 30 has_lines "$held.out" $# ||
    fail "nbdop $*: $(cat "$held.out" "$held.err")"
  ! grep -v '^ok$' "$held.out" ||
    fail "nbdop $*: $(cat "$held.out" "$held.err")"
}

has_lines () {
  [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]
}

# The end of that connection, if its server still lives.
let_go () {
  exec 7>&-
  wait "$held_job" 2>/dev/null || true
}

# ---- loads, and servers that die ----

# again [NBDKIT-OPTION... --] IMAGE PARAMETER...: a server as before, on the
# same socket, which as README.md has it is removed if it was left behind.
again () {
  rm -f "$tmpdir"/server.*.sock "$tmpdir"/server.*.pid
  server_count=0
  serve "$@"
}

# quietly CMD ARG...: the shell would report the death of a server meanwhile;
# what CMD says is told if it fails.
quietly () {
  local status=0
  { "$@" || status=$?; } 2>"$tmpdir/quietly.err"
  [ "$status" -eq 0 ] || cat "$tmpdir/quietly.err" >&2
  return "$status"
}

# run_load STATE OPTION...: a load on a server with parameters[].
run_load () {
  local options=()
  case " ${parameters[*]} " in
    *" cache=writethrough "* | *" cache=directsync "*)
      options=(--all-durable) ;;
  esac
  quietly "$mirror_load" run "$1" $((seed + round)) "$uri" "${@:2}" \
    ${options[@]+"${options[@]}"} >/dev/null
}

# wait_for_death: the newest server must end by SIGKILL, by itself or by a
# client's hand.
wait_for_death () {
  local job=${server_jobs[$pid]}
  unset "server_jobs[$pid]"
  quietly wait_until 30 job_ended "$job" || fail "the server lives on"
  quietly was_killed "$job" || fail "the server has not ended by SIGKILL"
}

was_killed () {
  local status=0
  wait "$1" || status=$?
  [ "$status" -eq 137 ]
}

# ---- records ----

# has_armed_entry RECORD: does it ask for anything?
has_armed_entry () {
  grep -qaF FATBENTR "$1" 2>/dev/null
}

# is_complete IMAGE OTHER: the file alone, with nothing deferred.
is_complete () {
  ! has_armed_entry "$1.fatbatch" && cmp -s "$1" "$2"
}

is_settled () {
  [ ! -e "$1.fatbatch" ] && cmp -s "$1" "$2"
}
