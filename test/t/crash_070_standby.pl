# A standby reads exactly at each position of the replay.
#
# The primary goes through the operations of DrFaults.pm and stops at each place
# between two of their steps.  There the standby has replayed what was written by
# then, and is asked: _current, live and shadow are what the definition gives by the
# same snapshot; so they are to a transaction that has its snapshot from the place
# before, and to a session that keeps its plans.  All is as on the primary.
#
# Then the primary is killed in the middle of operations, and the standby promoted:
# it brings them to their end.  Fails when _current asks for state and watermark by
# another snapshot than the one that reads the rows (dr_seen_rollup() in seen.c).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

use DrFaults;
use DrSession;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
log_min_messages = warning
log_error_verbosity = verbose
max_connections = 100
max_prepared_transactions = 10
shared_preload_libraries = 'dailyrollup'
dailyrollup.worker = off
dailyrollup.delay = 0
client_min_messages = error
autovacuum = off
CONF
$primary->start;

sub session { return DrSession->new(name => '', connstr => $_[0]->connstr('postgres')); }

my $observer = session($primary);
$observer->safe("CREATE EXTENSION dailyrollup;\n$DrFaults::SQL
	CREATE TABLE nothing (n int); SELECT setseed(0.8);
	SELECT pg_advisory_lock(hashtext('dr_test.stop')), pg_advisory_lock(hashtext('dr_test.stop_next'));");

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nmax_standby_streaming_delay = -1\nwal_receiver_status_interval = 1");
$standby->start;

# one reads as it comes, one keeps its plans, one its snapshot
my ($reader, $planner, $older) = map { session($standby) } 1 .. 3;
$planner->safe('SET plan_cache_mode = force_generic_plan;');

# What the primary has written by now, committed or not, is replayed.
sub catch_up
{
	$observer->safe('INSERT INTO nothing VALUES (1);');
	my $lsn = $observer->safe('SELECT pg_current_wal_flush_lsn();');
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;
	while ($reader->safe("SELECT pg_last_wal_replay_lsn() >= '$lsn';") ne 't')
	{
		die 'the standby does not follow' if time > $until;
		sleep 0.005;
	}
	return;
}

# Is the source, is the shadow closed to readers by what was replayed?  (That lock is
# taken on a standby as well.)
sub closed
{
	my ($rollup) = @_;

	return split /\|/, $reader->safe("SELECT coalesce(bool_or(is_closed(c.oid)) FILTER (WHERE c.relname <> '${rollup}_daily'), false),
		coalesce(bool_or(is_closed(c.oid)) FILTER (WHERE c.relname = '${rollup}_daily'), false) FROM pg_class c WHERE c.relname IN
			('$rollup', '${rollup}_src', '${rollup}_daily', '${rollup}_current') OR c.oid = (SELECT marks FROM dailyrollup.rollups WHERE live = to_regclass('$rollup'));");
}

my ($count, $reads, $old_reads, $kept_reads) = (0, 0, 0, 0);

# _current by a plan that the session keeps, against the source.
sub read_by_kept_plan
{
	my ($case) = @_;

	return 1 if $planner->safe("SELECT count(*) FROM dailyrollup.rollups WHERE live = to_regclass('$case->{rollup}') AND (state IN ('new', 'on') OR fold);") == 0;
	if (!$case->{prepared})
	{
		my $events = $case->{op}{kind} =~ /plain|checked/ ? 'DISTINCT (subject, name, ts)' : '*';
		$planner->safe("PREPARE $case->{rollup} AS SELECT (SELECT sum(count) FROM $case->{rollup}_current) IS NOT DISTINCT FROM
			(SELECT nullif(count($events), 0) FROM $case->{rollup}_src);");
		$case->{prepared} = 1;
	}
	$kept_reads++;
	my $same = $planner->safe("EXECUTE $case->{rollup};");
	return $same eq 't' || ok(0, "$case->{what}: by a kept plan");
}

sub check_standby
{
	my ($case) = @_;
	my $good = 1;

	catch_up();
	my ($closed, $shadow_closed) = closed($case->{rollup});
	return 1 if $closed eq 't';
	my $shadow_too = $shadow_closed eq 't' ? 'false' : 'true';

	$reads++;
	my $wrong = $reader->safe("SELECT wrong('$case->{rollup}', '$case->{op}{kind}', $shadow_too);");
	$good &= ok(0, "$case->{what}: $wrong") if $wrong ne '';
	$good &= DrFaults::is_as_seen($reader, $case, DrFaults::seen($observer, $case));
	$good &= read_by_kept_plan($case);
	if ($case->{older})
	{
		$old_reads++;
		$wrong = $older->safe("SELECT wrong('$case->{rollup}', '$case->{op}{kind}', false);");
		$good &= ok(0, "$case->{what}, by an older snapshot: $wrong") if $wrong ne '';
		my $before = $older->safe("SELECT seen('$case->{rollup}') -> 'rollup';");
		$good &= is($before, $case->{older}, "$case->{what}: an older snapshot") if $before ne $case->{older};
	}
	# the snapshot of this place is for the next one; what it has locked would keep
	# a replay that locks it from going on
	$older->safe('COMMIT;');
	$older->safe("BEGIN ISOLATION LEVEL REPEATABLE READ;");
	$case->{older} = $older->safe("SELECT seen('$case->{rollup}') -> 'rollup';");
	return $good;
}

# The session with the operation waits for one of the two locks: for which?  undef
# when it has ended, or waits for others that have sent a NOTIFY.
sub waits_for
{
	my ($session, $pid) = @_;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;

	for (;;)
	{
		my $lock = $observer->safe("SELECT name FROM unnest('{dr_test.stop,dr_test.stop_next}'::text[]) name, pg_locks
			WHERE pid = $pid AND locktype = 'advisory' AND NOT granted AND objid = hashtext(name)::bigint & 4294967295;");
		return $lock if $lock ne '';
		return if $observer->safe("SELECT count(*) FROM pg_locks WHERE pid = $pid AND locktype = 'object' AND NOT granted;") > 0;
		$session->{ended} = $session->answer_within(0.01);
		return if defined $session->{ended};
		die 'neither stopped nor ended' if time > $until;
	}
}

sub prepare_operation
{
	my ($op) = @_;
	my $case = { op => $op, rollup => 'r' . ++$count, session => session($primary) };

	$case->{session}->safe(DrFaults::sql($op, 'prepare', $case->{rollup}) . DrFaults::sql($op, 'settings', $case->{rollup}));
	$case->{pid} = $case->{session}->safe('SELECT pg_backend_pid();');
	return $case;
}

sub begin_operation
{
	my ($case) = @_;

	$case->{session}->safe("SET dr_test.stop_at = 'everywhere';");
	$case->{session}->send(DrFaults::sql($case->{op}, 'run', $case->{rollup}));
	return;
}

# From one stop to the next.
sub let_go
{
	my ($lock) = @_;

	$observer->safe("SELECT pg_advisory_unlock(hashtext('$lock')); SELECT pg_advisory_lock(hashtext('$lock'));");
	return;
}

# What can be read of it is not what it was (a table that is locked cannot be).
sub has_changed
{
	my ($case, $start) = @_;

	return $observer->safe("SELECT count(*) FROM jsonb_each(\$s\$$start\$s\$::jsonb) b JOIN jsonb_each(seen('$case->{rollup}')) n USING (key)
		WHERE n.value <> b.value;") > 0;
}

sub follow
{
	my ($op) = @_;
	my $case = prepare_operation($op);
	my ($stops, $good) = (0, 1);

	begin_operation($case);
	while ($good && defined(my $lock = waits_for(@$case{qw(session pid)})))
	{
		$case->{what} = "$op->{name}, stop " . ++$stops;
		$good &= check_standby($case);
		$older->safe('COMMIT;'), delete $case->{older} if $op->{ddl};
		let_go($lock);
	}
	$good &= ok(0, "$op->{name}: $case->{session}{ended}") if DrSession::errors($case->{session}{ended} // '');
	$case->{what} = "$op->{name}, done";
	$good &= check_standby($case);
	$older->safe('COMMIT;');
	$case->{session}->safe("RESET dr_test.stop_at;");
	$case->{session}->run("COMMIT PREPARED '$case->{rollup}';") if $op->{name} eq 'prepare';
	$case->{session}->quit;
	ok($good && $stops > 1, "$op->{name}: followed by the standby through $stops stops");
	return;
}

$older->safe('BEGIN;');
follow($_) for @DrFaults::operations;
note "$reads reads, $old_reads by an older snapshot, $kept_reads by a kept plan";
cmp_ok($reads, '>', 200, 'the standby was asked');
cmp_ok($old_reads, '>', 50, 'and an older snapshot');
cmp_ok($kept_reads, '>', 150, 'and a kept plan');

# ----------------------------------------------------------- what was a standby

# Each at some place.
my @cases = map { prepare_operation($_) } @DrFaults::operations;
my @start = map { DrFaults::seen($observer, $_) } @cases;
for my $i (0 .. $#cases)
{
	my $case = $cases[$i];

	$case->{what} = "$case->{op}{name}, on what was a standby";
	begin_operation($case);
	my $lock = waits_for(@$case{qw(session pid)});
	for (1 .. $i % 4)
	{
		last if !defined $lock;
		let_go($lock);
		$lock = waits_for(@$case{qw(session pid)});
	}
}
# who was let go has let go others, too
for my $i (0 .. $#cases)
{
	my $case = $cases[$i];

	waits_for(@$case{qw(session pid)}) if !defined $case->{session}{ended};
	$case->{ended} = defined $case->{session}{ended};
	# it may stop in the middle of its commit
	$case->{committed} = $case->{ended} || $observer->safe("SELECT count(*) FROM pg_prepared_xacts WHERE gid = '$case->{rollup}';") > 0 ||
		has_changed($case, $start[$i]);
}
catch_up();
$_->{before} = DrFaults::seen($observer, $_) for @cases;
$older->quit;
$planner->quit;
$reader->quit;
$primary->stop('immediate');
for (@cases)
{
	eval { $_->{session}->answer; } if !$_->{ended};
	$_->{session}->quit;
}
$observer->quit;
$standby->promote;
$observer = session($standby);
my $bad = grep { !DrFaults::is_as_seen($observer, $_, $_->{before}) | !DrFaults::is_right($observer, $_) } @cases;
is($bad, 0, scalar(@cases) . ' operations in the middle of which the primary was killed');
my $session = session($standby);
$bad = grep { !DrFaults::finish($observer, $_, $session, $_->{committed}) } @cases;
is($bad, 0, 'come to their end on what was its standby');
$session->safe('CALL rollup_run();');
# (an adopted table is left to others until it is promoted)
is($session->safe("SELECT string_agg(DISTINCT format('%s %s', k.live, k.state), ', ') FROM dailyrollup.rollups k, rollup_verify(k.live)
		WHERE k.fold OR k.state IN ('new', 'on');"),
	'', 'so do all others, and rollup_verify agrees');
$session->quit;
$observer->quit;
is(join("\n", map { slurp_file($_->logfile) =~ /^.*(?:XX000|cache lookup|could not open relation).*$/mg } $primary, $standby), '', 'no internal error');
$standby->stop;
done_testing();
