#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# The parameters of deferred mirrors and commits, with good and bad values: a
# bad one is refused at start, and the message tells the key, the value and
# what is allowed.

. "$(dirname "$0")/mirror-lib.sh"
requires nbdop mkfs.fat mcopy timeout
make_tmpdir

img=$tmpdir/disk.img
make_volume "$img"

# good PARAMETER...: starts, serves, ends.
good () {
  serve "$img" "$@"
  expect_answers ok ok -- write:"$(slot 9)":512:0:fua \
    write:"$(mirror_slot 9)":512:0:fua
  stop_cleanly "$img"
  [ ! -e "$tmpdir/none" ] || fail "$*: a file called none"
}

# deferring PARAMETER...: and mirrors are deferred; or not.
deferring () {
  good "$@"
  [ "$(counter mirrors_deferred)" -gt 0 ] || fail "$*: none deferred"
}
not_deferring () {
  good "$@"
  [ "$(counter mirrors_deferred)" -eq 0 ] || fail "$*: deferred"
}

deferring
deferring durability=fat mirror-delay=0 mirror-batch=1 commit-delay=0
deferring mirror-delay=.5 mirror-batch=64K commit-delay=.01
deferring mirror-delay=3600 mirror-batch=64M commit-delay=3600
deferring mirror-delay=5 mirror-batch=1048576 commit-delay=0.001 \
  intent="$tmpdir/elsewhere.record"
[ ! -e "$tmpdir/elsewhere.record" ] || fail "intent=PATH: a record is left"
pushd "$tmpdir" >/dev/null
deferring mirror-delay=0.001 mirror-batch=1M intent=relative.record
popd >/dev/null
not_deferring intent=none
# What is not needed is no error.
not_deferring durability=block mirror-delay=1 mirror-batch=1k commit-delay=1 \
  intent="$tmpdir/elsewhere.record"
# The image is not its own record.
not_deferring intent="$img"
expect_message "$img" "at once"

for bad in "" FAT yes none "fat " 1; do
  expect_bad_start durability="$bad" fat block -- "$img" durability="$bad"
done
for bad in "" -1 soon 1s inf nan 1e 0x1 "1 " . 3601 1e30; do
  expect_bad_start mirror-delay="$bad" second 3600 -- "$img" \
    mirror-delay="$bad"
done
for bad in "" -1 fast 3601; do
  expect_bad_start commit-delay="$bad" second 3600 -- "$img" \
    commit-delay="$bad"
done
for bad in "" 0 -1 lots 1.5M "1 M" 0k 65M 99999999999999999999; do
  expect_bad_start mirror-batch="$bad" bytes 1M -- "$img" mirror-batch="$bad"
done
expect_bad_start intent path none -- "$img" intent=
expect_bad_start mirror-delays=1 durability mirror-delay mirror-batch intent \
  commit-delay -- "$img" mirror-delays=1

"$NBDKIT" "$FATBATCH_SO" --help >"$tmpdir/help"
for word in durability= mirror-delay= mirror-batch= commit-delay= intent= \
            fat block none; do
  grep -qF -- "$word" "$tmpdir/help" || fail "--help lacks $word"
done
"$NBDKIT" --dump-plugin "$FATBATCH_SO" >"$tmpdir/dump"
grep -qx 'fatbatch_durability=fat block' "$tmpdir/dump" ||
  fail "--dump-plugin: $(grep durability "$tmpdir/dump")"
