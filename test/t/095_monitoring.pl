# What doc/ offers for monitoring systems works: each query of the exporter's file
# and of the dashboard runs, by a member of pg_monitor, over rollups in several
# states, and returns what the file says it does.  A column of a view that is
# renamed, or a metric that one side does not know, makes it fail.
use strict;
use warnings;

use FindBin;
use JSON::PP;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $doc = "$FindBin::RealBin/../../doc";
my $json = JSON::PP->new->canonical;

my $node = PostgreSQL::Test::Cluster->new('monitoring');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\n");
$node->start;

# rollups in state on, shadow, off and new, with a failure, late keys, a comparison
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION dailyrollup;
CREATE ROLE monitor LOGIN IN ROLE pg_monitor;
CREATE SCHEMA "The Lake";
CREATE TABLE "The Lake".events (k int, at timestamptz NOT NULL);
CREATE TABLE broken (k int, at timestamptz NOT NULL);
INSERT INTO "The Lake".events SELECT i % 3, now() - i * interval '7 hours' FROM generate_series(1, 40) i;
SELECT rollup_create(name, 'SELECT k, count(*), max(at) FROM "The Lake".events GROUP BY k', 'at', mode => mode)
FROM (VALUES ('"The Lake".daily', 'on'), ('compared', 'shadow'), ('folded', 'off')) r(name, mode);
SELECT rollup_create('fails', 'SELECT k, count(*) FROM broken GROUP BY k', 'at', mode => 'on');
ALTER TABLE broken DISABLE TRIGGER USER;
SQL
$node->psql('postgres', 'CALL rollup_run()');
$node->safe_psql('postgres', q{INSERT INTO "The Lake".events VALUES (7, now() - interval '5 days')});
$node->psql('postgres', 'CALL rollup_run()');
$node->safe_psql('postgres', q{INSERT INTO "The Lake".events VALUES (8, now() - interval '5 days')});

# As the monitor; dies with the query.
sub ask
{
	my ($sql) = @_;
	my ($stdout, $stderr);
	$node->psql('postgres', $sql, stdout => \$stdout, stderr => \$stderr, on_error_stop => 1, extra_params => [ '-U', 'monitor' ]) == 0
	  or die "$stderr\nin the query\n$sql";
	return $stdout;
}

sub rows { my ($sql) = @_; return map { $json->decode($_) } split /\n/, ask("SELECT to_json(q) FROM ($sql) q") }

# the view
my (%value, %help);
for my $row (rows('SELECT name, labels, value, help FROM rollup_metrics'))
{
	$value{ $row->{name} . $json->encode($row->{labels}) } = $row->{value};
	$help{ $row->{name} } = $row->{help};
}

# -------------------------------------------------------------- the exporter

# of the YAML, what the file uses
my (%group, $group);
for (split /\n/, slurp_file("$doc/postgres_exporter.yml"))
{
	if (/^(\w+):$/) { $group = $group{$1} = { query => '', usage => {} } }
	elsif (/^    - (\w+):$/) { $group->{column} = $1 }
	elsif (/^        usage: "(\w+)"$/) { $group->{usage}{ $group->{column} } = $1 }
	elsif (/^        description: "(.*)"$/) { $group->{description}{ $group->{column} } = $1 }
	elsif (/^    (.*)/) { $group->{query} .= "$1\n" }
	else { like($_, qr/^(#.*|  query: \||  metrics:|)$/, 'a line of the form that postgres_exporter reads') }
}
cmp_ok(scalar keys %group, '>=', 5, 'the exporter has groups of metrics');

my %exported;
for my $name (sort keys %group)
{
	my %usage = %{ $group{$name}{usage} };
	my @labels = grep { $usage{$_} eq 'LABEL' } sort keys %usage;
	my @rows = rows($group{$name}{query});

	cmp_ok(scalar @rows, '>', 0, "$name: rows");
	is_deeply([ sort keys %{ $rows[0] } ], [ sort keys %usage ], "$name: each column is declared, and each declared one is there");
	for my $row (@rows)
	{
		my %of_row = map { $_ => $row->{$_} } @labels;
		for my $column (grep { $usage{$_} ne 'LABEL' && defined $row->{$_} } keys %usage)
		{
			$exported{ "${name}_$column" . $json->encode(\%of_row) } = $row->{$column};
		}
	}
	for my $column (grep { $usage{$_} ne 'LABEL' } sort keys %usage)
	{
		is($group{$name}{description}{$column}, $help{"${name}_$column"}, "${name}_$column: the help of the view");
		is($usage{$column}, "${name}_$column" =~ /_total$/ ? 'COUNTER' : 'GAUGE', "${name}_$column: its kind");
	}
}
# the lag is another one each time
for my $lag (grep { /^dailyrollup_lag_seconds/ } keys %exported)
{
	$exported{$lag} = $value{$lag} if abs($exported{$lag} - ($value{$lag} // 0)) < 100;
}
is_deeply(\%exported, \%value, 'it exports what the view has: names, labels, values');

# ------------------------------------------------------------- the dashboard

my $dashboard = $json->decode(slurp_file("$doc/grafana-dashboard.json"));
my @panels = @{ $dashboard->{panels} };
my %ids = map { $_->{id} => 1 } @panels;
is(scalar keys %ids, scalar @panels, 'panels have numbers of their own');

my ($rollups) = map { $_->{query} } grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} };
my @rollups = split /\n/, ask($rollups);
is_deeply([ sort @rollups ], [ '"The Lake".daily', qw(compared fails folded) ], 'the variable has each rollup');

# What Grafana puts in: the range of time, the chosen rollups.
sub expand
{
	my ($sql) = @_;
	my ($from, $to) = map { $node->safe_psql('postgres',
			qq{SELECT to_char(now() AT TIME ZONE 'UTC' - interval '$_', '''YYYY-MM-DD"T"HH24:MI:SS.MS"Z"''')}) } '30 s', '-30 s';
	my $chosen = join ',', map { "'" . s/'/''/gr . "'" } @rollups;

	$sql =~ s/\$__timeFilter\(([\w.]+)\)/$1 BETWEEN $from AND $to/g;
	$sql =~ s/\$__timeFrom\(\)/$from/g;
	$sql =~ s/\$__timeTo\(\)/$to/g;
	$sql =~ s/\$rollup\b/$chosen/g;
	return $sql;
}

$node->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
for my $panel (@panels)
{
	my $title = $panel->{title};
	for my $target (@{ $panel->{targets} })
	{
		my $sql = expand($target->{rawSql});
		unlike($sql, qr/\$/, "$title: no macro that is not known here");
		my %type = map { split /\|/ } split /\n/, ask("$sql \\gdesc");
		my @rows = rows($sql);
		cmp_ok(scalar @rows, '>', 0, "$title: rows");
		next if $target->{format} ne 'time_series';

		is($type{time}, 'timestamp with time zone', "$title: a time");
		is($type{metric}, 'text', "$title: a name for each line");
		my @numbers = grep { !/^(time|metric)$/ } keys %type;
		is(scalar @numbers, 1, "$title: a number");
		like($type{ $numbers[0] }, qr/^(bigint|double precision)$/, "$title: which is one");
		my @times = map { $_->{time} } @rows;
		is_deeply(\@times, [ sort @times ], "$title: in order");
		my %seen;
		is_deeply([ grep { $seen{"$_->{time} $_->{metric}"}++ } @rows ], [], "$title: one number at a time");
	}
}

$node->stop;
done_testing();
