# Every routine of the extension, as its catalog entries tell, called by those who
# do not own the rollup, and by its owner and a superuser among hostile objects: a
# double of each function and operator of the server's, and tables and types
# of its catalogs' names, that come first in the search_path.
#
# Fails where a routine does not ask who calls it, or where a statement of the
# extension's leaves a name to the caller's search_path.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrRoutines qw(routines calls @ROLLUPS);
use DrSession;

# What answers anybody, by whatever rollup's number: not more than its name, state
# and watermark, which triggers and views ask for with the rights of those who
# write and read.
my %open = map { $_ => 1 } 'public.latest', 'public.earliest', 'public.rollup_watermark', map { "dailyrollup.$_" }
  qw(_concerns _live_counts _live_is_left_alone _tail_from_timestamptz _tail_from_timestamp _tail_from_date
  _w_floor_timestamptz _w_floor_timestamp _w_floor_date _floor_holds _wanted_mode _worker_serves _scheduled);
# What members of pg_monitor may look at.
my %monitored = map { ("dailyrollup.$_" => 1) } qw(_late _next_due _progress);

my $node = PostgreSQL::Test::Cluster->new('hostile');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\n");
$node->start;
my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$session->safe("SET client_min_messages = error;\n$DrRoutines::SETUP");
my @routines = routines($session);

# ---------- those who do not own ----------

my @strangers = qw(bi_stranger bi_reader bi_writer bi_monitor);
$session->safe(<<'SQL');
CREATE ROLE bi_stranger;
CREATE ROLE bi_reader;
CREATE ROLE bi_writer;
CREATE ROLE bi_monitor IN ROLE pg_monitor;
GRANT ALL ON SCHEMA bi, public, bi_other TO bi_stranger, bi_reader, bi_writer, bi_monitor;
GRANT SELECT ON bi.on_t, bi.on_t_current, bi.off_t_current, bi.shadow_t_current, bi.new_t_current, bi.zone_t_current, bi_other.secret_rollup_current TO bi_reader;
GRANT INSERT, UPDATE, DELETE, TRUNCATE ON bi.s, bi.p, bi_other.secret_source TO bi_writer;
SQL

my %wrong;
sub wrong_of
{
	my ($routine, $what, $call, $text) = @_;
	$wrong{"$routine->{name} $what"} //= "$what: " . substr($call, 0, 300) . "\n" . substr($text, 0, 600);
}

my ($n, $refused, $before) = (0, 0, $session->safe('SELECT bi.all();'));
my $rollups = join '|', split /\n/, $session->safe('SELECT live::oid FROM dailyrollup.rollups;');
for my $routine (grep { $_->{kind} ne 'p' } @routines)
{
	for my $call (calls($session, $routine, 'few'))
	{
		my $role = $strangers[ $n++ % @strangers ];
		next if $role eq 'bi_monitor' && $monitored{ $routine->{name} };
		# the secret that lets one pass is the owner's
		next if $call =~ /, -?\d{9,},/;
		my $text = $session->run("BEGIN; SET LOCAL ROLE $role;\n$call;\nROLLBACK;");
		my ($state) = DrSession::errors($text);
		my $named = $call =~ /\((?:\w+ => )?(?:$rollups)::oid::regclass/;
		wrong_of($routine, "$role sees what is not his", $call, $text) if $text =~ s/^LINE .*//mgr =~ /secret[_ ](?!rollup|source)|late row|k1/ && $call !~ /secret[_ ](?!rollup|source)|k1/;
		next if $open{ $routine->{name} };
		if (!defined $state) { wrong_of($routine, "$role gets an answer", $call, $text) if $text =~ /\S/ && $text !~ /^(?:0|f|\(,\))?\s*$/ }
		elsif ($named) { $refused++; wrong_of($routine, "$role is refused otherwise", $call, $text) if $state ne '42501' }
	}
	my $after = $session->safe('SELECT bi.all();');
	wrong_of($routine, 'changes something', '', '') if $after ne $before;
	$before = $after;
}
for my $routine (grep { $_->{kind} eq 'p' } @routines)
{
	for my $call (calls($session, $routine))
	{
		my $text = $session->run("SET ROLE $strangers[0];\n$call;\nRESET ROLE;");
		my ($state) = DrSession::errors($text);
		wrong_of($routine, 'is not refused', $call, $text) if $call =~ /$rollups/ && ($state // '') ne '42501';
		wrong_of($routine, 'changes something', $call, $text) if $session->safe('SELECT bi.all();') ne $before;
	}
}
is(join("\n\n", map { $wrong{$_} } sort keys %wrong), '', 'no routine serves who does not own the rollup, but by what all may know');
cmp_ok($refused, '>', 350, 'calls are refused');
note("$refused calls refused");

# ---------- a hostile search_path ----------

$session->safe(<<'SQL');
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE SEQUENCE evil.called;
GRANT ALL ON SEQUENCE evil.called TO PUBLIC;
DO $$
DECLARE
  f record;
  body text := 'LANGUAGE plpgsql AS ''BEGIN PERFORM pg_catalog.nextval(''''evil.called''''); RAISE EXCEPTION ''''hostile %%'''', pg_catalog.current_setting(''''role''''); END''';
BEGIN
  FOR f IN SELECT DISTINCT p.proname, oidvectortypes(p.proargtypes) AS types FROM pg_proc p
           WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a', 'w') AND p.provariadic = 0
           AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) a JOIN pg_type t ON t.oid = a WHERE t.typtype = 'p') LOOP
    EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS int ', f.proname, f.types) || format(body);
  END LOOP;
  -- a better match than functions of any type
  FOR f IN SELECT DISTINCT p.proname, a.type FROM pg_proc p, unnest('{text,name,oid,int4,int8,bool,numeric,float8,timestamptz,timestamp,date,jsonb,regclass}'::text[]) a(type)
           WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname ~ '^(count|sum|min|max|bool_or|bool_and|to_jsonb|jsonb_agg|array_agg|num_nulls|format|concat|array_remove|array_append|unnest|row_to_json|pg_typeof|coalesce|greatest|least|nullif|first_value|lag|row_number|pg_column_size|bit_and|bit_or|every)$' LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS int ', f.proname, f.type) || format(body);
    EXCEPTION WHEN duplicate_function THEN NULL;
    END;
  END LOOP;
  FOR f IN SELECT o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r, row_number() OVER () AS n FROM pg_operator o
           JOIN pg_type tr ON tr.oid = o.oprright AND tr.typtype <> 'p' JOIN pg_type tl ON tl.oid = o.oprleft AND tl.typtype <> 'p'
           WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprkind = 'b' LOOP
    EXECUTE format('CREATE FUNCTION evil."operator %s"(%s, %s) RETURNS bool ', f.n, f.l, f.r) || format(body);
    EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil."operator %s")', f.oprname, f.l, f.r, f.n);
  END LOOP;
END $$;
-- types and tables of the server's names, and of ours
DO $$
DECLARE
  n name;
BEGIN
  FOREACH n IN ARRAY '{text,name,oid,regclass,regproc,int4,int8,bool,regtype,jsonb,timestamptz,timestamp,date,interval,tid}'::name[] LOOP
    EXECUTE format('CREATE TYPE evil.%I AS (broken int)', n);
  END LOOP;
  FOR n IN SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') AND relname <> ALL ('{timestamp,date}') LOOP
    EXECUTE format('CREATE TABLE evil.%I (broken int)', n);
    EXECUTE format('GRANT ALL ON evil.%I TO PUBLIC', n);
  END LOOP;
  FOREACH n IN ARRAY '{rollups,runs,past_runs,rollup_status,s,p,on_t,events_1,definition_1,marks_1,key_1,rollup_create,_visible_rollups}'::name[] LOOP
    EXECUTE format('CREATE TABLE evil.%I (broken int)', n);
    EXECUTE format('GRANT ALL ON evil.%I TO PUBLIC', n);
    EXECUTE format('CREATE TEMP TABLE %I (broken int)', n);
    EXECUTE format('GRANT ALL ON pg_temp.%I TO PUBLIC', n);
  END LOOP;
END $$;
-- a query whose every name and operator is said in full works along a path where it is not
CREATE TABLE bi.more (k pg_catalog.text, t pg_catalog.timestamptz NOT NULL, v pg_catalog.int4) PARTITION BY RANGE (t);
SQL
sub called { return $session->safe("SELECT pg_catalog.concat(last_value, is_called) FROM evil.called;") }
like($session->run("BEGIN; SET LOCAL search_path = evil, pg_catalog, public; SELECT 1 = 1; ROLLBACK;"), qr/hostile/, 'operators are hostile');
like($session->run("BEGIN; SET LOCAL search_path = evil, pg_catalog, public; SELECT pg_catalog.count(*) FROM pg_catalog.pg_class WHERE relname = 'a'; ROLLBACK;"), qr/hostile/, 'and where names are compared');
like($session->run("BEGIN; SET LOCAL search_path = evil, pg_catalog, public; SELECT now(); ROLLBACK;"), qr/hostile/, 'so are functions');
like($session->run("BEGIN; SET LOCAL search_path = evil, pg_catalog, public; SELECT sum(v) FROM bi.s; ROLLBACK;"), qr/hostile/, 'and aggregates');
$session->safe("SELECT setval('evil.called', 1, false);");
my $quiet = called();
my %called;
sub hostile
{
	my ($name, $role, $statement, $fails) = @_;
	my $text = $session->run("BEGIN; SET LOCAL search_path = evil, pg_temp, pg_catalog, public; SET LOCAL ROLE $role;\n$statement;\nROLLBACK;");

	if (called() ne $quiet || $text =~ /hostile|broken/)
	{
		$called{$name} //= "$role: $statement\n" . substr($text, 0, 900);
		$session->safe("SELECT setval('evil.called', 1, false);");
	}
	$called{"$name fails"} //= "$role: $statement\n" . substr($text, 0, 900) if $fails && $text =~ /ERROR/;
}
for my $routine (grep { $_->{kind} ne 'p' } @routines)
{
	# one's own query is one's own matter; the words in it are parsed along the path
	my $own = 'SELECT k, pg_catalog.count(*) AS c, pg_catalog.sum(v) AS s, pg_catalog.max(t) AS m, public.latest(v, t) AS v FROM bi.s WHERE v OPERATOR(pg_catalog.>) 0 GROUP BY k';
	for my $call (calls($session, $routine, 'few'))
	{
		# values are written for a path without doubles
		$call =~ s/::(text|name|interval|timestamptz|timestamp|date|regclass|tid|"char"|bytea|int|float8|point|jsonb?|record|oid|internal)\b/::pg_catalog.$1/g;
		$call =~ s/'SELECT k, count\(\*\) AS c FROM bi.s GROUP BY k'/'$own'/;
		hostile($routine->{name}, $_, $call) for 'bi_owner', 'postgres';
	}
}
# what is not a call: reads, writes, DDL
my @statements = (
	(map { "SELECT * FROM ${_}_current" } @ROLLUPS), (map { "SELECT * FROM ${_}_current WHERE k OPERATOR(pg_catalog.=) 'k1'" } @ROLLUPS),
	(map { "SELECT * FROM public.$_" } qw(rollup_status rollup_late rollup_runs rollup_metrics rollup_progress)),
	"INSERT INTO bi.s VALUES ('a', 1, '2026-01-01', 1, 1, '2026-01-01', '2026-01-01'), ('k1', 1, '2027-01-01', 1, 1, '2026-01-05', '2026-01-05'); SELECT public.rollup_fold()",
	"UPDATE bi.s SET v = 3; SELECT public.rollup_fold()", "DELETE FROM bi.s; SELECT public.rollup_fold()", "TRUNCATE bi.s", "INSERT INTO bi.p VALUES ('a', 1, '2026-01-01', 1), ('k1', 1, '2026-12-01', 1); SELECT public.rollup_fold()",
	"UPDATE bi.p SET v = 3, k = 'other'; SELECT public.rollup_fold()", "DELETE FROM bi.p; SELECT public.rollup_fold()", "TRUNCATE bi.p_1",
	"SET LOCAL dailyrollup.backfill = on; INSERT INTO bi.p VALUES ('a', 1, '2026-01-01', 1); SELECT public.rollup_flush('bi.shadow_t')",
	"CREATE TABLE bi.p_3 PARTITION OF bi.p FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')", "ALTER TABLE bi.p DETACH PARTITION bi.p_1",
	"CREATE TABLE bi.p_0 (k pg_catalog.text, n pg_catalog.int4, t pg_catalog.timestamptz NOT NULL, v pg_catalog.int4); INSERT INTO bi.p_0 VALUES ('z', 1, '2025-01-01', 1); ALTER TABLE bi.p ATTACH PARTITION bi.p_0 FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
	"ALTER TABLE bi.on_t RENAME COLUMN c TO cc", "DROP TABLE bi.s CASCADE", "ALTER TABLE bi.s ENABLE ROW LEVEL SECURITY", "ALTER TABLE bi.s RENAME COLUMN v TO vv",
	"SELECT public.rollup_refresh('bi.on_t', '2026-01-05 00:00Z'); SELECT public.rollup_verify('bi.on_t')", "SELECT public.rollup_alter('bi.on_t', mode => 'off')",
	"SELECT public.rollup_promote('bi.shadow_t'); SELECT public.rollup_check(); SELECT public.rollup_verify('bi.shadow_t')", "SELECT public.rollup_recompute('bi.off_t')", "SELECT public.rollup_diff('bi.shadow_t')");
for my $statement (@statements)
{
	for my $role ('bi_owner', 'postgres')
	{
		hostile(substr($statement, 0, 60), $role, $statement, 1);
		hostile(substr($statement, 0, 60) . ' (statements)', $role, "SET LOCAL dailyrollup.fold_method = statement; $statement", 1) if $statement =~ /refresh|fold|INSERT/;
	}
}
is(join("\n\n", map { $called{$_} } sort keys %called), '', 'nothing of a hostile search_path is called');
# the pass, which commits
$session->safe("SELECT bi.wrong();");
for my $role ('bi_owner', 'postgres')
{
	my $text = $session->run("SET search_path = evil, pg_temp, pg_catalog, public; SET ROLE $role; CALL public.rollup_run(); SELECT public.rollup_alter(live, mode => m) FROM dailyrollup.rollups, (VALUES ('shadow')) x(m) WHERE id OPERATOR(pg_catalog.<) 4; CALL public.rollup_run(); RESET ROLE; RESET search_path;");
	is(called(), $quiet, "the pass of $role calls nothing hostile");
	unlike($text, qr/hostile|broken/, 'nor fails by it');
}
is($session->safe('SELECT bi.wrong();'), '', 'all is well');

# ---------- CREATE EXTENSION along a hostile path ----------

$session->safe("DROP EXTENSION dailyrollup CASCADE;");
my $text = $session->run("BEGIN; SET LOCAL search_path = evil, pg_catalog, public; CREATE EXTENSION dailyrollup SCHEMA public; ROLLBACK;");
unlike($text, qr/ERROR/, 'CREATE EXTENSION along a hostile search_path');
is(called(), $quiet, 'which calls nothing hostile');
$text = $session->run("BEGIN; DROP TABLE evil.rollup_status, evil.rollup_create; CREATE EXTENSION dailyrollup SCHEMA evil; SELECT evil.rollup_plan(); SELECT count(*) FROM evil.rollup_status; ROLLBACK;");
unlike($text, qr/ERROR/, 'and into a hostile schema');
is(called(), $quiet, 'which calls nothing hostile');
# objects of ours that somebody has made before are not taken over
for my $planted ('CREATE SCHEMA dailyrollup', 'CREATE FUNCTION public.rollup_plan() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$', 'CREATE VIEW public.rollup_status AS SELECT 1 AS rollup', 'CREATE FUNCTION public.rollup_watermark(regclass) RETURNS timestamptz LANGUAGE sql AS $$ SELECT now() $$')
{
	like($session->run("BEGIN; $planted; CREATE EXTENSION dailyrollup SCHEMA public; ROLLBACK;"), qr/ERROR:  \w+: (?:.* already exists|cannot change|.* is not a member of extension)/, "CREATE EXTENSION after $planted");
}
$session->quit;
$node->stop;
done_testing();
