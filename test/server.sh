#!/usr/bin/env bash
# Builds a PostgreSQL that watches itself, from the source in PG_SOURCE (which
# is not written to), and prints the path of its pg_config.  Once: later runs
# find it in build/.  It takes ten minutes or so on two processors, bison, flex,
# and the headers of ICU, OpenSSL and zlib.
#
#   usage: PG_SOURCE=FOLDER test/server.sh asserts|asan|valgrind
#
#   asserts, valgrind   one server: with assertions, freed memory overwritten,
#                       memory contexts checked, and valgrind told what palloc does
#   asan                with AddressSanitizer instead
#
# pgTAP and pg_cron are copied from the installed PostgreSQL, where it is of the
# same major version.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
. "$(dirname "$0")/cluster.sh"

options=(--enable-debug --enable-tap-tests --with-icu --with-openssl)
cflags='-O1 -g -fno-omit-frame-pointer'
case ${1:-} in
  asserts|valgrind) kind=asserts; options+=(--enable-cassert); cflags+=' -DUSE_VALGRIND' ;;
  asan) kind=asan; cflags+=' -fsanitize=address' ;;
  *) die "no such kind of server: ${1:-}" ;;
esac
prefix=$top/build/postgres-$kind
if [ -e "$prefix/complete" ]; then
  say "$prefix/bin/pg_config"
  exit
fi
[ -x "${PG_SOURCE:-}/configure" ] ||
  die "set PG_SOURCE to the source of a PostgreSQL, or PG_CONFIG to one built for $1 (see test/server.sh)"
source=$(cd "$PG_SOURCE" && pwd)
log=$prefix/build.log
rm -rf "$prefix"
mkdir -p "$prefix/build"
say "building a server in $prefix" >&2

# its own tools are built with the sanitizer, too, and end without freeing
export ASAN_OPTIONS=detect_leaks=0
keep_out_of_environment
(
  cd "$prefix/build"
  "$source/configure" --prefix="$prefix" "${options[@]}" CFLAGS="$cflags"
  make -s -j "$(nproc)"
  make -s install
  make -s -C contrib install
) >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "the build failed, see $log"; }

major() { "$1" --version | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p'; }

# copy_extension NAME: from the installed PostgreSQL
copy_extension() {
  local own=$prefix/bin/pg_config from
  for from in $(compgen -G '/usr/lib/postgresql/*/bin/pg_config') $(command -v pg_config); do
    [ "$(major "$from")" = "$(major "$own")" ] || continue
    [ -e "$("$from" --sharedir)/extension/$1.control" ] || continue
    cp "$("$from" --sharedir)/extension/$1.control" "$("$from" --sharedir)/extension/$1"--*.sql "$("$own" --sharedir)/extension/"
    [ ! -e "$("$from" --pkglibdir)/$1.so" ] || cp "$("$from" --pkglibdir)/$1.so" "$("$own" --pkglibdir)/"
    return 0
  done
}
cp "$source/src/tools/valgrind.supp" "$("$prefix/bin/pg_config" --sharedir)/"
copy_extension pgtap
copy_extension pg_cron
rm -rf "$prefix/build"
touch "$prefix/complete"
say "$prefix/bin/pg_config"
