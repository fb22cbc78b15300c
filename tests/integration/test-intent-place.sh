#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# Where the intent record is (intent=), and what happens if it can't be there:
# mirrors are written at once, and one line says so.  What is not ours is not
# touched.

. "$(dirname "$0")/intent-lib.sh"
requires mkfs.fat mcopy nbdop cmp qemu-img
make_tmpdir
make_left

# ---- what is not ours ----

for foreign in text directory fifo loop; do
  begin "a foreign $foreign"
  rm "$record"
  case $foreign in
    text) echo "my notes about this disk image" >"$record" ;;
    directory) mkdir "$record" ;;
    fifo) mkfifo "$record" ;;
    loop) ln -s "$record" "$record" ;;
  esac
  run_once
  expect_image left
  expect_message "$record" "at once"
  at_once
  case $foreign in
    text) [ "$(cat "$record")" = "my notes about this disk image" ] ||
            fail "$title: it changed" ;;
    directory) [ -d "$record" ] || fail "$title: it is gone" ;;
    fifo) [ -p "$record" ] || fail "$title: it is gone" ;;
    loop) [ -L "$record" ] || fail "$title: it is gone" ;;
  esac
  ls "$record".* >/dev/null 2>&1 && fail "$title: something was made of it"
  rm -rf "$record"
done

# What a server may leave that dies as it makes one.
for size in 0 40960; do
  begin "a record that was just being made, $size bytes"
  truncate -s 0 "$record"
  truncate -s "$size" "$record"
  run_once
  expect_image left
  expect_no_message
  defers || fail "$title: no mirror is deferred"
  expect_no_message
done
echo "not ours: ok"

# ---- intent= ----

elsewhere=$tmpdir/records/a.record
mkdir "$tmpdir/records"
title="intent=PATH"
rm -f "$record"*
copy_image "$tmpdir/clean.img" "$img"
leave_behind intent="$elsewhere"
has_armed_entry "$elsewhere" || fail "$title: no record there"
expect_no_record
expect_image left
run_once intent="$elsewhere"
expect_image all
[ ! -e "$elsewhere" ] || fail "$title: the record is still there"
expect_recovery "$elsewhere" 3

title="intent=none"
at_once intent=none
expect_no_record
expect_no_message

title="no such folder"
at_once intent="$tmpdir/missing/record"
expect_message "$tmpdir/missing/record" "No such file" "at once"
title="a folder that is none"
at_once intent="$tmpdir/clean.img/record"
expect_message "$tmpdir/clean.img/record" "Not a directory" "at once"
title="a name that has no room for more"
short=$img
img=$tmpdir/$(printf '%250s' .img | tr ' ' a)
cp "$tmpdir/clean.img" "$img"
at_once
expect_message "$img.fatbatch" "too long" "at once"
rm "$img"
img=$short

# The same image by another name: there is one record.
title="a link to the image"
copy_image "$tmpdir/clean.img" "$img"
ln -s "$img" "$tmpdir/records/link"
file=$img
img=$tmpdir/records/link
leave_behind
img=$file
has_armed_entry "$record" || fail "$title: no record beside the image"
run_once
expect_image all
expect_no_record

title="two servers with one record"
copy_image "$tmpdir/clean.img" "$img"
copy_image "$tmpdir/clean.img" "$tmpdir/second.copy"
# shellcheck disable=SC2086
serve "$img" $never intent="$elsewhere"
first_pid=$pid
hold_open "${forward[@]}"
first_held=$held_job
exec 8>&7
cp "$elsewhere" "$tmpdir/before.record"
# shellcheck disable=SC2086
serve "$tmpdir/second.copy" $never intent="$elsewhere"
expect_answers ok ok -- write:"$(slot 30)":512:0x57:fua \
  write:"$(mirror_slot 30)":512:0x57:fua
expect_message "$elsewhere" "another server" "at once"
stop_server
cmp "$elsewhere" "$tmpdir/before.record" || fail "$title: it was written to"
[ "$(counter mirrors_deferred)" -eq 0 ] || fail "$title: deferred"
kill_server "$first_pid"
exec 7>&- 8>&-
wait "$first_held" || true
run_once intent="$elsewhere"
expect_image all

# read_only_folder on|off: root may write anywhere else.
read_only_folder () {
  local mode=rw
  [ "$1" = off ] || mode=ro
  mount -o remount,bind,"$mode" "$tmpdir/records"
}
title="a read-only folder"
if mount --bind "$tmpdir/records" "$tmpdir/records" 2>/dev/null; then
  cleanup_fn umount "$tmpdir/records"
  read_only_folder on
  at_once intent="$elsewhere"
  expect_message "$elsewhere" "Read-only" "at once"

  # A record that can be neither used nor renamed.  Writing would be dangerous
  # if it fitted again some day.
  read_only_folder off
  cp "$tmpdir/left.record" "$elsewhere"
  flip_bit "$elsewhere" 20 1
  cp "$elsewhere" "$tmpdir/before.record"
  read_only_folder on
  copy_image "$left" "$img"
  # Without -v, as in test-intent.sh.
  start_server "$img" intent="$elsewhere"
  expect_answers "error EPERM" ok -- write:"$(slot 30)":512:0 \
    read:"$(mirror_slot 1000)":512:0
  server_says "$elsewhere" "not used" "cannot be renamed" "read-only"
  stop_server
  expect_image left
  cmp "$elsewhere" "$tmpdir/before.record" || fail "$title: it was written to"
  read_only_folder off
  rm "$elsewhere"
else
  echo "$0: note: no bind mounts here, read-only folders are not tested" >&2
fi
echo "intent=: ok"

# ---- block devices ----

file=$img
device=$(losetup -f --show "$file" 2>/dev/null) ||
  skip "losetup does not work here (all else is ok)"
detach_device () {
  if [ "$(losetup -n -O BACK-FILE "$device" 2>/dev/null)" = "$file" ]; then
    losetup -d "$device"
  fi
}
cleanup_fn detach_device

title="a block device"
img=$device
at_once
expect_message "$device" intent= "at once"
at_once intent=none
expect_no_message
at_once durability=block
expect_no_message
cmp "$device" "$file" || fail "$title: device and file differ"
[ -z "$(find /dev -name '*.fatbatch')" ] || fail "$title: a record in /dev"

title="a block device, intent=PATH"
dd if="$tmpdir/clean.img" of="$device" bs=1M conv=fsync status=none
leave_behind intent="$elsewhere"
expect_no_message
cmp "$device" "$left" || fail "$title: other bytes were left"
run_once intent="$elsewhere"
cmp "$device" "$tmpdir/all.img" || fail "$title: not brought back"
[ ! -e "$elsewhere" ] || fail "$title: the record is still there"

title="a block device without FAT32"
dd if=/dev/zero of="$device" bs=1M count=1 conv=fsync status=none
run_once
expect_no_message
echo "block devices: ok"
