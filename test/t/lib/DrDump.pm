# Rollups in each state, with late and backfilled keys that wait: what a dump or an
# upgrade of the server has to bring over, and how to see that it has.
package DrDump;

use strict;
use warnings;

use Test::More;

# what a server needs for them
our $CONF = "fsync = off\ntimezone = 'UTC'\ndailyrollup.delay = 0\ndailyrollup.late_interval = 0\n";

our @rollups = (q{"la ke"."on"}, 'shadowed', q{"o'ff"}, 'filled_later', 'left_alone');

# In a new database "first"; the role keeper owns them.
sub create
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'CREATE DATABASE first; CREATE ROLE keeper');
	$node->safe_psql('first', <<'SQL');
SET client_min_messages = error;
CREATE EXTENSION dailyrollup;
CREATE SCHEMA "la ke" AUTHORIZATION keeper;
GRANT CREATE ON SCHEMA public TO keeper;
SET SESSION AUTHORIZATION keeper;
CREATE DOMAIN "la ke".amount AS numeric CHECK (VALUE < 1000);
CREATE TABLE "la ke".s (k text, dropped int, n varchar(5), t timestamptz NOT NULL, v numeric, a "la ke".amount, id int) PARTITION BY RANGE (t);
ALTER TABLE "la ke".s DROP dropped;
CREATE TABLE "la ke".s1 PARTITION OF "la ke".s FOR VALUES FROM (MINVALUE) TO ('2026-01-02 00:00+00');
CREATE TABLE "la ke".s2 (id int, a "la ke".amount, v numeric, t timestamptz NOT NULL, n varchar(5), k text);
ALTER TABLE "la ke".s ATTACH PARTITION "la ke".s2 DEFAULT;
CREATE INDEX ON "la ke".s (k, n, t);
CREATE TABLE plain (k text, t date NOT NULL, v int);
INSERT INTO "la ke".s SELECT nullif('k' || i % 7, 'k0'), 'n', '2026-01-01'::timestamptz + i * interval '1 hour', i, i, i FROM generate_series(1, 100) i;
INSERT INTO plain SELECT 'k' || i % 7, '2026-01-01'::date + i % 9, i FROM generate_series(1, 100) i;
SELECT rollup_create('"la ke"."on"', $$SELECT k, n, latest(v, t) AS v, max(t) AS t, count(*) AS c FROM "la ke".s GROUP BY k, n$$, 't',
  dedup_by => '{k,n,t}', dedup_order => '{id}', mode => 'on');
SELECT rollup_create('shadowed', $$SELECT k, count(*) AS c, sum(v) AS s, max(a) AS a FROM "la ke".s GROUP BY k$$, 't', mode => 'shadow');
SELECT rollup_create('"o''ff"', $$SELECT k, count(*) AS c, bool_or(v > 50) AS s FROM plain GROUP BY k$$, 't', mode => 'off', time_zone => 'Europe/Berlin', delay => '1 h');
SELECT rollup_create('filled_later', $$SELECT k, count(*) AS c FROM plain GROUP BY k$$, 't', mode => 'on');
SELECT rollup_create('left_alone', $$SELECT v % 3 AS m, min(k) AS k FROM plain WHERE v > 1 GROUP BY v % 3$$, 't', mode => 'off');
CALL rollup_run('"la ke"."on"'); CALL rollup_run('shadowed'); CALL rollup_run('"o''ff"'); CALL rollup_run('left_alone');
SELECT rollup_alter('left_alone', fold => false);
GRANT SELECT ON shadowed_current TO PUBLIC;
ALTER TABLE "la ke"."on" ADD own text DEFAULT 'mine';
-- what waits: late rows that may be merged, and others
INSERT INTO "la ke".s (k, n, t, v, id) VALUES ('k1', 'n', '2026-01-01 12:30', 7, 1), ('k1', 'n', '2026-01-01 13:00', 7, 0), (NULL, 'n', '2026-01-01 12:31', 7, 1),
  ('new', 'n', '2026-01-01 12:31', 7, 1), ('tail', 'n', now(), 1, 1);
DELETE FROM "la ke".s WHERE id = 33;
SET dailyrollup.backfill = on;
INSERT INTO plain VALUES ('bf', '2026-01-01', 1);
SQL
	return;
}

# what there is, in words that are the same in each database
my $looks = <<'SQL';
SELECT s.rollup, s.state, s.wanted_mode, s.watermark, s.late_keys, r.time_zone, r.delay, r.fold, r.proof, s.shadow, pg_get_userbyid(c.relowner),
  (SELECT count(*) FROM rollup_runs x WHERE x.rollup = s.rollup)
FROM rollup_status s JOIN dailyrollup.rollups r ON r.live = s.rollup JOIN pg_class c ON c.oid = s.rollup ORDER BY s.rollup::text;
SELECT t.tgrelid::regclass, t.tgname, t.tgenabled FROM pg_trigger t WHERE t.tgname ~ '^dailyrollup' ORDER BY t.tgrelid::regclass::text, 2;
SELECT rollup::text, key, marks FROM rollup_late ORDER BY 1, key::text;
TABLE shadowed_current ORDER BY k; TABLE "la ke".on_current ORDER BY k; TABLE "o'ff_current" ORDER BY k; TABLE filled_later_current ORDER BY k;
TABLE left_alone ORDER BY m; TABLE shadowed_daily ORDER BY k; TABLE "la ke"."on" ORDER BY k;
SELECT last_value, is_called FROM dailyrollup.rollup_id_seq;
SQL
sub look
{
	my ($node, $database) = @_;
	return $node->safe_psql($database, $looks);
}

# The next pass, a TRUNCATE, a new rollup, and no rollup any more.
sub go_on
{
	my ($node, $database, $how) = @_;
	my $wrong = join ' UNION ALL ', map { my $name = s/'/''/gr; "SELECT '$name' || v FROM rollup_verify('$name') v" } @rollups[ 0 .. 3 ];
	$node->safe_psql($database, <<'SQL');
SET client_min_messages = error;
INSERT INTO "la ke".s (k, n, t, v, id) VALUES ('k2', 'n', '2026-01-01 12:30', 7, 1), ('k1', 'n', '2026-01-01 12:30', 8, 0), ('k5', 'n', now(), 1, 1);
INSERT INTO plain VALUES ('z', '2026-01-01', 5);
CALL rollup_run();
SQL
	is($node->safe_psql($database, $wrong), '', "$how: exact after the next pass");
	is($node->safe_psql($database, q{SELECT string_agg(state || ' ' || late_keys, ', ' ORDER BY rollup::text) FROM rollup_status}),
		'on 0, off 0, on 0, off 0, shadow 0', "$how: each in its state, no key waits");
	is($node->safe_psql($database, q{SELECT count(*) FROM rollup_diff('shadowed', 'all')}), '0', "$how: the shadow agrees");
	$node->safe_psql($database, "SET client_min_messages = error; TRUNCATE \"la ke\".s2; CALL rollup_run();
	  SELECT rollup_create('one_more', 'SELECT k, count(*) FROM plain GROUP BY k', 't', mode => 'on')");
	is($node->safe_psql($database, $wrong), '', "$how: a TRUNCATE of a partition is noticed");
	$node->safe_psql($database, 'SET client_min_messages = error; ' . join '', map { my $name = s/'/''/gr; "SELECT rollup_drop('$name', true);" } @rollups, 'one_more');
	is($node->safe_psql($database, q{SELECT count(*) FROM pg_class WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_[0-9]+$'}), '0', "$how: dropped");
	return;
}

1;
