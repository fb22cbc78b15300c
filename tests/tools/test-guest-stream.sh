#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC1091,SC2034,SC2154,SC2209
#
# What `fatbatch bench fallocate --guest=6.1` sends is what a guest kernel
# sends for fallocate (FALLOC_FL_KEEP_SIZE) of the same files on the same
# volume, and `fatbatch bench append` what it sends for write(2) after
# write(2): the requests as nbdkit's log filter sees them are equal in order,
# offset, length and flags, and the FATs that they leave are equal, byte for
# byte.
#
# Compared is everything that is written between mount and unmount: the
# directory's sector when a file is created, the FATs, data, the directory's
# sector and the FLUSH at the end of each write(2) and of the fsync with which
# fallocate(1) ends, FSInfo at sync.
# Not compared:
# - the boot sector, where the mount sets the dirty bit: the generator's
#   volume is not mounted by anyone;
# - the guest's reads, and FLUSHes after the last write, by which QEMU closes
#   the disk;
# - the time stamps in the directory.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The subject is the guest and the generator: other people's server will do.
FATBATCH_SO=file
. "$here/../vm/vm.sh"
fatbatch=${FATBATCH:-${abs_top_builddir:-$(cd "$here/../.." && pwd)}/tools/fatbatch}

vm_begin test-guest-stream
[ -x "$fatbatch" ] || vm_skip "$fatbatch is not built"
vm_require mkfs.fat fsck.fat
vm_prepare
case $vm_release in
  [0-5].* | 6.0.*) vm_skip "this kernel is older than 6.1: $vm_release" ;;
esac

cat >"$vm_dir/guest.sh" <<'GUEST'
set -eu
modprobe -a virtio_blk vfat
# No writeback by time while we are at it.
echo 60000 >/proc/sys/vm/dirty_writeback_centisecs
echo 60000 >/proc/sys/vm/dirty_expire_centisecs
mount -t vfat -o sync /dev/vda /mnt
case $load in
  fallocate)
    for i in 1 2 3; do
      : >"/mnt/FILE000$i"
      # Not busybox's, which has no -n.
      /bin/fallocate -n -l "$size" "/mnt/FILE000$i"
    done ;;
  append)
    dd if=/dev/urandom of=/mnt/GROW0001 bs=4096 count=$((size / 4096)) ;;
esac
sync
# No unmount: it would free the clusters behind EOF.
GUEST
vm_initramfs "$vm_dir/guest.sh" "$vm_dir/initramfs"

# The boot sector's 16 and 32 bits at an offset.
le16 ()
{
  od -An -v -tu2 --endian=little -j "$2" -N 2 "$1" | tr -d ' '
}
le32 ()
{
  od -An -v -tu4 --endian=little -j "$2" -N 4 "$1" | tr -d ' '
}

# stream LOG: "W offset length fua" and "F", without what is not compared.
stream ()
{
  sed -n -E \
    -e '/ Write id=[0-9]+ offset=0x0 count=0x200 /d' \
    -e 's/.* Write id=[0-9]+ offset=([0-9a-fx]+) count=([0-9a-fx]+) fua=([01]) \.\.\.$/W \1 \2 \3/p' \
    -e 's/.* Flush id=[0-9]+ \.\.\.$/F/p' \
    -e 's/.* (Trim|Zero) id=[0-9]+ (.*) \.\.\.$/\1 \2/p' "$1" |
    awk '{ line[NR] = $0; if ($1 != "F") last = NR }
         END { for (i = 1; i <= last; i++) print line[i] }'
}

# fat_writes STREAM: those to the FATs.
fat_writes ()
{
  while read -r type offset rest; do
    if [ "$type" = W ] && ((offset >= fat_start && offset < data_start)); then
      echo "W $offset $rest"
    fi
  done <"$1"
}

# After the volume is made, which the generator does through the same server,
# its stream begins with the first sector of the directory.
stream_of_generator ()
{
  stream "$vm_dir/requests" >"$vm_dir/all"
  tail -n "$generated" "$vm_dir/all"
}

# cmp_range NAME START END
cmp_range ()
{
  cmp -n $(($3 - $2)) "$vm_dir/guest.img" "$vm_dir/generator.img" "$2" "$2" ||
    vm_fail "$1 is not the same"
}

# test_stream WORKLOAD FILES SIZE CLUSTER QEMU-CACHE DURABLE [OPTION...]
test_stream ()
{
  local load=$1 files=$2 size=$3 cluster=$4 cache=$5 durable=$6
  local generator=$vm_dir/generator.img guest=$vm_dir/guest.img volume
  shift 6

  vm_say "$load: $files file(s) of $size bytes, clusters of $cluster," \
         "cache=$cache, --durable=$durable"

  rm -f "$generator" "$guest"
  truncate -s 600M "$generator"
  vm_serve_unix "$generator"
  "$fatbatch" bench "$load" "nbd+unix:///?socket=$vm_socket" \
    --durable="$durable" --size="$size" --cluster="$cluster" "$@" \
    --json --output="$vm_dir/result.json"
  vm_serve_stop
  generated=$(sed -n 's/.*"ops": \([0-9]*\),.*/\1/p' "$vm_dir/result.json")
  stream_of_generator >"$vm_dir/generator.stream"

  # The same volume once more, as mkfs.fat makes it.
  volume=$(($(le32 "$generator" 32) * 512))
  truncate -s "$volume" "$guest"
  mkfs.fat -F 32 -S 512 -s $((cluster / 512)) -f 2 -i fa7ba7c4 "$guest" \
           >/dev/null
  cmp -n 512 "$guest" "$generator" || vm_fail "the volumes are not the same"
  fat_start=$(($(le16 "$guest" 14) * 512))
  data_start=$((fat_start + 2 * $(le32 "$guest" 36) * 512))

  vm_serve_unix "$guest"
  vm_run "$vm_dir/initramfs" "$vm_dir/guest" "load=$load size=$size" \
         -drive "file=nbd+unix:///?socket=$vm_socket,format=raw,if=virtio,cache=$cache" ||
    vm_fail "the guest's script ended with status $?"
  vm_serve_stop
  stream "$vm_dir/requests" >"$vm_dir/guest.stream"

  # Per cluster an end mark in both FATs, and a link, but for the first of a
  # file.
  compare $((files * (((size + cluster - 1) / cluster) * 4 - 2)))
}

# compare FAT-SECTORS: so many there must be, since two empty streams are
# equal, too.
compare ()
{
  local fat=$vm_dir/fat

  fat_writes "$vm_dir/guest.stream" >"$fat.guest"
  fat_writes "$vm_dir/generator.stream" >"$fat.generator"
  [ "$(wc -l <"$fat.guest")" -eq "$1" ] ||
    vm_fail "the guest wrote $(wc -l <"$fat.guest") FAT sectors, not $1"
  diff "$fat.guest" "$fat.generator" >"$vm_dir/diff.log" ||
    vm_fail "the writes to the FATs are not the same"
  diff "$vm_dir/guest.stream" "$vm_dir/generator.stream" \
       >"$vm_dir/diff.log" || vm_fail "the streams are not the same"
  rm "$vm_dir/diff.log"
  cmp_range "FSInfo" 512 1024
  cmp_range "what is in the FATs" "$fat_start" "$data_start"
  vm_say "$(wc -l <"$vm_dir/guest.stream") requests," \
         "$(wc -l <"$fat.guest") of them FAT sectors: equal," \
         "and so are FSInfo and the FATs that they leave"
}

# A file of 64 KiB has as many clusters as a sector of the FAT has entries.
test_stream fallocate 3 65536 512 directsync fua --files=3 --guest=6.1
test_stream fallocate 3 65536 4096 writeback flush --files=3 --guest=6.1
test_stream append 1 98304 1024 directsync fua --bs=4096
test_stream append 1 98304 8192 writeback flush --bs=4096
vm_say PASS
