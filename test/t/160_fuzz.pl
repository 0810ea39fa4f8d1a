# Thousands of random defining queries: one that rollup_create accepts must be
# exact, by the query itself written over the rows that count, duplicates left out
# by the documented order; one that it rejects must be rejected by a message of
# ours or of the parser, never by an internal error or a crash.
#
# DR_SEED: the first seed (1); DR_FUZZ: how many queries (800).  Fails when a
# check of shape.c, measure.c, expression.c or source.c is left out.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrSession;

my ($first) = ($ENV{DR_SEED} // 1) =~ /^(\d+)/;
my $count = $ENV{DR_FUZZ} // 800;
my $node = PostgreSQL::Test::Cluster->new('fuzz');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\n");
$node->start;
my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$session->safe(<<'SQL');
SET client_min_messages = error;
CREATE EXTENSION dailyrollup;
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TYPE place AS (x int, y int);
CREATE DOMAIN small AS int CHECK (VALUE < 100);
CREATE TABLE s (k text, n int, t timestamptz NOT NULL, l timestamp, d date, v int, w bigint, f float8, b bool, a int[], j jsonb, c char(3), m mood, p place, q small, r int4range, "odd ""name" int, id int);
CREATE INDEX ON s (k, n, t);
CREATE TABLE other (k text, x int);
CREATE VIEW seen AS SELECT * FROM s;
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE FUNCTION noisy(int) RETURNS int LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN $1; END';
CREATE FUNCTION fill(seed float8, rows int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM setseed(seed);
  INSERT INTO s SELECT CASE WHEN random() < 0.9 THEN 'k' || (random() * 4)::int END, (random() * 3)::int, x.t, x.t AT TIME ZONE 'UTC', (x.t AT TIME ZONE 'UTC')::date,
    CASE WHEN random() < 0.9 THEN (random() * 20 - 10)::int END, (random() * 1000)::int, (random() * 8)::int, random() < 0.5, ARRAY[(random() * 3)::int, 1],
    jsonb_build_object('a', (random() * 3)::int), chr(97 + (random() * 3)::int), CASE WHEN random() < 0.5 THEN 'good' ELSE 'bad' END::mood,
    ROW((random() * 2)::int, 1)::place, (random() * 9)::int, int4range((random() * 3)::int, 9), (random() * 5)::int, i
  FROM generate_series(1, rows) i, LATERAL (SELECT '2026-01-01'::timestamptz + (random() * 8 + i * 0)::int * interval '12 hours' AS t) x;
END $$;
SQL

# --- the grammar --------------------------------------------------------------

sub one { return $_[ int rand @_ ] }
sub maybe { my ($share, $text) = @_; return rand() < $share ? $text : '' }

sub number { return one(qw(v w n q), 'v + w', 'twice(v)', '-v', 'abs(v)', 'v % 3', 'n::bigint', 'coalesce(v, 0)', '(v + n) * 2', 'length(k)') }
sub value { return rand() < 0.5 ? number() : one(qw(k v w n f d c m b q a r id), 'upper(k)', 'k || n::text', "j ->> 'a'", '(p).x', 'a[1]', 'CASE WHEN v > 0 THEN k END', 'nullif(k, \'k1\')', '"odd ""name"') }
sub condition
{
	my $number = number();
	return one("$number > 0", 'k IS NOT NULL', 'b', 'NOT b', "v BETWEEN -3 AND 3", "k IN ('k1', 'k2')", "m = 'good'", "j @> '{\"a\": 1}'", "a[1] = 1", "k LIKE 'k%'", 'v IS DISTINCT FROM n', 'true')
	  if rand() < 0.93;
	return one('random() < 0.5', 't < now()', 'v IN (SELECT x FROM other)', 'count(*) > 1', 'noisy(v) > 0', 'nothing', "ctid IS NOT NULL", "v");
}
sub filter { return maybe(0.35, ' FILTER (WHERE ' . condition() . ')') }
sub measure
{
	my ($number, $value, $filter) = (number(), value(), filter());
	return ("max(t)$filter", "latest($value, t)$filter") if rand() < 0.15;
	return ("min(t)$filter", "earliest($value, t)$filter") if rand() < 0.08;
	return one("count(*)$filter", "count($value)$filter", "sum($number)$filter", "min($value)$filter", "max($value)$filter", "bool_or(b)$filter", "bool_and($number > 0)$filter",
		"bit_and($number)$filter", "bit_or(v)$filter", "coalesce(sum($number)$filter, 0)", "coalesce(count(*)$filter, 0)", 'max(t)', 'min(t)', 'every(b)') if rand() < 0.93;
	return one("avg($number)", "count(DISTINCT $value)", "string_agg(k, ',')", "array_agg($value)", "sum($number) + 1", "coalesce(max($number), 7)", "max($number ORDER BY t)", "sum(f)",
		"count(*) OVER ()", "rank() OVER (ORDER BY k)", "percentile_cont(0.5) WITHIN GROUP (ORDER BY v)", 'v', '1', 'NULL', 'max(noisy(v))', 'max(random())', '(SELECT max(x) FROM other)', 'generate_series(1, 2)',
		"latest($value, $value)", "min(j)", "max(s)", "sum(DISTINCT v)", 'max(max(v))', 'grouping(k)', 'json_agg(v)', 'variance(v)', 'max(tableoid)');
}
sub key
{
	return one(qw(k n d c m b q), 'k', 'n', 'k', "date_trunc('day', t AT TIME ZONE 'UTC')", 'upper(k)', 'n % 2', "(t AT TIME ZONE 'UTC')::date", 'a[1]', "coalesce(k, 'none')", 'CASE WHEN v > 0 THEN 1 END', 'p', 'a', 'r', "j -> 'a'", '"odd ""name"') if rand() < 0.94;
	return one('t', 'f', 'j', "'constant'", '1', 'NULL', 'random()', 'noisy(n)', 's', 'count(*)', 'nothing', '(SELECT 1)', "date_trunc('day', t)", 'ctid', 't::date');
}

# a query, and what stands for "FROM s WHERE" in its oracle
sub query
{
	my @keys = map { key() } 1 .. one(1, 1, 1, 2, 2, 3);
	my @measures = map { measure() } 1 .. one(0, 1, 1, 2, 2, 3, 4);
	my @columns = ((map { [ $_, 1 ] } @keys), map { [ $_, 0 ] } @measures);
	@columns = sort { rand() <=> 0.5 } @columns if rand() < 0.2;
	my ($number, @list, @by) = (0);
	for (@columns)
	{
		my ($text, $is_key) = @$_;
		$number++;
		my $name = rand() < 0.97 ? "c$number" : one('', 'c1', 'k', '"Odd"');
		push @list, $text . ($name eq '' ? '' : " AS $name");
		push @by, rand() < 0.7 ? $text : $number if $is_key && rand() < 0.98;
	}
	my $select = 'SELECT ' . maybe(0.01, 'DISTINCT ') . join(', ', @list);
	my $from = rand() < 0.95 ? 's' : one('ONLY s', 's AS s', 's x', 'other', 's, other', 'seen', '(SELECT * FROM s) s', 's JOIN other USING (k)', 's TABLESAMPLE bernoulli (50)', 'pg_class', 'generate_series(1, 3) s', 'nothing');
	my $where = maybe(0.4, ' WHERE ' . condition());
	my $by = @by ? ' GROUP BY ' . (rand() < 0.98 ? join(', ', @by) : one("ROLLUP (k)", "GROUPING SETS ((k), (n))", '()', 'DISTINCT ' . join(', ', @by), join(', ', @by, 'v'))) : '';
	my $rest = maybe(0.02, one(' HAVING count(*) > 1', ' ORDER BY 1', ' LIMIT 3', ' FOR UPDATE', ' UNION SELECT 1', '; SELECT 1', ' OFFSET 1'));
	my $with = maybe(0.01, 'WITH w AS (SELECT 1) ');
	return ("$with$select FROM $from$where$by$rest", "$select FROM %s s$where$by");
}
# the source's columns that a query uses, as they stand in the table
sub used_by
{
	my ($text) = @_;
	$text =~ s/'(?:[^']|'')*'//g;
	my %used = map { $_ => 1 } $text =~ /"odd ""name"/ ? 'odd "name' : ();
	$text =~ s/\bAS (?:\w+|"[^"]*")|"odd ""name"//g;
	$used{$1} = 1 while $text =~ /(?<![.:])\b(\w+)\b(?!\s*\()/g;
	return grep { $used{$_} } (qw(k n t l d v w f b a j c m p q r), 'odd "name', 'id');
}
sub options
{
	my $time = rand() < 0.9 ? 't' : one(qw(l d v nothing k));
	my ($dedup, $order, @dedup) = ('', '');
	if (rand() < 0.35)
	{
		@dedup = rand() < 0.9 ? (qw(k n), $time) : (one(qw(k n v)), one($time, 'id'));
		@dedup = (qw(k n m d c b q a p r), 'odd "name', $time) if rand() < 0.4;
		$order = one('id', 'id,w', 'v', '');
		$dedup = ", dedup_by => ARRAY[" . join(', ', map { "'$_'" } @dedup) . "]::name[], dedup_order => " . ($order ? "'{$order}'" : 'NULL');
	}
	return ($time, $dedup, [ split /,/, $order ], @dedup);
}

# --- the test ------------------------------------------------------------------

# what may stand before a message that is the user's, not ours
my %expected = map { $_ => 1 } qw(0A000 42P17 42611 42601 42703 42803 42804 42883 42P01 42P10 42P20 42P21 42701 42702 42712 42809 42846 42P18 42725 42P07 22023 42602 42830 42P16 42P22 42939 2202H 42710 22P02 42622);
my ($accepted, %rejected, @wrong) = (0);
sub differences
{
	my ($table, $oracle) = @_;
	return "SELECT count(*) FROM ((SELECT x::text FROM $table x EXCEPT ALL SELECT o::text FROM ($oracle) o) UNION ALL (SELECT o::text FROM ($oracle) o EXCEPT ALL SELECT x::text FROM $table x)) d;";
}
for my $seed ($first .. $first + $count - 1)
{
	srand $seed;
	my ($query, $shape) = query();
	my ($time, $dedup, $order, @dedup) = options();
	my $create = "SELECT rollup_create('r', \$q\$$query\$q\$, '$time'$dedup, mode => '" . one(qw(on on off)) . "');";
	my $answer = $session->run("BEGIN; SELECT fill(" . ($seed % 1000) / 1000 . ", 60);\n$create");
	if (my ($state) = DrSession::errors($answer))
	{
		$rejected{$state}++;
		push @wrong, "seed $seed: $create\n$answer" unless $expected{$state};
		$session->run('ROLLBACK;');
		next;
	}
	$accepted++;

	# the rows that count before W, once each
	my $literal = $time eq 't' ? "timestamptz '%s 00:00+00'" : $time eq 'l' ? "timestamp '%s 00:00'" : "date '%s'";
	my $rows = sub {
		my ($before) = @_;
		my $where = "WHERE $time IS NOT NULL" . ($before ? " AND $time < " . sprintf($literal, $before) : '');
		return "(SELECT * FROM s $where)" unless @dedup;
		# the first by dedup_order, then by each other column that is used
		my %first = map { $_ => 1 } @dedup, @$order;
		my ($by, $rest) = map { join ', ', map { '"' . s/"/""/gr . '" NULLS LAST' } @$_ } \@dedup, [ @$order, grep { !$first{$_} } used_by($shape) ];
		return "(SELECT DISTINCT ON (" . ($by =~ s/ NULLS LAST//gr) . ") * FROM s $where ORDER BY $by" . ($rest ne '' ? ", $rest" : '') . ")";
	};
	my $definition = sub { return sprintf $shape =~ s/%(?!s)/%%/gr, $rows->($_[0]) };
	my $check = sub {
		my ($what, $sql) = @_;
		my $got = $session->run($sql);
		push @wrong, "seed $seed: $create\n$what: $got\n$sql" if $got !~ /^0\s*$/;
	};
	my $refresh = $create =~ /mode => 'on'/;
	my $do = sub {
		my $said = $session->run($_[0]);
		push @wrong, "seed $seed: $create\n$_[0]: $said" if $said =~ /ERROR/;
		return $said =~ /ERROR/ ? 0 : 1;
	};
	if ($refresh)
	{
		if (!$do->("SELECT action FROM rollup_refresh('r', '2026-01-03 00:00+00');"))
		{
			$session->run('ROLLBACK;');
			next;
		}
		$check->('filled', differences('r', $definition->('2026-01-03')));
	}
	$do->("SELECT fill(" . ($seed % 997) / 997 . ", 20); UPDATE s SET v = v + 1 WHERE id = 7; DELETE FROM s WHERE id = 5; INSERT INTO s SELECT * FROM s WHERE id = 3; SET CONSTRAINTS ALL IMMEDIATE;");
	$check->('the view', differences('r_current', $definition->('')));
	if ($refresh && $do->("SELECT action FROM rollup_refresh('r', '2026-01-04 00:00+00');"))
	{
		$check->('refreshed', differences('r', $definition->('2026-01-04')));
		$check->('verified', "SELECT count(*) FROM rollup_verify('r');");
	}
	$session->run('ROLLBACK;');
}
is(scalar @wrong, 0, 'no query is wrong, and none is rejected by an error that is not the user\'s') or diag(join "\n\n", @wrong[ 0 .. ($#wrong < 15 ? $#wrong : 15) ]);
cmp_ok($accepted, '>', $count / 10, 'queries are accepted');
cmp_ok($count - $accepted, '>', $count / 10, 'queries are rejected');
note("$accepted accepted; rejected: " . join ', ', map { "$_ $rejected{$_}" } sort keys %rejected);
$session->quit;
$node->stop;
done_testing();
