#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# While mirrors are deferred readers see them (D3), in copies and maps, too;
# the image file alone becomes complete when the last client has left, and when
# nothing happens for a while although one is still there.

. "$(dirname "$0")/mirror-lib.sh"
requires mkfs.fat mcopy nbdcopy nbdinfo nbdop cmp qemu-img jq fallocate
requires_helpers mirror_stream
make_tmpdir
requires_o_direct
choose_seed

clean=$tmpdir/clean.img
ours=$tmpdir/ours.img
theirs=$tmpdir/theirs.img
make_volume "$clean"

# ---- a connection stays open, and nothing happens: this takes a while ----

quiet=$tmpdir/quiet.img
copy_image "$clean" "$theirs"
ops=(write:"$(slot 7)":512:0x44:fua write:"$(mirror_slot 7)":512:0x44:fua
     write:"$(slot 1100)":512:0x45 write:"$(mirror_slot 1100)":512:0x45)
serve_plainly "$theirs"
expect_answers ok ok ok ok -- "${ops[@]}"
stop_server
copy_image "$clean" "$quiet"
# shellcheck disable=SC2086
serve "$quiet" $never
quiet_pid=$pid quiet_uri=$uri
hold_open "${ops[@]}"
quiet_job=$held_job
exec 8>&7

# ---- while they are deferred ----

# A volume whose second FAT is a hole, but for where it is not zero.
copy_image "$clean" "$ours"
fallocate -d "$ours"
cp "$ours" "$tmpdir/before.img"
# shellcheck disable=SC2086
serve "$ours" $never
ours_pid=$pid
first=500 from=$(mirror_slot 500)
deferred_ops=(
  write:"$(slot $first)":4k:0x11:fua write:"$from":4k:0x11:fua
  write:"$(slot 1100)":512:0x22:fua write:"$(mirror_slot 1100)":512:0x22:fua)
hold_open "${deferred_ops[@]}"

# Stopped, lest it finds that nothing happens.
kill -STOP "$ours_pid"
cmp -n "$fat_size" -i "$mirror:$mirror" "$ours" "$tmpdir/before.img" ||
  fail "FAT 2 is not deferred: this proves nothing"
has_armed_entry "$ours.fatbatch" || fail "no record, but FAT 2 is behind"
kill -CONT "$ours_pid"
expect_answers ok ok ok ok -- read:"$from":4k:0x11 \
  read:$((from + 1000)):1k:0x11 read:$((from + 4096)):512:0 \
  read:"$(mirror_slot 1100)":512:0x22
# FAT 1 goes on; the mirror is what it was.
expect_answers ok ok ok ok -- write:"$(slot $first)":512:0x33:fua \
  read:"$from":4k:0x11 read:"$(slot $first)":512:0x33 \
  read:$(($(slot $first) + 512)):512:0x11

# is_data BYTE: is it so in the map?
is_data () {
  nbdinfo --map --json "$uri" |
    jq -e --argjson byte "$1" \
      '.[] | select(.offset <= $byte and $byte < .offset + .length) |
       .type == 0' >/dev/null
}
is_data "$from" || fail "a deferred mirror is shown as a hole"
is_data "$(mirror_slot 1100)" || fail "a deferred mirror is shown as a hole"
! is_data $((64 * 1024 * 1024)) || fail "holes are not shown"
nbdcopy "$uri" "$tmpdir/seen.img"
let_go

# The same to the judge.
copy_image "$tmpdir/before.img" "$tmpdir/judge.img"
serve_plainly "$tmpdir/judge.img"
expect_answers ok ok ok ok ok -- "${deferred_ops[@]}" \
  write:"$(slot $first)":512:0x33:fua
stop_server
same_image "$tmpdir/seen.img" "$tmpdir/judge.img" ||
  fail "a copy made meanwhile differs"
wait_until 30 is_settled "$ours" "$tmpdir/judge.img" ||
  fail "the image is not complete after the last disconnect"
stop_server "$ours_pid"
echo "deferred: ok"

# ---- the file alone after each last disconnect ----

# mirror-stream disconnects now and then, and looks.
for cache in writeback directsync; do
  copy_image "$clean" "$ours"
  serve "$ours" cache="$cache"
  seed=$((seed + 1))
  "$mirror_stream" "$uri" "$seed" 100 --image="$ours" "$volume" ||
    fail "cache=$cache: mirror-stream"
  stop_cleanly "$ours"
done
echo "last disconnect: ok"

# ---- by age, and by amount ----

# Nothing is quiet, and nobody leaves.
is_written_meanwhile () {
  expect_answers ok ok -- write:"$(slot 20)":512:0x51 \
    write:"$(mirror_slot 20)":512:0x51
  cmp -s -n 512 -i "$(slot 9):$(mirror_slot 9)" "$ours" "$ours"
}
for parameters in "mirror-delay=0.05" "mirror-delay=3600 mirror-batch=1k"; do
  copy_image "$clean" "$ours"
  # shellcheck disable=SC2086
  serve "$ours" $parameters
  hold_open write:"$(slot 9)":512:0x50:fua \
    write:"$(mirror_slot 9)":512:0x50:fua
  wait_until 30 is_written_meanwhile || fail "$parameters: not written"
  let_go
  stop_cleanly "$ours"
done
echo "in the background: ok"

# ---- the quiet server ----

wait_until 60 is_complete "$quiet" "$theirs" ||
  fail "quiet, but the image is not complete"
uri=$quiet_uri
expect_answers ok -- read:"$(mirror_slot 7)":512:0x44
kill -0 "$quiet_job" || fail "the client that does nothing was disconnected"
# The power button, now: the record asks for nothing.
kill_server "$quiet_pid"
exec 8>&-
wait "$quiet_job" || true
same_image "$quiet" "$theirs" || fail "the image changed"
serve "$quiet"
expect_answers ok -- read:"$(mirror_slot 7)":512:0x44
stop_cleanly "$quiet"
[ "$(counter recoveries)" -eq 0 ] || fail "there was something to recover"
same_image "$quiet" "$theirs" || fail "the image changed"
echo "quiet: ok"
