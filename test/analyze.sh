#!/usr/bin/env bash
# Static analysis of src/ by cppcheck and by clang's scan-build and clang-tidy,
# whichever of them is installed.  What "make analyze" runs; fails on a finding.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
. "$(dirname "$0")/cluster.sh"

keep_out_of_environment
cd "$top"
rc=0 ran=

# Without the server's headers, which it does not get through: it is told what
# a few of their macros amount to.
if command -v cppcheck >/dev/null; then
  ran=1
  say '=== cppcheck'
  macros=$(mktemp)
  trap 'rm -f "$macros"' EXIT
  cat > "$macros" <<'END'
#define foreach(cell, list) for (cell = list_head(list); cell; cell = lnext(list, cell))
#define forboth(a, b, c, d) for (a = list_head(b), c = list_head(d); a && c; a = lnext(b, a), c = lnext(d, c))
#define ERROR 21
#define FATAL 22
#define ereport(level, ...) do { __VA_ARGS__; if ((level) >= ERROR) abort(); } while (0)
#define elog(level, ...) do { if ((level) >= ERROR) abort(); } while (0)
#define PG_FUNCTION_INFO_V1(name) extern int name##_info
#define PG_MODULE_MAGIC extern int magic
#define PG_TRY() {
#define PG_CATCH() } if (0) {
#define PG_FINALLY() } {
#define PG_END_TRY() }
#define PG_RE_THROW() abort()
#define UINT64_FORMAT "%lu"
#define INT64_FORMAT "%ld"
END
  cppcheck -q --enable=warning,portability,performance --error-exitcode=1 --inline-suppr \
    --suppress=legacyUninitvar \
    --include="$macros" src || rc=1
  rm -f "$macros"
fi

# find_tool NAME: its oldest version here; else nothing
find_tool() { compgen -c "$1" | grep -E "^$1(-[0-9]+)?\$" | sort -V | head -1 || true; }

scan_build=$(find_tool scan-build)
clang_tidy=$(find_tool clang-tidy)
if [ -n "$scan_build$clang_tidy" ]; then
  PG_CONFIG=$("$top/test/setup.sh" build)
  use_postgres
fi

if [ -n "$scan_build" ]; then
  ran=1
  say "=== $scan_build"
  make_work
  clang=clang${scan_build#scan-build}
  cp -r src Makefile "$ext.control" sql "$work/tmp/"
  rm -f "$work"/tmp/src/*.o
  "$scan_build" --use-cc="$clang" --status-bugs -o "$top/test-output/scan-build" \
    make -s -C "$work/tmp" PG_CONFIG="$PG_CONFIG" with_llvm=no \
    COPT="-Wno-ignored-attributes -Wno-unknown-warning-option -Wno-ignored-optimization-argument" all || rc=1
fi

# Less what the server's own macros and types provoke: the widths of Size, Datum
# and AttrNumber, names that begin with "_", memcpy as such, ereport's pieces.
if [ -n "$clang_tidy" ]; then
  ran=1
  say "=== $clang_tidy"
  checks='-*,bugprone-*,cert-*,clang-analyzer-*'
  checks+=',-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions'
  checks+=',-bugprone-implicit-widening-of-multiplication-result'
  checks+=',-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling'
  checks+=',-bugprone-reserved-identifier,-cert-dcl37-c,-cert-dcl51-cpp'

  printf '%s\n' src/*.c | xargs -P "$(nproc)" -I{} \
    "$clang_tidy" --quiet --checks="$checks" --warnings-as-errors='*' {} -- \
    -DDR_WAITPOINTS -D_GNU_SOURCE -I"$("$PG_CONFIG" --includedir-server)" 2>/dev/null || rc=1
fi

[ -n "$ran" ] || die 'none of cppcheck, scan-build (clang-tools) and clang-tidy is installed'
[ "$rc" = 0 ] || die 'see the findings above'
