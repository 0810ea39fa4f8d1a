# Sessions that race: some that do what they are told and may wait, one that
# holds waitpoints, one that looks.  Nothing is left to time: the stage goes on
# when each of them is done, or seen to wait.
#
#	my $stage = DrRaces->new($node, 3);
#	$stage->hold('refresh-folded');
#	$stage->{actors}[0]->tell('SELECT rollup_refresh(...)');
#	$stage->rest;            # it is done, or waits: at the waitpoint, for another
#	$stage->let;
package DrRaces;

use strict;
use warnings;

use Time::HiRes qw(sleep time);

use DrSession;

# seconds
our $patience = 180;

# at(n): the midnight n days from today.
our $CLOCK = <<'SQL';
CREATE TABLE clock AS SELECT date_trunc('day', now(), 'UTC') AS today;
DO $$ BEGIN
	EXECUTE format('CREATE FUNCTION at(days float8) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS %L', format('SELECT %L::timestamptz + days * interval ''1 day''', (SELECT today FROM clock)));
END $$;
SQL

# What is done to a rollup "live" over "src", of a mode that was not said: what
# comes before, the operation, and where it may be stopped.
my $on = "SELECT rollup_alter('live', mode => 'on'); CALL rollup_run('live');";
my $shadow = "SELECT rollup_alter('live', mode => 'shadow'); CALL rollup_run('live');";
my $off = "SELECT rollup_alter('live', mode => 'off'); CALL rollup_run('live');";
my $late = "INSERT INTO src (subject, name, ts, v, id) SELECT 'all', 'x', at(-5) + i * interval '1 min', 1, -i FROM generate_series(1, 3) i;";
my $refresh = "SELECT rollup_refresh('live', at(0));";
my $backfill = "SET dailyrollup.backfill = on; $late RESET dailyrollup.backfill;";
our %OPERATIONS = (
	refresh => [ $on . $late, $refresh, qw(refresh-locked refresh-waited refresh-source-locked refresh-folded refresh-before-advance refresh-in-commit) ],
	late => [ $on . $late, "SELECT rollup_refresh('live', rollup_watermark('live'));", qw(refresh-source-locked refresh-before-advance refresh-in-commit) ],
	reseed => [ $on . $late . "SELECT rollup_reseed('live');", $refresh, qw(refresh-waited seed-marks-taken refresh-folded refresh-in-commit) ],
	'reseed of what there is' => [ $on . $late . "SELECT rollup_reseed('live');", "SELECT rollup_refresh('live', rollup_watermark('live'));", qw(refresh-source-locked seed-marks-taken refresh-in-commit) ],
	'reseed in parts' => [ $on . $late . "SELECT rollup_reseed('live');", "CALL rollup_run('live');", qw(run-committed refresh-folded promote-settled) ],
	seed => [ "SELECT rollup_alter('live', mode => 'on');", $refresh, qw(refresh-waited seed-marks-taken refresh-in-commit) ],
	'new to on' => [ "SELECT rollup_alter('live', mode => 'on');", "CALL rollup_run('live');", qw(run-committed refresh-waited refresh-in-commit promote-settled promote-in-commit) ],
	'refresh of the shadow' => [ $shadow . $late, $refresh, qw(refresh-locked refresh-waited refresh-folded refresh-before-advance refresh-in-commit) ],
	promote => [ $shadow . $late, "SELECT rollup_promote('live');", qw(promote-settled promote-swapped promote-in-commit) ],
	'on to off' => [ $on, $off, qw(locks-tried leave-on-stopped leave-on-in-commit run-committed) ],
	'on to shadow' => [ $on, $shadow, qw(leave-on-stopped leave-on-in-commit refresh-waited refresh-folded) ],
	'off to shadow' => [ $off, $shadow, qw(run-committed refresh-waited seed-marks-taken refresh-in-commit) ],
	'off to on' => [ $off, $on, qw(run-committed promote-swapped promote-in-commit) ],
	'shadow to off' => [ $shadow . $backfill, $off, qw(flush-locked run-committed) ],
	recompute => [ $off . $backfill, "SELECT rollup_recompute('live');", qw(recompute-frozen recompute-seeded) ],
	flush => [ $off . $backfill, "SELECT rollup_flush('live');", qw(flush-locked) ],
	'fold off and on' => [ $off, "BEGIN; SELECT rollup_alter('live', fold => false); SELECT rollup_recompute('live'); SELECT rollup_alter('live', fold => true); COMMIT;", qw(locks-tried recompute-frozen recompute-seeded) ]);

sub new
{
	my ($class, $node, $actors) = @_;
	my $self = bless { holds => {} }, $class;
	my $session = sub {
		my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
		$session->safe('SET client_min_messages = warning;');
		return $session;
	};

	$self->{holder} = $session->();
	$self->{look} = $session->();
	$self->{actors} = [ map { DrRaces::Actor->new($session->(), $_) } 0 .. $actors - 1 ];
	return $self;
}

sub hold
{
	my ($self, $name) = @_;

	$self->{holder}->safe("SELECT pg_advisory_lock(hashtext('$name'));");
	$self->{holds}{$name} = 1;
	return;
}

# Lets go of one waitpoint, or of all.
sub let
{
	my ($self, @names) = @_;

	for my $name (@names ? @names : keys %{ $self->{holds} })
	{
		$self->{holder}->safe("SELECT pg_advisory_unlock(hashtext('$name'));") if delete $self->{holds}{$name};
	}
	return;
}

# What each actor is at: "idle", "gate" (it waits at a waitpoint), "blocked" (by
# a lock of another), "trying" (it asks for locks again and again), or nothing:
# it runs.
sub states
{
	my ($self) = @_;
	my @busy = grep { !$_->pump } @{ $self->{actors} };
	my %state;

	return map { 'idle' } @{ $self->{actors} } if !@busy;
	# asked for alone, for the two views look at different moments
	for my $line (split /\n/, $self->{look}->safe(
			"SELECT a.pid, CASE WHEN a.wait_event_type = 'Lock' AND a.wait_event = 'advisory' THEN 'gate' WHEN a.wait_event_type = 'Lock' THEN 'blocked'
				WHEN a.wait_event_type = 'Extension' THEN 'trying' ELSE '' END
			FROM pg_stat_activity a WHERE a.pid IN (" . join(',', map { $_->{pid} } @busy) . ') AND a.state <> \'idle\';'))
	{
		my ($pid, $state) = split /\|/, $line, -1;
		$state{$pid} = $state;
	}
	return map { my $actor = $_; (grep { $_ == $actor } @busy) ? $state{ $actor->{pid} } // '' : 'idle' } @{ $self->{actors} };
}

# Until each actor is idle, or waits, and so for a moment; returns what each is at.
sub rest
{
	my ($self) = @_;
	my ($until, $before, $same) = (time + $patience, '', 0);

	while (1)
	{
		my @states = $self->states;
		my $now = join ' ', map { $_ eq '' ? '-' : $_ } @states;

		return @states if $now !~ /[^a-z ]/ && $now !~ /gate|blocked|trying/;
		$same = $now !~ /-/ && $now eq $before ? $same + 1 : 0;
		return @states if $same >= ($now =~ /trying/ ? 4 : 2);
		$before = $now;
		die "the actors do not come to rest: $now\n" if time > $until;
		sleep 0.008;
	}
}

# Until this actor is done, whatever it waits for.
sub finish
{
	my ($self, $actor) = @_;
	my $until = time + $patience;

	until ($actor->pump)
	{
		$_->pump for @{ $self->{actors} };
		die "$actor->{number} is not done: " . join(' ', $self->states) . "\n" if time > $until;
		sleep 0.004;
	}
	return;
}

# Two of them meet: the first one's operation, and the second one's command.  "at
# it": that comes where the operation is stopped; "COMMIT", "ROLLBACK": it is open
# before the operation begins, and ends so while that waits.
sub meet
{
	my ($self, $operation, $waitpoint, $how, $command) = @_;
	my ($operator, $other) = @{ $self->{actors} };

	if ($how eq 'at it')
	{
		$other->tell("$command;");
		$self->rest;
		$self->let;
	}
	else
	{
		$other->tell('BEGIN;', "$command;");
		$self->finish($other);
		$operator->tell($operation);
		$self->rest;
		$other->tell("$how;");
	}
	$self->finish($_) for $operator, $other;
	return ($operator->heard, $other->heard);
}

# Begins the operation, up to the waitpoint.
sub stop_at
{
	my ($self, $operation, $waitpoint) = @_;

	$self->hold($waitpoint);
	$self->{actors}[0]->tell($operation);
	$self->rest;
	return;
}

# Every operation with each place where it may be stopped, in order.
sub places
{
	return map {
		my $name = $_;
		my (undef, undef, @waitpoints) = @{ $OPERATIONS{$name} };
		map { [ $name, $_ ] } @waitpoints
	} sort keys %OPERATIONS;
}

# What nobody may be told.
sub unclear
{
	my ($heard) = @_;
	return grep { !/^LOCATION/ && /^(?:ERROR|FATAL|PANIC|WARNING):\s+(?:XX|58|26)|with OID|cache lookup|concurrently (?:updated|deleted)|could not (?:open|find)|OID \d|unexpected|unrecognized|40P01|deadlock/ } split /\n/, $heard;
}

sub quit
{
	my ($self) = @_;

	$_->quit for $self->{holder}, $self->{look}, map { $_->{session} } @{ $self->{actors} };
	return;
}

package DrRaces::Actor;

use strict;
use warnings;

sub new
{
	my ($class, $session, $number) = @_;

	return bless { session => $session, number => $number, pid => $session->safe('SELECT pg_backend_pid();'),
		waiting => [], sent => undef, heard => '' }, $class;
}

# Commands, one after the other; each begins when the one before is done.
sub tell
{
	my ($self, @commands) = @_;

	push @{ $self->{waiting} }, @commands;
	$self->pump;
	return;
}

# Hears what has come, and sends what waits; true where nothing is left.
sub pump
{
	my ($self) = @_;

	while (1)
	{
		if (defined $self->{sent})
		{
			my $answer = $self->{session}->answer_within(0);
			return 0 if !defined $answer;
			$self->{heard} .= $answer;
			undef $self->{sent};
		}
		my $next = shift @{ $self->{waiting} };
		return 1 if !defined $next;
		$self->{sent} = $next;
		$self->{session}->send($next);
	}
}

# What was heard since this was asked last.
sub heard
{
	my ($self) = @_;
	my $heard = $self->{heard};

	$self->{heard} = '';
	return $heard;
}

1;
