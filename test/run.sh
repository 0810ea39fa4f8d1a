#!/usr/bin/env bash
# The tests, all kinds or some: what "make test" runs.
#
#   usage: test/run.sh [KIND ...]
#
#   lint        rules that a machine can check              test/lint.pl
#   build       both builds, warnings are errors
#   waitpoints  only the test build has waitpoints in it
#   regress     sql/*.sql against expected/*.out            pg_regress
#   pgtap       test/pgtap/*.sql, what they share in lib/  pg_prove
#   isolation   test/isolation/specs/*.spec                 (waitpoint build)
#   tap         test/t/*.pl; crash_*.pl and race_*.pl on the waitpoint build
#
# With COVERAGE=1 (make coverage): from one gcov build, without lint and
# waitpoints, and at the end the share of lines that ran.  With SANITIZE=1 (make
# sanitize): from one build, likewise, that ends the server at the first
# undefined behaviour (UndefinedBehaviorSanitizer).  With SERVER=asserts, asan or
# valgrind (make asserts, asan, valgrind): on a server that watches itself, the
# one of PG_CONFIG, or one built by server.sh from PG_SOURCE.
#
# From the environment: KINDS (as the arguments), TESTS (names or patterns of
# tests, of all kinds, to run alone), PG_CONFIG, OTHER_PG_CONFIG (an older major,
# to come from: 195_majors.pl), PGTEST_USER (whom root becomes:
# postgres), WERROR= (to let warnings pass), KEEP=1 (keep the work folder),
# TEMP_CONFIG (a file with settings for all servers), DR_TEST_DATA (a folder with
# real data), DR_SEED, DR_SEEDS, DR_FAULTS=all (each operation killed, cancelled and
# without memory or disk at each place: hours), PG_TEST_TIMEOUT_DEFAULT.  Logs and
# diffs go to test-output/KIND/.
set -euo pipefail
shopt -s extglob
# shellcheck source-path=SCRIPTDIR source=cluster.sh
. "$(dirname "$0")/cluster.sh"

all_kinds='lint build waitpoints regress pgtap isolation tap'
[ -z "${COVERAGE:-}${SANITIZE:-}" ] || all_kinds='build regress pgtap isolation tap'
kinds=${*:-${KINDS:-$all_kinds}}
for kind in $kinds; do
  case " $all_kinds " in *" $kind "*) ;; *) die "no such kind of test: $kind (there are: $all_kinds)" ;; esac
done
[ "$kinds" != lint ] || exec perl "$top/test/lint.pl"

# in the order above; all but lint need the builds
wanted=" build $kinds "
kinds=
for kind in $all_kinds; do
  case $wanted in *" $kind "*) kinds+="$kind " ;; esac
done

keep_out_of_environment
cd "$top"
WERROR=${WERROR-1}
# neither a server nor its programs free all before they exit
[ -z "${SERVER:-}" ] || export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1
if [ -n "${SERVER:-}" ] && [ -z "${PG_CONFIG:-}" ]; then
  PG_CONFIG=$("$top/test/server.sh" "$SERVER")
  export PG_CONFIG
fi
# shellcheck disable=SC2086
PG_CONFIG=$("$top/test/setup.sh" build $kinds)
use_postgres
make_work

plain=plain waitpoints=waitpoints
if [ -n "${COVERAGE:-}" ]; then
  # one build for all, with the waitpoints in it; servers write their counts
  # to where they may write
  plain=coverage waitpoints=coverage
  export GCOV_PREFIX=$work/gcov
  mkdir "$GCOV_PREFIX"
  hand_over "$GCOV_PREFIX"
elif [ -n "${SANITIZE:-}" ]; then
  plain=sanitized waitpoints=sanitized
  export UBSAN_OPTIONS=print_stacktrace=1
elif [ -n "${SERVER:-}" ]; then
  plain=plain.$SERVER waitpoints=waitpoints.$SERVER
  # it takes its time
  export PGCTLTIMEOUT=900 PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-900}
  export PGISOLATIONTIMEOUT=${PGISOLATIONTIMEOUT:-1800}
fi

# --- the kinds ------------------------------------------------------------
# Each runs in a subshell, in $work/out/KIND, what it leaves there is kept.

# pick FOLDER EXTENSION: the tests there that TESTS asks for, into $picked.
# Fails, with a word, if there are none; ends the kind as failed if there are
# files, but none that counts as a test.
pick() {
  local f p any=
  picked=()
  for f in "$top/$1"/!(*--*)."$2"; do
    [ -e "$f" ] || continue
    any=1
    for p in ${TESTS:-'*'}; do
      # shellcheck disable=SC2254
      case $(basename "${f%.*}") in $p) picked+=("${f#"$top/"}"); break ;; esac
    done
  done
  if [ -z "$any" ] && [ -n "$(find "$top/$1" -type f ! -name '*--*' 2>/dev/null)" ]; then
    say "$1 has files, but no test (*.$2)"
    exit 1
  fi
  [ ${#picked[@]} -gt 0 ] || { say "no test${TESTS:+ named $TESTS} in $1"; return 1; }
  : > "$work/picked"
}

names() { local f; for f in "${picked[@]}"; do basename "${f%.*}"; done; }

kind_lint() { perl "$top/test/lint.pl"; }

kind_build() {
  # other runs may build in the same checkout
  mkdir -p "$top/build"
  exec 9>"$top/build/lock"
  flock 9
  if [ -n "${COVERAGE:-}" ]; then
    build coverage WAITPOINTS=1 COVERAGE=1
    rm -f "$top"/build/coverage/src/*.gcda
  elif [ -n "${SANITIZE:-}" ]; then
    build sanitized WAITPOINTS=1 SANITIZE=1
  else
    build "$plain" ${WERROR:+WERROR=1}
    build "$waitpoints" WAITPOINTS=1 ${WERROR:+WERROR=1}
  fi
  use_installation "$plain"
  use_installation "$waitpoints"
}

kind_waitpoints() {
  local without=$work/$plain$pkglibdir/$ext.so with=$work/$waitpoints$pkglibdir/$ext.so word rc=0
  for word in 'dailyrollup waitpoint' dr_debug_waitpoint; do
    ! grep -aq "$word" "$without" || { say "the plain library contains \"$word\""; rc=1; }
    grep -aq "$word" "$with" || { say "the waitpoint library does not contain \"$word\""; rc=1; }
  done
  [ "$rc" != 0 ] || say "the plain library has no waitpoint"
  return "$rc"
}

kind_regress() {
  local rc=0
  pick sql sql || return 0
  start_cluster regress 'max_prepared_transactions = 10'
  # shellcheck disable=SC2046
  as_user "$pgxs/src/test/regress/pg_regress" --host="$PGHOST" --port="$PGPORT" --user=postgres \
    --bindir= --inputdir="$work" --outputdir="$PWD" --dbname=contrib_regression --no-locale --encoding=UTF8 \
    $(names) || { rc=1; show_diffs; }
  stop_cluster
  no_crash "$log" || rc=1
  return "$rc"
}

show_diffs() {
  [ ! -f regression.diffs ] || head -n 400 regression.diffs
}

kind_pgtap() {
  local rc=0
  pick test/pgtap sql || return 0
  start_cluster pgtap 'max_prepared_transactions = 10'
  as_user createdb -E UTF8 pgtap
  as_user psql -Xq -d pgtap -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION pgtap' -c "CREATE EXTENSION $ext"
  # the scripts cannot read the environment: they get psql variables
  as_user pg_prove --jobs 1 -d pgtap \
    ${DR_TEST_DATA:+--set dr_test_data="$DR_TEST_DATA"} \
    ${DR_SEED:+--set dr_seed="$DR_SEED"} ${DR_SEEDS:+--set dr_seeds="$DR_SEEDS"} \
    "${picked[@]}" || rc=1
  stop_cluster
  no_crash "$log" || rc=1
  return "$rc"
}

kind_isolation() {
  local rc=0
  pick test/isolation/specs spec || return 0
  use_installation "$waitpoints"
  # no ANALYZE whose snapshot keeps a row's old version, when a spec looks at plans
  start_cluster isolation 'max_prepared_transactions = 10' 'autovacuum = off'
  # shellcheck disable=SC2046
  as_user "$pgxs/src/test/isolation/pg_isolation_regress" --host="$PGHOST" --port="$PGPORT" --user=postgres \
    --bindir= --inputdir="$work/test/isolation" --outputdir="$PWD" --dbname=isolation_regression \
    --no-locale --encoding=UTF8 --load-extension="$ext" \
    $(names) || { rc=1; show_diffs; }
  stop_cluster
  no_crash "$log" || rc=1
  return "$rc"
}

kind_tap() {
  local rc=0 f ordinary=() waiting=() here=$PWD
  pick test/t pl || return 0
  for f in "${picked[@]}"; do
    case ${f##*/} in crash_*|race_*) waiting+=("$f") ;; *) ordinary+=("$f") ;; esac
  done
  other_major || return 1
  [ ${#ordinary[@]} = 0 ] || prove_with "$plain" "${ordinary[@]}" || rc=1
  [ ${#waiting[@]} = 0 ] || prove_with "$waitpoints" "${waiting[@]}" || rc=1
  no_crash "$here"/log/* || rc=1
  return "$rc"
}

# An installation of another major, for tests of a move between two: built from
# the same sources, at $DR_OTHER_BINDIR.  In a subshell, for all paths are others.
other_major() {
  [ -n "${OTHER_PG_CONFIG:-}" ] || return 0
  (PG_CONFIG=$OTHER_PG_CONFIG; use_postgres; build other; use_installation other
   say "$inst$bindir" > "$work/other_bindir") || return 1
  DR_OTHER_BINDIR=$(cat "$work/other_bindir")
  export DR_OTHER_BINDIR
}

# prove_with INSTALLATION FILE...
prove_with() {
  local dir=$work/tap.$1 rc=0
  use_installation "$1"
  shift
  [ -d "$dir" ] || as_user mkdir "$dir"
  # shellcheck disable=SC2086
  as_user env TESTDIR="$dir" TESTDATADIR="$dir/tmp_check" TESTLOGDIR="$dir/tmp_check/log" \
    PG_REGRESS="$pgxs/src/test/regress/pg_regress" top_builddir="$dir" \
    DR_INCLUDES="$("$PG_CONFIG" --includedir-server)" \
    prove ${PROVE_FLAGS:-} -I "$pgxs/src/test/perl" -I "$work/test/t" -I "$work/test/t/lib" "$@" || rc=1
  mkdir -p log
  cp "$dir"/tmp_check/log/* log/ 2>/dev/null || true
  return "$rc"
}

# The share of lines that ran, for each file and in all, and into test-output/ a
# list of those that did not.  A server process that was killed has not counted
# what it ran.
coverage() {
  local dir=$top/build/coverage unrun=$top/test-output/coverage.txt
  say '=== coverage'
  cp "$GCOV_PREFIX$dir"/src/*.gcda "$dir/src/"
  (cd "$dir" && gcov -o src src/*.gcda) | perl -ne '
    $file = $1 if /^File .(src\/.*\.c)/;
    if (defined $file && /^Lines executed:([\d.]+)% of (\d+)/) {
      printf "%-20s %6.2f %% of %5d lines\n", $file, $1, $2;
      $ran += $1 * $2 / 100;
      $all += $2;
      undef $file;
    }
    END { printf "%-20s %6.2f %% of %5d lines\n", "total", 100 * $ran / $all, $all if $all }' | sort
  perl -ne '$file = $1 if /^ *-: *0:Source:(.*)/; print "$file:$1: $2\n" if /^ *#####: *(\d+):\s*(.*)/' \
    "$dir"/*.c.gcov > "$unrun"
  say "not run: $(wc -l < "$unrun") lines, see ${unrun#"$top"/}"
}

# --- one after the other --------------------------------------------------

run_kind() {
  mkdir -p "$work/out/$1"
  hand_over "$work/out/$1"
  set +e
  {
    (set -e; cd "$work/out/$1"; inst=$work/$plain; "kind_$1") 2>&1
    say $? > "$work/rc"
  } | tee "$work/out/$1.txt"
}

# keep KIND: what it left goes to test-output/
keep() {
  local dir=$top/test-output/$1
  rm -rf "$dir"
  mkdir -p "$top/test-output"
  cp -r "$work/out/$1" "$dir"
  cp "$work/out/$1.txt" "$dir/output.txt"
  [ ! -f "$work/$1.log" ] || cp "$work/$1.log" "$dir/server.log"
}

summary=
failed=0
for kind in $kinds; do
  say "=== $kind"
  start=$SECONDS
  say 1 > "$work/rc"
  in_group run_kind "$kind"
  result=ok
  [ "$(cat "$work/rc")" = 0 ] || { result=FAILED; failed=1; }
  summary+=$(printf '%-10s  %-6s  %4d s' "$kind" "$result" $((SECONDS - start)))$'\n'
  keep "$kind" || say "could not keep the output of $kind"
  if [ "$kind $result" = 'build FAILED' ]; then
    summary+='nothing further was run'$'\n'
    break
  fi
done
[ -z "${COVERAGE:-}" ] || coverage
if [ -n "${TESTS:-}" ] && [ ! -e "$work/picked" ]; then
  summary+="no test is named $TESTS"$'\n'
  failed=1
fi
printf "=== summary\n%s" "$summary"
if [ "$failed" != 0 ]; then
  # the end of a log is what is looked at first
  grep -hE '\.\.\. FAILED|^not ok|Failed test|Parse errors|^psql:.*ERROR|^[-+][^-+]' "$work"/out/*.txt | head -n 30 || true
  say "FAILED: see test-output/"
  exit 1
fi
