# Real data, replayed as it arrived: 9,332 earthquakes in the order in which each
# record was last revised, so that nearly half of them are late for the daily
# refresh.  The rollup is refreshed at 03:30 UTC of each day on the arrival
# clock, to that day's midnight; it is compared with plain SQL after every
# refresh, and _current after every quarter of a day in between.
#
# The data is looked for in the folder that DR_TEST_DATA names.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrSession;

my $file = ($ENV{DR_TEST_DATA} // '') . '/earthquakes.csv';
plan skip_all => 'the real data is absent: DR_TEST_DATA names no folder with earthquakes.csv'
  if !defined $ENV{DR_TEST_DATA} || !-r $file;

my $node = PostgreSQL::Test::Cluster->new('earthquakes');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\n");
$node->start;

my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$session->safe("SET client_min_messages = warning; SET timezone = 'UTC';");

# the file's order is the order of arrival
$session->safe(<<"SQL");
CREATE EXTENSION dailyrollup;
CREATE TABLE arrivals (
	arrival int GENERATED ALWAYS AS IDENTITY, arrived_at timestamptz, occurred_at timestamptz,
	network text, type text, code text, mag numeric, rms numeric, place text);
\\copy arrivals (arrived_at, occurred_at, network, type, code, mag, rms, place) FROM '$file' (FORMAT csv, HEADER)
CREATE TABLE earthquakes (
	occurred_at timestamptz NOT NULL, network text NOT NULL, type text NOT NULL,
	code text NOT NULL, mag numeric, rms numeric, place text);
CREATE INDEX ON earthquakes (network, type, occurred_at);
SELECT rollup_create('earthquakes_latest', \$\$
	SELECT network, type,
	       count(*) AS count,
	       min(occurred_at) AS first_at,
	       max(occurred_at) AS last_at,
	       latest(mag, occurred_at) FILTER (WHERE mag IS NOT NULL) AS mag,
	       max(occurred_at) FILTER (WHERE mag IS NOT NULL) AS mag_at
	FROM earthquakes GROUP BY network, type \$\$,
	time_column => 'occurred_at', mode => 'on');

-- the oracle: what the rollup should be for rows before a time
CREATE FUNCTION expected(before timestamptz)
RETURNS TABLE (network text, type text, count bigint, first_at timestamptz, last_at timestamptz,
	mag numeric, mag_at timestamptz) LANGUAGE sql STABLE AS \$\$
	SELECT e.network, e.type, count(*), min(occurred_at), max(occurred_at),
	       (array_agg(e.mag ORDER BY occurred_at DESC, e.mag DESC) FILTER (WHERE e.mag IS NOT NULL))[1],
	       max(occurred_at) FILTER (WHERE e.mag IS NOT NULL)
	FROM earthquakes e WHERE before IS NULL OR occurred_at < before GROUP BY 1, 2 \$\$;

-- rows that are on one side only
CREATE FUNCTION live_differs() RETURNS bigint LANGUAGE sql STABLE AS \$\$
	WITH w AS (SELECT rollup_watermark('earthquakes_latest') AS w),
	     l AS MATERIALIZED (SELECT network, type, count, first_at, last_at, mag, mag_at FROM earthquakes_latest),
	     e AS MATERIALIZED (SELECT x.* FROM w, expected(w.w) x)
	SELECT count(*) FROM ((TABLE l EXCEPT ALL TABLE e) UNION ALL (TABLE e EXCEPT ALL TABLE l)) d \$\$;
CREATE FUNCTION current_differs() RETURNS bigint LANGUAGE sql STABLE AS \$\$
	WITH l AS MATERIALIZED (SELECT network, type, count, first_at, last_at, mag, mag_at FROM earthquakes_latest_current),
	     e AS MATERIALIZED (SELECT * FROM expected(NULL))
	SELECT count(*) FROM ((TABLE l EXCEPT ALL TABLE e) UNION ALL (TABLE e EXCEPT ALL TABLE l)) d \$\$;
SQL
is($session->safe('SELECT count(*) FROM arrivals;'), 9332, 'all records are there');

# Brings what arrived before a time, in order, and says how many and how many
# of them were late.
my $arrived = 0;

sub arrive_until
{
	my ($time) = @_;
	my $answer = $session->safe(<<"SQL");
WITH new AS (
	INSERT INTO earthquakes (occurred_at, network, type, code, mag, rms, place)
	SELECT occurred_at, network, type, code, mag, rms, place FROM arrivals
	WHERE arrival > $arrived AND arrived_at < '$time' ORDER BY arrival
	RETURNING occurred_at)
SELECT count(*), count(*) FILTER (WHERE occurred_at < rollup_watermark('earthquakes_latest')) FROM new;
SQL
	my ($rows, $late) = split /\|/, $answer;
	$arrived += $rows;
	return ($rows, $late);
}

my @days = split /\n/, $session->safe(<<'SQL');
SELECT d::date FROM generate_series('2018-09-19'::date, '2018-10-15'::date, '1 day') d ORDER BY d;
SQL
my ($late_rows, @without_late, @actions) = (0);
my ($live_wrong, $current_wrong, $marks_wrong, $verify_wrong) = (0, 0, 0, 0);

for my $day (@days)
{
	my $late_today = 0;
	for my $hours (-14.5, -8.5, -2.5, 3.5)
	{
		my $until = $session->safe("SELECT '$day 00:00+00'::timestamptz + $hours * interval '1 hour';");
		my (undef, $late) = arrive_until($until);
		$late_today += $late;
		$current_wrong++ if $session->safe('SELECT current_differs();') != 0;
	}
	my ($action, $to) = split /\|/, $session->safe(
		"SELECT action, to_time = '$day 00:00+00' FROM rollup_refresh('earthquakes_latest', '$day 00:00+00');");
	push @actions, $action;
	$live_wrong++
	  if $to ne 't' || $session->safe('SELECT live_differs();') != 0;
	$current_wrong++ if $session->safe('SELECT current_differs();') != 0;
	$marks_wrong++ if $session->safe('SELECT count(*) FROM rollup_late;') != 0;
	$verify_wrong++ if $session->safe(q(SELECT count(*) FROM rollup_verify('earthquakes_latest');)) != 0;
	push @without_late, $day if $late_today == 0 && $day ne $days[0];
	$late_rows += $late_today;
}

is($live_wrong, 0, 'live is exact after each of the ' . scalar(@days) . ' refreshes');
is($current_wrong, 0, '_current is exact at every quarter of a day, and after each refresh');
is($marks_wrong, 0, 'no key waits after a refresh');
is($verify_wrong, 0, 'rollup_verify finds nothing after any refresh');
is(join(' ', @actions), join(' ', 'seed', ('fold') x $#days), 'one seed, then folds');
is($late_rows, 4143, 'rows that were late');
is("@without_late", '', 'on every day some were');

is($session->safe('SELECT count(*) FROM earthquakes;'), 9332, 'all arrived');
is( $session->safe('SELECT count(*), count(DISTINCT network), sum(count) FROM earthquakes_latest;'),
	'22|14|9332', 'keys, networks and events in live');
is( $session->safe('SELECT count(*), count(DISTINCT network), sum(count) FROM earthquakes_latest_current;'),
	'22|14|9332', 'and in _current');

# a revision of history: every record of one network goes, another moves
$session->safe("DELETE FROM earthquakes WHERE network = 'uw';");
$session->safe("UPDATE earthquakes SET occurred_at = occurred_at - interval '40 days', mag = mag + 0.1 WHERE network = 'hv';");
is($session->safe('SELECT current_differs();'), 0, '_current is exact with much of it waiting');
is( $session->safe("SELECT action FROM rollup_refresh('earthquakes_latest', '$days[-1] 00:00+00');"),
	'late', 'a refresh to the same day');
is($session->safe('SELECT live_differs();'), 0, 'live is exact after it');
is($session->safe("SELECT count(*) FROM earthquakes_latest WHERE network = 'uw';"),
	0, 'a network without a record has no row');

$session->quit;
$node->stop;
done_testing();
