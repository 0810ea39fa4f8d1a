# The write-time fold (mode off) in transactions of 1,000 rows against a
# trigger by hand that is as exact; and pg_ivm, where it is installed, which
# keeps counts and extremes of all rows, duplicates too.  Both the whole
# statement, and what it takes more than into a table without any fold.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
my ($history, $batch, $batches) = (int($rows / 4), 1000, 10);
my $ivm = installed($psql, 'pg_ivm');
my @folding = (qw(off trigger), $ivm ? 'ivm' : ());
my @variants = (@folding, 'none');

for my $schema (map { "fold_$_" } @variants) {
  $psql->run("SELECT bench.make_source('$schema', false, 0, 0)");
  $psql->run("INSERT INTO $schema.signals SELECT * FROM bench.events(1, $history)");
  $psql->run("SELECT bench.make_index('$schema'); VACUUM ANALYZE $schema.signals");
}
$psql->run("SELECT bench.make_rollup('fold_off', 'off'); CALL rollup_run('fold_off.signals_latest')");
$psql->run("SELECT bench.make_trigger('fold_trigger')");
$psql->run(q{CREATE EXTENSION IF NOT EXISTS pg_ivm; SET search_path = public, pgivm; SELECT create_immv('fold_ivm.signals_latest',
  'SELECT subject, name, count(*) AS count, min("timestamp") AS first_seen, max("timestamp") AS last_seen FROM fold_ivm.signals GROUP BY subject, name');
  RESET search_path})
  if $ivm;
$psql->run("VACUUM ANALYZE fold_$_.signals_latest") for @folding;

# what will arrive, the same for each; each batch a transaction
$psql->run("CREATE TABLE bench.arrivals AS SELECT (row_number() OVER () - 1) / $batch AS batch, e.* FROM bench.events(2, $batch * $batches * $rounds) e;
  CREATE INDEX ON bench.arrivals (batch); VACUUM ANALYZE bench.arrivals");
sub fold {
  my ($schema, $round) = @_;
  my @ms;
  for my $n (($round - 1) * $batches .. $round * $batches - 1) {
    push @ms, ($psql->time("INSERT INTO $schema.signals SELECT subject, name, \"timestamp\", value_number, value_string, loc_lat, loc_lon, cloud_event_id
      FROM bench.arrivals WHERE batch = $n"))[0];
  }
  return median(@ms);
}
my %ms = interleave(map { my $schema = "fold_$_"; ($_ => sub { fold($schema, @_) }) } @variants);
expect('rows that rollup_verify finds', $psql->run("SELECT count(*) FROM rollup_verify('fold_off.signals_latest')"), 0);
expect('differences from the trigger', $psql->run("SELECT bench.differences('TABLE fold_off.signals_latest', 'TABLE fold_trigger.signals_latest')"), 0);
expect('rows counted by pg_ivm', $psql->run('SELECT (SELECT sum(count) FROM fold_ivm.signals_latest) = (SELECT count(*) FROM fold_ivm.signals)'), 't') if $ivm;
my %rival = (trigger => 'a trigger by hand', ivm => 'pg_ivm, less exact');
my %target = (trigger => '<= 0.333', ivm => '');
for my $rival (qw(trigger ivm)) {
  my $left_out = exists $ms{$rival} ? undef : 'left out: not installed';
  result("write-time fold, batches of $batch", $rival{$rival}, $left_out // $ms{off} / $ms{$rival}, $target{$rival});
  result("write-time fold, batches of $batch, less the INSERT without it", "$rival{$rival}, less the same",
    $left_out // ($ms{off} - $ms{none}) / ($ms{$rival} - $ms{none}), '');
}
$psql->run("SELECT rollup_drop('fold_off.signals_latest', true); DROP TABLE bench.arrivals");
$psql->run("DROP SCHEMA fold_$_ CASCADE") for @variants;
