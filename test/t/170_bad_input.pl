# Every routine of the extension, as its catalog entries tell, with every kind
# of bad value for each argument, on rollups in each state: a call succeeds, and
# every rollup is exact then, or it fails by an error that is meant for its
# caller, and nothing has changed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrRoutines qw(routines calls);
use DrSession;

my $node = PostgreSQL::Test::Cluster->new('bad_input');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\ntimezone = 'UTC'\n");
$node->start;
my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$session->safe("SET client_min_messages = error;\n$DrRoutines::SETUP");
is($session->safe('SELECT bi.wrong();'), '', 'all is well before');

# ---------- what an error may be ----------

# our source files: the sources are not here, but their layers are
my $lint = slurp_file("$FindBin::RealBin/../lint.pl");
my ($layers) = $lint =~ /^my \@layers = \((.*?)^\);/ms or die "no layers in test/lint.pl\n";
my %ours = map { ("$_.c" => 1) } map { split } $layers =~ /\[qw\((.*?)\)\]/g;
cmp_ok(scalar keys %ours, '>', 50, 'our source files');

# Of the server's own errors those that mean the caller's statement: the call is
# not one, a name is not there, a right is missing; and the defining query's.
sub is_of_the_server
{
	my ($said) = @_;

	return 0 if $said->{context} =~ /SQL statement|SQL function|PL\/pgSQL/;
	return 1 if $said->{context} =~ /defining query of a rollup/ && $said->{state} =~ /^(?:42|3F|54|0A)/;
	# a function that returns rows, of a type that the call does not tell; a NULL of a
	# type without input, which a server with assertions looks at
	return 1 if $said->{state} eq '0A000' && $said->{location} =~ /^(?:InitMaterializedSRF|internal_in),/;
	return $said->{state} =~ /^(?:42(?!601)|3F)/;
}

# Ours say what to do, or name what is wrong.
sub is_ours
{
	my ($said, $routine) = @_;
	my $names = join '|', map { quotemeta $_->[0] } grep { $_->[0] ne '' } @{ $routine->{arguments} };

	return 0 if $said->{state} eq '42601';
	return 1 if $said->{message} =~ /^this function serves .* alone$/;
	return $said->{text} =~ /^HINT:  ./m || $said->{message} =~ /"/ || ($names ne '' && "$said->{message} $said->{context}" =~ /\b(?:$names)\b/);
}

sub is_meant
{
	my ($said, $routine) = @_;

	return 0 if $said->{state} =~ /^(?:XX|58|57|53|40|P0)/ && !($said->{state} eq '40001' && $routine->{name} =~ /_floor_holds$/);
	return 0 if $said->{message} =~ /cache lookup|unexpected|unrecognized node|could not open relation/i;
	return $said->{location} =~ /, (\w+\.c):/ && $ours{$1} ? is_ours($said, $routine) : is_of_the_server($said);
}

# ---------- the calls ----------

# one call for each way of being wrong
my ($failed, $succeeded, %wrong) = (0, 0);
sub fail_of
{
	my ($call, $text) = @_;
	my ($routine, $state, $location) = ($call =~ /(\w+)\(/, $text =~ /:  (\w{5}):/, $text =~ /^LOCATION:  (.*)/m);

	$wrong{ join ' ', map { $_ // '-' } $routine, $state, $location } //= substr($call, 0, 300) . "\n" . substr($text, 0, 1000);
}

# The error in an answer; undef: there is none.
sub error_in
{
	my ($text) = @_;
	my ($state, $message) = $text =~ /^(?:ERROR|FATAL|PANIC):\s+(\w{5}): (.*)$/m or return;
	my %said = (text => $text, state => $state, message => $message);

	($said{ lc $_ }) = ($text =~ /^$_:  (.*?)(?=^[A-Z]+:  |\z)/ms, '') for qw(CONTEXT LOCATION);
	return \%said;
}

sub try
{
	my ($routine, $call, $role) = @_;
	my $procedure = $routine->{kind} eq 'p';
	my $well = $routine->{writes} ? "SELECT '-- wrong:' || bi.wrong() || ' --';" : "SELECT '-- wrong: --';";
	my $text = $session->run(($procedure ? "SET ROLE $role;" : "BEGIN; SET LOCAL ROLE $role;") . "\n$call;\n\\if :ERROR\n\\else\nRESET ROLE; $well\n\\endif\n" . ($procedure ? 'RESET ROLE;' : 'ROLLBACK;'));
	my $said = error_in($text);

	$said ? $failed++ : $succeeded++;
	fail_of($call, $text) if $said ? !is_meant($said, $routine) : $text !~ /^-- wrong: --$/m;
	return $text;
}

my @routines = routines($session);
cmp_ok(scalar @routines, '>=', 55, 'routines');
my $before = $session->safe('SELECT bi.all();');
for my $routine (sort { $a->{kind} cmp $b->{kind} || $a->{name} cmp $b->{name} } grep { $_->{kind} ne 'p' } @routines)
{
	try($routine, $_, 'bi_owner') for calls($session, $routine);
	my $after = $session->safe('SELECT bi.all();');
	is($after, $before, "nothing is changed by calls of $routine->{name} that fail or are rolled back");
	$before = $after;
}
# those that commit
for my $routine (grep { $_->{kind} eq 'p' } @routines)
{
	for my $call (calls($session, $routine))
	{
		my $said = error_in(try($routine, $call, 'bi_owner'));
		my $after = $session->safe('SELECT bi.all();');
		fail_of($call, "changed something: $said->{text}") if $said && $after ne $before;
		$before = $after;
	}
}
is(scalar keys %wrong, 0, 'each call is exact or fails as it should') or diag(join "\n\n", map { $wrong{$_} } sort keys %wrong);
cmp_ok($succeeded, '>', 1000, 'calls succeed');
cmp_ok($failed, '>', 1500, 'calls fail');
note("$succeeded calls succeeded, $failed failed");
$session->quit;
$node->stop;
done_testing();
