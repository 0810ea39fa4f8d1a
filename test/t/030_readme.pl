# The documentation's examples run as printed, one after the other in one session:
# those of the README in a database of their own, those of the reference in another.
# SQL that is followed by a block of text gives that text; of other SQL it is asked
# that it runs.  And the reference has each routine, view and setting as it is.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use FindBin;

# The SQL blocks of a file, each with the block of text that comes next, if that
# comes before other SQL and is what psql prints.
sub examples
{
	my ($file) = @_;
	my $text = slurp_file("$FindBin::RealBin/../../$file");
	my @examples;

	while ($text =~ /^```(\w*)\n(.*?)^```\n/msg)
	{
		my ($kind, $block) = ($1, $2);
		push @examples, { sql => $block } if $kind eq 'sql';
		$examples[-1]{printed} //= $block
		  if $kind eq 'text' && @examples && $block =~ /^-+(?:\+-+)*$|^ERROR: /m;
	}
	return @examples;
}

# as a reader compares them
sub plain
{
	my ($text) = @_;
	$text =~ s/[ \t]+$//mg;
	$text =~ s/process with PID \d+/process with PID 4711/g;
	$text =~ s/\A\n+|\n+\z//g;
	return $text;
}

my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->start;

# What psql prints, notices and warnings left out; errors stand where they happen.
sub printed
{
	my ($database, $sql) = @_;
	my $input = "SET client_min_messages = error; SET timezone = 'UTC';\n$sql";
	my $output = '';

	IPC::Run::run([ 'psql', '-X', '-q', '-P', 'footer=off', '-d', $node->connstr($database) ],
		'<', \$input, '>&', \$output);
	return $output;
}

# One session for all examples of a file: a line tells where the next one begins.
sub run_examples
{
	my ($database, @examples) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	my $output = printed($database,
		join('', map { "\\echo ==== $_\n$examples[$_]{sql}\n" } 0 .. $#examples));
	my %got = $output =~ /^==== (\d+)\n(.*?)(?=^==== |\z)/msg;
	foreach my $i (0 .. $#examples)
	{
		my $example = $examples[$i];
		my ($title) = $example->{sql} =~ /\b((?:rollup_|CREATE |SET |latest)\w+)/;
		my $name = "$database, example $i" . ($title ? " ($title)" : '');

		if (defined $example->{printed})
		{
			is(plain($got{$i} // ''), plain($example->{printed}), $name);
		}
		else
		{
			unlike($got{$i} // 'ERROR', qr/^ERROR/m, $name);
		}
	}
}

my @readme = examples('README.md');
run_examples('readme', @readme);
is(scalar(grep { defined $_->{printed} } @readme), 2, 'README.md has two examples with their output');

# it promises to be short
my @lines = grep { /\S/ && !/^\s*--/ } split /\n/, $readme[0]{sql};
cmp_ok(scalar @lines, '<=', 20, 'the first one in twenty lines');

# what it says of a forgotten fold
my ($promised) = slurp_file("$FindBin::RealBin/../../README.md") =~ /^(ERROR:  rollup .*)$/m;
like(printed('readme', "INSERT INTO readings_latest VALUES ('van-1', 90, now(), 1);"),
	qr/\Q$promised\E/, 'a write of others to a rollup fails as the README says');

my @reference = examples('doc/reference.md');
run_examples('reference', @reference);
cmp_ok(scalar @reference, '>', 25, 'the reference has its examples');

# --- all that a user may name is in the reference, and nothing else ----------------
my $text = slurp_file("$FindBin::RealBin/../../doc/reference.md");

# a signature without what only its writing differs in
sub signature
{
	my ($written) = @_;
	$written =~ s/timestamp with time zone/timestamptz/g;
	$written =~ s/double precision/float8/g;
	$written =~ s/::[a-z]+(?:\[\])?//g;
	$written =~ s/\s+/ /g;
	$written =~ s/ ?([(),]) ?/$1/g;
	return $written;
}

# the part of the reference below a heading
sub section
{
	my ($title) = @_;
	return $text =~ /^(#{2,3}) \Q$title\E\n(.*?)(?=^#{2,3} |\z)/ms ? $2 : '';
}

my $members = "pg_depend d WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dailyrollup')";
foreach (split /\n/, $node->safe_psql('reference', <<"SQL"))
	SELECT proname, prokind = 'p', pg_get_function_arguments(oid), pg_get_function_result(oid) FROM pg_proc
	WHERE pronamespace = 'public'::regnamespace AND oid IN (SELECT objid FROM $members) ORDER BY 1
SQL
{
	my ($name, $procedure, $arguments, $result) = split /\|/;
	my $section = section($name =~ /^(?:latest|earliest)$/ ? 'latest and earliest' : $name);
	$arguments =~ s/^IN //;
	my $declared = signature($procedure eq 't' ? "CALL $name($arguments)" : "$name($arguments) RETURNS $result");
	like(signature(join("\n", $section =~ /^```text\n(.*?)^```/msg)), qr/\Q$declared\E/, "the reference has $name as it is");
}

# the names in the first column of a section's tables; a row may have several
sub named_in
{
	return join "\n", sort grep { !/^<live>/ } map { /`([^`]+)`/g } $_[0] =~ /^\| (`[^|]*) \|/mg;
}
foreach my $view (split /\n/, $node->safe_psql('reference', <<"SQL"))
	SELECT relname FROM pg_class
	WHERE relnamespace = 'public'::regnamespace AND relkind = 'v' AND oid IN (SELECT objid FROM $members) ORDER BY 1
SQL
{
	my $section = section($view eq 'rollup_metrics' ? 'Metrics' : $view);
	$section =~ s/^\| name \| labels.*//ms;
	is(named_in($section), join("\n", sort split /\n/, $node->safe_psql('reference',
		"SELECT attname FROM pg_attribute WHERE attrelid = '$view'::regclass AND attnum > 0")),
		"the reference has the columns of $view");
}
is(named_in(section('Settings')), $node->safe_psql('reference',
	q{LOAD 'dailyrollup'; SELECT name FROM pg_settings WHERE name LIKE 'dailyrollup.%' ORDER BY name COLLATE "C"}),
	'the reference has the settings');
foreach my $name ($text =~ /^### (rollup_\w+)$/mg)
{
	isnt($node->safe_psql('reference', "SELECT coalesce(to_regclass('$name')::text, (SELECT min(proname::text) FROM pg_proc WHERE proname = '$name'), '')"),
		'', "$name, of the reference, exists");
}

$node->stop;
done_testing();
