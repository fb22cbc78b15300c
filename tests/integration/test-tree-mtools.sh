#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# What the engine says of each cluster of volumes that mkfs.fat and mtools have
# made (tree.h) is what a simple reader says, after a scan, and when it has
# followed what mtools have changed, sector by sector in random order.

. "$(dirname "$0")/../functions.sh"
tree_states=${TREE_STATES:-$top_builddir_abs/tests/unit/tree-states}
requires mkfs.fat fsck.fat mcopy mmd mdel mmove mdeltree mattrib
[ -x "$tree_states" ] || skip "$tree_states is not built"
make_tmpdir

export MTOOLS_SKIP_CHECK=1
seed=${1:-$RANDOM}
RANDOM=$seed
echo "seed $seed"

# shellcheck disable=SC2154
img=$tmpdir/disk.img
served=$tmpdir/served.img
steps=()

# random BELOW: sets n.
random () {
  n=$(((RANDOM * 32768 + RANDOM) % $1))
}

# step: the image as it is now is the next one.
step () {
  steps+=("$tmpdir/step.${#steps[@]}")
  cp --sparse=always "$img" "${steps[-1]}"
}

put_file () {
  random "$2"
  head -c "$n" /dev/urandom >"$tmpdir/file"
  mcopy -o -i "$img" "$tmpdir/file" "::$1"
}

# put_files DIRECTORY NR BYTES: of fewer bytes each.
put_files () {
  local k
  rm -rf "$tmpdir/files"
  mkdir "$tmpdir/files"
  for k in $(seq 1 "$2"); do
    random "$3"
    head -c "$n" /dev/urandom >"$tmpdir/files/a file with a long name $k.bin"
  done
  mcopy -i "$img" "$tmpdir/files"/* "::$1/"
}

fill () {
  local i
  mmd -i "$img" ::dir1 ::dir2 ::dir3 ::dir1/sub ::dir1/sub/deep
  for i in 1 2 3; do
    put_files "dir$i" 6 40000
  done
  put_file dir1/sub/deep/big.bin 3000000
  put_file dir2/one.bin 2
  : >"$tmpdir/empty"
  mcopy -i "$img" "$tmpdir/empty" ::dir3/empty.bin
}

change () {
  mdel -i "$img" '::dir1/a file with a long name 2.bin' \
    '::dir2/a file with a long name 3.bin'
  step
  put_file 'dir2/a file with a long name 4.bin' 90000
  put_file dir1/fragmented.bin 200000
  step
  mmove -i "$img" '::dir1/a file with a long name 3.bin' ::dir2/moved.bin
  mmove -i "$img" ::dir1/sub ::dir3/sub
  step
  mattrib -i "$img" +h +r ::dir2/one.bin
  mmd -i "$img" ::many          # will have several clusters
  put_files many 60 3000
  step
  mdeltree -i "$img" ::dir3
  step
  mmd -i "$img" ::new ::new/sub # what has been freed is used again
  put_files new/sub 5 60000
  step
}

# check SIZE MKFS-OPTION...
check () {
  local size=$1
  shift
  make_fat32 "$img" "$size" "$@"
  steps=()
  step
  fill
  step
  change
  fsck.fat -n "$img" >"$tmpdir/fsck.out" 2>&1 ||
    fail "$size $*: fsck.fat: $(cat "$tmpdir/fsck.out")"

  # One that is full and the last one scanned, and one that follows.
  for each in "${steps[5]}" "${steps[-1]}"; do
    cp --sparse=always "$each" "$served"
    timeout 100 "$tree_states" "$served" ||
      fail "seed $seed, $size $*: scan of ${each##*/}"
  done
  cp --sparse=always "${steps[0]}" "$served"
  timeout 100 "$tree_states" --seed="$seed" "$served" "${steps[@]:1}" ||
    fail "seed $seed, $size $*: following"
  rm -f "${steps[@]}"
}

# The second one has more than a window of clusters (clusters.h).
check 34M -s 1 -f 2
check 70M -s 1 -f 1 -R 64
check 140M -s 4
check 270M -s 8
