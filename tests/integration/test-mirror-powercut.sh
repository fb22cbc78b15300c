#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# A power cut under a load of writes to FAT 1, the mirror, a directory and
# data: what was not synced is gone, or is there, sector by sector by lot, of
# the image and of the record; names that were not synced, too (powercut.h).
# What was acknowledged as durable is there (D1, D5) when the same command
# serves again.  The cut comes at a random operation of the storage: under the
# load, when the last client has left and the image is made complete, or then,
# and while what an earlier cut has left is brought back.
#
# FATBATCH_ROUNDS: how many rounds; of one or two cuts each.

. "$(dirname "$0")/mirror-lib.sh"
requires faultfs mkfs.fat fsck.fat mcopy nbdop fusermount3 mountpoint
requires_helpers mirror_load
make_tmpdir
find_io_leaves
choose_seed

rounds=${FATBATCH_ROUNDS:-10}
img=$tmpdir/faulty/disk.img
backing=$tmpdir/backing/disk.img
pristine=$tmpdir/pristine.img
state=$tmpdir/state
parameters=()

what () {
  echo "round $round, keep $keep, ${storage:-write through}, ${parameters[*]}"
}

# The storage, with power.
power_on () {
  local options=(--powercut="$((seed + round))" --keep="$keep")
  set_faults
  [ -z "$storage" ] || options+=("$storage")
  mount_faultfs "${options[@]}"
}

# cut_after N: at the N-th of the operations that follow.
cut_after () {
  set_faults cut_at=$(($(wc -l <"$fault_log") + $1)) \
    fsync_delay_us="$(($(draw 3 slow) * 700))"
}

is_cut () {
  stat "$img" >/dev/null 2>&1 || true   # any operation will do
  grep -q '^cut$' "$fault_log"
}

is_settled_or_cut () {
  [ ! -e "$img.fatbatch" ] || is_cut
}

# The kernel may close a dead server's files a moment later.
unmount () {
  wait_until 30 fusermount3 -q -u "$tmpdir/faulty" ||
    fail "$(what): cannot be unmounted"
}

# No power: the server is of no use any more.
power_off () {
  wait_until 30 is_cut || fail "$(what): the power is still on"
  cuts=$((cuts + 1))
  kill_server
  unmount
  "$mirror_load" file "$state" "$backing" cut >"$tmpdir/behind" ||
    fail "$(what): the image file after the cut"
  behind=$((behind + $(cat "$tmpdir/behind")))
  if has_armed_entry "$backing.fatbatch"; then
    records=$((records + 1))
  fi
}

# What is lost: all that can be, half of it, little, or nothing.
choose_keep () {
  local keeps=(0 0 50 90 100)
  keep=${keeps[$(draw 5 keep)]}
}

# What the storage keeps in memory, and the server's parameters.  --writeback:
# a sync of one range does not cover another one.
configurations=()
for io in $io_leaves; do
  configurations+=(
    "--writeback io=$io cache=writeback mirror-delay=0.005"
    "--writeback io=$io cache=writethrough mirror-delay=3600"
    "- io=$io cache=writeback mirror-delay=0.02"
    "- io=$io cache=directsync mirror-delay=0.005"
    "- io=$io cache=none mirror-delay=0.001")
done

# choose_configuration N
choose_configuration () {
  local n=$(($1 % ${#configurations[@]}))
  read -ra parameters <<<"${configurations[n]}"
  storage=${parameters[0]}
  [ "$storage" != - ] || storage=
  parameters=("${parameters[@]:1}")
}

cuts=0 behind=0 records=0 followed=0

check () {
  local n
  n=$("$mirror_load" check "$state" "$uri" cut) ||
    fail "$(what): after the restart"
  followed=$((followed + n))
}

mkdir -p "$tmpdir/backing"
make_load_volume "$pristine"
copy_image "$pristine" "$backing"
"$mirror_load" new "$state" "$backing" "${load_geometry[@]}"

first=$(draw "${#configurations[@]}" first)
for ((round = 1; round <= rounds; round++)); do
  choose_keep
  choose_configuration $((first + round))
  power_on
  again "$img" "${parameters[@]}"
  if [ "$(draw 4 early)" -eq 0 ]; then
    cut_after "$(draw 6 when)"
    "$nbdop" "$uri" read:0:512:0 >/dev/null 2>&1 || true
    set_faults cut_at=0
    power_off
    power_on
    again "$img" "${parameters[@]}"
  fi
  check
  if [ "$(draw 3 settling)" -eq 0 ]; then
    run_load "$state" --stop=$((1 + $(draw 300 load))) || fail "$(what): load"
    cut_after "$(draw 12 when)"
    wait_until 30 is_settled_or_cut || fail "$(what): not settled"
    set_faults cut_at=0
  else
    cut_after "$(draw 1000 when)"
    run_load "$state" --may-fail || fail "$(what): load"
  fi
  power_off
done

# All that is left is brought back at last; and the guest writes the rest.
keep=0 storage=
power_on
again "$img" "${parameters[@]}"
check
"$mirror_load" finish "$state" "$uri" "$pristine" || fail "$(what): finish"
stop_cleanly "$img"
unmount
"$mirror_load" file "$state" "$backing" stop >/dev/null ||
  fail "the image file in the end"
fsck.fat -n "$backing" >"$tmpdir/fsck.out" || fail "$(cat "$tmpdir/fsck.out")"

echo "$cuts power cuts: $records records were left, $behind mirror sectors" \
     "were behind, $followed have followed FAT 1"
[ $((records * behind)) -gt 0 ] ||
  fail "nothing was deferred when the power was cut: this proves nothing"
