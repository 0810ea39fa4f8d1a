#!/usr/bin/perl
# Makes the table and the chart of a run of the benchmarks.
#
#   usage: perl test/bench/report.pl FOLDER
#
# Reads machine, results.tsv and fill.tsv there, writes benchmark.md and
# benchmark.svg, and prints the table.
use strict;
use warnings;

my ($folder) = @ARGV;
die "usage: report.pl FOLDER\n" unless defined $folder && -f "$folder/results.tsv";

sub lines {
  my ($file) = @_;
  open my $in, '<', "$folder/$file" or return;
  chomp(my @lines = <$in>);
  return @lines;
}

sub write_file {
  my ($file, @text) = @_;
  open my $out, '>', "$folder/$file" or die "$folder/$file: $!\n";
  print $out @text;
  close $out or die "$folder/$file: $!\n";
  return;
}

# name, what, rival, ratio, target, and whether that was met: yes, no, nothing
my @results = map { [split /\t/, $_, -1] } lines('results.tsv');
for (@results) {
  my ($ratio, $target) = @$_[3, 4];
  my ($equal, $limit) = $target =~ /^<(=?) ([\d.]+)$/;
  my $judged = defined $limit && $ratio =~ /^[\d.]/;
  push @$_, !$judged ? '' : ($equal ? $ratio <= $limit : $ratio < $limit) ? 'yes' : 'no', $judged ? $limit : 0;
}

# --- the table --------------------------------------------------------------

my @machine = map { /^([^:]+): (.*)/ ? "| $1 | $2 |\n" : () } lines('machine');
my @table = map { '| ' . join(' | ', map { s/\|/\\|/gr } @$_[1 .. 5]) . " |\n" } @results;
write_file('benchmark.md', <<'HEAD', @machine, <<'MIDDLE', @table, <<'TAIL');
# Benchmark

Written by `make bench`; test/bench/ has a script for each figure. Each figure is a ratio of times (of bytes where it says memory) in the same run: what is measured, divided by what it is compared with, so less is better. The two were run in turns, and each is the median of its rounds. Each benchmark compares the results before it believes a time.

| | |
| --- | --- |
HEAD

What is written by hand uses the aggregate `latest` of the extension where that makes it faster. A refresh, a promote and what they are compared with are timed in a transaction that is rolled back, with all that it wrote flushed to disk as at a commit, after a checkpoint. TimescaleDB's refresh commits; the day is deleted from its aggregate before. The aggregate counts what was delivered twice, and has a row for each key and day. A pipeline of pg_incremental runs a command by hand with the same result as the refresh; it does not see late rows.

| what | compared with | ratio | target | met |
| --- | --- | --- | --- | --- |
MIDDLE

![The figures, and the latency of commits over two days](benchmark.svg)
TAIL

for (@results) { printf "%-11s %-62s %-42s %7s  %-8s %s\n", @$_[0 .. 5] }

# --- the chart --------------------------------------------------------------

my @colours = map { "#$_" } qw(888888 0a7d4f 2563b0 b7791f b83232);
my ($width, $left, $right) = (960, 540, 250);       # of the whole, of the labels, of the bars
my @svg;
my $y = 30;
sub escape { return $_[0] =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr }
sub text {
  my ($x, $text_y, $text, $more) = @_;
  push @svg, sprintf qq{<text x="%.1f" y="%.1f"%s>%s</text>\n}, $x, $text_y, $more ? " $more" : '', escape($text);
  return;
}
sub line {
  my ($x1, $y1, $x2, $y2, $colour) = @_;
  push @svg, sprintf qq{<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>\n}, $x1, $y1, $x2, $y2, $colour;
  return;
}

# Bars: the share of its limit that a ratio takes, from a hundredth to ten
# times, by its logarithm; the line is the limit.
sub bars {
  my ($title, @bars) = @_;      # each: label, ratio, limit, what to say
  return unless @bars;
  my $place = sub {
    my $at = (log($_[0]) / log(10) + 2) / 3;
    return $left + $right * ($at < 0 ? 0 : $at > 1 ? 1 : $at);
  };
  text(10, $y, $title, 'font-weight="bold"');
  my $top = $y + 10;
  for (@bars) {
    my ($label, $ratio, $limit, $said, $met) = @$_;
    $y += 20;
    text($left - 10, $y + 4, $label, 'text-anchor="end" font-size="11"');
    my $end = $place->(($ratio || 1e-9) / $limit);
    push @svg, sprintf qq{<rect x="%.1f" y="%.1f" width="%.1f" height="12" fill="%s"/>\n}, $left, $y - 6, $end - $left + 1,
      $met ? '#0a7d4f' : '#b83232';
    text($left + $right + 10, $y + 4, $said, 'font-size="11"');
  }
  line($place->(1), $top, $place->(1), $y + 10, '#222222');
  $y += 50;
  return;
}

# Lines: commit latency over two days, each point the median of five.
sub series {
  my (%points, @names);
  for (lines('fill.tsv')) {
    my ($name, $x, $ratio) = split /\t/;
    push @names, $name unless $points{$name};
    push @{ $points{$name} }, [$x, $ratio];
  }
  return unless @names;
  my $max = 1;
  for my $points (values %points) {
    my @smooth;
    for my $n (0 .. $#$points) {
      my @near = sort { $a <=> $b } map { $_->[1] } @$points[($n < 2 ? 0 : $n - 2) .. ($n + 2 > $#$points ? $#$points : $n + 2)];
      push @smooth, [$points->[$n][0], $near[$#near / 2]];
      $max = $near[$#near / 2] if $near[$#near / 2] > $max;
    }
    $points = \@smooth;
  }
  my ($x0, $x1, $height) = (50, 740, 260);
  text(10, $y, 'Latency of a commit over two days that fill, as a multiple of the same without a rollup', 'font-weight="bold"');
  my ($y0, $y1) = ($y + 20 + $height, $y + 20);
  my $step = 10**int(log($max) / log(10));
  $step *= 2 if $max / $step > 6;
  $step /= 2 if $max / $step < 3;
  for (my $tick = 0; $tick <= $max; $tick += $step) {
    my $at = $y0 - $height * $tick / $max;
    line($x0, $at, $x1, $at, '#dddddd');
    text($x0 - 6, $at + 4, $tick, 'text-anchor="end" font-size="11"');
  }
  for (0 .. 2) {
    my $at = $x0 + ($x1 - $x0) * $_ / 2;
    line($at, $y0, $at, $y1, '#dddddd');
    text($at, $y0 + 16, 'midnight', 'text-anchor="middle" font-size="11"');
  }
  for my $n (0 .. $#names) {
    my @path = map { sprintf '%.1f,%.1f', $x0 + ($x1 - $x0) * $_->[0] / 2, $y0 - $height * $_->[1] / $max } @{ $points{ $names[$n] } };
    push @svg, qq{<polyline points="@path" fill="none" stroke="$colours[$n % @colours]" stroke-width="1.5"/>\n};
    line($x1 + 15, $y1 + 10 + 20 * $n, $x1 + 35, $y1 + 10 + 20 * $n, $colours[$n % @colours]);
    text($x1 + 42, $y1 + 14 + 20 * $n, $names[$n], 'font-size="12"');
  }
  $y = $y0 + 40;
  return;
}

bars('Share of the target taken: left of the line it is met',
  map { my (undef, $what, $rival, $ratio, $target, $met, $limit) = @$_; ["$what / $rival", $ratio, $limit, "$ratio (target $target)", $met eq 'yes'] }
  grep { $_->[5] } @results);
bars('Against other extensions: left of the line it is faster',
  map { my (undef, $what, $rival, $ratio) = @$_; ["$what / $rival", $ratio, 1, $ratio, $ratio < 1] }
  grep { !$_->[5] && $_->[2] =~ /TimescaleDB|pg_ivm|pg_incremental/ && $_->[3] =~ /^[\d.]/ } @results);
series();
write_file('benchmark.svg', sprintf(qq{<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="14" fill="#222222">\n}, $width, $y),
  qq{<rect width="100%" height="100%" fill="#ffffff"/>\n}, @svg, "</svg>\n");
