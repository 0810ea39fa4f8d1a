# Late keys are recomputed: 1% of the keys, a row each, and one single row,
# against the daily refresh.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
lake($psql, $days);

# each in its transaction: rows of the day before the watermark, which come now
sub arrive {
  my ($condition, $limit) = @_;
  return qq{INSERT INTO lake.signals
    SELECT subject, name, bench.midnight($days) - interval '12 hours' * bench.random(hashtext(subject || name), 1), 1, NULL, NULL, NULL, 'late'
    FROM lake.signals_latest WHERE $condition LIMIT $limit};
}
my $condition = 'bench.random(hashtext(name || subject), 2) < 0.01';
my $late_keys = $psql->run("SELECT count(*) FROM lake.signals_latest WHERE $condition");
my %arrive = (one => arrive('true', 1), percent => arrive($condition, $keys));
my %late_keys = (one => 1, percent => $late_keys);

for (sort keys %arrive) {
  my (undef, $said) = in_transaction($psql, "SELECT * FROM bench.refresh('lake', $days); SELECT count(*) FROM rollup_verify('lake.signals_latest')", $arrive{$_});
  expect("late: $_", $said, "late|0|$late_keys{$_}\n0");
}
sub late {
  my ($which) = @_;
  my ($ms, $said) = refresh_lake($psql, $days, $arrive{$which});
  expect("late: $which", $said, "late|0|$late_keys{$which}");
  return $ms;
}
my %ms = interleave(
  day => sub { refresh_lake($psql, $days + 1) },
  percent => sub { late('percent') },
  one => sub { late('one') });
result('late rows of 1% of the keys', 'the refresh of one day', $ms{percent} / $ms{day}, '<= 0.25');
result('one late row', 'the refresh of one day', $ms{one} / $ms{day}, '<= 0.02');
