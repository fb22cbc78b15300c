#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# durability=block is NBD's letter: what the server does to the storage is,
# operation by operation, what a server without any knowledge of FATs does, and
# after each request the image file is the same.

. "$(dirname "$0")/mirror-lib.sh"
requires faultfs mkfs.fat mcopy nbdop cmp fusermount3 mountpoint
make_tmpdir

backing=$tmpdir/backing/disk.img
img=$tmpdir/faulty/disk.img
make_volume "$tmpdir/clean.img"
mount_faultfs

# What a synchronous guest sends for a cluster; and some more.
ops=(write:"$(slot 5)":512:0x11:fua write:"$(mirror_slot 5)":512:0x11:fua
     write:"$(slot 5)":512:0x12:fua write:"$(mirror_slot 5)":512:0x12:fua
     write:"$(slot 1100)":4k:0x13 write:"$(mirror_slot 1100)":4k:0x13
     flush
     write:"$(slot 8)":4k:0x14:fua write:"$(mirror_slot 8)":4k:0x14
     write:"$(mirror_slot 9)":512:0x15:fua write:"$(mirror_slot 8)":700:0x14
     write:$((mirror - 512)):1k:0x16:fua
     write:0:512:0:fua
     write:$((mirror + 2 * fat_size)):64k:0x17:fua
     write:$((mirror + 2 * fat_size)):64k:0x18
     flush)

# served PARAMETER...: sets files[], checksums of the image after each request,
# and log, what was done to the storage.
served () {
  local op
  copy_image "$tmpdir/clean.img" "$backing"
  start_server "$img" "$@"
  files=()
  : >"$fault_log"
  for op in "${ops[@]}"; do
    expect_answers ok -- "$op"
    files+=("$(cksum <"$backing")")
    [[ " $* " != *" durability=block "* ]] || [ ! -e "$backing.fatbatch" ] ||
      fail "$*: a record"
  done
  log=$(sed 's/^fsync /fdatasync /' "$fault_log")
  stop_server
}

FATBATCH_SO="file" served
wanted_files=("${files[@]}")
wanted_log=$log
for io in posix auto; do
  served io=$io durability=block
  for ((i = 0; i < ${#ops[@]}; i++)); do
    [ "${files[i]}" = "${wanted_files[i]}" ] ||
      fail "io=$io: after ${ops[i]} the image is another one"
  done
  diff <(echo "$wanted_log") <(echo "$log") ||
    fail "io=$io: other operations than with the file plugin"
done

served mirror-delay=3600
[ "$wanted_log" != "$log" ] || fail "none is deferred: this proves nothing"
