# A server whose background worker makes the passes at once, and rows for it.
package DrWorker;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;

our @EXPORT = qw(noon_zone events worker_node);

# A zone where it is about noon: no test waits for a midnight.
sub noon_zone
{
	my $hour = (gmtime)[2];
	return sprintf 'Etc/GMT%s', $hour == 12 ? '' : sprintf '%+d', $hour - 12;
}

# Rows of the last three days, k of 0 to 4.
sub events
{
	return <<'SQL';
CREATE TABLE events (k int, at timestamptz NOT NULL, n int);
CREATE INDEX ON events (k, at);
INSERT INTO events SELECT i % 5, now() - i * interval '1 hour', i FROM generate_series(1, 72) i;
SQL
}

# Initialized, not started; "init" are arguments of it.
sub worker_node
{
	my ($name, $more, %init) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%init);
	$node->append_conf('postgresql.conf', <<'CONF' . ($more // ''));
fsync = off
timezone = 'UTC'
shared_preload_libraries = 'dailyrollup'
dailyrollup.delay = 0
dailyrollup.late_interval = 0
CONF
	return $node;
}

1;
