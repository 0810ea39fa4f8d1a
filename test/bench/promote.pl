# A promote of many keys that agree already, and that all differ, against an
# INSERT ... SELECT of the table into one with the same index.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
my $count = int($rows / 4);
my %differs = (agree => 0, differ => 1);
for my $schema (map { "promote_$_" } sort keys %differs) {
  $psql->run("SELECT bench.make_source('$schema', false, 0, 0)");
  $psql->run(qq{INSERT INTO $schema.signals SELECT 'vehicle-' || i / 20, 'signal-' || i % 20, bench.midnight(1), i, NULL, NULL, NULL, 'event-' || i
    FROM generate_series(1, $count) i});
  $psql->run("SELECT bench.make_index('$schema'); VACUUM ANALYZE $schema.signals");
  my ($differs) = map { $differs{ s/promote_//r } } $schema;
  my $definition = $psql->run("SELECT bench.definition('$schema.signals')");
  $psql->run("CREATE TABLE $schema.signals_latest AS $definition;
    UPDATE $schema.signals_latest SET count = count + 1 WHERE $differs = 1;
    ALTER TABLE $schema.signals_latest ADD UNIQUE NULLS NOT DISTINCT (subject, name); VACUUM FULL $schema.signals_latest");
  $psql->run("SELECT bench.make_rollup('$schema', 'shadow'); CALL rollup_run('$schema.signals_latest'); VACUUM ANALYZE $schema.signals_latest");
}
$psql->run("CREATE TABLE bench.copy (LIKE promote_agree.signals_latest INCLUDING INDEXES)");

my $promote = q{SELECT action, rows, keys, replaced_rows FROM rollup_promote('%s.signals_latest')};
sub promote {
  my ($which) = @_;
  my ($ms, $said) = in_transaction($psql, sprintf $promote, "promote_$which");
  expect("$which: promote", $said, "promoted|$count|$count|$count");
  settle($psql, "promote_$which.signals_latest");
  return $ms;
}
sub insert {
  my $ms = in_transaction($psql, 'INSERT INTO bench.copy SELECT * FROM promote_agree.signals_latest');
  $psql->run('TRUNCATE bench.copy');
  return $ms;
}
for (sort keys %differs) {
  my ($difference, $wanted) = ($psql->run("SELECT count(*) FROM rollup_diff('promote_$_.signals_latest')"), $differs{$_} * $count);
  expect("$_: differing keys before", $difference, $wanted);
  my (undef, $said) = in_transaction($psql, sprintf("$promote; SELECT count(*) FROM rollup_verify('%s.signals_latest')", ("promote_$_") x 2));
  expect("$_: rows that rollup_verify finds", $said =~ /\n(\d+)$/ ? $1 : $said, 0);
  settle($psql, "promote_$_.signals_latest");
}
my %ms = interleave(insert => \&insert, agree => sub { promote('agree') }, differ => sub { promote('differ') });
result("promote of $count keys that agree", 'INSERT ... SELECT', $ms{agree} / $ms{insert}, '<= 1.5');
result("promote of $count keys that differ", 'INSERT ... SELECT', $ms{differ} / $ms{insert}, '<= 3');
$psql->run("SELECT rollup_drop('promote_$_.signals_latest', true); DROP SCHEMA promote_$_ CASCADE") for sort keys %differs;
$psql->run('DROP TABLE bench.copy');
