# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
#
# For scripts inside the test guest, which source guest-tree.sh, too: change
# files on a FAT volume that is mounted with -o sync, step by step, and say of
# each step when it begins and when it is done, so that whoever cuts the power
# meanwhile knows what must be there.  On the report's port:
#
#   begin N KIND NAME [NAME]       the next operation, and all that it touches
#   will N file MD5 SIZE NAME      what is there when it is done...
#   will N reserved MD5 SIZE CLUSTER-BYTES NAME
#   will N dir NAME
#   will N gone NAME
#   done N                         it is
#   failed N                       it failed; the load ends
#
# Each has left the guest before it goes on: closing the port waits for that.
# After operation number $load_rest nothing more is done, and nothing ends.
#
# Names are relative to the volume's root.  What is written comes from /pieces
# and the numbers below: the same on each run.

load_root=/mnt
load_shadow=/tmp/shadow         # what the volume should be like
load_number=0
load_rest=${load_rest:-0}
load_offset=0

load_say ()
{
  echo "$*" >/dev/ttyS1
}

# load_operation KIND NAME [ARGUMENT...]
load_operation ()
{
  load_number=$((load_number + 1))
  case $1 in
    rename) load_names="$2 $3";;
    *) load_names=$2;;
  esac
  "load_$1" "$load_shadow" "$@" || return
  load_say "begin $load_number $1 $load_names
$(load_states "$@")"
  if ! "load_$1" "$load_root" "$@"; then
    load_say "failed $load_number"
    return 1
  fi
  load_say "done $load_number"
  while [ "$load_number" -eq "$load_rest" ]; do
    sleep 1
  done
}

load_states ()
{
  for load_name in $load_names; do
    load_path=$load_shadow/$load_name
    if [ -d "$load_path" ]; then
      echo "will $load_number dir $load_name"
    elif [ -f "$load_path" ]; then
      load_sum=$(md5sum <"$load_path")
      load_sum="${load_sum%% *} $(stat -c %s "$load_path")"
      case $1 in
        reserve) echo "will $load_number reserved $load_sum $3 $load_name";;
        *) echo "will $load_number file $load_sum $load_name";;
      esac
    else
      echo "will $load_number gone $load_name"
    fi
  done
}

# -- Operations: ROOT KIND NAME [ARGUMENT...] ---------------------------

# SIZE: created if it is not there.  One write(2) for each 4 KiB.
load_append ()
{
  dd if=/pieces of="$1/$3" bs=4096 iflag=skip_bytes,count_bytes \
     skip="$load_offset" count="$4" conv=notrunc oflag=append 2>/dev/null
}

# SIZE OFFSET: with an fsync.
load_overwrite ()
{
  dd if=/pieces of="$1/$3" bs="$4" count=1 iflag=skip_bytes \
     skip="$load_offset" oflag=seek_bytes seek="$5" \
     conv=notrunc,fsync 2>/dev/null
}

# SIZE: the file is that long afterwards.
load_fallocate ()
{
  case $1 in
    "$load_shadow") truncate -s "$4" "$1/$3";;
    *) /bin/fallocate -l "$4" "$1/$3";;
  esac
}

# SIZE: it is as long as before, but has clusters for that.
load_reserve ()
{
  : >>"$1/$3"
  [ "$1" = "$load_shadow" ] || /bin/fallocate -n -l "$4" "$1/$3"
}

load_truncate ()
{
  truncate -s "$4" "$1/$3"
}

load_mkdir ()
{
  mkdir "$1/$3"
}

load_rename ()
{
  mv "$1/$3" "$1/$4"
}

load_delete ()
{
  rm "$1/$3"
}

# -- The load -----------------------------------------------------------

# load DIR CYCLES: makes DIR, and 13 to 15 operations for each cycle.  False
# after the first that fails.
load ()
{
  rm -rf "$load_shadow"
  mkdir "$load_shadow"
  load_operation mkdir "$1" || return
  load_cycle=1
  while [ "$load_cycle" -le "$2" ]; do
    load_one_cycle "$1" "$load_cycle" || return
    load_cycle=$((load_cycle + 1))
  done
}

load_one_cycle ()
{
  load_offset=$(($2 * 1999 % 100000))
  load_subdir="$1/A-directory-with-a-name-that-is-long-$2"
  load_old="$1/A-directory-with-a-name-that-is-long-$(($2 - 2))"

  load_operation append "$1/new$2" $(($2 * 97 % 3000 + 300)) &&
  load_operation append "$1/new$2" 9001 &&
  load_operation overwrite "$1/new$2" 2000 1111 &&
  load_operation append "$1/grows" 3500 &&
  load_operation mkdir "$load_subdir" &&
  load_operation rename "$1/new$2" "$load_subdir/moved" &&
  load_operation fallocate "$1/WHOLE$2" 30000 &&
  load_operation append "$1/WHOLE$2" 777 &&
  load_operation reserve "$1/ahead$2" 65536 &&
  load_operation append "$1/grows" 513 &&
  load_operation truncate "$1/WHOLE$2" 3001 &&
  load_operation reserve "$1/then-written$2" 20480 &&
  load_operation append "$1/then-written$2" 6000 || return
  [ "$2" -gt 2 ] || return 0
  load_operation rename "$load_subdir/moved" "$load_old/moved" &&
  load_operation delete "$load_old/moved"
}
