-- Rights: what an owner, a writer, a reader or a stranger can make others do,
-- or see of others.  Each section names what it protects.
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE at_owner;
CREATE ROLE at_heir;
CREATE ROLE at_member IN ROLE at_owner;
CREATE ROLE at_writer;
CREATE ROLE at_reader;
CREATE ROLE at_stranger;
CREATE SCHEMA at AUTHORIZATION at_owner;
GRANT ALL ON SCHEMA at TO PUBLIC;
CREATE SCHEMA at_helpers;
GRANT USAGE ON SCHEMA at_helpers TO PUBLIC;
SET search_path = at_helpers, public;
\ir lib/roles.sql

-- ==== A constant of a domain: reading it back calls the domain's CHECK, so the
-- definition is parsed as its owner alone.  Protects make_view in create.c, and
-- dr_identity_enter wherever SQL with the user's expressions is run.
CREATE SEQUENCE at.as_owner;
CREATE SEQUENCE at.as_other;
GRANT ALL ON SEQUENCE at.as_owner, at.as_other TO PUBLIC;
SET ROLE at_owner;
CREATE FUNCTION at.grab(int) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM nextval(CASE WHEN current_user = 'at_owner' THEN 'at.as_owner' ELSE 'at.as_other' END);
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE 'ALTER ROLE at_owner SUPERUSER';
  END IF;
  RETURN true;
END $$;
CREATE DOMAIN at.dom AS int CHECK (at.grab(value));
CREATE TYPE at.pair AS (a at.dom, b at.dom);
CREATE FUNCTION at.less(at.dom, at.dom) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btint4cmp($1, $2)';
CREATE TYPE at.span AS RANGE (subtype = at.dom);
CREATE TABLE at.s (k text NOT NULL, t timestamptz NOT NULL, v int, r at.span, p at.pair) PARTITION BY RANGE (t);
CREATE TABLE at.s_1 PARTITION OF at.s FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE TABLE at.s_0 (k text NOT NULL, t timestamptz NOT NULL, v int, r at.span, p at.pair);
INSERT INTO at.s_0 VALUES ('a', '2025-06-01', 7);
INSERT INTO at.s VALUES ('a', '2026-01-01', 3), ('b', '2026-01-04', 4);
RESET ROLE;
CREATE FUNCTION only_owner(what text, seen bool) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN NEXT is((SELECT is_called FROM at.as_other), false, what || ': the function has seen nobody else');
  RETURN NEXT is((SELECT is_called FROM at.as_owner), seen, what || CASE WHEN seen THEN ': it has seen the owner' ELSE ': it is not called' END);
  RETURN NEXT is((SELECT string_agg(rolname, ', ') FROM pg_roles WHERE rolsuper AND rolname ~ '^at_'), NULL, what || ': nobody has become superuser');
  PERFORM setval('at.as_owner', 1, false), setval('at.as_other', 1, false);
END $$;
SELECT setval('at.as_owner', 1, false), setval('at.as_other', 1, false);
SET ROLE at_owner;
SELECT rollup_create('at.l', $$SELECT k, count(*) FILTER (WHERE v <> ALL ('{1,2}'::at.dom[])) AS n,
                                      count(*) FILTER (WHERE r IS DISTINCT FROM '[1,5)'::at.span) AS m,
                                      count(*) FILTER (WHERE p IS DISTINCT FROM '(1,2)'::at.pair) AS o, max(t) AS mt
                               FROM at.s WHERE v <> ALL ('{8,9}'::at.dom[]) GROUP BY k$$, 't', mode => 'on');
RESET ROLE;
SELECT only_owner('rollup_create', true);
GRANT INSERT, UPDATE, DELETE ON at.s TO at_writer;
GRANT SELECT ON at.l_current TO at_reader;
-- what a session has kept is parsed again after DISCARD PLANS
DISCARD PLANS;
SELECT lives_ok($$SELECT rollup_refresh('at.l', '2026-01-03 00:00Z')$$, 'a superuser seeds');
-- its constants are those that were read then: nothing is parsed again
SELECT only_owner('a superuser''s seed', false);
DISCARD PLANS;
SELECT is(try('at_writer', $$INSERT INTO at.s VALUES ('a', '2026-01-01', 5)$$), 'ok', 'a late row');
SELECT is(try('at_reader', 'SELECT * FROM at.l_current'), 'ok', 'read');
SELECT only_owner('a writer and a reader', true);
INSERT INTO at.s VALUES ('c', '2026-01-01', 5), ('d', '2026-01-05', 5);
SELECT count(*) FROM at.l_current;
SELECT only_owner('a superuser writes and reads', false);
DISCARD PLANS;
SELECT is((SELECT count(*) FROM at.l_current), 4::bigint, 'a superuser reads');
SELECT only_owner('a superuser reads', true);
SELECT is((SELECT count(*) FROM rollup_late WHERE rollup = 'at.l'::regclass), 2::bigint, 'waiting keys');
SELECT isnt((SELECT r FROM rollup_status r WHERE rollup = 'at.l'::regclass), NULL, 'status');
SELECT isnt((SELECT r FROM rollup_check('at.l') r), NULL, 'count');
SELECT matches(rollup_definition('at.l', '2026-01-03'), 'dom', 'definition');
SELECT only_owner('looking', false);
SELECT is_empty($$SELECT * FROM rollup_verify('at.l')$$, 'verified');
SELECT only_owner('rollup_verify', true);
SELECT is(rollup_mark('at.l', '-infinity', 'infinity'), 4::bigint, 'marked');
SELECT only_owner('rollup_mark', false);
SELECT is((SELECT action FROM rollup_refresh('at.l', '2026-01-06 00:00Z')), 'fold', 'a superuser''s fold and recompute');
SELECT only_owner('a superuser''s fold', true);
DISCARD PLANS;
ALTER TABLE at.s ATTACH PARTITION at.s_0 FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
SELECT is((SELECT count(*) FROM rollup_late WHERE rollup = 'at.l'::regclass), 1::bigint, 'ATTACH: a key waits');
ALTER TABLE at.l RENAME COLUMN mt TO latest;
CREATE TABLE at.s_2 PARTITION OF at.s FOR VALUES FROM ('2027-01-01') TO ('2028-01-01');
ALTER TABLE at.s DETACH PARTITION at.s_2;
SELECT is((SELECT is_called FROM at.as_other), false, 'DDL of a superuser: the function has seen nobody else');
BEGIN;
ALTER TABLE at.s OWNER TO at_heir;
SELECT is((SELECT is_called FROM at.as_other), false, 'OWNER: the function has seen nobody else');
DROP TABLE at.s CASCADE;
SELECT is((SELECT is_called FROM at.as_other), false, 'DROP: the function has seen nobody else');
ROLLBACK;
SELECT rollup_refresh('at.l', '2026-01-06 00:00Z');
SELECT only_owner('a superuser''s DDL and refresh', true);
SELECT is(see('at_owner', $$SELECT at_helpers.exact('at.l')$$), 'true', 'exactly');
SELECT setval('at.as_owner', 1, false);
SELECT lives_ok($$SELECT rollup_drop('at.l', true)$$, 'a superuser drops it');
SELECT only_owner('rollup_drop', false);
DROP TABLE at.s, at.s_2;

-- ==== A trigger of ours under another name: nobody's DROP is concerned.
-- Protects inspect and inspect_triggers in drop.c, which go by the server's list
-- of dropped objects.
SET ROLE at_owner;
CREATE TABLE at.s (k text NOT NULL, t timestamptz NOT NULL, v int);
INSERT INTO at.s VALUES ('a', '2026-01-01', 1);
SELECT rollup_create('at.l', 'SELECT k, count(*) AS n, sum(v) AS total FROM at.s GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('at.l', '2026-01-03 00:00Z');
RESET ROLE;
SELECT id, marks FROM dailyrollup.rollups WHERE live = 'at.l'::regclass \gset
CREATE FUNCTION rename_triggers(there text, here text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(try('at_owner', format('ALTER TRIGGER %s ON at.s RENAME TO %s', format(there, event), format(here, event))), ' ')
  FROM unnest('{insert,update,delete,truncate}'::text[]) event
$$;
SELECT is(rename_triggers(format('dailyrollup_%s_%%s', :id), 'zz_%s'), 'ok ok ok ok', 'the owner renames the triggers');
CREATE FUNCTION others_drop(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  role text;
BEGIN
  FOREACH role IN ARRAY ARRAY['at_stranger', 'at_owner', current_user::text] LOOP
    RETURN QUERY SELECT is(try(role, statement), 'ok', format('%s: %s: %s', what, role, statement))
    FROM unnest(ARRAY[
      'CREATE TEMP TABLE foo (a int, b int); DROP TABLE foo',
      'CREATE TABLE at.foo (a int, b int); ALTER TABLE at.foo DROP COLUMN b; DROP TABLE at.foo',
      'CREATE VIEW at.foo AS SELECT 1 AS one; DROP VIEW at.foo',
      'CREATE FUNCTION at.foo() RETURNS int LANGUAGE sql AS ''SELECT 1''; DROP FUNCTION at.foo()',
      'CREATE TYPE at.foo AS (a int); DROP TYPE at.foo CASCADE',
      'CREATE TABLE at.foo (a int PRIMARY KEY); ALTER TABLE at.foo DROP CONSTRAINT foo_pkey; DROP TABLE at.foo',
      'CREATE TABLE at.foo (a int) PARTITION BY RANGE (a); CREATE TABLE at.foo_1 PARTITION OF at.foo DEFAULT; DROP TABLE at.foo_1; DROP TABLE at.foo',
      format('CREATE TABLE at.foo (a int); CREATE TRIGGER dailyrollup_%s_insert AFTER INSERT ON at.foo EXECUTE FUNCTION suppress_redundant_updates_trigger(); DROP TRIGGER dailyrollup_%1$s_insert ON at.foo; DROP TABLE at.foo', (SELECT r.id FROM dailyrollup.rollups r WHERE r.live = 'at.l'::regclass))]) statement;
  END LOOP;
END $$;
SELECT others_drop('triggers renamed');
SELECT is(try('at_owner', $$SELECT rollup_refresh('at.l', '2026-01-03 00:00Z')$$), '55000 trigger "dailyrollup_N_insert" of "at.s" is missing', 'the refresh tells');
SELECT is(rename_triggers('zz_%s', format('dailyrollup_%s_%%s', :id)), 'ok ok ok ok', 'named as before');
SELECT is(try('at_owner', $$SELECT rollup_refresh('at.l', '2026-01-03 00:00Z')$$), 'ok', 'it is refreshed again');
SELECT is(try('at_owner', statement), 'ok', statement) FROM unnest(ARRAY['ALTER TABLE at.s DISABLE TRIGGER ALL', format('ALTER TABLE %s SET SCHEMA at', :'marks'),
  format('ALTER TABLE at.%s RENAME TO moved', split_part(:'marks', '.', 2)), 'ALTER VIEW at.l_current RENAME TO moved_view', 'ALTER TABLE at.l RENAME TO moved_live']) statement;
ALTER TABLE at.moved_live RENAME TO l;
SELECT others_drop('all that belongs to the owner moved');
SELECT lives_ok($$SELECT rollup_drop('at.l', true)$$, 'and is dropped');

-- ==== The view live_current for those who read it through something else,
-- while a key waits: whoever has rights gets rows, nobody else does.
-- Protects check_permit in current.c, and who may make a permit (permit.c).
SET ROLE at_owner;
TRUNCATE at.s;
ALTER TABLE at.s ENABLE TRIGGER ALL;
INSERT INTO at.s VALUES ('a', '2026-01-01', 1);
SELECT rollup_create('at.l', 'SELECT k, count(*) AS n, sum(v) AS total FROM at.s GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('at.l', '2026-01-03 00:00Z');
CREATE VIEW at.over AS SELECT * FROM at.l_current;
CREATE VIEW at.over_over AS SELECT k, n FROM at.over;
CREATE VIEW at.barrier WITH (security_barrier) AS SELECT * FROM at.l_current;
CREATE VIEW at.invoker WITH (security_invoker) AS SELECT * FROM at.l_current;
CREATE MATERIALIZED VIEW at.stored AS SELECT * FROM at.l_current;
CREATE FUNCTION at.plain(text) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT n FROM at.l_current WHERE k = $1';
CREATE FUNCTION at.rows() RETURNS TABLE (k text, n bigint) LANGUAGE sql STABLE AS 'SELECT k, n FROM at.l_current';
CREATE FUNCTION at.definer(text) RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER AS 'SELECT n FROM at.l_current WHERE k = $1';
CREATE FUNCTION at.block(text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT n FROM at.l_current WHERE k = $1); END $$;
GRANT SELECT ON at.over, at.over_over, at.barrier, at.invoker TO at_reader;
GRANT SELECT (k, n) ON at.l_current TO at_writer;
GRANT INSERT ON at.s TO at_writer;
RESET ROLE;
CREATE FUNCTION readers(what text, n text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT is(see(role, query), CASE WHEN may THEN n ELSE '42501: permission denied for view l_current' END, format('%s: %s: %s', what, role, query))
  FROM (VALUES
    ('at_reader', $s$SELECT n FROM at.over WHERE k = 'a'$s$, true),
    ('at_reader', $s$SELECT n FROM at.over_over WHERE k = 'a'$s$, true),
    ('at_reader', $s$SELECT n FROM at.barrier WHERE k = 'a'$s$, true),
    ('at_reader', $s$SELECT max(n) FROM at.over$s$, true),
    ('at_reader', $s$SELECT n FROM at.invoker WHERE k = 'a'$s$, false),
    ('at_reader', $s$SELECT at.definer('a')$s$, true),
    ('at_reader', $s$SELECT at.plain('a')$s$, false),
    ('at_reader', $s$SELECT n FROM at.rows() WHERE k = 'a'$s$, false),
    ('at_stranger', $s$SELECT at.definer('a')$s$, true),
    ('at_stranger', $s$SELECT at.plain('a')$s$, false),
    ('at_writer', $s$SELECT n FROM at.l_current WHERE k = 'a'$s$, true),
    ('at_writer', $s$SELECT at.plain('a')$s$, true),
    ('at_writer', $s$SELECT n FROM at.rows() WHERE k = 'a'$s$, true),
    ('at_writer', $s$SELECT at.block('a')$s$, true),
    ('at_writer', $s$SELECT total FROM at.l_current WHERE k = 'a'$s$, false),
    ('at_writer', $s$SELECT at.definer('a')$s$, true),
    ('at_member', $s$SELECT n FROM at.l_current WHERE k = 'a'$s$, true),
    ('at_member', $s$SELECT at.block('a')$s$, true),
    ('at_owner', $s$SELECT n FROM at.invoker WHERE k = 'a'$s$, true),
    ('postgres', $s$SELECT n FROM at.over WHERE k = 'a'$s$, true),
    ('at_stranger', $s$SELECT n FROM at.l_current WHERE k = 'a'$s$, false)) v(role, query, may);
END $$;
SELECT readers('no key waits', '1');
SELECT is(try('at_writer', $$INSERT INTO at.s VALUES ('a', '2026-01-01', 2)$$), 'ok', 'a late row');
SELECT readers('a key waits', '2');
SELECT is(try('at_owner', 'REFRESH MATERIALIZED VIEW at.stored'), 'ok', 'a materialized view');
SELECT is((SELECT n FROM at.stored WHERE k = 'a'), 2::bigint, 'which has the late row');
-- by the functions behind the view: what the view shows to them only the owner can
-- make, from his table's name
SELECT id, marks, definition, key_type FROM dailyrollup.rollups WHERE live = 'at.l'::regclass \gset
SET ROLE at_stranger;
CREATE TYPE at.holder AS (p dailyrollup._permit);
CREATE DOMAIN at.permit AS dailyrollup._permit;
CREATE FUNCTION at.make(text) RETURNS dailyrollup._permit LANGUAGE plpgsql AS $$ BEGIN RETURN $1; END $$;
RESET ROLE;
SELECT is(try(role, 'SELECT ' || way), '42501 must be owner of table at.l', format('%s: %s', role, way))
FROM unnest('{at_reader,at_writer,at_stranger}'::text[]) role,
     unnest(ARRAY[$$'at_owner.at.l'::dailyrollup._permit$$, $$CAST(text 'at_owner.at.l' AS dailyrollup._permit)$$, $$'at_stranger.at.l'::dailyrollup._permit$$, $$'{at_owner.at.l}'::dailyrollup._permit[]$$,
                  $$at.make('at_owner.at.l')$$, $$jsonb_populate_record(NULL::at.holder, '{"p": "at_owner.at.l"}')$$, $$'(at_owner.at.l)'::at.holder$$, $$'at_owner.at.l'::at.permit$$]) way;
SELECT is(try(role, format('SELECT q.* FROM (%s) q', text)), '42501 must be owner of table at.l', role || ': the view''s own text')
FROM unnest('{at_reader,at_writer,at_stranger}'::text[]) role, LATERAL (SELECT rtrim(pg_get_viewdef('at.l_current'), ';')) d(text);
SELECT is(typreceive::oid, 0::oid, 'no binary form') FROM pg_type WHERE oid = 'dailyrollup._permit'::regtype;
SELECT is_empty($$SELECT FROM pg_cast WHERE 'dailyrollup._permit'::regtype IN (castsource, casttarget)$$, 'no cast');
SELECT is(see(role, format(call, :'definition', :'key_type')), answer, format('%s: without one: %s', role, call))
FROM unnest('{at_reader,at_writer,at_stranger,at_owner}'::text[]) role, (VALUES
  ('SELECT count(*) FROM dailyrollup._current_row(NULL, NULL::%1$s, ''d'', ''(0,1)'', ''a''::text)', '0'),
  ('SELECT dailyrollup._unmarked(NULL, NULL::%2$s, ''a''::text)', NULL), ('SELECT dailyrollup._settled(NULL, NULL::%2$s, ''a''::text)', NULL)) v(call, answer);
SELECT is(try('at_owner', format('SELECT %L::dailyrollup._permit', name)), message, 'of ' || name)
FROM (VALUES ('at_owner.at.nothing', '42P01 relation "at.nothing" does not exist'), ('at_owner.nothing.l', '42P01 relation "nothing.l" does not exist'),
             ('at.l', '42602 invalid name of an owner''s table: "at.l"'), ('l', '42602 invalid name of an owner''s table: "l"'), ('a.at_owner.at.l', '42602 invalid name of an owner''s table: "a.at_owner.at.l"'),
             ('', '42602 invalid name syntax'), ('0', '42602 invalid name of an owner''s table: "0"'), ('at_owner..l', '42602 invalid name syntax'), ('-', 'ok')) v(name, message);
SELECT is(see('at_owner', format('SELECT %L::dailyrollup._permit', name)), prints, 'the owner makes one of ' || name || ', and reads it')
FROM (VALUES ('at_owner.at.l', 'at_owner.at.l'), ('AT_owner."at".l', 'at_owner.at.l'), ('at_stranger.at.l', '-'), ('nobody.at.l', '-'), ('-', '-')) v(name, prints);
SELECT is(try('at_owner', format('SELECT dailyrollup._unmarked(%L, NULL::%s, ''a''::text)', name, :'key_type')), '42501 permission denied for rollup "at.l"', 'worth nothing: ' || name)
FROM unnest('{at_stranger.at.l,nobody.at.l}'::text[]) name;
SELECT is(see('at_stranger', format('SELECT dailyrollup._unmarked(''-'', NULL::%s, ''a''::text)', :'key_type')), 'true', 'of nothing no key is marked');
SELECT is(see('at_stranger', format('SELECT count(*) FROM dailyrollup._current_row(''-'', NULL::%s, ''d'', ''(0,1)'', ''a''::text)', :'definition')), '0', 'nor is there a row of it');
SELECT is(try('at_owner', format('SELECT * FROM dailyrollup._current_row(''at_owner.at.s'', NULL::%s, ''d'', ''(0,1)'', ''a''::text)', :'definition')), '42704 "at.s" is not a rollup', 'of a table that is no rollup');
SELECT is(see('at_owner', format('SELECT n FROM %s m, dailyrollup._current_row(''at_owner.at.l'', NULL::%s, m.dirties, m.ctid, m.k1)', :'marks', :'definition')), '2', 'with it it is the row');
SELECT is(see('at_owner', format('SELECT count(*) FROM dailyrollup._current_row(''at_owner.at.l'', NULL::%s, ''d'', ''(7,7)'', ''a''::text)', :'definition')), '0', 'of a mark that is there');
SELECT is(see('at_owner', format('SELECT count(*) FROM dailyrollup._current_row(''at_owner.at.l'', NULL::%s, ''d'', ''(4294967295,0)'', ''a''::text)', :'definition')), '0', 'not of a place that none can have');
SELECT is(see('at_owner', format('SELECT count(*) FROM dailyrollup._current_row(''at_owner.at.l'', NULL::%s, %s, ''a''::text)', :'definition', mark)), '0', 'nor of none: ' || mark)
FROM unnest(ARRAY['NULL, ''(0,1)''', '''d'', NULL']) mark;
SET ROLE at_owner;
CREATE TABLE at.s_other (k text NOT NULL, t timestamptz NOT NULL);
SELECT rollup_create('at.l_other', 'SELECT k, count(*) AS n FROM at.s_other GROUP BY k', 't', mode => 'on');
RESET ROLE;
SELECT is(see('at_owner', 'SELECT string_agg(dailyrollup._unmarked(p, 1, ''a''::text)::text, '' '') FROM (VALUES (''at_owner.at.l''::dailyrollup._permit), (''at_owner.at.l_other''), (''at_owner.at.l'')) v(p)'), 'false true false', 'each permit is looked at');
SELECT rollup_drop('at.l_other', true);
DROP TABLE at.s_other;
SELECT is(see('at_owner', format('SELECT dailyrollup._%2$s(''at_owner.at.l'', NULL::%1$s, ''a''::text) || '' '' || dailyrollup._%2$s(''at_owner.at.l'', NULL::%1$s, ''b''::text)', :'key_type', name)), 'false true', 'and it tells which keys are marked: ' || name)
FROM unnest('{unmarked,settled}'::text[]) name;
SELECT is(try('at_owner', format('SELECT dailyrollup._%s(''at_owner.at.l'', NULL::%s, %s)', name, :'key_type', key)), '22023 the arguments are not a key of this rollup', format('a key of another type: %s of %s', name, key))
FROM unnest(ARRAY['1', '''a''::text, 1', 'VARIADIC ''{a}''::text[]']) key, unnest('{unmarked,settled}'::text[]) name;
SELECT is(try('at_owner', format('SELECT * FROM dailyrollup._current_row(''at_owner.at.l'', NULL::%s, ''d'', ''(0,1)'', %s)', :'definition', key)), '22023 the arguments are not a key of this rollup', 'of a row, too: ' || key)
FROM unnest(ARRAY['1', '''a''::text, 1', 'VARIADIC ''{a}''::text[]']) key;
SELECT is(try(role, format('SELECT %s FROM %s', what, relation)), '42501 permission denied for ' || message, format('%s: %s of %s', role, what, relation))
FROM unnest('{at_reader,at_writer,at_stranger}'::text[]) role,
     (VALUES ('k1', :'marks', 'table marks_N'), ('proof', 'dailyrollup.rollups', 'table rollups'), ('proof', 'dailyrollup._visible_rollups', 'view _visible_rollups')) v(what, relation, message);
SELECT hasnt_column('public', 'rollup_status', 'proof', 'nobody is shown the secret of the write-time fold');
-- nor does anybody have others' plans made anew
SELECT is(try(role, 'SELECT dailyrollup._not_plain(''at.s''::regclass)'), '42501 must be owner of table s', role || ': tells that a key is not plain')
FROM unnest('{at_reader,at_writer,at_stranger}'::text[]) role;
SELECT is(see('at_owner', format('SELECT coalesce(dailyrollup._not_plain(%s)::text, ''nothing'')', source)), 'nothing', 'the owner does so of ' || source)
FROM unnest(ARRAY['''at.s''::regclass', '0', '4294967294']) source;
-- one's own permit lets one see nothing of others
SET ROLE at_stranger;
CREATE TABLE at.s_stranger (k text NOT NULL, t timestamptz NOT NULL, v int);
SELECT rollup_create('at.l_stranger', 'SELECT k, count(*) AS n, sum(v) AS total FROM at.s_stranger GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('at.l_stranger', '2026-01-03 00:00Z');
INSERT INTO at.s_stranger VALUES ('a', '2026-01-01', 1);
RESET ROLE;
SELECT isnt(try('at_stranger', format('SELECT * FROM dailyrollup._current_row(''at_stranger.at.l_stranger'', NULL::%s, ''d'', ''(0,1)'', ''a''::text)', :'definition')),
            'ok', 'the row type of another rollup');
-- what the owner has given away is worth nothing once live is another's
CREATE TABLE at.kept AS SELECT NULL::dailyrollup._permit AS p WHERE false;
GRANT SELECT ON at.kept TO at_stranger;
GRANT INSERT ON at.kept TO at_owner, at_stranger;
SELECT is(try('at_owner', 'INSERT INTO at.kept VALUES (''at_owner.at.l'')'), 'ok', 'the owner gives his permit to others');
SELECT is(see('at_stranger', format('SELECT dailyrollup._unmarked(p, NULL::%s, ''a''::text) FROM at.kept', :'key_type')), 'false', 'who may ask then');
SELECT is(try('at_stranger', 'INSERT INTO at.kept VALUES (''at_stranger.at.l_stranger'')'), 'ok', 'somebody else''s own');
SELECT is(see('at_stranger', format('SELECT string_agg(dailyrollup._unmarked(p, NULL::%s, key)::text, '' '') FROM at.kept, unnest(ARRAY[''a'', ''b'']) key', :'key_type')), 'false false true true', 'both in one query');
ALTER TABLE at.s OWNER TO at_member;
SELECT is(try('at_stranger', format('SELECT dailyrollup._%s(p, NULL::%s, ''a''::text) FROM at.kept', name, :'key_type')),
          '42501 permission denied for rollup "at.l"', 'after live was handed over: ' || name)
FROM unnest('{unmarked,settled}'::text[]) name;
SELECT is(try('at_stranger', format('SELECT r.* FROM at.kept, dailyrollup._current_row(p, NULL::%s, ''d'', ''(0,1)'', ''a''::text) r', :'definition')),
          '42501 permission denied for rollup "at.l"', 'nor is there a row');
SELECT is(see('at_writer', $$SELECT n FROM at.l_current WHERE k = 'a'$$), '2', 'who may read the view does');
ALTER TABLE at.s OWNER TO at_owner;
SELECT readers('live was handed over, and back', '2');
-- nor is what a superuser restores of what former owners have kept: it names them
SET ROLE at_owner;
CREATE TABLE at.s_restored (k text NOT NULL, t timestamptz NOT NULL);
SELECT rollup_create('at.l_restored', 'SELECT k, count(*) AS n FROM at.s_restored GROUP BY k', 't', mode => 'on');
GRANT SELECT ON at.l_restored_current TO at_reader;
CALL rollup_run('at.l_restored');
INSERT INTO at.s_restored VALUES ('a', '2026-01-01');
RESET ROLE;
CREATE FUNCTION asked() RETURNS text LANGUAGE sql AS $$ SELECT try('at_stranger', 'SELECT dailyrollup._unmarked(p, 1, ''a''::text) FROM at.kept') $$;
CREATE PROCEDURE restore(kept text, shown text) LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM at.kept;
  EXECUTE format('INSERT INTO at.kept VALUES (%L)', kept || '.at.l_restored');
  EXECUTE format('CREATE OR REPLACE VIEW at.l_restored_current AS %s', regexp_replace(pg_get_viewdef('at.l_restored_current'), '''\w+(\.at\.l_restored''::dailyrollup\._permit)', '''' || shown || '\1', 'g'));
END $$;
CALL restore('at_writer', 'at_owner');
SELECT is(asked(), '42501 permission denied for rollup "at.l_restored"', 'a superuser has restored what a former owner has kept');
SELECT is(see('at_reader', 'SELECT n FROM at.l_restored_current'), '1', 'and the view: readers read');
CALL restore('at_writer', 'at_member');
SELECT is(asked(), '42501 permission denied for rollup "at.l_restored"', 'likewise for another owner');
SELECT is(see('at_reader', 'SELECT n FROM at.l_restored_current'), '1', 'and readers read');
CALL restore('gone', 'gone');
SELECT is(asked(), 'ok', 'without both roles, what was kept counts so far');
SELECT is(see('at_reader', 'SELECT n FROM at.l_restored_current'), '1', 'and readers read');
SET ROLE at_owner;
CALL rollup_run('at.l_restored');
INSERT INTO at.s_restored VALUES ('b', '2026-01-01');
RESET ROLE;
SELECT is(asked(), '42501 permission denied for rollup "at.l_restored"', 'a pass has put the owner''s into the view');
SELECT is(see('at_reader', 'SELECT string_agg(k || n, '' '' ORDER BY k) FROM at.l_restored_current'), 'a1 b1', 'readers read');
-- not where the superuser owns it himself, as who restores without owners
ALTER TABLE at.s_restored OWNER TO postgres;
CALL restore('at_owner', 'postgres');
SELECT is(asked(), '42501 permission denied for rollup "at.l_restored"', 'a former owner''s, of a superuser''s rollup');
ALTER TABLE at.s_restored OWNER TO at_owner;
DROP PROCEDURE restore;
DROP FUNCTION asked;
SET ROLE at_owner;
SELECT rollup_drop('at.l_restored', true);
DROP TABLE at.s_restored;
RESET ROLE;
DROP TABLE at.kept;
SET ROLE at_stranger;
DROP FUNCTION at.make;
DROP DOMAIN at.permit;
DROP TYPE at.holder;
RESET ROLE;
SELECT rollup_drop('at.l_stranger', true);

DROP MATERIALIZED VIEW at.stored;
DROP VIEW at.over_over, at.over, at.barrier, at.invoker;

-- ==== The views of status show no row of others, whatever function filters them.
-- Protects security_barrier of the views (install script).
SET ROLE at_stranger;
CREATE FUNCTION at.leak(text) RETURNS bool LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
  RAISE EXCEPTION 'leaked %', $1;
END $$;
RESET ROLE;
SELECT is(see('at_stranger', format('SELECT count(*) FROM %s WHERE at.leak(%s::text)', view, shows)), '0', format('%s: %s of %s', 'no leak', shows, view))
FROM (VALUES ('rollup_runs', 'rollup'), ('rollup_runs', 'to_time'), ('rollup_runs', 'id'), ('rollup_status', 'rollup'), ('rollup_status', 'watermark'),
             ('rollup_status', 'source'), ('rollup_late', 'rollup'), ('rollup_late', 'key')) v(view, shows);

-- ==== Owners.  That of live and of our objects is the source's: refused alone;
-- they follow the source, and REASSIGN OWNED.  Protects check_owner and
-- follow_owner in ddl.c.
GRANT at_owner TO at_heir;
CREATE FUNCTION owners() RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(DISTINCT relowner::regrole::text, ' ') || ', type: ' || string_agg(DISTINCT typowner::regrole::text, ' ')
  FROM dailyrollup.rollups r JOIN pg_class c ON c.oid IN (r.live, r.current_view, r.events, r.definition, r.marks, r.source)
  JOIN pg_type t ON t.oid = r.key_type WHERE r.live = 'at.l'::regclass
$$;
SELECT current_view, events, key_type FROM dailyrollup.rollups WHERE live = 'at.l'::regclass \gset
SELECT is(try(role, format('ALTER %s %s OWNER TO at_heir', kind, relation)),
          format('55000 "%s" belongs to the owner of the source of rollup "at.l"', regexp_replace(relation, '_\d+', '_N')), format('%s: OWNER of %s alone', role, relation))
FROM unnest('{at_heir,postgres}'::text[]) role,
     (VALUES ('TABLE', 'at.l'), ('TABLE', :'marks'), ('VIEW', 'at.l_current'), ('TABLE', 'at.l_current'), ('VIEW', :'events'), ('VIEW', :'definition')) v(kind, relation)
WHERE role = 'postgres' OR relation !~ 'dailyrollup';
SELECT is(owners(), 'at_owner, type: at_owner', 'all is as it was');
SELECT is(try('at_writer', $$INSERT INTO at.s VALUES ('w', '2026-01-01', 2)$$), 'ok', 'a late row');
CREATE FUNCTION served(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN NEXT is(owners(), 'at_heir, type: at_heir', what || ': all belongs to the heir');
  RETURN NEXT is(try('at_writer', $s$INSERT INTO at.s VALUES ('late', '2026-01-02', 2), ('a', '2026-01-02', 3)$s$), 'ok', what || ': late rows');
  RETURN NEXT is(see('at_writer', $s$SELECT n FROM at.l_current WHERE k = 'late'$s$), '1', what || ': read');
  RETURN NEXT is(see('at_heir', $s$SELECT action FROM rollup_refresh('at.l', '2026-01-03 00:00Z')$s$), 'late', what || ': refreshed');
  RETURN NEXT ok(exact('at.l'), what || ': exact');
  RETURN NEXT is(try('at_heir', $s$SELECT rollup_reseed('at.l'), rollup_refresh('at.l', '2026-01-05 00:00Z')$s$), 'ok', what || ': reseeded');
  RETURN NEXT ok(exact('at.l'), what || ': exact');
END $$;
BEGIN;
SELECT is(try('at_heir', 'ALTER TABLE at.s OWNER TO at_heir'), 'ok', 'OWNER of the source');
SELECT served('OWNER of the source');
SELECT is(try('at_owner', $$SELECT rollup_refresh('at.l')$$), '42501 must be owner of table l', 'the old owner has no say');
SELECT is(try('at_heir', $$SELECT rollup_drop('at.l', true)$$), 'ok', 'the heir drops it');
ROLLBACK;
BEGIN;
ALTER TABLE at.l ADD COLUMN note text;
SELECT is(try('postgres', 'ALTER TABLE at.s OWNER TO at_heir, ADD COLUMN more int'), 'ok', 'OWNER of the source among others, by a superuser');
SELECT is(owners(), 'at_heir, type: at_heir', 'all follows');
ROLLBACK;
BEGIN;
REASSIGN OWNED BY at_owner TO at_heir;
SELECT served('REASSIGN OWNED');
ROLLBACK;
SELECT is(owners(), 'at_owner, type: at_owner', 'all is as it was');
SELECT is(try('at_owner', $$SELECT rollup_drop('at.l', true)$$), 'ok', 'dropped');
DROP TABLE at.s CASCADE;

-- ==== ATTACH of a partition that the rollup's owner may not read: its keys are
-- marked all the same.  Protects mark_partition in late.c.
SET ROLE at_owner;
CREATE TABLE at.s (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY RANGE (t);
CREATE TABLE at.s_1 PARTITION OF at.s FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
INSERT INTO at.s VALUES ('a', '2026-01-01', 1);
SELECT rollup_create('at.l', 'SELECT k, count(*) AS n, sum(v) AS total FROM at.s GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('at.l', '2026-01-03 00:00Z');
RESET ROLE;
SET ROLE at_member;
CREATE TABLE at.s_0 (gone int, v int, t timestamptz NOT NULL, k text NOT NULL);
ALTER TABLE at.s_0 DROP COLUMN gone;
INSERT INTO at.s_0 (k, t, v) VALUES ('a', '2025-06-01', 2), ('x', '2025-06-01', 4), ('x', '2025-06-02', 8);
CREATE TABLE at.s_sub (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY LIST (k);
CREATE TABLE at.s_sub_a PARTITION OF at.s_sub FOR VALUES IN ('a');
CREATE TABLE at.s_sub_rest PARTITION OF at.s_sub DEFAULT;
INSERT INTO at.s_sub VALUES ('a', '2024-06-01', 16), ('y', '2024-06-01', 32);
CREATE TABLE at.s_2 (k text NOT NULL, t timestamptz NOT NULL, v int);
INSERT INTO at.s_2 VALUES ('z', '2026-02-01', 64);
RESET ROLE;
SELECT is(has_table_privilege('at_owner', 'at.s_0', 'SELECT'), false, 'the owner may not read the partition');
SELECT is(try('at_member', 'ALTER TABLE at.s ATTACH PARTITION at.s_0 FOR VALUES FROM (''2025-01-01'') TO (''2026-01-01'')'), 'ok', 'a member attaches his own table');
SELECT is((SELECT string_agg(key->>'k', ' ' ORDER BY key->>'k') FROM rollup_late), 'a x', 'its keys wait');
SELECT is(see('at_owner', $$SELECT total FROM at.l_current WHERE k = 'x'$$), '12', 'and are read');
SELECT is(try('at_member', 'ALTER TABLE at.s ATTACH PARTITION at.s_sub FOR VALUES FROM (''2024-01-01'') TO (''2025-01-01'')'), 'ok', 'a partitioned one');
SELECT is(try('at_member', 'ALTER TABLE at.s ATTACH PARTITION at.s_2 FOR VALUES FROM (''2026-02-01'') TO (''2026-03-01'')'), 'ok', 'one after the watermark');
SELECT is((SELECT string_agg(key->>'k', ' ' ORDER BY key->>'k') FROM rollup_late), 'a x y', 'the keys that lie before the watermark wait');
SELECT is(see('at_owner', $$SELECT action FROM rollup_refresh('at.l', '2026-01-03 00:00Z')$$), 'late', 'refreshed');
SELECT ok(exact('at.l'), 'exactly');
SELECT is(try('at_member', 'TRUNCATE at.s_sub_rest'), 'ok', 'its owner truncates a leaf');
SELECT is((SELECT watermark FROM rollup_status), NULL, 'which is noticed');
SELECT is(try('at_owner', $$SELECT rollup_refresh('at.l', '2026-01-03 00:00Z')$$), 'ok', 'refreshed');
SELECT ok(exact('at.l'), 'exactly');
SELECT rollup_drop('at.l', true);
DROP TABLE at.s;

-- ==== Default privileges reach the user's tables, and nothing of ours: our
-- views and marks hold the source's rows.  Protects revoke_grants in create.c.
SET ROLE at_owner;
CREATE TABLE at.s (k text NOT NULL, t timestamptz NOT NULL, v int);
INSERT INTO at.s VALUES ('a', '2026-01-01', 1);
RESET ROLE;
GRANT INSERT ON at.s TO at_writer;
CREATE FUNCTION closed(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  r dailyrollup.rollups;
BEGIN
  PERFORM set_config('role', 'at_owner', true);
  PERFORM public.rollup_create('at.l', 'SELECT k, count(*) AS n, sum(v) AS total FROM at.s GROUP BY k', 't', mode => 'on');
  PERFORM public.rollup_refresh('at.l', '2026-01-03 00:00Z');
  INSERT INTO at.s VALUES ('a', '2026-01-01', 2);
  RESET ROLE;
  SELECT * INTO r FROM dailyrollup.rollups WHERE live = 'at.l'::regclass;
  RETURN QUERY SELECT is(left(try(role, statement), 5), '42501', format('%s: %s may not: %s', what, role, regexp_replace(statement, '_\d+', '_N')))
  FROM unnest('{at_reader,at_stranger}'::text[]) role, unnest(ARRAY[r.events, r.definition, r.marks]) relation,
       unnest(ARRAY[format('SELECT * FROM %s', relation), format('DELETE FROM %s', relation)]) statement
  WHERE relation = r.marks OR statement ~ 'SELECT';
  RETURN NEXT is((SELECT string_agg(acl, ' ') FROM (SELECT a.grantee::regrole || ' ' || a.privilege_type AS acl FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid IN (r.events, r.definition, r.marks) AND a.grantee <> c.relowner) g), NULL, what || ': nothing is granted');
  RETURN NEXT is(try('at_writer', $s$INSERT INTO at.s VALUES ('b', '2026-01-01', 2)$s$), 'ok', what || ': a writer writes a late row');
  RETURN NEXT is(see('at_owner', 'SELECT sum(n) FROM at.l_current'), '3', what || ': the owner reads');
  PERFORM set_config('role', 'at_owner', true);
  RETURN NEXT is((SELECT action FROM public.rollup_refresh('at.l', '2026-01-03 00:00Z')), 'late', what || ': and refreshes');
  RESET ROLE;
  RETURN NEXT ok(exact('at.l'), what || ': exactly');
END $$;
BEGIN;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO at_reader;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC;
SELECT closed('default privileges of the extension''s owner');
ROLLBACK;
BEGIN;
ALTER DEFAULT PRIVILEGES FOR ROLE at_owner GRANT ALL ON TABLES TO at_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE at_owner GRANT ALL ON TABLES TO PUBLIC;
SELECT closed('default privileges of the rollup''s owner');
SELECT is(try('at_reader', 'SELECT * FROM at.l_current'), 'ok', 'the view is granted as its owner said');
ROLLBACK;
BEGIN;
ALTER DEFAULT PRIVILEGES FOR ROLE at_owner IN SCHEMA at GRANT ALL ON TABLES TO at_reader, PUBLIC;
ALTER DEFAULT PRIVILEGES IN SCHEMA dailyrollup GRANT ALL ON TABLES TO at_reader, PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE at_owner IN SCHEMA dailyrollup GRANT ALL ON TABLES TO at_reader, PUBLIC;
SELECT closed('default privileges of schemas');
ROLLBACK;
BEGIN;
CREATE ROLE "at ""rea'der";
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO "at ""rea'der";
ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TYPES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE at_owner REVOKE ALL ON TYPES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE at_owner REVOKE ALL ON FUNCTIONS FROM PUBLIC;
SELECT closed('nothing for PUBLIC');
ROLLBACK;
-- when the extension is made
BEGIN;
DROP EXTENSION dailyrollup;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TYPES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO at_reader, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO at_reader, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO at_reader, PUBLIC;
CREATE EXTENSION dailyrollup SCHEMA public;
SELECT closed('default privileges older than the extension');
SELECT is(left(try('at_reader', statement), 5), '42501', 'default privileges older than the extension: at_reader may not: ' || statement)
FROM unnest(ARRAY['SELECT * FROM dailyrollup.rollups', 'SELECT * FROM dailyrollup.runs', 'SELECT * FROM dailyrollup._visible_rollups', 'UPDATE dailyrollup.rollups SET watermark = NULL',
                  'DELETE FROM dailyrollup.runs', 'SELECT nextval(''dailyrollup.rollup_id_seq'')', 'SELECT nextval(''dailyrollup.runs_id_seq'')',
                  'CREATE TABLE dailyrollup.mine ()', 'CREATE VIEW dailyrollup.mine AS SELECT 1', 'CREATE FUNCTION dailyrollup.f() RETURNS int LANGUAGE sql AS ''SELECT 1''']) statement;
SELECT is(see('at_reader', 'SELECT count(*) FROM ' || view), '0', 'at_reader sees an empty ' || view) FROM unnest('{rollup_status,rollup_runs,rollup_late}'::text[]) view;
ROLLBACK;
DROP TABLE at.s;

-- ==== A hostile search_path, whatever command an event trigger of ours follows:
-- each operator and function of pg_catalog has a double that comes first.
-- Protects list_dropped in drop.c and list_changed in ddl.c.
CREATE SCHEMA at_evil;
GRANT USAGE ON SCHEMA at_evil TO PUBLIC;
DO $$
DECLARE
  f record;
  boom text := 'LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION ''''evil %s %%'''', current_user; END''';
BEGIN
  FOR f IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS args, oidvectortypes(p.proargtypes) AS types FROM pg_proc p
           WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a') AND p.provariadic = 0
           AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) a JOIN pg_type t ON t.oid = a WHERE t.typtype = 'p')
           AND (p.pronargs = 0 OR EXISTS (SELECT FROM unnest(p.proargtypes) a WHERE a IN ('text'::regtype, 'name'::regtype, 'oid'::regtype, 'regclass'::regtype, 'int4'::regtype,
                                          'int8'::regtype, 'bool'::regtype, '"char"'::regtype, 'timestamptz'::regtype, 'text[]'::regtype, 'jsonb'::regtype)))
  LOOP
    EXECUTE format('CREATE FUNCTION at_evil.%I(%s) RETURNS int %s', f.proname, f.types, format(boom, 'function'));
  END LOOP;
  FOR f IN SELECT o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r,
                  row_number() OVER () AS n FROM pg_operator o
           JOIN pg_type tr ON tr.oid = o.oprright AND tr.typtype <> 'p' LEFT JOIN pg_type tl ON tl.oid = o.oprleft
           WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprkind = 'b' AND tl.typtype <> 'p'
  LOOP
    EXECUTE format('CREATE FUNCTION at_evil."operator %s"(%s, %s) RETURNS bool %s', f.n, f.l, f.r, format(boom, 'operator'));
    EXECUTE format('CREATE OPERATOR at_evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = at_evil."operator %s")', f.oprname, f.l, f.r, f.n);
  END LOOP;
  FOREACH boom IN ARRAY '{text,name,oid,regclass,regproc,int4,int8,bool,regtype}'::text[] LOOP
    EXECUTE format('CREATE TYPE at_evil.%I AS (broken int)', boom);
  END LOOP;
  FOREACH boom IN ARRAY '{pg_class,pg_trigger,pg_namespace,pg_type,pg_depend,pg_inherits,pg_attribute,rollups,runs,rollup_status}'::text[] LOOP
    EXECUTE format('CREATE TABLE at_evil.%I (broken int)', boom);
  END LOOP;
END $$;
SELECT ok((SELECT count(*) > 1000 FROM pg_proc WHERE pronamespace = 'at_evil'::regnamespace), 'the schema has doubles');
CREATE FOREIGN DATA WRAPPER at_wrapper;
CREATE SERVER at_server FOREIGN DATA WRAPPER at_wrapper;
CREATE FUNCTION hostile(path pg_catalog.text, role pg_catalog.text, statement pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$
DECLARE
  message pg_catalog.text;
BEGIN
  EXECUTE pg_catalog.format('SET LOCAL search_path = %s', path);
  EXECUTE pg_catalog.format('SET LOCAL ROLE %I', role);
  EXECUTE statement;
  RESET ROLE;
  EXECUTE 'SET LOCAL search_path = at_helpers, public';
  RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
  RETURN message;
END $$;
-- a function of a superuser's that leaves the path to its caller
CREATE FUNCTION definer(statement pg_catalog.text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN EXECUTE statement; END $$;
SELECT is(hostile('at_evil, pg_catalog', 'at_stranger', 'SELECT ' || e), 'evil ' || kind || ' at_stranger', 'a hostile path: ' || e)
FROM (VALUES ('''a''::pg_catalog.text = ''a''::pg_catalog.text', 'operator'), ('now()', 'function'), ('1::pg_catalog.oid = 2::pg_catalog.oid', 'operator'),
             ('''a''::pg_catalog.text ~ ''a''::pg_catalog.text', 'operator'), ('''a''::pg_catalog.name = ''a''::pg_catalog.name', 'operator'),
             ('''a''::pg_catalog.text || ''a''::pg_catalog.text', 'operator'), ('quote_ident(''a''::pg_catalog.text)', 'function')) v(e, kind);
SET ROLE at_owner;
CREATE TABLE at.s (k text NOT NULL, t timestamptz NOT NULL, v int, w int) PARTITION BY RANGE (t);
CREATE TABLE at.s_1 PARTITION OF at.s FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE TABLE at.s_0 (k text NOT NULL, t timestamptz NOT NULL, v int, w int);
INSERT INTO at.s VALUES ('a', '2026-01-01', 1), ('b', '2026-01-04', 1);
INSERT INTO at.s_0 VALUES ('a', '2025-01-01', 1), ('c', '2025-01-04', 1);
SELECT rollup_create('at.l', 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, t) AS v, max(t) AS seen FROM at.s GROUP BY k', 't', dedup_by => '{k,t}', mode => 'on');
SELECT rollup_refresh('at.l', '2026-01-03 00:00Z');
INSERT INTO at.s VALUES ('a', '2026-01-02', 1);
RESET ROLE;
SELECT id, marks, definition, events FROM dailyrollup.rollups WHERE live = 'at.l'::regclass \gset
CREATE TABLE commands (i int GENERATED ALWAYS AS IDENTITY, statement text, says text DEFAULT 'ok');
GRANT SELECT ON commands TO PUBLIC;
INSERT INTO commands (statement) VALUES
  ('CREATE TABLE at.foo (a pg_catalog.int4)'), ('DROP TABLE at.foo'), ('CREATE VIEW at.foo AS SELECT 1 AS one'), ('DROP VIEW at.foo'), ('CREATE TEMP TABLE foo (a pg_catalog.int4)'), ('DROP TABLE pg_temp.foo'),
  ('CREATE TABLE at.s_3 PARTITION OF at.s FOR VALUES FROM (''2027-01-01'') TO (''2028-01-01'')'),
  ('TRUNCATE at.s_3'), ('DROP TABLE at.s_3'),
  ('ALTER TABLE at.s ATTACH PARTITION at.s_0 FOR VALUES FROM (''2025-01-01'') TO (''2026-01-01'')'),
  ('ALTER TABLE at.s DETACH PARTITION at.s_0'),
  ('ALTER TABLE at.s ADD COLUMN x pg_catalog.int4'), ('ALTER TABLE at.s DROP COLUMN x'), ('ALTER TABLE at.s RENAME COLUMN w TO ww'),
  ('ALTER TABLE at.l RENAME COLUMN n TO m'), ('ALTER TABLE at.l RENAME COLUMN m TO n'), ('ALTER TABLE at.l ADD COLUMN note pg_catalog.int4'), ('ALTER TABLE at.l DROP COLUMN note'),
  ('ALTER TABLE at.s RENAME TO s2'), ('ALTER TABLE at.s2 RENAME TO s'), ('ALTER VIEW at.l_current SET (security_barrier = off)'),
  ('TRUNCATE at.s_1'), ('TRUNCATE at.s'), ('DELETE FROM at.s'), ('INSERT INTO at.s VALUES (''a'', ''2026-01-01'', 1)');
INSERT INTO commands (statement, says) VALUES
  ('DROP VIEW at.l_current', 'the view belongs to rollup "at.l"'),
  (format('DROP TRIGGER dailyrollup_%s_insert ON at.s', :id), format('trigger "dailyrollup_%s_insert" belongs to rollup "at.l"', :id)),
  (format('DROP TRIGGER dailyrollup_%s_truncate ON at.s_1', :id), format('trigger "dailyrollup_%s_truncate" belongs to rollup "at.l"', :id)),
  (format('DROP VIEW %s CASCADE', :'events'), 'the view belongs to rollup "at.l"'),
  ('ALTER TABLE at.l OWNER TO at_heir', '"at.l" belongs to the owner of the source of rollup "at.l"'),
  ('ALTER TABLE at.s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', 'the source of a rollup cannot force row-level security on its owner');
INSERT INTO commands (statement) VALUES
  ('ALTER TABLE at.s OWNER TO at_heir'), ('ALTER TABLE at.s OWNER TO at_owner'),
  ('SELECT public.rollup_refresh(''at.l'', ''2026-01-05 00:00Z'')'),
  ('DROP TABLE at.s CASCADE');
INSERT INTO commands (statement, says) VALUES
  ('CREATE SCHEMA at_made CREATE TABLE s_2 PARTITION OF at.s FOR VALUES FROM (''2028-01-01'') TO (''2029-01-01'')', 'ok'),
  ('CREATE FOREIGN TABLE at.s_3 PARTITION OF at.s FOR VALUES FROM (''2027-01-01'') TO (''2028-01-01'') SERVER at_server', 'the source of a rollup cannot have a foreign partition'),
  ('REASSIGN OWNED BY at_owner TO at_heir', 'ok'), ('DROP OWNED BY at_owner CASCADE', 'ok'), ('DROP OWNED BY at_heir CASCADE', 'ok');
SELECT max(i) - 5 AS owners FROM commands \gset
BEGIN;
REVOKE at_owner FROM at_heir;
GRANT at_heir TO at_owner;
SELECT is(hostile('at_evil, pg_catalog, public', 'at_owner', statement), says, 'a hostile path, as the owner: ' || statement) FROM commands WHERE i <= :owners ORDER BY i;
ROLLBACK;
BEGIN;
SELECT is(hostile('at_evil, pg_catalog, public', 'postgres', statement), says, 'a hostile path, as a superuser: ' || statement) FROM commands WHERE statement !~ '^DROP TABLE at.s CASCADE' ORDER BY i;
ROLLBACK;
BEGIN;
SELECT is(hostile('at_evil, pg_catalog, public', 'at_stranger', format('SELECT at_helpers.definer(%L)', statement)), says, 'a hostile path, in a function of a superuser''s: ' || statement)
FROM commands WHERE statement !~ '^DROP TABLE at.s CASCADE' ORDER BY i;
ROLLBACK;
DROP TABLE commands;
SELECT rollup_drop('at.l', true);

SET search_path = public;
DROP SERVER at_server CASCADE;
DROP FOREIGN DATA WRAPPER at_wrapper;
DROP SCHEMA at, at_helpers CASCADE;
DROP SCHEMA at_evil CASCADE;
DROP OWNED BY at_owner, at_heir, at_member, at_writer, at_reader, at_stranger;
DROP ROLE at_owner, at_heir, at_member, at_writer, at_reader, at_stranger;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
