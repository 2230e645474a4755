#!/bin/sh
# numba needs a cache folder it can write to, and the file system is read-only: the kernels compiled
# at build time are copied to the tmpfs first.
set -eu
mkdir -p /tmp/numba
cp -R /opt/numba/. /tmp/numba/
export NUMBA_CACHE_DIR=/tmp/numba
exec streamforest "$@"
