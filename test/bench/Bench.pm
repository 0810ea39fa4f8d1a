# What the benchmarks share: sessions, rounds, medians, the lake, results.
#
# A benchmark prints lines "name, what, rival, ratio, target" with tabs between;
# what else it has to say goes to stderr.  It dies where a result is not what it
# should be: a wrong result has no speed.
package Bench;
use strict;
use warnings;
use Exporter 'import';
use File::Basename qw(basename);
use IPC::Open2;

our @EXPORT = qw($rows $days $rounds $keys scratch session session_in installed result expect median middle note
  interleave checkpoint in_transaction settle lake refresh_lake script_latency);

our $rows = $ENV{BENCH_ROWS} // 4_000_000;      # a day
our $days = $ENV{BENCH_DAYS} // 3;              # history behind the day that is refreshed
our $rounds = $ENV{BENCH_ROUNDS} // 5;
our $keys = 400_000;                            # at most

my $name = basename($0, '.pl');
$| = 1;

sub note { print STDERR "  $name: @_\n"; return }

# scratch(FILE): its path in the run's folder
sub scratch { return "$ENV{BENCH_OUT}/$_[0]" }

sub median {
  my @v = sort { $a <=> $b } @_;
  return ($v[$#v / 2] + $v[@v / 2]) / 2;
}

# the mean of the middle half
sub middle {
  my @v = sort { $a <=> $b } @_;
  my ($sum, @half) = (0, @v[ @v / 4 .. $#v - @v / 4 ]);
  $sum += $_ for @half;
  return $sum / @half;
}

# result(WHAT, RIVAL, RATIO, TARGET)
sub result {
  my ($what, $rival, $ratio, $target) = @_;
  $ratio = sprintf '%.3g', $ratio if $ratio =~ /^[\d.e+-]+$/;
  print join("\t", $name, $what, $rival, $ratio, $target), "\n";
  return;
}

sub expect {
  my ($what, $got, $wanted) = @_;
  die "$name: $what: $got instead of $wanted\n" if $got ne $wanted;
  return;
}

# --- sessions ---------------------------------------------------------------

# session(SETTING, ...): a psql that runs what it is given, each setting as in SET
sub session {
  my @settings = @_;
  my $self = bless {}, 'Bench::Session';
  $self->{psql} = open2($self->{out}, $self->{in}, 'psql -XqAt -v ON_ERROR_STOP=1 -P pager=off 2>&1');
  $self->run(join '', map { "SET $_;\n" } 'client_min_messages = error', @settings);
  return $self;
}

# the same in another database
sub session_in { my ($database, @settings) = @_; local $ENV{PGDATABASE} = $database; return session(@settings) }

# whether the installation has this extension
sub installed { my ($session, $extension) = @_; return $session->run("SELECT count(*) FROM pg_available_extensions WHERE name = '$extension'") }

# Each measurement begins with a checkpoint: what it writes costs as much as the
# first write to a page does, and the files of the log are there already.
my $other;
sub checkpoint { $other //= session(); $other->run('CHECKPOINT'); return }

# Milliseconds of one transaction that is undone, so that it can be had again:
# before (not timed), the statement, and all that it wrote to the log flushed,
# as at its commit, by the commit of another.  Returns also what the statement
# printed.
sub in_transaction {
  my ($session, $statement, $before) = @_;
  my $flush = 'SELECT pg_current_xact_id()';
  $session->run("BEGIN;\n" . ($before // ''));
  checkpoint();
  my ($ms, $out) = $session->time($statement);
  $ms += ($other->time($flush))[0];
  $session->run('ROLLBACK');
  return wantarray ? ($ms, $out) : $ms;
}

# After what was undone the tables are as they were before.
sub settle { my ($session, @tables) = @_; $session->run("VACUUM $_") for @tables; return }

# interleave(NAME => SUB, ...): medians of what the subs return, A B A B.
sub interleave {
  my @variants = @_;
  my %taken;
  for my $round (1 .. $rounds) {
    checkpoint();
    for (my $i = 0; $i < @variants; $i += 2) {
      my ($ms) = $variants[ $i + 1 ]->($round);
      push @{ $taken{ $variants[$i] } }, $ms;
    }
  }
  note("$_: " . join(' ', map { sprintf '%.4g', $_ } @{ $taken{$_} }) . ' ms') for sort keys %taken;
  return map { $_ => median(@{ $taken{$_} }) } keys %taken;
}

# script_latency(SQL, OPTION ...): the latencies in ms that pgbench has measured
sub script_latency {
  my ($sql, @options) = @_;
  my $script = scratch('script.sql');
  open my $out, '>', $script or die "$script: $!\n";
  print $out "$sql\n";
  close $out;
  my $log = scratch('latency');
  my @command = ('pgbench', '-n', '-f', $script, '-l', "--log-prefix=$log", @options);
  my $said = do { open my $in, '-|', join(' ', map { quotemeta } @command) . ' 2>&1' or die "pgbench: $!\n"; local $/; <$in> };
  die "$name: pgbench failed:\n$said\n" if $? || $said !~ /number of failed transactions: 0 /;
  my @ms;
  for my $file (glob "$log.*") {
    open my $in, '<', $file or die "$file: $!\n";
    push @ms, (split)[2] / 1000 while <$in>;
    close $in;
    unlink $file;
  }
  return @ms;
}

# --- the lake ---------------------------------------------------------------

# Schema lake, as the benchmarks of a refresh share it: days 0 to $days, the
# rollup exact before the given day.
sub lake {
  my ($session, $day) = @_;
  if ($session->run("SELECT to_regnamespace('lake') IS NULL") eq 't') {
    note("the lake, $rows rows a day");
    $session->run("SELECT bench.make_source('lake', true, -3, $days)");
    $session->run("INSERT INTO lake.signals SELECT * FROM bench.events($_, $rows)") for 0 .. $days;
    $session->run("SELECT bench.make_index('lake')");
    $session->run('VACUUM ANALYZE lake.signals');
    $session->run("SELECT bench.make_rollup('lake', 'on')");
  }
  $session->run("SELECT bench.refresh('lake', $day); VACUUM ANALYZE lake.signals_latest");
  expect('the watermark', $session->run("SELECT rollup_watermark('lake.signals_latest') = bench.midnight($day)"), 't');
  return;
}

# Milliseconds of a refresh of the lake to a day, and what it said: undone, like
# what comes before it (not timed).
sub refresh_lake {
  my ($session, $day, $before) = @_;
  my ($ms, $said) = in_transaction($session, "SELECT * FROM bench.refresh('lake', $day)", $before);
  settle($session, $before ? 'lake.signals' : (), 'lake.signals_latest');
  return wantarray ? ($ms, $said) : $ms;
}

package Bench::Session;

my $mark = '-- that was it --';

sub start {
  my ($self, $sql) = @_;
  $self->{sql} = $sql;
  print { $self->{in} } "$sql\n;\n\\echo $mark\n";
  $self->{in}->flush;
  return;
}

# Has it said anything yet?  Waits for that, up to so many seconds.
sub said_something {
  my ($self, $seconds) = @_;
  vec(my $ready = '', fileno($self->{out}), 1) = 1;
  return select $ready, undef, undef, $seconds;
}

sub finish {
  my ($self) = @_;
  my $said = '';
  while (defined(my $line = readline $self->{out})) {
    return $said =~ s/\n\z//r if $line eq "$mark\n";
    $said .= $line;
  }
  die "$name: psql ended:\n$said\nafter\n$self->{sql}\n";
}

sub run { my ($self, $sql) = @_; $self->start($sql); return $self->finish }

# Milliseconds, and what the statement printed.
sub time {
  my ($self, $sql) = @_;
  my $said = $self->run("\\timing on\n$sql;\n\\timing off");
  my $ms = 0;
  $ms += $1 while $said =~ s/^Time: ([\d.]+) ms.*\n?//m;
  return ($ms, $said =~ s/\n\z//r);
}

sub pid { my ($self) = @_; return $self->run('SELECT pg_backend_pid()') }

1;
