# The setting dailyrollup.mode, and the passes that follow it.
#
# First who may set it, and what a rollup's own mode does to it.  Then every
# change of state, driven by ALTER SYSTEM and CALL rollup_run() alone, while
# sessions write (late, again, straight into partitions, with backfill, with
# subtransactions that abort) and others read: each snapshot of theirs must find
# live as its state wants it and never empty, the shadow right, and _current
# exact, without a wait for a lock.  (Autovacuum is off for that: it locks readers
# out for a moment when it cuts the end off a table, pg_class and pg_attribute
# too.)  Without the wait for writers in a change that turns the fold on (or
# without the look at the state under live's lock at the end of a writer's
# transaction) rows are lost or counted twice here.
#
# Last, servers that restart with a typo in the setting, or without it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use DrModes;
use DrSession;

my $node = PostgreSQL::Test::Cluster->new('modes');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
autovacuum = off
timezone = 'UTC'
log_min_messages = warning
CONF
$node->start;

my $session;

sub connect_anew
{
	$session->quit if $session;
	$session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
	# the library is loaded here, so that ALTER SYSTEM knows its settings
	return $session->run("LOAD 'dailyrollup'; SET client_min_messages = warning;");
}

# ALTER SYSTEM and a reload, known to this session.
sub set_server
{
	my ($name, $value) = @_;

	$session->safe(defined $value ? "ALTER SYSTEM SET $name = '$value';" : "ALTER SYSTEM RESET $name;");
	$session->safe('SELECT pg_reload_conf();');
	my $shown = $value // 'unset';
	for (1 .. 200)
	{
		return if $session->safe("SHOW $name;") eq $shown;
		sleep 0.02;
	}
	die "$name is not $shown after a reload";
}

sub states
{
	return $session->safe('SELECT string_agg(state, $$ $$ ORDER BY rollup::text) FROM rollup_status;');
}

# In transactions of their own: each locks a source against those who write to
# several.
sub make_rollups
{
	my ($suffix) = @_;

	$session->safe("SELECT make_rollup('${_}_$suffix', '$_');") for @DrModes::sources;
	return;
}

# --- who may set it ---------------------------------------------------------

connect_anew();
$session->safe("CREATE EXTENSION dailyrollup;\n$DrModes::COMPARE$DrModes::SQL");
is($session->safe('SHOW dailyrollup.mode;'), 'unset', 'no mode is wanted by default');
is($session->safe('SHOW dailyrollup.delay;'), '210min', 'a boundary falls due at half past three');

$session->safe('CREATE ROLE someone LOGIN;');
for my $order (
	"SET dailyrollup.mode = 'on';", "SET LOCAL dailyrollup.delay = '1h';",
	"ALTER ROLE someone SET dailyrollup.mode = 'on';",
	"ALTER DATABASE postgres SET dailyrollup.mode = 'on';",
	"ALTER FUNCTION base() SET dailyrollup.mode = 'on';",
	"SELECT set_config('dailyrollup.mode', 'on', false);")
{
	is(join(' ', DrSession::errors($session->run($order))), '55P02', "refused: $order");
}
is(join(' ', DrSession::errors($session->run("ALTER SYSTEM SET dailyrollup.mode = 'onn';"))),
	'22023', 'ALTER SYSTEM knows a typo');

# --- a rollup's own mode, and none at all -----------------------------------

make_rollups('a');
$session->safe("SELECT make_rollup('plain_own', 'plain', 'shadow');");
is(states(), 'new new new new', 'new rollups');
$session->safe('CALL rollup_run();');
is(states(), 'off off shadow off', 'where no mode is wanted a new rollup goes to off, or to its own mode');
set_server('dailyrollup.mode', 'on');
$session->safe('CALL rollup_run();');
is(states(), 'on on shadow on', "one with a mode of its own does not follow the server's");
$session->safe("SELECT rollup_alter('plain_own', mode => 'default');");
is($session->safe("SELECT wanted_mode FROM rollup_status WHERE rollup = 'plain_own'::regclass;"),
	'on', 'until it has none');
$session->safe('CALL rollup_run();');
is(states(), 'on on on on', 'then it does');
$session->safe("SELECT rollup_alter('plain_own', mode => 'off'); CALL rollup_run();");
is(states(), 'on on off on', 'its own mode again');
set_server('dailyrollup.mode', undef);
$session->safe("SELECT rollup_alter('plain_own', mode => 'default'); CALL rollup_run();");
is(states(), 'on on off on', 'unset leaves each where it is');
$session->safe("SELECT rollup_drop('plain_own', true);");
set_server('dailyrollup.mode', 'off');
$session->safe('CALL rollup_run();');
is(states(), 'off off off', 'off is said');

# --- when a boundary is due -------------------------------------------------

set_server('dailyrollup.mode', 'shadow');
set_server('dailyrollup.delay', '4d');
sub due { return $session->safe("SELECT date_trunc('day', now() - interval '$_[0]', 'UTC');"); }
my @due = (due('4 days'));
$session->safe('CALL rollup_run();');
push @due, due('4 days');
my $w = $session->safe("SELECT DISTINCT watermark FROM rollup_status;");
ok(grep({ $_ eq $w } @due), "the delay decides to which boundary: $w");
$session->safe("SELECT rollup_alter('plain_a', delay => '2 days');");
$session->safe('CALL rollup_run();');
is($session->safe("SELECT DISTINCT watermark - '$w' FROM rollup_status ORDER BY 1;"),
	"00:00:00\n2 days", "a rollup's own delay beats the server's");
$session->safe("SELECT rollup_alter('plain_a', delay => '-1');");
$session->safe('CALL rollup_run();');
is($session->safe("SELECT DISTINCT watermark - '$w' FROM rollup_status ORDER BY 1;"),
	"00:00:00\n2 days", 'a watermark does not go back');
set_server('dailyrollup.mode', 'off');
$session->safe('CALL rollup_run();');

# --- every change, under writers --------------------------------------------

my @writers = map { DrModes->start($node, "writer $_", "CALL write_on('writer $_', 0.$_);") } 1 .. 2;
my @readers = (
	DrModes->start($node, 'reader 1', "SET lock_timeout = '1ms'; CALL read_on('reader 1');"),
	DrModes->start($node, 'reader 2', "SET lock_timeout = '1ms'; CALL read_sums_on('reader 2');"));

# One reload, one pass, and what each rollup is then.
sub change
{
	my ($mode, $expected, $delay) = @_;

	set_server('dailyrollup.delay', $delay) if $delay;
	set_server('dailyrollup.mode', $mode);
	sleep 0.3;
	my $answer = $session->run('CALL rollup_run();');
	is($answer, '', ($mode // 'unset') . ': the pass says nothing');
	is(states(), $expected, ($mode // 'unset') . ": $expected");
	is( $session->safe('SELECT string_agg(format($$%s %s$$, rollup, x), $$, $$) FROM rollup_status, wrong(rollup) x
			WHERE live_wrong + shadow_wrong + current_wrong > 0 OR live_rows = 0;'),
		'', 'live, shadow and _current are exact');
	sleep 0.3;
	return;
}

change('shadow', 'shadow shadow shadow');               # off to shadow
change('shadow', 'shadow shadow shadow', '3d');         # a refresh
change('off', 'off off off');                           # shadow to off
change('on', 'on on on');                               # off to on
change('on', 'on on on', '2d');                         # a refresh
make_rollups('b');
change('on', 'on on on on on on');                      # new to on
change('off', 'off off off off off off');               # on to off
change('shadow', 'shadow shadow shadow shadow shadow shadow', '1d');
change('on', 'on on on on on on');                      # shadow to on
change('shadow', 'shadow shadow shadow shadow shadow shadow'); # on to shadow
$session->safe("SELECT make_rollup('plain_c', 'plain');");
change('shadow', 'shadow shadow shadow shadow shadow shadow shadow'); # new to shadow
$session->safe("SELECT make_rollup('plain_d', 'plain');");
change(undef, 'shadow shadow shadow shadow shadow off shadow shadow', '3h'); # new to off
$session->safe("SELECT rollup_promote('plain_a'), rollup_promote('unique_a');");
$session->safe("SELECT rollup_alter(rollup, mode => 'default'), rollup_reseed(rollup) FROM rollup_status WHERE state = 'on';");
change(undef, 'shadow shadow on shadow shadow off on shadow');  # a reseed
change('on', 'on on on on on on on on');
change('off', 'off off off off off off off off');

$session->safe('UPDATE control SET stop = true;');
is($_->finish, '', "$_->{name} has met no error") for @writers, @readers;
is($session->safe('TABLE complaints;'), '', 'and nobody has ever seen anything wrong');
my $counts = $session->safe('SELECT who, n FROM counts ORDER BY who;');
note $counts;
is($session->safe("SELECT count(*) FROM counts WHERE n > 50;"), 4, 'all had something to do');
is($session->safe("SELECT string_agg(format('%s %s', rollup, d), ', ') FROM rollup_status, rollup_verify(rollup) d;"),
	'', 'rollup_verify agrees');
is($session->safe('SELECT count(*) FROM rollup_check() WHERE rows <> keys OR dup_rows > 0;'), 0, 'rows = keys');
is($session->safe("SELECT count(*) FROM rollup_runs WHERE outcome NOT IN ('ok');"), 0, 'no step failed, and no diff differed');

# --- restarts ---------------------------------------------------------------

# nobody writes any more; what passes do can be seen
$session->safe("SELECT rollup_alter('plain_a', mode => 'shadow'), rollup_alter('unique_a', mode => 'on'); CALL rollup_run();");
$session->safe("SELECT rollup_alter('plain_a', mode => 'default'), rollup_alter('unique_a', mode => 'default');");
my $before = states();
is($before, 'off off shadow off off off on off', 'rollups in each state');
$session->safe('ALTER SYSTEM RESET ALL;');
$node->append_conf('postgresql.conf', "dailyrollup.mode = unset\nshared_preload_libraries = ''\n");

# In postgresql.conf; undef: without the line.
sub mode_in_file
{
	my ($value) = @_;

	my $file = slurp_file($node->data_dir . '/postgresql.conf') =~ s/^dailyrollup\.mode.*\n//mgr;
	$file .= "dailyrollup.mode = $value\n" if defined $value;
	open my $out, '>', $node->data_dir . '/postgresql.conf' or die $!;
	print $out $file;
	close $out;
	return;
}

sub restart
{
	my ($what, $mode) = @_;

	mode_in_file($mode);
	$session->quit;
	$node->restart;
	my $said = connect_anew();
	is($session->safe('SHOW dailyrollup.mode;'), 'unset', "$what: no mode is wanted");
	$session->safe('CALL rollup_run(); CALL rollup_run();');
	is(states(), $before, "$what: passes change no state");
	return $said;
}

# A reload, and the time that a session needs to notice.
sub reload
{
	my ($mode) = @_;

	mode_in_file($mode);
	$session->safe('SELECT pg_reload_conf();');
	$session->safe('SELECT pg_sleep(0.02);') for 1 .. 10;
	return;
}

for my $preload ('', 'dailyrollup')
{
	my $how = $preload ? ' (preloaded)' : '';

	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'$preload'");
	my $length = -s $node->logfile;
	my $said = restart("a typo$how", 'onn');
	$said = slurp_file($node->logfile, $length) if $preload;
	like($said, qr/WARNING: .*invalid value for parameter "dailyrollup.mode": "onn"/, "a typo$how: a warning");
	restart("the line gone$how", undef);
	reload('shadow');
	is($session->safe('SHOW dailyrollup.mode;'), 'shadow', "a reload$how");
	reload('onn');
	is($session->safe('SHOW dailyrollup.mode;'), 'shadow', "a typo that a reload finds leaves the mode as it was$how");
	reload(undef);
	is($session->safe('SHOW dailyrollup.mode;'), 'unset', "a line that a reload does not find is unset$how");
	is( join(' ', DrSession::errors($session->run("ALTER ROLE someone SET dailyrollup.mode = 'on';"))),
		'55P02', "no role has a mode of its own$how");

	# a client that says otherwise, before the library is loaded
	my $stderr = '';
	$node->psql('postgres', 'CALL rollup_run();', stderr => \$stderr,
		connstr => $node->connstr('postgres') . " options='-c dailyrollup.mode=on'");
	like($stderr, qr/parameter "dailyrollup.mode" cannot be changed now/, "nor has a client$how");

	if ($preload)
	{
		# a session that has loaded nothing itself
		$node->safe_psql('postgres', 'ALTER SYSTEM SET dailyrollup.mode = shadow;');
		like(slurp_file($node->data_dir . '/postgresql.auto.conf'), qr/^dailyrollup.mode = 'shadow'$/m,
			"ALTER SYSTEM without more ado$how");
	}
	$session->safe('ALTER SYSTEM RESET dailyrollup.mode;');
	$session->safe('CALL rollup_run();');
	is(states(), $before, "all the while no state has changed$how");
}
reload('off');
$session->safe('CALL rollup_run();');
is(states(), join(' ', ('off') x 8), 'back to off is said');
is($session->safe('SELECT sum(live_wrong + shadow_wrong + current_wrong) FROM rollup_status, wrong(rollup);'), 0, 'and all is exact');

$session->quit;
$node->stop;
done_testing();
