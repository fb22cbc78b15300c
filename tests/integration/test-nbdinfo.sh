#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

# What the server tells about the export, in each cache mode: size, flags,
# block sizes, contexts; and that -r opens the image for reading only.

. "$(dirname "$0")/../functions.sh"
requires nbdinfo jq dd
make_tmpdir
requires_o_direct

img=$tmpdir/disk.img
size=$((1024 * 1024 + 512))
truncate -s "$size" "$img"

# expect_field JQ-EXPRESSION WANTED
expect_field () {
  local got
  got=$(jq -r ".exports[0] | $1" "$tmpdir/info.json")
  [ "$got" = "$2" ] || fail "cache=$cache: $1 is $got, not $2"
}

# Every flag that both kinds of export have.
expect_common_fields () {
  expect_field '."export-size"' "$size"
  expect_field .can_flush true
  expect_field .can_multi_conn true
  # Without the page cache there is nowhere to cache.
  case $cache in
    none | directsync) expect_field .can_cache false ;;
    *) expect_field .can_cache true ;;
  esac
  expect_field '.contexts | index("base:allocation") != null' true
  # Requests can have any offset and length.
  expect_field .block_size_minimum 1
  expect_field '.block_size_preferred >= 512' true
  expect_field '.block_size_preferred | log2 | . == floor' true
  expect_field '.block_size_maximum >= .block_size_preferred' true
  expect_field '(.description // "") != ""' true
}

for cache in $cache_modes; do
  start_server "$img" cache="$cache"
  nbdinfo --json "$uri" >"$tmpdir/info.json"
  expect_common_fields
  expect_field .is_read_only false
  for flag in can_fua can_trim can_zero can_fast_zero; do
    expect_field ".$flag" true
  done
  direct=no
  for flags in $(open_flags "$pid" "$img"); do
    if has_flag "$flags" "$o_direct"; then direct=yes; fi
  done
  case $cache in
    none | directsync) [ $direct = yes ] || fail "cache=$cache: no O_DIRECT" ;;
    *) [ $direct = no ] || fail "cache=$cache: O_DIRECT" ;;
  esac
  stop_server

  start_server -r -- "$img" cache="$cache"
  nbdinfo --json "$uri" >"$tmpdir/info.json"
  expect_common_fields
  expect_field .is_read_only true
  flags=$(open_flags "$pid" "$img")
  [ -n "$flags" ] || fail "cache=$cache: -r: the image is not open"
  for f in $flags; do
    # O_WRONLY and O_RDWR are 1 and 2.
    ! has_flag "$f" 3 || fail "cache=$cache: -r: open for writing: $f"
  done
  stop_server
done

# No client has to know the image's size in advance.
for size in 1 511 4097; do
  cache=writeback
  truncate -s "$size" "$img"
  start_server "$img"
  nbdinfo --json "$uri" >"$tmpdir/info.json"
  expect_field '."export-size"' "$size"
  stop_server
done
