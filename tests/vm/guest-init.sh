#!/bin/busybox sh
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=dash
#
# /init of the test guest: runs /guest.sh, reports its exit status on the
# second serial port (the first is the console, where the kernel may cut into
# a line), and powers off.

export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
stty -F /dev/ttyS1 raw -echo

modprobe virtio_pci
status=0
sh /guest.sh || status=$?
echo "guest.sh: exit status $status, up $(cut -d ' ' -f 1 /proc/uptime) s"
echo "exit status: $status" >/dev/ttyS1

poweroff -f
