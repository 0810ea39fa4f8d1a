# The steps of the property test's stream that change a rollup's mode, order
# something of it, or write where each write is folded.  Mixed into DrStream.pm.
#
# The days of the stream are fixed, a pass goes by the clock: before each the
# rollup's delay is set, longer than rollup_alter() would have it, so that the
# boundary that is due is one of the stream's.
package DrModeSteps;

use strict;
use warnings;
use utf8;

use DrSetting;

# Steps that only write to the source: live is touched by the fold alone.
my %WRITES = map { $_ => 1 } qw(transaction savepoints prepared interleaved same_keys backfill replica
  block_commit untriggered mark);

# Steps that may write to a table that is left to others, or move its rows.
my %MAY_TOUCH = map { $_ => 1 } qw(foreign recompute fold_setting orders readopt across);

sub kinds_with_modes
{
	my ($self) = @_;
	my @detachable = sort { $a <=> $b } keys %{ $self->{attached} };
	my @now = map { $_->{state} eq 'new' ? ('run') x 8 : $_->{folding} ? () : ('fold_setting') x 4 } $self->rollups;

	return (
		@now,
		('transaction') x 7, ('savepoints') x 4, ('prepared') x 2, ('interleaved') x 2, ('same_keys') x 4,
		('backfill') x 3, ('refresh') x 3, ('refresh_inside') x 2, ('run') x 4, ('mode') x 6, ('promote') x 2,
		('across') x 5, ('orders') x 4, ('fold_setting') x 2, 'recompute', 'recompute', 'flush', 'flush',
		'reader', 'early_locker', 'truncate', 'mark', 'reseed', 'ddl', 'replica', 'block_commit',
		'untriggered', 'failed_pass', 'foreign', 'foreign', 'readopt', @detachable ? ('detach') x 2 : ());
}

# ---------- an adopted table ----------

# What a table holds that others keep: often not what it should.
sub adopted_content
{
	my ($self, $rollup) = @_;
	my $setting = $self->{setting};
	my $live = $setting->live($rollup);
	my $columns = join ', ', map { ident($_->{name}) } @{ $rollup->{columns} };
	my $day = between(0, 8);
	my $bound = chance(0.5) ? $self->time_literal($self->{midnight} + $day * 86400) : undef;

	return '' if chance(0.15);
	return "INSERT INTO $live ($columns) SELECT $columns FROM (" . $setting->oracle($rollup, $bound) . ") o_;\n"
	  . join '', map { $self->foreign_write($rollup) . "\n" } 1 .. between(0, 2);
}

# A write to live that is none of ours.
sub foreign_write
{
	my ($self, $rollup) = @_;
	my $live = $self->{setting}->live($rollup);
	my $columns = join ', ', map { ident($_->{name}) } @{ $rollup->{columns} };
	my ($count) = map { ident($_->{name}) } grep { $_->{q} eq 'count(*)' } @{ $rollup->{columns} };
	my $some = "ctid IN (SELECT ctid FROM $live ORDER BY ctid LIMIT " . between(1, 2) . ' OFFSET ' . between(0, 2) . ')';
	my @writes = ("DELETE FROM $live WHERE $some;");

	push @writes, ("UPDATE $live SET $count = $count + 1 WHERE $some;") x 2 if defined $count;
	push @writes, ("INSERT INTO $live ($columns) SELECT $columns FROM $live LIMIT " . between(1, 3) . ';') x 3
	  if $rollup->{adopted} && !$rollup->{indexed};
	return pick(@writes);
}

# ---------- what was not to be touched ----------

# The places and writers of live's rows.
sub fingerprint
{
	my ($self, $rollup) = @_;

	return $self->safe("SELECT md5(string_agg(ctid::text || ' ' || xmin::text, ',' ORDER BY ctid)) FROM "
		  . $self->{setting}->live($rollup) . ';');
}

# Live is not written to while it is left to others, nor under on between two
# refreshes.
sub check_untouched
{
	my ($self, $kind) = @_;
	my $rewritten = delete $self->{rewritten};

	for my $rollup ($self->rollups)
	{
		my $left = ($rollup->{state} eq 'off' || $rollup->{state} eq 'shadow') && !$rollup->{folding};
		my $keeper = $left ? 'others' : $rollup->{state} eq 'on' ? 'on' : '';
		my $print = $keeper ? $self->fingerprint($rollup) : '';
		my $same = $keeper && ($rollup->{keeper} // '') eq $keeper && !$rewritten
		  && ($keeper eq 'on' ? $WRITES{$kind} : !$MAY_TOUCH{$kind});
		die "rollup $rollup->{number} ($rollup->{state}): live was written to\n"
		  if $same && $print ne $rollup->{fingerprint};
		@$rollup{qw(keeper fingerprint)} = ($keeper, $print);
	}
	return;
}

# ---------- passes and orders ----------

# SQL that must be refused, for a reason that stands in the reference.
sub refused
{
	my ($self, $name, $sql) = @_;
	my $answer = $self->session($name)->run($sql);

	die "not refused:\n$answer" if join(' ', DrSession::errors($answer)) ne '55000';
	$self->{failed}{$name} = 1;
	return;
}

# The boundary that is due.
sub make_due
{
	my ($self, $rollup, $boundary) = @_;

	$self->safe("UPDATE dailyrollup.rollups SET delay = clock_timestamp() - to_timestamp($boundary + 3 * 3600)"
		  . ' WHERE live = ' . $self->{setting}->regclass($rollup) . ';');
	return;
}

# The state that a pass has to bring the rollup to.
sub wanted
{
	my ($self, $rollup, $row) = @_;

	return $rollup->{own} // (
		  $row->{state} eq 'new' ? $rollup->{last_state} // 'off'
		: $row->{state} eq 'on' ? $row->{wanted}
		: $row->{state});
}

# A pass over a rollup, and whether it has done what it had to.
sub pass
{
	my ($self, $rollup, %option) = @_;
	my $boundary = $option{boundary} // $self->draw_boundary($rollup);
	my $before = $self->row_of('A', $rollup) or return;
	my $wanted = $self->wanted($rollup, $before);

	die "wanted is $before->{wanted}, expected $wanted\n" if $before->{wanted} ne $wanted;
	$self->make_due($rollup, $boundary);
	$self->does('A', 'CALL public.rollup_run(' . $self->{setting}->regclass($rollup) . ');', strict => 1, may => $option{may});
	if ($self->{failed}{A})
	{
		# how far it came
		$self->{failed}{A} = 0;
		my $now = $self->row_of('A', $rollup) or return;
		$rollup->{reseed} = $now->{reseed} eq 't';
		return;
	}
	$self->check_pass($rollup, $before, $boundary, $wanted, %option);
	return;
}

sub check_pass
{
	my ($self, $rollup, $before, $boundary, $wanted, %option) = @_;
	my $now = $self->row_of('A', $rollup) or return;
	my $w = $now->{state} eq 'shadow' ? $now->{shadow_w} : $now->{w};

	die "state is $now->{state} after a pass, expected $wanted\n" if $now->{state} ne $wanted;
	$rollup->{reseed} = 0;
	die "a reseed is still asked for\n" if $now->{reseed} eq 't';
	die "there is a shadow in state $wanted\n" if ($now->{shadow} eq 't') != ($wanted eq 'shadow');
	if ($wanted eq 'off')
	{
		die "W is $w\n" if $w ne 'null';
	}
	elsif ($w eq 'null' || $w != $boundary && !grep { $_ ne 'null' && $_ == $w && $_ > $boundary } @$before{qw(w shadow_w)})
	{
		die "W is $w after a pass to $boundary\n";
	}
	# whoever writes meanwhile may leave some; under off nobody asks for late ones
	die "$now->{late} late keys, $now->{dirty} dirty ones after a pass\n"
	  if ($wanted eq 'off' ? 0 : $now->{late}) + $now->{dirty} > 0 && !$option{writers};
	return;
}

sub alter_mode
{
	my ($self, $rollup, $mode) = @_;

	$rollup->{own} = $mode eq 'default' ? undef : $mode;
	return "SELECT public.rollup_alter(" . $self->{setting}->regclass($rollup) . ", mode => '$mode');";
}

sub step_run
{
	my ($self) = @_;
	my @rollups = $self->rollups;

	$self->does('A', $self->random_settings);
	return $self->pass(pick(@rollups)) if @rollups == 1 || chance(0.5);

	# each of them by one pass
	my %before = map { $_->{number} => $self->row_of('A', $_) } @rollups;
	my %boundary = map { $_->{number} => $self->draw_boundary($_) } @rollups;
	$self->make_due($_, $boundary{ $_->{number} }) for @rollups;
	$self->does('A', 'CALL public.rollup_run();', strict => 1);
	$self->check_pass($_, $before{ $_->{number} }, $boundary{ $_->{number} }, $self->wanted($_, $before{ $_->{number} }))
	  for @rollups;
	return;
}

sub step_mode
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);
	my $own = $rollup->{own};

	if (chance(0.15))
	{
		$self->does('A', "BEGIN;");
		$self->does('A', $self->alter_mode($rollup, pick(qw(off shadow on default))));
		$self->does('A', $self->dml) if chance(0.5);
		$self->does('A', "ROLLBACK;");
		$rollup->{own} = $own;
		return;
	}
	$self->does('A', $self->alter_mode($rollup, pick(qw(off off off shadow shadow shadow on default))));
	$self->check('A') if chance(0.2);
	$self->pass($rollup) if chance(0.9);
	return;
}

# rollup_promote(), by name or of all that can be.
sub promote
{
	my ($self, $name, $rollup) = @_;
	my $setting = $self->{setting};
	my @rollups = chance(0.6) ? $rollup : $self->rollups;
	my $argument = @rollups == 1 && $rollups[0] == $rollup ? $setting->regclass($rollup) : '';
	my %before;

	for my $each (@rollups)
	{
		$before{ $each->{number} } = $self->row_of($name, $each) or return;
	}
	my @can = grep { my $row = $before{ $_->{number} }; $row->{state} eq 'on' || $row->{state} eq 'shadow' && $row->{shadow_w} ne 'null' } @rollups;
	my $sql = "SELECT 'promoted', p.rollup = ANY (ARRAY[" . join(', ', map { $setting->regclass($_) } @rollups)
	  . "]), p.action, p.rows, p.keys FROM public.rollup_promote($argument) p ORDER BY p.rollup;";
	return chance(0.2) ? $self->refused($name, $sql) : () if $argument && !@can;
	my $answer = $self->does($name, $sql, strict => 1);
	return if $self->{failed}{$name};
	my @lines = $answer =~ /^promoted\|t\|(.*)$/mg;
	die "rollup_promote returned:\n$answer" if @lines != @can;
	for my $each (@can)
	{
		my $was = $before{ $each->{number} };
		my $now = $self->row_of($name, $each) or return;
		my $rows = $self->does($name, 'SELECT count(*) FROM ' . $setting->live($each) . ';');
		chomp $rows;
		my $action = $was->{state} eq 'on' ? 'already on' : 'promoted';
		die "no line $action|$rows|$rows from rollup_promote:\n$answer" if !grep { $_ eq "$action|$rows|$rows" } @lines;
		next if $was->{state} eq 'on';
		$each->{own} = 'on' if $was->{wanted} ne 'on';
		die "after rollup_promote: state $now->{state}, wanted $now->{wanted}, W $now->{w}, $now->{late} late, $now->{dirty} dirty\n"
		  if $now->{state} ne 'on' || $now->{wanted} ne 'on' || $now->{w} ne $was->{shadow_w} || $now->{late} + $now->{dirty} > 0
		  || $now->{fold} ne 't' || $now->{shadow} ne 'f';
	}
	return;
}

sub step_promote
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);

	# most often there is something to promote
	if ($rollup->{state} ne 'shadow' && chance(0.7))
	{
		$self->does('A', $self->alter_mode($rollup, 'shadow'));
		$self->pass($rollup);
		$self->does('A', $self->dml) for 1 .. between(0, 2);
		$self->{failed} = {};
	}
	$self->promote('A', $rollup);
	return;
}

# May writes be folded into live, as it is?
sub is_right
{
	my ($self, $name, $rollup) = @_;
	my $answer = $self->does($name, 'SELECT count(*) FROM public.rollup_verify(' . $self->{setting}->regclass($rollup) . ');');

	return $answer eq "0\n";
}

sub step_fold_setting
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);
	my $regclass = $self->{setting}->regclass($rollup);
	my $row = $self->row_of('A', $rollup) or return;
	my $on = "SELECT public.rollup_alter($regclass, fold => true);";
	my $recompute = "SELECT public.rollup_recompute($regclass);";

	if (!$row->{left})
	{
		$self->does('A', $on =~ s/true/$row->{fold} eq 't' ? 'false' : 'true'/er);
		return;
	}
	if (chance(0.2))
	{
		return $self->is_right('A', $rollup) ? $self->does('A', $on) : $self->refused('A', $on);
	}
	$self->does('A', 'BEGIN;');
	$self->does('A', $self->dml) if chance(0.3);
	$self->does('A', $recompute) if !$self->{failed}{A};
	$self->does('A', $self->dml) if chance(0.1);
	if (!$self->{failed}{A} && $self->{unfolded}{A} && !$self->is_right('A', $rollup))
	{
		$self->does('A', $recompute);
	}
	$self->does('A', $on) if !$self->{failed}{A};
	$self->does('A', $self->dml) if chance(0.3);
	$self->check('A', inside => 1);
	$self->does('A', pick('COMMIT;', 'COMMIT;', 'COMMIT;', 'ROLLBACK;'));
	return;
}

sub step_recompute
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);
	my $sql = 'SELECT public.rollup_recompute(' . $self->{setting}->regclass($rollup) . ');';

	return $self->refused('A', $sql) if $rollup->{state} eq 'new' || $rollup->{state} eq 'on';
	$self->does('A', $sql, strict => 1);
	$self->check('A', right => $rollup) if !$self->{failed}{A};
	return;
}

sub flush
{
	my ($self, $name, $rollup) = @_;
	my $before = $self->row_of($name, $rollup) or return;
	my $answer = $self->does($name, 'SELECT public.rollup_flush(' . $self->{setting}->regclass($rollup) . ');', strict => 1);
	return if $self->{failed}{$name};
	my $now = $self->row_of($name, $rollup) or return;

	chomp $answer;
	# what this transaction has written under backfill is folded, and flushed, too
	die "rollup_flush returned $answer, $before->{dirty} keys were dirty\n"
	  if $answer != ($before->{folds} ? $before->{dirty} : 0) && !$self->{wrote}{$name};
	die "$now->{dirty} keys are dirty after rollup_flush\n" if $now->{folds} && $now->{dirty} > 0;
	return;
}

sub step_flush
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);

	# most often there is something to flush
	$self->backfill('A') if chance(0.7);
	$self->{failed} = {};
	$self->check('C') if chance(0.5);
	$self->flush('A', $rollup);
	return;
}

# ---------- writes ----------

sub backfill
{
	my ($self, $name) = @_;

	$self->does($name, "BEGIN;\nSET LOCAL dailyrollup.backfill = on;");
	for (1 .. between(1, 3))
	{
		$self->does($name, $self->dml);
		$self->does($name, 'SET LOCAL dailyrollup.backfill = ' . pick(qw(on off)) . ';') if chance(0.2);
		$self->check($name, inside => 1) if chance(0.2);
	}
	$self->does($name, pick('COMMIT;', 'COMMIT;', 'COMMIT;', 'ROLLBACK;'));
	return;
}

sub step_backfill
{
	my ($self) = @_;

	$self->backfill(pick(qw(A B)));
	return;
}

# A row of the base's key: often its event again, as it was, or a worse or a
# better copy, or another event at the same instant.
sub keyed_row
{
	my ($self, $base, %option) = @_;
	my $row = $self->random_row(%option);
	my @order = @{ $self->{setting}{rollups}[0]{dedup_order} // [] };

	if (!defined $option{parity} && chance(0.6))
	{
		$row = { %$base, rid => $row->{rid} };
		$row->{$_} = pick(@{ $self->{setting}{column}{$_}{pool} }) for some(between(0, 2), @order, qw(eid vi vn vt));
		return $row;
	}
	$row->{$_} = $base->{$_} for grep { /^k\d/ } keys %$row;
	return $row;
}

sub insert_keyed
{
	my ($self, $bases, %option) = @_;
	my @rows = map { $self->keyed_row(pick(@$bases), %option) } 1 .. pick(1, 1, 2, 3);

	return "INSERT INTO " . $self->{setting}->source . " (" . $self->columns . ") VALUES\n  "
	  . join(",\n  ", map { $self->values_of($_) } @rows) . $self->on_conflict_nothing . ';';
}

# Two transactions that write the same keys and end in either order: whoever
# folds second waits, and sees then what the first has done.
sub step_same_keys
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my @bases = map { $self->random_row(finite => 1) } 1 .. between(1, 2);
	# rows of the other one's are not waited for
	my $apart = $setting->{unique} || $setting->{fk} || $setting->{after_trigger};
	# who folds twice may do so in another order than the other
	my $folds = pick('A', 'B', '', '');
	my @may = $folds eq '' ? () : (may => '40P01');
	my %option = (A => { finite => 1 }, B => { finite => 1 });

	return $self->step_transaction if $setting->{unique} && $setting->{time_type} eq 'date';

	if ($apart)
	{
		$option{A}{parity} = 0;
		$option{B}{parity} = 1;
	}
	my $one = sub {
		my ($name) = @_;
		return $self->insert_keyed(\@bases, %{ $option{$name} }) if $apart || chance(0.75);
		my $method = pick(qw(dml_update dml_delete));
		return $self->$method(parity => $name eq 'A' ? 0 : 1);
	};

	$self->does('A', $self->insert_keyed(\@bases, %{ $option{ pick(qw(A B)) } })) if chance(0.5);
	$self->{failed} = {};
	$self->does($_, chance(0.7) ? 'BEGIN;' : $self->begin_statement) for qw(A B);
	$self->does('B', 'SELECT count(*) FROM ' . $setting->source . ';') if chance(0.3);
	$self->does('B', 'SET LOCAL dailyrollup.backfill = on;') if chance(0.1);
	for my $name (shuffled(('A') x between(1, 2), ('B') x between(1, 2)))
	{
		$self->does($name, $one->($name));
		$self->fold_now($name) if $name eq $folds && chance(0.6);
		$self->check('C') if chance(0.1);
	}
	my $gid = "dr_$self->{seed}_" . ++$self->{gid} . "_$self->{step}";
	my $prepare = chance(0.2);
	my $held = chance(0.3);
	my ($first, $second) = $folds eq '' ? shuffled(qw(A B)) : chance(0.5) ? ($folds, $folds eq 'A' ? 'B' : 'A') : ($folds eq 'A' ? 'B' : 'A', $folds);

	if ($prepare)
	{
		$self->does_alongside($first, "PREPARE TRANSACTION '$gid';", @may);
	}
	elsif ($held)
	{
		# the other folds while these locks are held
		$self->fold_now($first) if $folds eq '' || $folds eq $first;
	}
	else
	{
		$self->does_alongside($first, pick('COMMIT;', 'COMMIT;', 'ROLLBACK;'), @may);
	}
	$self->check('C') if chance(0.5);
	$self->does_alongside($second, pick('COMMIT;', 'COMMIT;', 'COMMIT;', 'ROLLBACK;'), @may);
	$self->check('C') if chance(0.5);
	$self->does($first, pick('COMMIT;', 'COMMIT;', 'ROLLBACK;'), @may) if $held && !$prepare;
	$self->finish($first);
	$self->does($first, pick('COMMIT', 'COMMIT', 'ROLLBACK') . " PREPARED '$gid';") if $prepare && !$self->{failed}{$first};
	$self->finish($second);
	return;
}

# A statement of another's over live: refused wherever we keep it.
sub step_foreign
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);
	my $sql = $self->foreign_write($rollup);
	my $row = $self->row_of('A', $rollup) or return;

	return $self->refused(pick(qw(A S)), $sql) if !$row->{left};
	$self->does('A', $sql);
	return;
}

# ---------- several sessions ----------

# An order of the owner's that may have to wait, or make others wait, while a
# writer is open.
sub step_across
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);
	my $regclass = $self->{setting}->regclass($rollup);
	my @apart = $self->{setting}{unique} || $self->{setting}{fk} ? () : (parity => 0);
	my $own = $rollup->{own};
	my $before = $self->row_of('A', $rollup) or return;
	my $boundary = $self->draw_boundary($rollup);
	my @orders = ('run') x 3;

	push @orders, ('promote') x 4 if $before->{state} eq 'shadow' && $before->{shadow_w} ne 'null';
	push @orders, 'recompute', 'recompute' if $before->{state} =~ /^(?:off|shadow)$/;
	push @orders, 'fold_setting' if $before->{folds};
	push @orders, 'flush' if $before->{folds};
	my $order = pick(@orders);

	$self->make_due($rollup, $boundary);
	$self->does('A', $self->alter_mode($rollup, pick(qw(off shadow shadow on on default)))) if $order eq 'run';
	$before = $self->row_of('A', $rollup) or return;
	my $wanted = $self->wanted($rollup, $before);

	$self->backfill('B') if $order eq 'flush';
	$self->{failed} = {};
	$self->does('B', $self->begin_statement);
	$self->does('B', $self->dml(@apart)) for 1 .. between(0, 2);
	my $folded = chance(0.25) && $order ne 'flush';
	$self->fold_now('B') if $folded;
	$self->does('B', "SAVEPOINT sp_;") if !$self->{failed}{B} && chance(0.2);

	my $sql =
	    $order eq 'run'          ? "CALL public.rollup_run($regclass);"
	  : $order eq 'promote'      ? "SELECT * FROM public.rollup_promote($regclass);"
	  : $order eq 'recompute'    ? "SELECT public.rollup_recompute($regclass);"
	  : $order eq 'fold_setting' ? "SELECT public.rollup_alter($regclass, fold => false);"
	  :                            "SELECT public.rollup_flush($regclass);";
	my $inside = $order ne 'run' && chance(0.5);
	$self->does('A', 'BEGIN;') if $inside;
	$self->does('A', $self->dml(parity => 1)) if $inside && @apart && chance(0.3);
	my $done = $self->does_alongside('A', $sql, strict => 1);
	# nobody reads the view until A has committed its other text
	my $readable = !$inside || $order ne 'fold_setting';
	# while B keeps its locks on live, A may keep the shadow's from readers; and A may go
	# on from step to step
	$self->check('C', $folded || !$done ? (brief => 1) : ()) if !$inside && chance(0.5);
	# whose locks B may meet, in the middle or at its end
	for (1 .. between(0, 2))
	{
		$self->does_alongside('B', $self->dml(@apart)) if !$self->{pending}{B};
		$self->check('C', brief => 1) if chance(0.2) && $readable;
	}
	$self->does('B', "ROLLBACK TO sp_;", may => '3B001') if !$self->{pending}{B} && !$self->{failed}{B} && chance(0.1);
	my $end = pick('COMMIT;', 'COMMIT;', 'COMMIT;', 'ROLLBACK;');
	my $ended = !$self->{pending}{B};
	$self->does_alongside('B', $end) if $ended;
	$self->finish('A') if !$done;
	$self->check('C', brief => 1) if chance(0.3) && $readable;
	my $undone = $self->{failed}{A};
	if ($inside)
	{
		my $how = pick('COMMIT;', 'COMMIT;', 'ROLLBACK;');
		$self->does('A', $how);
		$undone ||= $how eq 'ROLLBACK;';
	}
	$self->finish('B');
	$self->does('B', $end) if !$ended;
	if ($order eq 'promote' && !$undone)
	{
		$rollup->{own} = 'on' if $before->{wanted} ne 'on';
	}
	$self->check_pass($rollup, $before, $boundary, $wanted, writers => 1) if $order eq 'run' && !$undone;
	return;
}

# A pass that cannot end: a writer, or somebody who folds, is in its way.
sub step_failed_pass
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);

	$self->does('C', 'BEGIN;');
	$self->does('C', chance(0.5) ? 'LOCK TABLE ' . $self->{setting}->live($rollup) . ' IN ROW EXCLUSIVE MODE;' : $self->dml);
	$self->does('A', "SET dailyrollup.writer_timeout = '150ms';");
	$self->does('A', $self->alter_mode($rollup, pick(qw(off shadow on on))));
	$self->pass($rollup, may => '55P03', writers => 1);
	$self->{failed}{A} = 0;
	$self->does('A', 'RESET dailyrollup.writer_timeout;');
	$self->check('A');
	$self->does('C', pick('COMMIT;', 'ROLLBACK;'));
	return;
}

# Orders and writes of one transaction, some of them undone.
sub step_orders
{
	my ($self) = @_;
	my $rollup = pick($self->rollups);
	my $regclass = $self->{setting}->regclass($rollup);
	my %own = map { $_->{number} => $_->{own} } $self->rollups;
	my %reseed = map { $_->{number} => $_->{reseed} } $self->rollups;
	my (@open, @saved);

	$self->does('A', 'BEGIN;');
	for my $number (1 .. between(3, 7))
	{
		my $move = pick(qw(dml dml dml savepoint savepoint rollback release fold promote promote refresh refresh recompute
			flush fold_setting backfill mark));
		my $row = $self->row_of('A', $rollup);
		last if !$row;
		if ($move eq 'savepoint')
		{
			push @open, "sp$number";
			push @saved, [ map { [ $_, $_->{own}, $_->{reseed} ] } $self->rollups ];
			$self->does('A', "SAVEPOINT sp$number;");
		}
		elsif ($move eq 'rollback' && @open)
		{
			my $at = between(0, $#open);
			$self->does('A', "ROLLBACK TO $open[$at];");
			@{ $_->[0] }{qw(own reseed)} = @$_[ 1, 2 ] for @{ $saved[$at] };
			$#open = $#saved = $at;
		}
		elsif ($move eq 'release' && @open)
		{
			my $at = between(0, $#open);
			$self->does('A', "RELEASE $open[$at];");
			$#open = $#saved = $at - 1;
		}
		elsif ($move eq 'fold')
		{
			$self->fold_now('A');
		}
		elsif ($move eq 'promote')
		{
			$self->promote('A', $rollup) if $row->{state} eq 'on' || $row->{shadow_w} ne 'null' && $row->{state} eq 'shadow';
		}
		elsif ($move eq 'refresh')
		{
			my $can = $row->{state} eq 'on' || $row->{state} eq 'shadow' && $row->{shadow} eq 't' || $row->{wanted} eq 'on' && $row->{state} eq 'new';
			my $action = $can ? $self->refresh('A', $rollup) : '';
			$rollup->{reseed} = 0 if ($action // '') eq 'seed';
		}
		elsif ($move eq 'recompute')
		{
			$self->does('A', "SELECT public.rollup_recompute($regclass);", strict => 1) if $row->{folds} || $row->{left};
		}
		elsif ($move eq 'flush')
		{
			$self->flush('A', $rollup);
		}
		elsif ($move eq 'fold_setting')
		{
			my $to = $row->{fold} eq 't' ? 'false' : 'true';
			$self->does('A', "SELECT public.rollup_alter($regclass, fold => $to);", strict => 1)
			  if !$row->{left} || $self->is_right('A', $rollup);
		}
		elsif ($move eq 'backfill')
		{
			$self->does('A', 'SET LOCAL dailyrollup.backfill = ' . pick(qw(on off)) . ';');
		}
		elsif ($move eq 'mark')
		{
			$self->does('A', $self->mark($rollup, "'-infinity'", "'infinity'"));
		}
		else
		{
			$self->does('A', $self->dml);
		}
		if ($self->{failed}{A} && @open)
		{
			$self->does('A', "ROLLBACK TO $open[-1];");
			@{ $_->[0] }{qw(own reseed)} = @$_[ 1, 2 ] for @{ $saved[-1] };
			$self->{failed}{A} = 0;
		}
		last if $self->{failed}{A};
		$self->check('A', inside => 1) if chance(0.4);
	}
	my $end = pick('COMMIT;', 'COMMIT;', 'COMMIT;', 'ROLLBACK;');
	$self->does('A', $end);
	if ($self->{failed}{A} || $end eq 'ROLLBACK;')
	{
		@$_{qw(own reseed)} = ($own{ $_->{number} }, $reseed{ $_->{number} }) for $self->rollups;
	}
	return;
}

# ---------- what a rollup is made of ----------

# The rollup goes, its table stays, and becomes a rollup again.
sub step_readopt
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my $rollup = pick($self->rollups);

	$self->safe('SELECT public.rollup_drop(' . $setting->regclass($rollup) . ');', 'A');
	$rollup->{created} = 0;
	$self->does('A', $self->dml) for 1 .. between(0, 2);
	$self->{failed} = {};
	$rollup->{mode} = pick('off', 'off', 'shadow', 'shadow', 'on', undef);
	$rollup->{fold} = pick(undef, 'false');
	@$rollup{qw(adopted indexed)} = (1, 1) if !$rollup->{adopted};
	$self->safe($setting->create($rollup), 'A');
	$self->created($rollup);
	return;
}

# A partition goes with its rows, whose keys are marked before.
sub step_detach
{
	my ($self) = @_;
	my $day = pick(sort { $a <=> $b } keys %{ $self->{attached} });
	my $table = $self->{attached}{$day};

	$self->does('A', 'BEGIN;');
	$self->does('A', $self->mark($_, "'-infinity'", "'infinity'")) for $self->rollups;
	$self->does('A', 'ALTER TABLE ' . $self->{setting}->source . " DETACH PARTITION $table;");
	$self->does('A', $self->dml) if chance(0.3);
	$self->check('A', inside => 1) if chance(0.5);
	my $undo = chance(0.2);
	$self->does('A', $undo ? 'ROLLBACK;' : 'COMMIT;');
	return if $undo || $self->{failed}{A};
	$self->{detached}{$day} = $table;
	$self->{reserved}{$day} = 1;
	delete $self->{attached}{$day};
	delete $self->{day_leaf}{$day};
	my %below = map { $_->[0] => 1 } $self->second_level($table);
	@{ $self->{leaves} } = grep { $_ ne $table && !$below{$_} } @{ $self->{leaves} };
	return;
}

1;
