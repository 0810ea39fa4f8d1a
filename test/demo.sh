#!/usr/bin/env bash
# The demo: test/demo/demo.sql on a private server that is gone afterwards.
# What "make demo" runs; fails if the script does.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=cluster.sh
. "$(dirname "$0")/cluster.sh"

keep_out_of_environment
cd "$top"
[ -f test/demo/demo.sql ] || die "there is no test/demo/demo.sql"
PG_CONFIG=$("$top/test/setup.sh" build)
use_postgres
make_work

prepare() {
  set -e
  mkdir -p "$top/build"
  exec 9>"$top/build/lock"
  flock 9
  build plain
  use_installation plain
}

demo() {
  set -e
  local rc=0 start
  use_installation plain
  start_cluster demo 'shared_buffers = 256MB' 'max_wal_size = 4GB' 'synchronous_commit = off'
  as_user createdb demo
  start=$(date +%s.%N)
  as_user psql -X -q -v ON_ERROR_STOP=1 -P pager=off -d demo \
    -f test/demo/demo.sql 2>&1 || rc=$?
  printf '\nThe demo took %s s' "$(awk "BEGIN {printf \"%.1f\", $(date +%s.%N) - $start}")"
  if [ "$rc" = 0 ]; then say .; else say " and FAILED."; fi
  stop_cluster
  no_crash "$log" || rc=1
  return "$rc"
}

in_group prepare
in_group demo
