#!/usr/bin/env bash
# The benchmarks: each test/bench/*.pl on a private cluster of its own that is
# gone afterwards.  What "make bench" runs; never a test, never in CI.
#
# From the environment: BENCH (names of benchmarks, to run these alone),
# BENCH_ROWS (a day: 4000000), BENCH_DAYS (of history: 3), BENCH_ROUNDS (5),
# BENCH_SECONDS (a run of pgbench: 2), PG_CONFIG, PGTEST_USER, KEEP=1.
#
# TimescaleDB, pg_ivm and pg_incremental are in the run where PG_CONFIG's
# installation has them, DuckDB where node is there; else they are left out.
#
# Table and chart go to test-output/bench/; those of a whole run, of a million
# rows a day at least, also to doc/.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
. "$(dirname "$0")/cluster.sh"

# in this order: matview moves the lake's watermark to where the others want it,
# and from timescaledb on the server preloads that
all='matview refresh duckdb memory late current year planning copy insert fold fill promote incremental timescaledb'
wanted=${BENCH:-$all}
for name in $wanted; do
  case " $all " in *" $name "*) ;; *) die "no such benchmark: $name (there are: $all)" ;; esac
done

export BENCH_ROWS=${BENCH_ROWS:-4000000} BENCH_DAYS=${BENCH_DAYS:-3} BENCH_ROUNDS=${BENCH_ROUNDS:-5} BENCH_SECONDS=${BENCH_SECONDS:-2}
keep_out_of_environment
cd "$top"
PG_CONFIG=$("$top/test/setup.sh" build)
use_postgres
output=$top/test-output/bench
mkdir -p "$output"
make_work

prepare() {
  set -e
  mkdir -p "$top/build"
  exec 9>"$top/build/lock"
  flock 9
  build plain
  use_installation plain
}

# DuckDB for those who have node: where it cannot be had, it is left out.
duckdb() {
  local module=@duckdb/node-api
  case " $wanted " in *' duckdb '*) ;; *) return 1 ;; esac
  command -v node >/dev/null && command -v npm >/dev/null || return 1
  [ -d "$top/build/duckdb/node_modules/$module" ] ||
    npm install --silent --no-save --prefix "$top/build/duckdb" "$module" >/dev/null 2>&1 || return 1
  cp -r "$top/build/duckdb/node_modules" "$work/"
  hand_over "$work/node_modules"
}

# peer EXTENSION: its version, if the installation has it
peer() {
  sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" "$sharedir/extension/$1.control" 2>/dev/null || true
}

# preload_timescaledb: restarts the cluster with it, if the installation has it
preload_timescaledb() {
  [ -n "$(peer timescaledb)" ] || return 0
  printf '%s\n' "shared_preload_libraries = 'timescaledb'" "timescaledb.telemetry_level = off" >> "$cluster/postgresql.conf"
  as_user pg_ctl -D "$cluster" -l "$log" -w -s restart
}

# Honest about commits: fsync and synchronous_commit are on, as in production.
# No autovacuum within a measurement: the benchmarks vacuum between them.
settings() {
  local mb
  mb=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
  cat <<END
fsync = on
synchronous_commit = on
shared_buffers = $((mb / 4 < 2048 ? mb / 4 : 2048))MB
work_mem = $((mb / 16 < 512 ? mb / 16 : 512))MB
maintenance_work_mem = $((mb / 16 < 512 ? mb / 16 : 512))MB
min_wal_size = 4GB
max_wal_size = 64GB
checkpoint_timeout = 1d
wal_level = replica
autovacuum = off
jit = off
max_locks_per_transaction = 1024
timezone = 'UTC'
END
}

machine() {
  printf '%s\n' "date: $(date -u +%F)" \
    "cores: $(nproc)" \
    "processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort -u | head -1)" \
    "memory: $(awk '/^MemTotal/ {printf "%.0f GB", $2 / 1048576}' /proc/meminfo)" \
    "server: $("$PG_CONFIG" --version)" \
    "dailyrollup: $(git -c safe.directory='*' describe --always --dirty 2>/dev/null || sed -n "s/^default_version = '\(.*\)'/\1/p" "$ext.control")" \
    "DuckDB: ${BENCH_DUCKDB:-left out}"
  local extension version
  for extension in TimescaleDB pg_ivm pg_incremental; do
    version=$(peer "${extension,,}")
    say "$extension: ${version:-left out}"
  done
  printf '%s\n' \
    "rows a day: $BENCH_ROWS" \
    "days of history: $BENCH_DAYS" \
    "rounds: $BENCH_ROUNDS, medians of them" \
    "settings: $(settings | paste -sd, | sed 's/,/, /g')"
}

bench() {
  set -e
  local name settings rc=0
  use_installation plain
  mapfile -t settings < <(settings)
  start_cluster bench "${settings[@]}"
  as_user createdb bench
  export PGDATABASE=bench BENCH_OUT=$work/out
  as_user psql -Xq -v ON_ERROR_STOP=1 -f test/bench/workload.sql
  for name in $all; do
    case " $wanted " in *" $name "*) ;; *) continue ;; esac
    say "$name, $(date +%T)" >&2
    [ "$name" != timescaledb ] || preload_timescaledb
    as_user perl "test/bench/$name.pl" > "$work/out/$name.result" || { rc=1; say "$name FAILED" >&2; }
    cat "$work/out/$name.result"
    cat "$work/out/$name.result" >> "$output/results.tsv"
  done
  [ ! -f "$work/out/fill.tsv" ] || cp "$work/out/fill.tsv" "$output/"
  stop_cluster
  no_crash "$log" || rc=1
  return "$rc"
}

in_group prepare
duckdb=$top/build/duckdb/node_modules/@duckdb/node-api/package.json
BENCH_DUCKDB=
if duckdb; then BENCH_DUCKDB=$(sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' "$duckdb"); fi
export BENCH_DUCKDB
rm -f "$output"/*
machine > "$output/machine"
rc=0
in_group bench || rc=1
perl test/bench/report.pl "$output"
[ "$rc" = 0 ] || die "not all benchmarks went through"
if [ "$wanted" = "$all" ] && [ "$BENCH_ROWS" -ge 1000000 ] && [ "$BENCH_ROUNDS" -ge 5 ]; then
  cp "$output/benchmark.md" "$output/benchmark.svg" doc/
  say "written: doc/benchmark.md, doc/benchmark.svg"
fi
