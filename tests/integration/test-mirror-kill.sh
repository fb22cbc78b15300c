#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# SIGKILL under a load of FUA and plain writes to FAT 1, the mirror, a
# directory and data (D2): the same command serves again, with no step in
# between, and everything that was acknowledged is there, each mirror as it was
# written or as FAT 1 is now (D5).  The file alone has all but the mirror
# already (D4).  When the guest has written the mirrors that were left, a clean
# stop leaves equal FATs, on which fsck.fat has nothing to say (D8).  Many
# times over, and at each of the places at which something is half done.
#
# FATBATCH_ROUNDS: how many rounds; of one or two kills each.

. "$(dirname "$0")/mirror-lib.sh"
requires mkfs.fat fsck.fat mcopy nbdop cmp
requires_helpers mirror_load
make_tmpdir
requires_o_direct
find_io_leaves
choose_seed

rounds=${FATBATCH_ROUNDS:-10}
img=$tmpdir/disk.img
pristine=$tmpdir/pristine.img
state=$tmpdir/state
parameters=()

what () {
  echo "round $round, ${parameters[*]}"
}

kills=0 behind=0 followed=0 records=0

# Nobody serves, then somebody does.
judge () {
  local n
  kills=$((kills + 1))
  n=$("$mirror_load" file "$state" "$img" kill) || fail "$(what): image"
  behind=$((behind + n))
  if has_armed_entry "$img.fatbatch"; then
    records=$((records + 1))
  fi
  again "$img" "${parameters[@]}"
  n=$("$mirror_load" check "$state" "$uri" kill) ||
    fail "$(what): after the restart"
  followed=$((followed + n))
}

# The guest writes what is missing; then FATs are equal, and all is well.
finish () {
  "$mirror_load" finish "$state" "$uri" "$pristine" || fail "$(what): finish"
  stop_cleanly "$img"
  "$mirror_load" file "$state" "$img" stop >/dev/null ||
    fail "$(what): image after a clean stop"
  ! fats_differ "$img" || fail "$(what): FATs differ after a clean stop"
  fsck.fat -n "$img" >"$tmpdir/fsck.out" ||
    fail "$(what): $(cat "$tmpdir/fsck.out")"
}

make_load_volume "$pristine"
copy_image "$pristine" "$img"
"$mirror_load" new "$state" "$img" "${load_geometry[@]}"

# ---- many kills ----

choose_parameters () {
  local caches delays=(0 0.001 0.02 3600) commits=(0 0.01 1) io=posix
  read -ra caches <<<"$cache_modes"
  if [ "$io_leaves" != posix ] && [ "$(draw 2 io)" -eq 0 ]; then
    io=uring
  fi
  parameters=(cache="${caches[$(draw 5 cache)]}" io="$io"
              mirror-delay="${delays[$(draw 4 delay)]}"
              commit-delay="${commits[$(draw 3 commit)]}")
}

kill_once () {
  run_load "$state" --stop=$((1 + $(draw 800 "load $1"))) --kill="$pid" ||
    fail "$(what): load"
  wait_for_death
  judge
}

for ((round = 1; round <= rounds; round++)); do
  choose_parameters
  again "$img" "${parameters[@]}"
  if [ "$(draw 4 stop)" -eq 0 ]; then
    run_load "$state" --stop=300 || fail "$(what): load"
    stop_cleanly "$img"
    "$mirror_load" file "$state" "$img" stop >/dev/null ||
      fail "$(what): image after a stop under load"
    again "$img" "${parameters[@]}"
  fi
  kill_once first
  [ "$(draw 3 twice)" -ne 0 ] || kill_once second
  finish
done
echo "$kills kills: $records records were left, $behind mirror sectors were" \
     "behind, $followed have followed FAT 1"
[ $((records * behind)) -gt 0 ] ||
  fail "nothing was deferred when the server was killed: this proves nothing"

# ---- at each place at which something is half done ----

# What a client sees of it is the end of its connection.
connect_once () {
  "$nbdop" "$uri" flush >/dev/null 2>&1 || true
}

test_running () {
  again -D fatbatch.crash="$1" -- "$img" "${parameters[@]}"
  run_load "$state" || fail "$(what): load"
  wait_for_death
  judge
  finish
}

# While it brings back what was left by a kill; and once more.
test_recovering () {
  local i
  again "$img" "${parameters[@]}"
  run_load "$state" --stop=300 --kill="$pid" ||
    fail "$(what): load"
  wait_for_death
  for i in 1 2; do
    has_armed_entry "$img.fatbatch" ||
      fail "$(what): attempt $i: the record is not there"
    again -D fatbatch.crash="$1" -- "$img" "${parameters[@]}"
    quietly connect_once
    wait_for_death
  done
  judge
  [ "$("$mirror_load" file "$state" "$img" kill)" -eq 0 ] ||
    fail "$(what): recovered, but the file is not complete"
  finish
  [ "$(counter recoveries)" -gt 0 ] || fail "$(what): nothing was recovered"
}

caches=(writeback directsync)
for point in 1 2 3 4 5 6; do
  round="at point $point"
  seed=$((seed + 1))
  parameters=(cache="${caches[$((point % 2))]}" mirror-delay=0.01)
  if [ "$point" -le 4 ]; then
    round=$point test_running "$point"
  else
    parameters[1]="mirror-delay=3600"
    round=$point test_recovering "$point"
  fi
done
echo "half done: ok"
