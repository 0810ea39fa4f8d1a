# The peak of a refresh's own memory, in the process that has most, less what
# it had before.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $other = session();
lake($other, $days);

# bytes of a process's own memory now; 0 if it is gone
sub own_memory {
  my ($pid) = @_;
  open my $in, '<', "/proc/$pid/status" or return 0;
  my ($kb) = map { /^RssAnon:\s*(\d+)/ ? $1 : () } <$in>;
  close $in;
  return 1024 * ($kb // 0);
}

for my $work_mem (16, 512) {
  my $limit = $work_mem * 1024 * 1024 * $other->run('SHOW hash_mem_multiplier');
  my $psql = session("work_mem = '${work_mem}MB'", "log_temp_files = -1");
  my $backend = $psql->run('SELECT pg_backend_pid()');
  my $temp = q{SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()};
  my $spilled = $other->run($temp);
  my ($before, $peak) = (own_memory($backend), 0);
  $psql->run('BEGIN');
  $psql->start("SELECT bench.refresh('lake', $days + 1)");
  until ($psql->said_something(0.01)) {
    for (split /\n/, $other->run("SELECT pid FROM pg_stat_activity WHERE $backend IN (pid, leader_pid)")) {
      my $now = own_memory($_) - $before;
      $peak = $now if $now > $peak;
    }
  }
  $psql->finish;
  expect('rows that rollup_verify finds', $psql->run("SELECT count(*) FROM rollup_verify('lake.signals_latest')"), 0) if $work_mem == 16;
  $psql->run('ROLLBACK');
  settle($other, 'lake.signals_latest');
  note(sprintf 'work_mem %d MB: peak %.1f MB, %.1f MB in files', $work_mem, $peak / 1024**2, ($other->run($temp) - $spilled) / 1024**2);
  result("peak memory of a refresh, work_mem ${work_mem}MB", 'work_mem x hash_mem_multiplier', $peak / $limit, '<= 1.5');
}
