#!/usr/bin/env bash
# Static analysis of src/ by cppcheck and by clang's scan-build, whichever of
# the two is installed.  What "make analyze" runs; fails on a finding.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
. "$(dirname "$0")/cluster.sh"

keep_out_of_environment
cd "$top"
rc=0 ran=

# Without the server's headers, which it does not get through: a few macros
# tell it what they amount to.
if command -v cppcheck >/dev/null; then
  ran=1
  say '=== cppcheck'
  cppcheck -q --enable=warning,portability,performance --error-exitcode=1 --inline-suppr \
    -D'foreach(cell, list)=for (cell = list_head(list); cell != 0; cell = lnext(list, cell))' \
    -D'forboth(a, b, c, d)=for (a = list_head(b), c = list_head(d); a != 0 && c != 0; a = lnext(b, a), c = lnext(d, c))' \
    -D'ereport(level, ...)=if (level >= ERROR) abort()' -D'elog(level, ...)=if (level >= ERROR) abort()' \
    -D'ERROR=21' -D'FATAL=22' -D'PANIC=23' -D'WARNING=19' -D'NOTICE=18' -D'LOG=15' -D'DEBUG1=14' \
    -D'PG_FUNCTION_INFO_V1(name)=' -D'PG_MODULE_MAGIC=' -D'PG_TRY()={' -D'PG_FINALLY()=}{' \
    -D'PG_CATCH()=}if (0){' -D'PG_END_TRY()=}' -D'PG_RE_THROW()=abort()' \
    -D'UINT64_FORMAT="%lu"' -D'INT64_FORMAT="%ld"' src || rc=1
fi

scan_build=$(compgen -c scan-build | grep -E '^scan-build(-[0-9]+)?$' | sort -V | head -1 || true)
if [ -n "$scan_build" ]; then
  ran=1
  say "=== $scan_build"
  PG_CONFIG=$("$top/test/setup.sh" build)
  use_postgres
  make_work
  clang=clang${scan_build#scan-build}
  cp -r src Makefile "$ext.control" sql "$work/tmp/"
  rm -f "$work"/tmp/src/*.o
  "$scan_build" --use-cc="$clang" --status-bugs -o "$top/test-output/scan-build" \
    make -s -C "$work/tmp" PG_CONFIG="$PG_CONFIG" with_llvm=no \
    COPT="-Wno-ignored-attributes -Wno-unknown-warning-option -Wno-ignored-optimization-argument" all || rc=1
fi

[ -n "$ran" ] || die 'neither cppcheck nor scan-build (clang-tools) is installed'
[ "$rc" = 0 ] || die 'see the findings above'
