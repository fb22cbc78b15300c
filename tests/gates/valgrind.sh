#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
#   valgrind.sh PROGRAM [ARGUMENT...]
#
# Run a test program under valgrind.  Fails if it fails, or if valgrind has
# anything to say about it or a process that it forks: Criterion runs each
# test in a worker whose exit status it does not pass on, so valgrind's own
# --error-exitcode is not enough.

set -u

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

export CRITERION_NO_EARLY_EXIT=1
valgrind --quiet --trace-children=yes --child-silent-after-fork=no \
         --leak-check=full --show-leak-kinds=definite \
         --suppressions="$(dirname "$0")/valgrind.supp" \
         --log-file="$logs/%p" "$@"
status=$?

for log in "$logs"/*; do
  if [ -s "$log" ]; then
    cat "$log" >&2
    [ $status -ne 0 ] || status=1
  fi
done
exit $status
