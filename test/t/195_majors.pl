# From one major version of PostgreSQL to the next one: pg_dump and a restore, and
# pg_upgrade.  Rollups in each state, with keys that wait, come over as they were,
# and go on.
#
#	OTHER_PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config
#		the older one, with its server and headers; the newer one is PG_CONFIG.
#		test/run.sh builds the extension for it, too.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrDump;

my $bin = $ENV{DR_OTHER_BINDIR};
if (!$bin)
{
	diag('NOT TESTED: from one major to the next. Set OTHER_PG_CONFIG to the pg_config of an older one.');
	plan skip_all => 'OTHER_PG_CONFIG is not set';
}
my ($path) = $bin =~ m{^(.*)/bin$} or die "no folder of programs: $bin";

# the same, whatever the majors have for defaults
my @initdb = (extra => [ '-k', '--locale', 'C', '-E', 'UTF8' ]);
my $old = PostgreSQL::Test::Cluster->new('old', install_path => $path);
$old->init(@initdb);
$old->append_conf('postgresql.conf', $DrDump::CONF);
$old->start;
my ($from, $to) = ($old->safe_psql('postgres', 'SHOW server_version_num') / 10000, undef);
DrDump::create($old);
my $before = DrDump::look($old, 'first');

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init(@initdb);
$new->append_conf('postgresql.conf', $DrDump::CONF);
$new->start;
$to = $new->safe_psql('postgres', 'SHOW server_version_num') / 10000;
my $what = sprintf 'from %d to %d', $from, $to;
cmp_ok(int $from, '<', int $to, $what);

# --- a dump, by the newer one's programs -----------------------------------------

my $dir = PostgreSQL::Test::Utils::tempdir();
$new->safe_psql('postgres', 'CREATE ROLE keeper; CREATE DATABASE plain; CREATE DATABASE custom');
$new->command_ok([ 'pg_dump', '-d', $old->connstr('first'), '-f', "$dir/plain.sql" ], "$what: a plain dump");
$new->command_ok([ 'pg_dump', '-d', $old->connstr('first'), '-Fc', '-f', "$dir/custom" ], "$what: a custom dump");
$new->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $new->connstr('plain'), '-f', "$dir/plain.sql" ], "$what: restored");
$new->command_ok([ 'pg_restore', '--exit-on-error', '-d', $new->connstr('custom'), "$dir/custom" ], "$what: restored");
for my $database ('plain', 'custom')
{
	is(DrDump::look($new, $database), $before, "$what, $database: all is as it was");
	DrDump::go_on($new, $database, "$what, $database");
}
$new->stop;
$old->stop;

# --- pg_upgrade --------------------------------------------------------------------

my $upgraded = PostgreSQL::Test::Cluster->new('upgraded');
$upgraded->init(@initdb);
$upgraded->append_conf('postgresql.conf', $DrDump::CONF);
chdir $dir or die "$dir: $!";
# by the newer one's program; the folders of sockets are of its own choice
$upgraded->command_ok(
	[ 'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $upgraded->data_dir, '-b', $bin, '-B', $upgraded->config_data('--bindir'),
		'-s', $upgraded->host, '-p', $old->port, '-P', $upgraded->port ],
	"$what: pg_upgrade");
$upgraded->start;
is(DrDump::look($upgraded, 'first'), $before, "$what: all is as it was");
is($upgraded->safe_psql('first', "SELECT extversion = default_version FROM pg_extension JOIN pg_available_extensions ON name = extname WHERE extname = 'dailyrollup'"), 't', "$what: the extension's version");
DrDump::go_on($upgraded, 'first', "$what, upgraded");

$upgraded->stop;
done_testing();
