# The documentation's examples run as printed: each of the README's in a new
# database, those of the reference one after the other in one.  SQL that is
# followed by a block of text gives that text; of other SQL it is asked that it
# runs.

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

my @readme = examples('README.md');
my $n = 0;
foreach my $example (grep { defined $_->{printed} } @readme)
{
	my $database = 'example_' . ++$n;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	is(plain(printed($database, $example->{sql})), plain($example->{printed}),
		"README, example $n");
}
is($n, 2, 'README.md has two examples with their output');

# the README promises twenty lines
my @lines = grep { /\S/ && !/^\s*--/ } split /\n/, $readme[0]{sql};
cmp_ok(scalar @lines, '<=', 20, 'in twenty lines');

# what it says of a forgotten fold
my ($promised) = slurp_file("$FindBin::RealBin/../../README.md") =~ /^(ERROR:  rollup .*)$/m;
like(printed('example_2', "INSERT INTO signals_latest VALUES ('van-1', 'speed', 90, now(), 1);"),
	qr/\Q$promised\E/, 'a write of others to a rollup fails as the README says');

# One session for all: a line tells where the next one begins.
my @reference = examples('doc/reference.md');
$node->safe_psql('postgres', 'CREATE DATABASE reference');
my $output = printed('reference',
	join('', map { "\\echo ==== $_\n$reference[$_]{sql}\n" } 0 .. $#reference));
my %got = $output =~ /^==== (\d+)\n(.*?)(?=^==== |\z)/msg;
foreach my $i (0 .. $#reference)
{
	my $example = $reference[$i];
	my ($title) = $example->{sql} =~ /\b((?:rollup_|CREATE |SET |latest)\w+)/;
	my $name = "reference, example $i" . ($title ? " ($title)" : '');

	if (defined $example->{printed})
	{
		is(plain($got{$i} // ''), plain($example->{printed}), $name);
	}
	else
	{
		unlike($got{$i} // 'ERROR', qr/^ERROR/m, $name);
	}
}
cmp_ok(scalar @reference, '>', 25, 'the reference has its examples');

$node->stop;
done_testing();
