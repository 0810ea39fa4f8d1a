# The daily refresh against DuckDB's own fold of the same rows, in its memory,
# with two threads; where node and @duckdb/node-api are there.
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
my ($rows_file, $fold_file) = (scratch('day.csv'), scratch('fold.csv'));
my $columns = q{subject, name, (extract(epoch FROM "timestamp") * 1000000)::bigint AS ts, value_number, value_string, loc_lat, loc_lon, cloud_event_id};
$psql->run(qq{COPY (SELECT $columns FROM lake.signals WHERE "timestamp" >= bench.midnight($days)) TO '$rows_file' (FORMAT csv)});
my $pid = open2(my $out, my $in, 'node', "$FindBin::RealBin/duckdb.js", $rows_file, $fold_file);
my $duckdb = sub { print $in "fold\n"; $in->flush; my $ms = readline $out; die "duckdb.pl: DuckDB ended\n" unless defined $ms; chomp $ms; return $ms };

# the same content?
$duckdb->();
$psql->run(q{CREATE TEMP TABLE theirs (subject text, name text, ts bigint, value_number float8, value_number_ts bigint, value_string text,
  value_string_ts bigint, loc_lat float8, loc_lon float8, loc_ts bigint, count bigint, first_seen bigint, last_seen bigint)});
$psql->run("COPY theirs FROM '$fold_file' (FORMAT csv)");
my $ours = $psql->run(qq{SELECT bench.definition(bench.deduplicated('lake.signals', format('WHERE "timestamp" >= %L', bench.midnight($days))))});
my $micros = join ', ', map { /ts$|seen$|timestamp/ ? "(extract(epoch FROM $_) * 1000000)::bigint" : $_ }
  qw(subject name "timestamp" value_number value_number_ts value_string value_string_ts loc_lat loc_lon loc_ts count first_seen last_seen);
expect("differences from DuckDB's fold", $psql->run("SELECT bench.differences('TABLE theirs', \$q\$SELECT $micros FROM ($ours) q\$q\$)"), 0);

my %ms = interleave(
  refresh => sub { refresh_lake($psql, $days + 1) },
  duckdb => $duckdb);
print $in "end\n";
close $in;
waitpid $pid, 0;
result('refresh of one day', "DuckDB's fold of the same rows, two threads", $ms{refresh} / $ms{duckdb}, '< 1');
