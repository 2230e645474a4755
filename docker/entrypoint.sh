#!/bin/sh
# numba needs a writable cache folder, and the file system is read-only: first copy the kernels that were
# compiled at build time to the tmpfs.
set -eu
mkdir -p /tmp/numba
cp -R /opt/numba/. /tmp/numba/
export NUMBA_CACHE_DIR=/tmp/numba
if [ -f /opt/numba/cpu ]; then
    NUMBA_CPU_NAME=$(cat /opt/numba/cpu)
    NUMBA_CPU_FEATURES=
    export NUMBA_CPU_NAME NUMBA_CPU_FEATURES
fi
exec streamforest "$@"
