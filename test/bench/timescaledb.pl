# TimescaleDB's continuous aggregate, where TimescaleDB 2.18 or later is
# installed: in a database of its own a hypertable of the lake's rows, a chunk a
# day, and the same measures for each key and day.  It keeps less than the rollup:
# it counts what was delivered twice, and the state of a key is yet to be put
# together from its days.
#
# A refresh of one day, and one for a single late row, against a scan of the day
# in the hypertable and against the rollup's own.  A refresh commits, so it can
# not be undone: before each the day's rows are deleted, and it is forced.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $lake = session();
my ($day, $late) = ("TimescaleDB's refresh of one day, no deduplication", "TimescaleDB's refresh for it");

sub left_out {
  result('refresh of one day', $day, "left out: $_[0]", '');
  result('one late row', $late, "left out: $_[0]", '');
  exit;
}
left_out('not installed') unless installed($lake, 'timescaledb');
$lake->run('CREATE DATABASE timescaledb');
my $psql = session_in('timescaledb');
$psql->run('CREATE EXTENSION timescaledb');
left_out('older than 2.18') unless $psql->run("SELECT count(*) FROM pg_proc WHERE proname = 'refresh_continuous_aggregate' AND 'force' = ANY (proargnames)");
left_out('no continuous aggregates in it') if $psql->run('SHOW timescaledb.license') ne 'timescale';
lake($lake, $days);

# --- the hypertable and its aggregate -----------------------------------------

note("the hypertable, $rows rows a day");
$psql->run("\\i $FindBin::RealBin/workload.sql");
$psql->run(q{SELECT bench.make_source('lake', false, 0, 0);
  SELECT create_hypertable('lake.signals', by_range('timestamp', interval '1 day'), create_default_indexes => false)});
$psql->run("INSERT INTO lake.signals SELECT * FROM bench.events($_, $rows)") for 0 .. $days;
$psql->run("SELECT bench.make_index('lake'); VACUUM ANALYZE lake.signals");

my $definition = $psql->run("SELECT bench.definition('lake.signals')") =~ s/\blatest\(/last(/gr
  =~ s/SELECT/SELECT time_bucket(interval '1 day', "timestamp") AS day,/r =~ s/GROUP BY/GROUP BY day,/r;
$psql->run("CREATE MATERIALIZED VIEW lake.signals_daily WITH (timescaledb.continuous, timescaledb.materialized_only = true) AS $definition WITH NO DATA");
my $stored = $psql->run(q{SELECT format('%I.%I', materialization_hypertable_schema, materialization_hypertable_name) FROM timescaledb_information.continuous_aggregates});
sub refresh {
  my ($from, $to, $options) = @_;
  my ($ms) = $psql->time("CALL refresh_continuous_aggregate('lake.signals_daily', bench.midnight($from), bench.midnight($to) $options)");
  settle($psql, $stored);
  return $ms;
}
refresh(-3, $days + 1, '');

sub refresh_day {
  $psql->run(qq{DELETE FROM $stored WHERE day = bench.midnight($days)});
  settle($psql, $stored);
  checkpoint();
  return refresh($days, $days + 1, ', force => true');
}
sub refresh_late {
  $psql->run("SELECT bench.late_row('lake.signals', $days) \\gexec");
  checkpoint();
  return refresh(-3, $days + 1, '');
}

# Is it what the source has?  The latest values aside: of two at one instant it takes either.
sub check {
  my $columns = 'subject, name, "timestamp", value_number_ts, value_string_ts, loc_ts, count, first_seen, last_seen';
  my $query = $definition =~ s/'/''/gr;
  expect("$_[0]: differences", $psql->run("SELECT bench.differences('SELECT day, $columns FROM lake.signals_daily', 'SELECT day, $columns FROM ($query) q')"), 0);
  return;
}
refresh_day();
check('a day');
my $before = $psql->run('SELECT pg_snapshot_xmax(pg_current_snapshot())');
refresh_late();
check('a late row');
note('for one late row it wrote ' . $psql->run("SELECT format('%s rows of %s', count(*) FILTER (WHERE xmin::text::bigint >= $before), count(*)) FROM $stored WHERE day = bench.midnight($days - 1)"));

# --- the times ----------------------------------------------------------------

my $one = session_in('timescaledb', 'max_parallel_workers_per_gather = 0', 'enable_sort = off', 'enable_indexscan = off', 'enable_bitmapscan = off');
my $hash = $one->run("SELECT bench.scan_and_hash('lake.signals', $days)");
my $scan = qq{SELECT count(value_number) FROM lake.signals WHERE "timestamp" >= bench.midnight($days) AND "timestamp" < bench.midnight($days + 1)};
my $late_row = $lake->run("SELECT bench.late_row('lake.signals', $days)");
my %ms = interleave(
  hash => sub { ($one->time($hash))[0] },
  scan => sub { ($one->time($scan))[0] },
  day => \&refresh_day,
  late => \&refresh_late,
  our_day => sub { refresh_lake($lake, $days + 1) },
  our_late => sub {
    my ($ms, $said) = refresh_lake($lake, $days, $late_row);
    expect('a late row', $said, 'late|0|1');
    return $ms;
  });
check('after the rounds');
result('refresh of one day', $day, $ms{our_day} / $ms{day}, '');
result('one late row', $late, $ms{our_late} / $ms{late}, '');
result('TimescaleDB: refresh of one day', 'scan and hash of the day', $ms{day} / $ms{hash}, '');
result('TimescaleDB: one late row', 'scan and hash of the day', $ms{late} / $ms{hash}, '');
result('TimescaleDB: one late row', 'scan of the day', $ms{late} / $ms{scan}, '');
result('TimescaleDB: one late row', 'its refresh of one day', $ms{late} / $ms{day}, '');
