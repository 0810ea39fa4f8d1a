#!/usr/bin/env bash
# Installs what the tests need and this machine lacks (Debian, Ubuntu), and
# prints the path of the pg_config to use.
#
#   usage: test/setup.sh [KIND ...]      kinds as in run.sh; none: all of them
#
# Which PostgreSQL: the one of PG_CONFIG, if that is set; else what is
# installed, if it is 15 or later with its server headers; else the
# distribution's default.  apt-get is not called at all when nothing is
# missing.  No system cluster is created along with a server package.
set -euo pipefail
ext=dailyrollup
kinds=${*:-build pgtap tap}
wants() { case " $kinds " in *" $1 "*) return 0 ;; esac; return 1; }
say() { printf '%s\n' "$*" >&2; }
die() { say "$ext: $*"; exit 1; }

major() { "$1" --version 2>/dev/null | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p'; }

# complete PG_CONFIG: is a server of 15 or later, with headers, there?
complete() {
  local pgxs
  command -v "$1" >/dev/null && [ "$(major "$1")" -ge 15 ] 2>/dev/null || return 1
  pgxs=$("$1" --pgxs)
  [ -f "$pgxs" ] && [ -x "$("$1" --bindir)/postgres" ] &&
    [ -f "$("$1" --includedir-server)/postgres.h" ] &&
    [ -x "${pgxs%/makefiles/pgxs.mk}/test/regress/pg_regress" ]
}

# the newest complete one; else nothing
find_postgres() {
  local c
  for c in pg_config $(printf '%s\n' /usr/lib/postgresql/*/bin/pg_config | sort -rV); do
    ! complete "$c" || { command -v "$c"; return; }
  done
}

# the major whose packages to install: of a server that is there, else the
# distribution's
package_major() {
  local n
  n=$(printf '%s\n' /usr/lib/postgresql/*/bin/postgres | sed -n 's,^/usr/lib/postgresql/\([0-9]*\)/.*,\1,p' | sort -rn | head -1)
  [ "${n:-0}" -ge 15 ] || n=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/^ *Depends: postgresql-\([0-9]*\)$/\1/p')
  printf "%s" "$n"
}

# --- apt ------------------------------------------------------------------

as_root=()
updated=
can_install() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" != 0 ] || return 0
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && [ -t 2 ]; }; } || return 1
  as_root=(sudo)
}

# Quiet, unless it fails.
apt() {
  local log rc=0
  log=$(mktemp)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
    apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$log" 2>&1 || { rc=$?; tail -n 40 "$log" >&2; }
  rm -f "$log"
  return "$rc"
}
update() { [ -n "$updated" ] || apt update; updated=1; }

# install PACKAGE...; with the package lists as they are, if they will do
install() {
  local conf=/etc/postgresql-common/createcluster.d/$ext-tests.conf rc=0
  say "installing $*"
  # read when a server package is installed: no cluster, no service
  "${as_root[@]}" mkdir -p "${conf%/*}"
  echo 'create_main_cluster = false' | "${as_root[@]}" tee "$conf" >/dev/null
  apt install -y --no-install-recommends "$@" ||
    { [ -z "$updated" ] && update && apt install -y --no-install-recommends "$@"; } || rc=1
  "${as_root[@]}" rm -f "$conf"
  [ "$rc" = 0 ] || die "could not install: $*"
}

# --- what is missing ------------------------------------------------------

missing=()
need() { missing+=("$@"); }

have_module() { perl "-M$1" -e 1 2>/dev/null; }

command -v make >/dev/null || need make
echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || need gcc libc6-dev

debian_postgres=     # packages of this major belong to it
if [ -n "${PG_CONFIG:-}" ]; then
  command -v "$PG_CONFIG" >/dev/null || die "no such program: PG_CONFIG=$PG_CONFIG"
  complete "$PG_CONFIG" || die "PG_CONFIG=$PG_CONFIG is not of a PostgreSQL 15 or later with its server, headers and pg_regress"
  found=$(command -v "$PG_CONFIG")
else
  found=$(find_postgres)
fi
if [ -n "$found" ]; then
  n=$(major "$found")
  [ "$("$found" --bindir)" != "/usr/lib/postgresql/$n/bin" ] || debian_postgres=$n
else
  n=$(package_major)
  if [ -z "$n" ] && can_install; then
    update
    n=$(package_major)
  fi
  [ "${n:-15}" -ge 15 ] ||
    die "this distribution has PostgreSQL $n, dailyrollup needs 15 or later: install one and set PG_CONFIG"
  n=${n:-NN}
  debian_postgres=$n
  need "postgresql-$n" "postgresql-server-dev-$n"
fi

has_extension() {
  [ -n "$found" ] && [ -f "$("$found" --sharedir)/extension/$1.control" ]
}

if wants pgtap; then
  { have_module TAP::Parser::SourceHandler::pgTAP && command -v pg_prove >/dev/null; } ||
    need libtap-parser-sourcehandler-pgtap-perl
  if ! has_extension pgtap; then
    [ -n "$debian_postgres" ] || die "install pgTAP into the PostgreSQL of PG_CONFIG=$PG_CONFIG"
    need "postgresql-$n-pgtap"
  fi
fi
if wants tap; then
  command -v prove >/dev/null || need perl
  have_module IPC::Run || need libipc-run-perl
  if ! has_extension pg_cron; then
    if [ -n "$debian_postgres" ]; then
      need "postgresql-$n-cron"
    else
      say "no pg_cron in the PostgreSQL of PG_CONFIG=$PG_CONFIG: its tests are skipped"
    fi
  fi
fi

if [ ${#missing[@]} -gt 0 ]; then
  can_install || die "please install these packages first: ${missing[*]}"
  install "${missing[@]}"
  [ -n "$found" ] || found=$(find_postgres)
  [ -n "$found" ] || die "no PostgreSQL 15 or later is there after the installation"
fi
printf '%s\n' "$found"
