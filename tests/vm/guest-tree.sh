# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
#
# For scripts inside the test guest: write trees of files on a FAT volume,
# and tell what they hold.  The bytes are random; what counts is that whoever
# reads the image later finds those that the guest wrote.

# random SIZE
random ()
{
  head -c "$1" /dev/urandom
}

# tree_write_first DIR: each way in which a file or directory can change.
# Meant for a mount with -o sync, so not large: there each cluster costs five
# requests, each waited for.
tree_write_first ()
(
  cd "$1" || exit
  mkdir -p one/two/three empty 'A directory with a long name and spaces'

  # So many long names that the directory needs further clusters.
  mkdir many
  for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
    random $((i * 97)) >"many/file number $i, its name is not a short one.data"
  done

  random 1 >one/byte
  random 512 >one/two/SECTOR.BIN
  random 4097 >one/two/three/page-and-a-byte
  : >one/two/three/nothing
  random 300000 >'A directory with a long name and spaces/big file.bin'

  # Appended in odd pieces, so that a cluster is written more than once.
  for size in 300 513 5000 20000 1; do
    random $size >>one/appended
  done
  # Overwritten in the middle, on and off the sector.
  random 80000 >one/overwritten
  random 8192 | dd of=one/overwritten conv=notrunc bs=4096 seek=7 2>/dev/null
  random 1001 | dd of=one/overwritten conv=notrunc bs=77 seek=500 2>/dev/null
  # Made shorter, then longer: the end reads as zeros.
  random 40000 >one/truncated
  truncate -s 20001 one/truncated
  truncate -s 30000 one/truncated
  # Clusters behind the end of the file; the unmount frees those left.
  # (With the path: busybox's own has no -n.)
  : >one/allocated
  /bin/fallocate -n -l 131072 one/allocated
  random 50000 >>one/allocated

  # Renamed: in place, to another directory, over another file, a directory.
  random 3000 >one/old-name
  mv one/old-name 'one/The new name is longer than the old one was'
  random 2000 >moved
  mv moved one/two/moved
  random 700 >one/victim
  random 800 >one/winner
  mv one/winner one/victim
  mkdir one/olddir
  random 99 >one/olddir/inside
  mv one/olddir newdir

  # Deleted: files between others, and a whole tree.
  for i in 3 4 5 11 19; do
    rm "many/file number $i, its name is not a short one.data"
  done
  mkdir -p gone/deep
  random 20000 >gone/deep/file
  rm -r gone
)

# tree_write_second DIR: more of it, on top of the first, with fsync.
tree_write_second ()
(
  cd "$1" || exit
  mkdir -p second/sub
  dd if=/dev/urandom of=second/3MiB bs=64k count=48 conv=fsync 2>/dev/null
  # Reuses what was freed, in holes and in many files at once.
  for i in 0 1 2 3 4 5 6 7 8 9; do
    random $((i * 3001)) >"second/sub/another file number $i"
  done
  random 70000 >>'A directory with a long name and spaces/big file.bin'
  random 65536 | dd of=second/3MiB conv=notrunc,fsync bs=65536 seek=20 \
                    2>/dev/null
  rm one/overwritten
  mv many/'file number 7, its name is not a short one.data' second/seven
  random 12345 >second/sub/last
  sync second/sub/last
)

# tree_manifest DIR: "dir NAME" and "MD5 NAME", sorted.
tree_manifest ()
(
  cd "$1" || exit
  {
    find . -mindepth 1 -type d | sed 's/^/dir  /'
    find . -type f -exec md5sum {} +
  } | LC_ALL=C sort
)

# tree_test DEVICE MKFS-ARG...: format DEVICE, write both trees to it, and
# report the manifest as read back from the device.
tree_test ()
{
  dev=$1
  shift

  echo "mkfs.fat $* $dev"
  mkfs.fat "$@" "$dev"

  echo "mount -o sync, write, unmount"
  mount -t vfat -o sync "$dev" /mnt
  tree_write_first /mnt
  tree_manifest /mnt >/tmp/written
  umount /mnt

  echo "mount without sync, read back, write more, fsync, unmount"
  mount -t vfat "$dev" /mnt
  tree_manifest /mnt >/tmp/read
  diff /tmp/written /tmp/read
  tree_write_second /mnt
  tree_manifest /mnt >/tmp/written
  umount /mnt

  echo "mount read-only, read back, unmount"
  echo 3 >/proc/sys/vm/drop_caches
  mount -t vfat -o ro "$dev" /mnt
  tree_manifest /mnt >/tmp/read
  umount /mnt
  diff /tmp/written /tmp/read
  sed 's/^/manifest: /' /tmp/read >/dev/ttyS1
}
