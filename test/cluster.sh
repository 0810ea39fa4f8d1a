# shellcheck shell=bash
# Library: builds, private installations and private clusters for the tests.
#
# All that a test run needs lies in one work folder of its own below /tmp:
#
#   $work/plain, $work/waitpoints   copies of the PostgreSQL installation, each
#                                   with one build of the extension in it
#   $work/<name>.data, .log, .s     a cluster, its log, its socket's folder
#   $work/sql, expected, test       the tests
#
# So nothing is installed into the system's PostgreSQL, the tests can run as
# another user than the one who owns the checkout (the server refuses root),
# and whatever runs from below $work is ours to end.  Nothing here installs
# packages: that is setup.sh.

ext=dailyrollup
# as the test clusters need it; the library is also loadable on demand
preload=
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$ext: $*" >&2; exit 1; }

# The caller's PostgreSQL and make settings must not reach the tests.
keep_out_of_environment() {
  local v
  for v in $(compgen -e); do
    case $v in
      PG_CONFIG|PGTEST_USER|PG_TEST_*|PGISOLATIONTIMEOUT) ;;
      PG*|WAITPOINTS|MAKEFLAGS|MFLAGS|MAKELEVEL|MAKEOVERRIDES) unset "$v" ;;
    esac
  done
}

# --- builds ---------------------------------------------------------------

# build NAME [VARIABLE=VALUE ...]: the extension in build/NAME, from a copy of
# the sources.  A copy, because make would take objects of another build from
# the source folder as its own.  Only changed files are copied, so only these
# are compiled again; other settings start afresh.
build() {
  local dir=$top/build/$1 settings f
  shift
  settings="$PG_CONFIG $(stat -Lc %Y "$PG_CONFIG") $("$PG_CONFIG" --version) CC=${CC:-} COPT=${COPT:-} $*"
  mkdir -p "$dir/src" "$dir/sql"
  # objects that passed with WERROR=1 serve without it, too
  if [ "$settings" != "$(cat "$dir/settings" 2>/dev/null)" ] &&
     [ "$settings WERROR=1" != "$(cat "$dir/settings" 2>/dev/null)" ]; then
    rm -rf "$dir"
    mkdir -p "$dir/src" "$dir/sql"
    say "$settings" > "$dir/settings"
  fi
  for f in "$dir"/src/*.[ch] "$dir"/sql/*--*.sql; do
    [ ! -e "$f" ] || [ -e "$top/${f#"$dir"/}" ] || rm -f "$f" "${f%.c}.o"
  done
  for f in "$top"/Makefile "$top"/"$ext".control "$top"/src/*.[ch] "$top"/sql/*--*.sql; do
    [ ! -e "$f" ] || cmp -s "$f" "$dir/${f#"$top"/}" || cp "$f" "$dir/${f#"$top"/}"
  done
  make -s -C "$dir" -j "$(nproc)" PG_CONFIG="$PG_CONFIG" with_llvm=no \
    ${CC:+CC="$CC"} ${COPT:+COPT="$COPT"} "$@" all
}

# --- the work folder ------------------------------------------------------

# make_work: sets $work, whom the tests run as ($run_as), and the clean-up.
make_work() {
  local base=${TMPDIR:-/tmp}
  [ "${#base}" -le 40 ] || base=/tmp        # a socket's path has 107 bytes at most
  run_as=()
  if [ "$(id -u)" = 0 ]; then
    test_user=${PGTEST_USER:-postgres}
    id "$test_user" >/dev/null 2>&1 ||
      die "there is no user $test_user to run a server as; name one by PGTEST_USER"
    run_as=(setpriv --reuid="$test_user" --regid="$(id -g "$test_user")" --init-groups)
  fi
  job=
  work=$(mktemp -d "$base/dr.XXXXXX")
  trap 'clean_up; exit 130' INT
  trap 'clean_up; exit 143' TERM HUP
  trap clean_up EXIT
  mkdir "$work/tmp" "$work/out"
  local d
  for d in sql expected test doc README.md; do
    [ ! -e "$top/$d" ] || cp -r "$top/$d" "$work/"
  done
  if [ -n "${DR_TEST_DATA:-}" ]; then
    [ -d "$DR_TEST_DATA" ] || die "DR_TEST_DATA is no folder: $DR_TEST_DATA"
    cp -r "$DR_TEST_DATA" "$work/real-data"
    chmod -R u+w "$work/real-data"
    export DR_TEST_DATA=$work/real-data
  fi
  hand_over "$work"
}

# hand_over FILE...: to the user whom the tests run as
hand_over() {
  [ ${#run_as[@]} = 0 ] || chown -R "$test_user:" "$@"
}

# as_user COMMAND...: as the test user, with the programs of installation
# $inst, a fixed locale and zone, and the work folder for all that it writes
as_user() {
  local bin=$inst$bindir
  (cd "$work" && exec "${run_as[@]}" env HOME="$work" USER="${test_user:-$(id -un)}" TMPDIR="$work/tmp" \
    LC_ALL=C TZ=UTC PG_CONFIG="$bin/pg_config" PATH="$bin:$PATH" "$@")
}

# in_group COMMAND...: runs it as a process group of its own, so that clean_up
# can end the whole of it, and so that a signal to us is not kept waiting
in_group() {
  local rc=0
  set -m
  "$@" </dev/null &
  job=$!
  set +m
  wait "$job" || rc=$?
  job=
  return "$rc"
}

# programs that run from below $work: ours, whoever started them
our_processes() {
  local p
  for p in /proc/[0-9]*; do
    case $(readlink "$p/exe" 2>/dev/null):$(readlink "$p/cwd" 2>/dev/null) in
      "$work"/*:*|*/memcheck-*:"$work"/*) say "${p#/proc/}" ;;
    esac
  done
}

clean_up() {
  local i signal=QUIT processes
  trap '' INT TERM HUP
  trap - EXIT
  [ -z "$job" ] || kill -TERM -- "-$job" 2>/dev/null || true
  # a server that is told to quit leaves no shared memory behind
  for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    processes=$(our_processes)
    [ -n "$processes" ] || break
    [ "$i" -lt 11 ] || signal=KILL
    # shellcheck disable=SC2086
    kill "-$signal" $processes 2>/dev/null || true
    sleep 0.3
  done
  [ -z "$job" ] || kill -KILL -- "-$job" 2>/dev/null || true
  if [ -n "${KEEP:-}" ]; then say "kept: $work"; else rm -rf "$work"; fi
}

# --- installations and clusters -------------------------------------------

# use_postgres: sets the paths of $PG_CONFIG's installation
use_postgres() {
  PG_CONFIG=$(command -v "$PG_CONFIG") || die "no such program: PG_CONFIG"
  bindir=$("$PG_CONFIG" --bindir)
  pkglibdir=$("$PG_CONFIG" --pkglibdir)
  sharedir=$("$PG_CONFIG" --sharedir)
  # $pgxs/src/test/ has pg_regress, the isolation tester and PostgreSQL::Test
  pgxs=$("$PG_CONFIG" --pgxs)
  pgxs=${pgxs%/src/makefiles/pgxs.mk}
}

# use_installation NAME: makes build/NAME's private installation, once, and
# lets $inst be it.  The programs are real copies, since PostgreSQL finds its
# share and lib folders from where its own program lies; the rest are links.
use_installation() {
  local f
  inst=$work/$1
  [ ! -d "$inst" ] || return 0
  mkdir -p "$inst$bindir" "$inst$pkglibdir" "$inst$sharedir/extension"
  cp -L "$bindir"/* "$inst$bindir/"
  for f in "$pkglibdir"/*; do
    case ${f##*/} in
      pgxs|bitcode|"$ext".so) ;;            # an install would write through a link
      *) ln -s "$f" "$inst$pkglibdir/" ;;
    esac
  done
  for f in "$sharedir"/*; do
    [ "${f##*/}" = extension ] || ln -s "$f" "$inst$sharedir/"
  done
  for f in "$sharedir"/extension/*; do
    case ${f##*/} in
      "$ext".control|"$ext"--*) ;;
      *) ln -s "$f" "$inst$sharedir/extension/" ;;
    esac
  done
  make -s -C "$top/build/$1" PG_CONFIG="$PG_CONFIG" with_llvm=no install DESTDIR="$inst" >/dev/null
  [ "${SERVER:-}" != valgrind ] || put_under_valgrind
  hand_over "$inst"
}

# put_under_valgrind: $inst's server, but for the errands that initdb and pg_ctl
# have for it.  What valgrind finds stands in the server's log.
put_under_valgrind() {
  local server=$inst$bindir/postgres
  command -v valgrind >/dev/null || die 'valgrind is not installed'
  [ -f "$sharedir/valgrind.supp" ] ||
    die "copy src/tools/valgrind.supp of PostgreSQL's source to $sharedir"
  mv "$server" "$server.bin"
  cat > "$server" <<END
#!/bin/sh
case \$1 in -V|--version|-C|--boot|--check|--single) exec "$server.bin" "\$@" ;; esac
exec valgrind --quiet --leak-check=no --suppressions="$sharedir/valgrind.supp" --error-markers=VALGRINDERROR-BEGIN,VALGRINDERROR-END "$server.bin" "\$@"
END
  chmod +x "$server"
}

# start_cluster NAME [SETTING ...]: a cluster of the current installation, with
# no TCP port; clients find it by PGHOST and PGUSER
start_cluster() {
  local name=$1
  shift
  cluster=$work/$name.data
  log=$work/$name.log
  if [ ! -d "$work/template" ]; then
    as_user initdb -D "$work/template" -A trust -U postgres -E UTF8 --no-locale -N >"$work/initdb.log" ||
      { cat "$work/initdb.log"; return 1; }
  fi
  as_user cp -a "$work/template" "$cluster"
  as_user mkdir "$work/$name.s"
  {
    say "listen_addresses = ''"
    say "unix_socket_directories = '$work/$name.s'"
    say "shared_preload_libraries = '$preload'"
    say "fsync = off"
    say "log_line_prefix = '%m [%p] %q%d %a '"
    [ $# = 0 ] || printf '%s\n' "$@"
    [ -z "${TEMP_CONFIG:-}" ] || cat "$TEMP_CONFIG"
  } >> "$cluster/postgresql.conf"
  export PGHOST=$work/$name.s PGPORT=5432 PGUSER=postgres
  as_user pg_ctl -D "$cluster" -l "$log" -w -s start || { cat "$log"; return 1; }
}

stop_cluster() {
  as_user pg_ctl -D "$cluster" -m fast -w -s stop
  unset PGHOST PGPORT PGUSER
}

# no_crash LOG...: fails, and shows the lines, if a server came to harm.  In
# the logs of tests that kill a server (crash_*) signal 9 is as intended.
no_crash() {
  local f bad=0 lines
  for f in "$@"; do
    [ -f "$f" ] || continue
    lines=$(grep -aE 'PANIC:|TRAP:|terminated by signal|(Address|Leak|UndefinedBehavior)Sanitizer|runtime error:|VALGRINDERROR-BEGIN' "$f" |
      case ${f##*/} in crash_*|regress_log_crash_*) grep -v 'terminated by signal 9' ;; *) cat ;; esac) || true
    [ -n "$lines" ] || continue
    say "a server came to harm, says ${f##*/}:" "$lines"
    bad=1
  done
  return "$bad"
}
