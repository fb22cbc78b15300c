# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034,SC2154
#
# Part of vm.sh, which sources it: the guest's kernel, and the initramfs with
# what the guest needs.

# -------------------------------------------------------------- the kernel

# Sets vm_root (the unpacked package), vm_release, vm_kernel.
vm_prepare ()
{
  local deb

  vm_require qemu-system-x86_64 "${NBDKIT%% *}" busybox cpio depmod modprobe \
             dpkg-deb ldd setpriv timeout "${vm_programs[@]}"
  case $FATBATCH_SO in
    */*) [ -e "$FATBATCH_SO" ] || vm_skip "$FATBATCH_SO is not built";;
  esac
  mkdir -p "$vm_cache" || vm_skip "cannot create $vm_cache"

  vm_find_root && return
  for deb in "$vm_cache"/linux-image-*-cloud-amd64_*.deb \
             /var/cache/apt/archives/linux-image-*-cloud-amd64_*.deb; do
    if [ -f "$deb" ] && vm_unpack "$deb"; then
      vm_find_root && return
    fi
  done
  if vm_download; then
    vm_find_root && return
  fi
  vm_skip "no kernel: put a linux-image-*-cloud-amd64_*_amd64.deb into" \
          "$vm_cache (apt-get download found none)"
}

# The newest unpacked kernel in the cache.
vm_find_root ()
{
  local kernel

  kernel=$(find "$vm_cache" -mindepth 3 -maxdepth 3 -path '*/boot/vmlinuz-*' |
             sort -V | tail -n 1)
  [ -n "$kernel" ] || return 1
  vm_kernel=$kernel
  vm_root=${kernel%/boot/*}
  vm_release=${kernel##*/vmlinuz-}
}

# vm_unpack DEB.  The directory gets its name only when it is complete, so
# that a torn one is never used; another test may have been faster.
vm_unpack ()
{
  local deb=$1 tmp release target

  tmp=$(mktemp -d "$vm_cache/tmp.XXXXXXXXXX")
  if dpkg-deb -x "$deb" "$tmp" &&
     release=$(basename "$tmp"/boot/vmlinuz-*) &&
     release=${release#vmlinuz-} &&
     depmod -b "$tmp" "$release"; then
    target=$vm_cache/$(basename "$deb" .deb)
    chmod 755 "$tmp"
    mv -T "$tmp" "$target" 2>/dev/null || [ -d "$target" ] || return 1
    rm -rf "$tmp"
    return 0
  fi
  vm_say "cannot unpack $deb"
  rm -rf "$tmp"
  return 1
}

# The package that Debian's metapackage points to, into the cache.
vm_download ()
{
  local tmp package deb status=1

  command -v apt-get >/dev/null || return 1
  package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
              sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
  [ -n "$package" ] || return 1

  vm_say "downloading $package"
  tmp=$(mktemp -d "$vm_cache/tmp.XXXXXXXXXX")
  if (cd "$tmp" &&
        apt-get -qq -o APT::Sandbox::User=root download "$package"); then
    for deb in "$tmp"/*.deb; do
      mv "$deb" "$vm_cache/" && vm_unpack "$vm_cache/${deb##*/}" && status=0
    done
  fi
  rm -rf "$tmp"
  return $status
}

# ----------------------------------------------------------- the initramfs

# vm_initramfs SCRIPT OUT [FILE...]: the guest runs SCRIPT (busybox sh); each
# FILE is put into its root directory.
vm_initramfs ()
{
  local script=$1 out=$2 root=$vm_dir/root program module
  shift 2

  rm -rf "$root"
  mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,mnt,etc}
  vm_add_program busybox "$root"
  while read -r program; do
    case $program in
      busybox) ;;
      *) ln -s busybox "$root/bin/$program";;
    esac
  done < <(busybox --list)
  # The kernel itself calls this one, for the character sets of a mount.
  ln -s ../bin/modprobe "$root/sbin/modprobe"
  for program in "${vm_programs[@]}"; do
    vm_add_program "$program" "$root"
  done
  for module in "${vm_modules[@]}"; do
    vm_add_module "$module" "$root"
  done
  cp "$vm_root/lib/modules/$vm_release"/modules.{order,builtin*} \
     "$root/lib/modules/$vm_release/"
  depmod -b "$root" "$vm_release"

  cp "$vm_srcdir/guest-init.sh" "$root/init"
  chmod 755 "$root/init"
  cp "$script" "$root/guest.sh"
  [ $# -eq 0 ] || cp "$@" "$root/"
  (cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$out"
  rm -rf "$root"
}

# vm_add_program NAME ROOT: into /bin, with the shared libraries that it needs
# where the host has them.  Where busybox has a program of the same name, its
# shell prefers that: write /bin/NAME.
vm_add_program ()
{
  local path root=$2 file

  path=$(command -v "$1")
  cp -L --remove-destination "$path" "$root/bin/$1"
  for file in $(ldd "$path" 2>/dev/null |
                  sed -n 's|^[^/]*\(/[^ ]*\) (0x.*|\1|p'); do
    mkdir -p "$root/${file%/*}"
    cp -L "$file" "$root/$file"
  done
}

# vm_add_module NAME ROOT: with the modules that it needs, uncompressed since
# busybox can't load compressed ones.
vm_add_module ()
{
  local root=$2 file target

  modprobe -d "$vm_root" -S "$vm_release" --show-depends "$1" \
           >"$vm_dir/module"
  while read -r _ file _; do
    case $file in
      /*) ;;
      *) continue;;             # "builtin NAME"
    esac
    target=$root/${file#"$vm_root"/}
    mkdir -p "${target%/*}"
    case $file in
      *.xz) xz -dc "$file" >"${target%.xz}";;
      *.zst) zstd -qdc "$file" >"${target%.zst}";;
      *) cp "$file" "$target";;
    esac
  done <"$vm_dir/module"
}
