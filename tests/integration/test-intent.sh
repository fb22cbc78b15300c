#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# The intent record that a killed server leaves: it is honoured where it is
# sound and belongs to the image, and otherwise nothing is changed, one line
# says so, and the server goes on.  No case needs a hand (D4, D5).

. "$(dirname "$0")/intent-lib.sh"
requires mkfs.fat mcopy nbdop cmp qemu-img nbdinfo jq
make_tmpdir
requires_o_direct
make_left

# ---- honoured ----

for cache in writeback directsync unsafe; do
  begin "cache=$cache"
  run_once cache="$cache"
  expect_image all
  expect_no_record
  expect_recovery "$record" 3
  [ "$(counter recoveries)" -eq 2 ] || fail "$title: not 2 windows"
  [ "$(counter recovered_sectors)" -eq 3 ] || fail "$title: not 3 sectors"
done
run_once
expect_image all
expect_no_message
for parameter in durability=block intent=none; do
  begin "$parameter"
  run_once "$parameter"
  expect_image all
  expect_no_record
  expect_recovery "$record" 3
done
begin "never connected to"
serve "$img"
stop_server
expect_image left
cmp "$record" "$tmpdir/left.record" || fail "$title: the record changed"
defers || fail "$title: no mirror is deferred later"
echo "honoured: ok"

# What is in the image decides, and nothing that the record does not name is
# touched.  Slot 900 is in it, as one that was equal, and has not been written
# since as far as anybody knows: D5 lets it follow FAT 1.
begin "other bytes"
for at in 900 1110; do
  flip_bit "$img" $(($(slot $at) + 3)) 0
done
flip_bit "$img" $(($(mirror_slot 5) + 3)) 0
flip_bit "$img" $((mirror + fat_size + 100)) 0
cp "$img" "$tmpdir/expected.img"
for at in 5 6 900 1100 1110; do
  copy_mirror "$tmpdir/expected.img" $at 1
done
run_once
same_image "$img" "$tmpdir/expected.img" || fail "$title: images differ"

# ---- read-only ----

begin "read-only"
before=$(stat -c '%Y %Z %i' "$img" "$record")
# Without -v: with it and ASAN nbdkit hangs at its end after a refused write.
start_server -r -- "$img"
expect_answers ok ok ok ok ok ok -- \
  read:"$(mirror_slot 5)":1k:0xa5 read:$(($(mirror_slot 5) + 700)):10:0xa5 \
  read:"$(mirror_slot 1100)":512:0xa6 read:"$(slot 5)":1k:0xa5 \
  read:"$(mirror_slot 1000)":512:0 flush
expect_answers "error EPERM" -- write:0:512:0
nbdinfo --map --json "$uri" |
  jq -e --argjson byte "$(mirror_slot 1100)" \
    '.[] | select(.offset <= $byte and $byte < .offset + .length) |
     .type == 0' >/dev/null || fail "$title: shown as a hole"
stop_server
expect_image left
cmp "$record" "$tmpdir/left.record" || fail "$title: the record changed"
[ "$before" = "$(stat -c '%Y %Z %i' "$img" "$record")" ] ||
  fail "$title: files were touched"
run_once
expect_image all
echo "read-only: ok"

# ---- not used ----

# not_used WORD...: nothing changes, one line with these words says so, and the
# record is set aside.
not_used () {
  run_once
  expect_image left
  expect_message "$record" "$@"
  expect_no_record
  cmp "$record.stale" "$tmpdir/used.record" ||
    fail "$title: the record was not kept as it was"
}

# as_is: what not_used() will find.
as_is () {
  cp "$record" "$tmpdir/used.record"
}

begin "another size"
as_is
truncate -s +1M "$img"
truncate -s +1M "$left"
not_used size
truncate -s -1M "$left"
run_once
expect_no_message
defers || fail "$title: no mirror is deferred afterwards"

for size in 20480 700; do
  begin "cut short: $size bytes"
  truncate -s $size "$record"
  as_is
  not_used short
done

# In fields of the header, and where there is nothing.
for at in 8:0 24:1 100:2 508:0; do
  begin "header, bit $at"
  flip_bit "$record" "${at%:*}" "${at#*:}"
  as_is
  not_used "damaged"
done

# other_image WORD...: the image is another one by now; the record's own is
# gone.
other_image () {
  cp "$img" "$tmpdir/other.img"
  run_once
  same_image "$img" "$tmpdir/other.img" || fail "$title: the image changed"
  expect_message "$record" "$@"
  expect_no_record
  [ -e "$record.stale" ] || fail "$title: the record was not kept"
}

id=$(od -An -tx4 -j 67 -N 4 "$left" | tr -d ' ')
begin "another volume, the same geometry"
mkfs.fat -F 32 -s 1 -f 2 -i 0badcafe "$img" >/dev/null
other_image "another volume"
begin "the same serial number, another geometry"
mkfs.fat -F 32 -s 1 -f 2 -R 40 -i "$id" "$img" >/dev/null
other_image "another volume"
begin "no volume at all"
fallocate -z -o 0 -l 1M "$img"
other_image "another volume"
echo "not used: ok"

# ---- entries for themselves ----

# Each is a block; which window is whose.
for block in $(grep -abo FATBENTR "$tmpdir/left.record" | cut -d: -f1); do
  if [ "$(number "$tmpdir/left.record" $((block + 32)) 8)" -eq "$fat1" ]; then
    first_block=$block
  else
    second_block=$block
  fi
done

# damaged_entry NAME: what the others make of it.
damaged_entry () {
  run_once
  expect_image "$1"
  expect_message "$record" damaged
  expect_no_record
}

# The magic, some numbers, some slots, the end, the checksum.
for at in 0:0 13:1 41:1 64:5 400:4 511:7; do
  begin "first window's entry, bit $at"
  flip_bit "$record" $((first_block + ${at%:*})) "${at#*:}"
  damaged_entry second
done
begin "second window's entry, a slot"
flip_bit "$record" $((second_block + 70)) 3
damaged_entry first
begin "second window's entry, torn"
dd if=/dev/zero of="$record" bs=1 seek=$((second_block + 256)) count=256 \
  conv=notrunc status=none
damaged_entry first
begin "a block that is not used"
flip_bit "$record" $((79 * 512 + 77)) 3
damaged_entry all
echo "entries: ok"
