# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154
#
# For the tests of intent records.  A test begins with
#
#   . "$(dirname "$0")/intent-lib.sh"
#   requires ...
#   make_tmpdir
#   make_left
#
. "$(dirname "${BASH_SOURCE[0]}")/mirror-lib.sh"

# make_left: what a killed server leaves, with FAT 1 ahead of the mirror in two
# windows.  Sets img, the image that is served, and record, beside it; and
# makes in $tmpdir clean.img, before; left.img and left.record, after the kill;
# and what recovery makes of it: all.img, or, if it believes what the record
# says of one window only, first.img or second.img.
make_left () {
  local part
  img=$tmpdir/disk.img
  record=$img.fatbatch
  left=$tmpdir/left.img
  make_volume "$tmpdir/clean.img"
  copy_image "$tmpdir/clean.img" "$img"
  forward=(
    write:"$(slot 5)":1k:0xa5:fua write:"$(mirror_slot 5)":1k:0xa5:fua
    write:"$(slot 1100)":512:0xa6:fua
    write:"$(mirror_slot 1100)":512:0xa6:fua)
  leave_behind
  copy_image "$img" "$left"
  cp "$record" "$tmpdir/left.record"
  fats_differ "$left" || fail "nothing was deferred: this proves nothing"
  for part in all first second; do
    copy_image "$left" "$tmpdir/$part.img"
    [ $part = second ] || copy_mirror "$tmpdir/$part.img" 5 2
    [ $part = first ] || copy_mirror "$tmpdir/$part.img" 1100 1
  done
}

# leave_behind [PARAMETER...]: a server of $img, killed.
# shellcheck disable=SC2120
leave_behind () {
  # shellcheck disable=SC2086
  serve "$img" $never "$@"
  hold_open "${forward[@]}"
  kill_server
  let_go
}

# copy_mirror IMAGE SLOT N: as recovery would.
copy_mirror () {
  dd if="$1" of="$1" bs=512 skip=$(($(slot "$2") / 512)) \
    seek=$(($(mirror_slot "$2") / 512)) count="$3" conv=notrunc status=none
}

# begin TITLE: image and record, as the killed server has left them.
begin () {
  title=$1
  rm -rf "$record"*
  copy_image "$left" "$img"
  cp "$tmpdir/left.record" "$record"
}

# run_once PARAMETER...: a server with one connection that writes nothing.
run_once () {
  serve "$img" "$@"
  expect_answers ok -- flush
  stop_server
}

# expect_image NAME: left, all, first or second.
expect_image () {
  same_image "$img" "$tmpdir/$1.img" || fail "$title: the image is not '$1'"
}

expect_no_record () {
  [ ! -e "$record" ] || fail "$title: the record is still there"
}

# expect_recovery RECORD SECTORS: nothing that the user should do anything
# about, but the debug log tells.
expect_recovery () {
  expect_no_message
  grep -F "$1" "$server_log" | grep -q "brought back.* $2 sectors" ||
    fail "$title: the debug log does not tell of $2 sectors"
}

# at_once PARAMETER...: mirrors are in the file as soon as they are
# acknowledged.
at_once () {
  # shellcheck disable=SC2086
  serve "$img" $never "$@"
  hold_open write:"$(slot 30)":512:0x55:fua write:"$(mirror_slot 30)":512:0x55
  kill_server
  let_go
  cmp -n 512 -i "$(slot 30):$(mirror_slot 30)" "$img" "$img" ||
    fail "$title: the mirror was deferred"
}

# defers PARAMETER...: does a server defer mirrors now?
defers () {
  serve "$img" "$@"
  expect_answers ok ok -- write:"$(slot 20)":512:0x77:fua \
    write:"$(mirror_slot 20)":512:0x77:fua
  stop_server
  [ "$(counter mirrors_deferred)" -gt 0 ] && [ ! -e "$record" ]
}

# flip_bit FILE BYTE BIT
flip_bit () {
  local byte
  byte=$(number "$1" "$2" 1)
  # shellcheck disable=SC2059
  printf "\\x$(printf %02x $((byte ^ (1 << $3))))" |
    dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
