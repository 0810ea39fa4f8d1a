# pg_cron makes the passes: rollup_schedule, rollup_unschedule.
#
# Two servers run pg_cron, one with background workers, one with ordinary
# connections; in each it is pg_cron that fires the jobs, and they are judged by
# what is in the tables afterwards and in cron.job_run_details.  In each, ann's
# rollup is right and bob has a second one that fails, first in order: it makes
# his job's run a failure, and the other must be there all the same.  Without the
# commit after each step of a pass it would not.
#
# Then the errors: pg_cron not loaded, not created, in another database, no
# right; and callers with hostile settings.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($workers, $clients) = map {
	my $node = PostgreSQL::Test::Cluster->new($_);
	$node->init;
	$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
# no library has it as long as pg_cron is not preloaded
cron.database_name = 'lake'
CONF
	$node;
} qw(cron_workers cron_clients);
my %schema = ($workers->name => '"Roll Up"', $clients->name => 'public');

# As a role: the rows, or "SQLSTATE: message / detail / hint".
sub as
{
	my ($node, $role, $sql, $database) = @_;
	my ($stdout, $stderr);
	my $schema = $schema{ $node->name };

	$node->psql($database // 'lake',
		"\\set VERBOSITY verbose\nSET search_path = $schema, public;\n$sql",
		stdout => \$stdout, stderr => \$stderr, on_error_stop => 1,
		extra_params => [ '-U', $role ]);
	return $stdout if $stderr !~ /ERROR/;
	my ($kind, %said);
	for (split /\n/, $stderr)
	{
		$kind = $1 if s/^.*?(WARNING|ERROR|DETAIL|HINT|CONTEXT|LOCATION):\s+//;
		$said{$kind} .= $_ if defined $kind;
	}
	return join ' / ', grep { defined } @said{qw(ERROR DETAIL HINT CONTEXT)};
}

sub admin { my ($node, $sql, $database) = @_; return as($node, 'dba', $sql, $database) }

# ------------------------------------------------------------- not loaded

$workers->start;
$workers->safe_psql('postgres', 'CREATE DATABASE lake; CREATE ROLE dba SUPERUSER LOGIN;');
$workers->safe_psql('lake', 'CREATE SCHEMA "Roll Up"; CREATE EXTENSION dailyrollup SCHEMA "Roll Up"');
my $installed = $workers->safe_psql('lake',
	q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_cron'});

if (!$installed)
{
	like(admin($workers, 'SELECT rollup_schedule()'),
		qr{^55000: pg_cron is not installed on this server / Install it}, 'without pg_cron: what to install');
	is(admin($workers, 'SELECT rollup_unschedule(), dailyrollup._scheduled()'), 'f|f', 'no job, and no error');
	$workers->stop;
	note 'pg_cron is not installed: the rest is not tested';
	done_testing();
	exit;
}

like(admin($workers, 'SELECT rollup_schedule()'),
	qr{^55000: pg_cron is not loaded / Add pg_cron to shared_preload_libraries, set cron.database_name to 'lake'},
	'pg_cron is not loaded, whatever settings stand in postgresql.conf');
is(admin($workers, 'SELECT rollup_unschedule(), dailyrollup._scheduled()'), 'f|f', 'there is no job, without an error');
$workers->stop;

# ----------------------------------------------------------- it is running

$workers->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = 'pg_cron'
cron.use_background_workers = on
CONF
$clients->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = 'pg_cron'
cron.use_background_workers = off
cron.host = '${\ $clients->host }'
CONF
$_->start for $workers, $clients;

like(admin($workers, 'SELECT rollup_schedule()'),
	qr{^55000: extension "pg_cron" does not exist in this database / Run CREATE EXTENSION pg_cron},
	'loaded, but not created');
is(admin($workers, 'SELECT rollup_unschedule(), dailyrollup._scheduled()'), 'f|f', 'there is no job, without an error');

$clients->safe_psql('postgres', 'CREATE DATABASE lake; CREATE ROLE dba SUPERUSER LOGIN;');
$clients->safe_psql('lake', 'CREATE EXTENSION dailyrollup');
for my $node ($workers, $clients)
{
	$node->safe_psql('lake', <<'SQL');
CREATE EXTENSION pg_cron;
CREATE ROLE ann LOGIN;
CREATE ROLE bob LOGIN;
CREATE ROLE "o'Neil" LOGIN;
GRANT USAGE ON SCHEMA cron TO ann, bob;
CREATE SCHEMA ann AUTHORIZATION ann;
CREATE SCHEMA bob AUTHORIZATION bob;
GRANT USAGE ON SCHEMA public TO ann, bob, "o'Neil";
SQL
	$node->safe_psql('lake', 'GRANT USAGE ON SCHEMA "Roll Up" TO PUBLIC') if $node == $workers;
	for my $owner (qw(ann bob))
	{
		as($node, $owner, <<"SQL");
CREATE TABLE $owner.broken (k int, at timestamptz NOT NULL);
CREATE TABLE $owner.events (k int, at timestamptz NOT NULL);
INSERT INTO $owner.events SELECT i % 3, now() - i * interval '7 hours' FROM generate_series(1, 40) i;
INSERT INTO $owner.broken TABLE $owner.events;
SQL
	}
	as($node, 'bob', <<'SQL');
SELECT rollup_create('bob.fails', 'SELECT k, count(*), max(at) FROM bob.broken GROUP BY k', 'at', mode => 'on');
ALTER TABLE bob.broken DISABLE TRIGGER USER;
SQL
	as($node, $_,
		"SELECT rollup_create('$_.daily', 'SELECT k, count(*), max(at) FROM $_.events GROUP BY k', 'at', mode => 'on')")
	  for qw(ann bob);
}

# what stands in pg_cron's table
my $jobs = q{SELECT jobid, jobname, username, database, schedule, command, active FROM cron.job ORDER BY username, jobname};

# 1.4 knows no seconds
my $often = $workers->safe_psql('lake', q{SELECT CASE WHEN extversion ~ '^1\.[0-4](\D|$)' THEN '* * * * *' ELSE '5 seconds' END
  FROM pg_extension WHERE extname = 'pg_cron'});
note "the jobs run at $often";

# -------------------------------------------------------- who may schedule

like(as($workers, q{o'Neil}, 'SELECT rollup_schedule()'),
	qr{^42501: permission denied for schema cron / A superuser lets the role schedule jobs: GRANT USAGE ON SCHEMA cron TO "o'Neil"},
	'without the right: whom to ask for what');
like(as($workers, q{o'Neil}, 'SELECT rollup_unschedule()'), qr{^42501: permission denied for schema cron}, 'nor unschedule');
is(as($workers, q{o'Neil}, 'SELECT dailyrollup._scheduled()'), 'f', 'what one may not see is not there, without an error');
like(as($workers, 'ann', q{SELECT rollup_schedule('every day')}),
	qr{^(?:XX000|22023): invalid schedule: every day .*/ .*scheduling "CALL "Roll Up".rollup_run\(\)" with pg_cron at "every day"},
	'a schedule that pg_cron does not know');
like(as($workers, 'ann', 'SELECT rollup_schedule(NULL)'), qr{^22004: argument "cron" must not be null}, 'none at all');
like(as($workers, 'ann', 'SET default_transaction_read_only = on; SELECT rollup_schedule()'),
	qr{^25006: cannot execute rollup_schedule\(\) in a read-only transaction}, 'in a read-only transaction');
is($workers->safe_psql('lake', 'SELECT count(*) FROM cron.job'), '0', 'none of that has left a job');

# ------------------------------------------------------- schedule, replace

my %job;
for my $node ($workers, $clients)
{
	my $name = $node->name;
	my $call = "CALL $schema{$name}.rollup_run()";

	my $id = as($node, 'ann', 'SELECT rollup_schedule()');
	like($id, qr/^\d+$/, "$name: a job");
	is($node->safe_psql('lake', $jobs), "$id|dailyrollup|ann|lake|*/10 * * * *|$call|t", "$name: by default each ten minutes");
	is(as($node, 'ann', 'SELECT dailyrollup._scheduled()'), 't', "$name: seen by its owner");
	is(as($node, 'bob', 'SELECT dailyrollup._scheduled()'), 'f', "$name: not by others");
	is(admin($node, 'SELECT dailyrollup._scheduled()'), 't', "$name: but by superusers");

	is(as($node, 'ann', "SELECT rollup_schedule('$often')"), $id, "$name: replaced, the same job");
	is($node->safe_psql('lake', $jobs), "$id|dailyrollup|ann|lake|$often|$call|t", "$name: at another time");

	$job{$name} = { ann => $id, bob => as($node, 'bob', "SELECT rollup_schedule('$often')") };
	isnt($job{$name}{bob}, $id, "$name: each role has its own");
}

# from another database, as the hint says; o'Neil owns nothing there
$workers->safe_psql('postgres', q{CREATE DATABASE "sea's"});
$workers->safe_psql(q{sea's}, q{CREATE EXTENSION dailyrollup; CREATE TABLE events (k int, at timestamptz NOT NULL);
	ALTER TABLE events OWNER TO "o'Neil"; GRANT CREATE ON SCHEMA public TO "o'Neil";
	INSERT INTO events SELECT 1, now() - i * interval '7 hours' FROM generate_series(1, 40) i;});
as($workers, q{o'Neil}, q{SELECT rollup_create('daily', 'SELECT k, count(*) FROM events GROUP BY k', 'at', mode => 'on')}, q{sea's});
my $said = as($workers, q{o'Neil}, "SELECT rollup_schedule('$often')", q{sea's});
like($said, qr{^55000: pg_cron keeps its jobs in database "lake" / This is database "sea's". / There, as a superuser, run: SELECT},
	'pg_cron lives in another database');
my ($call) = $said =~ /run: (SELECT .*?;)/;
like(admin($workers, $call), qr/^\d+$/, 'what the hint says makes a job');
is($workers->safe_psql('lake', q{SELECT username, database, schedule, command FROM cron.job WHERE jobname = 'dailyrollup in sea''s'}),
	"o'Neil|sea's|$often|CALL public.rollup_run()", 'as the caller, in the database of the call');
is(as($workers, q{o'Neil}, 'SELECT dailyrollup._scheduled()', q{sea's}), 'f', 'a job in another database is not seen');

# ----------------------------------------------- and pg_cron runs the jobs

sub wait_for_run
{
	my ($node, $job, $after) = @_;
	$node->poll_query_until('lake', "SELECT count(*) > 0 FROM cron.job_run_details
	  WHERE jobid = $job AND status IN ('succeeded', 'failed') AND runid > $after")
	  or die "pg_cron has not run job $job";
	return $node->safe_psql('lake', "SELECT status, return_message FROM cron.job_run_details
	  WHERE jobid = $job AND status IN ('succeeded', 'failed') AND runid > $after ORDER BY runid LIMIT 1");
}

# the state, whether the watermark is the latest midnight that is 210 minutes
# old, the keys, the rows that are wrong
sub look
{
	my ($node, $rollup, $database) = @_;
	my $was = admin($node, "SELECT s.state,
	  s.watermark = date_trunc('day', now() - interval '210 min') OR
	  s.watermark = date_trunc('day', now() - interval '215 min'), s.late_keys
	  FROM rollup_status s WHERE s.rollup = '$rollup'::regclass", $database);
	return $was if $was =~ /^new/;
	return "$was|" . admin($node, "SELECT (SELECT count(*) FROM $rollup), (SELECT count(*) FROM rollup_verify('$rollup'))", $database);
}

for my $node ($workers, $clients)
{
	my $name = $node->name;
	my %id = %{ $job{$name} };

	like(wait_for_run($node, $id{ann}, 0), qr/^succeeded\|/, "$name: ann's job succeeded");
	is(look($node, 'ann.daily'), 'on|t|0|3|0', "$name: it has filled her rollup, exactly");
	like(wait_for_run($node, $id{bob}, 0), qr/^failed\|.*1 of 2 rollups failed/, "$name: bob's job failed, and says how");
	is(look($node, 'bob.daily'), 'on|t|0|3|0', "$name: his other rollup was filled nevertheless");
	like(look($node, 'bob.fails'), qr/^new\|/, "$name: the one that fails was not");
	is($node->safe_psql('lake', "SELECT DISTINCT username FROM cron.job_run_details WHERE jobid = $id{bob}"), 'bob', "$name: the job ran as him");
}
$workers->poll_query_until(q{sea's}, q{SELECT state = 'on' FROM rollup_status}) or die 'the job in the other database did not run';
is(look($workers, 'daily', q{sea's}), 'on|t|0|1|0', 'the job in the other database has filled the rollup there');

# ------------------------------------------------------------- unschedule

for my $node ($workers, $clients)
{
	my ($name, $id) = ($node->name, $job{ $node->name }{ann});

	is(as($node, 'ann', 'SELECT rollup_unschedule()'), 't', "$name: removed");
	is($node->safe_psql('lake', "SELECT count(*) FROM cron.job WHERE jobid = $id"), '0', "$name: gone");
	is(as($node, 'ann', 'SELECT dailyrollup._scheduled()'), 'f', "$name: seen no more");
	is(as($node, 'ann', 'SELECT rollup_unschedule()'), 'f', "$name: there is none any more");
	is($node->safe_psql('lake', "SELECT count(*) FROM cron.job WHERE username = 'bob'"), '1', "$name: the others stay");
	# late rows, for the next run of bob's job and no run of ann's
	as($node, $_, "INSERT INTO $_.events SELECT 7, now() - interval '5 days'") for qw(ann bob);
}
my %last = map {
	$_->name => { runs => $_->safe_psql('lake', 'SELECT count(*) FROM cron.job_run_details WHERE jobid = ' . $job{ $_->name }{ann}),
		runid => $_->safe_psql('lake', 'SELECT max(runid) FROM cron.job_run_details') }
} $workers, $clients;
for my $node ($workers, $clients)
{
	my $name = $node->name;
	my %id = %{ $job{$name} };

	like(wait_for_run($node, $id{bob}, $last{$name}{runid}), qr/^failed\|/, "$name: bob's job goes on");
	is(look($node, 'bob.daily'), 'on|t|0|4|0', "$name: and heals his late key");
	is($node->safe_psql('lake', "SELECT count(*) FROM cron.job_run_details WHERE jobid = $id{ann}"), $last{$name}{runs}, "$name: ann's ran no more");
	is(look($node, 'ann.daily'), 'on|t|1|3|0', "$name: her late key waits");
}

# the job of another database
$said = as($workers, q{o'Neil}, 'SELECT rollup_unschedule()', q{sea's});
like($said, qr{^55000: pg_cron keeps its jobs in database "lake" / .* There, as a superuser, run: SELECT}, 'to unschedule, too');
($call) = $said =~ /run: (SELECT .*?;)/;
is(admin($workers, $call), 't', 'what the hint says removes it');

# ----------------------------- a job that pg_cron would not run is made anew

my $old = as($workers, 'ann', 'SELECT rollup_schedule()');
$workers->safe_psql('lake', "SELECT cron.alter_job($old, active => false)");
is(as($workers, 'ann', 'SELECT dailyrollup._scheduled()'), 'f', 'a job that is not active does not count');
like(as($workers, 'ann', 'SELECT rollup_schedule()'), qr/^\d+$/, 'scheduled again');
is($workers->safe_psql('lake', q{SELECT count(*), bool_and(active) FROM cron.job WHERE username = 'ann'}), '1|t', 'it is active, and the only one');
$workers->safe_psql('lake', q{UPDATE cron.job SET nodeport = 1, database = 'postgres' WHERE username = 'ann'});
is(as($workers, 'ann', 'SELECT dailyrollup._scheduled()'), 'f', 'nor does one in another database');
as($workers, 'ann', 'SELECT rollup_schedule()');
is($workers->safe_psql('lake', q{SELECT count(*), bool_and(nodeport = current_setting('port')::int), min(database) FROM cron.job WHERE username = 'ann'}),
	'1|t|lake', 'it is in this database and at this port again');
$workers->safe_psql('lake', q{SELECT cron.schedule('mine', '0 0 * * *', 'SELECT 1'); UPDATE cron.job SET active = false WHERE username = 'ann'});
is(admin($workers, q{DELETE FROM cron.job WHERE username = 'bob'; SELECT dailyrollup._scheduled()}), 'f', 'a job that runs no pass does not count');

# ----------------------------------------- callers with settings of their own

$workers->safe_psql('lake', <<'SQL');
CREATE SCHEMA evil;
CREATE FUNCTION evil.stop(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil was called'; END $$;
CREATE OPERATOR evil.= (FUNCTION = evil.stop, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR evil.~* (FUNCTION = evil.stop, LEFTARG = text, RIGHTARG = text);
CREATE FUNCTION evil.stop(int, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil was called'; END $$;
CREATE OPERATOR evil.= (FUNCTION = evil.stop, LEFTARG = int, RIGHTARG = int);
CREATE FUNCTION evil.pg_available_extensions() RETURNS TABLE (name name) LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil was called'; END $$;
GRANT USAGE ON SCHEMA evil TO ann;
SQL
for my $setting ('search_path = evil, pg_catalog', 'row_security = off', 'standard_conforming_strings = off', q{default_transaction_isolation = 'serializable'})
{
	like(as($workers, 'ann', "SET $setting;" . q{SELECT "Roll Up".rollup_schedule()}), qr/^\d+$/, "scheduled with $setting");
	is(as($workers, 'ann', "SET $setting; SELECT dailyrollup._scheduled()"), 't', 'and seen');
	is(as($workers, 'ann', "SET $setting;" . q{SELECT "Roll Up".rollup_unschedule()}), 't', 'and unscheduled');
	is(as($workers, 'ann', "SET $setting;" . q{SELECT "Roll Up".rollup_unschedule()}), 'f', 'once');
}

# a role that nobody can log in as
$workers->safe_psql('lake', 'CREATE ROLE nologin; GRANT USAGE ON SCHEMA cron TO nologin; GRANT nologin TO ann;');
my ($stdout, $stderr) = ('', '');
$workers->psql('lake', 'SET ROLE nologin; SELECT "Roll Up".rollup_schedule()',
	stdout => \$stdout, stderr => \$stderr, extra_params => [ '-U', 'ann' ]);
like($stdout, qr/^\d+$/, 'a role without LOGIN has its job');
like($stderr, qr/WARNING:  role "nologin" cannot log in/, 'with a warning');

# a schedule is undone with its transaction
as($workers, 'ann', 'BEGIN; SELECT rollup_schedule(); ROLLBACK;');
is($workers->safe_psql('lake', q{SELECT count(*) FROM cron.job WHERE username = 'ann'}), '0', 'rolled back, there is no job');

$_->stop for $workers, $clients;
done_testing();
