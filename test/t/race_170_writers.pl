# Writers of every kind against everything that the library does to a rollup.
#
# Each race stops one operation (a refresh, a seed, a promote, a change of
# state, a recompute, a flush) at one waitpoint.  Every kind of write (@kinds) in
# each isolation level has a session of its own, and its moment (@moments): before,
# at, or after the waitpoint, with a snapshot from before, with its commit there
# or in the end; into a plain source, or a partitioned one, or straight into its
# leaves.  Each writes before the watermark, between it and the boundary, after
# it and in the future, to keys that are there, to new ones, and to one that others
# write to as well.  Moments and ways are dealt out by the race's number, so that
# each kind and level meets each of them.
#
# At the waitpoint, after the operation, after the last commit and after the next
# pass live, the shadow and the view are the definition's rows; nobody fails who
# need not.
#
#	DR_RACES=all    each race over both sources, and with each fold method, not
#	                in turn
#	DR_RACE=7       that one alone
#	DR_RACE_AT=name operations and waitpoints with such a name alone, likewise all
#
# Fails when writers are not waited for, or not those of leaves (locks.c), when the
# threshold forgets that a refresh is under way (dr_locks_refresh_taken), when a
# trigger of ours does not always fire, and when writers are not stopped for a change
# from on (state.c).  (It does not find that a prepared transaction is taken for
# another one, that a fold decides before it has locked live, or that a threshold
# outlives a savepoint: writer_prepared, promote_fold and threshold_kept do.)
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

my $node = PostgreSQL::Test::Cluster->new('writers');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
autovacuum = off
max_connections = 90
max_prepared_transactions = 80
max_locks_per_transaction = 256
dailyrollup.late_interval = 0
CONF
$node->start;

# --- who writes -----------------------------------------------------------------

# A writer: number, kind, level, way (root, leaf).  The zones of its rows, in days
# from today: before the watermark, behind it, after the boundary, in the future.
my @zones = (-5, -2, 0.5, 40);
my %levels = (rc => 'READ COMMITTED', rr => 'REPEATABLE READ', ser => 'SERIALIZABLE');

sub ts { my ($writer, $zone, $minutes) = @_; return "at($zones[$zone]) + interval '" . ($minutes // 0) . " min'" }
sub table { my ($writer, $zone) = @_; return $writer->{way} eq 'leaf' ? "src_$zone" : 'src' }
sub id { my ($writer, $zone, $more) = @_; return 1000 * $writer->{number} + 100 * $zone + ($more // 0) }
sub own { my ($writer) = @_; return "'w$writer->{number}'" }
sub new_key { my ($writer) = @_; return "'n$writer->{number}'" }
sub name { my ($writer) = @_; return $writer->{source} eq 'plain' && $writer->{number} % 3 == 0 ? 'NULL::text' : "'x'" }
sub values_of { my ($writer, $zone, $subject, $more) = @_; return "$subject, " . name($writer) . ', ' . ts($writer, $zone, $more) . ", $more, " . id($writer, $zone, $more) }
my $columns = 'subject, name, ts, v, id';
sub where_base { my ($writer, $zone) = @_; return 'id = ' . id($writer, $zone) . ' AND ts = ' . ts($writer, $zone) }

sub insert
{
	my ($writer, $zone, $subject, $more) = @_;
	return "INSERT INTO " . table($writer, $zone) . " ($columns) VALUES (" . values_of($writer, $zone, $subject, $more) . ');';
}

sub rows_of_zones { my ($write) = @_; return sub { my ($writer) = @_; return map { $write->($writer, $_) } 0 .. $#zones } }

# What each kind writes: statements.
my %kinds = (
	insert => rows_of_zones(sub { my ($w, $z) = @_; return (insert($w, $z, own($w), 11), insert($w, $z, new_key($w), 12), insert($w, $z, q{'all'}, 13)) }),
	copy => sub {
		my ($w) = @_;
		my @copies;
		for my $tables ($w->{way} eq 'leaf' ? map { [$_] } 0 .. $#zones : [ 0 .. $#zones ])
		{
			my $rows = join '', map { my $z = $_; map { join("\t", "$_$w->{number}", (name($w) =~ /NULL/ ? '\N' : 'x'), $w->{day}->($zones[$z]), 11, id($w, $z, $_ eq "w" ? 11 : 12)) . "\n" } qw(w n) } @$tables;
			push @copies, 'COPY ' . table($w, $tables->[0]) . " ($columns) FROM STDIN;\n$rows\\.";
		}
		return @copies;
	},
	# redeliveries, of which the one with the least id counts
	again => rows_of_zones(sub {
			my ($w, $z) = @_;
			return map { 'INSERT INTO ' . table($w, $z) . " ($columns) VALUES (" . own($w) . ', ' . name($w) . ', ' . ts($w, $z) . ", 50, $_" . id($w, $z, 7) . ');' } '', '-';
		}),
	update => rows_of_zones(sub { my ($w, $z) = @_; return 'UPDATE ' . table($w, $z) . ' SET v = v + 20 WHERE ' . where_base($w, $z) . ';' }),
	# to another zone
	move => rows_of_zones(sub {
			my ($w, $z) = @_;
			my $to = $w->{way} eq 'leaf' ? ts($w, $z, 30) : ts($w, ($z + $w->{turn}) % @zones, 30);
			return 'UPDATE ' . table($w, $z) . " SET ts = $to WHERE " . where_base($w, $z) . ';';
		}),
	rename => rows_of_zones(sub { my ($w, $z) = @_; return 'UPDATE ' . table($w, $z) . ' SET subject = ' . new_key($w) . ' WHERE ' . where_base($w, $z) . ';' }),
	delete => rows_of_zones(sub { my ($w, $z) = @_; return 'DELETE FROM ' . table($w, $z) . ' WHERE ' . where_base($w, $z) . ';' }),
	merge => rows_of_zones(sub {
			my ($w, $z) = @_;
			return 'MERGE INTO ' . table($w, $z) . ' s USING (VALUES (' . id($w, $z) . ', ' . ts($w, $z) . '), (' . id($w, $z, 60) . ', ' . ts($w, $z, 60) . ')) x (id, ts) ON s.id = x.id AND s.ts = x.ts '
			  . 'WHEN MATCHED AND ' . ($z % 2) . ' = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v + 1 WHEN NOT MATCHED THEN INSERT '
			  . "($columns) VALUES (" . own($w) . ', ' . name($w) . ', x.ts, 60, x.id);';
		}),
	conflict => rows_of_zones(sub {
			my ($w, $z) = @_;
			my $table = table($w, $z);
			return "INSERT INTO $table AS s ($columns) VALUES (" . own($w) . ', ' . name($w) . ', ' . ts($w, $z) . ', 1, ' . id($w, $z) . '), (' . values_of($w, $z, new_key($w), 61) . ') ON CONFLICT (id, ts) DO UPDATE SET v = s.v + 30;',
			  "INSERT INTO $table ($columns) VALUES (" . own($w) . ', ' . name($w) . ', ' . ts($w, $z) . ', 1, ' . id($w, $z) . '), (' . values_of($w, $z, own($w), 62) . ') ON CONFLICT DO NOTHING;';
		}),
	# the first write of all is one that is rolled back
	savepoint => sub {
		my ($w) = @_;
		return ('SAVEPOINT a;', (map { insert($w, $_, own($w), 11) } 0 .. $#zones), 'ROLLBACK TO a;', 'SAVEPOINT b;',
			(map { insert($w, $_, own($w), 12) } 0 .. $#zones), 'DELETE FROM ' . table($w, 1) . ' WHERE ' . where_base($w, 1) . ';', 'RELEASE b;', 'SAVEPOINT c;',
			(map { 'DELETE FROM ' . table($w, $_) . ' WHERE ' . where_base($w, $_) . ';' } 0 .. $#zones), insert($w, 0, new_key($w), 13), 'ROLLBACK TO c;');
	},
	caught => sub {
		my ($w) = @_;
		my $some = join ' ', map { insert($w, $_, own($w), 11) } 0 .. $#zones;
		my $others = join ' ', map { insert($w, $_, new_key($w), 12) } 0 .. $#zones;
		return "DO \$d\$ BEGIN BEGIN $some RAISE EXCEPTION USING ERRCODE = 'DR000'; EXCEPTION WHEN SQLSTATE 'DR000' THEN $others END; BEGIN DELETE FROM " . table($w, 0) . ' WHERE ' . where_base($w, 0) . '; EXCEPTION WHEN OTHERS THEN RAISE; END; END $d$;';
	},
	prepared => sub { my ($w) = @_; return ((map { insert($w, $_, own($w), 11), insert($w, $_, new_key($w), 12) } 0 .. $#zones), 'DELETE FROM ' . table($w, 1) . ' WHERE ' . where_base($w, 1) . ';') },
	# plans that the session has made before, and kept
	cached => rows_of_zones(sub { my ($w, $z) = @_; return map { "EXECUTE $_" . ($w->{way} eq 'leaf' ? "_$z" : '') . '(' . own($w) . ', ' . name($w) . ', ' . ts($w, $z, 11) . ', ' . id($w, $z) . ', ' . ts($w, $z) . ');' } qw(c_insert c_update c_delete) }),
	replica => sub { my ($w) = @_; return ('SET LOCAL session_replication_role = replica;', (map { insert($w, $_, own($w), 11), insert($w, $_, new_key($w), 12) } 0 .. $#zones), 'DELETE FROM ' . table($w, 0) . ' WHERE ' . where_base($w, 0) . ';') },
	# one statement, which stops after its first rows
	slow => sub {
		my ($w) = @_;
		return 'INSERT INTO ' . table($w, $_[1] // 1) . " ($columns) SELECT " . own($w) . ', ' . name($w) . ', ' . ($w->{way} eq 'leaf' ? ts($w, 1, 20) : 'at(z)') . " + i * interval '1 min', i, " . id($w, 0) . " + 100 * (n - 1)::int + 20 + i FROM (SELECT i, z, n, CASE WHEN i = 2 AND n = 1 THEN pause('slow $w->{number}') END FROM generate_series(1, 3) i, unnest('{" . join(',', @zones) . "}'::float8[]) WITH ORDINALITY x (z, n) ORDER BY i, n OFFSET 0) r;";
	},
	# a row goes and comes in one statement
	cte => rows_of_zones(sub { my ($w, $z) = @_; return 'WITH gone AS (DELETE FROM ' . table($w, $z) . ' WHERE ' . where_base($w, $z) . ' RETURNING *) INSERT INTO ' . table($w, $z) . " ($columns) SELECT " . new_key($w) . ", name, ts + interval '3 min', v, id + 70 FROM gone;" }),
	fold => sub { my ($w) = @_; return ((map { insert($w, $_, own($w), 11) } 0 .. $#zones), 'SELECT rollup_fold();', (map { insert($w, $_, own($w), 12), 'UPDATE ' . table($w, $_) . ' SET v = v + 1 WHERE ' . where_base($w, $_) . ';' } 0 .. $#zones)) },
	backfill => sub { my ($w) = @_; return ('SET LOCAL dailyrollup.backfill = on;', (map { insert($w, $_, own($w), 11), insert($w, $_, new_key($w), 12) } 0 .. $#zones), 'DELETE FROM ' . table($w, 2) . ' WHERE ' . where_base($w, 2) . ';') },
);
my @kinds = sort keys %kinds;

# When: with a snapshot from before the operation?  When it writes, and commits:
# 0 before the operation, 1 at the waitpoint, 2 after the operation.
my @moments = (
	{ snapshot => 0, write => 0, commit => 1 }, { snapshot => 0, write => 0, commit => 2 },
	{ snapshot => 1, write => 1, commit => 1 }, { snapshot => 1, write => 1, commit => 2 }, { snapshot => 1, write => 2, commit => 2 },
	{ snapshot => 0, write => 1, commit => 1 }, { snapshot => 0, write => 1, commit => 2 });

# --- what they write to -----------------------------------------------------------

my %source = (
	plain => 'CREATE TABLE src (subject text NOT NULL, name text, ts timestamptz NOT NULL, v int, id int);',
	parted => 'CREATE TABLE src (subject text NOT NULL, name text, ts timestamptz NOT NULL, v int, id int) PARTITION BY RANGE (ts);
		CREATE TABLE src_0 (id int, v int, gone text, subject text NOT NULL, ts timestamptz NOT NULL, name text); ALTER TABLE src_0 DROP gone;'
	  . join '', map { my $z = $_; my $range = sprintf q(FOR VALUES FROM (%s) TO (%s)), $z ? "at($zones[$z] - 1)" : 'MINVALUE', $z < $#zones ? "at($zones[$z + 1] - 1)" : 'MAXVALUE';
		$range =~ s/at\(([-\d.]+) - 1\)/'DAY' . ($1 - 1) . 'DAY'/ge;
		$z ? "CREATE TABLE src_$z PARTITION OF src $range;" : "ALTER TABLE src ATTACH PARTITION src_0 $range;" } 0 .. $#zones);

# --- the stage -------------------------------------------------------------------

my @cast = map { my $kind = $_; map { { kind => $kind, level => $_ } } sort keys %levels } @kinds;
$cast[$_]{number} = $_ + 1 for 0 .. $#cast;
my $stage = DrRaces->new($node, @cast + 1);
my $look = $stage->{look};
my ($operator, @writers) = @{ $stage->{actors} };
$cast[$_]{actor} = $writers[$_] for 0 .. $#cast;

$look->safe("CREATE EXTENSION dailyrollup;\n$DrModes::COMPARE$DrRaces::CLOCK" . <<'SQL');
CREATE FUNCTION pause(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_lock_shared(hashtext(name));
	PERFORM pg_advisory_unlock_shared(hashtext(name));
END $$;
SQL
my %day;
my $day = sub { my ($days) = @_; return $day{$days} //= $look->safe("SELECT at($days) + interval '11 min';") };

sub set_up
{
	my ($source, $method, $before) = @_;
	my $make = $source{$source} =~ s/DAY([-\d.]+)DAY/"'" . $look->safe("SELECT at($1);") . "'"/ger;
	my $dedup = $source eq 'plain' ? ", dedup_by => '{subject,name,ts}', dedup_order => '{id}'" : '';

	$look->safe($make . "CREATE UNIQUE INDEX ON src (id, ts); CREATE INDEX ON src (subject, name, ts);\nSET dailyrollup.fold_method = $method;");
	$look->safe("INSERT INTO src ($columns) VALUES " . join ', ', map { my $w = $_; map { '(' . own($w) . ', ' . name($w) . ', ' . ts($w, $_) . ", $_, " . id($w, $_) . ')' } 0 .. $#zones } @cast);
	$look->safe(";\nINSERT INTO src ($columns) SELECT 'all', 'x', at(z), 1, -(10 * z)::int FROM unnest('{" . join(',', @zones) . "}'::float8[]) z;");
	$look->safe("SELECT rollup_create('live', 'SELECT subject, name, count(*) AS count, sum(v) AS total, min(ts) AS first_seen, max(ts) AS last_seen, latest(v, ts) AS v FROM src GROUP BY subject, name',
		time_column => 'ts', delay => '3 days'$dedup);");
	$look->safe($before);
	for my $writer (@cast)
	{
		my @commands = "SET default_transaction_isolation = '" . lc($levels{ $writer->{level} }) . "'; SET dailyrollup.fold_method = $method; SET enable_seqscan = off; SET jit = off;";
		push @commands, keep_plans($writer) if $writer->{kind} eq 'cached';
		$writer->{actor}->tell(@commands);
	}
	$operator->tell("SET dailyrollup.fold_method = $method;");
	$stage->rest;
	complain($_) for @cast;
	return;
}

# Plans for each table, used so often that they are kept.
sub keep_plans
{
	my ($writer) = @_;
	my @commands = 'DEALLOCATE ALL;';
	my $fits = 'text, text, timestamptz, int, timestamptz';

	for my $zone ($writer->{way} eq 'leaf' ? 0 .. $#zones : 0)
	{
		my $table = table($writer, $zone);
		my $suffix = $writer->{way} eq 'leaf' ? "_$zone" : '';
		push @commands, "PREPARE c_insert$suffix ($fits) AS INSERT INTO $table ($columns) VALUES (\$1, \$2, \$3, 11, \$4 + 11);",
		  "PREPARE c_update$suffix ($fits) AS UPDATE $table SET v = v + 1 WHERE id = \$4 AND ts = \$5;",
		  "PREPARE c_delete$suffix ($fits) AS DELETE FROM $table WHERE id = \$4 AND ts = \$5 AND v % 2 = 0;";
		my $ts = ts($writer, $zone, 15);
		push @commands, "EXECUTE c_insert$suffix('all', 'x', $ts, -9$writer->{number}0$zone - 1000 * $_, $ts); EXECUTE c_update$suffix('', '', $ts, 0, $ts); EXECUTE c_delete$suffix('', '', $ts, 0, $ts);" for 1 .. 6;
	}
	return @commands;
}

# --- one race ----------------------------------------------------------------------

# Takes a snapshot.  (Who reads everything at SERIALIZABLE, depends on everybody.)
# (Who has read the view is waited for where its text is replaced.)
sub look_first
{
	my ($writer, $operation) = @_;
	my $relation = $operation =~ /^fold off/ ? 'src' : 'live_current';

	return $writer->{level} eq 'ser' ? 'SELECT today FROM clock;' : "SELECT count(*) FROM $relation;";
}

sub write_all
{
	my ($writer) = @_;
	my @statements = $kinds{ $writer->{kind} }->($writer);

	push @statements, "PREPARE TRANSACTION 'p$writer->{number}';" if $writer->{kind} eq 'prepared';
	$writer->{actor}->tell(@statements);
	$writer->{written} = 1;
	return;
}

sub commit
{
	my ($writer) = @_;

	$stage->let("slow $writer->{number}") if $writer->{kind} eq 'slow';
	$writer->{actor}->tell($writer->{kind} eq 'prepared' ? "COMMIT PREPARED 'p$writer->{number}';" : 'COMMIT;');
	$writer->{committed} = 1;
	return;
}

my (%written, %failed);

# A serialization failure is what one may meet above READ COMMITTED; then nothing
# is left to commit.
sub complain
{
	my ($writer, $race) = @_;
	my $heard = $writer->{actor}->heard;
	my @errors = DrSession::errors($heard);

	$written{ $writer->{level} }++ if defined $race;
	return 1 if !@errors;
	$failed{ $writer->{level} }++;
	return 1 if $errors[0] eq '40001' && $writer->{level} ne 'rc' && !grep { !/^(?:40001|25P02|3B001|42704)$/ } @errors;
	fail(($race // 'set up') . ": $writer->{kind} $writer->{level} $writer->{way}");
	diag($heard);
	return 0;
}

sub exact
{
	my ($what, $shadow_too) = @_;
	my $wrong = $look->safe("SELECT format('live %s, shadow %s, current %s', live_wrong, shadow_wrong, current_wrong) FROM wrong('live', $shadow_too) WHERE live_wrong + shadow_wrong + current_wrong > 0;");

	return is($wrong, '', $what);
}

# Until the operator is done, or at the waitpoint; who is in its way, ends.
sub go_on
{
	my ($what, $waitpoint) = @_;
	my $until = time + $DrRaces::patience;

	while (1)
	{
		my ($at) = $stage->rest;
		return $at if $at eq 'idle' || ($waitpoint && $at eq 'gate');
		my @open = grep { $_->{written} && !$_->{committed} } @cast;
		# it may not have asked again, since the last one has ended
		next if !@open && $at eq 'trying' && time < $until;
		die "$what: the operation is $at, and nobody is in its way\n" if !@open;
		commit($_) for @open;
	}
}

sub race
{
	my ($number, $name, $waitpoint, $source, $method) = @_;
	my ($before, $operation) = @{ $DrRaces::OPERATIONS{$name} };
	my $what = "$number: $name at $waitpoint, $source, $method";

	for my $writer (@cast)
	{
		my $deal = $writer->{number} * 5 + $number;
		@$writer{qw(moment way source turn begun written committed day)} = ($moments[ ($writer->{number} + $number) % @moments ],
			$source eq 'parted' && $deal % 2 ? 'leaf' : 'root', $source, 1 + $deal % 3, 0, 0, 0, $day);
	}
	set_up($source, $method, $before);
	for my $writer (@cast)
	{
		$stage->hold("slow $writer->{number}") if $writer->{kind} eq 'slow';
		next if $writer->{moment}{write} > 0 && !$writer->{moment}{snapshot};
		$writer->{actor}->tell('BEGIN;', $writer->{moment}{snapshot} ? look_first($writer, $name) : ());
		$writer->{begun} = 1;
		write_all($writer) if $writer->{moment}{write} == 0;
	}
	$stage->rest;

	$stage->hold($waitpoint);
	$operator->tell($operation);
	my $at = go_on($what, $waitpoint);
	is($at, 'gate', "$what: stops there");
	for my $writer (grep { $_->{moment}{write} == 1 } @cast)
	{
		# alone it is a statement, and a transaction of its own
		my $alone = $writer->{moment}{commit} == 1 && !$writer->{begun} && $writer->{kind} =~ /^(?:update|delete|slow|cte|move|insert)$/ && $writer->{turn} == 1;
		$writer->{actor}->tell('BEGIN;') if !$writer->{begun} && !$alone;
		write_all($writer);
		$writer->{begun} = 1;
		if ($alone)
		{
			$stage->let("slow $writer->{number}");
			$writer->{committed} = 1;
		}
	}
	$stage->rest;
	commit($_) for grep { $_->{moment}{commit} == 1 && !$_->{committed} } @cast;
	$stage->rest;
	# (nobody reads a view whose text is being replaced)
	exact("$what: seen there", 'false') if $name !~ /^fold off/ || $waitpoint eq 'locks-tried';
	$stage->let($waitpoint);
	go_on($what);
	my $said = $operator->heard;
	is(join(' ', DrSession::errors($said)), '', "$what: done") or diag($said);

	exact("$what: after it", 'true');
	for my $writer (grep { $_->{moment}{write} == 2 } @cast)
	{
		write_all($writer);
	}
	$stage->rest;
	commit($_) for grep { !$_->{committed} } @cast;
	$stage->rest;
	complain($_, $what) for @cast;
	is($look->safe('SELECT count(*) FROM pg_prepared_xacts;'), 0, "$what: nothing is left open");
	exact("$what: after all", 'true');
	$look->safe("SELECT rollup_alter('live', delay => '0'); CALL rollup_run('live');");
	exact("$what: after the next pass", 'true');
	is($look->safe("SELECT count(*) FROM rollup_late;"), 0, "$what: no key waits");
	is($look->safe("SELECT count(*) FROM rollup_verify('live');"), 0, "$what: rollup_verify agrees");
	$look->safe("SELECT rollup_drop('live', true); DROP TABLE src;");
	return;
}

my $all = ($ENV{DR_RACES} // '') eq 'all' || defined $ENV{DR_RACE_AT};
my $number = 0;
for my $place (DrRaces::places())
{
	for my $source ('plain', 'parted')
	{
		for my $method ('auto', 'statement')
		{
			$number++;
			next if defined $ENV{DR_RACE} ? $ENV{DR_RACE} != $number : !$all && $number % 4 != int($number / 4) % 4;
			race($number, @$place, $source, $method) if !defined $ENV{DR_RACE_AT} || "@$place" =~ /$ENV{DR_RACE_AT}/;
		}
	}
}
for my $level (sort keys %levels)
{
	my $failed = $failed{$level} // 0;
	cmp_ok($failed, '<', $written{$level} / 2, "$levels{$level}: $failed of $written{$level} could not be serialized");
}

$stage->quit;
$node->stop;
done_testing();
