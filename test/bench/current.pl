# Reading through <live>_current, for one key and over everything, against the
# same written by hand: live, and the day since the watermark.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
lake($psql, $days);
my ($live, $view) = ('lake.signals_latest', 'lake.signals_latest_current');

my $all = $psql->run("SELECT bench.current_by_hand('lake', $days, '')");
expect('differences', $psql->run("SELECT bench.differences('TABLE $view', \$q\$$all\$q\$)"), 0);

my $one = $psql->run("SELECT bench.current_by_hand('lake', $days, 'AND subject = :subject AND name = :name')");
my @some_keys = map { [split /\|/] } split /\n/,
  $psql->run("SELECT subject, name FROM $live ORDER BY hashtext(subject || name) LIMIT $rounds");
for (@some_keys) {
  my ($subject, $name) = @$_;
  my $by_hand = $one =~ s/:subject/'$subject'/gr =~ s/:name/'$name'/gr;
  expect("differences of $subject $name", $psql->run(
    "SELECT bench.differences(\$q\$SELECT * FROM $view WHERE subject = '$subject' AND name = '$name'\$q\$, \$q\$$by_hand\$q\$)"), 0);
}

# the median of many look-ups of the round's key
sub look_up {
  my ($sql, $how, $round) = @_;
  my ($subject, $name) = @{ $some_keys[ ($round - 1) % @some_keys ] };
  my $quote = $how eq 'simple' ? "'" : '';
  return median(script_latency($sql =~ s/\s+/ /gr, '-M', $how, '-t', 2000,
    '-D', "subject=$quote$subject$quote", '-D', "name=$quote$name$quote"));
}
for my $how (qw(prepared simple)) {
  my %ms = interleave(
    view => sub { look_up("SELECT * FROM $view WHERE subject = :subject AND name = :name", $how, @_) },
    hand => sub { look_up($one, $how, @_) });
  result('_current for one key, p50, ' . ($how eq 'simple' ? 'not prepared' : $how), 'by hand', $ms{view} / $ms{hand}, '<= 1.2');
}
my %ms = interleave(
  view => sub { ($psql->time("SELECT * FROM $view OFFSET 1000000000"))[0] },
  hand => sub { ($psql->time("$all OFFSET 1000000000"))[0] });
result('_current over everything', 'UNION ALL and GROUP BY by hand', $ms{view} / $ms{hand}, '<= 1.05');
