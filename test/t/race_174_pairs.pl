# Two maintenance commands at once, on one rollup, or on two over one source.
#
# An operation on one of the rollups stops at a waitpoint, there another session's
# command comes; or the command is open, in a transaction, before the operation
# begins, and commits or rolls back while that waits.  None of them deadlocks, or
# fails for another reason than its state or a refresh under way; in the end both
# rollups are exact, by the next pass at the latest, and never anything else on
# the way there.
#
#	DR_RACES=all      every command at every waitpoint; else they take turns
#	DR_RACE=name      commands with such a name alone, likewise all
#	DR_RACE_AT=name   operations with such a name alone
#
# Fails when a promote does not take the refresh lock (promote.c), and when the
# rollup's row is not read again after the wait (finish_refresh in refresh.c).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrModes;
use DrRaces;
use DrSession;

my $node = PostgreSQL::Test::Cluster->new('pairs');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
autovacuum = off
dailyrollup.late_interval = 0
CONF
$node->start;

my $stage = DrRaces->new($node, 2);
my $look = $stage->{look};
my ($operator, $other) = @{ $stage->{actors} };
$look->safe("CREATE EXTENSION dailyrollup;\n$DrModes::COMPARE$DrRaces::CLOCK");

# --- the commands ---------------------------------------------------------------

# name, command, "alone": not in a transaction, "wrong": what it asks for may leave
# live without its rows for a while, by the user's own word
my @commands = (
	(map { my $rollup = $_; map { [ "$_->[0] $rollup", sprintf($_->[1], $rollup), $_->[2] ] }
		[ 'refresh', q{SELECT rollup_refresh('%s', at(0))} ],
		[ 'refresh of late keys', q{SELECT rollup_refresh('%s', rollup_watermark('%1$s'))} ],
		[ 'promote', q{SELECT rollup_promote('%s')} ],
		[ 'mode off', q{SELECT rollup_alter('%s', mode => 'off')} ],
		[ 'mode shadow', q{SELECT rollup_alter('%s', mode => 'shadow')} ],
		[ 'mode on', q{SELECT rollup_alter('%s', mode => 'on')} ],
		[ 'to off', q{SELECT rollup_alter('%s', mode => 'off'); CALL rollup_run('%1$s')}, 'alone' ],
		[ 'to on', q{SELECT rollup_alter('%s', mode => 'on'); CALL rollup_run('%1$s')}, 'alone' ],
		[ 'zone', q{SELECT rollup_alter('%s', time_zone => 'Asia/Tokyo')} ],
		[ 'delay', q{SELECT rollup_alter('%s', delay => '1 h')} ],
		[ 'no fold', q{SELECT rollup_alter('%s', fold => false)}, 'wrong' ],
		[ 'fold', q{SELECT rollup_alter('%s', fold => true)} ],
		[ 'reseed', q{SELECT rollup_reseed('%s')} ],
		[ 'recompute', q{SELECT rollup_recompute('%s')} ],
		[ 'mark', q{SELECT rollup_mark('%s', '-infinity', 'infinity')} ],
		[ 'flush', q{SELECT rollup_flush('%s')} ],
		[ 'drop', q{SELECT rollup_drop('%s')} ],
		[ 'drop all of', q{SELECT rollup_drop('%s', true)} ],
		[ 'run', q{CALL rollup_run('%s')}, 'alone' ],
		[ 'look at', q{SELECT * FROM rollup_status, rollup_plan(); SELECT * FROM rollup_late; SELECT * FROM rollup_check('%s'); SELECT * FROM rollup_verify('%1$s'); SELECT * FROM rollup_diff('%1$s')}, 'alone' ] } qw(live live_2)),
	[ 'refresh all', 'SELECT rollup_refresh(NULL, at(0))' ],
	[ 'promote all', 'SELECT rollup_promote()' ],
	[ 'run all', 'CALL rollup_run()', 'alone' ],
	[ 'flush and mark both', q{SELECT rollup_mark(rollup, '-infinity', 'infinity') FROM rollup_status ORDER BY rollup DESC} ],
	[ 'drop both', q{SELECT rollup_drop('live_2'), rollup_drop('live')} ],
	[ 'create', q{SELECT rollup_create('live_3', 'SELECT subject, count(*) FROM src GROUP BY subject', 'ts', mode => 'on')} ],
	[ 'truncate', 'TRUNCATE src' ],
	[ 'write', q{INSERT INTO src (subject, name, ts, v, id) SELECT 'a', 'x1', at(n), 1, 99 FROM generate_series(-6, 1) n} ]);

# --- one race -------------------------------------------------------------------

sub set_up
{
	my ($source, $mode_2, $before) = @_;
	my $columns = 'subject text NOT NULL, name text, ts timestamptz NOT NULL, v int, id int';

	$look->safe(($source eq 'plain' ? "CREATE TABLE src ($columns);"
			: "CREATE TABLE src ($columns) PARTITION BY LIST (subject); CREATE TABLE src_0 PARTITION OF src FOR VALUES IN ('a', 'b'); CREATE TABLE src_1 PARTITION OF src DEFAULT;")
		. "CREATE INDEX ON src (subject, name, ts);
		INSERT INTO src SELECT chr(97 + i % 4), nullif('x' || i % 2, 'x0'), at(-5 + i % 7) + i * interval '1 min', i, i FROM generate_series(1, 40) i;
		SELECT rollup_create('live', 'SELECT subject, name, count(*) AS count, sum(v) AS total, max(ts) AS ts, latest(v, ts) AS v FROM src GROUP BY subject, name', 'ts', delay => '3 days', dedup_by => '{subject,name,ts}', dedup_order => '{id}');
		SELECT rollup_create('live_2', 'SELECT subject, name, count(*) AS count, min(v) AS least FROM src GROUP BY subject, name', 'ts', delay => '3 days', mode => '$mode_2'); CALL rollup_run('live_2');
		SET dailyrollup.backfill = on; INSERT INTO src VALUES ('a', 'x1', at(-5), 1, -1); RESET dailyrollup.backfill;");
	$look->safe($before);
	return;
}

sub exact
{
	my ($what) = @_;
	my $heard = $look->run("SELECT format('%s: %s', live, w) FROM dailyrollup.rollups, wrong(live) w WHERE live::text <> 'live_3' AND live_wrong + shadow_wrong + current_wrong > 0;");

	return is($heard, '', $what);
}

sub race
{
	my ($number, $name, $waitpoint, $command, $how) = @_;
	my ($before, $operation) = @{ $DrRaces::OPERATIONS{$name} };
	my ($title, $sql, $needs) = @$command;
	my $source = $number % 2 ? 'plain' : 'parted';
	my $mode_2 = (qw(off shadow on))[ $number % 3 ];
	my $what = "$title, $how, $name at $waitpoint, $source, the other one $mode_2";

	set_up($source, $mode_2, $before);
	$stage->stop_at($operation, $waitpoint) if $how eq 'at it';
	my ($operated, $commanded) = $stage->meet($operation, $waitpoint, $how, $sql);
	for my $said ([ 'operation', $operated ], [ 'command', $commanded ])
	{
		my @bad = DrRaces::unclear($said->[1]);
		ok(!@bad, "$what: the $said->[0]: clear") || diag($said->[1]);
	}
	exact("$what: exact") if ($needs // '') ne 'wrong';
	my $heard = $look->run("SELECT rollup_alter(live, fold => false), rollup_recompute(live), rollup_alter(live, fold => true) FROM dailyrollup.rollups WHERE NOT fold AND state IN ('off', 'shadow');
		INSERT INTO src (subject, name, ts, id) SELECT 'd', 'x1', at(-4), 77; CALL rollup_run();");
	is(join(' ', DrSession::errors($heard)), '', "$what: the next pass") or diag($heard);
	exact("$what: exact after it");
	is($look->run("SELECT rollup, v FROM rollup_status, rollup_verify(rollup) v WHERE state <> 'new';"), '', "$what: rollup_verify agrees");
	is($look->run("SELECT string_agg(c.oid::regclass::text, ' ') FROM pg_class c WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_[0-9]+\$'
			AND NOT EXISTS (SELECT FROM dailyrollup.rollups r WHERE c.relname ~ ('_' || r.id || '\$'));"), "\n", "$what: nothing is left over");
	$look->run('SELECT rollup_drop(live, true) FROM dailyrollup.rollups; DROP TABLE src; DROP TABLE IF EXISTS live, live_2;');
	return;
}

my $all = ($ENV{DR_RACES} // '') eq 'all' || defined $ENV{DR_RACE} || defined $ENV{DR_RACE_AT};
my $number = 0;
for my $command (@commands)
{
	my $turn = 0;
	$number += 5;
	next if defined $ENV{DR_RACE} && $command->[0] !~ /$ENV{DR_RACE}/;
	for my $place (DrRaces::places())
	{
		next if defined $ENV{DR_RACE_AT} && "@$place" !~ /$ENV{DR_RACE_AT}/;
		my $first = $place->[1] eq $DrRaces::OPERATIONS{ $place->[0] }[2];
		for my $how ('at it', ($command->[2] // '') ne 'alone' && $first ? ('COMMIT', 'ROLLBACK') : ())
		{
			$turn++;
			race($number + $turn, @$place, $command, $how) if $all || $turn % 31 == $number % 31;
		}
	}
}

$stage->quit;
$node->stop;
done_testing();
