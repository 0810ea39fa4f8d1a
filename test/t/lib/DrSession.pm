# A psql that stays open: one round trip for each call of run(), or send() and
# later answer().
#
# Standard output and standard error come through one pipe, so an error stands
# where it happened.  The echoed separator tells where the answer ends.  Unlike
# PostgreSQL::Test::BackgroundPsql it notes nothing, which matters where a test
# makes some ten thousand round trips, and it keeps the SQLSTATEs.
package DrSession;

use strict;
use warnings;

use IO::Select;
use POSIX ();
use Time::HiRes qw(time);

# new(name => 'A', connstr => '...', log => \@log, timeout => 120)
sub new
{
	my ($class, %self) = @_;
	my $self = bless { timeout => 120, log => [], count => 0, %self }, $class;
	$self->connect;
	return $self;
}

sub connect
{
	my ($self) = @_;

	pipe(my $in_read, my $in_write) or die "pipe: $!";
	pipe(my $out_read, my $out_write) or die "pipe: $!";
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		open(STDIN, '<&', $in_read) or POSIX::_exit(1);
		open(STDOUT, '>&', $out_write) or POSIX::_exit(1);
		open(STDERR, '>&', $out_write) or POSIX::_exit(1);
		close $_ for $in_write, $out_read, $in_read, $out_write;
		$ENV{PGCLIENTENCODING} = 'UTF8';
		no warnings 'exec';
		exec('psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $self->{connstr})
		  or POSIX::_exit(1);
	}
	close $in_read;
	close $out_write;
	binmode $in_write, ':utf8';
	$in_write->autoflush(1);
	@$self{qw(pid in out)} = ($pid, $in_write, $out_read);
	return;
}

# Sends SQL and returns what psql printed; die only where psql is gone or silent.
sub run
{
	my ($self, $sql) = @_;

	$self->send($sql);
	return $self->answer;
}

# Sends SQL, and leaves it running.
sub send
{
	my ($self, $sql) = @_;

	push @{ $self->{log} }, "-- [$self->{name}]\n$sql" if $self->{name};
	$self->{so_far} = '';
	print { $self->{in} } "$sql\n\\echo '-- end " . ++$self->{count} . "'\n";
	return;
}

# What psql printed for what was sent last.
sub answer
{
	my ($self) = @_;

	return $self->answer_within($self->{timeout})
	  // die "session $self->{name}: no answer within $self->{timeout} s\n";
}

# Likewise, or undef where that takes longer; it may then be asked for again.
sub answer_within
{
	my ($self, $seconds) = @_;
	my $mark = "-- end $self->{count}";
	my $until = time + $seconds;
	my $select = IO::Select->new($self->{out});

	until ($self->{so_far} =~ s/^\Q$mark\E\n\z//m)
	{
		my $left = $until - time;
		return if !$select->can_read($left > 0 ? $left : 0);
		my $got = sysread($self->{out}, $self->{so_far}, 65536, length $self->{so_far});
		die "session $self->{name}: psql ended: $self->{so_far}\n" if !$got;
	}
	utf8::decode($self->{so_far});
	return $self->{so_far};
}

# Sends SQL and dies on any error.
sub safe
{
	my ($self, $sql) = @_;
	my $answer = $self->run($sql);

	die "session " . ($self->{name} || '-') . ": $answer\nin: $sql\n"
	  if errors($answer);
	chomp $answer;
	return $answer;
}

# The SQLSTATEs in an answer.
sub errors
{
	my ($answer) = @_;

	return $answer =~ /^(?:ERROR|FATAL|PANIC):\s+(\w{5}):/mg;
}

sub quit
{
	my ($self) = @_;

	return if !$self->{pid};
	local $SIG{PIPE} = 'IGNORE';
	print { $self->{in} } "\\q\n";
	close $self->{in};
	close $self->{out};
	waitpid($self->{pid}, 0);
	delete $self->{pid};
	return;
}

sub reconnect
{
	my ($self) = @_;

	$self->quit;
	$self->connect;
	return;
}

1;
