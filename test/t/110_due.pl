# When a pass is due, what it would do, and to which midnight it goes.
#
# A boundary is the last midnight of the rollup's zone that is at least as old as
# the delay; days that were missed are caught up in one refresh; a watermark never
# goes back, whatever the clock does.  The days of 23 and 25 hours are counted by
# hand: midnights computed as multiples of 24 hours make this fail.
#
# The clock itself is not set back here (that needs libfaketime): a watermark in
# the future is what one that was leaves behind.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use JSON::PP;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrWorker;

my $zone = noon_zone();
my $midnight = "date_trunc('day', now(), '$zone')";

my $node = PostgreSQL::Test::Cluster->new('due');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\ndailyrollup.delay = 0\n");
$node->start;

sub sql { return $node->safe_psql('postgres', "SET client_min_messages = error;\n$_[0]") }

sub create
{
	my ($name, %more) = @_;
	my $source = delete $more{source} // 'events';
	my $more = join '', map { ", $_ => '$more{$_}'" } sort keys %more;
	sql("SELECT rollup_create('$name', 'SELECT k, count(*), sum(n) FROM $source GROUP BY k', 'at' $more)");
	return;
}

sub status { return sql("SELECT $_[1] FROM rollup_status WHERE rollup = '$_[0]'::regclass") }
sub wrong { return sql("SELECT count(*) FROM rollup_verify('$_[0]')") }

# the steps, each with the states before and after it
sub plan_of
{
	return sql("SELECT string_agg(step || ' ' || state || '-' || becomes || CASE WHEN boundary IS NULL THEN '' WHEN boundary = $midnight THEN ' today' ELSE ' ' || ($midnight - boundary) END, ', ' ORDER BY step_number)
	  FROM rollup_plan() WHERE rollup = '$_[0]'::regclass");
}

# what a pass has done since
my $seen = 0;
sub runs
{
	my $result = sql("SELECT string_agg(action || coalesce(' ' || ($midnight - to_time), ''), ', ' ORDER BY id) FROM rollup_runs WHERE id > $seen");
	$seen = sql('SELECT coalesce(max(id), 0) FROM rollup_runs');
	return $result;
}

sql(<<"SQL");
CREATE EXTENSION dailyrollup;
CREATE TABLE events (k int, at timestamptz NOT NULL, n int);
CREATE INDEX ON events (k, at);
INSERT INTO events SELECT i % 5, $midnight - i * interval '1 hour', i FROM generate_series(1, 300) i;
SQL

# ------------------------------------------------------------ plan and due times

create('r', time_zone => $zone, mode => 'on');
is(plan_of('r'), 'begin shadow new-new, seed new-new today, promote new-on today, check on-on', 'new: filled and promoted');
is(status('r', 'next_due <= clock_timestamp(), next_step'), 't|begin shadow', 'at once');
is(sql('SELECT count(*) FROM rollup_runs'), '0', 'a plan does nothing');
sql('CALL rollup_run()');
is(status('r', 'state') . ' ' . wrong('r'), 'on 0', 'the pass has done it');
is(plan_of('r'), '', 'on: nothing');
is(status('r', "next_due = $midnight + interval '1 day', next_step ~ '^refresh to '"), 't|t', 'until the next midnight');

sql(q{SELECT rollup_reseed('r')});
is(plan_of('r'), 'begin shadow on-on, seed on-on today, promote on-on today, check on-on', 'reseed: beside it, then promoted');
sql('CALL rollup_run()');

sql(q{SELECT rollup_alter('r', mode => 'shadow')});
is(plan_of('r'), 'leave on on-shadow, seed shadow-shadow today, diff shadow-shadow' =~ s/seed/refresh/r, 'on to shadow');
sql('CALL rollup_run()');
is(status('r', 'state, next_step ~ $$^refresh to $$') . ' ' . plan_of('r'), 'shadow|t ', 'shadow: nothing');
is(status('r', "next_due = $midnight + interval '1 day'"), 't', 'until the next midnight');

sql(q{SELECT rollup_alter('r', mode => 'on')});
is(plan_of('r'), 'promote shadow-on today, check on-on', 'shadow to on');
is(status('r', 'next_step'), 'promote', 'promote is the next step');
sql(q{SELECT rollup_alter('r', mode => 'off')});
is(plan_of('r'), 'end shadow shadow-off', 'shadow to off');
sql('CALL rollup_run()');
is(status('r', 'state, next_due, next_step'), 'off||none: each write is folded', 'off: never, and why');
is(plan_of('r'), '', 'nothing');
sql(q{SELECT rollup_alter('r', mode => 'on')});
is(plan_of('r'), 'begin shadow off-shadow, refresh shadow-shadow today, promote shadow-on today, check on-on', 'off to on');
sql('CALL rollup_run()');
is(status('r', 'state') . ' ' . wrong('r'), 'on 0', 'done');

# ----------------------------------------------------------- a delay of its own

create('slow', time_zone => $zone, mode => 'on', delay => '5 hours');
create('slower', time_zone => $zone, mode => 'on', delay => '20 hours');
create('slowest', time_zone => $zone, mode => 'on', delay => '2 days 3 hours');
sql('CALL rollup_run()');
is(status('slow', "watermark = $midnight, next_due = $midnight + interval '29 hours'"), 't|t', '5 hours: to today, next tomorrow at 5');
is(status('slower', "watermark = $midnight - interval '1 day', next_due = $midnight + interval '20 hours'"), 't|t', '20 hours: to yesterday, next today at 20');
is(status('slowest', "watermark = $midnight - interval '2 days', next_due = $midnight + interval '1 day 3 hours'"), 't|t', '2 days and 3 hours');
is(join(' ', map { wrong($_) } qw(slow slower slowest)), '0 0 0', 'exact');

# shorter: due at once, in one step; longer: never back
runs();
sql(q{SELECT rollup_alter('slower', delay => '1 hour')});
is(plan_of('slower'), 'refresh on-on today, check on-on', 'a shorter delay: due now');
sql('CALL rollup_run()');
is(status('slower', "watermark = $midnight") . ' ' . wrong('slower'), 't 0', 'refreshed');
sql(q{SELECT rollup_alter('slower', delay => '5 days')});
is(plan_of('slower'), '', 'a longer one: nothing, for a watermark never goes back');
sql('CALL rollup_run()');
is(status('slower', "watermark = $midnight, next_due = $midnight + interval '6 days'") . ' ' . wrong('slower'), 't|t 0', 'it stays, until the next one is due');

# ----------------------------------------------------------------- missed days

create('missed', time_zone => $zone, mode => 'on');
sql("SELECT rollup_refresh('missed', $midnight - interval '6 days')");
is(status('missed', "watermark = $midnight - interval '6 days'"), 't', 'six days behind');
is(plan_of('missed'), 'refresh on-on today, check on-on', 'caught up in one step');
runs();
sql('CALL rollup_run()');
is(sql(qq{SELECT action, from_time = $midnight - interval '6 days', to_time = $midnight FROM rollup_runs
	WHERE rollup = 'missed'::regclass AND action = 'fold'}), 'fold|t|t', 'one refresh for all days');
is(wrong('missed'), '0', 'exact');

# --------------------------------------------------------- the clock is set back

# The rollup was refreshed at tomorrow's midnight, with what there was then; now
# it is today again.
create('early', time_zone => $zone, mode => 'on');
sql('CALL rollup_run()');
sql("UPDATE dailyrollup.rollups SET watermark = $midnight + interval '1 day' WHERE live = 'early'::regclass");
is(status('early', "next_due = $midnight + interval '2 days'") . plan_of('early'), 't', 'a watermark in the future: the midnight after it is next');
sql("INSERT INTO events VALUES (1, now(), 7), (77, now(), 7)");
is(status('early', 'late_keys'), '2', 'what is written meanwhile is late');
sql('CALL rollup_run()');
is(status('early', "watermark = $midnight + interval '1 day', late_keys, failures"), 't|0|0', 'the watermark does not go back');
is(sql('SELECT count(*) FROM early WHERE k = 77') . wrong('early'), '10', 'no row is lost');

# a wish for a reseed from before it was set back: one seed, not one after the other
sql(q{SELECT rollup_reseed('early'); UPDATE dailyrollup.rollups SET reseed_at = now() + interval '1 hour' WHERE live = 'early'::regclass});
is(sql(q{SELECT string_agg(step, ', ' ORDER BY step_number) FROM rollup_plan() WHERE rollup = 'early'::regclass}), 'begin shadow, seed, promote, check', 'a wish of the future is planned once');
runs();
sql(q{SET statement_timeout = '60s'; CALL rollup_run('early')});
is(sql("SELECT string_agg(action, ', ' ORDER BY id) FROM rollup_runs WHERE id > $seen"), 'seed, promote, check', 'and made once');
is(status('early', 'reseed IS NULL') . wrong('early'), 't0', 'fulfilled');

# a shadow begun before it was set back does not fulfil a wish made after that
sql(q{SELECT rollup_alter('early', mode => 'shadow'); CALL rollup_run('early');
	UPDATE dailyrollup.rollups SET shadow_at = now() + interval '1 hour' WHERE live = 'early'::regclass;
	SELECT rollup_reseed('early')});
is(sql(q{SELECT reseed IS NULL OR reseed_at > shadow_at FROM dailyrollup.rollups WHERE live = 'early'::regclass}), 't', 'a wish is later than the shadow');
sql(q{CALL rollup_run('early'); SELECT rollup_alter('early', mode => 'on'); CALL rollup_run('early'); SELECT rollup_reseed('early');
	UPDATE dailyrollup.rollups SET reseed_at = now() + interval '1 hour' WHERE live = 'early'::regclass; SELECT rollup_reseed('early')});
is(sql(q{SELECT reseed_at > now() + interval '59 minutes' FROM dailyrollup.rollups WHERE live = 'early'::regclass}), 't', 'and than one made before it');
sql(q{CALL rollup_run('early')});
is(status('early', 'state, reseed IS NULL') . wrong('early'), 'on|t0', 'fulfilled');

# ------------------------------------------------------------- after a failure

# whatever it was that failed, all is looked at
create('failed', time_zone => $zone, mode => 'on');
sql(q{CALL rollup_run('failed'); UPDATE dailyrollup.rollups SET failures = 2, last_error = 'then', retry_at = now() + interval '5 min' WHERE live = 'failed'::regclass});
is(status('failed', q{next_step, next_due = retry_at}) . ' ' . plan_of('failed'), 'retry|t check on-on', 'what has failed is tried again');
runs();
sql(q{CALL rollup_run('failed')});
is(sql(qq{SELECT action FROM rollup_runs WHERE id > $seen}) . ' ' . status('failed', 'failures, last_error, retry_at'), 'check 0||', 'by hand at once');
sql(q{UPDATE dailyrollup.rollups SET failures = 2, last_error = 'then', retry_at = now() + interval '5 min' WHERE live = 'failed'::regclass; SELECT rollup_alter('failed', delay => '1 hour')});
is(status('failed', q{failures, last_error, retry_at, next_due <= clock_timestamp()}), '2|then||t', 'after a change by the owner at once');

# ------------------------------------------- days that have not 24 hours

sql(<<'SQL');
CREATE TABLE hourly (k int, at timestamptz NOT NULL, n int);
CREATE INDEX ON hourly (k, at);
INSERT INTO hourly SELECT 1, t, 1 FROM generate_series('2024-03-01 00:00+00'::timestamptz, '2024-11-30 00:00+00', interval '1 hour') t;
CREATE TABLE local (k int, at timestamp NOT NULL, n int);
CREATE TABLE dated (k int, at date NOT NULL, n int);
INSERT INTO local SELECT k, at AT TIME ZONE 'America/Santiago', n FROM hourly;
INSERT INTO dated SELECT k, at, n FROM local;
SQL

# From midnight to midnight, each with the hours of the day between.
sub days
{
	my ($name, $in, $source, @days) = @_;
	create($name, source => $source, time_zone => $in, mode => 'on');
	while (my ($from, $to, $hours) = splice @days, 0, 3)
	{
		my @counts = map { sql("SELECT FROM rollup_refresh('$name', '$_ $in')"); sql("SELECT count FROM $name") } $from, $to;
		is($counts[1] - $counts[0], $hours, "$in, $source: $hours hours from $from to $to");
		is(sql("SELECT * FROM $name") . ' ' . wrong($name), sql(sql("SELECT rollup_definition('$name', '$to $in')")) . ' 0', "$in, $source: as the definition says, exact");
	}
	return;
}
days('berlin', 'Europe/Berlin', 'hourly',
	'2024-03-30 00:00', '2024-03-31 00:00', 24,
	'2024-03-31 00:00', '2024-04-01 00:00', 23,
	'2024-10-27 00:00', '2024-10-28 00:00', 25);
# the clock goes from 24:00 to 1:00, and from 24:00 back to 23:00
days("santiago_$_", 'America/Santiago', $_,
	'2024-04-06 00:00', '2024-04-07 00:00', 25,
	'2024-09-07 00:00', '2024-09-08 01:00', 24,
	'2024-09-08 01:00', '2024-09-09 00:00', 23) for qw(hourly local dated);
my ($stdout, $stderr);
$node->psql('postgres', q{SELECT rollup_refresh('berlin', '2024-10-28 23:00 UTC'), rollup_refresh('berlin', '2024-10-29 22:00 UTC')}, stdout => \$stdout, stderr => \$stderr);
like($stderr, qr/ERROR: .*midnight/, 'summer time is over: 22:00 UTC is no midnight in Berlin any more');

# --------------------------------------------------------------------- NOTIFY

# A listener hears of each advance and each promote, in JSON, whatever the name.
my $name = q{"o'dd ""na\\me"};
sql(qq{CREATE TABLE few AS SELECT * FROM events LIMIT 20; ALTER TABLE few ALTER at SET NOT NULL;
	SELECT rollup_create(\$q\$$name\$q\$, 'SELECT k, count(*) FROM few GROUP BY k', 'at', time_zone => '$zone', mode => 'on')});
my $heard = sql("LISTEN dailyrollup; CALL rollup_run(\$q\$$name\$q\$); SELECT 1;");
my @payloads = map { JSON::PP->new->decode($_) } $heard =~ /notification "dailyrollup" with payload "(.*)" received/g;
my $rollup = sql("SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = \$q\$$name\$q\$::regclass");
is_deeply([ map { $_->{action} } @payloads ], [qw(seed promote)], 'NOTIFY tells of the seed and of the promote');
is_deeply([ map { sort keys %$_ } @payloads ], [qw(action rollup watermark action keys rollup rows watermark)], 'what is in it');
is($payloads[1]{rows} . ' ' . $payloads[1]{keys}, sql("SELECT count(*) || ' ' || count(DISTINCT k) FROM $name"), 'rows and keys');
is($payloads[1]{rollup}, $rollup, 'the name, as SQL understands it');
is(sql("SELECT '$payloads[1]{watermark}'::timestamptz = $midnight"), 't', 'the watermark');
unlike(sql("LISTEN dailyrollup; SELECT rollup_alter('r', mode => 'on'); CALL rollup_run('r');"), qr/notification/, 'nothing where nothing has moved');

$node->stop;
done_testing();
