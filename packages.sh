# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2034
#
# Which Debian packages are needed, how missing ones are installed, and how
# the tree is built.  Sourced by serve, check, bench and .ci/run.  What each
# package is for is in README.md, "Dependencies".

# To build the plugin.
build_packages=(
  autoconf
  automake
  gcc
  libc6-dev
  liburing-dev
  libtool
  make
  nbdkit
  nbdkit-plugin-dev
  perl
  pkgconf
)

# To make the sample image, and for the commands that ./serve shows.
serve_packages=(
  dosfstools
  libnbd-bin
  mtools
)

# To compare with other servers, and draw the result.
bench_packages=(
  busybox-static
  cpio
  e2fsprogs
  fio
  fuse3
  gnuplot-nox
  kmod
  libfuse3-dev
  libnbd-dev
  mount
  nbd-client
  nbd-server
  python3
  qemu-system-x86
  qemu-utils
  util-linux
)

# To run all tests without one being skipped.
test_packages=(
  binutils
  busybox-static
  cpio
  fio
  fuse3
  gnuplot-nox
  jq
  kmod
  libcriterion-dev
  libfuse3-dev
  libnbd-dev
  mount
  nbd-client
  nbd-server
  procps
  python3
  qemu-system-x86
  qemu-utils
  strace
  util-linux
  valgrind
)

# is_debian: a system whose packages have the names above.
is_debian ()
{
  local id

  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    return 1
  id=$(. /etc/os-release 2>/dev/null && echo " ${ID:-} ${ID_LIKE:-} ")
  case $id in
    *" debian "*) return 0;;
  esac
  return 1
}

# missing_packages PACKAGE...: those not installed, one a line.
missing_packages ()
{
  local package installed

  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" \
                2>/dev/null) || true
  for package; do
    grep -qxF "installed $package" <<<"$installed" || echo "$package"
  done
}

# have_what_is_needed: for systems without dpkg, whether the build would find
# what it looks for.  Says what is not there.
have_what_is_needed ()
{
  local missing=() program module

  for program in autoreconf libtoolize cc make perl pkg-config nbdkit \
                 mkfs.fat mcopy nbdinfo; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  if command -v pkg-config >/dev/null; then
    for module in "nbdkit >= 1.32" "liburing >= 2.3"; do
      pkg-config --exists "$module" || missing+=("$module (pkg-config)")
    done
  fi
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "not found:"
  printf '  %s\n' "${missing[@]}"
  return 1
}

# need_packages PACKAGE...: when it returns, they are installed.  Otherwise it
# says what has to be done, and returns 1.
need_packages ()
{
  local missing

  if ! is_debian; then
    have_what_is_needed && return
    echo "This is not Debian, so nothing is installed here.  On Debian 12"
    echo "these packages are needed; look for their counterparts:"
    printf '  %s\n' "$@"
    return 1
  fi >&2

  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "These packages are missing, and only root can install them:"
    printf '  %s\n' "${missing[@]}"
    echo "As root: apt-get install --no-install-recommends ${missing[*]}"
    return 1
  fi >&2

  echo "Installing ${#missing[@]} missing packages (and what they depend on):"
  printf '  %s\n' "${missing[@]}"
  install_packages "${missing[@]}"
}

# install_packages PACKAGE...: without questions.  The package lists are
# fetched only if it does not go without, since they are missing or too old.
install_packages ()
{
  local log status=0

  log=$(mktemp "${TMPDIR:-/tmp}/fatbatch-apt.XXXXXX") || return
  apt_get install -y --no-install-recommends "$@" >"$log" 2>&1 ||
    { echo "Fetching the package lists (apt-get update)"
      apt_get update >"$log" 2>&1 &&
      apt_get install -y --no-install-recommends "$@" >>"$log" 2>&1; } ||
    status=$?
  if [ $status -ne 0 ]; then
    tail -n 30 "$log"
    echo "apt-get failed (status $status); its whole output is in $log"
    return 1
  fi >&2
  rm -f "$log"
}

# The lock may be held by the system's own updates: wait a while.
apt_get ()
{
  DEBIAN_FRONTEND=noninteractive apt-get -q \
    -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

# run_logged WHAT LOG CMD ARG...: the output goes to LOG, and is shown (its
# end) if CMD fails.
run_logged ()
{
  local what=$1 log=$2 status=0
  shift 2

  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ $status -ne 0 ]; then
    tail -n 40 "$log"
    echo "$what failed (status $status); the whole output is in $log"
  fi >&2
  return $status
}

# is_configured [werror]: there is a Makefile, it was made for this folder
# (the tree may have been moved or copied), and not for sanitizers.
is_configured ()
{
  [ -f Makefile ] &&
    grep -qxF "abs_top_builddir = $PWD" Makefile &&
    grep -qx 'SANITIZERS = no' Makefile || return 1
  [ "${1:-}" != werror ] || grep -q '^WARN_CFLAGS = .*-Werror' Makefile
}

# For what is said only: make itself knows better.
is_up_to_date ()
{
  [ -e fatbatch.so ] &&
    [ -z "$(find core plugin -name '*.[ch]' -newer fatbatch.so)" ]
}

# configure_tree [werror]: ./configure and Makefiles, from the beginning.
configure_tree ()
{
  local option=${1:-}

  echo "Making ./configure"
  run_logged autogen.sh autogen.log ./autogen.sh || return
  echo "Configuring"
  rm -f config.status config.cache
  run_logged configure configure.log \
    ./configure ${option:+"--enable-$option"} || return
  # Objects made with other options, or elsewhere, are no use.
  run_logged "make clean" make.log make clean
}

# build_tree [werror]: everything up to date, in the folder itself, which is
# the current one.  Quick if nothing has changed.  A folder that only others
# may write to is used as it is.
build_tree ()
{
  if [ ! -w . ]; then
    [ ! -e fatbatch.so ] || return 0
    echo "$PWD: there is no fatbatch.so here, and no right to make it" >&2
    return 1
  fi
  if ! is_configured "${1:-}" || [ ! -x configure ] ||
     [ -n "$(find . -name .git -prune -o \( -name configure.ac -o \
               -name Makefile.am \) -newer configure -print)" ]; then
    configure_tree "${1:-}" || return
  fi
  is_up_to_date || echo "Building"
  make -j"$(nproc)" >make.log 2>&1 </dev/null && return
  # What an older version left may be in the way, such as dependencies on
  # files that are no more.
  echo "Building again from the beginning"
  configure_tree "${1:-}" || return
  run_logged make make.log make -j"$(nproc)"
}
