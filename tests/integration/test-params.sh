#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# Every key with good and bad values.  A bad one is refused at start, and
# the message tells what was given and what is allowed.

. "$(dirname "$0")/../functions.sh"
requires nbdinfo timeout
make_tmpdir
requires_o_direct
find_io_leaves

img=$tmpdir/disk.img
truncate -s 1M "$img"

# good ARGUMENT...: starts, serves, ends.
good () {
  start_server "$@"
  [ "$(nbdinfo --size "$uri")" -eq 1048576 ] || fail "$*: wrong size"
  stop_server
}

good "$img"
good file="$img"
for cache in $cache_modes; do
  good "$img" cache="$cache"
done
for io in auto $io_leaves; do
  good "$img" io="$io"
done
for lock in on off; do
  good "$img" lock="$lock"
done
good "$img" cache=directsync io=posix lock=off
good lock=on cache=none file="$img"

# A relative path, from another working directory than nbdkit's later one.
pushd "$tmpdir" >/dev/null
good disk.img
popd >/dev/null

modes="writeback writethrough none directsync unsafe"
for bad in always "" WRITEBACK "writeback " 1; do
  # shellcheck disable=SC2086
  expect_bad_start cache "$bad" $modes -- "$img" cache="$bad"
done
for bad in io_uring "" aio yes; do
  expect_bad_start io "$bad" auto uring posix -- "$img" io="$bad"
done
for bad in maybe "" 2; do
  expect_bad_start lock "$bad" -- "$img" lock="$bad"
done

expect_bad_start colour -- "$img" colour=red
expect_bad_start file= --
expect_bad_start file= -- cache=none
expect_bad_start file -- file=
expect_bad_start file -- "$img" file="$img"
expect_bad_start "$tmpdir/absent.img" "No such file or directory" -- \
  "$tmpdir/absent.img"
expect_bad_start "$tmpdir/disk.img/x" "Not a directory" -- \
  "$tmpdir/disk.img/x"
mkdir "$tmpdir/directory"
expect_bad_start "$tmpdir/directory" director -- "$tmpdir/directory"
mkfifo "$tmpdir/fifo"
expect_bad_start "$tmpdir/fifo" -- "$tmpdir/fifo"
expect_bad_start /dev/null -- /dev/null

# An image of any size is an image.
: >"$tmpdir/empty.img"
start_server "$tmpdir/empty.img"
[ "$(nbdinfo --size "$uri")" -eq 0 ] || fail "an empty image has a size"
stop_server

# A refused start leaves the image as it was.
[ "$(stat -c %s "$img")" -eq 1048576 ] || fail "a bad start changed the size"
cmp -n 1048576 "$img" /dev/zero || fail "a bad start changed the image"

"$NBDKIT" "$FATBATCH_SO" --help >"$tmpdir/help"
for key in file= cache= io= lock=; do
  grep -qF "$key" "$tmpdir/help" || fail "--help lacks $key"
done
for value in $modes auto uring posix on off; do
  grep -qw "$value" "$tmpdir/help" || fail "--help lacks $value"
done

"$NBDKIT" --dump-plugin "$FATBATCH_SO" >"$tmpdir/dump"
for line in name=fatbatch version=. max_thread_model=parallel \
            thread_model=parallel magic_config_key=file \
            'fatbatch_io_uring=\(yes\|no\)$'; do
  grep -q "^$line" "$tmpdir/dump" || fail "--dump-plugin lacks $line"
done
