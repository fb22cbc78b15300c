#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# nbdcopy to and from the server over several connections gives the same
# bytes, for sizes that no block divides too; and holes stay holes.

. "$(dirname "$0")/../functions.sh"
requires nbdcopy nbdinfo cmp du truncate
make_tmpdir
requires_o_direct
find_io_leaves

src=$tmpdir/src.img
img=$tmpdir/disk.img
back=$tmpdir/back.img

# copy_both_ways SIZE PLUGIN-ARGUMENT...
copy_both_ways () {
  local size=$1
  shift
  # What the image had before must not shine through the holes of $src.
  make_random "$img" "$size"
  rm -f "$back"
  start_server "$img" "$@"
  nbdcopy --connections=4 --requests=16 --threads=2 "$src" "$uri"
  nbdcopy --connections=4 --requests=16 --threads=2 "$uri" "$back"
  cmp "$src" "$back" || fail "size $size, $*: server's bytes differ"
  stop_server
  cmp "$src" "$img" || fail "size $size, $*: image's bytes differ"
}

for io in $io_leaves; do
  for cache in writeback none directsync; do
    for size in 1 $((1024 * 1024 + 300)) $((4 * 1024 * 1024 + 4095)); do
      make_random "$src" "$size"
      copy_both_ways "$size" io="$io" cache="$cache"
    done

    # 1 MiB of data in the middle of 16 MiB.
    rm -f "$src"
    size=$((16 * 1024 * 1024 + 300))
    truncate -s "$size" "$src"
    make_random "$tmpdir/island" 1048576
    dd if="$tmpdir/island" of="$src" bs=1M seek=7 conv=notrunc status=none
    copy_both_ways "$size" io="$io" cache="$cache"
    used=$(du -k "$img" | cut -f1)
    [ "$used" -lt 4096 ] ||
      fail "io=$io cache=$cache: image has $used KiB on disk, not 1 MiB"
    used=$(du -k "$back" | cut -f1)
    [ "$used" -lt 4096 ] ||
      fail "io=$io cache=$cache: copy has $used KiB on disk, not 1 MiB"
    start_server "$img" io="$io" cache="$cache"
    nbdinfo --map "$uri" >"$tmpdir/map"
    stop_server
    grep -q hole "$tmpdir/map" ||
      fail "io=$io cache=$cache: no hole in $(cat "$tmpdir/map")"
  done
done
