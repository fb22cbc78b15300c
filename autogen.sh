#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Make ./configure from a git checkout.
set -e
cd "$(dirname "$0")"
exec autoreconf -fi
