# A random setting of the property test: a source, its rollups, and for each
# rollup an oracle in plain SQL.
#
# An expression is a template in which {role} stands for the source column that
# plays that role ({t} the time, {k1} a key column, {vi} an int value, ...), so
# that the same expression serves under any column names, in the rollup's query
# and in the oracle.  The oracle is written here by hand, from the documented
# meaning: DISTINCT ON for the deduplication, array_agg with an ORDER BY for
# latest and earliest; it knows neither these aggregates nor the extension's
# views.
#
# Not responsible for what happens to the source: DrStream.pm.
package DrSetting;

use strict;
use warnings;
use utf8;

use Exporter qw(import);
our @EXPORT = qw(chance pick some shuffled between ident literal);

# What the template database holds (see 010_property.pl).
our $TYPES = <<'SQL';
CREATE SCHEMA drt;
CREATE DOMAIN drt.dom AS text CHECK (length(VALUE) < 9);
CREATE TYPE drt.mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE drt.pair AS (a int, b text);
CREATE TYPE drt.fix AS (lat float8, lon numeric);
CREATE TYPE drt.wrap AS (v text[]);
GRANT USAGE ON SCHEMA drt TO PUBLIC;
GRANT SELECT ON dailyrollup.rollups TO PUBLIC;
SQL
our $COLLATIONS =
	"CREATE COLLATION drt.nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
  . " CREATE COLLATION drt.en (provider = icu, locale = 'en');";

# ---------- chance ----------

sub chance  { return rand() < $_[0] }
sub pick    { return $_[ int rand @_ ] }
sub between { my ($low, $high) = @_; return $low + int rand($high - $low + 1) }

sub shuffled
{
	my @list = @_;

	for my $i (reverse 1 .. $#list)
	{
		my $j = int rand($i + 1);
		@list[ $i, $j ] = @list[ $j, $i ];
	}
	return @list;
}

sub some
{
	my ($count, @list) = @_;
	my @order = shuffled(@list);

	return grep { defined } @order[ 0 .. $count - 1 ];
}

# ---------- text ----------

sub ident
{
	my ($name) = @_;

	$name =~ s/"/""/g;
	return qq("$name");
}

sub literal
{
	my ($raw, $type) = @_;

	return "NULL::$type" if !defined $raw;
	$raw =~ s/'/''/g;
	return "'$raw'::$type";
}

# ---------- types and names ----------

# Equal values of different image (1.0 and 1.00, -0 and 0, '1 day' and '24
# hours') are here on purpose.
my %POOL = (
	text          => [ 'a', 'b', 'c', '', q(O'x), 'ümlaut', q(w "q") ],
	'varchar(5)'  => [ 'a', 'bb', 'a ' ],
	'char(3)'     => [ 'a', 'b ', 'abc' ],
	nd            => [ 'a', 'A', 'b', 'B', 'c' ],
	'drt.dom'     => [ 'x', 'y', 'z' ],
	'drt.mood'    => [ 'sad', 'ok', 'happy' ],
	'drt.pair'    => [ '(1,a)', '(1,)', '(,)', '(2,"b c")' ],
	numeric       => [ '1', '1.0', '1.00', '-2.50', '-2.5', '0', '0.000', 'NaN' ],
	'numeric(6,2)' => [ '1', '2.5', '-3.25' ],
	int           => [ 1, 2, 3, -7 ],
	bigint        => [ 1, 5_000_000_000, -5_000_000_000 ],
	smallint      => [ 1, 2, -1 ],
	float8        => [ '0', '-0', '1.5', '-2.25', 'NaN' ],
	boolean       => [ 't', 'f' ],
	uuid          => [ map { "00000000-0000-0000-0000-00000000000$_" } 1 .. 3 ],
	interval      => [ '1 day', '24 hours', '-1 hour', '2 days' ],
	date          => [ '2026-01-01', '2026-02-01', 'infinity' ],
	timestamptz   => [ '2026-01-01 00:00:00+00', '2026-01-01 05:30:00+05:30', 'infinity', '-infinity' ],
	timestamp     => [ '2026-01-01 00:00:00', '2026-01-02 03:00:00' ],
	inet          => [ '10.0.0.1', '10.0.0.0/8', '::1' ],
	bytea         => [ '\x01', '\x', '\x0102' ],
	jsonb         => [ '1', '1.0', '"a"', '{"a": 1}', '[]' ],
	int4range     => [ '[1,3)', 'empty', '(,5)' ],
	'text[]'      => [ '{}', '{a}', '{a,NULL}', '{b,c}' ],
	varbit        => [ '101', '1', '' ],
);

# the value columns: role => [type, pool]
my %VALUE = (
	vi => [ 'int',       [ -3 .. 7 ] ],
	vn => [ 'numeric',   [ '0', '1.0', '1.00', '-5', '2.50', '2.5', '100', '0.12345678901234567', '0.1234567890123' ] ],
	vb => [ 'bigint',    [ -1, 0, 3, 12, 9_000_000_000 ] ],
	vt => [ 'text',      [ 'x', 'y', 'Y', 'none', '', 'Zürich' ] ],
	vo => [ 'boolean',   [ 't', 'f' ] ],
	vx => [ 'int',       [ 0 .. 7 ] ],
	vf => [ 'float8',    [ '0', '-0', '0.25', '-1.5', '1000' ] ],
	va => [ 'text[]',    [ '{}', '{a}', '{b,NULL}', '{b,c}' ] ],
	ve => [ 'drt.mood',  [ 'sad', 'ok', 'happy' ] ],
	vp => [ 'drt.pair',  [ '(1,a)', '(,)', '(2,"b c")' ] ],
	vd => [ 'date',      [ '2026-01-01', '2026-01-02', '-infinity' ] ],
	vv => [ 'interval',  [ '1 day', '24 hours', '-3 hours' ] ],
	vj => [ 'json',      [ '{"a": 1}', '[1]' ] ],
	t2 => [ 'timestamptz', [ '2026-01-01 00:00:00+00', '2026-01-01 12:00:00+00', '2026-01-02 00:00:00+00', 'infinity' ] ],
);

# Names that generated SQL might trip over.
my @NAMES = (
	'Weird "Name', 'sel ect', 'größe',  'group',  'order', 'a.b',
	'count',       'time',    'table',  'w',      'live',  'm',
	'key',         'k1',      'marks',  'src',    'rollup', 'NEW',
	'old',         'n',       '$1',     '%s',     q('),    'new',
	'stored',      'timestamp', 'value', 'subject', 'name', 'e',
	'before',      'seen_at', 'kind',   'lat',    'lon',   'x',
	'id',          'event id', 'Ünit',  'latest', 'excluded', 'user',
	'r',           's',       't',      'd',      'source', 'tableoid_',
	'max',         'min',     'day',    'row',    'b',     'c',
);

# ---------- the setting ----------

# new(seed => n, icu => bool): draws from the random numbers as they stand.
# Every other seed has modes: its rollups need not be kept by the daily refresh.
sub new
{
	my ($class, %self) = @_;
	my $self = bless {%self}, $class;

	$self->{schema} = ident(pick('dr', 'Dr "odd', 'select', 'öre'));
	$self->{table} = ident(pick('signals', 'Sig nals', 'table', 'größen', 's'));
	$self->{time_type} = pick(qw(timestamptz timestamptz timestamptz timestamp date));
	$self->draw_start;
	$self->{kind} = pick(qw(plain plain plain daily daily monthly sub_hash sub_list by_hash));
	$self->{owner} = pick(qw(postgres dr_owner));
	$self->{writer} = chance(0.3) ? 'dr_writer' : $self->{owner};
	$self->draw_columns;
	$self->{rollups} = [ $self->draw_rollup(1) ];
	push @{ $self->{rollups} }, $self->draw_rollup(2) if chance(0.2);
	$self->draw_unique;
	$self->draw_partitions;
	$self->{fk} = chance(0.15);
	$self->{before_trigger} = $self->{kind} eq 'plain' && chance(0.1);
	$self->{after_trigger} = chance(0.1);
	$self->{modes} = $self->{seed} % 2 == 0;
	if ($self->{modes})
	{
		$self->draw_mode($_) for @{ $self->{rollups} };
	}
	return $self;
}

# What a rollup is wanted to be (undef: nothing of its own), whether its writes
# are folded, whether it is a table that was there before.
sub draw_mode
{
	my ($self, $rollup) = @_;

	$rollup->{mode} = pick('off', 'off', 'shadow', 'shadow', 'on', undef);
	$rollup->{adopted} = chance(0.25);
	$rollup->{fold} = pick(undef, undef, undef, undef, 'true', 'false');
	$rollup->{fold} = undef if $rollup->{adopted} && ($rollup->{fold} // '') eq 'true';
	return;
}

# The zone of the boundaries, and a stretch of days in it: ordinary ones, a
# change of the clock, a midnight that does not exist or exists twice, a day
# that does not exist (Apia, 2011-12-30), the end of a month.
sub draw_start
{
	my ($self) = @_;
	my ($zone, $day) = @{
		pick(
			[ 'UTC',              '2026-01-05' ],
			[ 'UTC',              '2026-01-05' ],
			[ 'UTC',              '2026-01-27' ],
			[ 'America/New_York', '2026-01-05' ],
			[ 'America/New_York', '2026-03-05' ],
			[ 'America/New_York', '2025-10-30' ],
			[ 'Asia/Kolkata',     '2026-01-28' ],
			[ 'Pacific/Apia',     '2011-12-27' ],
			[ 'America/Havana',   '2026-03-05' ],
			[ 'America/Havana',   '2025-10-30' ],
			[ 'Africa/Cairo',     '2026-04-21' ],
			[ 'Pacific/Kiritimati', '2026-01-27' ]) };

	@$self{qw(zone first_day)} = ($zone, $day);
	return;
}

sub draw_columns
{
	my ($self) = @_;
	my @names = shuffled(@NAMES);
	my %column;
	my $add = sub {
		my ($role, $type, $pool, %more) = @_;
		$column{$role} = { role => $role, name => shift @names, type => $type, pool => $pool, %more };
	};

	my $partitioned_by_time = $self->{kind} =~ /daily|monthly|sub/;
	$add->('t', $self->{time_type}, undef, not_null => chance(0.5));
	for my $i (1 .. between(1, 4))
	{
		my $type = pick(('text') x 6, sort keys %POOL);
		$type = 'text' if $type eq 'nd' && !$self->{icu};
		$add->(
			"k$i", $type eq 'nd' ? 'text COLLATE drt.nd' : $type,
			$POOL{$type}, plain_type => $type eq 'nd' ? 'text' : $type,
			not_null => chance(0.4));
	}
	$add->('eid', @{ pick([ 'int', [ 1 .. 6 ] ], [ 'text', [ 'e1' .. 'e6' ] ]) }, not_null => chance(0.5));
	$add->($_, @{ $VALUE{$_} }) for sort keys %VALUE;
	@{ $column{vt} }{qw(type plain_type)} = ('text COLLATE drt.en', 'text') if $self->{icu} && chance(0.3);
	$add->('ref', 'int', [ 1 .. 4 ]);
	$add->('note', 'text', [ 'n1', 'n2' ]);
	$add->('rid', 'bigint', undef, not_null => 1);
	$self->{column} = \%column;
	$self->{attributes} = [ shuffled(sort keys %column) ];
	$self->{dropped} = chance(0.4) ? between(0, $#{ $self->{attributes} }) : undef;
	return;
}

sub name { my ($self, $role) = @_; return ident($self->{column}{$role}{name}) }
sub type
{
	my ($self, $role) = @_;
	my $column = $self->{column}{$role};

	return $column->{plain_type} // $column->{type};
}

sub source { my ($self) = @_; return "$self->{schema}.$self->{table}" }

# Replaces {role} by its column.
sub expand
{
	my ($self, $template, $alias) = @_;

	$template =~ s/\{(\w+)\}/($alias \/\/ '') . $self->name($1)/ge;
	return $template;
}

sub roles_in
{
	my (@templates) = @_;
	my %roles = map { $_ => 1 } map { /\{(\w+)\}/g } grep { defined } @templates;

	return sort keys %roles;
}

# ---------- a rollup ----------

sub draw_rollup
{
	my ($self, $number) = @_;
	my @names = shuffled(@NAMES);
	my $rollup = {
		number => $number,
		base => pick('latest_' . $number, "Live \"$number", "größte $number", "u$number"),
		zone => $number == 1 || chance(0.5) ? $self->{zone} : 'UTC',
		mode => 'on',
	};

	my @keys = $self->draw_keys;
	my @measures = $self->draw_measures;
	$rollup->{where} = pick(
		'{vi} IS DISTINCT FROM 3', q({vt} <> 'x'), '{vo} IS NOT FALSE', '{eid} IS NOT NULL',
		q({t2} < '2026-01-01 18:00:00+00'), '{vn} >= 0 OR {vi} < 0') if chance(0.3);
	$rollup->{columns} = [ shuffled((map { +{ %$_, key => 1 } } @keys), @measures) ];
	for my $column (@{ $rollup->{columns} })
	{
		my $own = $column->{key} && $column->{q} =~ /^\{(\w+)\}$/ ? $1 : undef;
		my $name = $own && chance(0.4) ? $self->{column}{$own}{name} : shift @names;
		$name = shift @names while grep { ($_->{name} // '') eq $name } @{ $rollup->{columns} };
		$column->{name} = $name;
	}
	$rollup->{keys} = [ grep { $_->{key} } @{ $rollup->{columns} } ];

	if (chance(0.65))
	{
		my %by = map { $_ => 1 } 't', roles_in(map { $_->{q} } @keys);
		$by{ pick(qw(eid k1 vi)) } = 1 if chance(0.3);
		$rollup->{dedup_by} = [ shuffled(sort keys %by) ];
		$rollup->{dedup_order} = [ some(between(1, 2), grep { !$by{$_} } qw(eid t2 vi vt)) ] if chance(0.6);
	}
	# the columns that the query and the deduplication use, as they lie in the
	# source, the time first
	my %used = map { $_ => 1 } roles_in(
		'{t}', $rollup->{where}, (map { $_->{q} } @{ $rollup->{columns} }),
		map { "{$_}" } @{ $rollup->{dedup_by} // [] }, @{ $rollup->{dedup_order} // [] });
	$rollup->{used} = [ 't', grep { $used{$_} && $_ ne 't' } @{ $self->{attributes} } ];
	$rollup->{ordinals} = chance(0.4);
	$rollup->{alias} = pick('', '', 'x', 'live', '"S"');
	return $rollup;
}

sub draw_keys
{
	my ($self) = @_;
	my @columns = sort grep { /^k\d/ } keys %{ $self->{column} };
	my @keys;

	for my $role (some(between(1, scalar @columns), @columns))
	{
		my ($type, $pool) = ($self->type($role), $self->{column}{$role}{pool});
		my $template = "{$role}";
		if ($type eq 'text' && $self->{column}{$role}{type} !~ /COLLATE/ && chance(0.15))
		{
			$template = pick("lower({$role})", "coalesce({$role}, '-')", "left({$role}, 1)");
		}
		push @keys, { q => $template, type => $type, pool => $pool };
	}
	if (chance(0.2))
	{
		push @keys, {
			q => $self->{time_type} eq 'timestamptz' ? "date_trunc('day', {t} AT TIME ZONE 'UTC')"
			: $self->{time_type} eq 'timestamp'      ? "date_trunc('day', {t})"
			: '{t}',
			type => $self->{time_type} eq 'date' ? 'date' : 'timestamp',
			pool => [ $self->{first_day}, '-infinity' ] };
	}
	elsif (chance(0.05))
	{
		push @keys,
		  { q => '{t}', type => $self->{time_type}, pool => [ "$self->{first_day}", 'infinity' ] };
	}
	return shuffled(@keys);
}

my @FILTERS = (
	'{vi} > 0',   '{vt} IS NOT NULL', '{vn} <> 0', '{vo}',
	q({ve} = 'ok'), q({vi} IS NOT NULL AND {vt} <> 'x'), '{vf} <> 0 OR {vn} <> 0',
	# constants that are printed by a session's settings
	q({vn}::float8 <> '0.12345678901234567'::float8), q({vd} < '2026-01-02'::date),
	q({t2} > '2026-01-01 06:00:00+00'::timestamptz), q({vv} > '-1 days +02:00:00'::interval),
	q({va} <> '{b,NULL}'::text[]));

# latest and earliest of what, and a constant for coalesce
my @LATEST = (
	[ '{vi}', '-1' ],   [ '{vn}', '-1.5' ], [ '{vt}', q('none') ],
	[ '{vo}', 'false' ], [ '{ve}', q('sad'::drt.mood) ], [ '{va}', q('{}'::text[]) ],
	[ '{vp}', q('(0,)'::drt.pair) ], [ '{vf}', q('0'::float8) ],
	[ 'ROW({vf}, {vn})::drt.fix', undef ], [ 'upper({vt})', q('-') ],
	[ '{vi} + 1', '0' ], [ '{vv}', undef ], [ '{vd}', undef ]);

# min and max of what, and a constant for coalesce
my @MINMAX = (
	[ '{vi}', '0' ], [ '{vn}', '0' ], [ '{vt}', q('none') ], [ '{t2}', q('-infinity'::timestamptz) ],
	[ '{va}', q('{}'::text[]) ], [ '{ve}', q('ok'::drt.mood) ], [ '{vd}', undef ],
	[ '{vv}', undef ], [ '{vf}', '0' ], [ '{vb}', '0' ], [ '{t}', undef ]);

sub draw_measures
{
	my ($self) = @_;
	my @measures;
	my $have = sub {
		my ($template) = @_;
		push @measures, { q => $template, h => $template, bare => 1 }
		  if !grep { $_->{q} eq $template } @measures;
	};

	for (1 .. between(1, 6))
	{
		my $filter = chance(0.35) ? pick(@FILTERS) : undef;
		my $kind = pick(qw(count count_of sum sum min max bool bit latest latest latest earliest));
		if ($kind eq 'count')
		{
			push @measures, $self->measure('count(*)', $filter, chance(0.1) ? '0' : undef);
		}
		elsif ($kind eq 'count_of')
		{
			push @measures,
			  $self->measure('count(' . pick('{vi}', '{vt}', '{vj}', '{t}', '{vn} + 1') . ')', $filter);
		}
		elsif ($kind eq 'sum')
		{
			my $value = pick('{vi}', '{vn}', '{vb}', '{vi} * 2', '{vn}::numeric', '{vf}');
			my $otherwise = chance(0.4) ? pick('0', '0', '-7') : undef;
			push @measures, $self->measure("sum($value)", $filter, $otherwise);
			$have->(filtered("count($value)", $filter)) if ($otherwise // 0) != 0;
		}
		elsif ($kind eq 'bool')
		{
			my ($name, $identity) = @{ pick([ 'bool_and', 'true' ], [ 'bool_or', 'false' ], [ 'every', 'true' ]) };
			my $value = pick('{vo}', '{vi} > 0');
			my $otherwise = chance(0.5) ? pick($identity, $identity eq 'true' ? 'false' : 'true') : undef;
			push @measures, $self->measure("$name($value)", $filter, $otherwise);
			$have->(filtered("count($value)", $filter)) if ($otherwise // $identity) ne $identity;
		}
		elsif ($kind eq 'bit')
		{
			my $name = pick('bit_and', 'bit_or');
			my $otherwise = chance(0.5) ? pick('0', '5') : undef;
			push @measures, $self->measure("$name({vx})", $filter, $otherwise);
			$have->(filtered('count({vx})', $filter)) if defined $otherwise;
		}
		elsif ($kind =~ /^m/)
		{
			my ($value, $otherwise) = @{ pick(@MINMAX) };
			$otherwise = undef if !chance(0.3);
			push @measures, $self->measure("$kind($value)", $filter, $otherwise);
			$have->(filtered("count($value)", $filter)) if defined $otherwise;
		}
		else
		{
			my ($value, $otherwise) = @{ pick(@LATEST) };
			my $at = chance(0.75) ? '{t}' : pick('{t2}', '{vb}', '{vi}', '{vd}', '{vt}');
			# time and value must not have different collations
			$at = '{t}' if $at eq '{vt}' && $value !~ /^\{v[inof]\}$/;
			$filter = "$value IS NOT NULL" if chance(0.3);
			# at equal times, which only {t} has not, the constant would hide a NULL
			$otherwise = undef if !chance(0.3) || ($at ne '{t}' && ($filter // '') ne "$value IS NOT NULL");
			push @measures, $self->latest($kind, $value, $at, $filter, $otherwise);
			$have->(filtered(($kind eq 'latest' ? 'max' : 'min') . "($at)", $filter));
		}
	}
	my %seen;
	return grep { !$seen{ $_->{q} }++ } @measures;
}

sub filtered
{
	my ($call, $filter) = @_;

	return defined $filter ? "$call FILTER (WHERE $filter)" : $call;
}

sub measure
{
	my ($self, $call, $filter, $otherwise) = @_;
	my $template = filtered($call, $filter);

	$template = "coalesce($template, $otherwise)" if defined $otherwise;
	return { q => $template, h => $template };
}

# The value in the row with the greatest (least) time: a NULL time never wins;
# at equal times a NULL value loses, then the greater (lesser) value wins, then
# the greater image.
sub latest
{
	my ($self, $kind, $value, $at, $filter, $otherwise) = @_;
	my $q = filtered("$kind($value, $at)", $filter);
	my $direction = $kind eq 'latest' ? 'DESC' : 'ASC';
	my $condition = "$at IS NOT NULL" . (defined $filter ? " AND ($filter)" : '');
	# array_agg of arrays would build a multi-dimensional one
	my $array = $value eq '{va}';
	my $item = $array ? 'ROW({va})::drt.wrap' : $value;
	my $h = "(array_agg($item ORDER BY $at $direction, $value $direction NULLS LAST, "
	  . "ROW($value) USING OPERATOR(pg_catalog.*>)) FILTER (WHERE $condition))[1]";

	$h = "($h).v" if $array;
	if (defined $otherwise)
	{
		$q = "coalesce($q, $otherwise)";
		$h = "coalesce($h, $otherwise)";
	}
	return { q => $q, h => $h, image => 1 };
}

sub live    { my ($self, $rollup) = @_; return "$self->{schema}." . ident($rollup->{base}) }
sub regclass { my ($self, $rollup) = @_; return literal($self->live($rollup), 'pg_catalog.regclass') }
sub current { my ($self, $rollup) = @_; return "$self->{schema}." . ident("$rollup->{base}_current") }

# The defining query as a user would write it.
sub query
{
	my ($self, $rollup) = @_;
	my $alias = $rollup->{alias};
	my $prefix = $alias && chance(0.7) ? "$alias." : '';
	my (@list, @group);

	for my $column (@{ $rollup->{columns} })
	{
		my $expression = $self->expand($column->{q}, $prefix);
		$expression =~ s/\b(latest|earliest)\((?!\))/public.$1(/g if !$column->{key};
		push @list, "$expression AS " . ident($column->{name});
		push @group, $rollup->{ordinals} ? scalar @list : $expression if $column->{key};
	}
	return "SELECT " . join(",\n       ", @list)
	  . "\n  FROM " . $self->source . ($alias ? " AS $alias" : '')
	  . (defined $rollup->{where} ? "\n  WHERE " . $self->expand($rollup->{where}, $prefix) : '')
	  . "\n  GROUP BY " . join(', ', @group);
}

# The oracle over the source restricted to time < bound (undef: the whole of it).
sub oracle
{
	my ($self, $rollup, $bound) = @_;
	my @used = map { $self->name($_) } @{ $rollup->{used} };
	my $from = ($self->{kind} eq 'plain' ? 'ONLY ' : '') . $self->source;
	my $restricted = $self->name('t') . ' IS NOT NULL'
	  . (defined $bound ? ' AND ' . $self->name('t') . " < $bound" : '');
	my $events = join(', ', @used) . " FROM $from WHERE $restricted";

	if ($rollup->{dedup_by})
	{
		my @by = @{ $rollup->{dedup_by} };
		my @order = @{ $rollup->{dedup_order} // [] };
		my %done = map { $_ => 1 } @by, @order;
		my @rest = grep { !$done{$_} && $self->{column}{$_}{type} ne 'json' } @{ $rollup->{used} };
		$events = 'DISTINCT ON (' . join(', ', map { $self->name($_) } @by) . ") $events ORDER BY "
		  . join(', ', map { $self->name($_) . ' ASC NULLS LAST' } @by, @order, @rest)
		  . ', ROW(' . join(', ', @used) . ') USING OPERATOR(pg_catalog.*<)';
	}
	my (@list, @group);
	for my $column (@{ $rollup->{columns} })
	{
		push @list, $self->expand($column->{h} // $column->{q}) . ' AS ' . ident($column->{name});
		push @group, scalar @list if $column->{key};
	}
	return 'SELECT ' . join(', ', @list) . " FROM (SELECT $events) AS events_"
	  . (defined $rollup->{where} ? ' WHERE ' . $self->expand($rollup->{where}) : '')
	  . ' GROUP BY ' . join(', ', @group);
}

# The columns to compare: each, and of latest and earliest the image too.
sub compared
{
	my ($self, $rollup) = @_;
	my @list;

	for my $column (@{ $rollup->{columns} })
	{
		my $name = ident($column->{name});
		push @list, $name;
		push @list, "$name\::text AS " . ident("$column->{name} image") if $column->{image};
	}
	return join ', ', @list;
}

# rollup_create() with its arguments.
sub create
{
	my ($self, $rollup) = @_;
	my $array = sub { 'ARRAY[' . join(', ', map { literal($self->{column}{$_}{name}, 'name') } @_) . ']' };

	return
		"SELECT public.rollup_create("
	  . literal($self->live($rollup), 'text')
	  . ", \$query\$"
	  . $self->query($rollup)
	  . "\$query\$,\n  time_column => "
	  . literal($self->{column}{t}{name}, 'name')
	  . ($rollup->{dedup_by} ? ', dedup_by => ' . $array->(@{ $rollup->{dedup_by} }) : '')
	  . ($rollup->{dedup_order} ? ', dedup_order => ' . $array->(@{ $rollup->{dedup_order} }) : '')
	  . ($rollup->{zone} eq 'UTC' && chance(0.5) ? '' : ', time_zone => ' . literal($rollup->{zone}, 'text'))
	  . (defined $rollup->{mode} ? ", mode => '$rollup->{mode}'" : '')
	  . (defined $rollup->{fold} ? ", fold => $rollup->{fold}" : '') . ');';
}

# A table of the rollup's columns in another order, with others between them,
# and, by chance, with the unique index that a rollup needs.
sub adopted_table
{
	my ($self, $rollup) = @_;
	my $live = $self->live($rollup);
	my @columns = shuffled('0 AS extra_0', '7 AS extra_1', map { ident($_->{name}) } @{ $rollup->{columns} });
	my @keys = shuffled(map { ident($_->{name}) } @{ $rollup->{keys} });
	my $sql = "CREATE TABLE $live AS SELECT " . join(', ', @columns) . "\n  FROM ("
	  . $self->query($rollup) . ") q_ WITH NO DATA;\n"
	  . "ALTER TABLE $live DROP COLUMN extra_0, ALTER COLUMN extra_1 SET DEFAULT 7, ADD COLUMN extra_2 text;\n";

	if (chance(0.5))
	{
		$sql .= "ALTER TABLE $live ALTER COLUMN $_ SET NOT NULL;\n"
		  for map { ident($_->{name}) } grep { $_->{q} =~ /^count\(/ } @{ $rollup->{columns} };
	}
	$rollup->{indexed} = chance(0.5);
	if ($rollup->{indexed})
	{
		my $nullable = grep { $_->{q} !~ /^\{(\w+)\}$/ || !$self->{column}{$1}{not_null} } @{ $rollup->{keys} };
		my $list = '(' . join(', ', @keys) . ');';
		$sql .= $nullable || chance(0.5)
		  ? pick("CREATE UNIQUE INDEX ON $live " . $list =~ s/\);$/) NULLS NOT DISTINCT;/r,
			"ALTER TABLE $live ADD UNIQUE NULLS NOT DISTINCT $list")
		  : "ALTER TABLE $live ADD PRIMARY KEY $list";
	}
	return $sql . "\n";
}

# ---------- the source ----------

# A unique index that guarantees the deduplication, or one that only looks so.
sub draw_unique
{
	my ($self) = @_;
	my $by = $self->{rollups}[0]{dedup_by};

	return if !$by || !chance(0.4);
	my $nullable = grep { !$self->{column}{$_}{not_null} } @$by;
	my $style = pick(
		'not distinct', 'not distinct', 'partial', 'deferrable',
		($nullable ? ('nullable') : ('plain', 'plain')));
	$style = 'not distinct' if $style eq 'partial' && $self->{kind} ne 'plain';
	$self->{unique} = { by => $by, style => $style };
	return;
}

sub unique_sql
{
	my ($self) = @_;
	my $unique = $self->{unique} or return ();
	my $columns = '(' . join(', ', map { $self->name($_) } @{ $unique->{by} }) . ')';
	my $source = $self->source;

	return "ALTER TABLE $source ADD UNIQUE $columns DEFERRABLE INITIALLY DEFERRED;"
	  if $unique->{style} eq 'deferrable';
	return "CREATE UNIQUE INDEX ON $source $columns"
	  . ($unique->{style} eq 'not distinct' ? ' NULLS NOT DISTINCT' : '')
	  . ($unique->{style} eq 'partial' ? ' WHERE ' . $self->name('vi') . ' > 2' : '') . ';';
}

sub draw_partitions
{
	my ($self) = @_;
	my $kind = $self->{kind};

	return if $kind eq 'plain';
	# the second level, or the only one: a column of every unique index
	my %hashable = map { $_ => 1 } grep { $self->type($_) ne 'varbit' } grep { /^k/ } keys %{ $self->{column} };
	my @candidates = $self->{unique} ? @{ $self->{unique}{by} } : ('k1', 'eid');
	my ($by) = grep { $hashable{$_} || $_ eq 'eid' } @candidates;
	$kind = $self->{kind} = 'daily' if $kind =~ /hash|list/ && !defined $by;
	$kind = $self->{kind} = 'sub_hash' if $kind eq 'sub_list' && $self->type($by) !~ /^(text|int)$/;
	$self->{part_by} = $by;
	$self->{reserved} = { map { $_ => 1 } 2, 5 } if $kind =~ /daily|sub/ && chance(0.6);
	return;
}

# The list of column definitions, in the order given.
sub column_list
{
	my ($self, @roles) = @_;

	return join ', ', map {
		my $column = $self->{column}{$_};
		ident($column->{name}) . " $column->{type}" . ($column->{not_null} ? ' NOT NULL' : '')
	} @roles;
}

sub settings
{
	my ($self) = @_;
	my $text = "seed $self->{seed}: kind=$self->{kind} time=$self->{time_type} zone=$self->{zone}"
	  . " first_day=$self->{first_day} owner=$self->{owner} writer=$self->{writer}"
	  . " unique=" . ($self->{unique} ? $self->{unique}{style} : 'none')
	  . " fk=" . ($self->{fk} ? 1 : 0)
	  . " triggers=" . ($self->{before_trigger} ? 'before' : '') . ($self->{after_trigger} ? 'after' : '');

	for my $rollup (@{ $self->{rollups} })
	{
		$text .= "\n  rollup $rollup->{number}: mode=" . ($rollup->{mode} // 'NULL')
		  . ' fold=' . ($rollup->{fold} // 'NULL') . ($rollup->{adopted} ? ' adopted' : '')
		  . " zone=$rollup->{zone} dedup_by="
		  . ($rollup->{dedup_by} ? join(',', @{ $rollup->{dedup_by} }) : 'none')
		  . ' dedup_order=' . join(',', @{ $rollup->{dedup_order} // [] })
		  . "\n    " . join("\n    ", map { $_->{q} } @{ $rollup->{columns} });
	}
	return $text;
}

1;
