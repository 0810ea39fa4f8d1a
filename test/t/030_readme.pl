# The README's example runs as printed: its SQL gives the output that follows.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use FindBin;

my $readme = slurp_file("$FindBin::RealBin/../../README.md");
my ($sql, $printed) = $readme =~ /^```sql\n(.*?)^```\n.*?^```text\n(.*?)^```\n/ms
  or die 'README.md has no example with its output';

my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->start;

my ($stdout, $stderr) = ('', '');
my $rc = $node->psql('postgres',
	"SET client_min_messages = warning; SET timezone = 'UTC';\n$sql",
	stdout => \$stdout, stderr => \$stderr, on_error_stop => 1,
	extra_params => [ '-P', 'footer=off', '-P', 'format=aligned', '-P', 'tuples_only=off' ]);

s/\s+\z/\n/ for $stdout, $printed;
is($rc, 0, 'the example runs');
is($stderr, '', 'without a word of complaint');
is($stdout, $printed, 'and prints what the README shows');

# the README promises twenty lines
my @lines = grep { /\S/ && !/^\s*--/ } split /\n/, $sql;
cmp_ok(scalar @lines, '<=', 20, 'in twenty lines');

$node->stop;
done_testing();
