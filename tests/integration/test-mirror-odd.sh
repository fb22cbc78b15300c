#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# Volumes that are not as mkfs.fat leaves them: whether mirrors are deferred
# there, and that the image is in the end what a plain server makes of the same
# requests.  FATs that differ stay so, also after a kill: what the client did
# not write is not touched.

. "$(dirname "$0")/mirror-lib.sh"
requires mkfs.fat mcopy mdel nbdop cmp qemu-img nbdfuse fusermount3 mountpoint
requires_helpers mirror_stream
make_tmpdir
find_io_leaves
choose_seed

clean=$tmpdir/clean.img
ours=$tmpdir/ours.img
theirs=$tmpdir/theirs.img

# ---- clients ----

stream () {
  "$mirror_stream" "$uri" "$seed" 50 "${volumes[@]}" ||
    fail "$title: mirror-stream"
}

# for_each_touched FN: calls FN BYTE LENGTH HEX for some slots, in both copies
# of each volume.
for_each_touched () {
  local v at
  for v in "${volumes[@]}"; do
    IFS=: read -r _ fat1 mirror fat_size sector _ <<<"$v"
    for at in 1 5; do
      "$1" "$(slot $at)" "$sector" 4$at
      "$1" "$(mirror_slot $at)" "$sector" 4$at
    done
  done
}

add_op () {
  ops+=(write:"$1":"$2":0x"$3":fua)
}

touch_slots () {
  local ops=()
  for_each_touched add_op
  "$nbdop" "$uri" "${ops[@]}" >"$tmpdir/nbdop.out" ||
    fail "$title: $(cat "$tmpdir/nbdop.out")"
}

# What the judge would make of it.
add_to_file () {
  head -c "$2" /dev/zero | tr '\0' "\\$(printf %o $((16#$3)))" |
    dd of="$theirs" bs="$2" seek="$1" oflag=seek_bytes conv=notrunc \
      status=none
}

# ---- the same as the judge's ----

# reference CLIENT...
reference () {
  client=("$@")
  copy_image "$image" "$theirs"
  serve_plainly "$theirs"
  "${client[@]}"
  stop_server
}

# same PARAMETER...: the same client.
same () {
  copy_image "$image" "$ours"
  serve "$ours" "$@"
  "${client[@]}"
  stop_cleanly "$ours"
  same_image "$ours" "$theirs" || fail "$title, $*: images differ"
  if [ "$expected" = deferred ]; then
    [ "$(counter mirrors_deferred)" -gt 0 ] || fail "$title: none deferred"
  else
    [ "$(counter mirrors_deferred)" -eq 0 ] || fail "$title: deferred"
    [ "$(counter windows_compared)" -eq 0 ] || fail "$title: copies compared"
  fi
}

# The power button, when mirrors are deferred.
killed () {
  local ops=()
  copy_image "$image" "$ours"
  copy_image "$image" "$theirs"
  for_each_touched add_op
  for_each_touched add_to_file
  # shellcheck disable=SC2086
  serve "$ours" $never
  hold_open "${ops[@]}"
  kill_server
  let_go
  has_armed_entry "$ours.fatbatch" || fail "$title: nothing was deferred"
  serve "$ours"
  expect_answers ok -- flush
  stop_cleanly "$ours"
  same_image "$ours" "$theirs" || fail "$title, killed: images differ"
}

# odd TITLE IMAGE EXPECTED [VOLUME...]: EXPECTED is `deferred` or `not`; or
# `unknown`, where there is no FAT32, which is tried but briefly.  The volume
# is the one at the image's start, or these.
turn=0
odd () {
  local caches=(writeback none writethrough directsync) io=posix
  title=$1 image=$2 expected=$3
  volumes=("${@:4}")
  if [ "$#" -eq 3 ]; then
    locate_volume "$image"
    volumes=("$volume")
  fi
  turn=$((turn + 1))
  if [ "$expected" = unknown ]; then
    copy_image "$image" "$theirs"
    for_each_touched add_to_file
    client=(touch_slots)
  else
    reference stream
  fi
  [ "$io_leaves" = posix ] || [ $((turn % 3)) -eq 0 ] || io=uring
  same cache="${caches[turn % 4]}" io="$io"
  [ "$expected" != deferred ] || killed
  echo "$title: ok"
}

# variant COMMAND ARG...: sets image, a copy of the clean one that the command
# has changed, and which it is given as its last argument.
variant () {
  image=$tmpdir/variant.img
  copy_image "$clean" "$image"
  "$@" "$image"
}

# poke BYTE HEX... IMAGE
poke () {
  local at=$1 bytes="" i
  for ((i = 2; i < $#; i++)); do
    bytes+="\\x${!i}"
  done
  # shellcheck disable=SC2059
  printf "$bytes" | dd of="${!#}" bs=1 seek="$at" conv=notrunc status=none
}

zero_fat2 () {
  fallocate -z -o "$mirror" -l "$fat_size" "$1"
}

make_volume "$clean"

# ---- FATs that differ ----

variant zero_fat2
odd "FAT 2 is all zero" "$image" deferred
# In a sector that is written, in one that is not, and in the other window.
some_bytes () {
  locate_volume "$clean"
  poke $((mirror + 5 * 512 + 100)) 77 "$1"
  poke $((mirror + 90 * 512 + 100)) 77 "$1"
  poke $((fat1 + 1100 * 512 + 100)) 77 "$1"
}
variant some_bytes
odd "some bytes differ" "$image" deferred
# Entry 0, which both copies should begin with.
zero_media () {
  poke "$fat1" 00 00 00 00 "$1"
  poke "$mirror" 00 00 00 00 "$1"
}
variant zero_media
odd "FAT[0] is zero in both" "$image" deferred

# ---- volumes whose mirrors are left alone ----

variant poke 40 80
odd "ExtFlags: no mirroring" "$image" not
variant poke 510 00
odd "no boot sector" "$image" unknown
make_volume "$tmpdir/odd.img" -f 1
odd "one FAT" "$tmpdir/odd.img" not
make_volume "$tmpdir/odd.img" -f 3
odd "three FATs" "$tmpdir/odd.img" not
rm -f "$tmpdir/odd.img"
truncate -s 4M "$tmpdir/odd.img"
mkfs.fat -F 12 "$tmpdir/odd.img" >/dev/null
odd "FAT12" "$tmpdir/odd.img" unknown
rm -f "$tmpdir/odd.img"
truncate -s 64M "$tmpdir/odd.img"
mkfs.fat -F 16 "$tmpdir/odd.img" >/dev/null
odd "FAT16" "$tmpdir/odd.img" unknown

# ---- geometry ----

make_volume "$tmpdir/odd.img" -R 33
[ $(((mirror - fat1) % 4096)) -ne 0 ] || fail "FAT 2 is aligned to FAT 1"
odd "FATs begin at odd sectors" "$tmpdir/odd.img" deferred
make_fat32 "$tmpdir/odd.img" 80M -S 4096 -s 1 2>/dev/null
odd "sectors of 4096 bytes" "$tmpdir/odd.img" deferred
# An image that ends inside of a block of 4096 bytes, or of a sector.
variant truncate -s $((72 * 1024 * 1024 + 513))
odd "an odd size" "$image" deferred

# Two volumes: one with few clusters, and one not aligned to 4096 bytes.
disk=$tmpdir/odd.img
first_sector=2048 second_sector=20481
rm -f "$disk"
truncate -s 88M "$disk"
# le32 NUMBER: as poke takes it.
le32 () {
  printf '%02x %02x %02x %02x' $(($1 & 255)) $(($1 >> 8 & 255)) \
    $(($1 >> 16 & 255)) $(($1 >> 24))
}
# Entries of the MBR: type 0x0c, first sector and number of sectors.
# shellcheck disable=SC2046
poke 450 0c 00 00 00 $(le32 $first_sector) $(le32 18432) "$disk"
# shellcheck disable=SC2046
poke 466 0c 00 00 00 $(le32 $second_sector) $(le32 147456) "$disk"
poke 510 55 aa "$disk"
make_fat32 "$tmpdir/first.img" 9M -s 1 -i 12345678 2>/dev/null
make_volume "$tmpdir/second.img"
dd if="$tmpdir/first.img" of="$disk" bs=512 seek=$first_sector \
  conv=notrunc,sparse status=none
dd if="$tmpdir/second.img" of="$disk" bs=512 seek=$second_sector \
  conv=notrunc,sparse status=none
locate_volume "$disk" $((first_sector * 512))
first=$volume
locate_volume "$disk" $((second_sector * 512))
odd "two volumes" "$disk" deferred "$first" "$volume"

# ---- others' tools ----

# The time is part of what they write.
export SOURCE_DATE_EPOCH=1700000000 MTOOLS_SKIP_CHECK=1
served=$tmpdir/mnt/volume

# through_fuse COMMAND...: with what is served as the file $served.
through_fuse () {
  local job
  mkdir -p "$tmpdir/mnt"
  nbdfuse "$served" "$uri" >"$tmpdir/nbdfuse.log" 2>&1 &
  job=$!
  cleanup_fn kill_job "$job"
  cleanup_fn unmount_quietly "$tmpdir/mnt"
  wait_until 10 [ -e "$served" ] || fail "nbdfuse is not mounted"
  "$@"
  fusermount3 -u "$tmpdir/mnt"
  wait "$job" || fail "nbdfuse fails"
}

use_mtools () {
  mcopy -i "$served" "$tmpdir/payload" ::/payload
  mdel -i "$served" ::/file2
  mcopy -i "$served" "$tmpdir/payload" ::/again
}

# Over a live volume: another one, and files in it.
use_mkfs () {
  mcopy -i "$served" "$tmpdir/payload" ::/payload
  mkfs.fat --invariant -F 32 -s 1 -f 2 -R 41 "$served" >/dev/null
  mcopy -i "$served" "$tmpdir/payload" ::/payload
}

[ -w /dev/fuse ] || skip "/dev/fuse cannot be used (all else is ok)"
make_random "$tmpdir/payload" 300000
touch -d @1700000000 "$tmpdir/payload"
locate_volume "$clean"
volumes=("$volume")
expected=deferred
variant zero_fat2
for tool in use_mtools use_mkfs; do
  title=$tool
  reference through_fuse "$tool"
  same cache=writeback
  echo "$title: ok"
done
