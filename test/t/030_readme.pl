# The README's examples run as printed: each in a new database, its SQL gives
# the output that follows.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use FindBin;

my $readme = slurp_file("$FindBin::RealBin/../../README.md");

# SQL without output behind it (a block of another kind comes first) is left out
my @examples;
while ($readme =~ /^```(\w*)\n(.*?)^```\n/msg)
{
	my ($kind, $text) = ($1, $2);
	push @examples, { sql => $text } if $kind eq 'sql';
	$examples[-1]{printed} //= $text if $kind eq 'text' && @examples;
}
@examples = grep { defined $_->{printed} } @examples;
is(scalar @examples, 2, 'README.md has two examples with their output');

my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->start;

my $n = 0;
foreach my $example (@examples)
{
	my ($stdout, $stderr) = ('', '');
	my $database = 'example_' . ++$n;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	my $rc = $node->psql($database,
		"SET client_min_messages = warning; SET timezone = 'UTC';\n$example->{sql}",
		stdout => \$stdout, stderr => \$stderr, on_error_stop => 1,
		extra_params => [ '-P', 'footer=off', '-P', 'format=aligned', '-P', 'tuples_only=off' ]);

	s/\s+\z/\n/ for $stdout, $example->{printed};
	is($rc, 0, "example $n runs");
	is($stderr, '', 'without a word of complaint');
	is($stdout, $example->{printed}, 'and prints what the README shows');
}

# the README promises twenty lines
my @lines = grep { /\S/ && !/^\s*--/ } split /\n/, $examples[0]{sql};
cmp_ok(scalar @lines, '<=', 20, 'in twenty lines');

# what it says of a forgotten fold
my ($rc, undef, $stderr) = $node->psql('example_2',
	"INSERT INTO signals_latest VALUES ('van-1', 'speed', 90, now(), 1)");
isnt($rc, 0, 'a write of others to a rollup fails');
my ($promised) = $readme =~ /^(ERROR:  rollup .*)$/m;
like($stderr, qr/\Q$promised\E/, 'with the error that the README shows');

$node->stop;
done_testing();
