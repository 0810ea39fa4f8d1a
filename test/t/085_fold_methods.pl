# The ways to compute and merge a day: in memory, in parts where memory does not
# suffice, together with a parallel worker, by statements; by one scan of the table or
# key by key.  Each gives the
# oracle's rows, with redeliveries, ties that either row wins, NULL keys, and
# measures of every kind; and each is seen to be taken, by its DEBUG1 message.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('fold_methods');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
max_wal_size = 2GB
CONF
$node->start;

sub psql
{
	my ($sql) = @_;
	my ($out, $err);

	my $code = $node->psql('postgres', $sql, stdout => \$out, stderr => \$err, on_error_stop => 1);
	die "$sql\n$err" if $code != 0;
	return ($out, $err);
}

# Rows of ten days: $keys keys, a third of the rows in the order of time, some
# delivered twice, some of one key and instant that differ in what counts.
psql(<<'SQL');
SET client_min_messages = warning;
CREATE EXTENSION dailyrollup;
CREATE FUNCTION fill(name text, keys int, rows int, days int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %I SELECT * FROM (
		SELECT CASE WHEN k %% 97 = 0 THEN NULL ELSE ''key '' || k END AS k, k %% 3 AS part,
			''2026-01-01 00:00+00''::timestamptz + $3 * interval ''1 day'' * (CASE WHEN i %% 3 = 0 THEN i::float8 / $2 ELSE random() END) AS ts,
			CASE WHEN i %% 5 > 0 THEN (random() * 1000)::int END AS v, (random() * 1e12)::int8 AS large,
			round((random() * 100)::numeric, i %% 3) AS price,
			CASE WHEN i %% 7 > 0 THEN repeat(chr(97 + i %% 26), i %% 300) END AS label,
			i %% 11 > 0 AS good, i AS id
		FROM generate_series(1, $2) i, LATERAL (SELECT (random() ^ 2 * $1)::int + i * 0 AS k) q) r', name) USING keys, rows, days;
	EXECUTE format('INSERT INTO %1$I SELECT * FROM %1$I WHERE id %% 50 = 7', name);
	-- another row of an event: later, and earlier, in the order of what counts
	EXECUTE format('INSERT INTO %1$I SELECT k, part, ts, v + 1, large, price * 2, label || ''!'', NOT good, id + 1000000 FROM %1$I WHERE id %% 60 = 3', name);
	EXECUTE format('INSERT INTO %1$I SELECT k, part, ts, v - 1, large + 1, price, ''other '' || label, good, id - 1000000 FROM %1$I WHERE id %% 70 = 4', name);
	EXECUTE format('INSERT INTO %1$I SELECT k, part, ts, NULL, large, price, label, good, id - 2000000 FROM %1$I WHERE id %% 80 = 5', name);
END $$;
CREATE FUNCTION differs(r regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('WITH l AS MATERIALIZED (TABLE %s), d AS MATERIALIZED (%s)
		SELECT count(*) FROM ((TABLE l EXCEPT ALL TABLE d) UNION ALL (TABLE d EXCEPT ALL TABLE l)) x',
		r, rollup_definition(r, rollup_watermark(r))) INTO n;
	RETURN n;
END $$;
SQL

my %create;

sub make
{
	my ($name, $keys, $rows, $query, %option) = @_;
	my $partitions = $option{partitioned}
	  ? "CREATE TABLE ${name}_1 (label text, k text, id int, ts timestamptz NOT NULL, v int, part int, large int8, price numeric, good bool);
		ALTER TABLE $name ATTACH PARTITION ${name}_1 FOR VALUES FROM ('2026-01-01') TO ('2026-01-03 09:00');
		CREATE TABLE ${name}_2 PARTITION OF $name FOR VALUES FROM ('2026-01-03 09:00') TO ('2026-03-01');" : '';

	my $table = $option{table}
	  // "CREATE TABLE $name (k text, part int, ts timestamptz NOT NULL, v int, large int8, price numeric, label text, good bool, id int) "
	  . ($option{partitioned} ? 'PARTITION BY RANGE (ts)' : '');

	psql("SET client_min_messages = warning; SELECT setseed(0.5);
		$table;
		$partitions
		SELECT fill('$name', $keys, $rows, 4);
		CREATE INDEX ON $name (k, ts);");
	$create{$name} = "SELECT rollup_create('${name}_live', \$\$$query FROM $name " . ($option{where} // '') . ' GROUP BY ' . ($option{by} // 'k') . "\$\$, time_column => 'ts', mode => 'on'"
	  . ($option{dedup} ? ", dedup_by => '{$option{dedup}}', dedup_order => '{id}'" : '') . ');';
	return;
}

# Four days, one after the other, each in a transaction, with these settings.
sub refresh
{
	my ($name, $what, $settings, %expected) = @_;
	my $also = delete $expected{also};
	my $said = '';

	psql("SET client_min_messages = warning; SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text = '${name}_live'; SET client_min_messages = error; $create{$name}" . ($also // ''));
	for my $day (2 .. 5)
	{
		my (undef, $err) = psql("SET client_min_messages = debug1; $settings; SELECT rollup_refresh('${name}_live', '2026-01-0$day');");
		$said .= $err;
	}
	my ($differs) = psql("SELECT differs('${name}_live')");
	my ($rows) = psql("SELECT count(*) FROM ${name}_live");
	is($differs, 0, "$name, $what: exact");
	cmp_ok($rows, '>', 0, "$name, $what: there are rows");
	my %seen = (
		memory => $said !~ /do not fit into memory/,
		parts => scalar $said =~ /keys of level 0 .* split/,
		deep => scalar $said =~ /keys of level 1 .* split/,
		statement => scalar $said =~ /a statement computes them/,
		partner => scalar $said =~ /a parallel worker takes half/,
		stored => scalar $said =~ /rows are read as they are stored/,
		scan => scalar $said =~ /updated [1-9]\d* rows by one scan/);
	is(!!$seen{$_}, !!$expected{$_}, "$name, $what: " . ($expected{$_} ? '' : 'not ') . $_) for sort keys %expected;
	return;
}

my $measures = 'k, count(*) AS n, count(v) AS nv, sum(v) AS sv, sum(large) AS sl, sum(price) AS sp, min(label) AS first, max(label) AS last,
	latest(v, ts) AS v, latest(label, ts) FILTER (WHERE label IS NOT NULL) AS label, max(ts) FILTER (WHERE label IS NOT NULL) AS label_at,
	earliest(price, ts) AS price, min(ts) AS since, max(ts) AS seen, max(ts) AS once_more, bool_and(good) AS good, bool_or(good) FILTER (WHERE v > 500) AS some,
	bit_or(v) AS bits, coalesce(sum(v) FILTER (WHERE v > 900), 0) AS much, coalesce(max(v) FILTER (WHERE v > 990), -1) AS most, count(v) FILTER (WHERE v > 990) AS nmost,
	coalesce(sum(v) FILTER (WHERE v > 990), 0) AS shown, sum(v) FILTER (WHERE v > 990) AS shown_bare,
	coalesce(latest(v, ts) FILTER (WHERE NOT good), -1) AS bad, latest(v, ts) FILTER (WHERE NOT good) AS bad_bare, max(ts) FILTER (WHERE NOT good) AS bad_at,
	latest(v, large) AS by_large, max(large) AS large';

# (a worker is called at once, or where many rows are still to come)
my ($parallel, $later, $little) = ('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0', 'SET parallel_setup_cost = 20; SET parallel_tuple_cost = 0', "SET work_mem = '64kB'; SET hash_mem_multiplier = 1");

for my $partitioned (0, 1)
{
	my $name = $partitioned ? 'parts' : 'plain';
	make($name, 3000, 40000, "SELECT $measures", dedup => 'k,ts', partitioned => $partitioned);
	refresh($name, 'auto', "SET work_mem = '64MB'", memory => 1, scan => 1, stored => 1);
	refresh($name, 'hash', "SET work_mem = '64MB'; SET dailyrollup.fold_method = hash", memory => 1, scan => 1);
	refresh($name, 'statement', "SET dailyrollup.fold_method = statement", scan => 0, parts => 0);
	refresh($name, 'little memory', "SET work_mem = '64kB'; SET hash_mem_multiplier = 1", parts => 1, deep => 1, scan => 0, statement => 0);
	refresh($name, 'less memory', "SET work_mem = '1MB'; SET hash_mem_multiplier = 1", parts => 1, deep => 0, statement => 0);
	refresh($name, 'in parallel', "$later; SET work_mem = '64MB'", partner => 1, memory => 1, scan => 1, statement => 0);
	# (within the first batch of rows)
	refresh($name, 'in parallel, soon', "SET parallel_setup_cost = 5; SET parallel_tuple_cost = 0; SET work_mem = '64MB'", partner => 1, memory => 1, scan => 1, statement => 0);
	refresh($name, 'in parallel, little memory', "$parallel; $little", partner => 1, parts => 1, deep => 1, statement => 0);
	refresh($name, 'in parallel, less memory', "$later; SET work_mem = '768kB'; SET hash_mem_multiplier = 1", partner => 1, statement => 0);
	refresh($name, 'few rows', "SET work_mem = '64MB'", partner => 0);
	refresh($name, 'no worker allowed', "$parallel; SET max_parallel_workers_per_gather = 0", partner => 0);
}

# rows that are not stored as they are asked for: of a table that once had another
# column, of one that has a column which they do not have
for my $change ('DROP COLUMN other', "ADD other text DEFAULT 'x'")
{
	psql("SELECT rollup_drop('plain_live', true); " . ($change =~ /DROP/ ? 'ALTER TABLE plain ADD other text; ' : '') . "ALTER TABLE plain $change;");
	refresh('plain', $change, "SET work_mem = '64MB'", memory => 1, scan => 1, stored => 0);
	refresh('plain', "$change, in parallel", "$later; SET work_mem = '64MB'", partner => 1, memory => 1, scan => 1, stored => 0);
}

# a partitioned table that has lost columns, which partitions made since never had:
# their rows are stored as they are asked for, at other places than the table's columns
my $lost = "CREATE TABLE lost (other text, k text, more int, part int, ts timestamptz NOT NULL, v int, large int8, price numeric, label text, good bool, id int) PARTITION BY RANGE (ts);
	CREATE TABLE lost_1 PARTITION OF lost FOR VALUES FROM ('2026-01-04') TO ('2026-03-01');
	ALTER TABLE lost DROP other; ALTER TABLE lost DROP more;
	CREATE TABLE lost_2 PARTITION OF lost FOR VALUES FROM ('2026-01-01') TO ('2026-01-04')";
for my $dedup (undef, 'k,ts')
{
	make('lost', 2000, 30000, "SELECT $measures", table => $lost, dedup => $dedup);
	my $name = $dedup ? 'events' : 'rows';
	refresh('lost', $name, "SET work_mem = '64MB'", memory => 1, stored => 1);
	refresh('lost', "$name, in parallel", "$later; SET work_mem = '64MB'", partner => 1, memory => 1, stored => 1, statement => 0);
	psql("SELECT rollup_drop('lost_live', true); DROP TABLE lost;");
}

make('filtered', 2000, 30000, "SELECT $measures", dedup => 'k,ts', where => 'WHERE v % 4 > 0');
refresh('filtered', 'auto', '', scan => 1);
refresh('filtered', 'little memory', "SET work_mem = '64kB'; SET hash_mem_multiplier = 1", parts => 1);

make('every', 2000, 30000, "SELECT $measures");
refresh('every', 'auto', "SET work_mem = '64MB'", memory => 1, scan => 1);
refresh('every', 'little memory', "SET work_mem = '64kB'; SET hash_mem_multiplier = 1", parts => 1);

for my $name (qw(filtered every))
{
	refresh($name, 'in parallel', $later, partner => 1, memory => 1, scan => 1, statement => 0);
	refresh($name, 'in parallel, little memory', "$parallel; $little", partner => 1, parts => 1, statement => 0);
}

# few keys with many events each: no part is small enough
make('hot', 8, 40000, 'SELECT k, count(*) AS n, max(ts) AS seen, latest(v, ts) AS v', dedup => 'k,ts');
refresh('hot', 'auto', "SET work_mem = '64MB'", memory => 1);
refresh('hot', 'little memory', "SET work_mem = '64kB'; SET hash_mem_multiplier = 1", parts => 1, deep => 1, statement => 1);

refresh('hot', 'in parallel, little memory', "$parallel; $little", partner => 1, parts => 1, deep => 1, statement => 1);
# (of these two the first is the leader's, the second the worker's)
make('warm', 50, 1000, 'SELECT k, count(*) AS n, max(ts) AS seen, latest(v, ts) AS v', dedup => 'k,ts');
psql("INSERT INTO warm SELECT 'a', 0, '2026-01-01 00:00+00'::timestamptz + i * interval '4 s', 1, 1, 1, 'x', true, i FROM generate_series(1, 16000) i");
for my $hot (qw(a d))
{
	psql("UPDATE warm SET k = '$hot' WHERE length(k) = 1");
	refresh('warm', "in parallel, key $hot is hot", "$parallel; $little", partner => 1, deep => 1, statement => 1);
}

# what cannot be computed in memory: events told by more than key and instant,
# keys that are equal with different bytes
make('told', 500, 5000, 'SELECT k, count(*) AS n, sum(v) AS sv', dedup => 'k,ts,part');
refresh('told', 'hash', 'SET dailyrollup.fold_method = hash', scan => 0);
make('numbers', 500, 5000, 'SELECT price, count(*) AS n, sum(v) AS sv', by => 'price');
refresh('numbers', 'hash', 'SET dailyrollup.fold_method = hash', scan => 0);

# what a condition keeps from being evaluated, is not
make('guarded', 300, 5000, 'SELECT 100 / v AS k, count(*) AS n, sum(100 / (v % 3)) FILTER (WHERE v % 3 > 0) AS s, sum(100 / (v % 2)) FILTER (WHERE v % 2 > 0) AS t', where => 'WHERE v > 0', by => 1);
refresh('guarded', 'hash', 'SET dailyrollup.fold_method = hash', memory => 1, scan => 1);
make('told_by', 300, 5000, 'SELECT k, count(*) AS n, sum(100 / v) FILTER (WHERE v > 0) AS s, sum(100 / (v - 1)) FILTER (WHERE v > 1) AS t', dedup => 'k,ts');
refresh('told_by', 'hash', 'SET dailyrollup.fold_method = hash', memory => 1, scan => 1);
refresh($_, 'in parallel', $parallel, partner => 1, memory => 1) for qw(guarded told_by);
make('told_where', 300, 5000, 'SELECT 100 / v AS k, count(*) AS n', dedup => 'v,ts', where => 'WHERE v > 0', by => 1);
refresh('told_where', 'hash', 'SET dailyrollup.fold_method = hash', scan => 0);

# nor what another row of the event keeps from being evaluated, as the statement
# does not; what fails there, fails
make('beaten', 300, 5000, 'SELECT k, count(*) AS n, sum(100 / v) AS s', dedup => 'k,ts');
psql("UPDATE beaten SET v = 5 WHERE v = 0 OR id < 0; INSERT INTO beaten SELECT k, part, ts, 0, large, price, label, good, id + 3000000 FROM beaten WHERE v > 0 AND random() < 0.3");
refresh('beaten', 'hash', 'SET dailyrollup.fold_method = hash', scan => 0, statement => 1);
refresh('beaten', 'little memory', "SET work_mem = '64kB'; SET hash_mem_multiplier = 1", parts => 1, statement => 1);
refresh('beaten', 'in parallel', $parallel, partner => 1, scan => 0, statement => 1);
psql("SELECT rollup_alter('beaten_live', mode => 'off'); CALL rollup_run('beaten_live')");
psql("INSERT INTO beaten SELECT k, part, ts, 0, large, price, label, good, id + 3000000 FROM beaten WHERE v > 0 LIMIT 10");
is((psql("SELECT count(*) FROM rollup_verify('beaten_live')"))[0], 0, 'a row that fails and is beaten is folded on write');
psql("SELECT rollup_alter('beaten_live', mode => 'on'); CALL rollup_run('beaten_live'); SELECT rollup_drop('beaten_live', true); $create{beaten} INSERT INTO beaten VALUES ('zero', 0, '2026-01-02 10:00', 0, 1, 1, 'x', true, 1)");
{
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET dailyrollup.fold_method = hash; SELECT rollup_refresh('beaten_live', '2026-01-03');");
	like($err, qr/22012.*division by zero/, 'one that counts fails the refresh');
	psql("SET dailyrollup.fold_method = hash; UPDATE beaten SET v = 1 WHERE k = 'zero'; SELECT rollup_refresh('beaten_live', '2026-01-03'); SELECT rollup_refresh('beaten_live', '2026-01-06');");
	is((psql("SELECT count(*) FROM rollup_verify('beaten_live')"))[0], 0, 'and does no more when it is gone');
}

# a parallel worker: not for what the server would not let one do; what fails in
# either half, fails; what is cancelled leaves none behind
psql("CREATE FUNCTION own(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN \$1; END'");
make('unsafe', 300, 5000, 'SELECT k, count(*) AS n, sum(own(v)) AS s');
refresh('unsafe', 'in parallel', $parallel, partner => 0, memory => 1);
psql('ALTER FUNCTION own PARALLEL SAFE');
refresh('unsafe', 'in parallel, once its function is safe', $parallel, partner => 1, memory => 1);
psql("UPDATE every SET v = 5 WHERE v = 0; DELETE FROM every WHERE k LIKE 'zero%'");
$create{every} =~ s/sum\(v\) AS sv/sum(100 \/ v) AS sv/;
refresh('every', 'in parallel, divided', $parallel, partner => 1);
psql("SELECT rollup_drop('every_live', true); $create{every} SELECT rollup_refresh('every_live', '2026-01-02');");
for my $i (1 .. 6)
{
	psql("INSERT INTO every SELECT 'zero $i', 0, '2026-01-02 10:00', 0, 1, 1, 'x', true, 1");
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$parallel; SELECT rollup_refresh('every_live', '2026-01-03');");
	like($err, qr/22012.*division by zero/, "in parallel: key $i fails the refresh, whosever it is");
	psql("DELETE FROM every WHERE k = 'zero $i'");
}
psql("CREATE FUNCTION slow(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS 'BEGIN PERFORM pg_sleep(0.1); RETURN v; END'");
make('slow', 300, 5000, 'SELECT k, count(*) AS n, sum(slow(v)) AS s');
psql("SET client_min_messages = error; $create{slow}");
{
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$parallel; SET client_min_messages = debug1; SET statement_timeout = '2s'; SELECT rollup_refresh('slow_live', '2026-01-03');");
	like($err, qr/a parallel worker takes half.*57014/s, 'in parallel: cancelled');
	$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'parallel worker')") or BAIL_OUT('a worker is left');
	is((psql("SELECT count(*) FROM slow_live"))[0], 0, 'nothing was done');
	psql("CREATE OR REPLACE FUNCTION slow(v int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT v'; $parallel; SELECT rollup_refresh('slow_live', '2026-01-03');");
	is((psql("SELECT differs('slow_live')"))[0], 0, 'exact after that');
}

# a parallel worker is called where a key has many rows, and early; not where there is
# more to hand over than to add; with statistics, and without
psql("CREATE TABLE days (k text NOT NULL, ts timestamptz NOT NULL, v int, label text, id int)");
for my $case (['many rows a key', 400, 1, 1], ['twenty rows a key', 2000, 1, 1], ['two rows a key', 10000, 1, 0], ['a row a key', 1000000, 1, 0],
	['many rows a key, side by side', 1000, 40, 1], ['two rows a key, side by side', 20000, 2, 0],
	['many keys once, at little cost', 40000, 1, 1, 25285, 'SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0.0205;'],
	['a few keys often, many seldom', 100000, 0, 1, 14867, 'SET LOCAL parallel_tuple_cost = 0.022;'],
	['many rows a key, where a worker is dear', 400, 1, 0, 0, 'SET LOCAL parallel_setup_cost = 2000;'],
	['rows that do not count', 400, 1, 0, 0, '', 'WHERE v > 7'])
{
	my ($what, $keys, $clump, $called, $present, $settings, $where) = @$case;
	$_ //= '' for $settings, $where;
	my $once = $where eq '' ? "dedup_by => '{k,ts}', " : '';
	$present //= $clump == 1 ? $keys : 40000 / $clump;
	my $key = $clump == 0 ? "(random() ^ 8 * $keys)::int" : $clump == 1 ? "(random() * $keys)::int" : "i / $clump";

	psql("TRUNCATE days; SELECT setseed(0.5);
		INSERT INTO days SELECT 'key ' || $key, '2026-01-01'::timestamptz + i * interval '2 s', i % 7, 'x', 0 FROM generate_series(1, 40000) i");
	for my $analyzed (0, 1)
	{
		psql('ANALYZE days') if $analyzed;
		my (undef, $err) = psql("SET client_min_messages = error; BEGIN; SELECT rollup_create('days_live', 'SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m, min(v) AS l, min(ts) AS since, max(ts) AS ts, latest(v, ts) AS v FROM days $where GROUP BY k', time_column => 'ts', ${once}mode => 'on');
			SET LOCAL client_min_messages = debug1; SET LOCAL parallel_setup_cost = 20; $settings SELECT rollup_refresh('days_live', '2026-01-02'); SET LOCAL client_min_messages = error; SELECT count(*) FROM rollup_verify('days_live'); ROLLBACK");
		my ($after, $rows, $found) = $err =~ /a parallel worker takes half of the keys, after (\d+) of about (\d+) rows, for about (\d+) keys/;
		is(defined $after, !!$called, "$what, " . ($analyzed ? 'with' : 'without') . ' statistics: ' . ($called ? 'a' : 'no') . ' worker');
		next unless $called;
		cmp_ok($after, '<=', 8192, "$what: it is called early");
		cmp_ok(abs($found / $present - 1), '<', 0.2, "$what: about so many keys") if $analyzed;
		cmp_ok(abs($rows / 40000 - 1), '<', 0.1, "$what: about so many rows") if $analyzed;
	}
}

# memory runs out, and all rows are read anew: what was seen of them before counts,
# also where it is more than the planner expected (who knows of the first day alone)
psql("TRUNCATE days; ALTER TABLE days SET (autovacuum_enabled = off); INSERT INTO days SELECT 'key ' || i % 50, '2026-01-01'::timestamptz + i * interval '2 s', i % 7, 'x', 0 FROM generate_series(1, 1000) i; ANALYZE days;
	INSERT INTO days SELECT 'key ' || i % 50, '2026-01-02'::timestamptz + i * interval '2 s', i % 7, 'x', 0 FROM generate_series(1, 40000) i");
{
	my (undef, $err) = psql("SET client_min_messages = error; BEGIN; SELECT rollup_create('days_live', 'SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m, min(v) AS l, min(ts) AS since, max(ts) AS ts, latest(v, ts) AS v FROM days GROUP BY k', time_column => 'ts', dedup_by => '{k,ts}', mode => 'on');
		SELECT rollup_refresh('days_live', '2026-01-02'); SET LOCAL client_min_messages = debug1; SET LOCAL parallel_setup_cost = 120; SET LOCAL work_mem = '160kB'; SET LOCAL hash_mem_multiplier = 1; SELECT rollup_refresh('days_live', '2026-01-03'); ROLLBACK");
	like($err, qr/do not fit into memory.*a parallel worker takes half of the keys, after 1 of about 20480 rows, for about 50 keys/s, 'read anew: a worker from the beginning');
}

# few keys of a large table are looked for one by one
refresh('plain', 'auto', "SET work_mem = '64MB'", memory => 1, scan => 1);
psql("INSERT INTO plain SELECT 'key ' || i, 0, '2026-01-05 10:00', 1, 1, 1, 'x', true, -i FROM generate_series(1, 20) i");
my (undef, $said) = psql("SET client_min_messages = debug1; SELECT rollup_refresh('plain_live', '2026-01-06');");
unlike($said, qr/by one scan/, 'few keys: no scan');
is((psql("SELECT differs('plain_live')"))[0], 0, 'few keys: exact');

# where a trigger wants to see what is updated, a statement does it
psql("CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'");
refresh('every', 'with a trigger', 'SET dailyrollup.fold_method = hash', scan => 0,
	also => 'CREATE TRIGGER t AFTER UPDATE ON every_live FOR EACH ROW EXECUTE FUNCTION seen();');

# what a table has besides: a generated column follows, a CHECK refuses
psql("SET client_min_messages = error; SELECT rollup_drop('plain_live', true); $create{plain}");
psql("SELECT rollup_refresh('plain_live', '2026-01-03'); ALTER TABLE plain_live ADD COLUMN own text DEFAULT 'mine', ADD COLUMN twice int8 GENERATED ALWAYS AS (n * 2) STORED;");
(undef, $said) = psql("SET client_min_messages = debug1; SELECT rollup_refresh('plain_live', '2026-01-04');");
like($said, qr/updated [1-9]\d* rows by one scan/, 'a generated column: one scan');
is((psql("SELECT count(*) FILTER (WHERE twice <> n * 2 OR own <> 'mine') || ' of ' || (count(*) > 1000) FROM plain_live"))[0], '0 of true', 'it follows, and a default stays');
is((psql("SELECT count(*) FROM rollup_verify('plain_live')"))[0], 0, 'exact');
my $most = (psql('SELECT max(n) FROM plain_live'))[0];
psql("ALTER TABLE plain_live ADD CONSTRAINT few CHECK (n <= $most)");
my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT rollup_refresh('plain_live', '2026-01-06');");
like($err, qr/23514.*violates check constraint "few"/, 'a CHECK refuses');
is((psql("SELECT rollup_watermark('plain_live') = '2026-01-04' AND max(n) = $most FROM plain_live"))[0], 't', 'and nothing has changed');

# The write-time fold: live's rows locked and merged without a statement, by
# statements where something stands in the way of that, or all by statements.
my $written = 0;

sub written
{
	my ($name, $what, $settings, $directly, %option) = @_;
	my $said = '';

	$written++;

	psql("SET client_min_messages = error; SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text = '${name}_live'; $create{$name}
		SELECT rollup_alter('${name}_live', mode => 'off'); CALL rollup_run('${name}_live');" . ($option{also} // ''));
	for my $seed (1 .. 4)
	{
		# rows of known keys and new ones, later and earlier, redelivered, corrected
		my (undef, $err) = psql("SET client_min_messages = debug1; $settings; SELECT setseed(0.$seed);
			INSERT INTO $name SELECT CASE WHEN i % 3 = 0 THEN 'new $seed ' || i % 40 ELSE 'key ' || (random() * 300)::int END, i % 3,
				'2026-01-05 00:00+00'::timestamptz + $written * interval '1 day' + $seed * interval '1 hour' + (i - 100 * (i % 7)) * interval '1 min',
				i, i, i / 7.0, repeat('x', i % 50), i % 2 = 0, i + 10000000 * $seed FROM generate_series(1, 400) i;
			INSERT INTO $name SELECT k, part, ts, v + 1, large, price, label, good, id - 5 FROM $name TABLESAMPLE SYSTEM (5) REPEATABLE ($seed) WHERE k IS NOT NULL;");
		$said .= $err;
	}
	is((psql("SELECT count(*) FROM rollup_verify('${name}_live')"))[0], 0, "$name written, $what: exact");
	my @merged = $said =~ /keys locked without a statement, ([1-9]\d*) rows merged/g;
	is(@merged > 0 ? 1 : 0, $directly, "$name written, $what: " . ($directly ? 'without a statement' : 'by statements'));
	return;
}

make('twice', 400, 4000, "SELECT $measures", dedup => 'k,ts');
make('single', 400, 4000, "SELECT $measures");
make('picked', 400, 4000, "SELECT $measures", where => 'WHERE v % 4 > 0');
make('pair', 400, 4000, 'SELECT k, part, count(*) AS n, max(ts) AS seen, latest(v, ts) AS v', by => 'k, part', dedup => 'k,part,ts');
$create{$_} =~ s/,\s+coalesce\(latest.*? AS bad,/,/s for qw(twice single picked);
for my $name (qw(twice single picked pair))
{
	written($name, 'auto', '', 1);
	written($name, 'statement', 'SET dailyrollup.fold_method = statement', 0);
	written($name, 'with a trigger', '', 0, also => "CREATE TRIGGER t AFTER UPDATE ON ${name}_live FOR EACH ROW EXECUTE FUNCTION seen();");
	written($name, 'with a CHECK', '', 0, also => "ALTER TABLE ${name}_live ADD CHECK (n > 0);");
	written($name, 'full pages', '', 1, also => "ALTER TABLE ${name}_live SET (fillfactor = 100); VACUUM FULL ${name}_live;");
	written($name, 'little memory', "SET work_mem = '64kB'; SET hash_mem_multiplier = 1", 1);
}
written('pair', 'columns of its own', '', 1, also => 'ALTER TABLE pair_live ADD COLUMN own text;');
written('pair', 'columns in another order', '', 1, also => q{DO $$ BEGIN EXECUTE (SELECT format('ALTER TABLE pair_live DROP CONSTRAINT %I', conname) FROM pg_constraint WHERE conrelid = 'pair_live'::regclass AND contype = 'u');
	CREATE UNIQUE INDEX ON pair_live (part, k) NULLS NOT DISTINCT; END $$;});

# who writes the same keys, old ones and new ones, at the same time
for my $name (qw(pair single))
{
	psql("SET client_min_messages = error; SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text = '${name}_live'; $create{$name}
		SELECT rollup_alter('${name}_live', mode => 'off'); CALL rollup_run('${name}_live');");
	$node->pgbench('-n -c 4 -j 2 -t 60', 0, [qr{actually processed: 240/240}], [qr{^$}], "$name: writers at the same time",
		{ "085_$name" => "\\set n random(1, 60)\nINSERT INTO $name SELECT 'hot ' || (i * 7 + :n) % 60, i % 3, timestamptz '2026-01-05' + (:n * 20 + i) * interval '1 min', i, i, i, 'x', true, i FROM generate_series(1, 20) i;" });
	is((psql("SELECT count(*) FROM rollup_verify('${name}_live')"))[0], 0, "$name: exact after them");
}

# values that are stored out of line: what is read of them goes with its row
# (not fewer and wider ones: a hash join of the server's stops splitting once a split
# has moved none of the few rows that it holds, or all)
SKIP:
{
	skip 'no /proc', 7 unless -r '/proc/self/status';
	$node->append_conf('postgresql.conf', 'shared_buffers = 8MB');
	$node->restart;
	psql("SET client_min_messages = warning; CREATE FUNCTION peak() RETURNS int LANGUAGE sql AS \$\$ SELECT substring(pg_read_file('/proc/' || pg_backend_pid() || '/status') from 'VmHWM:\\s*([0-9]+) kB')::int / 1024 \$\$;
		CREATE TABLE wide (k text NOT NULL, ts timestamptz NOT NULL, label text, id int);
		CREATE INDEX ON wide (k, ts);
		ALTER TABLE wide ALTER label SET STORAGE EXTERNAL;
		INSERT INTO wide SELECT 'k' || i % 3, '2026-01-01'::timestamptz + i / 2 * 3 * interval '1 s', repeat(chr(97 + i % 26), 100000), 0 FROM generate_series(1, 1600) i;
		CREATE TABLE many (LIKE wide INCLUDING ALL);
		INSERT INTO many SELECT 'k' || i, ts, label, id FROM (SELECT row_number() OVER () AS i, w.* FROM wide w) w;");
	my $sql = sub {
		my ($source, $mode) = @_;
		"SET client_min_messages = error; SELECT rollup_create('${source}_$mode', 'SELECT k, count(*) AS n, max(ts) AS ts, latest(label, ts) AS l, max(label) AS m FROM $source GROUP BY k',
			time_column => 'ts', dedup_by => '{k,ts}', dedup_order => '{id}', mode => '$mode');";
	};
	my $peak = sub {
		my ($what, $do) = @_;
		my ($out) = psql("SET client_min_messages = error; SELECT 'peak', peak(); $do; SELECT 'peak', peak();");
		my ($before, $after) = $out =~ /^peak\|(\d+)$/mg;
		cmp_ok($after - $before, '<', 90, "wide values, $what: memory");
	};

	$peak->('few keys', $sql->('wide', 'on') . "SELECT rollup_refresh('wide_on', '2026-01-02')");
	$peak->('many keys', $sql->('many', 'on') . "SELECT rollup_refresh('many_on', '2026-01-02')");
	psql($sql->('many', 'shadow') . "CALL rollup_run('many_shadow')");
	$peak->('a promote', "SELECT rollup_promote('many_shadow')");
	is((psql("SELECT differs('wide_on') + differs('many_on') + differs('many_shadow')"))[0], 0, 'wide values: exact');
	psql("SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text IN ('wide_on', 'many_on', 'many_shadow')");
	psql($sql->('wide', 'off') . $sql->('many', 'off') . "CALL rollup_run('wide_off'); CALL rollup_run('many_off');");
	$peak->('a fold of them', "INSERT INTO wide SELECT k, ts + interval '1 day', label, 0 FROM wide");
	$peak->('a fold into them', "INSERT INTO many SELECT k, ts + interval '1 day', 'x', 0 FROM many");
	is((psql("SELECT (SELECT count(*) FROM rollup_verify('wide_off')) + (SELECT count(*) FROM rollup_verify('many_off'))"))[0], 0, 'wide values: exact');
}

$node->stop;
done_testing();
