# Whatever is written to a source, in whatever order and by whatever statement,
# and on whatever days the rollup is refreshed: after each step live is the
# oracle over what lies before the watermark, and _current the oracle over
# everything.
#
# Each seed is a database with a random source, one or two rollups and a random
# stream (lib/DrSetting.pm, lib/DrStream.pm).  A seed that fails shows its
# settings and every statement that it ran.
#
#	DR_SEEDS=200    how many seeds, from 1
#	DR_SEED=123     that one alone, or some: 123-130
#	DR_STEPS=25     steps of a seed
#	DR_SKIP=3,5-9   steps to leave out of it
#	DR_SHRINK=1     leaves out of a failing seed what it fails without
#	DR_JOBS=2       seeds at a time
#	DR_LOGS=folder  writes down the statements of each seed there
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use DrSession;
use DrSetting;
use DrStream;

my $one = $ENV{DR_SEED};
my @seeds = numbers(defined $one && $one ne '' ? $one : '1-' . ($ENV{DR_SEEDS} || 200));
my $jobs = $ENV{DR_JOBS} || 2;
my $steps = $ENV{DR_STEPS} || 25;
my %skip = map { $_ => 1 } numbers($ENV{DR_SKIP} // '');

# "3,5-7" are 3, 5, 6, 7.
sub numbers
{
	return map { /^(\d+)-(\d+)$/ ? ($1 .. $2) : $_ } split /,/, $_[0];
}

my $node = PostgreSQL::Test::Cluster->new('property');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
max_connections = 60
max_prepared_transactions = 20
max_worker_processes = 16
log_min_messages = warning
log_min_error_statement = panic
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE dr_owner LOGIN; CREATE ROLE dr_writer LOGIN; CREATE DATABASE dr_template;');
$node->safe_psql('dr_template', "CREATE EXTENSION dailyrollup;\n$DrSetting::TYPES");
my $icu = $node->psql('dr_template', $DrSetting::COLLATIONS) == 0;
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
$node->safe_psql('postgres', 'CREATE ROLE postgres SUPERUSER LOGIN') if $superuser ne 'postgres';

sub connstr
{
	my ($database, $user) = @_;

	return $node->connstr($database) . " user=$user";
}

# Runs a seed in a database of its own: (undef or the problem, the stream).
sub run_seed
{
	my ($admin, $seed, $skip) = @_;
	my $database = "seed_$seed";

	$admin->safe("CREATE DATABASE $database TEMPLATE dr_template;");
	my $stream = DrStream->new(
		seed => $seed, steps => $steps, skip => $skip, icu => $icu,
		connect => sub { connstr($database, $_[0]) });
	my $problem = $stream->run;
	if ($ENV{DR_LOGS})
	{
		open(my $out, '>:utf8', "$ENV{DR_LOGS}/$seed.sql") or die "$ENV{DR_LOGS}: $!";
		print {$out} join("\n", $stream->{setting} ? $stream->{setting}->settings : '', @{ $stream->{log} }, $problem // 'ok', '');
		close $out;
	}
	# what a failed seed left prepared would keep its database
	my $gids = $admin->safe("SELECT gid FROM pg_prepared_xacts WHERE database = '$database';");
	if ($gids ne '')
	{
		my $session = DrSession->new(name => '', connstr => connstr($database, 'postgres'));
		$session->run("ROLLBACK PREPARED '$_';") for split /\n/, $gids;
		$session->quit;
	}
	$admin->run("DROP DATABASE $database WITH (FORCE);");
	return ($problem, $stream);
}

# Leaves out steps, many at a time and then fewer, as long as the seed fails.
sub shrink
{
	my ($admin, $seed, $last) = @_;
	my %left_out = (%skip, map { $_ => 1 } $last + 1 .. $steps);
	my @best;

	for my $size (8, 4, 2, 1, 1)
	{
		my @kept = grep { !$left_out{$_} } 1 .. $steps;
		while (my @chunk = splice @kept, 0, $size)
		{
			my @try = run_seed($admin, $seed, { %left_out, map { $_ => 1 } @chunk });
			next if !defined $try[0];
			@best = @try;
			$left_out{$_} = 1 for @chunk;
		}
	}
	return @best;
}

# What a failing seed has to say.
sub report
{
	my ($problem, $stream) = @_;
	my $setting = $stream->{setting};

	return join "\n", ($setting ? $setting->settings : ''), 'PROBLEM in ' . $problem,
	  "STATEMENTS, in this order (in a database with the extension and what DrSetting::TYPES creates):",
	  @{ $stream->{log} }, '';
}

# A worker writes for each of its seeds: a line with the seed, the seconds and
# the length of the report, then the report.
sub work
{
	my ($out, @mine) = @_;
	my $admin = DrSession->new(name => '', connstr => connstr('postgres', 'postgres'));

	for my $seed (@mine)
	{
		my $start = time;
		my ($problem, $stream) = run_seed($admin, $seed, \%skip);
		my $text = '';
		if (defined $problem)
		{
			$text = report($problem, $stream);
			if ($ENV{DR_SHRINK})
			{
				my @smaller = shrink($admin, $seed, $stream->{step} // 0);
				$text = report(@smaller) if @smaller;
			}
			utf8::encode($text);
		}
		printf {$out} "%d %.1f %d\n%s", $seed, time - $start, length $text, $text;
	}
	$admin->quit;
	return;
}

my @workers;
for my $job (0 .. ($jobs > @seeds ? @seeds : $jobs) - 1)
{
	pipe(my $read, my $write) or die "pipe: $!";
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		close $read;
		$write->autoflush(1);
		eval { work($write, map { $seeds[$_] } grep { $_ % $jobs == $job } 0 .. $#seeds); 1 }
		  or print STDERR $@;
		# the parent ends the cluster, not we
		POSIX::_exit(0);
	}
	close $write;
	push @workers, { pid => $pid, in => $read };
}

for my $number (0 .. $#seeds)
{
	my $in = $workers[ $number % $jobs ]{in};
	my $line = readline $in;
	if (!defined $line)
	{
		fail("seed $seeds[$number]: its worker ended");
		next;
	}
	my ($seed, $seconds, $length) = split ' ', $line;
	my $text = '';
	read($in, $text, $length) if $length;
	if (!ok($length == 0, "seed $seed ($seconds s)"))
	{
		append_to_file("$PostgreSQL::Test::Utils::log_path/property_seed_$seed.sql", $text);
		diag($text);
	}
}
waitpid($_->{pid}, 0) for @workers;
$node->stop;

done_testing();
