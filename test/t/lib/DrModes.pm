# Three sources, rollups over them, and sessions that write, read and compare
# while a test changes modes.
#
#	src_plain	NULL keys, deduplicated by the rollup alone
#	src_parted	partitioned by day, every row counts
#	src_unique	deduplicated, and a primary key that guarantees it
#
# wrong(rollup) compares a rollup with its definition by the caller's snapshot:
# live as its state wants it, the shadow, and _current.  Keys that wait are left
# out of the tables, never of _current.
package DrModes;

use strict;
use warnings;

use DrSession;

our @sources = qw(plain parted unique);

# What compares: differ and wrong.
our $COMPARE = <<'SQL';
-- rows by which two queries differ, but those of keys with marks of these kinds
CREATE FUNCTION differ(a text, b text, marks regclass, kinds text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('WITH a AS MATERIALIZED (%s), b AS MATERIALIZED (%s)
		SELECT count(*) FROM ((TABLE a EXCEPT ALL TABLE b) UNION ALL (TABLE b EXCEPT ALL TABLE a)) d
		WHERE NOT EXISTS (SELECT FROM %s m WHERE m.dirties = ANY (%L) AND (m.k1, m.k2) IS NOT DISTINCT FROM (d.subject, d.name))',
		a, b, marks, kinds) INTO n;
	RETURN n;
END $$;
CREATE FUNCTION wrong(r regclass, shadow_too bool DEFAULT true, OUT state text, OUT w timestamptz, OUT live_rows bigint,
	OUT live_wrong bigint, OUT shadow_wrong bigint, OUT current_wrong bigint) LANGUAGE plpgsql STABLE AS $$
DECLARE
	k dailyrollup.rollups;
BEGIN
	SELECT * INTO STRICT k FROM dailyrollup.rollups x WHERE x.live = r;
	state := k.state;
	w := k.watermark;
	EXECUTE format('SELECT count(*) FROM ONLY %s', r) INTO live_rows;
	live_wrong := CASE
		WHEN k.state = 'new' OR (k.state = 'on' AND w IS NULL) THEN 0
		WHEN k.state = 'on' THEN differ(format('SELECT * FROM ONLY %s', r), rollup_definition(r, w), k.marks, '{d,l}')
		ELSE differ(format('SELECT * FROM ONLY %s', r), rollup_definition(r), k.marks, '{l}') END;
	shadow_wrong := CASE WHEN NOT shadow_too OR k.shadow_watermark IS NULL THEN 0
		ELSE differ(format('SELECT * FROM ONLY %s', k.shadow), rollup_definition(r, k.shadow_watermark), k.marks, '{d}') END;
	current_wrong := differ(format('SELECT * FROM %s', k.current_view), rollup_definition(r), k.marks, '{}');
END $$;
SQL

# The sources, and what writes and reads.
our $SQL = <<'SQL';
CREATE TABLE src_plain (subject text, name text, ts timestamptz NOT NULL, v numeric, event bigserial);
CREATE INDEX ON src_plain (subject, name, ts);
CREATE INDEX ON src_plain (event);
CREATE TABLE src_parted (subject text NOT NULL, name text NOT NULL, ts timestamptz NOT NULL, v numeric, event bigserial)
	PARTITION BY RANGE (ts);
CREATE INDEX ON src_parted (subject, name, ts);
CREATE INDEX ON src_parted (event);
CREATE TABLE src_parted_default PARTITION OF src_parted DEFAULT;
CREATE TABLE src_unique (subject text, name text, ts timestamptz, v numeric, event bigserial,
	PRIMARY KEY (subject, name, ts));
CREATE INDEX ON src_unique (event);

CREATE FUNCTION leaf(ts timestamptz) RETURNS text LANGUAGE sql IMMUTABLE
	AS $$ SELECT 'src_parted_' || to_char(ts AT TIME ZONE 'UTC', 'YYYYMMDD') $$;
DO $$
DECLARE
	day timestamptz;
BEGIN
	FOR day IN SELECT date_trunc('day', now(), 'UTC') + n * interval '1 day' FROM generate_series(-9, 1) n LOOP
		EXECUTE format('CREATE TABLE %I PARTITION OF src_parted FOR VALUES FROM (%L) TO (%L)',
			leaf(day), day, day + interval '1 day');
	END LOOP;
END $$;

-- what is there from the beginning stays: no key of these rows ever goes
CREATE FUNCTION base() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 600::bigint';
CREATE FUNCTION random_rows(n int) RETURNS TABLE (subject text, name text, ts timestamptz, v numeric) LANGUAGE sql VOLATILE AS $$
	SELECT 'van ' || (random() * 6)::int, (array['speed', 'fuel'])[1 + (random() < 0.5)::int],
		date_bin('1 min', now() - (random() ^ 3) * interval '8 days', '2020-01-01'),
		CASE WHEN random() < 0.8 THEN (random() * 100)::int / 10.0 END
	FROM generate_series(1, n) $$;
DO $$
BEGIN
	PERFORM setseed(0.5);
	INSERT INTO src_plain (subject, name, ts, v) SELECT nullif(subject, 'van 0'), nullif(name, 'fuel'), ts, v FROM random_rows(600);
	INSERT INTO src_parted (subject, name, ts, v) SELECT * FROM random_rows(600);
	INSERT INTO src_unique (subject, name, ts, v)
		SELECT DISTINCT ON (subject, name, ts) * FROM random_rows(700) LIMIT 600;
END $$;

CREATE FUNCTION make_rollup(rollup text, kind text, mode text DEFAULT NULL) RETURNS regclass LANGUAGE sql AS $$
	SELECT rollup_create(rollup, format('
		SELECT subject, name, count(*) AS count, sum(v) AS total, min(ts) AS first_seen, max(ts) AS last_seen,
		       latest(v, ts) FILTER (WHERE v IS NOT NULL) AS v, max(ts) FILTER (WHERE v IS NOT NULL) AS v_ts
		FROM src_%s GROUP BY subject, name', kind),
		time_column => 'ts', mode => mode,
		dedup_by => CASE WHEN kind <> 'parted' THEN '{subject,name,ts}'::name[] END,
		dedup_order => CASE WHEN kind <> 'parted' THEN '{event}'::name[] END) $$;

CREATE TABLE control (stop bool);
INSERT INTO control VALUES (false);
CREATE TABLE complaints (said_at timestamptz DEFAULT clock_timestamp(), complaint text);
CREATE TABLE counts (who text, n bigint);

-- one statement of a writer
CREATE FUNCTION write_once(kind text, choice float8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	source text := 'src_' || kind;
	event bigint;
	columns text := CASE kind WHEN 'plain' THEN 'nullif(subject, ''van 0''), nullif(name, ''fuel''), ts, v' ELSE '*' END;
BEGIN
	CASE
	WHEN choice < 0.55 THEN
		EXECUTE format('INSERT INTO %I (subject, name, ts, v) SELECT %s FROM random_rows(%s) ORDER BY subject, name, ts ON CONFLICT DO NOTHING',
			source, columns, 1 + (random() * 4)::int);
	WHEN choice < 0.7 THEN
		-- of today
		EXECUTE format('INSERT INTO %I (subject, name, ts, v) SELECT subject, name, now(), v FROM random_rows(1) ON CONFLICT DO NOTHING', source);
	ELSE
		EXECUTE format('SELECT base() + 1 + (random() * (max(event) - base() - 1))::bigint FROM %I', source) INTO event;
		CASE
		WHEN choice < 0.8 AND kind <> 'unique' THEN
			-- once more
			EXECUTE format('INSERT INTO %1$I (subject, name, ts, v) SELECT subject, name, ts, v + (random() < 0.5)::int FROM %1$I WHERE event = %2$s', source, event);
		WHEN choice < 0.84 AND kind = 'parted' THEN
			-- straight into a partition
			EXECUTE format('INSERT INTO %I (subject, name, ts, v) SELECT subject, name, now(), v FROM random_rows(1)', leaf(now()));
		WHEN choice < 0.9 THEN
			EXECUTE format('UPDATE %I SET v = v + 1 WHERE event = %s', source, event);
		WHEN choice < 0.95 AND kind <> 'unique' THEN
			EXECUTE format('UPDATE %I SET ts = ts - interval ''1 day'', subject = ''van 3'' WHERE event = %s', source, event);
		ELSE
			EXECUTE format('DELETE FROM %I WHERE event = %s', source, event);
		END CASE;
	END CASE;
END $$;

CREATE PROCEDURE write_on(who text, seed float8) LANGUAGE plpgsql AS $$
DECLARE
	n bigint := 0;
	kind text;
BEGIN
	PERFORM setseed(seed);
	WHILE NOT (SELECT stop FROM control) LOOP
		IF random() < 0.1 THEN
			PERFORM set_config('dailyrollup.backfill', 'on', true);
		END IF;
		-- always in this order, so that they wait for each other in no circle
		FOREACH kind IN ARRAY array['unique', 'parted', 'plain'] LOOP
			CONTINUE WHEN random() < 0.4;
			BEGIN
				PERFORM write_once(kind, random());
				IF random() < 0.1 THEN
					RAISE EXCEPTION USING ERRCODE = 'DR000';
				END IF;
			EXCEPTION WHEN SQLSTATE 'DR000' THEN
				NULL;
			END;
			IF random() < 0.2 THEN
				PERFORM pg_sleep(random() * 0.01);
			END IF;
		END LOOP;
		IF random() < 0.05 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
		n := n + 1;
		PERFORM pg_sleep(0.001 + random() * 0.006);
	END LOOP;
	INSERT INTO counts VALUES (who, n);
END $$;

-- reads every rollup there is, over and over, and compares; not the shadow, which
-- may be dropped meanwhile
CREATE PROCEDURE read_on(who text) LANGUAGE plpgsql AS $$
DECLARE
	r regclass;
	seen record;
	n bigint := 0;
	filled regclass[] := '{}';
BEGIN
	WHILE NOT (SELECT stop FROM control) LOOP
		FOR r IN SELECT rollup FROM rollup_status ORDER BY random() LOOP
			SELECT * INTO seen FROM wrong(r, false);
			IF seen.live_wrong + seen.shadow_wrong + seen.current_wrong > 0 THEN
				INSERT INTO complaints (complaint) VALUES (format('%s: %s', r, seen));
			END IF;
			IF seen.live_rows > 0 THEN
				filled := filled || r;
			ELSIF r = ANY (filled) THEN
				INSERT INTO complaints (complaint) VALUES (format('%s is empty: %s', r, seen));
			END IF;
			n := n + 1;
			COMMIT;
		END LOOP;
	END LOOP;
	INSERT INTO counts VALUES (who, n);
END $$;

-- reads through statements whose plans it keeps
CREATE PROCEDURE read_sums_on(who text) LANGUAGE plpgsql AS $$
DECLARE
	n bigint := 0;
	differ bool;
BEGIN
	WHILE NOT (SELECT stop FROM control) LOOP
		SELECT (SELECT sum(count) FROM parted_a_current) <> (SELECT count(*) FROM src_parted)
			OR (SELECT sum(count) FROM unique_a_current) <> (SELECT count(*) FROM src_unique)
			OR (SELECT sum(count) FROM plain_a_current) <> (SELECT count(DISTINCT (subject, name, ts)) FROM src_plain)
		INTO STRICT differ;
		IF differ THEN
			INSERT INTO complaints (complaint) VALUES ('sums differ');
		END IF;
		SELECT NOT EXISTS (SELECT FROM parted_a) OR NOT EXISTS (SELECT FROM plain_a) OR NOT EXISTS (SELECT FROM unique_a)
		INTO STRICT differ;
		IF differ THEN
			INSERT INTO complaints (complaint) VALUES ('a rollup is empty');
		END IF;
		n := n + 1;
		COMMIT;
	END LOOP;
	INSERT INTO counts VALUES (who, n);
END $$;
SQL

# A session that runs a statement in the background: start(node, name, sql).
# What it had to say, in the end, is finish().
sub start
{
	my ($class, $node, $name, $sql, $database) = @_;
	my $session = DrSession->new(name => '', connstr => $node->connstr($database // 'postgres'));

	$session->safe('SET client_min_messages = warning;');
	$session->send($sql);
	return bless { name => $name, session => $session }, $class;
}

sub finish
{
	my ($self) = @_;
	my $answer = $self->{session}->answer;

	$self->{session}->quit;
	return $answer;
}

1;
