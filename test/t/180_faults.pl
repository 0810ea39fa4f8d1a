# Memory, disk and temporary files that are used up in the middle of each
# operation: a clear error of the server's, nothing is done by halves, and the same
# session can do it later.  So it is with too little time.
#
# Memory and disk are as full as a library says that the server is started with
# (lib/faults.c): the n-th request fails, for a row of n until the operation comes
# to its end.  No mount and no other right is needed for that.  For each n with
# DR_FAULTS=all.  DR_RESOURCES picks from "disk file_system memory temporary_files
# time".
#
# The database lies in a small file system, where the system lets its users have
# one in a namespace of their own; and this is filled up, until n pages are left.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

# Once more, as it was called, in a namespace where we may mount.
BEGIN
{
	my @unshare = qw(unshare --user --map-current-user --keep-caps --mount);

	if (!exists $ENV{DR_MAY_MOUNT})
	{
		$ENV{DR_MAY_MOUNT} = system("@unshare mount -t tmpfs -o size=64k tmpfs /mnt 2>/dev/null") == 0 ? 1 : 0;
		exec(@unshare, $^X, (map { "-I$_" } @INC), $0) if $ENV{DR_MAY_MOUNT};
	}
}

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrFaults;
use DrSession;

# The library, made for the server that is tested; its headers are not beside the
# tests' copy of it.
sub compile
{
	my $library = PostgreSQL::Test::Utils::tempdir() . '/dr_faults.so';

	chomp(my $cc = `pg_config --cc`);
	system(split(' ', $ENV{CC} || $cc), qw(-O2 -fPIC -shared -I), $ENV{DR_INCLUDES}, '-o', $library, "$FindBin::RealBin/lib/faults.c", '-ldl') == 0
	  or die 'could not compile lib/faults.c';
	return $library;
}

my $library = compile();
my $node = PostgreSQL::Test::Cluster->new('faults');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
log_error_verbosity = verbose
log_min_messages = warning
log_statement = none
max_prepared_transactions = 10
shared_preload_libraries = 'dailyrollup'
dailyrollup.worker = off
dailyrollup.delay = 0
client_min_messages = error
autovacuum = off
CONF
{
	local $ENV{LD_PRELOAD} = $library;
	$node->start;
}

# The file system that the database lies in.
my $disk = PostgreSQL::Test::Utils::tempdir();
my $ballast = "$disk/ballast";
if ($ENV{DR_MAY_MOUNT})
{
	system('mount', '-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', $disk) == 0 or die 'could not mount';
}
mkdir "$disk/space" or die "mkdir: $!";
$node->safe_psql('postgres', "CREATE TABLESPACE small LOCATION '$disk/space'");
$node->safe_psql('postgres', 'CREATE DATABASE small TABLESPACE small');

# So many bytes are left there.
sub fill_disk
{
	my ($left) = @_;

	my ($free) = `df --output=avail -B1 '$disk'` =~ /^(\d+)$/m;
	system('fallocate', '-l', $free - $left, $ballast) == 0 or die 'fallocate' if $free > $left;
	return '';
}

sub session { return DrSession->new(name => '', connstr => $node->connstr('small')); }

my $observer = session();
$observer->safe("CREATE EXTENSION dailyrollup;\n$DrFaults::SQL
	CREATE FUNCTION fault_arm(disk bool, n bigint) RETURNS void LANGUAGE c AS '$library';
	CREATE FUNCTION fault_disarm() RETURNS bool LANGUAGE c AS '$library';
	SELECT setseed(0.6);");
my $baseline = DrFaults::objects($observer);
my $count = 0;

# What there may be too little of.  "states" are the errors that it ends in; "arm"
# limits the session to n, by SQL or before.
# An n is followed by one that is "factor" times as great.
my $large = "SET dr_test.scale = 30; SET work_mem = '64kB'; SET hash_mem_multiplier = 1;";
my %resources = (
	memory => { states => '53200', settings => 'SET dr_test.scale = 4;', factor => 2, arm => sub { "SELECT fault_arm(false, $_[0]);" } },
	disk => { states => '53100', settings => $large, factor => 2.5, arm => sub { "SELECT fault_arm(true, $_[0]);" } },
	file_system => { states => '53100', settings => $large, factor => 4, arm => sub { fill_disk(8192 * ($_[0] - 1)) } },
	temporary_files => { states => '53400', settings => $large, factor => 4, arm => sub { "SET temp_file_limit = '" . 16 * $_[0] . "kB';" } },
	time => { states => '57014', settings => $large, factor => 3, arm => sub { "SET statement_timeout = '$_[0]ms';" } });

# The operation once more, with too little; returns what came of it, and whether it
# was too little.
sub try_with
{
	my ($case, $session, $resource, $n) = @_;
	my $answer = $session->run($resources{$resource}{arm}->($n) . "\n" . DrFaults::sql($case->{op}, 'run', $case->{rollup}));
	my $disarmed;

	unlink $ballast;
	# what is left to fail may fail here
	for (1 .. 5)
	{
		$disarmed = $session->run('ROLLBACK; SELECT fault_disarm(); RESET statement_timeout; RESET temp_file_limit;');
		last if !DrSession::errors($disarmed);
	}
	return ($answer, DrSession::errors($answer) > 0);
}

# It has failed as it should, and nothing is done; a pass may have come to a later
# step, a savepoint may have saved the rest.
sub check_failed
{
	my ($case, $session, $states, $answer) = @_;
	my $good = 1;

	my @states = grep { !/^(?:25P02|3B001)$/ } DrSession::errors($answer);
	$good &= ok(0, "$case->{what}: a clear error, not $answer") if grep { !/^(?:$states)$/ } @states;
	$good &= DrFaults::is_guarded($observer, $case, $session);
	if ($case->{op}{run} =~ /^CALL|ROLLBACK TO/)
	{
		$case->{before} = DrFaults::seen($observer, $case);
	}
	$good &= DrFaults::is_as_seen($observer, $case, $case->{before});
	$good &= DrFaults::is_right($observer, $case);
	return $good;
}

sub try_operation
{
	my ($op, $resource) = @_;
	my ($states, $settings, $factor) = @{ $resources{$resource} }{qw(states settings factor)};
	my $case = { op => $op, rollup => 'r' . ++$count };
	my $session = session();
	my ($n, $faults, $good) = (1 + $count % 3, 0, 1);

	$session->safe($settings . DrFaults::sql($op, 'prepare', $case->{rollup}) . DrFaults::sql($op, 'settings', $case->{rollup}));
	$case->{before} = DrFaults::seen($observer, $case);
	while ($good)
	{
		# an error while the server rebuilds what it knows of a table leaves it with
		# what was rolled back, whoever has changed the table
		if ($op->{ddl} && $faults > 0)
		{
			$session->quit;
			$session = session();
			# (what the server loads into a session it loads without a fault)
			$session->safe($settings . DrFaults::sql($op, 'settings', $case->{rollup}) . "SELECT seen('$case->{rollup}');");
		}
		$case->{what} = "$op->{name}, $resource, $n";
		my ($answer, $failed) = try_with($case, $session, $resource, $n);
		last if !$failed;
		$good &= check_failed($case, $session, $states, $answer);
		# what is rolled back takes room, too
		$observer->safe('VACUUM;') if ++$faults % 100 == 0;
		$n = ($ENV{DR_FAULTS} // '') eq 'all' ? $n + 1 : int($n * $factor) + 1;
	}
	$good &= DrFaults::finish($observer, $case, $session, 1);
	DrFaults::clean($observer, $case->{rollup});
	$session->quit;
	ok($good, "$op->{name}: $faults times too little of $resource");
	return $faults;
}

my @resources = split ' ', $ENV{DR_RESOURCES} // 'disk file_system memory temporary_files time';
if (!$ENV{DR_MAY_MOUNT} && grep { $_ eq 'file_system' } @resources)
{
	@resources = grep { $_ ne 'file_system' } @resources;
  SKIP: { skip('file_system: the system does not let its users mount one', 1) }
}
for my $resource (@resources)
{
	my $faults = 0;
	$faults += try_operation($_, $resource) for @DrFaults::operations;
	cmp_ok($faults, '>', 40, "$resource: there are faults");
	is(DrFaults::objects($observer), $baseline, "$resource: nothing is left behind");
}
is($observer->safe('SELECT count(*) FROM rollup_progress;'), 0, 'no pass is shown any more');
is(join("\n", slurp_file($node->logfile) =~ /^.*(?:XX000|cache lookup|could not open relation|PANIC|terminated by signal).*$/mg), '', 'no internal error');

$observer->quit;
$node->stop;
system('umount', $disk) if $ENV{DR_MAY_MOUNT};
done_testing();
