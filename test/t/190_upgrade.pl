# ALTER EXTENSION ... UPDATE, from every version that has an install script to the
# one of the control file: what is there then is what a new installation has, object
# by object (definitions, owners, privileges, comments, what a dump carries), rollups
# in each state are as they were, and go on, in sessions that were open too.
#
# Versions that are made up show that this is so when there is a second one, and
# that a forgotten thing is found: 0.0.9 has things that its update takes away, and
# one of 0.0.8 forgets some of them.  To the version that is there already, an
# update is a NOTICE and changes nothing.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrModes;
use DrSession;

my $node = PostgreSQL::Test::Cluster->new('upgrade');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\ndailyrollup.delay = 0\ndailyrollup.late_interval = 0\n");
$node->start;

my $now = $node->safe_psql('postgres', "SELECT default_version FROM pg_available_extensions WHERE name = 'dailyrollup'");
my $folder = $node->config_data('--sharedir') . '/extension';
my @earlier = grep { $_ ne $now } map { m{/dailyrollup--([^/-]+)\.sql$} } glob "$folder/dailyrollup--*.sql";

# --- the objects ------------------------------------------------------------------

# All that belongs to the extension, one line each, with nothing in it that differs
# between two databases.  pg_identify_object names it; the rest is what a change of
# it would change.
my $objects = <<'SQL';
SET search_path = pg_catalog;
WITH member AS (
	SELECT d.classid, d.objid, d.objsubid, o.type || ' ' || o.identity AS name
	FROM pg_depend d, pg_identify_object(d.classid, d.objid, d.objsubid) o
	WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dailyrollup') AND d.deptype = 'e'),
relation AS (SELECT m.name AS member, c.* FROM member m JOIN pg_class c ON c.oid = m.objid AND m.classid = 'pg_class'::regclass)
SELECT m.name || ': ' || coalesce(obj_description(m.objid, m.classid::regclass::name), 'no comment') FROM member m
UNION ALL SELECT 'routine ' || m.name || ': ' || concat_ws(' ', pg_get_userbyid(p.proowner), p.prokind, p.prosrc, p.probin, p.provolatile, p.proisstrict, p.prosecdef, p.proparallel, p.proleakproof, p.procost, p.prorows,
	nullif(p.prosupport::text, '-'), p.proconfig, p.prosqlbody IS NOT NULL, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname, sorted(p.proacl))
	FROM member m JOIN pg_proc p ON p.oid = m.objid AND m.classid = 'pg_proc'::regclass JOIN pg_language l ON l.oid = p.prolang
UNION ALL SELECT 'aggregate ' || m.name || ': ' || concat_ws(' ', a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn, a.aggtranstype::regtype, a.aggkind, a.aggfinalmodify, a.agginitval)
	FROM member m JOIN pg_aggregate a ON a.aggfnoid = m.objid AND m.classid = 'pg_proc'::regclass
UNION ALL SELECT 'relation ' || r.member || ': ' || concat_ws(' ', r.relkind, pg_get_userbyid(r.relowner), r.relpersistence, r.reloptions, r.relrowsecurity, r.relforcerowsecurity, r.relreplident, sorted(r.relacl)) FROM relation r
UNION ALL SELECT 'column ' || r.member || '.' || a.attname || ': ' || concat_ws(' ', (SELECT count(*) FROM pg_attribute b WHERE b.attrelid = a.attrelid AND b.attnum > 0 AND NOT b.attisdropped AND b.attnum <= a.attnum),
	format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated, a.attcollation::regcollation, a.attstorage, pg_get_expr(d.adbin, d.adrelid), sorted(a.attacl), col_description(a.attrelid, a.attnum))
	FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL SELECT 'constraint ' || r.member || ' ' || c.conname || ': ' || pg_get_constraintdef(c.oid) FROM relation r JOIN pg_constraint c ON c.conrelid = r.oid
UNION ALL SELECT 'index ' || r.member || ': ' || pg_get_indexdef(i.indexrelid) FROM relation r JOIN pg_index i ON i.indrelid = r.oid
UNION ALL SELECT 'trigger ' || r.member || ': ' || t.tgenabled::text || ' ' || pg_get_triggerdef(t.oid) FROM relation r JOIN pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal
UNION ALL SELECT 'policy ' || r.member || ' ' || p.polname || ': ' || concat_ws(' ', p.polcmd, p.polpermissive, pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)) FROM relation r JOIN pg_policy p ON p.polrelid = r.oid
UNION ALL SELECT 'view ' || r.member || ': ' || pg_get_viewdef(r.oid) FROM relation r WHERE r.relkind IN ('v', 'm')
UNION ALL SELECT 'sequence ' || r.member || ': ' || concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle) FROM relation r JOIN pg_sequence s ON s.seqrelid = r.oid
UNION ALL SELECT 'type ' || m.name || ': ' || concat_ws(' ', pg_get_userbyid(t.typowner), t.typtype, t.typbasetype::regtype, t.typnotnull, sorted(t.typacl), (SELECT string_agg(e.enumlabel, ',' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid))
	FROM member m JOIN pg_type t ON t.oid = m.objid AND m.classid = 'pg_type'::regclass
UNION ALL SELECT 'event trigger ' || e.evtname || ': ' || concat_ws(' ', e.evtevent, pg_get_userbyid(e.evtowner), e.evtfoid::regproc, e.evtenabled, e.evttags) FROM member m JOIN pg_event_trigger e ON e.oid = m.objid AND m.classid = 'pg_event_trigger'::regclass
UNION ALL SELECT 'schema ' || n.nspname || ': ' || concat_ws(' ', pg_get_userbyid(n.nspowner), sorted(n.nspacl)) FROM pg_namespace n WHERE n.nspname = 'dailyrollup'
UNION ALL SELECT 'initial privileges of ' || m.name || ': ' || sorted(i.initprivs) FROM member m JOIN pg_init_privs i USING (classoid, objoid)
UNION ALL SELECT 'dumped: ' || c.oid::regclass || ' ' || x.condition FROM pg_extension e, unnest(e.extconfig, e.extcondition) x(oid, condition), pg_class c WHERE e.extname = 'dailyrollup' AND c.oid = x.oid
UNION ALL SELECT 'extension: ' || concat_ws(' ', extversion, extrelocatable, extnamespace::regnamespace) FROM pg_extension WHERE extname = 'dailyrollup'
ORDER BY 1
SQL
# privileges in an order of their own; the members by the names that pg_init_privs has
$objects =~ s/\bsorted\(([\w.]+)\)/(SELECT string_agg(x::text, ',' ORDER BY x::text) FROM unnest($1) x)/g;
$objects =~ s/USING \(classoid, objoid\)/ON i.classoid = m.classid AND i.objoid = m.objid AND i.objsubid = m.objsubid/;

sub objects { return [ split /\n/, $node->safe_psql($_[0], $objects) ] }

# --- rollups that are there before ------------------------------------------------

my @states = qw(on off shadow new);
my $rollups = $DrModes::COMPARE . <<'SQL' . join '', map { <<"SQL" } @states;
SET client_min_messages = error;
CREATE TABLE src (subject text NOT NULL, name text, ts timestamptz NOT NULL, v int) PARTITION BY LIST (subject);
CREATE TABLE src_0 PARTITION OF src FOR VALUES IN ('a', 'b');
CREATE TABLE src_1 PARTITION OF src DEFAULT;
CREATE INDEX ON src (subject, name, ts);
INSERT INTO src SELECT chr(97 + i % 4), nullif('x' || i % 2, 'x0'), now() - i * interval '3 h', i FROM generate_series(1, 40) i;
SQL
SELECT rollup_create('is_$_', 'SELECT subject, name, count(*) AS count, latest(v, ts) AS v, max(ts) AS ts FROM src GROUP BY subject, name', 'ts', dedup_by => '{subject,name,ts}');
SELECT rollup_alter('is_$_', mode => '$_') WHERE '$_' <> 'new'; CALL rollup_run(CASE WHEN '$_' = 'new' THEN 'is_on' ELSE 'is_$_' END);
SQL
my $late = "INSERT INTO src SELECT 'a', 'x1', now() - i * interval '1 day', 1 FROM generate_series(0, 4) i; DELETE FROM src WHERE v = 33; SET dailyrollup.backfill = on; INSERT INTO src VALUES ('z', 'x1', now() - interval '3 days', 1); RESET dailyrollup.backfill;";
my $looks = 'SELECT rollup, state, mode, watermark, late_keys, shadow FROM rollup_status ORDER BY rollup::text; '
  . join '', map { "SELECT * FROM is_$_ ORDER BY 1, 2; SELECT * FROM is_${_}_current ORDER BY 1, 2; " } @states;

sub exact
{
	my ($database, $what) = @_;

	return is($node->safe_psql($database, 'SELECT live, w FROM dailyrollup.rollups, wrong(live) w WHERE live_wrong + shadow_wrong + current_wrong > 0'), '', $what);
}

# --- an update ----------------------------------------------------------------------

my $made = 0;

sub database
{
	my ($version) = @_;
	my $database = 'd' . ++$made;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION dailyrollup VERSION '$version'");
	return $database;
}

# What differs from a new installation, after the update.
sub differences
{
	my ($is, $should) = @_;
	my %should = map { $_ => 1 } @$should;
	my %is = map { $_ => 1 } @$is;

	return ((map { "- $_" } grep { !$is{$_} } @$should), (map { "+ $_" } grep { !$should{$_} } @$is));
}

sub update
{
	my ($from, $to) = @_;
	my $what = "from $from to $to";
	my $new = objects(database($to));
	my $database = database($from);

	$node->safe_psql($database, "SET client_min_messages = error; $rollups");
	$node->safe_psql($database, $late);
	my $before = $node->safe_psql($database, $looks);
	my $open = DrSession->new(name => 'open', connstr => $node->connstr($database));
	$open->safe('INSERT INTO src VALUES (\'c\', \'x1\', now(), 0); DELETE FROM src WHERE v = 0; SELECT count(*) FROM is_on_current;') for 1 .. 2;
	$before = $node->safe_psql($database, $looks);
	$node->safe_psql($database, "ALTER EXTENSION dailyrollup UPDATE TO '$to'");
	is($node->safe_psql($database, $looks), $before, "$what: rollups are as they were");
	my @differences = differences(objects($database), $new);
	is($open->run("SET client_min_messages = error; $late SELECT count(*) > 0 FROM is_on_current; CALL rollup_run();"), "t\n", "$what: a session that was open goes on");
	$open->quit;
	exact($database, "$what: exact after the next pass");
	is($node->safe_psql($database, 'SELECT count(*) FROM rollup_late'), 0, "$what: no key waits");
	$node->safe_psql($database, 'SET client_min_messages = error; DROP EXTENSION dailyrollup CASCADE');
	is($node->safe_psql($database, "SELECT count(*) FROM pg_proc WHERE probin ~ 'dailyrollup'"), 0, "$what: and it can be dropped");
	return @differences;
}

for my $version (@earlier)
{
	my @differences = update($version, $now);
	is(join("\n", @differences), '', "from $version to $now: as a new installation");
}
note('no earlier version has an install script here') if !@earlier;

# --- versions that are made up --------------------------------------------------------

my @made;

sub make
{
	my ($name, $text) = @_;

	# in the tests' own installation
	push @made, "$folder/dailyrollup--$name.sql";
	die "$made[-1] is there" if -e $made[-1];
	append_to_file($made[-1], $text);
	return;
}

END { unlink @made if @made }

my $install = slurp_file("$folder/dailyrollup--$now.sql");
my $comment = $node->safe_psql(database($now), "SELECT quote_literal(obj_description('rollup_drop(regclass,bool)'::regprocedure))");
my $more = <<'SQL';
CREATE TABLE dailyrollup.bygone (x int PRIMARY KEY, y text DEFAULT 'none');
SELECT pg_catalog.pg_extension_config_dump('dailyrollup.bygone', '');
CREATE FUNCTION rollup_bygone() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
COMMENT ON FUNCTION rollup_drop(regclass, bool) IS 'Says something else.';
GRANT DELETE ON rollup_runs TO PUBLIC;
CREATE INDEX bygone_index ON dailyrollup.runs (outcome);
ALTER TABLE dailyrollup.rollups ALTER COLUMN mode SET STORAGE EXTERNAL;
SQL
my @less = ("SELECT pg_catalog.pg_extension_config_dump('dailyrollup.bygone', ''); ALTER EXTENSION dailyrollup DROP TABLE dailyrollup.bygone; DROP TABLE dailyrollup.bygone;",
	'ALTER EXTENSION dailyrollup DROP FUNCTION rollup_bygone(); DROP FUNCTION rollup_bygone();', "COMMENT ON FUNCTION rollup_drop(regclass, bool) IS $comment;",
	'REVOKE DELETE ON rollup_runs FROM PUBLIC;', 'DROP INDEX dailyrollup.bygone_index;', 'ALTER TABLE dailyrollup.rollups ALTER COLUMN mode SET STORAGE EXTENDED;');
make('0.0.9', $install . $more);
make("0.0.9--$now", join "\n", @less);
make('99.0', $install . $more);
make("$now--99.0", $more);
is(join("\n", update('0.0.9', $now)), '', "from a version that had more: as a new installation");
is(join("\n", update($now, '99.0')), '', 'to a version that has more: as a new installation');
is(join("\n", update('0.0.9', '99.0')), '', 'in two steps: as a new installation');

# each of them forgotten
for my $forgotten (0 .. $#less)
{
	my $version = "0.0.8$forgotten";
	make($version, $install . $more);
	make("$version--$now", join "\n", map { $less[$_] } grep { $_ != $forgotten } 0 .. $#less);
	my $new = objects(database($now));
	my $database = database($version);
	$node->safe_psql($database, "ALTER EXTENSION dailyrollup UPDATE TO '$now'");
	my @differences = differences(objects($database), $new);
	cmp_ok(scalar @differences, '>', 0, "a forgotten \"$less[$forgotten]\" is found");
}

# --- to the same version --------------------------------------------------------------

my $same = database($now);
$node->safe_psql($same, "SET client_min_messages = error; $rollups");
$node->safe_psql($same, $late);
my $all = "SELECT * FROM dailyrollup.rollups; SELECT xmin, oid, * FROM pg_extension; SELECT count(*), max(xmin::text::bigint) FROM pg_proc; SELECT count(*), max(xmin::text::bigint) FROM pg_class; $looks";
my @before = ($node->safe_psql($same, $all), @{ objects($same) });
my ($out, $err);
$node->psql($same, 'ALTER EXTENSION dailyrollup UPDATE', stdout => \$out, stderr => \$err);
like($err, qr/^(?:psql:.*)?NOTICE:  version "\Q$now\E" of extension "dailyrollup" is already installed$/m, 'an update to the same version is a NOTICE');
is(join("\n", $node->safe_psql($same, $all), @{ objects($same) }), join("\n", @before), 'and changes nothing');

$node->stop;
done_testing();
