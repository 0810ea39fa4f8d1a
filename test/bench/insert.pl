# Single-row INSERTs in mode on against the same table without the extension: as
# they are, by two clients; and the statement alone, by one client that does not
# wait for the disk.  There also against triggers by hand that compare with a
# constant: what is left is what it takes to know the constant, the late probe.
# Latency: the mean of the middle half, since pgbench knows whole microseconds only.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
$Bench::rounds *= 4;             # short ones: the machine's mood changes
for (qw(insert_with insert_without insert_by_hand)) {
  $psql->run("SELECT bench.make_source('$_', true, 0, 4); SELECT bench.make_index('$_')");
  $psql->run("INSERT INTO $_.signals SELECT * FROM bench.events(2, least($rows, 100000))");
}
$psql->run("SELECT bench.make_rollup('insert_with', 'on'); SELECT bench.refresh('insert_with', 3)");
$psql->run("SELECT bench.make_constant_triggers('insert_by_hand', 3)");

my %inserted;
sub insert {
  my ($schema, @options) = @_;
  my @ms = script_latency('\set s random(0, 19999)' . "\n" . '\set ms random(0, 86399999)' . "\n"
      . "INSERT INTO $schema.signals VALUES ('vehicle-' || :s, 'speed', '2024-01-04 00:00+00'::timestamptz + :ms * interval '1 ms', 50, NULL, NULL, NULL, 'event')",
    '-M', 'prepared', '-T', $ENV{BENCH_SECONDS}, @options);
  $inserted{$schema} += @ms;
  return middle(@ms);
}
my @two = ('-c', 2, '-j', 2);
my %two = interleave(
  without => sub { insert('insert_without', @two) },
  with => sub { insert('insert_with', @two) });
$ENV{PGOPTIONS} = '-c synchronous_commit=off';
my %one = interleave(
  without => sub { insert('insert_without') },
  by_hand => sub { insert('insert_by_hand') },
  with => sub { insert('insert_with') });
delete $ENV{PGOPTIONS};

for (sort keys %inserted) {
  expect("rows in $_", $psql->run(qq{SELECT count(*) FROM $_.signals WHERE "timestamp" >= bench.midnight(3)}), $inserted{$_});
}
expect('late keys', $psql->run("SELECT count(*) FROM rollup_late WHERE rollup = 'insert_with.signals_latest'::regclass"), 0);
$psql->run("SELECT bench.refresh('insert_with', 4)");
expect('rows that rollup_verify finds', $psql->run("SELECT count(*) FROM rollup_verify('insert_with.signals_latest')"), 0);
result('single-row INSERT, latency, two clients', 'without the extension', $two{with} / $two{without}, '<= 1.03');
result('single-row INSERT, latency, synchronous_commit off', 'without the triggers', $one{with} / $one{without}, '<= 1.03');
result('single-row INSERT, latency, synchronous_commit off, less triggers by hand', 'without the triggers',
  1 + ($one{with} - $one{by_hand}) / $one{without}, '<= 1.03');
$psql->run("SELECT rollup_drop('insert_with.signals_latest', true); DROP SCHEMA insert_with CASCADE; DROP SCHEMA insert_without CASCADE; DROP SCHEMA insert_by_hand CASCADE");
