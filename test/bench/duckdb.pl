# The daily refresh against DuckDB's own fold of the same rows, in its memory,
# with two threads; and against the same merged into a table of DuckDB's in a
# file, which is written anew, and committed.  Where node and @duckdb/node-api are there.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;
use IPC::Open2;

unless ($ENV{BENCH_DUCKDB}) {
  result('refresh of one day', 'DuckDB', 'left out: no node, or no @duckdb/node-api', '< 1');
  exit;
}
my $psql = session();
lake($psql, $days);
my ($rows_file, $before_file, $database_file, $results) = map { scratch($_) } qw(day.csv before.csv live.duckdb theirs);
my $time = sub { my ($column, $name) = @_; return qq{(extract(epoch FROM "$column") * 1000000)::bigint AS } . ($name // $column) };
my $event = join ', ', 'subject, name', $time->('timestamp', 'ts'), 'value_number, value_string, loc_lat, loc_lon, cloud_event_id';
my $row = join ', ', 'subject, name', $time->('timestamp', 'ts'), 'value_number', $time->('value_number_ts'), 'value_string', $time->('value_string_ts'),
  'loc_lat, loc_lon', $time->('loc_ts'), 'count', $time->('first_seen'), $time->('last_seen');
$psql->run(qq{COPY (SELECT $event FROM lake.signals WHERE "timestamp" >= bench.midnight($days)) TO '$rows_file' (FORMAT csv)});
$psql->run("COPY (SELECT $row FROM lake.signals_latest) TO '$before_file' (FORMAT csv)");
my $pid = open2(my $out, my $in, 'node', "$FindBin::RealBin/duckdb.js", $rows_file, $before_file, $database_file, $results);
sub duckdb {
  my ($what) = @_;
  print $in "$what\n";
  $in->flush;
  my $ms = readline $out;
  die "duckdb.pl: DuckDB ended\n" unless defined $ms;
  chomp $ms;
  return $ms;
}

# the same content?
sub same {
  my ($what, $query) = @_;
  duckdb($what);
  $psql->run(q{DROP TABLE IF EXISTS theirs; CREATE TEMP TABLE theirs (subject text, name text, ts bigint, value_number float8,
    value_number_ts bigint, value_string text, value_string_ts bigint, loc_lat float8, loc_lon float8, loc_ts bigint, count bigint,
    first_seen bigint, last_seen bigint)});
  $psql->run("COPY theirs FROM '$results.$what' (FORMAT csv)");
  expect("$what: differences from DuckDB's", $psql->run("SELECT bench.differences('TABLE theirs', \$q\$SELECT $row FROM ($query) q\$q\$)"), 0);
  return;
}
same('fold', $psql->run(qq{SELECT bench.definition(bench.deduplicated('lake.signals', format('WHERE "timestamp" >= %L', bench.midnight($days))))}));
$psql->run("BEGIN; SELECT bench.refresh('lake', $days + 1)");
same('merge', 'TABLE lake.signals_latest');
$psql->run('ROLLBACK');
settle($psql, 'lake.signals_latest');

my %ms = interleave(
  refresh => sub { refresh_lake($psql, $days + 1) },
  fold => sub { duckdb('fold') },
  merge => sub { duckdb('merge') });
print $in "end\n";
close $in;
waitpid $pid, 0;
result('refresh of one day', "DuckDB's fold of the same rows, two threads", $ms{refresh} / $ms{fold}, '< 1');
result('refresh of one day', 'the same, merged into a table in a file', $ms{refresh} / $ms{merge}, '< 1');
