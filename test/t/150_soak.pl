# A soak: eight writers, two rollups that go through refreshes day by day, through
# every mode, through promotes and reseeds, and readers that compare what they
# read with the definition in the same snapshot, again and again.  No difference,
# and no error but serialization failures.
#
# DR_SOAK: how many seconds (180).  Fails when refreshes do not wait for writers
# (dr_locks_wait_for_writers), when the threshold ignores a refresh that is under
# way (late.c), and when a fold decides before it has locked live (fold.c).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use POSIX ();
use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrSession;

my $seconds = $ENV{DR_SOAK} // 180;
my $node = PostgreSQL::Test::Cluster->new('soak');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
max_connections = 50
dailyrollup.delay = 0
dailyrollup.late_interval = 0
log_min_messages = warning
CONF
$node->start;

# 100 days in partitions of ten; ids tell redeliveries apart
my $start = "(date_trunc('day', now()) - interval '100 days')";
$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION dailyrollup;
CREATE TABLE s (k text, t timestamptz NOT NULL, v int, id bigserial) PARTITION BY RANGE (t);
SELECT format('CREATE TABLE s_%s PARTITION OF s FOR VALUES FROM (%L) TO (%L)', i, $start + (i - 1) * interval '10 days', $start + i * interval '10 days')
FROM generate_series(1, 10) i \\gexec
CREATE TABLE s_rest PARTITION OF s DEFAULT;
CREATE INDEX ON s (k, t);
CREATE FUNCTION at(n int) RETURNS timestamptz LANGUAGE sql STABLE AS \$\$ SELECT $start + n * interval '10 minutes' \$\$;
INSERT INTO s (k, t, v) SELECT nullif('k' || i % 23, 'k0'), at(i * 3), i FROM generate_series(1, 4500) i;
SQL

my %query = (
	once => q{SELECT k, count(*) AS n, sum(v) AS total, min(t) AS first, max(t) AS last, latest(v, t) AS v FROM s GROUP BY k},
	every => q{SELECT k, count(*) AS n, sum(v) FILTER (WHERE v % 2 = 0) AS even, coalesce(max(v), 0) AS greatest, count(v) AS vs FROM s WHERE v IS NOT NULL GROUP BY k});
my %dedup = (once => q{, dedup_by => '{k,t}', dedup_order => '{id}'}, every => '');

# --- writers: scripts of pgbench, with their weights ---------------------------

my $r = "\\set k random(1, 22)\n\\set n random(0, 14399)\n\\set v random(-1000, 1000)\n\\set m random(1, 5)\n";
my %script = (
	'late@8' => "INSERT INTO s (k, t, v) VALUES ('k:k', at(:n), :v);",
	'tail@8' => "INSERT INTO s (k, t, v) VALUES ('k:k', now() - :m * interval '1 hour', :v);",
	'many@3' => "INSERT INTO s (k, t, v) SELECT nullif('k' || (:k + i) % 23, 'k0'), at((:n + i * 97) % 14500), :v FROM generate_series(1, 30) i;",
	'again@5' => "INSERT INTO s (k, t, v, id) SELECT k, t, :v, CASE WHEN :m < 3 THEN -id ELSE id END FROM s WHERE k = 'k:k' AND t >= at(:n) ORDER BY t LIMIT :m;",
	'update@5' => "UPDATE s SET v = nullif(:v, 0) WHERE k = 'k:k' AND t = (SELECT min(t) FROM s WHERE k = 'k:k' AND t >= at(:n));",
	'move@2' => "UPDATE s SET t = t + :m * interval '7 days' WHERE k = 'k:k' AND t = (SELECT min(t) FROM s WHERE k = 'k:k' AND t >= at(:n));",
	'rename@2' => "UPDATE s SET k = nullif('k' || :m, 'k1') WHERE k = 'k:k' AND t = (SELECT min(t) FROM s WHERE k = 'k:k' AND t >= at(:n));",
	'delete@9' => "DELETE FROM s WHERE k = 'k:k' AND t BETWEEN at(:n) AND at(:n + 150 * :m);",
	'leaf@2' => "INSERT INTO s_3 (k, t, v) VALUES ('k:k', at(2880 + :n % 1440), :v);",
	'savepoints@4' => "BEGIN;\nINSERT INTO s (k, t, v) VALUES ('k:k', at(:n), :v);\nSAVEPOINT a;\nINSERT INTO s (k, t, v) VALUES ('k:m', at(:n), :v), ('undone', at(:n), 1);\nROLLBACK TO a;\n"
	  . "INSERT INTO s (k, t, v) VALUES ('k:m', at(14399 - :n), :v);\nCOMMIT;",
	'undone@2' => "BEGIN;\nINSERT INTO s (k, t, v) VALUES ('undone', at(:n), :v);\nDELETE FROM s WHERE k = 'k:k' AND t < at(:n);\nROLLBACK;",
	'repeatable@3' => "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM s WHERE k = 'k:k';\nINSERT INTO s (k, t, v) VALUES ('k:k', at(:n), :v);\nCOMMIT;",
	'serializable@2' => "BEGIN ISOLATION LEVEL SERIALIZABLE;\nINSERT INTO s (k, t, v) VALUES ('k:k', at(:n), :v);\nCOMMIT;",
	'read@3' => "SELECT * FROM s WHERE k = 'k:k' AND t > at(:n) LIMIT 10;");
my $dir = PostgreSQL::Test::Utils::tempdir();
my @scripts;
for my $name (sort keys %script)
{
	my ($file, $weight) = $name =~ /^(\w+)@(\d+)$/;
	append_to_file("$dir/$file.sql", "$r$script{$name}\n");
	push @scripts, '-f', "$dir/$file.sql\@$weight";
}

# --- who works in a process of its own: prints what goes wrong -------------------

my $until = time + $seconds;
my %process;
sub in_process
{
	my ($name, $work) = @_;
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
		open my $out, '>', "$dir/$name.out" or POSIX::_exit(1);
		$out->autoflush(1);
		eval { $session->run('SET client_min_messages = error;'); $work->($session, $out); 1 } or print $out "died: $@";
		$session->quit;
		close $out;
		POSIX::_exit(0);
	}
	$process{$name} = $pid;
	return;
}

# Runs it until it does not fail for a conflict; complains of any other error.
sub insist
{
	my ($session, $out, $sql) = @_;
	for (;;)
	{
		my $answer = $session->run($sql);
		return $answer if $answer !~ /ERROR/;
		if ($answer !~ /ERROR:  40001/) { print $out "$sql\n$answer\n"; return ''; }
		$session->run('ROLLBACK;') if $sql =~ /^BEGIN/;
	}
}

# one rollup's life, over and over
sub keeper
{
	my ($name) = @_;
	return sub {
		my ($session, $out) = @_;
		my $do = sub { return insist($session, $out, $_[0]) };
		my ($rounds, $days) = (0, 0);
		while (time < $until)
		{
			$do->("SELECT rollup_drop('$name', true);") if $rounds;
			$do->("SELECT rollup_create('$name', \$q\$$query{$name}\$q\$, 't'$dedup{$name}, mode => 'on');");
			$do->("SELECT action FROM rollup_refresh('$name', $start + interval '5 days');");
			for my $day (6 .. 45 + int rand 50)
			{
				last if time > $until;
				$do->("SELECT action FROM rollup_refresh('$name', $start + interval '$day days');");
				$days++;
				$do->("SELECT rollup_reseed('$name');") if rand() < 0.03;
				$do->("SELECT rollup_mark('$name', at(1000), at(1500));") if rand() < 0.03;
			}
			for my $step (map { (qw(off shadow on shadow off on on))[$_] } 0 .. 6)
			{
				last if time > $until;
				$do->("SELECT rollup_alter('$name', mode => '$step');");
				$do->("CALL rollup_run('$name');");
				sleep(rand(0.5));
				$do->("SELECT rollup_recompute('$name');") if $step ne 'on' && rand() < 0.5;
				$do->("SELECT rollup_reseed('$name');") if $step eq 'on' && rand() < 0.5;
				$do->("CALL rollup_run('$name');");
			}
			$rounds++;
		}
		append_to_file("$dir/$name.count", "$rounds $days");
	};
}

# Compares in one snapshot, by plans that are made once.  The rollup may be gone,
# or be another one by now.
sub reader
{
	my ($name) = @_;
	return sub {
		my ($session, $out) = @_;
		my ($looked, $prepared) = (0, 0);
		while (time < $until)
		{
			my $key = 'k' . int rand 24;
			$session->run('DEALLOCATE ALL;') if rand() < 0.02;
			my $oracle = $name eq 'once' ? "SELECT k, count(*) AS n, sum(v) AS total, min(t) AS first, max(t) AS last, latest(v, t) AS v FROM (SELECT DISTINCT ON (k, t) * FROM s ORDER BY k, t, id, v) d GROUP BY k" : $query{every};
			my $answer = $session->run(<<"SQL");
PREPARE whole AS SELECT count(*) FROM ((TABLE ${name}_current EXCEPT ALL ($oracle)) UNION ALL (($oracle) EXCEPT ALL TABLE ${name}_current)) d;
PREPARE one(text) AS SELECT count(*) FROM ((SELECT * FROM ${name}_current WHERE k = \$1 EXCEPT ALL (SELECT * FROM ($oracle) o WHERE k = \$1))
  UNION ALL (SELECT * FROM ($oracle) o WHERE k = \$1 EXCEPT ALL SELECT * FROM ${name}_current WHERE k = \$1)) d;
SQL
			$answer = $session->run(<<"SQL");
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
EXECUTE one('$key');
EXECUTE whole;
SELECT count(*) FROM rollup_verify('$name');
COMMIT;
SQL
			if ($answer =~ /ERROR/)
			{
				# gone, not filled yet, changed
				print $out "$answer\n" unless $answer =~ /ERROR:  (42P01|26000|42704|40001|55000|0A000|25P02|42703)/;
				$session->run('ROLLBACK; DEALLOCATE ALL;');
				sleep(0.1);
			}
			elsif ($answer !~ /^0\s+0\s+0\s*$/) { print $out "$name, $key: $answer\n" . $session->run("SELECT state, watermark, late_keys FROM rollup_status WHERE rollup = '$name'::regclass;") . "\n"; }
			else { $looked++; }
		}
		append_to_file("$dir/reader_$name.count", $looked);
	};
}

in_process($_, keeper($_)), in_process("reader_$_", reader($_)) for qw(once every);
my $wrote = command_of('pgbench', '-n', '-c', 8, '-j', 1, '-T', $seconds, '--max-tries=100', '--failures-detailed', @scripts, $node->connstr('postgres'));
waitpid $_, 0 for values %process;

sub command_of
{
	my @command = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run(\@command, '>', \$out, '2>', \$err);
	return { rc => $?, out => $out, err => $err };
}

is($wrote->{rc}, 0, 'the writers wrote to the end') or diag($wrote->{err});
unlike($wrote->{err}, qr/aborted/, 'none of them met an error that is no conflict');
my ($count) = $wrote->{out} =~ /number of transactions actually processed: (\d+)/;
cmp_ok($count, '>', $seconds, 'they wrote');
for my $name (qw(once every))
{
	is(slurp_file("$dir/$name.out"), '', "$name: no refresh, no change of mode failed");
	is(slurp_file("$dir/reader_$name.out"), '', "$name: each read was exact");
	my ($rounds, $days) = split / /, slurp_file("$dir/$name.count");
	my $looked = slurp_file("$dir/reader_$name.count");
	note("$name: $rounds lives, $days days folded, $looked reads");
	cmp_ok($looked, '>', 5, "$name: there were reads");
	cmp_ok($days, '>', 5, "$name: there were refreshes");
	$node->safe_psql('postgres', "SET client_min_messages = error; SELECT rollup_alter('$name', mode => 'on'); CALL rollup_run('$name')");
	is($node->safe_psql('postgres', "SELECT count(*) FROM rollup_verify('$name')"), '0', "$name: exact in the end");
	is($node->safe_psql('postgres', "SELECT rows = keys AND dup_keys = 0 FROM rollup_check('$name')"), 't', "$name: a row for each key");
}
note("$count transactions");
$node->stop;
done_testing();
