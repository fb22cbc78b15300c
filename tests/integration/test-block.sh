#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# A block device as the image, with logical blocks of 512 and 4096 bytes:
# requests of any alignment work in each kind of cache mode, also where
# O_DIRECT wants whole blocks.

. "$(dirname "$0")/../functions.sh"
requires losetup nbdcopy nbdinfo nbdop fio cmp blockdev
make_tmpdir
find_io_leaves

src=$tmpdir/src.img
size=$((8 * 1024 * 1024))
make_random "$src" "$size"

# attach_loop BLOCK-SIZE: sets device.
attach_loop () {
  rm -f "$tmpdir/backing.img"
  truncate -s "$size" "$tmpdir/backing.img"
  device=$(losetup -b "$1" -f --show "$tmpdir/backing.img" 2>/dev/null) ||
    skip "losetup does not work here"
  cleanup_fn detach_loop "$device"
}

# Only while it is ours: the number may be another's by now.
detach_loop () {
  local file
  file=$(losetup -n -O BACK-FILE "$1" 2>/dev/null)
  if [ "$file" = "$tmpdir/backing.img" ]; then
    losetup -d "$1"
  fi
}

serve () {
  start_server "$device" io="$io" cache="$cache"
}

what () {
  echo "$block bytes, io=$io cache=$cache"
}

for block in 512 4096; do
  attach_loop "$block"
  [ "$(blockdev --getss "$device")" -eq "$block" ] ||
    skip "losetup -b $block has no effect"

  for io in $io_leaves; do
    for cache in writeback none directsync; do
      serve
      [ "$(nbdinfo --size "$uri")" -eq "$size" ] || fail "$(what): size"
      direct=no
      for flags in $(open_flags "$pid" "$device"); do
        if has_flag "$flags" "$o_direct"; then direct=yes; fi
      done
      [ "$cache" = writeback ] || [ $direct = yes ] ||
        fail "$(what): no O_DIRECT"

      rm -f "$tmpdir/back.img"
      nbdcopy "$src" "$uri"
      nbdcopy "$uri" "$tmpdir/back.img"
      cmp "$src" "$tmpdir/back.img" || fail "$(what): copy differs"

      # Unaligned at both ends, within one block, across blocks, at the end
      # of the device; what is around stays.
      expect_answers ok ok ok ok ok ok -- \
        write:0:64k:0x11 write:1:1:0x22:fua write:4095:2:0x33 \
        write:10001:9999:0x44:fua write:8388607:1:0x55 flush
      expect_answers ok ok ok ok ok ok ok ok -- \
        read:0:1:0x11 read:1:1:0x22 read:2:4093:0x11 read:4095:2:0x33 \
        read:4097:5904:0x11 read:10001:9999:0x44 read:20000:45536:0x11 \
        read:8388607:1:0x55
      expect_answers ok ok ok ok ok ok -- \
        zero:30001:5000:fua read:30000:1:0x11 read:30001:5000:0 \
        read:35001:1:0x11 zero:36864:8k:may_trim read:36864:8k:0
      # What a trimmed range holds is open; its neighbours' bytes are not.
      expect_answers ok ok ok ok ok -- \
        write:1M:64k:0x66 trim:1056769:8191 read:1M:8193:0x66 \
        read:1064960:49152:0x66 trim:1M:64k:fua

      fio --output="$tmpdir/fio.out" --name=odd --ioengine=nbd \
        --uri="$uri" --thread --numjobs=2 --iodepth=8 --rw=randwrite \
        --bs=1111 --size=512k --offset=2M --offset_increment=2M \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
        >/dev/null 2>&1 ||
        fail "$(what): fio: $(cat "$tmpdir/fio.out")"
      stop_server

      # The device alone has it, and another server sees it.
      cmp -i 4095:0 -n 2 "$device" <(printf '\x33\x33') ||
        fail "$(what): device differs"
      serve
      expect_answers ok ok -- read:10001:9999:0x44 read:8388607:1:0x55
      stop_server
    done
  done
  losetup -d "$device"
done
