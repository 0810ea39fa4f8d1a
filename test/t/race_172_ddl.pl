# DDL of every kind, on everything that a rollup is made of, against everything
# that the library does to it.
#
# An operation stops at a waitpoint, there another session's command comes; or the
# command is open, in a transaction, before the operation begins, and commits or
# rolls back while that waits.  Whichever waits for the other, or fails, says so in
# a message for users: no internal error, no bare OID, no "tuple concurrently
# updated".  Afterwards, once the command is undone where it has to be, the next
# pass succeeds and all is exact; a rollup that is gone has left nothing.
#
#	DR_RACES=all      every command at every waitpoint; else they take turns
#	DR_RACE=name      commands with such a name alone, likewise all
#	DR_RACE_AT=name   operations with such a name alone
#
# Fails when nobody looks for a circle between two tries (check_circle in stop.c), and
# when a seed queues for live (seed in refresh.c); and when a shadow that REASSIGN OWNED
# has missed keeps its owner (dr_shadow_follow_owner in shadow.c).
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

my $node = PostgreSQL::Test::Cluster->new('ddl');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
autovacuum = off
allow_in_place_tablespaces = on
dailyrollup.late_interval = 0
CONF
$node->start;

my $stage = DrRaces->new($node, 2);
my $look = $stage->{look};
my ($operator, $other) = @{ $stage->{actors} };
my $extension = 'CREATE EXTENSION dailyrollup SCHEMA public;';

$look->safe("$extension\n$DrModes::COMPARE" . $DrRaces::CLOCK . <<'SQL');
CREATE ROLE keeper;
CREATE TABLESPACE elsewhere LOCATION '';
SQL

# --- the commands --------------------------------------------------------------

# name, command, what undoes it, what it needs: "parted" or "plain", "alone" (not
# in a transaction).  {daily}, {marks}, {events}, {definition}, {key}: the rollup's.
my @commands = (
	[ 'source add column', 'ALTER TABLE src ADD extra int', 'ALTER TABLE src DROP extra' ],
	[ 'source drop unused column', 'ALTER TABLE src DROP unused', 'ALTER TABLE src ADD unused int' ],
	[ 'source rename column', 'ALTER TABLE src RENAME v TO vv', 'ALTER TABLE src RENAME vv TO v' ],
	[ 'source rename', 'ALTER TABLE src RENAME TO src_r', 'ALTER TABLE src_r RENAME TO src' ],
	[ 'source set schema', 'ALTER TABLE src SET SCHEMA y', 'ALTER TABLE y.src SET SCHEMA z' ],
	[ 'source column type', 'ALTER TABLE src ALTER v TYPE bigint', undef ],
	[ 'source drop column', 'ALTER TABLE src DROP v', undef ],
	[ 'source drop column cascade', 'ALTER TABLE src DROP v CASCADE', undef ],
	[ 'source drop', 'DROP TABLE src', undef ],
	[ 'source drop cascade', 'DROP TABLE src CASCADE', undef ],
	[ 'source owner', 'ALTER TABLE src OWNER TO keeper', undef ],
	[ 'source truncate', 'TRUNCATE src', undef ],
	[ 'source disable trigger', 'ALTER TABLE src DISABLE TRIGGER ALL', 'DO $d$ BEGIN EXECUTE (SELECT string_agg(format(\'ALTER TABLE %s ENABLE ALWAYS TRIGGER %I\', tgrelid::regclass, tgname), \'; \') FROM pg_trigger WHERE tgrelid = \'src\'::regclass); END $d$', 'plain' ],
	[ 'source vacuum full', 'VACUUM FULL src', undef, 'alone' ],
	[ 'source vacuum', 'VACUUM (FREEZE, ANALYZE) src', undef, 'alone' ],
	[ 'source cluster', 'CLUSTER src USING src_subject_name_ts_idx', undef, 'plain' ],
	[ 'source reindex', 'REINDEX TABLE src', undef, 'alone' ],
	[ 'source reindex concurrently', 'REINDEX TABLE CONCURRENTLY src', undef, 'alone' ],
	[ 'source drop index', 'DROP INDEX src_subject_name_ts_idx', 'CREATE INDEX ON src (subject, name, ts)' ],
	[ 'source create index concurrently', 'CREATE INDEX CONCURRENTLY extra_idx ON src (v)', 'DROP INDEX extra_idx', 'alone plain' ],
	[ 'source tablespace', 'ALTER TABLE src SET TABLESPACE elsewhere', 'ALTER TABLE src SET TABLESPACE pg_default' ],
	[ 'source set unlogged', 'ALTER TABLE src SET UNLOGGED', undef, 'plain' ],
	[ 'source statistics', 'CREATE STATISTICS src_stats ON subject, name FROM src; ANALYZE src', 'DROP STATISTICS src_stats' ],
	[ 'source check', 'ALTER TABLE src ADD CONSTRAINT c CHECK (v > -1000)', 'ALTER TABLE src DROP CONSTRAINT c' ],
	[ 'source rename trigger', 'ALTER TRIGGER {trigger} ON src RENAME TO mine', 'ALTER TRIGGER mine ON src RENAME TO {trigger}' ],
	[ 'source drop trigger', 'DROP TRIGGER {trigger} ON src', undef ],
	[ 'source force row security', 'ALTER TABLE src ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', undef ],
	[ 'source replica identity', 'ALTER TABLE src REPLICA IDENTITY FULL', undef ],
	[ 'leaf detach', 'ALTER TABLE src DETACH PARTITION src_0', 'reseed', 'parted' ],
	[ 'leaf detach concurrently', 'ALTER TABLE src DETACH PARTITION src_0 CONCURRENTLY', 'reseed', 'parted alone' ],
	[ 'leaf drop', 'DROP TABLE src_0', 'reseed', 'parted' ],
	[ 'leaf truncate', 'TRUNCATE src_0', undef, 'parted' ],
	[ 'leaf attach', 'ALTER TABLE src ATTACH PARTITION more FOR VALUES IN (\'more\')', undef, 'parted' ],
	[ 'leaf create', 'CREATE TABLE fresh PARTITION OF src FOR VALUES IN (\'fresh\')', undef, 'parted' ],
	[ 'leaf vacuum full', 'VACUUM FULL src_0', undef, 'parted alone' ],
	[ 'leaf rename', 'ALTER TABLE src_0 RENAME TO src_zero', undef, 'parted' ],
	[ 'live add column', 'ALTER TABLE live ADD own text DEFAULT \'mine\'', 'ALTER TABLE live DROP own' ],
	[ 'live rename column', 'ALTER TABLE live RENAME total TO all_in_all', undef ],
	[ 'live rename key', 'ALTER TABLE live RENAME name TO label', 'ALTER TABLE live RENAME label TO name' ],
	[ 'live rename', 'ALTER TABLE live RENAME TO live_r', 'ALTER TABLE live_r RENAME TO live' ],
	[ 'live set schema', 'ALTER TABLE live SET SCHEMA y', 'ALTER TABLE y.live SET SCHEMA z' ],
	[ 'live drop column', 'ALTER TABLE live DROP total', undef ],
	[ 'live drop column cascade', 'ALTER TABLE live DROP total CASCADE', undef ],
	[ 'live column type', 'ALTER TABLE live ALTER total TYPE numeric', undef ],
	[ 'live not null', 'ALTER TABLE live ALTER total SET NOT NULL', 'ALTER TABLE live ALTER total DROP NOT NULL' ],
	[ 'live drop', 'DROP TABLE live', undef ],
	[ 'live drop cascade', 'DROP TABLE live CASCADE', undef ],
	[ 'live owner', 'ALTER TABLE live OWNER TO keeper', undef ],
	[ 'live truncate', 'TRUNCATE live', undef ],
	[ 'live vacuum full', 'VACUUM FULL live', undef, 'alone' ],
	[ 'live vacuum', 'VACUUM (FREEZE, ANALYZE) live', undef, 'alone' ],
	[ 'live cluster', 'CLUSTER live USING {unique}', undef ],
	[ 'live reindex', 'REINDEX TABLE live', undef, 'alone' ],
	[ 'live reindex concurrently', 'REINDEX TABLE CONCURRENTLY live', undef, 'alone' ],
	[ 'live drop unique', 'ALTER TABLE live DROP CONSTRAINT {unique}', 'ALTER TABLE live ADD CONSTRAINT {unique} UNIQUE NULLS NOT DISTINCT (subject, name)' ],
	[ 'live create index concurrently', 'CREATE INDEX CONCURRENTLY extra_live ON live (total)', 'DROP INDEX extra_live', 'alone' ],
	[ 'live tablespace', 'ALTER TABLE live SET TABLESPACE elsewhere', 'ALTER TABLE live SET TABLESPACE pg_default' ],
	[ 'live set unlogged', 'ALTER TABLE live SET UNLOGGED', 'ALTER TABLE live SET LOGGED' ],
	[ 'live statistics', 'CREATE STATISTICS live_stats ON subject, name FROM live; ANALYZE live', 'DROP STATISTICS live_stats' ],
	[ 'live check', 'ALTER TABLE live ADD CONSTRAINT c CHECK (count > 0)', 'ALTER TABLE live DROP CONSTRAINT c' ],
	[ 'live trigger', 'CREATE TRIGGER own BEFORE INSERT OR UPDATE ON live FOR EACH ROW EXECUTE FUNCTION pass_on()', 'DROP TRIGGER own ON live' ],
	[ 'live rule', 'CREATE RULE own AS ON INSERT TO live DO INSTEAD NOTHING', undef ],
	[ 'live fillfactor', 'ALTER TABLE live SET (fillfactor = 50)', undef ],
	[ 'live inherit', 'CREATE TABLE child () INHERITS (live)', undef ],
	[ 'live referenced', 'CREATE TABLE refers (subject text, name text, FOREIGN KEY (subject, name) REFERENCES live (subject, name))', 'DROP TABLE refers' ],
	[ 'view rename', 'ALTER VIEW live_current RENAME TO live_now', 'ALTER VIEW live_now RENAME TO live_current' ],
	[ 'view drop', 'DROP VIEW live_current', undef ],
	[ 'view drop cascade', 'DROP VIEW live_current CASCADE', undef ],
	[ 'view on top', 'CREATE VIEW top AS SELECT * FROM live_current', 'DROP VIEW top' ],
	[ 'shadow rename', 'ALTER TABLE {daily} RENAME TO shady', 'ALTER TABLE IF EXISTS shady RENAME TO live_daily' ],
	[ 'shadow drop', 'DROP TABLE {daily}', undef ],
	[ 'shadow drop cascade', 'DROP TABLE {daily} CASCADE', undef ],
	[ 'shadow vacuum full', 'VACUUM FULL {daily}', undef, 'alone' ],
	[ 'shadow reindex', 'REINDEX TABLE {daily}', undef, 'alone' ],
	[ 'shadow name taken', 'CREATE TABLE live_daily (x int)', 'DROP TABLE live_daily' ],
	[ 'marks vacuum full', 'VACUUM FULL {marks}', undef, 'alone' ],
	[ 'marks reindex concurrently', 'REINDEX TABLE CONCURRENTLY {marks}', undef, 'alone' ],
	[ 'marks drop', 'DROP TABLE {marks}', undef ],
	[ 'marks drop cascade', 'DROP TABLE {marks} CASCADE', undef ],
	[ 'marks rename', 'ALTER TABLE {marks} RENAME TO my_marks', undef ],
	[ 'definition drop cascade', 'DROP VIEW {definition} CASCADE', undef ],
	[ 'definition rename', 'ALTER VIEW {definition} RENAME TO my_definition', undef ],
	[ 'events drop cascade', 'DROP VIEW {events} CASCADE', undef ],
	[ 'function replace', 'CREATE OR REPLACE FUNCTION twice(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \'BEGIN RETURN v + v; END\'', undef ],
	[ 'function rename', 'ALTER FUNCTION twice(int) RENAME TO double', undef ],
	[ 'function drop', 'DROP FUNCTION twice(int)', undef ],
	[ 'function drop cascade', 'DROP FUNCTION twice(int) CASCADE', undef ],
	[ 'type add value', 'ALTER TYPE mood ADD VALUE \'worse\'', undef ],
	[ 'type rename', 'ALTER TYPE mood RENAME TO temper', undef ],
	[ 'domain constraint', 'ALTER DOMAIN amount ADD CONSTRAINT c CHECK (VALUE < 100000)', undef ],
	[ 'domain drop cascade', 'DROP DOMAIN amount CASCADE', undef ],
	[ 'schema rename', 'ALTER SCHEMA z RENAME TO zz', 'ALTER SCHEMA zz RENAME TO z' ],
	[ 'schema drop cascade', 'DROP SCHEMA z CASCADE', undef ],
	[ 'reassign', 'REASSIGN OWNED BY starter TO keeper', undef ],
	[ 'drop owned', 'DROP OWNED BY starter CASCADE', undef ],
	[ 'rollups vacuum full', 'VACUUM FULL dailyrollup.rollups', undef, 'alone' ],
	[ 'rollups reindex', 'REINDEX TABLE dailyrollup.rollups', undef, 'alone' ],
	[ 'runs vacuum full', 'VACUUM FULL dailyrollup.runs', undef, 'alone' ],
	[ 'extension update', 'ALTER EXTENSION dailyrollup UPDATE', undef ],
	[ 'extension set schema', 'ALTER EXTENSION dailyrollup SET SCHEMA y', undef ],
	[ 'extension drop', 'DROP EXTENSION dailyrollup', undef ],
	[ 'extension drop cascade', 'DROP EXTENSION dailyrollup CASCADE', undef ]);

# --- one race ------------------------------------------------------------------

sub set_up
{
	my ($source, $before) = @_;
	my $columns = 'subject text NOT NULL, name text, ts timestamptz NOT NULL, v int, m mood, a amount, unused int, id int';

	$look->safe("RESET ROLE; CREATE ROLE starter; CREATE SCHEMA y; CREATE SCHEMA z; GRANT ALL ON SCHEMA y, z TO keeper, starter; SET search_path = z, public;
		GRANT CREATE ON TABLESPACE elsewhere TO starter, keeper; SET ROLE starter;
		CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN amount AS int CHECK (VALUE > -100);
		CREATE FUNCTION twice(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 2 * v; END';
		CREATE FUNCTION pass_on() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
		. ($source eq 'plain' ? "CREATE TABLE src ($columns);"
			: "CREATE TABLE src ($columns) PARTITION BY LIST (subject); CREATE TABLE src_0 PARTITION OF src FOR VALUES IN ('a', 'b'); CREATE TABLE src_1 PARTITION OF src DEFAULT;
				CREATE TABLE more ($columns); INSERT INTO more VALUES ('more', 'x', at(-5), 1, 'bad', 1, 1, -1);")
		. "CREATE INDEX ON src (subject, name, ts);
		INSERT INTO src SELECT chr(97 + i % 4), nullif('x' || i % 2, 'x0'), at(-5 + i % 7) + i * interval '1 min', i, 'good', i, i, i FROM generate_series(1, 40) i;
		SELECT rollup_create('live', 'SELECT subject, name, count(*) AS count, sum(twice(v)) AS total, max(ts) AS ts, latest(v, ts) AS v, max(m) AS m, max(a) AS a FROM src GROUP BY subject, name', 'ts', delay => '3 days');");
	$look->safe($before . ' RESET ROLE;');
	for my $actor ($operator, $other)
	{
		$actor->tell('RESET ROLE; SET search_path = z, public;');
		$stage->finish($actor);
		$actor->heard;
	}
	return;
}

# The command for this rollup; undef where it has no such part.
sub for_this_one
{
	my ($command) = @_;
	my ($daily, $marks, $events, $definition, $unique, $trigger) = split /\|/, $look->safe(
		"SELECT shadow, marks, events, definition, (SELECT quote_ident(conname) FROM pg_constraint WHERE conrelid = live AND contype = 'u'),
			(SELECT min(quote_ident(tgname)) FROM pg_trigger WHERE tgrelid = source AND tgname ~ '^dailyrollup') FROM dailyrollup.rollups;"), -1;
	my %part = (daily => $daily, marks => $marks, events => $events, definition => $definition, unique => $unique, trigger => $trigger);

	$command =~ s/\{(\w+)\}/$part{$1}/ge;
	return $command =~ /(?:TABLE|FULL|USING|CONSTRAINT|TRIGGER)\s*(?:$|TO\b|CASCADE)/ ? undef : $command;
}

# What nobody may be told.  A DROP, or REASSIGN OWNED, locks a table first and then
# what depends on it, we the other way round: the server tells one of the two that this is a deadlock.
# A circle that it cannot know of, we tell ourselves.  REASSIGN OWNED lists all before
# it locks any: of a shadow that went meanwhile the server tells the OID.
sub clear
{
	my ($what, $heard) = @_;
	$heard =~ s/.*(?:40P01|deadlock detected).*\n//g if $what =~ /drop|reassign/ || $heard =~ /who uses it waits for this transaction/;
	$heard =~ s/^ERROR:  XX000: could not open relation with OID \d+\n//gm if $what =~ /^reassign .*: the command$/;
	my @bad = DrRaces::unclear($heard);

	return ok(!@bad, "$what: clear") || diag($heard);
}

my %outcome;
my $debris = "SELECT string_agg(c.oid::regclass::text, ' ') FROM pg_class c WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_[0-9]+\$';";

# Once both have ended: a pass, and all is exact; or nothing is left.
sub settle
{
	my ($what, $undo, $done) = @_;

	if ($look->safe("SELECT count(*) FROM pg_extension WHERE extname = 'dailyrollup';") eq '0')
	{
		is($look->safe("SELECT count(*) FROM pg_namespace WHERE nspname = 'dailyrollup';"), 0, "$what: nothing is left");
		return $look->safe('SET search_path = public; ' . $extension . ' SET search_path = z, public;');
	}
	if ($look->safe("SELECT extnamespace = 'public'::regnamespace FROM pg_extension WHERE extname = 'dailyrollup';") eq 'f')
	{
		$look->safe('ALTER EXTENSION dailyrollup SET SCHEMA public;');
	}
	my $rollups = $look->safe('SELECT count(*) FROM dailyrollup.rollups;');
	if ($rollups eq '0')
	{
		is($look->safe($debris), '', "$what: it is gone, and nothing is left");
		return;
	}
	my $heard = '';
	$heard .= $look->run("$undo;") if $done && defined $undo && $undo ne 'reseed';
	my $live = $look->safe("SELECT live FROM dailyrollup.rollups;");
	$heard .= $look->run("SELECT rollup_reseed('$live') WHERE EXISTS (SELECT FROM dailyrollup.rollups WHERE state NOT IN ('off', 'new')); SELECT rollup_recompute('$live') WHERE EXISTS (SELECT FROM dailyrollup.rollups WHERE state IN ('off', 'shadow'));") if $done && ($undo // '') eq 'reseed';
	my $source = $look->safe("SELECT source FROM dailyrollup.rollups;");
	$heard .= $look->run("INSERT INTO $source (subject, name, ts, id) SELECT 'd', 'x1', at(-4), 77;");
	$heard .= $look->run("CALL rollup_run('$live');");
	is(join(' ', DrSession::errors($heard)), '', "$what: the next pass") or diag($heard);
	is($look->run("SELECT w FROM wrong('$live') w WHERE live_wrong + shadow_wrong + current_wrong > 0;"), '', "$what: exact");
	is($look->run("SELECT count(*) FROM rollup_verify('$live');"), "0\n", "$what: rollup_verify agrees") if $look->safe("SELECT state <> 'new' FROM dailyrollup.rollups;") eq 't';
	is($look->run("SELECT count(*) FROM pg_index WHERE NOT indisvalid;"), "0\n", "$what: every index is valid");
	return;
}

sub clean_up
{
	$look->run("SELECT rollup_drop(live, true) FROM dailyrollup.rollups;");
	$look->run('DROP SCHEMA IF EXISTS zz CASCADE; ') if $look->safe("SELECT count(*) FROM pg_namespace WHERE nspname = 'zz';") ne '0';
	$look->run('RESET ROLE; DROP SCHEMA IF EXISTS z CASCADE; DROP SCHEMA IF EXISTS y CASCADE; DROP OWNED BY starter CASCADE; DROP OWNED BY keeper CASCADE; DROP ROLE starter;');
	return;
}

sub race
{
	my ($number, $name, $waitpoint, $command, $how) = @_;
	my ($before, $operation) = @{ $DrRaces::OPERATIONS{$name} };
	my ($title, $sql, $undo, $needs) = @$command;
	my $source = ($needs // '') =~ /(plain|parted)/ ? $1 : $number % 2 ? 'plain' : 'parted';
	my $what = "$title ($source), $how, $name at $waitpoint";

	set_up($source, $before);
	$stage->stop_at($operation, $waitpoint) if $how eq 'at it';
	my $this = for_this_one($sql);
	my $this_undo = defined $undo ? for_this_one($undo) : undef;
	if (!defined $this)
	{
		$stage->let;
		$stage->finish($operator);
		return clean_up();
	}
	my ($operated, $commanded) = $stage->meet($operation, $waitpoint, $how, $this);
	clear("$what: the operation", $operated);
	clear("$what: the command", $commanded);
	my ($first) = DrSession::errors($commanded);
	$outcome{$title}{ $first // 'done' }++;
	settle($what, $this_undo, !defined $first && $how ne 'ROLLBACK');
	# as others see it who had it open before
	$_->tell("SELECT count(*) FROM live_current WHERE subject = 'a';", 'SET client_min_messages = warning;') for $operator, $other;
	$stage->finish($_) for $operator, $other;
	clear("$what: a reader", $_->heard) for $operator, $other;
	clean_up();
	return;
}

my $all = ($ENV{DR_RACES} // '') eq 'all' || defined $ENV{DR_RACE} || defined $ENV{DR_RACE_AT};
my @places = DrRaces::places();
my $number = 0;
for my $command (@commands)
{
	next if defined $ENV{DR_RACE} && $command->[0] !~ /$ENV{DR_RACE}/;
	my $turn = 0;
	for my $place (@places)
	{
		next if defined $ENV{DR_RACE_AT} && "@$place" !~ /$ENV{DR_RACE_AT}/;
		my @hows = ('at it', ($command->[3] // '') =~ /alone/ || $place->[1] ne $DrRaces::OPERATIONS{ $place->[0] }[2] ? () : ('COMMIT', 'ROLLBACK'));
		for my $how (@hows)
		{
			$turn++;
			my $always = $command->[0] eq 'reassign' && "@$place $how" eq 'on to shadow leave-on-stopped at it';
			next if !$all && !$always && $turn % 31 != $number % 31;
			race($number + $turn, @$place, $command, $how);
		}
	}
	$number += 5;
}
note("$_: " . join ', ', map { my $o = $_; $o } %{ $outcome{$_} }) for sort keys %outcome;

$stage->quit;
$node->stop;
done_testing();
