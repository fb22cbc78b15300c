#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# A sparse image of 9 GiB: the map that clients get is right to the byte
# against the islands that were written, also around 4 GiB, where 32-bit
# lengths end; and requests of all kinds work there.

. "$(dirname "$0")/../functions.sh"
requires nbdinfo nbdop qemu-img jq dd diff
make_tmpdir
find_io_leaves

img=$tmpdir/disk.img
size=$((9 * 1024 * 1024 * 1024 + 300))

# Islands in units of 64 KiB: FIRST COUNT.
islands="0 1
15 2
65535 2
98304 16
131071 1
147455 1"

make_islands () {
  local first count
  rm -f "$img"
  truncate -s "$size" "$img"
  while read -r first count; do
    head -c $((count * 65536)) /dev/urandom |
      dd of="$img" bs=64k seek="$first" conv=notrunc status=none
  done <<<"$islands"
  sync "$img"
}

# The reference: where lseek(2) finds data, and what is known of above.
# Neighbours of one kind are joined; qemu-img rounds the end up.
normalize_map () {
  jq -c 'reduce .[] as $e ([];
           if length > 0 and .[-1].hole == $e.hole
           then .[-1].length += $e.length else . + [$e] end) | .[]'
}

make_islands
qemu-img map --output=json -U -f raw "$img" |
  jq --argjson size "$size" '[.[] | {offset: .start,
    length: (([.start + .length, $size] | min) - .start),
    hole: (.data | not)}]' |
  normalize_map >"$tmpdir/want"
while read -r first count; do
  jq -e -s --argjson o $((first * 65536)) --argjson l $((count * 65536)) \
    'any(.[]; (.hole | not) and
     .offset <= $o and .offset + .length >= $o + $l)' "$tmpdir/want" \
    >/dev/null || fail "the reference lacks the island at block $first"
done <<<"$islands"

for io in $io_leaves; do
  make_islands
  start_server "$img" io="$io"
  nbdinfo --json --map "$uri" |
    jq '[.[] | {offset, length, hole: (.type % 2 == 1)}]' |
    normalize_map >"$tmpdir/got"
  diff -u "$tmpdir/want" "$tmpdir/got" || fail "io=$io: wrong map"

  # Holes read as zeroes: bit 1 goes with bit 0 here.
  nbdinfo --json --map "$uri" |
    jq -e 'all(.[]; .type == 0 or .type == 3)' >/dev/null ||
    fail "io=$io: a hole that is not known to be zeroes"

  expect_answers ok ok ok ok ok ok ok ok ok -- \
    write:4294967295:2:0x41 read:4294967295:2:0x41 \
    write:4294966784:1024:0x42:fua read:4294966784:1024:0x42 \
    zero:4294966784:1024 read:4294966784:1024:0 \
    zero:5G:3G:may_trim read:6G:64k:0 flush
  expect_answers ok ok ok -- \
    trim:4G:4294967295 cache:4G:4294967295 read:4294967294:4:0

  # The last bytes, and past them.
  expect_answers ok ok -- write:9663676416:300:0x43 read:9663676416:300:0x43
  expect_answers "error EINVAL" "error ENOSPC" "error ENOSPC" -- \
    read:9663676416:301:0 write:9663676716:1:0 zero:9663676416:301
  expect_answers ok -- read:9663676416:300:0x43
  stop_server
done
