# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
#
# Source after vm.sh.  What an image must be like once the guest has unmounted
# it and the server has ended: judged by other people's tools, on the bytes
# in the file alone.

# These refuse geometries that the kernel accepts.
export MTOOLS_SKIP_CHECK=1

# fat_number FILE OFFSET BYTES: a little-endian number.
fat_number ()
{
  od -An -v -tu1 -j "$2" -N "$3" "$1" |
    awk '{ for (i = NF; i > 0; i--) n = n * 256 + $i } END { print n }'
}

# fat_check IMAGE OFFSET SIZE MANIFEST: the FAT32 volume in those bytes of the
# image is clean, its FATs are equal, and it holds what the guest reported.
fat_check ()
{
  local image=$1 offset=$2 size=$3 manifest=$4

  fat_check_manifest "$manifest"
  fat_check_fsck "$image" "$offset" "$size"
  fat_check_mirror "$image" "$offset"
  fat_check_files "$image" "$offset" "$manifest"
}

# Without this an empty report would agree with an empty volume.  The numbers
# are those of tree_test.
fat_check_manifest ()
{
  local dirs files

  dirs=$(grep -c '^dir  ' "$1" || :)
  files=$(grep -c '^[0-9a-f]\{32\}  ' "$1" || :)
  if [ "$dirs" -lt 9 ] || [ "$files" -lt 39 ]; then
    cat "$1"
    vm_fail "the guest reports only $dirs directories and $files files"
  fi
  vm_say "the guest reports $dirs directories and $files files"
}

fat_check_fsck ()
{
  local image=$1 offset=$2 size=$3 part=$vm_dir/partition

  vm_say "fsck.fat -n"
  if [ "$offset" -ne 0 ]; then
    dd if="$image" of="$part" bs=1M iflag=skip_bytes,count_bytes \
       skip="$offset" count="$size" conv=sparse status=none
    truncate -s "$size" "$part"
    image=$part
  fi
  fsck.fat -n "$image" >"$vm_dir/fsck.log" 2>&1 ||
    vm_fail "fsck.fat finds faults"
  rm -f "$part" "$vm_dir/fsck.log"
}

fat_check_mirror ()
{
  local image=$1 offset=$2 sector fats fat start

  sector=$(fat_number "$image" $((offset + 11)) 2)
  start=$((offset + sector * $(fat_number "$image" $((offset + 14)) 2)))
  fats=$(fat_number "$image" $((offset + 16)) 1)
  fat=$((sector * $(fat_number "$image" $((offset + 36)) 4)))
  vm_say "FAT 1 and FAT 2 are equal ($fat bytes each)"
  if [ "$fats" -ne 2 ] || [ "$fat" -eq 0 ]; then
    vm_fail "not a FAT32 volume with two FATs"
  fi
  cmp -n "$fat" "$image" "$image" "$start" $((start + fat)) ||
    vm_fail "FAT 1 and FAT 2 differ"
}

fat_check_files ()
{
  local image=$1 offset=$2 manifest=$3 out=$vm_dir/files

  vm_say "mtools read what the guest wrote"
  rm -rf "$out"
  mkdir "$out"
  mcopy -s -Q -i "$image@@$offset" '::/*' "$out/" >"$vm_dir/mcopy.log" 2>&1 ||
    vm_fail "mcopy cannot read the volume"
  (
    cd "$out" || exit
    {
      find . -mindepth 1 -type d | sed 's/^/dir  /'
      find . -type f -exec md5sum {} +
    } | LC_ALL=C sort
  ) >"$vm_dir/read"
  diff "$manifest" "$vm_dir/read" ||
    vm_fail "the image does not hold what the guest wrote"
  rm -rf "$out" "$vm_dir/mcopy.log"
}

# requests_count PATTERN: how many lines of the server's request log match.
requests_count ()
{
  grep -c -e "$1" "$vm_dir/requests" || :
}
