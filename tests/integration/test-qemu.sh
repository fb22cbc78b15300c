#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# QEMU's block layer as the client, in each cache mode: its own patterns
# read back, and its comparison with a local file that had the same
# requests finds no difference.

. "$(dirname "$0")/../functions.sh"
requires qemu-io qemu-img jq cmp dd
make_tmpdir
requires_o_direct

img=$tmpdir/disk.img
copy=$tmpdir/local.img
size=$((8 * 1024 * 1024 + 512))

requests=(-c 'write -P 0x11 0 1M' -c 'write -P 0x22 512 512'
          -c 'write -f -P 0x33 1M 64k' -c 'write -f -P 0x44 2048512 1536'
          -c 'write -z 4k 8k' -c 'write -z -f 65024 1k'
          -c 'write -z -u 512k 128k' -c 'write -z -u 700928 512'
          -c 'discard 256k 64k' -c 'flush'
          -c 'aio_write -P 0x55 3M 1M' -c 'aio_write -P 0x66 5M 300k'
          -c 'aio_flush'
          -c 'write -P 0x77 8M 512')
checks=(-c 'read -P 0x11 0 512' -c 'read -P 0x22 512 512'
        -c 'read -P 0x11 1k 3k' -c 'read -P 0 4k 8k'
        -c 'read -P 0x11 12k 52736' -c 'read -P 0 65024 1k'
        -c 'read -P 0 512k 128k' -c 'read -P 0 700928 512'
        -c 'read -P 0x11 701440 347136'
        -c 'read -P 0x33 1M 64k' -c 'read -P 0x44 2048512 1536'
        -c 'read -P 0x55 3M 1M' -c 'read -P 0x66 5M 300k'
        -c 'read -P 0 6M 1M' -c 'read -P 0x77 8M 512')

# run_qemu_io TARGET ARGUMENT...: qemu-io ends with 0 after a pattern that
# does not match, but it says so.
run_qemu_io () {
  local target=$1
  shift
  qemu-io -f raw "$@" "$target" >"$tmpdir/qemu-io.out" 2>&1 ||
    fail "cache=$cache: $target: $(cat "$tmpdir/qemu-io.out")"
  ! grep -iE 'fail|error|cannot' "$tmpdir/qemu-io.out" ||
    fail "cache=$cache: $target: $(cat "$tmpdir/qemu-io.out")"
}

for cache in $cache_modes; do
  rm -f "$img" "$copy"
  truncate -s "$size" "$img" "$copy"
  start_server "$img" cache="$cache"
  run_qemu_io "$uri" "${requests[@]}"
  run_qemu_io "$uri" "${checks[@]}"
  run_qemu_io "$copy" "${requests[@]}"

  # Whether a discarded range reads as zeroes is the image's affair.
  run_qemu_io "$uri" -c 'write -P 0x99 256k 64k'
  run_qemu_io "$copy" -c 'write -P 0x99 256k 64k'
  qemu-img compare -f raw -F raw "$uri" "$copy" >"$tmpdir/compare" ||
    fail "cache=$cache: $(cat "$tmpdir/compare")"

  qemu-img convert -f raw -O raw "$uri" "$tmpdir/converted.img"
  cmp "$copy" "$tmpdir/converted.img" || fail "cache=$cache: convert from"

  # All is data or zeroes, from 0 to the end, without gap or overlap.
  qemu-img map --output=json -f raw "$uri" >"$tmpdir/map"
  jq -e --argjson size "$size" \
    'reduce .[] as $e (0; if . == $e.start then . + $e.length else -1 end)
     == $size' "$tmpdir/map" >/dev/null ||
    fail "cache=$cache: map: $(cat "$tmpdir/map")"
  jq -e 'any(.[]; .data == false)' "$tmpdir/map" >/dev/null ||
    fail "cache=$cache: no hole in $(cat "$tmpdir/map")"
  stop_server
  cmp "$copy" "$img" || fail "cache=$cache: image differs"

  make_random "$copy" "$size"
  start_server "$img" cache="$cache"
  qemu-img convert -n -f raw -O raw "$copy" "$uri"
  qemu-img compare -f raw -F raw "$uri" "$copy" >"$tmpdir/compare" ||
    fail "cache=$cache: convert to: $(cat "$tmpdir/compare")"
  stop_server
  cmp "$copy" "$img" || fail "cache=$cache: image differs after convert to"
done
