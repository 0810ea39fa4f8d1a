# Every routine of the extension, as its catalog entries tell, where a function may be
# called but seldom is: in a read-only transaction, in a parallel query, in a SECURITY
# DEFINER function, in a subtransaction that aborts, within a cursor of which one row
# is taken, as an index's expression and in a generated column, on a hot standby.  It
# answers as it does elsewhere, or by an error that is meant for its caller; nothing
# is changed, and what it leaves behind is exact.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrRoutines qw(routines calls);
use DrSession;

my $node = PostgreSQL::Test::Cluster->new('contexts');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\n");
$node->start;
my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$session->safe("SET client_min_messages = error;\n$DrRoutines::SETUP");
$session->safe(<<'SQL');
CREATE ROLE bi_stranger;
CREATE FUNCTION bi.as_owner(statement text) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  r record;
BEGIN
  FOR r IN EXECUTE statement LOOP RETURN NEXT r::text; END LOOP;
END $$;
ALTER FUNCTION bi.as_owner OWNER TO bi_owner;
-- what it does is undone
CREATE FUNCTION bi.undone(statement text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE statement;
  RAISE SQLSTATE 'BI000';
EXCEPTION WHEN SQLSTATE 'BI000' THEN NULL;
END $$;
GRANT USAGE ON SCHEMA bi TO bi_stranger;
SQL
my @routines = grep { $_->{kind} ne 'p' } routines($session);
my $parallel = $session->safe("SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');");

# What is sent, for a call "SELECT f(...)".
my %contexts = (
	'read-only' => sub { "SET TRANSACTION READ ONLY; SET LOCAL ROLE bi_owner;\n$_[0];" },
	'parallel' => sub { "SET LOCAL $parallel = on; SET LOCAL ROLE bi_owner;\n$_[0];" },
	'parallel scan' => sub { "SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0; SET LOCAL ROLE bi_owner;\n$_[0] FROM bi.plain;" },
	'security definer' => sub { "SET LOCAL ROLE bi_stranger;\nSELECT bi.as_owner(" . DrRoutines::quoted($_[0]) . ');' },
	'subtransaction' => sub { "SET LOCAL ROLE bi_owner;\nSELECT bi.undone(" . DrRoutines::quoted($_[0]) . ");\n\\if :ERROR\n\\else\nRESET ROLE; SELECT '-- wrong:' || bi.wrong() WHERE bi.wrong() <> '';\n\\endif\n" },
	'cursor' => sub { "SET LOCAL ROLE bi_owner;\nDECLARE c CURSOR FOR $_[0];\nFETCH 1 FROM c; SAVEPOINT x; FETCH 1 FROM c; ROLLBACK TO x; CLOSE c;" },
	'index' => sub { my ($f) = $_[0] =~ /^SELECT (.*)/s; "SET LOCAL ROLE bi_owner;\nCREATE INDEX ON bi.plain (($f));" },
	'generated' => sub { my ($f) = $_[0] =~ /^SELECT (.*)/s; "SET LOCAL ROLE bi_owner;\nALTER TABLE bi.plain ADD g text GENERATED ALWAYS AS (($f)::text) STORED;" });

my %wrong;
sub look
{
	my ($routine, $context, $call, $text) = @_;

	for my $said ($text =~ /^((?:ERROR|FATAL|PANIC|WARNING):.*)/mg)
	{
		my ($state, $message) = $said =~ /^\w+:\s+(\w{5}): (.*)/ or next;
		next if $state eq '25P02';
		$wrong{"$routine->{name} $context $state"} //= "$context: " . substr($call, 0, 300) . "\n" . substr($text, 0, 600)
		  if $state =~ /^(?:XX|58|57|P0)/ || $message =~ /cache lookup|unexpected|unrecognized node|could not open relation|invalid/i && $state !~ /^(?:22|42|3F|0A)/;
	}
	# which of its statements may not run is nobody's business
	$wrong{"$routine->{name} $context"} //= "$context: $call\n$text"
	  if $text =~ /-- wrong:|server closed|25006: cannot execute (?!\w+\(\))/;
	return;
}

my ($n, $read_only) = (0, 0);
my $before = $session->safe('SELECT bi.all();');
for my $routine (@routines)
{
	my $m = 0;
	for my $call (calls($session, $routine, 'few'))
	{
		my $plain = $session->run("BEGIN; SET LOCAL ROLE bi_owner;\n$call;\nROLLBACK;");
		# two contexts a call, in turn; the first calls in each
		my @contexts = sort keys %contexts;
		@contexts = map { $contexts[ ($n + $_) % @contexts ] } 0, 1 if $m++ > 2;
		for my $context (@contexts)
		{
			my $text = $session->run("BEGIN;\n" . $contexts{$context}->($call) . "\nROLLBACK;");
			look($routine, $context, $call, $text);
			$n++;
			$read_only++ if $context eq 'read-only' && $text =~ /^ERROR:  25006: cannot execute .* in a read-only transaction/m;
			# the same answer
			next if $context !~ /^(?:parallel|read-only)$/ || $text =~ /^ERROR:  25006/m || $plain =~ /^ERROR/m || $routine->{writes} || $routine->{name} =~ /_next_due$/;
			$wrong{"$routine->{name} $context differs"} //= "$context: $call\n$text\n$plain" if $text ne $plain;
		}
	}
	my $after = $session->safe('SELECT bi.all();');
	$wrong{"$routine->{name} changes"} //= "$routine->{name} changes something" if $after ne $before;
	$before = $after;
}
is(join("\n\n", map { $wrong{$_} } sort keys %wrong), '', 'each call in each context answers, or by an error that is meant');
cmp_ok($read_only, '>', 50, 'routines that write say that they may not');
note("$n calls, $read_only of them refused as read-only");

# ---------- on a standby ----------

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup('standby');
my $reader = DrSession->new(name => '', connstr => $standby->connstr('postgres'));
(%wrong, $read_only) = ();
for my $routine (routines($session))
{
	for my $call (calls($session, $routine, 'few'))
	{
		my $procedure = $routine->{kind} eq 'p';
		my $text = $reader->run($procedure ? "SET ROLE bi_owner;\n$call;\nRESET ROLE;" : "BEGIN; SET LOCAL ROLE bi_owner;\n$call;\nROLLBACK;");
		look($routine, 'standby', $call, $text);
		$read_only++ if $text =~ /^ERROR:  25006: cannot execute .* during recovery/m;
	}
}
is(join("\n\n", map { $wrong{$_} } sort keys %wrong), '', 'on a standby likewise');
cmp_ok($read_only // 0, '>', 50, 'routines that write say so');
is($reader->safe('SELECT bi.wrong();'), '', 'and all is exact there');
$reader->quit;
$session->quit;
$standby->stop;
$node->stop;
done_testing();
