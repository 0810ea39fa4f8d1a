# Real data in each mode: 115,088 positions of 247 buses over four local days,
# loaded day by day as they lie in the file, by trip, so that nearly all rows are
# out of order, and each day crosses a midnight of UTC.
#
# Two sources: a plain one where events are delivered twice, also some that are
# days old (with another speed, which must not count), and midnights of UTC; one
# partitioned by local day, with a primary key and midnights of Chicago.  A
# twentieth of each day's rows comes a day late.  Each source has a rollup in
# state off, shadow and on, and one that goes through all of them: off, shadow,
# promoted, on, off, shadow.  The clock of the passes is set by dailyrollup.delay.
#
# Live, _current and the shadow are compared with plain SQL over the rows that
# were loaded.  Fails when the write-time fold merges an event that was there
# already (append_best() in folding.c).
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

my $file = ($ENV{DR_TEST_DATA} // '') . '/buses.csv';
plan skip_all => 'the real data is absent: DR_TEST_DATA names no folder with buses.csv'
  if !defined $ENV{DR_TEST_DATA} || !-r $file;

my $node = PostgreSQL::Test::Cluster->new('buses');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\nlog_min_messages = warning\n");
$node->start;

my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$session->safe("LOAD 'dailyrollup'; SET client_min_messages = warning; SET timezone = 'UTC';");

my @days = map { "2016-11-$_" } 24 .. 27;

# expected_<source>(before) is the oracle; wrong(rollup) the rows by which live,
# the shadow and _current differ from it.
$session->safe(<<'SQL');
CREATE EXTENSION dailyrollup;
CREATE TABLE plain (arrival bigserial, vehicle_id text NOT NULL, recorded_at timestamptz NOT NULL,
	route_id text, speed float8, latitude float8, longitude float8);
CREATE INDEX ON plain (vehicle_id, recorded_at);
CREATE TABLE parted (arrival bigserial, vehicle_id text, recorded_at timestamptz,
	route_id text, speed float8, latitude float8, longitude float8,
	PRIMARY KEY (vehicle_id, recorded_at)) PARTITION BY RANGE (recorded_at);
DO $$
BEGIN
	EXECUTE (SELECT string_agg(format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES FROM (%L) TO (%L)',
		d, '2016-11-01 00:00-06'::timestamptz + (d - 1) * interval '1 day', '2016-11-01 00:00-06'::timestamptz + d * interval '1 day'), ';')
		FROM generate_series(23, 28) d);
END $$;

CREATE FUNCTION make(source text, suffix text) RETURNS regclass LANGUAGE sql AS $$
	SELECT rollup_create(source || '_' || suffix, format('
		SELECT vehicle_id, count(*) AS count, max(speed) AS max_speed,
		       min(recorded_at) AS first_seen, max(recorded_at) AS last_seen, latest(route_id, recorded_at) AS route_id,
		       latest(latitude, recorded_at) FILTER (WHERE latitude <> 0 OR longitude <> 0) AS latitude,
		       latest(longitude, recorded_at) FILTER (WHERE latitude <> 0 OR longitude <> 0) AS longitude,
		       max(recorded_at) FILTER (WHERE latitude <> 0 OR longitude <> 0) AS fix_at,
		       latest(speed, recorded_at) FILTER (WHERE speed > 20) AS last_fast,
		       max(recorded_at) FILTER (WHERE speed > 20) AS last_fast_at
		FROM %s GROUP BY vehicle_id', source),
		time_column => 'recorded_at', dedup_by => '{vehicle_id,recorded_at}', dedup_order => '{arrival}',
		mode => CASE suffix WHEN 'all' THEN 'off' ELSE suffix END,
		time_zone => CASE source WHEN 'parted' THEN 'America/Chicago' ELSE 'UTC' END) $$;

DO $$
DECLARE
	source text;
BEGIN
	FOREACH source IN ARRAY array['plain', 'parted'] LOOP
		EXECUTE replace('CREATE FUNCTION expected_SOURCE(before timestamptz) RETURNS TABLE (vehicle_id text, count bigint,
			max_speed float8, first_seen timestamptz, last_seen timestamptz, route_id text, latitude float8, longitude float8,
			fix_at timestamptz, last_fast float8, last_fast_at timestamptz) LANGUAGE sql STABLE AS $x$
			WITH first AS MATERIALIZED (
				SELECT DISTINCT ON (s.vehicle_id, s.recorded_at) s.* FROM SOURCE s
				WHERE before IS NULL OR s.recorded_at < before ORDER BY s.vehicle_id, s.recorded_at, s.arrival),
			counted AS MATERIALIZED (
				SELECT f.vehicle_id, count(*), max(f.speed), min(f.recorded_at) AS first_seen, max(f.recorded_at) AS last_seen
				FROM first f GROUP BY f.vehicle_id),
			last AS MATERIALIZED (
				SELECT DISTINCT ON (f.vehicle_id) f.* FROM first f ORDER BY f.vehicle_id, f.recorded_at DESC),
			fast AS MATERIALIZED (
				SELECT DISTINCT ON (f.vehicle_id) f.* FROM first f WHERE f.speed > 20 ORDER BY f.vehicle_id, f.recorded_at DESC)
			SELECT c.*, l.route_id, l.latitude, l.longitude, l.recorded_at, f.speed, f.recorded_at
			FROM counted c JOIN last l USING (vehicle_id) LEFT JOIN fast f USING (vehicle_id) $x$', 'SOURCE', source);
	END LOOP;
END $$;
CREATE TEMP TABLE settled AS SELECT NULL::timestamptz AS before, * FROM expected_plain(NULL) WITH NO DATA;

CREATE FUNCTION differ(relation text, instant timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM (
		(SELECT * FROM %1$s EXCEPT ALL SELECT %2$s FROM settled WHERE before = %3$L) UNION ALL
		(SELECT %2$s FROM settled WHERE before = %3$L EXCEPT ALL SELECT * FROM %1$s)) d
		WHERE NOT EXISTS (SELECT FROM waiting w WHERE w.vehicle_id = d.vehicle_id)', relation,
		'vehicle_id, count, max_speed, first_seen, last_seen, route_id, latitude, longitude, fix_at, last_fast, last_fast_at',
		instant) INTO n;
	RETURN n;
END $$;
CREATE TEMP TABLE waiting (vehicle_id text);

-- the oracles are computed once for all rollups of a source
CREATE FUNCTION compare(source text) RETURNS TABLE (rollup text, live bigint, shadow bigint, current bigint) LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	DELETE FROM settled;
	EXECUTE format('INSERT INTO settled SELECT b.before, e.* FROM (
			SELECT ''infinity''::timestamptz AS before UNION SELECT watermark FROM dailyrollup.rollups WHERE source = %1$L::regclass AND watermark IS NOT NULL
			UNION SELECT shadow_watermark FROM dailyrollup.rollups WHERE source = %1$L::regclass AND shadow_watermark IS NOT NULL) b,
		expected_%1$s(b.before) e', source);
	FOR r IN SELECT * FROM dailyrollup.rollups x WHERE x.source = compare.source::regclass LOOP
		rollup := r.live::text;
		DELETE FROM waiting;
		current := differ(r.current_view::text, 'infinity');
		EXECUTE format('INSERT INTO waiting SELECT k1 FROM %s', r.marks);
		live := differ(r.live::text, CASE r.state WHEN 'on' THEN r.watermark ELSE 'infinity' END);
		shadow := CASE WHEN r.shadow_watermark IS NOT NULL THEN differ(r.shadow::text, r.shadow_watermark) ELSE 0 END;
		RETURN NEXT;
	END LOOP;
END $$;
SQL
for my $source (qw(plain parted))
{
	$session->safe("SELECT make('$source', '$_');") for qw(off shadow on all);
}

# The clock of the passes: half past three of that day in Chicago.
sub clock
{
	my ($day) = @_;

	my $delay = $session->safe("SELECT extract(epoch FROM clock_timestamp() - '$day 03:30-06')::bigint;");
	$session->safe("ALTER SYSTEM SET dailyrollup.delay = '$delay s';");
	$session->safe('SELECT pg_reload_conf();');
	for (1 .. 200)
	{
		return if $session->safe("SELECT setting FROM pg_settings WHERE name = 'dailyrollup.delay';") == $delay;
		$session->safe('SELECT pg_sleep(0.02);');
	}
	die 'the delay does not arrive';
}

# The file's rows by day; a twentieth of them a day late.
my %rows;
open my $in, '<', $file or die "$file: $!";
readline $in;
while (my $row = readline $in)
{
	my (undef, $at) = split /,/, $row, 3;
	my ($day) = grep { $days[$_] eq substr $at, 0, 10 } 0 .. $#days;
	$day++ if $. % 20 == 0 && $day < $#days;
	push @{ $rows{ $days[$day] } }, $row;
}
close $in;

sub load
{
	my ($source, @load) = @_;
	my $part = "$PostgreSQL::Test::Utils::tmp_check/part.csv";

	open my $out, '>', $part or die "$part: $!";
	print $out @load;
	close $out;
	$session->safe("\\copy $source (vehicle_id, recorded_at, route_id, speed, latitude, longitude) FROM '$part' (FORMAT csv)");
	return;
}

my ($compared, @wrong) = (0);

sub compare
{
	my ($what) = @_;

	for my $line (map { split /\n/, $session->safe("SELECT * FROM compare('$_');") } qw(plain parted))
	{
		$compared++;
		push @wrong, "$what: $line" if $line !~ /\|0\|0\|0$/;
	}
	return;
}

sub is_exact
{
	my ($what) = @_;

	is(join("\n", @wrong), '', "$what: live, shadow and _current are exact");
	@wrong = ();
	return;
}

sub states
{
	return $session->safe('SELECT string_agg(state, $$ $$ ORDER BY rollup::text) FROM rollup_status;');
}

clock($days[0]);
is($session->run('CALL rollup_run();'), '', 'a pass over nothing');

# what becomes of the rollups that go through all modes, before and after a day
my %journey = (
	$days[1] => [ "SELECT rollup_alter(r, mode => 'shadow') FROM unnest('{plain_all,parted_all}'::regclass[]) r; CALL rollup_run();", '' ],
	$days[2] => [ '', "SELECT rollup_promote('plain_all'), rollup_promote('parted_all');" ],
	$days[3] => [ '', "SELECT rollup_alter(r, mode => 'off') FROM unnest('{plain_all,parted_all}'::regclass[]) r; CALL rollup_run();" ]);
my %states = (
	$days[0] => 'off off on shadow off off on shadow',
	$days[1] => 'shadow off on shadow shadow off on shadow',
	$days[2] => 'on off on shadow on off on shadow',
	$days[3] => 'off off on shadow off off on shadow');
my ($first_day, @again) = ();

for my $day (@days)
{
	my @today = @{ $rows{$day} };
	my $half = @today / 2;

	if ($journey{$day} && $journey{$day}[0])
	{
		$session->safe($journey{$day}[0]);
		compare("$day, in the morning");
	}
	load($_, @today[ 0 .. $half - 1 ]) for qw(plain parted);
	compare("$day, at noon");
	load($_, @today[ $half .. $#today ]) for qw(plain parted);
	# once more, with a speed that must not count
	@again = map { my @f = split /,/; $f[3] += 1; join ',', @f } @today[ map { $_ * 15 } 0 .. $#today / 15 ];
	$first_day //= \@again;
	load('plain', @again, $day eq $days[3] ? @$first_day : ());
	compare("$day, in the evening");

	my ($next) = $day =~ /(\d+)$/;
	clock('2016-11-' . ($next + 1));
	is($session->run('CALL rollup_run();'), '', "$day: a pass");
	compare("$day, after the pass");
	if ($journey{$day} && $journey{$day}[1])
	{
		$session->safe($journey{$day}[1]);
		compare("$day, at the end");
	}
	is(states(), $states{$day}, "$day: the states");
	is_exact($day);
	is( $session->safe("SELECT DISTINCT source, watermark FROM rollup_status WHERE state <> 'off' ORDER BY 1;"),
		sprintf("plain|2016-11-%02d 00:00:00+00\nparted|2016-11-%02d 06:00:00+00", $next + 1, $next + 1),
		"$day: a midnight of UTC, and one of Chicago");
	is($session->safe("SELECT count(*) FROM rollup_runs WHERE outcome <> 'ok';"), 0, "$day: every step went well, no diff found anything");
}
is($compared, 8 * (3 * @days + 3), 'all compared');

# and the last change
$session->safe("SELECT rollup_alter(r, mode => 'shadow') FROM unnest('{plain_all,parted_all}'::regclass[]) r; CALL rollup_run();");
compare('shadow again');
is_exact('shadow again');
is(states(), 'shadow off on shadow shadow off on shadow', 'shadow again');

is($session->safe('SELECT count(*) FROM parted;'), 115088, 'all rows were loaded');
is( $session->safe('SELECT string_agg(format($$%s %s$$, count, sum), $$, $$) FROM (
		SELECT count(*), sum(count) FROM plain_off UNION ALL SELECT count(*), sum(count) FROM parted_all
		UNION ALL SELECT count(*), sum(count) FROM plain_on_current UNION ALL SELECT count(*), sum(count) FROM parted_on_current) x;'),
	join(', ', ('247 115088') x 4), 'buses and positions');
cmp_ok($session->safe("SELECT sum(late_keys) FROM rollup_runs WHERE rollup IN ('plain_on'::regclass, 'parted_on'::regclass);"),
	'>', 247, 'late keys were healed');
cmp_ok($session->safe('SELECT count(*) FROM plain;'), '>', 115088 + 5000, 'many events were delivered twice');
is($session->safe("SELECT string_agg(format('%s %s', rollup, d), ', ') FROM rollup_status, rollup_verify(rollup) d;"), '', 'rollup_verify agrees');
is($session->safe('SELECT count(*) FROM rollup_check() WHERE rows <> keys;'), 0, 'rows = keys');

$session->quit;
$node->stop;
done_testing();
