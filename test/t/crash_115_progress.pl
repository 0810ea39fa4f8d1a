# What somebody at psql sees of a long pass: after some seconds, at which part of
# how many it is; and what rollup_progress shows to others meanwhile.
#
# On the waitpoint build, where a part need not be large.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('progress');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
shared_preload_libraries = 'dailyrollup'
dailyrollup.worker = off
CONF
$node->start;

# Eight days, a partition and a row each, and what lies before and after them: ten
# parts.  Each row takes more than a second.
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION dailyrollup;
CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.2); RETURN $1; END';
CREATE TABLE events (k int, at timestamptz NOT NULL, n int) PARTITION BY RANGE (at);
DO $$ BEGIN FOR i IN 1 .. 8 LOOP
	EXECUTE format('CREATE TABLE events_%s PARTITION OF events FOR VALUES FROM (%L) TO (%L)', i, date '2026-01-01' + i, date '2026-01-02' + i);
	EXECUTE format('INSERT INTO events VALUES (1, %L, %s)', date '2026-01-01' + i + time '12:00', i);
END LOOP; END $$;
SET client_min_messages = error;
SELECT rollup_create('daily', 'SELECT k, count(*), sum(slow(n)) AS total FROM events GROUP BY k', 'at', mode => 'on');
SQL

my ($stdout, $stderr) = ('', '');
my $pass = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'CALL rollup_run()' ], '>', \$stdout, '2>', \$stderr);
ok($node->poll_query_until('postgres', q{SELECT part = 4 FROM rollup_progress}), 'rollup_progress: at the fourth part');
is($node->safe_psql('postgres', q{SELECT rollup, phase, parts, "rows", p.pid = a.pid, started_at < phase_started_at, phase_started_at <= now()
	FROM rollup_progress p, pg_stat_activity a WHERE a.query ~ '^CALL'}), 'daily|seed|10|2|t|t|t', 'of ten, with the rows of those before');
is($node->safe_psql('postgres', q{SELECT activity FROM rollup_status}), 'seed', 'rollup_status tells the phase');
$pass->finish;
is($node->safe_psql('postgres', 'SELECT total FROM daily'), '36', 'the pass has come to its end');
is($node->safe_psql('postgres', 'SELECT count(*) FROM rollup_progress'), '0', 'and has given its place back');
my @told = $stderr =~ /NOTICE:  rollup "public.daily": part (\d+) of 10/g;
is(scalar @told, 1, 'one notice in some ten seconds');
cmp_ok($told[0], '>=', 4, 'not before five seconds have gone by');

$node->safe_psql('postgres', q{UPDATE events SET n = 10 WHERE n = 1});
($stdout, $stderr) = ('', '');
$node->psql('postgres', 'CALL rollup_run()', stderr => \$stderr);
unlike($stderr, qr/part/, 'nothing of a short pass');
$node->stop;
done_testing();
