# A real limit on a backend's address space (prlimit), in the midst of its session,
# where the operations have large days, many late keys, large batches: an error
# 53200, nothing done by half, and the session goes on; or all is done.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrSession;

plan skip_all => 'no prlimit' if system('prlimit --version >/dev/null 2>&1') != 0;

my $node = PostgreSQL::Test::Cluster->new('limits');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\nwork_mem = '256MB'\nmaintenance_work_mem = '64MB'\nmax_parallel_workers_per_gather = 0\njit = off\n");
$node->start;
my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$session->safe(<<'SQL');
SET client_min_messages = error;
SET check_function_bodies = off;
CREATE EXTENSION dailyrollup;
CREATE FUNCTION make(mode text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  CREATE TABLE s (k text NOT NULL, ts timestamptz NOT NULL, v int, id int GENERATED ALWAYS AS IDENTITY);
  CREATE INDEX ON s (k, ts);
  PERFORM rollup_create('r', 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, ts) AS v, max(ts) AS ts FROM s GROUP BY k', 'ts', '{k,ts}', '{id}', mode => make.mode);
END $$;
-- rows of 25,000 keys
CREATE FUNCTION fill(n int, at timestamptz, part int DEFAULT 1) RETURNS void LANGUAGE sql AS $$
  INSERT INTO s (k, ts, v) SELECT 'a key of some length ' || i % 25000, at + i * interval '0.1s', i FROM generate_series(1, n) i WHERE i % part = 0
$$;
CREATE FUNCTION wrong() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  r record;
  n bigint;
  found text := '';
BEGIN
  FOR r IN SELECT * FROM rollup_status LOOP
    EXECUTE format('SELECT count(*) FROM ((TABLE %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL TABLE %1$s)) x', r.current_view, rollup_definition(r.rollup)) INTO n;
    IF n > 0 THEN found := format('view: %s ', n); END IF;
    IF r.watermark IS NOT NULL OR r.state = 'off' THEN
      SELECT count(*) INTO n FROM rollup_verify(r.rollup);
      IF n > 0 THEN found := found || format('rollup_verify: %s', n); END IF;
    END IF;
  END LOOP;
  RETURN found;
END $$;
SQL

# Megabytes that the backend may take beyond what it has, undef: whatever it likes.
sub limit
{
	my ($pid, $more) = @_;
	my ($size) = slurp_file("/proc/$pid/status") =~ /^VmSize:\s+(\d+) kB/m;
	my $bytes = defined $more ? ($size + $more * 1024) * 1024 : 'unlimited';

	system('prlimit', "--pid=$pid", "--as=$bytes:unlimited") == 0 or die "no limit\n";
	return;
}

my @operations = (
	[ 'refresh', 'on', "SELECT fill(60000, '2026-01-01Z'); SELECT rollup_refresh('r', '2026-01-01Z');", "SELECT action FROM rollup_refresh('r', '2026-01-03Z');", 'fold' ],
	[ 'seed', 'on', "SELECT fill(60000, '2026-01-01Z');", "SELECT action FROM rollup_refresh('r', '2026-01-03Z');", 'seed' ],
	[ 'late', 'on', "SELECT fill(60000, '2026-01-01Z'); SELECT rollup_refresh('r', '2026-01-03Z'); UPDATE s SET v = v + 1 WHERE id % 4 = 0;", "SELECT action FROM rollup_refresh('r', '2026-01-03Z');", 'late' ],
	[ 'late rows', 'on', "SELECT fill(60000, '2026-01-01Z'); SELECT rollup_refresh('r', '2026-01-03Z'); SELECT fill(25000, '2026-01-01 00:00:00.05Z', 2);", "SELECT action FROM rollup_refresh('r', '2026-01-03Z');", 'late' ],
	[ 'fold', 'off', "CALL rollup_run('r'); SELECT fill(25000, '2026-01-01Z');", "SELECT fill(60000, '2026-01-02Z');", '' ],
	[ 'small fold', 'off', "CALL rollup_run('r'); SELECT fill(25000, '2026-01-01Z');", "SELECT fill(9000, '2026-01-02Z');", '' ],
	[ 'fold of changes', 'off', "CALL rollup_run('r'); SELECT fill(25000, '2026-01-01Z');", "UPDATE s SET v = v + 1;", '' ],
	[ 'promote', 'shadow', "SELECT fill(60000, '2026-01-01Z'); CALL rollup_run('r');", "SELECT action FROM rollup_promote('r');", 'promoted' ],
	[ 'recompute', 'off', "CALL rollup_run('r'); SELECT fill(60000, '2026-01-01Z');", "SELECT rollup_recompute('r');", undef ],
	[ 'current', 'on', "SELECT fill(60000, '2026-01-01Z'); SELECT rollup_refresh('r', '2026-01-03Z'); UPDATE s SET v = v + 1 WHERE id % 4 = 0;", 'SELECT count(*) FROM r_current;', 25000 ],
	[ 'verify', 'on', "SELECT fill(60000, '2026-01-01Z'); SELECT rollup_refresh('r', '2026-01-03Z');", "SELECT count(*) FROM rollup_verify('r');", 0 ],
	[ 'diff', 'shadow', "SELECT fill(60000, '2026-01-01Z'); CALL rollup_run('r');", "SELECT count(*) FROM rollup_diff('r');", 0 ]);

my @limits = (0, 1, 3, 9);
my ($failed, $done) = (0, 0);
for my $operation (@operations)
{
	my ($name, $mode, $before, $statement, $says) = @$operation;
	my $worker = DrSession->new(name => '', connstr => $node->connstr('postgres'));
	my $pid = $worker->safe('SELECT pg_backend_pid();');

	$session->safe("SELECT make('$mode'); $before VACUUM ANALYZE s;");
	my $was = $session->safe("SELECT md5(string_agg(r::text, ',' ORDER BY k)) FROM r;");
	$worker->safe('SET client_min_messages = error; SELECT count(*) FROM rollup_status;');
	my ($text, $said);
	for my $limit (@limits, undef)
	{
		limit($pid, $limit);
		$text = $worker->run($statement) =~ s{\n\z}{}r;
		limit($pid, undef);
		($said) = DrSession::errors($text);
		last if !defined $said;
		$failed++;
		my $more = $limit // 'no limit';
		is($said, '53200', "$name, $more MB: out of memory") or diag(substr($text, 0, 1000));
		is($worker->safe(q{SELECT pg_backend_pid();}), $pid, "$name, $more MB: the session goes on");
		is($session->safe("SELECT md5(string_agg(r::text, ',' ORDER BY k)) FROM r;"), $was, "$name, $more MB: nothing is done by half");
	}
	$done++ if !defined $said;
	is($text, $says, "$name: done at last") if defined $says;
	is($session->safe('SELECT wrong();'), '', "$name: exact");
	$worker->quit;
	$session->safe("SELECT rollup_drop('r', true); DROP TABLE s;");
}
is($done, scalar @operations, 'each is done where there is memory');
cmp_ok($failed, '>', 12, 'and fails where there is none');
note("$failed times out of memory");
$session->quit;
$node->stop;
done_testing();
