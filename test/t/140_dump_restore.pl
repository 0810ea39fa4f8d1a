# pg_dump and pg_restore: rollups in each state, with late and backfilled keys
# that wait, come back as they were, without an error, and go on.  So do those of a
# database that is copied, renamed and moved.
#
# Fails when a command on one partition makes the triggers of every rollup there
# (relation_made in ddl.c), when a table of the extension or a sequence is no
# part of a dump (pg_extension_config_dump), and when relations are kept by OID.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrDump;

my $node = PostgreSQL::Test::Cluster->new('dumped');
$node->init;
$node->append_conf('postgresql.conf', $DrDump::CONF);
$node->start;

DrDump::create($node);

my $before = DrDump::look($node, 'first');
my $dir = PostgreSQL::Test::Utils::tempdir();
$node->command_ok([ 'pg_dump', '-d', $node->connstr('first'), '-f', "$dir/plain.sql" ], 'a plain dump');
$node->command_ok([ 'pg_dump', '-d', $node->connstr('first'), '-Fc', '-f', "$dir/custom" ], 'a custom dump');
$node->command_ok([ 'pg_dump', '-d', $node->connstr('first'), '-Fd', '-j', 2, '-f', "$dir/parallel" ], 'a parallel dump');
my %restore = (
	plain => sub { [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $_[0], '-f', "$dir/plain.sql" ] },
	'a single transaction' => sub { [ 'psql', '-Xq', '-1', '-v', 'ON_ERROR_STOP=1', '-d', $_[0], '-f', "$dir/plain.sql" ] },
	custom => sub { [ 'pg_restore', '--exit-on-error', '-d', $_[0], "$dir/custom" ] },
	parallel => sub { [ 'pg_restore', '--exit-on-error', '-j', 4, '-d', $_[0], "$dir/parallel" ] });
for my $how (sort keys %restore)
{
	my $database = $how =~ s/ /_/gr;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->command_ok($restore{$how}->($node->connstr($database)), "$how: restored");
	is(DrDump::look($node, $database), $before, "$how: all is as it was");
	DrDump::go_on($node, $database, $how);
}

# a copy, which leaves the first one alone
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE first');
is(DrDump::look($node, 'copied'), $before, 'copied: all is as it was');
$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on;\nCREATE TABLESPACE elsewhere LOCATION '';");
$node->safe_psql('postgres', $_) for 'ALTER DATABASE copied SET TABLESPACE elsewhere', 'ALTER DATABASE copied RENAME TO moved';
is(DrDump::look($node, 'moved'), $before, 'moved: all is as it was');
DrDump::go_on($node, 'moved', 'moved');
is(DrDump::look($node, 'first'), $before, 'the first one is as it was');

# once more, from what was restored
$node->safe_psql('postgres', 'CREATE DATABASE again; CREATE DATABASE and_again');
$node->command_ok($restore{custom}->($node->connstr('again')), 'restored');
$node->command_ok([ 'pg_dump', '-d', $node->connstr('again'), '-Fc', '-f', "$dir/custom" ], 'dumped again');
$node->command_ok($restore{custom}->($node->connstr('and_again')), 'restored again');
is(DrDump::look($node, 'and_again'), $before, 'all is as it was');
DrDump::go_on($node, 'and_again', 'again');
DrDump::go_on($node, 'first', 'the first one');

$node->stop;
done_testing();
