# One seed of the property test: a random setting, then a random stream of
# writes and refreshes, with everything that must hold checked after each step.
#
#	step:   a transaction (or several, interleaved) | a refresh | TRUNCATE | ...
#	check:  1. live, without the waiting keys    = oracle over time < W, or over
#	           everything where each write is folded into it
#	        2. the shadow, likewise              = oracle over time < its W
#	        3. _current                          = oracle over everything
#	        4. rollup_verify, rollup_diff return no row; rows = keys
#	        5. live where it is left to others: none of us has touched it, and
#	           _current is live
#
# In every other seed the rollups have modes, which change (DrModeSteps.pm).
#
# What a step does depends on the seed, its number and what happened before,
# and on nothing else: each step draws from random numbers of its own, so a step
# can be left out (skip) without changing the others.  That is how a failure is
# made small.
#
# All of a session's checks are one statement, in functions that are written for
# the seed: static statements of plpgsql there (plans kept across refreshes),
# dynamic ones (planned anew), and a PREPAREd one beside them.
package DrStream;

use strict;
use warnings;
use utf8;

use DrModeSteps;
use DrSession;
use DrSetting;
use POSIX qw(floor strftime);

our @ISA = qw(DrModeSteps);

my $DAYS = 12;          # of the stream
my $DAY = 86400;

# Errors that a random stream may well meet: it breaks a unique index or a
# partition's bounds, or two of its transactions cannot be serialized.
my %EXPECTED = map { $_ => 1 } qw(23503 23505 23514 21000);

# new(seed => n, steps => n, skip => {}, connect => sub { my ($user) = @_; connstr },
#     icu => bool)
sub new
{
	my ($class, %self) = @_;

	return bless {
		skip => {}, log => [], next_id => 0, gid => 0, reserved => {}, attached => {}, detached => {},
		failed => {}, wrote => {}, unfolded => {}, serial => {}, pending => {}, %self }, $class;
}

# Returns undef, or the text of what is wrong.
sub run
{
	my ($self) = @_;
	my $ok = eval {
		srand($self->{seed} * 1000);
		$self->begin;
		for my $step (1 .. $self->{steps})
		{
			next if $self->{skip}{$step};
			$self->{step} = $step;
			srand($self->{seed} * 1000 + $step);
			push @{ $self->{log} }, "-- step $step";
			$self->step;
		}
		1;
	};
	my $problem = $ok ? undef : "step " . ($self->{step} // 0) . ": $@";

	for my $session (values %{ $self->{session} })
	{
		$session->quit;
	}
	return $problem;
}

# ---------- sessions ----------

sub session
{
	my ($self, $name) = @_;
	my $setting = $self->{setting};

	return $self->{session}{$name} //= do
	{
		my $user =
		    $name eq 'S' ? 'postgres'
		  : $name eq 'B' ? $setting->{writer}
		  :                $setting->{owner};
		my $session = DrSession->new(name => $name, connstr => $self->{connect}->($user), log => $self->{log});
		$session->safe("SET statement_timeout = '60s'; SET lock_timeout = '30s'; SET client_min_messages = error; SET jit = off;");
		$session->{prepared} = {};
		$session;
	};
}

# Runs SQL in a session.  Errors that the stream may meet are taken note of
# (the rest of the step may then meet more of them); any other ends the seed.
sub does
{
	my ($self, $name, $sql, %option) = @_;

	return '' if $self->refuses_copy($name, $sql);
	return $self->judge($name, $sql, $self->session($name)->run($sql), %option);
}

# psql takes the rows of a COPY for statements where the server refuses it, as it
# does in a transaction that has failed.
sub refuses_copy
{
	my ($self, $name, $sql) = @_;

	return $self->{failed}{$name} && $sql =~ /^COPY /;
}

# What the answer to SQL says; "strict": no error of the stream's own writes,
# "may": an expression of those that may be met, "serial": the transaction may not
# be serializable.
sub judge
{
	my ($self, $name, $sql, $answer, %option) = @_;

	for my $error (DrSession::errors($answer))
	{
		# the fold breaks no constraint
		my $own = $option{strict} || $answer =~ /folding what this transaction has written/;
		if (   ($EXPECTED{$error} && !$own)
			|| (($option{serial} || $self->{serial}{$name}) && $error eq '40001')
			# a deferred constraint leaves trigger events pending until the commit
			|| ($error eq '55006' && ($self->{setting}{unique}{style} // '') eq 'deferrable')
			|| ($self->{failed}{$name} && $error =~ /^(25P02|42704|3B001|25P01)$/)
			|| ($option{may} && $error =~ /^($option{may})$/))
		{
			$self->{failed}{$name} = 1;
		}
		else
		{
			die "unexpected error:\n$answer";
		}
	}
	$self->note($name, $sql);
	return $answer;
}

# What is known of a session's transaction: whether it is serializable, whether
# it has written anything, and anything that live may not show yet.
sub note
{
	my ($self, $name, $sql) = @_;

	if ($sql =~ /^(?:BEGIN\b|COMMIT\b|ROLLBACK;|PREPARE TRANSACTION)/)
	{
		$self->{$_}{$name} = 0 for qw(wrote unfolded);
		$self->{serial}{$name} = $sql =~ /^BEGIN ISOLATION/;
	}
	elsif ($sql eq 'SELECT public.rollup_fold();')
	{
		$self->{unfolded}{$name} = 0;
	}
	elsif ($sql !~ /^(?:SAVEPOINT|RELEASE|SET|SELECT)\b/)
	{
		$self->{$_}{$name} = 1 for qw(wrote unfolded);
	}
	return;
}

# Folds what a session's transaction has written so far.
sub fold_now
{
	my ($self, $name) = @_;

	$self->does($name, 'SELECT public.rollup_fold();')
	  if $self->{setting}{modes} && !$self->{failed}{$name};
	return;
}

# Sends SQL that may have to wait for another session; finish() has the answer.
# True where it had not to wait, or not long.
sub does_alongside
{
	my ($self, $name, $sql, %option) = @_;

	return 1 if $self->refuses_copy($name, $sql);
	$self->session($name)->send($sql);
	$self->{pending}{$name} = [ $sql, %option ];
	return $self->finish($name, 0.1);
}

sub finish
{
	my ($self, $name, $seconds) = @_;
	my $pending = $self->{pending}{$name} or return 1;
	my ($sql, %option) = @$pending;
	my $session = $self->session($name);
	my $answer = $session->answer_within($seconds // $session->{timeout});

	if (!defined $answer)
	{
		die "session $name: no answer\n" if !defined $seconds;
		return 0;
	}
	push @{ $self->{log} }, "-- [$name] has its answer";
	delete $self->{pending}{$name};
	$self->judge($name, $sql, $answer, %option);
	return 1;
}

# Runs SQL that must succeed, as the superuser unless told otherwise.
sub safe
{
	my ($self, $sql, $name) = @_;

	return $self->session($name // 'S')->safe($sql);
}

# ---------- the beginning ----------

sub begin
{
	my ($self) = @_;
	my $setting = $self->{setting} = DrSetting->new(seed => $self->{seed}, icu => $self->{icu});
	my $schema = $setting->{schema};
	my $owner = $setting->{owner};

	$self->safe("CREATE SCHEMA $schema AUTHORIZATION $owner; GRANT USAGE, CREATE ON SCHEMA $schema TO PUBLIC;");
	$self->read_boundaries;
	$self->create_source;
	for (1 .. between(0, 6))
	{
		$self->does('A', $self->insert);
	}
	delete $self->{failed};
	for my $rollup (@{ $setting->{rollups} })
	{
		next if $rollup->{number} == 2 && chance(0.5);
		$self->create_rollup($rollup);
	}
	return;
}

# The first instant of each day of the stream, found by looking at each quarter
# of an hour; the list is in epoch seconds, by the number of the day.  A day that
# the zone skipped has none.
sub read_boundaries
{
	my ($self) = @_;
	my $first = literal($self->{setting}{first_day}, 'date');

	for my $rollup (@{ $self->{setting}{rollups} })
	{
		my $zone = literal($rollup->{zone}, 'text');
		my $answer = $self->safe(<<"SQL");
SELECT n || '|' || extract(epoch FROM min(g))::bigint
  FROM generate_series(0, $DAYS) n,
       generate_series((($first + n)::timestamp - '30 hours'::interval) AT TIME ZONE 'UTC',
                       (($first + n)::timestamp + '30 hours'::interval) AT TIME ZONE 'UTC', '15 minutes') g
  WHERE (g AT TIME ZONE $zone)::date = $first + n
  GROUP BY n ORDER BY n;
SQL
		$rollup->{boundary} = { map { split /\|/ } split /\n/, $answer };
	}
	$self->{midnight} = $self->safe("SELECT extract(epoch FROM $first\::timestamp)::bigint;");
	return;
}

sub create_source
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my ($source, $kind) = ($setting->source, $setting->{kind});
	my @roles = @{ $setting->{attributes} };
	my $columns = $setting->column_list(@roles);
	my $t = $setting->name('t');
	my $by = $kind =~ /hash|list/ ? $setting->name($setting->{part_by}) : undef;

	if (defined $setting->{dropped})
	{
		my $at = $setting->{dropped};
		my $rest = $setting->column_list(@roles[ $at .. $#roles ]);
		$columns = join ', ', grep { length } $setting->column_list(@roles[ 0 .. $at - 1 ]), 'dropped_ int', $rest;
	}
	my $partition =
	    $kind eq 'plain'   ? ''
	  : $kind eq 'by_hash' ? " PARTITION BY HASH ($by)"
	  :                      " PARTITION BY RANGE ($t)";
	my $sql = "CREATE TABLE $source ($columns)$partition;\n";
	$sql .= "ALTER TABLE $source DROP COLUMN dropped_;\n" if defined $setting->{dropped};
	$self->safe($sql, 'A');
	$self->{reserved} = { %{ $setting->{reserved} // {} } };
	$self->{leaves} = [];
	$self->{day_leaf} = {};
	$self->create_partitions;
	$self->safe(join("\n", $setting->unique_sql), 'A') if $setting->{unique};
	if (chance(0.4))
	{
		my ($key) = map { $_->{q} } @{ $setting->{rollups}[0]{keys} };
		$self->safe("CREATE INDEX ON $source ((" . $setting->expand($key) . "), $t);", 'A');
	}
	$self->create_helpers;
	$self->safe("GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA $setting->{schema} TO dr_writer;");
	return;
}

sub create_partitions
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my ($schema, $source, $kind) = ($setting->{schema}, $setting->source, $setting->{kind});

	if ($kind eq 'by_hash')
	{
		for my $part (0 .. 2)
		{
			my $leaf = "$schema.p_$part";
			$self->safe("CREATE TABLE $leaf PARTITION OF $source FOR VALUES WITH (MODULUS 3, REMAINDER $part);", 'A');
			push @{ $self->{leaves} }, $leaf;
		}
	}
	elsif ($kind ne 'plain')
	{
		$self->safe("CREATE TABLE $schema.p_default PARTITION OF $source DEFAULT;", 'A');
		push @{ $self->{leaves} }, "$schema.p_default";
		my @ranges = $kind eq 'monthly' ? $self->months : map { [ $_, $_ + 1 ] } 0 .. 7;
		for my $range (@ranges)
		{
			next if $self->{reserved}{ $range->[0] };
			$self->create_day(@$range);
		}
	}
	return;
}

# The months of the stream, as numbers of days counted from its first.
sub months
{
	my ($self) = @_;
	my @starts;

	for my $day (-31 .. $DAYS + 31)
	{
		push @starts, $day if (gmtime($self->{midnight} + $day * $DAY))[3] == 1;
	}
	return map { [ @starts[ $_, $_ + 1 ] ] } 0 .. $#starts - 1;
}

# The bounds of a partition for days, by UTC days where the type is timestamptz.
sub bounds
{
	my ($self, $from, $till) = @_;

	return "FOR VALUES FROM (" . $self->time_literal($self->{midnight} + $from * $DAY)
	  . ") TO (" . $self->time_literal($self->{midnight} + $till * $DAY) . ")";
}

# The levels below a partition for days, and their names.
sub second_level
{
	my ($self, $table) = @_;
	my $setting = $self->{setting};
	my $bare = $table =~ s/^.*\.//r;
	my $leaf = sub { "$setting->{schema}.$bare" . $_[0] };

	if ($setting->{kind} eq 'sub_hash')
	{
		return map { [ $leaf->("_h$_"), "FOR VALUES WITH (MODULUS 2, REMAINDER $_)" ] } 0, 1;
	}
	if ($setting->{kind} eq 'sub_list')
	{
		my $type = $setting->type($setting->{part_by});
		my $pool = $setting->{column}{ $setting->{part_by} }{pool};
		return (
			[ $leaf->('_l'), "FOR VALUES IN (" . join(', ', map { literal($_, $type) } @$pool[ 0, 1 ]) . ")" ],
			[ $leaf->('_d'), 'DEFAULT' ]);
	}
	return;
}

sub partition_by
{
	my ($self) = @_;
	my $setting = $self->{setting};

	return '' if $setting->{kind} !~ /sub/;
	return ' PARTITION BY ' . ($setting->{kind} eq 'sub_hash' ? 'HASH' : 'LIST')
	  . ' (' . $setting->name($setting->{part_by}) . ')';
}

sub create_day
{
	my ($self, $from, $till) = @_;
	my $setting = $self->{setting};
	my $table = "$setting->{schema}.p_" . ($from < 0 ? 'm' . -$from : $from);
	my $sql = "CREATE TABLE $table PARTITION OF " . $setting->source . ' '
	  . $self->bounds($from, $till) . $self->partition_by . ";\n";
	my @below = $self->second_level($table);

	$sql .= "CREATE TABLE $_->[0] PARTITION OF $table $_->[1];\n" for @below;
	$sql .= "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON "
	  . join(', ', $table, map { $_->[0] } @below) . " TO dr_writer;";
	$self->does('A', "BEGIN;\n$sql\nCOMMIT;");
	return if $self->{failed}{A};
	push @{ $self->{leaves} }, @below ? map { $_->[0] } @below : $table;
	$self->{day_leaf}{$from} = $table if $till == $from + 1 && !@below;
	$self->{attached}{$from} = $table if $till == $from + 1;
	return;
}

# What the writes use: a parent to cascade from, a function, triggers.
sub create_helpers
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my ($schema, $source) = ($setting->{schema}, $setting->source);
	my ($t, $vi, $rid) = map { $setting->name($_) } qw(t vi rid);
	my $sql = '';

	if ($setting->{fk})
	{
		my $ref = $setting->name('ref');
		$sql .= "CREATE TABLE $schema.parents_ (id int PRIMARY KEY);\n"
		  . "INSERT INTO $schema.parents_ SELECT generate_series(1, 4);\n"
		  . "ALTER TABLE $source ADD FOREIGN KEY ($ref) REFERENCES $schema.parents_ ON DELETE CASCADE ON UPDATE CASCADE;\n";
	}
	if ($setting->{before_trigger})
	{
		my $day = $setting->{time_type} eq 'date' ? '1' : "'1 day'::pg_catalog.interval";
		$sql .= "CREATE FUNCTION $schema.before_() RETURNS trigger LANGUAGE plpgsql AS \$\$\n#variable_conflict use_column\nBEGIN\n"
		  . "IF NEW.$vi = 7 THEN NEW.$t := NEW.$t - $day; END IF; RETURN NEW; END \$\$;\n"
		  . "CREATE TRIGGER a_before BEFORE INSERT OR UPDATE ON $source FOR EACH ROW EXECUTE FUNCTION $schema.before_();\n";
	}
	if ($setting->{after_trigger})
	{
		my $list = join ', ', map { $_ eq 'rid' || $_ eq 'vi' ? () : $setting->name($_) } @{ $setting->{attributes} };
		my $conflict = $self->on_conflict_nothing;
		$sql .= "CREATE FUNCTION $schema.after_() RETURNS trigger LANGUAGE plpgsql AS \$\$\n#variable_conflict use_column\nBEGIN\n"
		  . "IF NEW.$vi = 6 THEN INSERT INTO $source ($list, $vi, $rid) SELECT $list, 5, $rid + 10000000 FROM $source x"
		  . " WHERE x.$rid = NEW.$rid$conflict; END IF; RETURN NULL; END \$\$;\n"
		  . "CREATE TRIGGER z_after AFTER INSERT ON $source FOR EACH ROW EXECUTE FUNCTION $schema.after_();\n";
		$sql .= "DO \$\$ BEGIN END \$\$;\n";
	}
	$self->safe($sql, 'A') if $sql;
	return;
}

sub create_rollup
{
	my ($self, $rollup) = @_;
	my $setting = $self->{setting};

	$self->safe($setting->adopted_table($rollup) . $self->adopted_content($rollup), 'A') if $rollup->{adopted};
	$self->safe($self->random_settings . $setting->create($rollup), 'A');
	$self->created($rollup);
	return;
}

sub created
{
	my ($self, $rollup) = @_;
	my $setting = $self->{setting};

	$self->safe("GRANT SELECT ON " . $setting->live($rollup) . ', ' . $setting->current($rollup) . " TO dr_writer;", 'A');
	$rollup->{created} = 1;
	$rollup->{w} = $rollup->{last_state} = undef;
	$rollup->{own} = $rollup->{mode};
	$rollup->{reseed} = 0;
	$rollup->{id} = $self->safe("SELECT id FROM dailyrollup.rollups WHERE live = " . $setting->regclass($rollup) . ';');
	$self->create_check($rollup);
	$self->check('A');
	return;
}

sub rollups
{
	my ($self) = @_;

	return grep { $_->{created} } @{ $self->{setting}{rollups} };
}

# ---------- the check ----------

# Writes the function check_<n>(condition, flags): the first row is what the
# rollup is, "is <state> <W> <fold> <shadow's W>", each other one a problem.
#
#	whole		by the owner; else _current alone is looked at
#	fresh		with texts that are parsed anew
#	unfolded	this transaction has written: where live shows that only later,
#				nothing is looked at
#	overtaken	and by a state that this transaction does not see yet
#	brief		no lock on the shadow is left behind
#	right		live is the oracle's, whatever the state
sub create_check
{
	my ($self, $rollup) = @_;
	my $setting = $self->{setting};
	my ($live, $current) = ($setting->live($rollup), $setting->current($rollup));
	my $regclass = $setting->regclass($rollup);
	my $columns = $setting->compared($rollup);
	my $plain_columns = join ', ', map { ident($_->{name}) } @{ $rollup->{columns} };
	my @keys = map { ident($_->{name}) } @{ $rollup->{keys} };
	my $key_list = join ', ', @keys;
	my $zone = literal($rollup->{zone}, 'text');
	my $kind = $setting->{time_type};
	my $marks = "dailyrollup.marks_$rollup->{id}";
	my $mark_keys = join ', ', map { "m_.k" . ($_ + 1) } 0 .. $#keys;
	my $bound_of = sub {
		my ($w) = @_;
		return $kind eq 'timestamptz' ? $w : "(($w AT TIME ZONE $zone)::date)::$kind";
	};
	my $all = $setting->oracle($rollup);
	my $same_key = sub {
		my ($alias) = @_;
		return join ' AND ', map { "$alias.$_ IS NOT DISTINCT FROM x_.$_" } @keys;
	};
	my $unmarked = sub {
		my ($kinds) = @_;
		return "NOT EXISTS (SELECT FROM $marks m_ WHERE m_.dirties IN ($kinds) AND "
		  . join(' AND ', map { "m_.k" . ($_ + 1) . " IS NOT DISTINCT FROM x_.$keys[$_]" } 0 .. $#keys) . ')';
	};
	# a key with several rows in live is one row of _current
	my $single = "(SELECT count(*) FROM $live y_ WHERE " . $same_key->('y_') . ') <= 1';
	my $compare = sub {
		my ($what, $is, $should, $where) = @_;
		return "WITH a_ AS MATERIALIZED (SELECT $columns FROM $is x_ $where),\n"
		  . "b_ AS MATERIALIZED (SELECT $columns FROM $should x_ $where)\n"
		  . "SELECT '$what has: ' || d_::text FROM (TABLE a_ EXCEPT ALL TABLE b_) d_\n"
		  . "UNION ALL SELECT '$what lacks: ' || d_::text FROM (TABLE b_ EXCEPT ALL TABLE a_) d_ LIMIT 8";
	};
	my $dynamic = sub {
		my ($text) = @_;
		my $put = "\$dynamic\$$text\$dynamic\$";
		$put = "replace($put, '\@$_->[0]\@', $_->[1])"
		  for grep { $text =~ /\@$_->[0]\@/ } [ definition => 'check_text_' ], [ condition => 'check_condition_' ], [ shadow => 'check_shadow_' ];
		return $put;
	};
	my $settled = $compare->('live', $live, '(' . $setting->oracle($rollup, 'check_bound_') . ')', 'WHERE ' . $unmarked->("'d'"));
	my $folded = $compare->('live (folded)', $live, "($all)", 'WHERE ' . $unmarked->("'l'"));
	my $right = $compare->('live (right)', $live, "($all)", '');
	my $definition_settled = $dynamic->($compare->('live (definition)', $live, '(@definition@)', 'WHERE ' . $unmarked->("'d'")));
	my $shadow = $dynamic->($compare->('the shadow', '@shadow@', '(' . $setting->oracle($rollup, '$1') . ')', 'WHERE ' . $unmarked->("'d'")));
	my $through_now = $compare->('_current', $current, "($all)", '');
	my $where = $dynamic->($compare->('_current (where)', $current, "($all)", 'WHERE @condition@'));
	my $definition = $dynamic->($compare->('_current (definition)', $current, '(@definition@)', 'WHERE @condition@'));
	my $as_it_is = $compare->('_current (live as it is)', $current, $live, "WHERE $single");
	my $as_it_is_where = $dynamic->($compare->('_current (live as it is, where)', $current, $live, "WHERE (\@condition\@) AND $single"));
	# what rollup_diff has to find, less the keys with several rows
	my $differing = "SELECT count(*) FROM (SELECT DISTINCT $key_list FROM (\n"
	  . "(SELECT $plain_columns FROM $live EXCEPT SELECT $plain_columns FROM ($all) o_) UNION ALL\n"
	  . "(SELECT $plain_columns FROM ($all) o_ EXCEPT SELECT $plain_columns FROM $live)) x_\n"
	  . "WHERE $single AND " . $unmarked->("'d', 'l'") . ') d_';

	$self->safe(<<"SQL");
DROP FUNCTION IF EXISTS $setting->{schema}.check_$rollup->{number};
CREATE FUNCTION $setting->{schema}.check_$rollup->{number}(check_condition_ text, check_flags_ text)
RETURNS SETOF text LANGUAGE plpgsql AS \$check\$
#variable_conflict use_column
DECLARE
	check_whole_ bool := check_flags_ ~ 'whole';
	check_fresh_ bool := check_flags_ ~ 'fresh';
	check_now_ dailyrollup.rollups;
	check_folds_ bool;
	check_left_ bool;
	check_w_ timestamptz := public.rollup_watermark($regclass);
	check_bound_ $kind;
	check_text_ text := '';
	check_shadow_ text;
BEGIN
	SELECT r_.* INTO check_now_ FROM dailyrollup.rollups r_ WHERE r_.live = $regclass;
	check_left_ := check_now_.state IN ('off', 'shadow') AND NOT check_now_.fold;
	check_folds_ := check_now_.state IN ('off', 'shadow') AND check_now_.fold;
	check_shadow_ := check_now_.shadow::text;
	RETURN NEXT 'is ' || check_now_.state || ' ' || coalesce(extract(epoch FROM check_w_)::bigint::text, 'null') || ' '
		|| check_now_.fold || ' ' || coalesce(extract(epoch FROM check_now_.shadow_watermark)::bigint::text, 'null');
	IF check_w_ IS DISTINCT FROM (CASE check_now_.state WHEN 'shadow' THEN check_now_.shadow_watermark ELSE check_now_.watermark END) THEN
		RETURN NEXT 'rollup_watermark: ' || coalesce(check_w_::text, 'null');
	END IF;
	IF check_flags_ ~ 'overtaken' OR check_folds_ AND check_flags_ ~ 'unfolded' THEN
		RETURN;
	END IF;

	IF check_whole_ AND check_now_.state = 'on' AND check_w_ IS NOT NULL THEN
		check_bound_ := @{[$bound_of->('check_w_')]};
		RETURN QUERY $settled;
		IF check_fresh_ THEN
			check_text_ := rtrim(public.rollup_definition($regclass, check_w_), E' \\n;');
			RETURN QUERY EXECUTE $definition_settled;
		END IF;
	END IF;
	IF check_whole_ AND check_folds_ THEN
		RETURN QUERY $folded;
	END IF;
	IF check_flags_ ~ 'right' THEN
		RETURN QUERY $right;
	END IF;
	IF check_whole_ AND check_now_.shadow_watermark IS NOT NULL AND check_flags_ !~ 'brief' THEN
		check_bound_ := @{[$bound_of->('check_now_.shadow_watermark')]};
		RETURN QUERY EXECUTE $shadow USING check_bound_;
	END IF;
	IF check_whole_ AND (check_folds_ OR (check_now_.state = 'on' AND check_w_ IS NOT NULL)) THEN
		RETURN QUERY SELECT 'rollup_verify: ' || v_::text FROM public.rollup_verify($regclass) v_ LIMIT 8;
	END IF;
	IF check_whole_ AND check_flags_ !~ 'brief' THEN
		RETURN QUERY SELECT 'rollup_check: ' || c_::text FROM public.rollup_check($regclass) c_
			WHERE NOT (check_left_ AND side = 'live')
			  AND (c_.rows <> c_.keys OR c_.dup_keys <> 0 OR c_.dup_rows <> 0
			   OR (side = 'live' AND c_.rows <> (SELECT count(*) FROM $live))
			   OR (side = 'live' AND c_.keys <> (SELECT count(*) FROM (SELECT DISTINCT $key_list FROM $live) k_)));
		RETURN QUERY WITH late_ AS MATERIALIZED (SELECT l_.key FROM public.rollup_late l_ WHERE l_.rollup = $regclass),
			a_ AS MATERIALIZED (SELECT p_.* FROM late_, LATERAL (SELECT $key_list FROM jsonb_populate_record(NULL::$live, late_.key)) p_),
			b_ AS MATERIALIZED (SELECT DISTINCT $mark_keys FROM $marks m_ WHERE check_now_.state = 'shadow' OR check_folds_ AND m_.dirties = 'l' OR check_now_.state IN ('new', 'on') AND m_.dirties = 'd')
			SELECT 'rollup_late has: ' || d_::text FROM (TABLE a_ EXCEPT ALL TABLE b_) d_
			UNION ALL SELECT 'rollup_late lacks: ' || d_::text FROM (TABLE b_ EXCEPT ALL TABLE a_) d_ LIMIT 8;
	END IF;
	IF check_whole_ AND check_now_.state = 'shadow' AND check_w_ IS NOT NULL AND check_flags_ !~ 'brief' THEN
		IF check_folds_ THEN
			RETURN QUERY SELECT 'rollup_diff, all: ' || d_::text FROM public.rollup_diff($regclass) d_ LIMIT 8;
			RETURN QUERY SELECT 'rollup_diff, settled: ' || d_::text FROM public.rollup_diff($regclass, 'settled') d_ LIMIT 8;
		ELSE
			RETURN QUERY SELECT 'rollup_diff: ' || d_.n || ' differences, ' || o_.n FROM
				(SELECT count(*) AS n FROM public.rollup_diff($regclass, 'all') WHERE class <> 'duplicate') d_,
				($differing) o_(n) WHERE d_.n <> o_.n;
			RETURN QUERY SELECT 'rollup_diff: ' || d_.n || ' duplicates, ' || o_.n FROM
				(SELECT count(*) AS n FROM public.rollup_diff($regclass) WHERE class = 'duplicate') d_,
				(SELECT count(*) AS n FROM (SELECT FROM $live GROUP BY $key_list HAVING count(*) > 1) k_) o_ WHERE d_.n <> o_.n;
		END IF;
	END IF;

	IF check_left_ THEN
		RETURN QUERY $as_it_is;
		RETURN QUERY EXECUTE $as_it_is_where;
		RETURN;
	END IF;
	RETURN QUERY $through_now;
	RETURN QUERY EXECUTE $where;
	IF check_whole_ AND check_fresh_ THEN
		check_text_ := rtrim(public.rollup_definition($regclass), E' \\n;');
		RETURN QUERY EXECUTE $definition;
	END IF;
END \$check\$;
SQL
	my $key = $rollup->{keys}[0];
	$rollup->{prepare} =
		"PREPARE check_prepared_$rollup->{number}($key->{type}) AS "
	  . $compare->('_current (prepared)', $current, "($all)", 'WHERE ' . ident($key->{name}) . ' = $1') . ';';
	$rollup->{epoch}++;
	return;
}

# A condition on a key, out of the values that it may have.
sub condition
{
	my ($self, $rollup) = @_;
	my @parts;

	for my $key (some(between(1, 2), @{ $rollup->{keys} }))
	{
		my $name = ident($key->{name});
		my ($one, $two) = map { literal($_, $key->{type}) } pick(@{ $key->{pool} }), pick(@{ $key->{pool} });
		my @forms = ("$name = $one", "$name = $one", "$name > $one", "$name IN ($one, $two)",
			"$name IS NOT DISTINCT FROM $one");
		# (pruning takes IS NULL of a composite value for something else than the
		# executor does)
		push @forms, "$name IS NULL", "$name IS NOT NULL", "$name = $one OR $name IS NULL"
		  if $key->{type} ne 'drt.pair';
		push @forms, "$name = ANY (ARRAY[$one, $two])" if $key->{type} !~ /\[\]/;
		push @parts, '(' . pick(@forms) . ')';
	}
	return join ' AND ', @parts;
}

# Settings that change plans and texts, never results.
sub random_settings
{
	my ($self) = @_;
	my $schema = $self->{setting}{schema};
	my @sets;

	return '' if !chance(0.35);
	for (1 .. between(1, 3))
	{
		push @sets, pick(
			'enable_hashagg = ' . pick('on', 'off'),
			'enable_hashjoin = ' . pick('on', 'off'),
			'enable_mergejoin = ' . pick('on', 'off'),
			'enable_nestloop = ' . pick('on', 'off'),
			'enable_sort = ' . pick('on', 'off'),
			'enable_seqscan = ' . pick('on', 'off'),
			'enable_indexscan = ' . pick('on', 'off'),
			'enable_bitmapscan = ' . pick('on', 'off'),
			'enable_memoize = ' . pick('on', 'off'),
			'enable_partitionwise_aggregate = ' . pick('on', 'off'),
			'enable_partition_pruning = ' . pick('on', 'on', 'off'),
			'work_mem = ' . pick(q('64kB'), q('4MB')),
			'dailyrollup.fold_method = ' . pick(qw(auto statement hash hash)),
			'plan_cache_mode = ' . pick(qw(auto force_generic_plan force_custom_plan)),
			'parallel_setup_cost = ' . pick("0;\nSET parallel_tuple_cost = 0", 1000, 1000),
			'min_parallel_table_scan_size = ' . pick(0, q('8MB')),
			'TimeZone = ' . pick(q('UTC'), q('Asia/Kolkata'), q('America/New_York'), q('Pacific/Apia')),
			'DateStyle = ' . pick(q('ISO, MDY'), q('German'), q('SQL, DMY'), q('Postgres, MDY')),
			'IntervalStyle = ' . pick(qw(postgres iso_8601 postgres_verbose sql_standard)),
			'bytea_output = ' . pick(qw(hex escape)),
			'extra_float_digits = ' . pick(-3, 0, 1),
			'search_path = ' . pick('public', "$schema, public", 'pg_catalog, public', q(''), "public, pg_temp, $schema"),
			'quote_all_identifiers = ' . pick('on', 'off'));
	}
	return join '', map { "SET $_;\n" } @sets;
}

# Do others see writes to the rollup's source folded, now?
sub folds_now
{
	my ($self, $rollup) = @_;

	return $self->safe("SELECT fold AND state IN ('off', 'shadow') FROM dailyrollup.rollups WHERE id = $rollup->{id};") eq 't';
}

# Checks every rollup in a session; what a session with an aborted transaction
# would say is not asked.  Options: inside => within a transaction, which folds
# first by chance; brief => others go on meanwhile: no lock on the shadow stays,
# and nothing is folded; right => that rollup's live is the oracle's.
sub check
{
	my ($self, $name, %option) = @_;
	my $session = $self->session($name);
	my $whole = $name ne 'B' || $self->{setting}{writer} eq $self->{setting}{owner};
	my $flags = join ' ', $whole ? 'whole' : (), chance(0.4) ? 'fresh' : (), $option{brief} ? 'brief' : ();

	if ($option{inside})
	{
		# folded by the latest snapshot, live may be newer than a serializable
		# transaction's own one
		my $unfolded = $self->{unfolded}{$name} || $option{brief} && $self->{serial}{$name} && $self->{wrote}{$name};
		$self->fold_now($name) if $unfolded && !$option{brief} && chance(0.4);
		return if $self->{failed}{$name};
		$flags .= ' unfolded' if $unfolded && ($option{brief} || $self->{unfolded}{$name});
	}
	for my $rollup ($self->rollups)
	{
		my $number = $rollup->{number};
		my $condition = $self->condition($rollup);
		my $right = ($option{right} // 0) == $rollup ? ' right' : '';
		my $overtaken = $flags =~ /unfolded/ && $self->{serial}{$name} && $self->folds_now($rollup) ? ' overtaken' : '';
		my $sql = $option{inside} ? '' : $self->random_settings;
		if (($session->{prepared}{$number} // 0) != $rollup->{epoch} && !$option{inside})
		{
			$sql .= "DEALLOCATE ALL;\n$rollup->{prepare}\n";
			$session->{prepared} = { $number => $rollup->{epoch} };
		}
		# what others commit between two of its queries must not be seen by one alone
		my $one_snapshot = $option{brief} && !$option{inside};
		$sql .= 'BEGIN ISOLATION LEVEL REPEATABLE READ; ' if $one_snapshot;
		$sql .= "SELECT * FROM $self->{setting}{schema}.check_$number(\$c\$$condition\$c\$, '$flags$right$overtaken');";
		$sql .= ' COMMIT;' if $one_snapshot;
		my $answer = $session->run($sql);
		$answer =~ s/^is (\w+) (\S+) (true|false) (\S+)\n// or die "session $name: no answer from the check:\n$answer";
		my ($state, $w, $fold) = ($1, $2 eq 'null' ? undef : $2, $3 eq 'true');
		my $shown = !$overtaken && ($state ne 'off' && $state ne 'shadow' || $fold && $flags !~ /unfolded/);
		if ($shown && ($session->{prepared}{$number} // 0) == $rollup->{epoch})
		{
			my $key = $rollup->{keys}[0];
			$answer .= $session->run("EXECUTE check_prepared_$number(" . literal(pick(@{ $key->{pool} }), $key->{type}) . ");");
		}
		$rollup->{seen} = $w;
		push @{ $self->{log} }, "-- rollup $number: $state" . ($fold ? '' : ' without fold');
		@$rollup{qw(w state folding)} = ($w, $state, $fold) if !$option{inside};
		$rollup->{last_state} = $state if !$option{inside} && $state ne 'new';
		die "session $name, rollup $number ($state):\n$answer" if $answer ne '';
	}
	return;
}

# ---------- times and rows ----------

# A time of the source's type, from epoch seconds (local ones for timestamp).
sub time_text
{
	my ($self, $seconds) = @_;
	my $type = $self->{setting}{time_type};

	return $seconds if $seconds =~ /infinity/;
	my $whole = floor($seconds);
	my $micro = int(($seconds - $whole) * 1_000_000 + 0.5);
	return strftime('%Y-%m-%d', gmtime $whole) if $type eq 'date';
	return strftime('%Y-%m-%d %H:%M:%S', gmtime $whole)
	  . ($micro ? sprintf('.%06d', $micro) : '')
	  . ($type eq 'timestamptz' ? '+00' : '');
}

sub time_literal
{
	my ($self, $seconds) = @_;

	return literal($self->time_text($seconds), $self->{setting}{time_type});
}

# The boundary of a day as an instant for timestamptz, as local midnight else.
sub edge
{
	my ($self, $rollup, $day) = @_;

	return $self->{setting}{time_type} eq 'timestamptz'
	  ? $rollup->{boundary}{$day} // $self->{midnight} + $day * $DAY
	  : $self->{midnight} + $day * $DAY;
}

# The number of the day of W, or undef.
sub w_day
{
	my ($self, $rollup) = @_;

	return if !defined $rollup->{w};
	my @days = sort { $a <=> $b } keys %{ $rollup->{boundary} };
	my ($day) = grep { $rollup->{boundary}{$_} == $rollup->{w} } @days;
	# a part of a seed ends where a partition does
	($day) = grep { $rollup->{boundary}{$_} >= $rollup->{w} } @days, $days[-1] if !defined $day && $self->{setting}{modes};
	die "W = $rollup->{w} is no midnight\n" if !defined $day;
	return $day;
}

# A random time; when: late, tail or any.  "finite": neither NULL nor infinite.
sub random_time
{
	my ($self, $when, $parity, $finite) = @_;
	my $column = $self->{setting}{column}{t};
	my ($rollup) = shuffled($self->rollups ? $self->rollups : $self->{setting}{rollups}[0]);
	my $w = $self->w_day($rollup) // 0;

	$when //= pick(qw(late tail tail any));
	$when = 'any' if $self->{setting}{modes} && !$w;
	return undef if !defined $parity && !$finite && !$column->{not_null} && chance(0.04);
	return pick($finite ? () : ('infinity', '-infinity'), $self->{midnight} + 1500 * $DAY, $self->{midnight} - 4000 * $DAY)
	  if chance(0.06);
	for (1 .. 20)
	{
		my $day = $when eq 'late' ? between(0, $w ? $w - 1 : 0)
		  : $when eq 'tail' ? between($w, $w + 2 > 8 ? 8 : $w + 2)
		  : between(0, 8);
		my $seconds = $self->edge($rollup, $day)
		  + pick(0, 0, -0.000001, 0.000001, 3600, 1800, 5 * 3600, 43200, 43200, 86399.999999, between(0, 86399));
		$seconds = floor($seconds / 2) * 2 + $parity if defined $parity;
		return $seconds if !$self->{reserved}{ floor(($seconds - $self->{midnight}) / $DAY) };
	}
	return $finite ? $self->{midnight} + 1500 * $DAY + 2 * between(0, 100) + ($parity // 0) : '-infinity';
}

sub next_id
{
	my ($self, $parity) = @_;

	$self->{next_id} += 2;
	return $self->{next_id} + ($parity // pick(0, 1));
}

# A row: role => raw text (undef: NULL).
sub random_row
{
	my ($self, %option) = @_;
	my $setting = $self->{setting};
	my %row;

	for my $role (@{ $setting->{attributes} })
	{
		my $column = $setting->{column}{$role};
		next if $role eq 't' || $role eq 'rid';
		$row{$role} = !$column->{not_null} && chance($role =~ /^k/ ? 0.12 : 0.2) ? undef : pick(@{ $column->{pool} });
	}
	my $time = exists $option{time} ? $option{time} : $self->random_time(@option{qw(when parity finite)});
	$row{t} = defined $time ? $self->time_text($time) : undef;
	$row{rid} = $self->next_id($option{parity});
	return \%row;
}

sub columns
{
	my ($self, @roles) = @_;

	return join ', ', map { $self->{setting}->name($_) } @roles ? @roles : @{ $self->{setting}{attributes} };
}

sub values_of
{
	my ($self, $row) = @_;
	my $setting = $self->{setting};

	return '(' . join(', ', map { literal($row->{$_}, $setting->type($_)) } @{ $setting->{attributes} }) . ')';
}

# Some rows; now and then with ties (the same instant and key, another event)
# and exact copies.
sub random_rows
{
	my ($self, $count, %option) = @_;
	my @rows;

	while (@rows < $count)
	{
		my $row = $self->random_row(%option);
		push @rows, $row;
		if (chance(0.3))
		{
			my %tie = (%$row, rid => $self->next_id($option{parity}));
			$tie{$_} = pick(@{ $self->{setting}{column}{$_}{pool} }) for some(between(0, 2), qw(eid vi vn vt));
			push @rows, \%tie;
		}
	}
	return @rows;
}

# ---------- statements ----------

sub on_conflict_nothing
{
	my ($self) = @_;
	my $unique = $self->{setting}{unique};

	return $unique && $unique->{style} ne 'deferrable' ? ' ON CONFLICT DO NOTHING' : '';
}

# A plain insert of some rows.
sub insert
{
	my ($self, %option) = @_;
	my @rows = $self->random_rows(pick(1, 1, 2, 5), %option);

	return "INSERT INTO " . ($option{table} // $self->{setting}->source) . " (" . $self->columns . ") VALUES\n  "
	  . join(",\n  ", map { $self->values_of($_) } @rows) . $self->on_conflict_nothing . ';';
}

# Which rows an update or delete takes: by the row's own number.
sub which
{
	my ($self, %option) = @_;
	my $rid = $self->{setting}->name('rid');
	my $modulus = pick(3, 5, 7, 11, 13);
	my $where = "$rid % $modulus = " . between(0, $modulus - 1);

	$where .= " AND $rid % 2 = $option{parity}" if defined $option{parity};
	return $where;
}

sub dml_copy
{
	my ($self, %option) = @_;
	my @rows = $self->random_rows(between(1, 6), %option);
	my $text = '';

	for my $row (@rows)
	{
		$text .= join("\t", map {
			my $raw = $row->{$_};
			$raw =~ s/\\/\\\\/g if defined $raw;
			$raw // '\N';
		} @{ $self->{setting}{attributes} }) . "\n";
	}
	return "COPY " . ($option{table} // $self->{setting}->source) . " (" . $self->columns . ") FROM STDIN;\n$text\\.";
}

# Copies rows that are there, as redeliveries or with a change.
sub dml_insert_select
{
	my ($self, %option) = @_;
	my $setting = $self->{setting};
	my $rid = $setting->name('rid');
	my $change = pick('', '', 'eid', 'vi', 'vn');
	my $from = $option{table} // $setting->source;
	my $shift = ++$self->{copies} * 1_000_000;
	my @list = map {
		$_ eq 'rid' ? "$rid + $shift"
		: $_ eq $change ? literal(pick(@{ $setting->{column}{$_}{pool} }), $setting->type($_))
		: $setting->name($_)
	} @{ $setting->{attributes} };

	return "INSERT INTO $from (" . $self->columns . ")\n  SELECT " . join(', ', @list)
	  . " FROM $from WHERE " . $self->which(%option) . " AND $rid < 1000000" . $self->on_conflict_nothing . ';';
}

sub dml_merge
{
	my ($self, %option) = @_;
	my $setting = $self->{setting};
	my $source = $setting->source;
	my $rid = $setting->name('rid');
	my @rows = $self->random_rows(between(1, 3), %option);
	my @changed = some(2, qw(vi vn vt k1 t));
	my @all = @{ $setting->{attributes} };
	my $parity = defined $option{parity} ? " AND s_.$rid % 2 = $option{parity}" : '';

	# pairs a few rows of the source with given ones, in one to one fashion
	return "MERGE INTO $source AS s_\n USING (SELECT row_number() OVER () + " . between(0, 20) . " AS n_, v_.* FROM (VALUES "
	  . join(",\n  ", map { $self->values_of($_) } @rows) . ") AS v_("
	  . $self->columns . ")) AS v_\n ON s_.$rid / 2 = v_.n_$parity\n"
	  . " WHEN MATCHED AND s_.$rid % 5 = 0 THEN DELETE\n WHEN MATCHED THEN UPDATE SET "
	  . join(', ', map { $setting->name($_) . ' = v_.' . $setting->name($_) } @changed)
	  . "\n WHEN NOT MATCHED THEN INSERT (" . $self->columns . ") VALUES ("
	  . join(', ', map { 'v_.' . $setting->name($_) } @all) . ');';
}

sub dml_upsert
{
	my ($self, %option) = @_;
	my $setting = $self->{setting};
	my $unique = $setting->{unique};

	return $self->insert(%option)
	  if !$unique || $unique->{style} =~ /deferrable|partial/;
	my %by = map { $_ => 1 } @{ $unique->{by} };
	my @changed = grep { !$by{$_} } qw(vi vn vt eid t2 note);
	my ($row) = $self->random_rows(1, %option);
	return "INSERT INTO " . $setting->source . " (" . $self->columns . ") VALUES " . $self->values_of($row)
	  . "\n  ON CONFLICT (" . $self->columns(@{ $unique->{by} }) . ") DO UPDATE SET "
	  . join(', ', map { $setting->name($_) . ' = EXCLUDED.' . $setting->name($_) } @changed) . ';';
}

sub dml_with
{
	my ($self, %option) = @_;
	my $setting = $self->{setting};
	my $source = $setting->source;
	my $rid = $setting->name('rid');
	my $shift = ++$self->{copies} * 1_000_000;
	my @rows = $self->random_rows(1, %option);
	my @list = map { $_ eq 'rid' ? "$rid + $shift" : $_ eq 'vi' ? '4' : $setting->name($_) } @{ $setting->{attributes} };

	return "WITH gone_ AS (DELETE FROM $source WHERE " . $self->which(%option) . " RETURNING *),\n"
	  . " new_ AS (INSERT INTO $source (" . $self->columns . ") VALUES " . join(', ', map { $self->values_of($_) } @rows)
	  . $self->on_conflict_nothing . " RETURNING $rid)\n"
	  . "INSERT INTO $source (" . $self->columns . ") SELECT " . join(', ', @list) . " FROM gone_ WHERE $rid < 1000000"
	  . $self->on_conflict_nothing . ';';
}

sub dml_update
{
	my ($self, %option) = @_;
	my $setting = $self->{setting};
	my $t = $setting->name('t');
	my @sets;

	for my $role (some(between(1, 2), 't', 't', 'k1', 'k1', qw(vi vn vt eid t2 note ve)))
	{
		next if grep { $_->[0] eq $role } @sets;
		my $column = $setting->{column}{$role};
		my $value;
		if ($role eq 't')
		{
			my $days = pick(-3, -2, -1, -1, 1, 1, 2, 4);
			$value = chance(0.5) ? $self->time_literal($self->random_time($option{when}, $option{parity}) // '-infinity')
			  : $setting->{time_type} eq 'date' ? "$t + ($days)"
			  : "$t + '$days days'::pg_catalog.interval";
		}
		else
		{
			$value = literal(!$column->{not_null} && chance(0.2) ? undef : pick(@{ $column->{pool} }), $setting->type($role));
		}
		push @sets, [ $role, $value ];
	}
	return "UPDATE " . ($option{table} // $setting->source) . " SET "
	  . join(', ', map { $setting->name($_->[0]) . " = $_->[1]" } @sets) . " WHERE " . $self->which(%option) . ';';
}

sub dml_delete
{
	my ($self, %option) = @_;
	my $setting = $self->{setting};
	my $where = $self->which(%option);
	my $k1 = $setting->name('k1');

	# now and then all of a key
	if (!defined $option{parity} && chance(0.3))
	{
		my $value = pick(@{ $setting->{column}{k1}{pool} });
		$where = chance(0.2) ? "$k1 IS NULL" : "$k1 = " . literal($value, $setting->type('k1'));
	}
	return "DELETE FROM " . ($option{table} // $setting->source) . " WHERE $where;";
}

# Straight into a leaf: rows that lie there, or of its day.
sub dml_leaf
{
	my ($self, %option) = @_;

	return $self->insert(%option) if !@{ $self->{leaves} };
	my @days = sort { $a <=> $b } keys %{ $self->{day_leaf} };
	if (@days && !defined $option{parity} && chance(0.5))
	{
		my $day = pick(@days);
		my $time = $self->{midnight} + $day * $DAY + pick(0, 43200, 86399.999999, between(0, 86399));
		my $method = pick(qw(insert dml_copy));
		return $self->$method(%option, table => $self->{day_leaf}{$day}, time => $time);
	}
	my $method = pick(qw(dml_insert_select dml_insert_select dml_delete dml_update));
	return $self->$method(%option, table => pick(@{ $self->{leaves} }));
}

sub dml_cascade
{
	my ($self) = @_;
	my $parents = "$self->{setting}{schema}.parents_";
	my $id = between(1, 4);

	return $self->dml_delete if !$self->{setting}{fk};
	return "DELETE FROM $parents WHERE id = $id; INSERT INTO $parents VALUES ($id);" if chance(0.6);
	return "UPDATE $parents SET id = id + 10 WHERE id = $id; UPDATE $parents SET id = $id WHERE id = $id + 10;";
}

# A block whose inner part fails and is undone.
sub dml_block
{
	my ($self, %option) = @_;
	my $one = $self->insert(%option);
	my $two = pick($self->insert(%option), $self->dml_update(%option), $self->dml_delete(%option));
	my $three = $self->dml_insert_select(%option);

	return "DO \$do\$ BEGIN\n$one\nBEGIN\n$two\n"
	  . (chance(0.6) ? "RAISE EXCEPTION 'undo';\n" : '')
	  . "EXCEPTION WHEN raise_exception OR unique_violation THEN NULL; END;\n$three\nEND \$do\$;";
}

# One statement.  Options: when => late | tail | any, parity => 0 | 1 for one of
# two transactions that must not wait for each other.
sub dml
{
	my ($self, %option) = @_;
	my @kinds = (
		('insert') x 7, ('dml_copy') x 3, ('dml_insert_select') x 3, ('dml_update') x 4,
		('dml_delete') x 2, 'dml_merge', 'dml_with', 'dml_block', 'dml_leaf', 'dml_leaf');

	push @kinds, ('dml_upsert') x 4 if $self->{setting}{unique};
	push @kinds, 'dml_cascade' if $self->{setting}{fk} && !defined $option{parity};
	@kinds = grep { !/merge|with/ } @kinds if $self->{setting}{before_trigger} || $self->{setting}{after_trigger};
	my $kind = pick(@kinds);
	return $self->$kind(%option);
}

# ---------- steps ----------

sub step
{
	my ($self) = @_;
	my @kinds = (
		('transaction') x 10, ('savepoints') x 4, ('prepared') x 2, ('interleaved') x 3,
		('refresh') x 9, ('refresh_inside') x 3, ('reader') x 2, ('early_locker') x 2,
		'truncate', 'mark', 'reseed', 'ddl', 'ddl', 'replica', 'block_commit', 'untriggered');
	my @waiting = grep { !$_->{created} } @{ $self->{setting}{rollups} };

	@kinds = $self->kinds_with_modes if $self->{setting}{modes};
	push @kinds, ('attach') x 3 if %{ $self->{reserved} };
	push @kinds, ('new_rollup') x 5 if @waiting;
	my $kind = pick(@kinds);
	my $method = "step_$kind";
	push @{ $self->{log} }, "-- $kind";
	$self->{failed} = {};
	$self->{$_} = {} for qw(wrote unfolded serial);
	$self->$method;
	$self->{failed} = {};
	$self->check($_) for 'C', chance(0.3) ? 'A' : (), chance(0.15) ? 'B' : ();
	$self->check_untouched($kind) if $self->{setting}{modes};
	return;
}

sub begin_statement
{
	my ($self) = @_;

	return chance(0.2) ? 'BEGIN ISOLATION LEVEL ' . pick('REPEATABLE READ', 'SERIALIZABLE') . ';' : 'BEGIN;';
}

sub step_transaction
{
	my ($self) = @_;
	my $name = pick(qw(A A B));

	if (chance(0.4))
	{
		$self->does($name, $self->dml);
		return;
	}
	$self->does($name, $self->begin_statement);
	for (1 .. between(1, 4))
	{
		$self->does($name, $self->dml, serial => 1);
		$self->fold_now($name) if chance(0.2);
		$self->check($name, inside => 1) if chance(0.25);
		$self->check('C') if chance(0.1);
	}
	$self->does($name, pick('COMMIT;', 'COMMIT;', 'COMMIT;', 'ROLLBACK;'), serial => 1);
	return;
}

sub step_savepoints
{
	my ($self) = @_;
	my $name = pick(qw(A B));
	my @open;

	$self->does($name, "BEGIN;");
	for my $number (1 .. between(3, 8))
	{
		my $move = pick(qw(dml dml savepoint savepoint rollback release), $self->{setting}{modes} ? 'fold' : ());
		if ($move eq 'savepoint')
		{
			push @open, "sp$number";
			$self->does($name, "SAVEPOINT sp$number;");
		}
		elsif ($move eq 'rollback' && @open)
		{
			my $at = between(0, $#open);
			# (a savepoint after the error is none)
			my $answer = $self->does($name, "ROLLBACK TO $open[$at];");
			$self->{failed}{$name} = 0 unless DrSession::errors($answer);
			$#open = $at;
		}
		elsif ($move eq 'release' && @open)
		{
			my $at = between(0, $#open);
			$self->does($name, "RELEASE $open[$at];");
			$#open = $at - 1;
		}
		elsif ($move eq 'fold')
		{
			$self->fold_now($name);
		}
		else
		{
			$self->does($name, $self->dml);
			# a failed statement leaves nothing to go on with but the savepoints
			last if $self->{failed}{$name} && !@open;
		}
		$self->check($name, inside => 1) if chance($move eq 'fold' ? 0.8 : 0.2);
	}
	$self->does($name, pick('COMMIT;', 'COMMIT;', 'COMMIT;', 'ROLLBACK;'));
	return;
}

sub step_prepared
{
	my ($self) = @_;
	my $gid = "dr_$self->{seed}_" . ++$self->{gid} . "_$self->{step}";

	$self->does('A', $self->begin_statement, serial => 1);
	$self->does('A', $self->dml(parity => 0), serial => 1) for 1 .. between(1, 3);
	$self->does('A', "PREPARE TRANSACTION '$gid';", serial => 1);
	$self->check('C');
	if (!$self->{setting}{unique} && !$self->{setting}{fk} && chance(0.5))
	{
		# it has folded, so whoever folds the same keys waits for it
		$self->does_alongside('B', $self->dml(parity => 1));
		$self->check('C');
	}
	$self->does('A', pick('COMMIT', 'COMMIT', 'ROLLBACK') . " PREPARED '$gid';") if !$self->{failed}{A};
	$self->finish('B');
	return;
}

# Two transactions at the same time, on rows of their own.  Where one of them
# folds before it ends, the other may have to wait for it.
sub step_interleaved
{
	my ($self) = @_;
	my $setting = $self->{setting};

	return $self->step_transaction
	  if $setting->{unique} || $setting->{fk} || $setting->{after_trigger};
	my @order = shuffled(('A') x between(1, 3), ('B') x between(1, 3));
	my $folds = $setting->{modes} && chance(0.4) ? pick(qw(A B)) : '';
	$self->does($_, $self->begin_statement, serial => 1) for qw(A B);
	for my $name (@order)
	{
		$self->does($name, $self->dml(parity => $name eq 'A' ? 0 : 1), serial => 1);
		$self->fold_now($name) if $name eq $folds && chance(0.5);
		$self->check($name, inside => 1, brief => 1) if chance(0.15);
		$self->check('C') if chance(0.15);
	}
	for my $name (shuffled(qw(A B)))
	{
		# who folds twice may do so in another order than the other
		$self->does_alongside($name, pick('COMMIT;', 'COMMIT;', 'ROLLBACK;'), serial => 1, $folds eq '' ? () : (may => '40P01'));
		$self->check('C');
	}
	$self->finish($_) for qw(A B);
	return;
}

# Draws a boundary for a rollup: a later day, or the same W again.
sub draw_boundary
{
	my ($self, $rollup) = @_;
	my $w = $self->w_day($rollup);
	my @days = grep { $_ >= 1 } sort { $a <=> $b } keys %{ $rollup->{boundary} };

	if (defined $w)
	{
		my @later = grep { $_ > $w } @days;
		$w = 1 if $w < 1;
		$#later = 2 if @later > 3;
		@days = (@later, @later, $w, $w);
		push @days, grep { $_ < $w } 1 .. $w if !$rollup->{reseed} && chance(0.2);
	}
	else
	{
		@days = @days[ 0 .. 5 ];
	}
	@days = grep { defined $rollup->{boundary}{$_} } @days;
	return $rollup->{boundary}{ pick(@days) };
}

# What the rollup's row and marks say, to that session; undef where it has failed.
sub row_of
{
	my ($self, $name, $rollup) = @_;
	my $regclass = $self->{setting}->regclass($rollup);
	my $keys = join ', ', map { "k$_" } 1 .. @{ $rollup->{keys} };
	my $answer = $self->does($name, <<"SQL");
SELECT 'row', r.state, s.wanted_mode, r.fold, coalesce(extract(epoch FROM r.watermark)::bigint::text, 'null'),
  coalesce(extract(epoch FROM r.shadow_watermark)::bigint::text, 'null'), r.shadow IS NOT NULL, r.reseed IS NOT NULL,
  (SELECT count(*) FROM (SELECT DISTINCT $keys FROM dailyrollup.marks_$rollup->{id} WHERE dirties = 'd') d),
  (SELECT count(*) FROM (SELECT DISTINCT $keys FROM dailyrollup.marks_$rollup->{id} WHERE dirties = 'l') l)
  FROM dailyrollup.rollups r JOIN public.rollup_status s ON s.rollup = r.live WHERE r.live = $regclass;
SQL
	return if $self->{failed}{$name};
	chomp $answer;
	my ($row, %row);
	($row, @row{qw(state wanted fold w shadow_w shadow reseed late dirty)}) = split /\|/, $answer;
	die "no row:\n$answer" if ($row // '') ne 'row';
	$row{folds} = $row{state} =~ /^(?:off|shadow)$/ && $row{fold} eq 't';
	$row{left} = $row{state} =~ /^(?:off|shadow)$/ && $row{fold} eq 'f';
	return \%row;
}

# One refresh in a session, with what it says about itself compared with what
# it had to do.
sub refresh
{
	my ($self, $name, $rollup) = @_;
	my $live = $self->{setting}->regclass($rollup);
	my $boundary = $self->draw_boundary($rollup);
	my $was = $self->row_of($name, $rollup) or return;
	my $shadow = $was->{state} eq 'shadow';

	if ($was->{state} eq 'off' || $was->{state} eq 'new' && $was->{wanted} ne 'on' || $shadow && $was->{shadow} eq 'f')
	{
		$self->refused($name, "SELECT * FROM public.rollup_refresh($live, to_timestamp($boundary));") if chance(0.1);
		return;
	}
	my ($w, $marks) = ($shadow ? $was->{shadow_w} : $was->{w}, $was->{late});
	my $expected =
	    $w eq 'null' || $rollup->{reseed} && !$shadow ? 'seed'
	  : $boundary > $w ? 'fold'
	  : $boundary == $w && $marks > 0 ? 'late'
	  : 'none';
	$expected = 'none' if $w ne 'null' && $boundary < $w;
	my $answer = $self->does($name, <<"SQL", strict => 1);
SELECT r.action || '|' || coalesce(extract(epoch FROM r.to_time)::bigint::text, 'null') || '|' || (r.rollup = $live)
  FROM public.rollup_refresh($live, to_timestamp($boundary)) r;
SQL
	return if $self->{failed}{$name};
	my $now = $self->row_of($name, $rollup) or return;
	my ($action, $to) = $answer =~ /^(\w+)\|(\w+)\|true$/m or die "no row from rollup_refresh:\n$answer";
	my $reached = $now->{state} eq 'shadow' ? $now->{shadow_w} : $now->{w};
	my $left = $now->{late} + ($shadow ? 0 : $now->{dirty});
	my $should = $expected eq 'none' ? $w : $boundary;
	die "action $action, expected $expected\n" if $action ne $expected;
	die "W is $reached, expected $should\n" if $reached ne $should;
	die "state $now->{state}\n" if $now->{state} ne ($shadow ? 'shadow' : 'on');
	die "$left marks left after $action\n" if $left > 0 && $action ne 'none';
	die "to_time $to, expected $boundary\n" if $action ne 'none' && $to ne $boundary;
	return $action;
}

# A refresh, or, where nothing is refreshed, a pass; "writers": who write may be
# there meanwhile, and a change from on would wait for them.
sub refresh_or_pass
{
	my ($self, $rollup, %option) = @_;

	if ($self->{setting}{modes})
	{
		my $row = $self->row_of('A', $rollup) or return;
		my $waits = $option{writers} && $row->{wanted} ne 'on' && $row->{state} =~ /^(?:new|on)$/;
		return $self->pass($rollup)
		  if !$waits && ($row->{state} eq 'off' || $row->{state} eq 'new' && $row->{wanted} ne 'on' || chance(0.2));
	}
	my $action = $self->refresh('A', $rollup);
	$rollup->{reseed} = 0 if ($action // '') eq 'seed';
	return;
}

sub step_refresh
{
	my ($self) = @_;

	for my $rollup (some(between(1, 2), $self->rollups))
	{
		$self->does('A', $self->random_settings);
		$self->refresh_or_pass($rollup);
	}
	return;
}

# A refresh in a transaction with other things, and perhaps undone.
sub step_refresh_inside
{
	my ($self) = @_;
	my ($rollup) = shuffled($self->rollups);
	my $undo = chance(0.4);
	my $reseed = $rollup->{reseed};

	$self->does('A', 'BEGIN;');
	$self->does('A', $self->dml) if chance(0.5);
	$self->check('A', inside => 1) if chance(0.5);
	if (!$self->{failed}{A} && chance(0.3))
	{
		$self->does('A', 'SAVEPOINT before_;');
		$self->refresh('A', $rollup);
		$self->check('A', inside => 1) if chance(0.5);
		$self->does('A', $self->dml);
		$self->does('A', 'ROLLBACK TO before_;');
		$self->{failed}{A} = 0;
		$self->check('A', inside => 1);
		$self->does('A', $self->dml(when => 'tail')) if chance(0.7);
	}
	for (1 .. between(1, 2))
	{
		last if $self->{failed}{A};
		my $action = $self->refresh('A', $rollup);
		$rollup->{reseed} = 0 if ($action // '') eq 'seed';
		local $rollup->{w} = $rollup->{w};
		$self->check('A', inside => 1);
		$rollup->{w} = $rollup->{seen};
		$self->does('A', $self->dml(when => 'late')) if chance(0.7);
		$self->check('A', inside => 1) if chance(0.7);
		last if chance(0.6);
		$self->does('A', 'SELECT 1;');
		last;
	}
	$self->does('A', $undo ? 'ROLLBACK;' : 'COMMIT;');
	$rollup->{reseed} = $reseed if $undo || $self->{failed}{A};
	return;
}

# A reader (and later writer) with an old snapshot, across refreshes.
sub step_reader
{
	my ($self) = @_;
	my ($rollup) = shuffled($self->rollups);

	$self->does('C', 'BEGIN ISOLATION LEVEL REPEATABLE READ;');
	$self->check('C', inside => 1, brief => 1);
	$self->does('A', $self->dml) if chance(0.7);
	$self->refresh_or_pass($rollup);
	$self->{failed}{A} = 0;
	$self->check('A');
	$self->check('C', inside => 1, brief => 1);
	$self->does('A', $self->dml(parity => 0)) if chance(0.5) && !$self->{setting}{unique} && !$self->{setting}{fk};
	$self->check('C', inside => 1, brief => 1);
	if (chance(0.6))
	{
		# rows below the new W, written with the old snapshot
		$self->does('C', pick($self->insert, $self->dml_copy, $self->insert(when => 'late')), serial => 1);
		$self->check('C', inside => 1, brief => 1);
	}
	$self->does('C', pick('COMMIT;', 'COMMIT;', 'ROLLBACK;'), serial => 1);
	return;
}

# A transaction that is older than a refresh which need not wait for it: it holds
# a write lock but has written nothing yet, or its writes and their locks went
# with a savepoint.
sub step_early_locker
{
	my ($self) = @_;
	my ($rollup) = shuffled($self->rollups);
	my $source = $self->{setting}->source;
	my $list = $self->columns;

	$self->does('B', 'BEGIN;');
	if (chance(0.5))
	{
		$self->does('B', 'SAVEPOINT sp_;');
		$self->does('B', $self->dml(when => pick('late', 'any')));
		$self->check('B', inside => 1) if chance(0.2);
		$self->does('B', 'ROLLBACK TO sp_;');
		$self->{failed}{B} = 0;
	}
	else
	{
		$self->does('B', pick("DELETE FROM $source WHERE false;", "INSERT INTO $source ($list) SELECT $list FROM $source WHERE false;",
			"UPDATE $source SET " . $self->{setting}->name('vi') . " = 1 WHERE false;"));
	}
	$self->refresh_or_pass($rollup, writers => 1);
	$self->check('A');
	$self->does('B', $self->dml(when => pick('late', 'late', 'any'))) for 1 .. between(1, 2);
	$self->check('B', inside => 1) if chance(0.5);
	$self->does('B', pick('COMMIT;', 'COMMIT;', 'ROLLBACK;'));
	return;
}

sub step_truncate
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my $table = @{ $self->{leaves} } && chance(0.6) ? pick(@{ $self->{leaves} }) : $setting->source;
	my $form = pick(qw(plain inside undone savepoint));

	if ($form eq 'plain')
	{
		$self->does('A', "TRUNCATE $table;");
		return;
	}
	$self->does('A', 'BEGIN;');
	$self->does('A', $self->dml) if chance(0.5);
	if ($form eq 'savepoint')
	{
		$self->does('A', "SAVEPOINT sp_;\nTRUNCATE $table;");
		$self->check('A', inside => 1);
		$self->does('A', "ROLLBACK TO sp_;");
		$self->check('A', inside => 1);
	}
	else
	{
		$self->does('A', "TRUNCATE $table;");
	}
	$self->does('A', $self->dml);
	$self->check('A', inside => 1);
	$self->does('A', $form eq 'undone' ? 'ROLLBACK;' : 'COMMIT;');
	return;
}

# A filled table (its columns in another order) becomes a partition; or an
# empty partition is created.
sub step_attach
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my ($day) = shuffled(sort { $a <=> $b } keys %{ $self->{reserved} });
	my $table = "$setting->{schema}.p_$day";

	if (!$self->{detached}{$day} && chance(0.2))
	{
		$self->create_day($day, $day + 1);
		delete $self->{reserved}{$day} if !$self->{failed}{A};
		return;
	}
	my @below = $self->second_level($table);
	my $sql = $self->{detached}{$day} ? '' : "CREATE TABLE $table (" . $setting->column_list(shuffled(@{ $setting->{attributes} }))
	  . join('', map { ", $_ int" } @{ $self->{added} // [] }) . ")"
	  . $self->partition_by . ";\n";
	for my $leaf ($self->{detached}{$day} ? () : @below)
	{
		$sql .= "CREATE TABLE $leaf->[0] PARTITION OF $table $leaf->[1];\n";
	}
	$sql .= "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON "
	  . join(', ', $table, map { $_->[0] } @below) . " TO dr_writer;\n";
	for (1 .. between(0, 4))
	{
		my $time = $self->{midnight} + $day * $DAY + pick(0, 43200, between(0, 86399));
		my ($row) = $self->random_rows(1, time => $time);
		$sql .= "INSERT INTO $table (" . $self->columns . ") VALUES " . $self->values_of($row) . ";\n";
	}
	$self->does('A', "BEGIN;\n$sql");
	$self->does('A', $self->dml) if chance(0.3);
	$self->does('A', "ALTER TABLE " . $setting->source . " ATTACH PARTITION $table " . $self->bounds($day, $day + 1) . ';');
	$self->check('A', inside => 1) if chance(0.5);
	my $undo = chance(0.15);
	$self->does('A', $undo ? 'ROLLBACK;' : 'COMMIT;');
	return if $undo || $self->{failed}{A};
	delete $self->{reserved}{$day};
	delete $self->{detached}{$day};
	push @{ $self->{leaves} }, @below ? map { $_->[0] } @below : $table;
	$self->{day_leaf}{$day} = $table if !@below;
	$self->{attached}{$day} = $table;
	return;
}

sub mark
{
	my ($self, $rollup, $from, $till) = @_;

	return "SELECT public.rollup_mark(" . $self->{setting}->regclass($rollup) . ", $from, $till);";
}

sub step_mark
{
	my ($self) = @_;
	my ($rollup) = shuffled($self->rollups);
	my @days = sort { $a <=> $b } keys %{ $rollup->{boundary} };
	my ($from, $till) = sort { $a <=> $b } some(2, @days);

	$self->does('A', chance(0.3) ? $self->mark($rollup, "'-infinity'", "'infinity'")
		: $self->mark($rollup, map { "to_timestamp($rollup->{boundary}{$_})" } $from, $till));
	return;
}

sub step_reseed
{
	my ($self) = @_;
	my ($rollup) = shuffled($self->rollups);

	my $sql = "SELECT public.rollup_reseed(" . $self->{setting}->regclass($rollup) . ');';
	return $self->refused('A', $sql) if ($rollup->{state} // '') eq 'off';
	return $self->step_transaction if !defined $rollup->{w};
	$self->does('A', $sql);
	return $rollup->{reseed} = 1 if $rollup->{state} ne 'shadow';
	my $row = $self->row_of('A', $rollup);
	die "the shadow has a watermark after rollup_reseed\n" if $row->{shadow_w} ne 'null';
	return;
}

sub step_new_rollup
{
	my ($self) = @_;
	my ($rollup) = grep { !$_->{created} } @{ $self->{setting}{rollups} };

	$self->create_rollup($rollup);
	return;
}

# Writes of a session that fires no ordinary trigger.
sub step_replica
{
	my ($self) = @_;

	$self->does('S', "BEGIN;\nSET LOCAL session_replication_role = replica;");
	$self->does('S', $self->dml) for 1 .. between(1, 2);
	$self->check('S', inside => 1);
	$self->does('S', 'COMMIT;');
	return;
}

# A load with the triggers off, and the mark that it needs.
sub step_untriggered
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my $source = literal($setting->source, 'regclass');
	my $switch = sub {
		my ($rows, $clause) = @_;
		return "DO \$do\$ DECLARE r record; BEGIN FOR r IN $rows LOOP\n"
		  . "EXECUTE format('ALTER TABLE ONLY %s $clause', r.rel, r.name, r.mode); END LOOP; END \$do\$;";
	};
	my $triggers = "SELECT t.tgrelid::regclass AS rel, t.tgname AS name, t.tgenabled AS enabled,\n"
	  . " CASE t.tgenabled WHEN 'A' THEN 'ALWAYS' WHEN 'R' THEN 'REPLICA' ELSE '' END AS mode\n"
	  . " FROM pg_trigger t JOIN (SELECT relid FROM pg_partition_tree($source) UNION SELECT $source) p ON t.tgrelid = p.relid\n"
	  . " WHERE NOT t.tgisinternal";

	$self->does('S', "BEGIN;\nCREATE TEMP TABLE off_ ON COMMIT DROP AS $triggers;\n"
		  . $switch->('SELECT * FROM pg_temp.off_', 'DISABLE TRIGGER %2$I'));
	$self->does('S', pick($self->insert(when => 'late'), $self->dml_copy, $self->dml_insert_select));
	$self->does('S', $switch->('SELECT * FROM pg_temp.off_', 'ENABLE %3$s TRIGGER %2$I'));
	$self->does('S', $self->mark($_, "'-infinity'", "'infinity'")) for $self->rollups;
	$self->does('S', 'COMMIT;');
	return;
}

# Commits in the middle of a block.
sub step_block_commit
{
	my ($self) = @_;

	$self->does('A', "DO \$do\$ BEGIN\n" . $self->insert . "\n" . pick('COMMIT', 'ROLLBACK') . ";\n"
		  . $self->dml_update . "\n" . pick('COMMIT', 'ROLLBACK') . ";\n" . $self->insert(when => 'late') . "\nEND \$do\$;");
	return;
}

sub step_ddl
{
	my ($self) = @_;
	my $setting = $self->{setting};
	my $source = $setting->source;
	my $kind = pick(qw(analyze vacuum index add_column rename_column rename_table rename_leaf reconnect discard));

	if ($kind eq 'analyze')
	{
		$self->does('A', "ANALYZE $source; ANALYZE " . $setting->live(($self->rollups)[0]) . ';');
	}
	elsif ($kind eq 'vacuum')
	{
		$self->{rewritten} = 1;
		$self->does('A', "VACUUM " . pick('', '(FREEZE) ', '(FULL) ') . pick($source, $setting->live(($self->rollups)[0])) . ';');
	}
	elsif ($kind eq 'index')
	{
		my $name = 'i_' . ++$self->{gid};
		$self->does('A', "CREATE INDEX $name ON $source (" . $setting->name('t') . ");\n"
			  . (chance(0.5) ? "DROP INDEX $setting->{schema}.$name;" : ''));
	}
	elsif ($kind eq 'add_column')
	{
		my $name = 'added_' . ++$self->{gid};
		my $drop = chance(0.5);
		my $default = pick(1, 'NULL');
		$self->does('A', join "\n", map { "ALTER TABLE $_ ADD COLUMN $name int DEFAULT $default;"
			  . ($drop ? "ALTER TABLE $_ DROP COLUMN $name;" : '') } $source, values %{ $self->{detached} });
		push @{ $self->{added} }, $name if !$drop;
	}
	elsif ($kind eq 'rename_column' && !$setting->{before_trigger} && !$setting->{after_trigger})
	{
		my $role = pick(qw(t k1 vi vn eid note));
		my $new = "renamed " . ++$self->{gid};
		$self->safe("ALTER TABLE $_ RENAME COLUMN " . $setting->name($role) . " TO " . ident($new) . ';', 'A')
		  for $source, values %{ $self->{detached} };
		$setting->{column}{$role}{name} = $new;
		$self->create_check($_) for $self->rollups;
	}
	elsif ($kind eq 'rename_table' && !$setting->{after_trigger})
	{
		my $new = ident("Moved " . ++$self->{gid});
		$self->safe("ALTER TABLE $source RENAME TO $new;", 'A');
		$setting->{table} = $new;
		$self->create_check($_) for $self->rollups;
	}
	elsif ($kind eq 'reconnect')
	{
		my $name = pick(qw(A B C));
		$self->{session}{$name}->quit if $self->{session}{$name};
		delete $self->{session}{$name};
		push @{ $self->{log} }, "-- [$name] reconnects";
	}
	else
	{
		$self->does(pick(qw(A B C)), 'DISCARD PLANS;');
	}
	return;
}

1;
