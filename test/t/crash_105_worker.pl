# The background worker is stopped in the middle of a pass, in each way that a
# server knows; the next one goes on, and the result is exact.
#
# The waitpoint build halts the worker in the step that seeds, or between two
# steps, where it holds no lock: then its rollup, the owner, the extension go
# away under it.  A worker that is not restarted, a slot that is not given back,
# or an internal error in the log makes this fail.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use Time::HiRes qw(sleep);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrSession;
use DrWorker;

my $zone = noon_zone();

my $node = worker_node('worker', <<'CONF');
log_error_verbosity = verbose
restart_after_crash = on
CONF
$node->start;
my $setup = "SET client_min_messages = error;\nCREATE EXTENSION dailyrollup;\n" . events();
$node->safe_psql('postgres', $setup);

my $holder;
sub connect_all
{
	$holder->quit if $holder;
	$holder = DrSession->new(name => '', connstr => $node->connstr('postgres'));
	return;
}

sub hold { $holder->safe("SELECT pg_advisory_lock(hashtext('$_[0]'));"); return; }
sub let { $holder->safe("SELECT pg_advisory_unlock(hashtext('$_[0]'));"); return; }

sub wait_for
{
	my ($sql, $what) = @_;
	return ok($node->poll_query_until('postgres', "SELECT $sql"), $what);
}

sub create
{
	my ($name) = @_;
	$node->safe_psql('postgres', "SET client_min_messages = error;
	  SELECT rollup_create('$name', 'SELECT k, count(*), sum(n) FROM events GROUP BY k', 'at', time_zone => '$zone', mode => 'on')");
	return;
}

# A worker of a new rollup's first pass waits there.
sub halt
{
	my ($name, $waitpoint) = @_;
	hold($waitpoint);
	create($name);
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	  WHERE l.locktype = 'advisory' AND NOT l.granted AND a.backend_type = 'dailyrollup worker'}) or die "no worker at $waitpoint";
	return $node->safe_psql('postgres', q{SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
}

# It has come to its end, and left nothing.
sub served
{
	my ($name, $what) = @_;
	wait_for("state = 'on' FROM rollup_status WHERE rollup = '$name'::regclass", "$what: the rollup is served");
	is($node->safe_psql('postgres', "SELECT s.watermark = date_trunc('day', now(), '$zone'), s.failures, (SELECT count(*) FROM rollup_verify('$name')),
	  (SELECT count(*) FROM $name), to_regclass('${name}_daily') FROM rollup_status s WHERE s.rollup = '$name'::regclass"), 't|0|0|5|', "$what: exact");
	return;
}

# What no user should ever read.
sub internal_errors
{
	my ($from) = @_;
	my $log = slurp_file($node->logfile, $from);
	return join "\n", $log =~ /^.*(?:XX000|cache lookup|could not open relation|does not exist|deadlock).*$/gm;
}

connect_all();

# -------------------------------------------------------------- a worker ends

my $pid = halt('ended', 'refresh-folded');
is($node->safe_psql('postgres', "SELECT phase FROM rollup_progress WHERE rollup = 'ended'::regclass AND pid = $pid"), 'seed', 'rollup_progress shows the pass');
kill 'TERM', $pid;
wait_for("count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'SIGTERM ends the worker in the middle of a step');
is($node->safe_psql('postgres', 'SELECT count(*) FROM rollup_progress'), '0', 'its progress has gone with it');
let('refresh-folded');
served('ended', 'after SIGTERM');

$pid = halt('canceled', 'refresh-folded');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
wait_for("count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'pg_cancel_backend ends it, too');
let('refresh-folded');
served('canceled', 'after pg_cancel_backend');

# ------------------------------------------------------------ the launcher ends

$pid = halt('orphan', 'refresh-folded');
my $launcher = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dailyrollup launcher'});
kill 'TERM', $launcher;
wait_for("count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'dailyrollup launcher' AND pid <> $launcher", 'SIGTERM of the launcher: there is another one');
let('refresh-folded');
served('orphan', 'the worker of the old one');

# --------------------------------------------------------------- the server ends

for my $mode (qw(fast immediate))
{
	halt("${mode}_stop", 'refresh-folded');
	$node->stop($mode);
	$node->start;
	connect_all();
	served("${mode}_stop", "after $mode shutdown");
}

# between two steps: what is committed stays
halt('between', 'run-committed');
$node->stop('immediate');
$node->start;
connect_all();
served('between', 'after a shutdown between two steps');

# a crash of the worker restarts the server
$pid = halt('crashed', 'refresh-folded');
kill 'KILL', $pid;
sleep 0.5;
$node->poll_query_until('postgres', 'SELECT true');
connect_all();
served('crashed', 'after kill -9');

# ------------------------------------------ what it serves goes away under it

my $mark = -s $node->logfile;
$pid = halt('dropped', 'run-committed');
$node->safe_psql('postgres', q{SET client_min_messages = error; SELECT rollup_drop('dropped', true)});
let('run-committed');
wait_for("count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'rollup_drop between two steps: the worker ends');
is(internal_errors($mark), '', 'without an internal error');

$node->safe_psql('postgres', 'CREATE ROLE ann; GRANT CREATE ON SCHEMA public TO ann; GRANT SELECT, TRIGGER ON events TO ann; GRANT ann TO CURRENT_USER');
$node->safe_psql('postgres', 'CREATE TABLE hers (LIKE events INCLUDING ALL); INSERT INTO hers TABLE events; ALTER TABLE hers OWNER TO ann');
hold('run-committed');
$node->safe_psql('postgres', "SET client_min_messages = error; SET ROLE ann;
  SELECT rollup_create('owned', 'SELECT k, count(*) FROM hers GROUP BY k', 'at', time_zone => '$zone', mode => 'on')");
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}) or die;
$pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
$node->safe_psql('postgres', 'SET client_min_messages = error; DROP OWNED BY ann CASCADE; DROP ROLE ann');
let('run-committed');
wait_for("count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'the owner is dropped between two steps: the worker ends');
is(internal_errors($mark), '', 'without an internal error');

# in the middle of a step the others wait for it
$pid = halt('waited_for', 'refresh-folded');
my $dropper = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$dropper->send('SET client_min_messages = error; DROP EXTENSION dailyrollup CASCADE;');
sleep 1;
let('refresh-folded');
is($dropper->answer, '', 'DROP EXTENSION in the middle of a step waits for it');
$mark = -s $node->logfile;
wait_for("count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'the worker ends');
is(internal_errors($mark), '', 'without an internal error');

$node->safe_psql('postgres', 'SET client_min_messages = error; DROP EXTENSION IF EXISTS dailyrollup CASCADE; CREATE EXTENSION dailyrollup; DROP TABLE waited_for;');
$pid = halt('under_it', 'run-committed');
$node->safe_psql('postgres', 'SET client_min_messages = error; DROP EXTENSION dailyrollup CASCADE');
let('run-committed');
wait_for("count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'DROP EXTENSION between two steps: the worker ends');
is(internal_errors($mark), '', 'without an internal error');
is(join("\n", slurp_file($node->logfile, $mark) =~ /^.*(?:WARNING:|ERROR:|exited with exit code).*$/gm), '', 'in silence');

$node->safe_psql('postgres', 'SET client_min_messages = error; CREATE EXTENSION dailyrollup');
create('again');
served('again', 'created anew');

# ---------------------------------------------------------- the clock is set back

# DR_NOW() is the launcher's clock: two hours ahead, then back
$node->append_conf('postgresql.conf', q{dr_test.clock = '7200'});
$node->reload;
create('ahead');
served('ahead', 'the clock is ahead');
wait_for(q{count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'dailyrollup worker'}, 'no worker runs');
$node->append_conf('postgresql.conf', q{dr_test.clock = '0'});
$node->reload;
create('set_back');
served('set_back', 'the clock is set back');

$dropper->quit;
$holder->quit;
$node->stop;
done_testing();
