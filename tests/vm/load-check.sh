# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154
#
# Source after vm.sh and fat-check.sh.  What must be in an image after a load
# of guest-load.sh that was cut short: all that was reported as done, and of
# the operation under way then, either what was before or what it leads to.
#
# load_want[NAME] is what must be there, if anything:
#
#   dir
#   file MD5 SIZE
#   reserved MD5 SIZE CLUSTER-BYTES     has clusters for that many bytes

declare -A load_want=() load_found=()
load_done=0                     # operations
load_open=()                    # KIND NAME [NAME] of the one under way
load_shared=                    # a rename was cut: two names, one chain

# load_read REPORT: takes into load_want what was done.  The last line, which
# may be a part of one, counts only if it is whole.
load_read ()
{
  local key number rest will wills=()

  load_done=0
  load_open=()
  while read -r key number rest; do
    case $key in
      begin)
        read -ra load_open <<<"$rest"
        wills=();;
      will)
        wills+=("$rest");;
      done)
        for will in "${wills[@]}"; do
          load_expect "$will"
        done
        load_done=$number
        load_open=();;
    esac
  done < <(tr -d '\r' <"$1")
}

# load_expect WHAT: of a line "will N WHAT", where the name comes last.
load_expect ()
{
  local name=${1##* }

  case $1 in
    gone\ *) unset "load_want[$name]";;
    *) load_want[$name]=${1% *};;
  esac
}

# load_count REPORT: operations done so far.
load_count ()
{
  grep -c '^done ' "$1" 2>/dev/null || :
}

# load_has_done REPORT NUMBER
load_has_done ()
{
  [ -e "$1" ] && [ "$(load_count "$1")" -ge "$2" ]
}

# load_list IMAGE: sets load_found to what mtools find, as load_want has it,
# and leaves the files in $vm_dir/files.
load_list ()
{
  local image=$1 sum size name

  load_found=()
  rm -rf "$vm_dir/files"
  mkdir "$vm_dir/files"
  mcopy -s -Q -i "$image" '::/*' "$vm_dir/files/" >"$vm_dir/mcopy.log" 2>&1 ||
    vm_fail "mcopy cannot read the volume"
  while read -r name; do
    load_found[$name]=dir
  done < <(cd "$vm_dir/files" && find . -mindepth 1 -type d -printf '%P\n')
  while read -r sum name; do
    size=$(stat -c %s "$vm_dir/files/$name")
    load_found[$name]="file $sum $size"
  done < <(cd "$vm_dir/files" && find . -type f -printf '%P\0' |
             xargs -0 -r md5sum)
}

# load_check IMAGE: fails unless all is as it must be.  Afterwards what was
# found is what must be there from now on.
load_check ()
{
  local image=$1 name

  load_list "$image"
  [ ${#load_open[@]} -eq 0 ] || load_check_open
  for name in "${!load_want[@]}"; do
    load_is_open "$name" || load_check_name "$image" "$name"
  done
  for name in "${!load_found[@]}"; do
    [ -n "${load_want[$name]:-}" ] || load_is_open "$name" ||
      vm_fail "$name is there: ${load_found[$name]}"
  done
  vm_say "mtools find what was done: ${#load_want[@]} files and directories"

  load_want=()
  for name in "${!load_found[@]}"; do
    load_want[$name]=${load_found[$name]}
  done
}

# The volume was unmounted: what files had reserved is free again.
load_unmounted ()
{
  local name kind rest

  for name in "${!load_want[@]}"; do
    read -r kind rest <<<"${load_want[$name]}"
    [ "$kind" != reserved ] || load_want[$name]="file ${rest% *}"
  done
}

load_is_open ()
{
  case " ${load_open[*]:1} " in
    *" $1 "*) return 0;;
  esac
  return 1
}

load_check_name ()
{
  local image=$1 name=$2 found=${load_found[$2]:-nothing} kind sum size bytes

  read -r kind sum size bytes <<<"${load_want[$name]}"
  case $kind in
    dir) [ "$found" = dir ];;
    *) [ "$found" = "file $sum $size" ];;
  esac || vm_fail "$name should be ${load_want[$name]}, but is $found"
  if [ "$kind" = reserved ]; then
    load_check_reserved "$image" "$name" "$bytes"
  fi
}

# The chain of clusters, as mshowfat shows it: "::/NAME <3-7> <9>".
load_check_reserved ()
{
  local image=$1 name=$2 bytes=$3 clusters cluster

  cluster=$(($(fat_number "$image" 11 2) * $(fat_number "$image" 13 1)))
  clusters=$(mshowfat -i "$image" "::/$name" | grep -o '<[0-9-]*>' |
               tr -d '<>' |
               awk -F - '{ n += $NF - $1 + 1 } END { print n + 0 }')
  [ $((clusters * cluster)) -ge "$bytes" ] ||
    vm_fail "$name has $clusters clusters, too few for $bytes bytes"
}

# What the operation under way must not have spoilt.
load_check_open ()
{
  local kind=${load_open[0]} name=${load_open[1]} old sum size

  old=${load_want[$name]:-}
  [ -n "$old" ] || return 0
  read -r _ sum size _ <<<"$old"
  case $kind in
    append | fallocate | reserve)
      [ "$(head -c "$size" "$vm_dir/files/$name" | md5sum)" = "$sum  -" ] ||
        vm_fail "$name had been '$old', which is lost: $kind was under way";;
    rename)
      case " ${load_found[$name]:-} ${load_found[${load_open[2]}]:-} " in
        *" $sum $size "*) ;;
        *) vm_fail "$name is lost, it was being renamed";;
      esac;;
    delete)
      case ${load_found[$name]:-} in
        '' | "file $sum $size") ;;
        *) vm_fail "$name has changed, it was being deleted";;
      esac;;
    *)
      [ -n "${load_found[$name]:-}" ] ||
        vm_fail "$name is lost: $kind was under way";;
  esac
}

# What fsck.fat may say after a cut of a plain disk: nobody had unmounted it,
# an operation was under way, and files have clusters reserved for them.
load_fsck_harmless='fsck\.fat [0-9].*
There are differences between boot sector and its backup\.
This is mostly harmless\. Differences: \(offset:original/backup\)
  65:01/00
  Not automatically fixing this\.
Dirty bit is set\. Fs was not properly unmounted .*
 Automatically removing dirty bit\.
/.*
  File size is [0-9]+ bytes, cluster chain length is > [0-9]+ bytes\.
  Truncating file to [0-9]+ bytes\.
Orphaned long file name part ".*"
  Auto-deleting\.
Reclaimed [0-9]+ unused clusters? \([0-9]+ bytes\)\.
Free cluster summary wrong .*
  Auto-correcting\.

Leaving filesystem unchanged\.
.*: [0-9]+ files, [0-9]+/[0-9]+ clusters'
load_fsck_shared='  and
  share clusters\.
  Truncating second to [0-9]+ bytes because .*
  Truncating second to [0-9]+ bytes\.'

# load_fsck IMAGE
load_fsck ()
{
  local log=$vm_dir/fsck.log status=0 harmless=$load_fsck_harmless

  fsck.fat -n "$1" >"$log" 2>&1 || status=$?
  [ $status -le 1 ] || vm_fail "fsck.fat ended with status $status"
  [ "${load_open[0]:-}" != rename ] || load_shared=yes
  [ -z "$load_shared" ] || harmless+=$'\n'$load_fsck_shared
  ! grep -vxE "$harmless" "$log" || vm_fail "fsck.fat finds faults"
  vm_say "fsck.fat: ${load_shared:+shared clusters, }$(tail -n 1 "$log" |
            sed 's/^.*: //'), $(grep '^Reclaimed' "$log" ||
                                 echo 'none is lost')"
  rm "$log"
}
