# The extension's routines, as the catalog tells them, and values to call them
# with: good ones, bad ones, hostile ones.
#
# A routine that is new is called without being named here; only an argument
# that no value of its type gets past wants an entry in %GOOD.
package DrRoutines;

use strict;
use warnings;

use Exporter qw(import);
our @EXPORT_OK = qw(routines calls quoted @ROLLUPS);

our @ROLLUPS = map { "bi.${_}_t" } qw(on off shadow new zone west);

# What the calls are made on: rollups in each state, with keys that wait, and a
# relation of each kind.  Another's rollup has "secret" in all that is his.
our $SETUP = <<'SQL';
CREATE EXTENSION dailyrollup;
CREATE ROLE bi_owner;
CREATE ROLE bi_other;
CREATE SCHEMA bi AUTHORIZATION bi_owner;
GRANT USAGE ON SCHEMA bi TO PUBLIC;
GRANT CREATE ON SCHEMA public TO bi_owner;
CREATE SCHEMA bi_other AUTHORIZATION bi_other;
CREATE FOREIGN DATA WRAPPER w;
CREATE SERVER w FOREIGN DATA WRAPPER w;
GRANT USAGE ON FOREIGN SERVER w TO bi_owner;
SET ROLE bi_owner;
CREATE TABLE bi.s (k text, n int, t timestamptz NOT NULL, v int, w numeric, u timestamp, d date);
CREATE INDEX source_index ON bi.s (k, n, t);
CREATE TABLE bi.p (k text, n int, t timestamptz NOT NULL, v int) PARTITION BY RANGE (t);
CREATE TABLE bi.p_1 PARTITION OF bi.p FOR VALUES FROM ('2026-01-01') TO ('2026-01-04');
CREATE TABLE bi.p_2 PARTITION OF bi.p FOR VALUES FROM ('2026-01-04') TO ('2027-01-01');
CREATE INDEX partitioned_index ON bi.p (k, t);
CREATE VIEW bi.view AS SELECT * FROM bi.s;
CREATE MATERIALIZED VIEW bi.matview AS SELECT * FROM bi.s;
CREATE SEQUENCE bi.sequence;
CREATE TYPE bi.composite AS (a int, b text);
CREATE FOREIGN TABLE bi.foreign (k text, t timestamptz NOT NULL, v int) SERVER w;
CREATE UNLOGGED TABLE bi.unlogged (k text, n int, t timestamptz NOT NULL, v int);
CREATE TABLE bi.parent (k text, n int, t timestamptz NOT NULL, v int);
CREATE TABLE bi.child () INHERITS (bi.parent);
CREATE TABLE bi.plain (k text, n int, t timestamptz NOT NULL, v int);
CREATE TABLE bi.adopted (k text, n bigint, extra text);
INSERT INTO bi.s SELECT 'k' || i % 3, i % 2, '2026-01-01 00:00Z'::timestamptz + i * interval '7 hours', i, i / 10.0,
  '2026-01-01'::timestamp + i * interval '7 hours', date '2026-01-01' + i / 4 FROM generate_series(1, 20) i;
INSERT INTO bi.s VALUES (NULL, NULL, '2026-01-01', NULL, NULL);
INSERT INTO bi.p SELECT k, n, t, v FROM bi.s;
SELECT rollup_create('bi.on_t', 'SELECT k, count(*) AS c, sum(v) AS s, latest(w, t) AS w, max(t) AS m FROM bi.s GROUP BY k', 't', mode => 'on');
SELECT rollup_create('bi.off_t', 'SELECT k, n, count(*) AS c, sum(v) AS s FROM bi.s GROUP BY k, n', 't', dedup_by => '{k,n,t}', mode => 'off');
SELECT rollup_create('bi.shadow_t', 'SELECT k, count(*) AS c, sum(v) AS s, latest(v, t) AS v, max(t) AS m FROM bi.p GROUP BY k', 't', mode => 'shadow');
SELECT rollup_create('bi.new_t', 'SELECT k, count(*) AS c FROM bi.s GROUP BY k', 'u', mode => 'on');
SELECT rollup_create('bi.zone_t', 'SELECT k, count(*) AS c FROM bi.s GROUP BY k', 'd', time_zone => 'Europe/Berlin', mode => 'on');
SELECT rollup_create('bi.west_t', 'SELECT k, count(*) AS c FROM bi.s GROUP BY k', 'u', time_zone => 'Pacific/Honolulu', mode => 'on');
SELECT rollup_refresh('bi.west_t', '2026-01-02 10:00Z');
SELECT rollup_refresh('bi.on_t', '2026-01-03 00:00Z');
SELECT rollup_refresh('bi.zone_t', '2026-01-02 23:00Z');
CALL rollup_run('bi.off_t');
CALL rollup_run('bi.shadow_t');
INSERT INTO bi.s VALUES ('k1', 1, '2026-01-01', 100, 1.00, '2026-01-01', '2026-01-01');
UPDATE bi.s SET v = v + 1 WHERE k = 'k2' AND t < '2026-01-02';
SET dailyrollup.backfill = on;
INSERT INTO bi.p VALUES ('late', 1, '2026-01-01', 100), ('k1', 1, '2026-01-02', 3);
RESET dailyrollup.backfill;
SET ROLE bi_other;
CREATE TABLE bi_other.secret_source (secret_key text, secret_time timestamptz NOT NULL, secret_value int);
INSERT INTO bi_other.secret_source VALUES ('secret row', '2026-01-01', 1);
SELECT rollup_create('bi_other.secret_rollup', 'SELECT secret_key, count(*) AS secret_count, sum(secret_value) AS secret_sum FROM bi_other.secret_source GROUP BY secret_key', 'secret_time', mode => 'on');
SELECT rollup_refresh('bi_other.secret_rollup', '2026-01-03 00:00Z');
INSERT INTO bi_other.secret_source VALUES ('secret late row', '2026-01-01', 1);
RESET ROLE;

-- What shall be so after a call that has succeeded: each rollup that has content
-- is that of its query, by the rollup's own check and in the view.
CREATE FUNCTION bi.wrong() RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
  r record;
  wrong text := '';
  n bigint;
BEGIN
  FOR r IN SELECT s.* FROM dailyrollup.rollups s JOIN pg_class c ON c.oid = s.live ORDER BY s.id LOOP
    BEGIN
      EXECUTE format('SELECT md5(string_agg(x::text, '''','''')) FROM (%s) x', public.rollup_definition(r.live));
    EXCEPTION WHEN OTHERS THEN
      CONTINUE;                 -- the query itself fails on these rows
    END;
    IF r.state IN ('off', 'shadow') AND r.fold OR r.watermark IS NOT NULL THEN
      SELECT count(*) INTO n FROM public.rollup_verify(r.live);
      IF n > 0 THEN
        wrong := wrong || format(' rollup_verify of %s: %s', r.live, n);
      END IF;
    END IF;
    EXECUTE format('SELECT count(*) FROM ((TABLE %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL TABLE %1$s)) d', r.current_view, public.rollup_definition(r.live)) INTO n;
    IF n > 0 AND NOT (r.state IN ('off', 'shadow') AND NOT r.fold) THEN
      wrong := wrong || format(' view of %s: %s', r.live, n);
    END IF;
  END LOOP;
  RETURN wrong;
END $$;
-- All that there is of the rollups.
CREATE FUNCTION bi.all() RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
  r record;
  rows text;
  everything text := '';
BEGIN
  FOR r IN SELECT c.oid::regclass AS relation FROM pg_class c WHERE c.relkind IN ('r', 'p')
           AND c.relnamespace::regnamespace::text IN ('bi', 'bi_other', 'dailyrollup') ORDER BY c.relname, c.oid LOOP
    EXECUTE format('SELECT md5(string_agg(x::text, '','' ORDER BY x::text)) FROM ONLY %s x', r.relation) INTO rows;
    everything := everything || format(E'%s %s\n', r.relation, rows);
  END LOOP;
  RETURN everything || (SELECT md5(string_agg(c::text, ',' ORDER BY c)) FROM (
    SELECT relname || relkind::text || relowner || coalesce(relacl::text, '') AS c FROM pg_class WHERE relnamespace::regnamespace::text IN ('bi', 'bi_other', 'dailyrollup', 'public')
    UNION ALL SELECT tgname || tgrelid || tgenabled::text FROM pg_trigger UNION ALL SELECT proname FROM pg_proc WHERE oid > 16383
    UNION ALL SELECT rolname || rolsuper::text FROM pg_authid) c);
END $$;
SQL

sub quoted
{
	my ($text) = @_;

	return 'NULL' if !defined $text;
	return "E'" . $text =~ s/([\\'])/\\$1/gr =~ s/\n/\\n/gr . "'";
}

# ---------- values ----------

# relations of the rollups have numbers in their names: %s stands for one
my @RELATIONS = (
	@ROLLUPS, 'bi_other.secret_rollup',
	map({ "bi.$_" } qw(s p p_1 view matview sequence composite foreign unlogged parent child plain adopted partitioned_index source_index on_t_current shadow_t_daily)),
	qw(pg_catalog.pg_class information_schema.tables dailyrollup.rollups dailyrollup.runs dailyrollup._visible_rollups dailyrollup.rollups_pkey dailyrollup.rollup_id_seq
	  public.rollup_status dailyrollup.events_1 dailyrollup.definition_1 dailyrollup.marks_1));
my @STRANGE = (
	'"', '"a', 'a"b', '"a"".b"', 'bi."new name"', "bi.\"new\nname\"", "bi.\"\xc3\xa4'\"\"\"", "\x01", "'; DROP TABLE bi.s; --", '"; DROP TABLE bi.s; --', "\\'; DROP TABLE bi.s; --", ') FROM bi.s; DROP TABLE bi.s; --', '$$', '%s%n',
	'x' x 63, 'x' x 64, 'z' x 100_000);
my @WORDS = (
	undef, '', ' ', 'nothing', 'bi.nothing', 'nowhere.nothing', 'a.b.c.d', 'postgres.bi.new_name', 'template1.bi.x', 'bi.' . 'y' x 55, 'bi.' . 'y' x 56, '.', '..', 'bi.', '.t', '1', 'NULL', @STRANGE,
	qw(on ON off shadow new default all settled live daily), 'Europe/Berlin', 'europe/berlin', '+25:00', 'UTC-200', '<x>300', '../../../../etc/passwd', 'Europe', 'CET', 'EST5EDT', '-05:30', '@hourly', '*/10 * * * *', '* * * * * *', '61 * * * *');
my $FROM = 'FROM bi.s GROUP BY k';
my @QUERIES = (
	"SELECT k, count(*) AS c $FROM", "SELECT k, count(*) AS c $FROM;", 'SELECT', ';', 'SELECT 1; SELECT 2', 'DELETE FROM bi.s', 'DROP TABLE bi.s', 'COPY bi.s TO STDOUT', 'SELECT k, count(*) FROM bi.s', "SELECT k, count(*) AS c INTO bi.into $FROM", "EXPLAIN SELECT k, count(*) AS c $FROM",
	'SELECT k, count(*) AS c FROM bi.s WHERE v = $1 GROUP BY k', 'VALUES (1)', 'TABLE bi.s', 'SELECT k, count(*) AS c FROM bi.nothing GROUP BY k', "SELECT k, avg(v) AS c $FROM", "SELECT k, lastval() AS c, count(*) $FROM", "SELECT k, count(*) AS c $FROM -- '", "/* */ SELECT k, count(*) AS c $FROM",
	"SELECT k, count(*) AS c $FROM) UNION (SELECT k, 1 FROM bi.s", "SELECT k, pg_sleep(0) AS p, count(*) $FROM", "SELECT upper(k) AS \"k'; DROP TABLE bi.s; --\", count(*) AS \"c\"\"\" FROM bi.s GROUP BY 1", "SELECT k, count(*) AS \"$STRANGE[14]\" $FROM", "SELECT k, count(*) AS \"\$1\nc\" $FROM",
	'SELECT ' . '(' x 2000 . 'k' . ')' x 2000 . ", count(*) AS c $FROM", 'SELECT k, ' . '-' . ' -' x 10_000 . " count(*) AS c $FROM", map({ my $n = $_; "SELECT k, " . join(', ', map { "sum(v + $_) AS c$_" } 1 .. $n) . " $FROM" } 1600, 1700),
	"SELECT k, " . join(', ', map { "n + $_ AS g$_" } 1 .. 40) . ', count(*) AS c FROM bi.s GROUP BY k, ' . join(', ', map { "n + $_" } 1 .. 40), "SELECT k, sum(1 / v) AS c $FROM", "SELECT k, sum(v / 0) AS c $FROM", "SELECT k::int AS k, count(*) AS c FROM bi.s GROUP BY 1",
	map({ "SELECT k, count(*) AS $_ $FROM" } qw(ctid xmin tableoid oid key1 k1 k proof dirties epoch)), map { "SELECT k, count(*) AS c FROM $_ GROUP BY k" } 'bi_other.secret_source', 'bi.rollup', @RELATIONS);
my @TIMES = (
	undef, map({ "$_+00" } qw(2026-01-05 2026-01-03 2026-01-01 2000-01-01), '2026-01-05 12:00', '2026-01-05 00:00:00.000001', '2026-01-04 23:00', '9999-01-01', '294276-12-31', '294276-12-31 23:59:59.999999'),
	'infinity', '-infinity', '4714-11-24 00:00:00+00 BC', 'now', 'today', 'tomorrow', 'yesterday');
sub typed { my ($type, @values) = @_; return [ map { quoted($_) . "::$type" } @values ] }
my %VALUES = (
	# by number, for whoever may not use the schema of a name
	regclass => [ map({ my $x = $_; "{oid of $x}" } @RELATIONS), qw(NULL::regclass 0::oid::regclass 4294967294::oid::regclass 1::oid::regclass) ],
	text => typed('text', @WORDS),
	name => typed('name', @WORDS, qw(k n t v w u d T ctid tableoid xmin)),
	'name[]' => typed('name[]', undef, '{}', '{NULL}', '{k,NULL}', '{{k,n},{t,v}}', '[2:4]={k,n,t}', '{k,n,t}', '{k,t}', '{t}', '{k}', '{k,k,t}', '{nothing}', '{ctid,k,t}', '{k,n,t,v,w,u,d}', '{""}', "{\"'; DROP TABLE bi.s; --\"}", '{' . join(',', ('k') x 5000) . '}'),
	'timestamp with time zone' => typed('timestamptz', @TIMES),
	'timestamp without time zone' => typed('timestamp', map { defined $_ ? s/\+00//r : undef } @TIMES),
	date => typed('date', undef, qw(2026-01-05 infinity -infinity 5874897-12-31), '4714-11-24 BC'),
	interval => typed('interval', undef, '0', '-1', '-1 second', '23:59:59.999999', '24:00', '1 day', '1 hour', '1 month', '-1 month 30 days', '178000000 years', '-178000000 years', '2147483647 days -2147483647 months', '2562047788:00:54.775807', '0.0000005 seconds'),
	boolean => [qw(NULL true false)],
	bigint => [qw(NULL 0 1 -1 9223372036854775807 (-9223372036854775808))],
	integer => [qw(NULL 0 1 -1 2147483647)],
	'"char"' => typed('"char"', undef, '', 'd', 'l', '-', "\xc3\xbf"),
	tid => typed('tid', undef, '(0,0)', '(0,1)', '(4294967295,65535)', '(1000,1)'),
	bytea => typed('bytea', undef, '', '\x00', '\x' . '00' x 20, '\x' . 'ff' x 100),
	internal => ['NULL::internal'],
	'dailyrollup._permit' => [ 'NULL', map { quoted($_) . '::dailyrollup._permit' } 'bi_owner.bi.on_t', 'bi_owner.bi.nothing', 'bi_other.bi_other.secret_rollup', 'bi_owner.bi.s', 'bi_stranger.bi.on_t', 'bi.on_t', '0', '""' ],
	cstring => [ 'NULL::cstring', map { quoted($_) . '::cstring' } 'bi.on_t', 'bi.nothing', 'bi_other.secret_rollup', '' ],
	oid => [qw(NULL 0 1 4294967294)],
	record => [ 'NULL::record', 'ROW()', 'ROW(1)', 'ROW(NULL::bi.s)', "ROW(1, 'a', NULL)", 'NULL::bi.on_t' ],
	anyelement => [ 'NULL', "'a'", '1', 'NULL::int', 'NULL::bi.on_t', 'NULL::bi.s', "ROW(1, 2)", "'{}'::int[]", "'(1,2)'::point", "'{}'::json", "'{}'::jsonb", "'(0,1)'::tid", "'infinity'::timestamptz", 'NULL::bi.composite', 'NULL::bi.view' ],
	any => [ 'NULL', "'a'", '1', 'NULL::int', "'a'::text", "'k1'::text", 'NULL::text', 'NULL::bi.s', "'infinity'::timestamptz", "'(1,2)'::point", "'NaN'::float8", "VARIADIC ARRAY['a']", 'VARIADIC NULL::text[]', "'a'::text, 'b'::text", '1, NULL, NULL, 4' ]);

# What gets past an argument, where the first of its type's values does not.
my %GOOD = (
	'timestamp with time zone' => "'2026-01-05 00:00+00'", 'text' => 'NULL', anyelement => "'a'::text", any => "'a'::text",
	'proof bigint' => '{proof}', 'permit dailyrollup._permit' => '{permit}', 'definition anyelement' => 'NULL::{definition}', 'key_type anyelement' => 'NULL::{key_type}', 'dirties "char"' => "'d'", 'mark tid' => "'(0,1)'",
	'rollup text' => "'bi.made'", 'query text' => quoted($QUERIES[0]), 'time_column name' => "'t'", 'start_time timestamp with time zone' => "'-infinity'");

# Values of an argument besides those of its type.
my %MORE = ('query text' => typed('text', @QUERIES), 'rollup text' => typed('text', @RELATIONS));

# ---------- routines ----------

# Each: name, kind, whether it returns nothing but looks, how many arguments have
# defaults, [argument, type] ...
sub routines
{
	my ($session) = @_;

	return map {
		my ($name, $kind, $volatile, $defaults, $arguments) = split /\|/, $_, -1;
		{ name => $name, kind => $kind, writes => $volatile eq 'v', defaults => $defaults, arguments => [ map { [ split /:/, $_, 2 ] } split /,/, $arguments ] }
	} split /\n/, $session->safe(<<'SQL');
SELECT quote_ident(n.nspname) || '.' || quote_ident(p.proname), p.prokind, p.provolatile, p.pronargdefaults,
  coalesce((SELECT string_agg(concat(CASE WHEN a.n <= cardinality(p.proargnames) THEN p.proargnames[a.n] END, ':', CASE WHEN a.type = '"any"'::regtype THEN 'any' ELSE format_type(a.type, NULL) END), ',' ORDER BY a.n)
            FROM unnest(p.proargtypes) WITH ORDINALITY a(type, n)), '')
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_extension e ON e.oid = d.refobjid
WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'dailyrollup' ORDER BY 1, 5;
SQL
}

sub values_of
{
	my ($name, $type) = @_;

	die "no values of type $type for argument $name\n" if !$VALUES{$type};
	return (@{ $VALUES{$type} }, @{ $MORE{"$name $type"} // [] });
}

sub good
{
	my ($name, $type) = @_;

	return $GOOD{"$name $type"} // $GOOD{$type} // $VALUES{$type}[0];
}

# The statement; arguments that have defaults by name, and only where given.
sub statement
{
	my ($routine, @given) = @_;
	my @arguments = @{ $routine->{arguments} };
	my $required = @arguments - $routine->{defaults};
	my $list = join ', ', map { !defined $given[$_] ? () : $_ < $required ? $given[$_] : "$arguments[$_][0] => $given[$_]" } 0 .. $#arguments;

	return $routine->{kind} eq 'p' ? "CALL $routine->{name}($list)" : "SELECT $routine->{name}($list)";
}

# Each call with all arguments good but one.  Words and names are tried on one
# rollup, but those that mean something, all else on a rollup in each state.
# With $few: each argument bad just once, each kind of rollup.
sub calls
{
	my ($session, $routine, $few) = @_;
	my @arguments = @{ $routine->{arguments} };
	my @good = map { $_ < @arguments - $routine->{defaults} ? good(@{ $arguments[$_] }) : undef } 0 .. $#arguments;
	my ($rollup) = grep { $arguments[$_][1] eq 'regclass' } 0 .. $#arguments;
	my %calls = (statement($routine, @good) => 1);

	for my $i (0 .. $#arguments)
	{
		my @values = values_of(@{ $arguments[$i] });
		@values = @values[ 0 .. ($#values < 7 ? $#values : 7) ] if $few;
		for my $value (@values)
		{
			my @given = @good;
			$given[$i] = $value;
			my $all = $arguments[$i][1] !~ /text|name/ || $value =~ /^E'(?:on|off|shadow|default|all|settled|Europe\/Berlin)'/;
			for my $with (defined $rollup && $rollup != $i ? ($all ? @ROLLUPS : $ROLLUPS[2]) : undef)
			{
				$given[$rollup] = "{oid of $with}" if defined $with;
				$calls{ statement($routine, @given) } = 1;
			}
		}
	}
	return sort map { by_number($session, $_) } keys %calls;
}

# A call with the relation's number, and with the secret and the types of the
# rollup whose relation it is (the first one's, where it is none).
my %of;
sub by_number
{
	my ($session, $call) = @_;
	my ($relation) = $call =~ /\{oid of (\S+)\}/;
	my $of = $of{ $relation // $ROLLUPS[0] } //= do {
		my %x;
		@x{qw(oid proof permit definition key_type)} = split /\|/, $session->safe("SELECT x::oid, r.proof, (SELECT format('''%s.%s.%s''::dailyrollup._permit', relowner::regrole, relnamespace::regnamespace, relname) FROM pg_class WHERE oid = r.live), r.definition, r.key_type FROM (SELECT '" . ($relation // $ROLLUPS[0]) . "'::regclass AS x) x, LATERAL (SELECT * FROM dailyrollup.rollups ORDER BY live <> x, id LIMIT 1) r;");
		\%x;
	};

	return $call =~ s/\{oid of \S+\}/$of->{oid}::oid::regclass/gr =~ s/\{(proof|permit|definition|key_type)\}/$of->{$1}/gr;
}

1;
