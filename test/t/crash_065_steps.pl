# Each operation, stopped at each place between two of its steps: cancelled there
# or ended by a timeout, run again, and killed there; then brought to its end.
#
# What was committed when it was stopped is what there is afterwards, nothing
# else: the state before a step, or, in the middle of a commit, the one after it.
# By then _current is exact, and so are live and shadow but for keys that are
# marked.  Operation and pass, run once more, come to their end: all is equal to
# the definition, nothing waits any more; and a drop leaves nothing behind.
#
# The operations are those of DrFaults.pm, each for every place with a rollup of
# its own.  Which places an operation passes, it tells itself; all of @places must
# be among them (lint compares these with src/).  Many sessions are stopped at
# once, then all killed: by kill -9, or with the server by a shutdown that is
# immediate, or by kill -9 of the postmaster.
#
# A place is tried with two operations; with each that passes it: DR_FAULTS=all.
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

# Places of src/ that some operation must pass.
my @places = qw(
  altered create-made create-watched flush-locked flush-recomputed fold-done
  fold-found fold-live-locked fold-locked fold-merged fold-missed fold-placed fold-proposing
  heal-marks-taken heal-recomputed in-commit leaf-listed leave-on-caught-up leave-on-in-commit
  leave-on-stopped marked merge-updated partitions-listed promote-in-commit
  promote-indexed promote-recorded promote-settled promote-swapped
  recompute-frozen recompute-seeded refresh-advanced refresh-before-advance refresh-folded
  refresh-in-commit refresh-locked refresh-source-locked refresh-waited
  remove-deleted removed replace-deleted replace-updated reseed-asked run-committed
  seed-marks-taken shadow-created shadow-ended shadow-removed span-marked truncated
  watermark-read
);

# Reached where somebody else holds a lock, or has changed an owner: isolation specs.
my @elsewhere = qw(locks-tried owner-changed);

my $batch_size = 40;
my $operations_per_place = ($ENV{DR_FAULTS} // '') eq 'all' ? 1000 : 2;

my $node = PostgreSQL::Test::Cluster->new('steps');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
log_min_messages = warning
log_error_verbosity = verbose
max_connections = 150
max_prepared_transactions = 60
max_locks_per_transaction = 256
restart_after_crash = on
shared_preload_libraries = 'dailyrollup'
dailyrollup.worker = off
dailyrollup.delay = 0
client_min_messages = error
autovacuum = off
CONF
$node->start;

sub session { return DrSession->new(name => '', connstr => $node->connstr('postgres')); }

# Looks, and holds the lock that stops the others.
my $observer;
sub connect_observer
{
	$observer->quit if $observer;
	$observer = session();
	$observer->safe("SELECT pg_advisory_lock(hashtext('dr_test.stop'));");
	return;
}

connect_observer();
$observer->safe("CREATE EXTENSION dailyrollup;\n$DrFaults::SQL\nSELECT setseed(0.4);");
my $held = "SELECT (SELECT count(*) FROM rollup_progress)
	+ (SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid() AND relation >= 16384 AND virtualtransaction !~ '^-1/');";
my $baseline = DrFaults::objects($observer);

# ------------------------------------------------------ which places there are

# name of a place => operations that pass it
my %passed;

sub find_places
{
	my ($op, $rollup) = @_;
	my %met;

	my $scratch = session();
	$scratch->safe(DrFaults::sql($op, 'prepare', $rollup));
	my $answer = $scratch->run(DrFaults::sql($op, 'settings', $rollup) . " SET client_min_messages = debug1; " . DrFaults::sql($op, 'run', $rollup));
	die "$op->{name}: $answer" if DrSession::errors($answer);
	$met{$_}++ for $answer =~ /dailyrollup waitpoint (\S+)/g;
	# refresh-in-commit and the like are in-commit
	push @{ $passed{$_} }, $op for grep { !$met{'in-commit'} || !/.-in-commit/ } sort keys %met;
	$passed{$_} //= [] for keys %met;
	$scratch->run("COMMIT PREPARED '$rollup';") if $op->{name} eq 'prepare';
	DrFaults::clean($observer, $rollup);
	$scratch->quit;
	return;
}

my $count = 0;
find_places($_, 'p' . ++$count) for @DrFaults::operations;
is(join(' ', grep { !$passed{$_} } @places), '', 'each place is passed by an operation');
is(join(' ', grep { my $name = $_; !grep { $_ eq $name } @places, @elsewhere } sort keys %passed), '', 'and is known here');
is(DrFaults::objects($observer), $baseline, 'what an operation has made is gone');

# Pairs of an operation and a place: in-commit with all of them, for each place
# others than for the last one.
my (@pairs, %used);
for my $place (sort keys %passed)
{
	my @ops = $place eq 'in-commit' ? @{ $passed{$place} } :
	  sort { ($used{ $a->{name} } // 0) <=> ($used{ $b->{name} } // 0) } @{ $passed{$place} };

	splice @ops, $operations_per_place if $place ne 'in-commit' && @ops > $operations_per_place;
	$used{ $_->{name} }++ for @ops;
	push @pairs, map { { op => $_, place => $place, rollup => 'r' . ++$count } } @ops;
}
note scalar(@pairs) . ' pairs of an operation and a place';

# -------------------------------------------------------------------- stopping

# Each of them runs its operation until it stops; those that do not stop have
# ended.  "stop_at" is the setting, "prefix" goes before the operation.  Those in
# the middle of a commit come last: who has sent a NOTIFY keeps others from it, who
# then count as stopped where they are.
sub run_until_stopped
{
	my ($stop_at, $prefix, @these) = @_;

	for my $in_commit (0, 1)
	{
		my @now = grep { ($_->{place} eq 'in-commit') == $in_commit } @these;
		for my $pair (@now)
		{
			$pair->{pid} = $pair->{session}->safe('SELECT pg_backend_pid();');
			$pair->{session}->send("SET dr_test.stop_at = '" . $stop_at->($pair) . "'; " . $prefix->($pair) . ' ' .
				DrFaults::sql($pair->{op}, 'settings', $pair->{rollup}) . ' ' . DrFaults::sql($pair->{op}, 'run', $pair->{rollup}));
			delete @$pair{qw(stopped answer)};
		}
		wait_for_stops(@now);
	}
	return;
}

sub wait_for_stops
{
	my (@these) = @_;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;

	while (my @under_way = grep { !$_->{stopped} && !defined $_->{answer} } @these)
	{
		my %waiting = map { /(.*)\|(.*)/ } split /\n/, $observer->safe("SELECT pid, locktype FROM pg_locks WHERE NOT granted
			AND (locktype = 'advisory' AND objid = hashtext('dr_test.stop')::bigint & 4294967295
				OR locktype = 'object' AND classid = 'pg_database'::regclass);");
		for my $pair (@under_way)
		{
			$pair->{stopped} = $waiting{ $pair->{pid} };
			$pair->{answer} = $pair->{session}->answer_within(0) if !$pair->{stopped};
		}
		die 'neither stopped nor ended: ' . join(', ', map { "$_->{op}{name} at $_->{place}" } @under_way) if time > $until;
		sleep 0.02;
	}
	return;
}

# ---------------------------------------------------- cancelled, and timed out

my @endings = (
	{ name => 'cancel', states => '57014' },
	{ name => 'terminate', states => '57P01' },
	{ name => 'statement_timeout', states => '57014', prefix => "SET statement_timeout = '4s';" },
	{ name => 'lock_timeout', states => '55P03', prefix => "SET lock_timeout = '4s';" });

sub end_sessions
{
	my (@these) = @_;

	for my $pair (grep { $_->{stopped} } @these)
	{
		$pair->{before} = DrFaults::seen($observer, $pair);
		my $signal = { cancel => 'INT', terminate => 'TERM' }->{ $pair->{ending}{name} };
		kill $signal, $pair->{pid} if $signal;
	}
	for my $pair (@these)
	{
		$pair->{answer} //= eval { $pair->{session}->answer } // $@ =~ s/^session : psql ended: //r;
	}
	return;
}

# A clear error, and nothing is done.
sub check_ended
{
	my ($pair) = @_;
	my $expected = $pair->{ending}{states};
	my $good = 1;

	$pair->{what} = "$pair->{op}{name} at $pair->{place}, $pair->{ending}{name}";
	if ($pair->{answer} =~ /^FATAL/m)
	{
		$pair->{session}->quit;
		$pair->{session} = session();
	}
	else
	{
		$pair->{session}->run('ROLLBACK; RESET ALL;');
		$good &= DrFaults::is_guarded($observer, $pair, $pair->{session});
	}
	# what follows in an aborted transaction is no other error
	my @states = grep { !/^(?:25P02|3B001)$/ } DrSession::errors($pair->{answer});
	$good &= ok(0, "$pair->{what}: a clear error, not $pair->{answer}") if !@states || grep { $_ ne $expected } @states;
	$good &= DrFaults::is_as_seen($observer, $pair, $pair->{before}) if defined $pair->{before};
	$good &= DrFaults::is_right($observer, $pair);
	return $good;
}

# ---------------------------------------------------------------------- killed

sub kill_backends
{
	my (@these) = @_;

	kill 'KILL', map { $_->{pid} } @these;
	# the postmaster ends all others, and only then starts anew
	for (1 .. 500)
	{
		last if !eval { $observer->safe('SELECT true;'); 1 };
		sleep 0.02;
	}
	$node->poll_query_until('postgres', 'SELECT true');
	return;
}

sub stop_server
{
	$node->stop('immediate');
	$node->start;
	return;
}

# Its children have no time to find out that it is gone.
sub kill_server
{
	my (@these) = @_;

	kill 'STOP', map { $_->{pid} } @these;
	$node->kill9;
	kill 'KILL', map { $_->{pid} } @these;
	# its children end by themselves, and the next one cannot start before
	for (1 .. 500)
	{
		last if $node->start(fail_ok => 1);
		$node->stop('fast', fail_ok => 1);
		sleep 0.1;
	}
	return;
}

my @crashes = (\&kill_backends, \&stop_server, \&kill_server);

# ------------------------------------------------------------------- in batches

sub try_batch
{
	my ($crash, @batch) = @_;

	my $maker = session();
	$maker->safe(DrFaults::sql($_->{op}, 'prepare', $_->{rollup})) for @batch;
	$maker->quit;
	$_->{session} = session() for @batch;

	# nothing can be cancelled in the middle of a commit
	my @ended = grep { $_->{place} ne 'in-commit' } @batch;
	for my $i (0 .. $#ended)
	{
		my $ending = $endings[ ($i + $count) % @endings ];
		# the server has turned it off when a transaction begins to commit
		$ending = $endings[0] if $ending->{name} eq 'statement_timeout' && $ended[$i]{place} =~ /^fold-/;
		$ended[$i]{ending} = $ending;
	}
	$count++;
	run_until_stopped(sub { $_[0]{place} }, sub { $_[0]{ending}{prefix} // '' }, @ended);
	end_sessions(@ended);
	my $bad = grep { !check_ended($_) } @ended;
	is($bad, 0, scalar(@ended) . ' operations that were ended by ' . join(', ', map { $_->{name} } @endings));
	is($observer->safe($held), 0, 'no lock and no progress of theirs is left');

	run_until_stopped(sub { "$_[0]{place}:1" }, sub { '' }, @batch);
	my @killed = grep { $_->{stopped} } @batch;
	my @others = grep { !$_->{stopped} } @batch;
	$bad = grep { DrSession::errors($_->{answer}) } @others;
	is($bad, 0, scalar(@others) . ' go on behind that place') if @others;
	diag("$_->{op}{name} at $_->{place}: $_->{answer}") for grep { DrSession::errors($_->{answer}) } @others;
	$_->{what} = "$_->{op}{name} at $_->{place}, killed" for @batch;
	$_->{before} = DrFaults::seen($observer, $_) for @killed;
	$crashes[$crash]->(@killed);
	eval { $_->{session}->answer; }, $_->{session}->quit for @batch;
	connect_observer();
	$bad = grep { !DrFaults::is_as_seen($observer, $_, $_->{before}) | !DrFaults::is_right($observer, $_) } @killed;
	is($bad, 0, scalar(@killed) . ' operations that were killed');
	ok((grep { $_->{place} eq 'in-commit' && $_->{stopped} eq 'advisory' } @killed), 'one of them in the middle of a commit');
	is($observer->safe($held), 0, 'no lock and no progress of theirs is left');

	$maker = session();
	$bad = grep { !DrFaults::finish($observer, $_, $maker, $_->{place} eq 'in-commit') } @batch;
	is($bad, 0, 'all come to their end');
	$maker->quit;
	DrFaults::clean($observer, $_->{rollup}) for @batch;
	is(DrFaults::objects($observer), $baseline, 'and leave nothing behind');
	return;
}

# Those of one operation go into different batches.
my $batches = int((@pairs + $batch_size - 1) / $batch_size);
my @batches;
push @{ $batches[ $_ % $batches ] }, $pairs[$_] for 0 .. $#pairs;
try_batch($_ % @crashes, @{ $batches[$_] }) for 0 .. $#batches;
is(join("\n", slurp_file($node->logfile) =~ /^.*(?:XX000|cache lookup|could not open relation|deadlock).*$/mg), '', 'no internal error');

$observer->quit;
$node->stop;
done_testing();
