# COPY in mode on, into a plain and a partitioned source with its index, without
# late rows and with 1% of them, against the same table without the extension.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
my $count = int($rows / 4);
my %file = map { $_ => scratch("copy_$_.csv") } qw(none some);
$psql->run("COPY (SELECT * FROM bench.events(3, $count, 0)) TO '$file{none}'");
$psql->run("COPY (SELECT * FROM bench.events(3, $count, 0.01)) TO '$file{some}'");

# a fresh table each time, with or without a rollup that is exact before day 3
sub make {
  my ($schema, $partitioned, $rollup) = @_;
  $psql->run("SELECT rollup_drop('$schema.signals_latest', true)") if $psql->run("SELECT to_regclass('$schema.signals_latest') IS NOT NULL") eq 't';
  $psql->run("SELECT bench.make_source('$schema', $partitioned, 0, 4); SELECT bench.make_index('$schema')");
  $psql->run("SELECT bench.make_rollup('$schema', 'on'); SELECT bench.refresh('$schema', 3)") if $rollup;
  return;
}
sub copy {
  my ($schema, $partitioned, $rollup, $file) = @_;
  make($schema, $partitioned, $rollup);
  my ($ms) = $psql->time("COPY $schema.signals FROM '$file'");
  expect('rows', $psql->run("SELECT count(*) FROM $schema.signals"), $count);
  return $ms;
}

for my $late (qw(none some)) {
  for my $partitioned ('false', 'true') {
    my %ms = interleave(
      without => sub { copy('copy_without', $partitioned, 0, $file{$late}) },
      with => sub { copy('copy_with', $partitioned, 1, $file{$late}) });
    my $marked = $psql->run("SELECT count(*) FROM rollup_late WHERE rollup = 'copy_with.signals_latest'::regclass");
    my $wanted = $psql->run('SELECT count(*) FROM (SELECT DISTINCT subject, name FROM copy_with.signals WHERE "timestamp" < bench.midnight(3)) k');
    expect('late keys', $marked, $wanted);
    $psql->run("SELECT bench.refresh('copy_with', 4)");
    expect('rows that rollup_verify finds', $psql->run("SELECT count(*) FROM rollup_verify('copy_with.signals_latest')"), 0);
    result("COPY of $count rows, " . ($partitioned eq 'true' ? 'partitioned' : 'plain') . ($late eq 'some' ? ', 1% late' : ''),
      'without the extension', $ms{with} / $ms{without}, $late eq 'some' ? '<= 1.1' : '<= 1.02');
  }
}
$psql->run("SELECT rollup_drop('copy_with.signals_latest', true); DROP SCHEMA copy_with CASCADE; DROP SCHEMA copy_without CASCADE");
