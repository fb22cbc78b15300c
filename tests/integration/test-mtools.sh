#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# A FAT32 volume is made, filled and checked through the server by others'
# tools, and the image alone is the same volume afterwards.

. "$(dirname "$0")/../functions.sh"
requires mkfs.fat fsck.fat mcopy mdel nbdfuse fusermount3 mountpoint cmp diff
[ -w /dev/fuse ] || skip "/dev/fuse cannot be used"
make_tmpdir
requires_o_direct

img=$tmpdir/disk.img
volume=$tmpdir/mnt/volume
export MTOOLS_SKIP_CHECK=1

mount_volume () {
  mkdir -p "$tmpdir/mnt"
  nbdfuse "$volume" "$uri" >"$tmpdir/server.nbdfuse.log" 2>&1 &
  nbdfuse_job=$!
  cleanup_fn kill_job "$nbdfuse_job"
  cleanup_fn unmount_quietly "$tmpdir/mnt"
  wait_until 10 [ -e "$volume" ] || fail "nbdfuse is not mounted"
}

unmount_volume () {
  fusermount3 -u "$tmpdir/mnt"
  wait "$nbdfuse_job" || fail "nbdfuse fails"
}

check_volume () {
  fsck.fat -n "$1" >"$tmpdir/fsck.out" 2>&1 ||
    fail "cache=$cache: fsck.fat $1: $(cat "$tmpdir/fsck.out")"
}

# Long names, an empty file, many clusters, directories of several clusters.
tree=$tmpdir/tree
mkdir -p "$tree/A long directory name/deep/deeper" "$tree/many"
: >"$tree/empty"
make_random "$tree/A long directory name/one cluster.bin" 512
make_random "$tree/A long directory name/deep/deeper/odd.bin" 777777
for i in $(seq 1 120); do
  make_random "$tree/many/a file whose name is long $i.txt" $((i * 37))
done

for cache in writeback writethrough directsync; do
  rm -f "$img"
  truncate -s 64M "$img"
  start_server "$img" cache="$cache"
  mount_volume
  mkfs.fat -F 32 -s 1 -f 2 -R 32 "$volume" >/dev/null
  check_volume "$volume"
  mcopy -i "$volume" -s "$tree"/* ::/
  check_volume "$volume"
  mdel -i "$volume" '::/many/a file whose name is long 7.txt'
  mcopy -i "$volume" "$tree/many/a file whose name is long 7.txt" ::/many/
  check_volume "$volume"

  rm -rf "$tmpdir/out"
  mkdir "$tmpdir/out"
  mcopy -i "$volume" -s '::/*' "$tmpdir/out/"
  diff -r "$tree" "$tmpdir/out" || fail "cache=$cache: files differ"
  cp "$volume" "$tmpdir/seen.img"
  unmount_volume
  stop_server

  cmp "$tmpdir/seen.img" "$img" || fail "cache=$cache: image differs"
  check_volume "$img"
  rm -rf "$tmpdir/out"
  mkdir "$tmpdir/out"
  mcopy -i "$img" -s '::/*' "$tmpdir/out/"
  diff -r "$tree" "$tmpdir/out" || fail "cache=$cache: image's files differ"
done
