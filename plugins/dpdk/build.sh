#!/bin/sh
# Compiles the DPDK plug-in into DIRECTORY/libmillstream_dpdk.so, against the DPDK that pkg-config finds.
#
#   plugins/dpdk/build.sh DIRECTORY
#
# Exit status 3: there is no DPDK to build against. Debian: apt-get install libdpdk-dev pkgconf gcc. CC and CFLAGS choose another compiler and other options.
set -eu

[ $# = 1 ] || { echo "usage: plugins/dpdk/build.sh DIRECTORY" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
pkg-config --atleast-version=21.11 libdpdk 2>/dev/null || {
	echo "no DPDK to build against: pkg-config finds no libdpdk of 21.11 or later" >&2
	exit 3
}
mkdir -p "$1"
# Written beside and moved: a program may have the old one open.
${CC:-cc} -std=gnu11 ${CFLAGS:--O2 -g} -Wall -fPIC -shared -fvisibility=hidden $(pkg-config --cflags libdpdk) \
	"$here/plugin.c" -o "$1/.libmillstream_dpdk.so.$$" $(pkg-config --libs libdpdk) -pthread
mv "$1/.libmillstream_dpdk.so.$$" "$1/libmillstream_dpdk.so"
