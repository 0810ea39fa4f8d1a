// Each time a line "fold" is read, folds the rows of a CSV file as the
// benchmark's definition says; each time a line "merge" is read, merges what that
// gives into a table in a file, as it was before, and commits.  Prints how many
// milliseconds that took.  The first results of either go to files.
const { DuckDBInstance } = require('@duckdb/node-api');
const readline = require('readline');
const [rows, before, database, results] = process.argv.slice(2);

const fold = `
  SELECT subject, name, max(ts) AS ts,
    arg_max(value_number, ts) FILTER (WHERE value_number IS NOT NULL) AS value_number,
    max(ts) FILTER (WHERE value_number IS NOT NULL) AS value_number_ts,
    arg_max(value_string, ts) FILTER (WHERE value_string IS NOT NULL) AS value_string,
    max(ts) FILTER (WHERE value_string IS NOT NULL) AS value_string_ts,
    arg_max(loc_lat, ts) FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0) AS loc_lat,
    arg_max(loc_lon, ts) FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0) AS loc_lon,
    max(ts) FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0) AS loc_ts,
    count(*) AS count, min(ts) AS first_seen, max(ts) AS last_seen
  FROM (
    SELECT subject, name, ts, unnest(first) FROM (
      SELECT subject, name, ts, arg_min(
        {value_number: value_number, value_string: value_string, loc_lat: loc_lat, loc_lon: loc_lon}, cloud_event_id) AS first
      FROM day GROUP BY subject, name, ts))
  GROUP BY subject, name`;

const columns = `subject VARCHAR, name VARCHAR, ts BIGINT, value_number DOUBLE, value_number_ts BIGINT, value_string VARCHAR,
  value_string_ts BIGINT, loc_lat DOUBLE, loc_lon DOUBLE, loc_ts BIGINT, count BIGINT, first_seen BIGINT, last_seen BIGINT`;

// The table is written anew: for DuckDB that is much cheaper than an UPDATE of
// all its rows.  No row of the day is as old as any that was folded before.
const newer = (value, time) => `CASE WHEN n.${time} IS NULL THEN l.${value} ELSE n.${value} END AS ${value}`;
const merge = `
  CREATE OR REPLACE TABLE disk.live AS SELECT subject, name, coalesce(n.ts, l.ts) AS ts,
    ${newer('value_number', 'value_number_ts')}, coalesce(n.value_number_ts, l.value_number_ts) AS value_number_ts,
    ${newer('value_string', 'value_string_ts')}, coalesce(n.value_string_ts, l.value_string_ts) AS value_string_ts,
    ${newer('loc_lat', 'loc_ts')}, ${newer('loc_lon', 'loc_ts')}, coalesce(n.loc_ts, l.loc_ts) AS loc_ts,
    coalesce(l.count, 0) + coalesce(n.count, 0) AS count,
    coalesce(l.first_seen, n.first_seen) AS first_seen, coalesce(n.last_seen, l.last_seen) AS last_seen
  FROM disk.live l FULL JOIN folded n USING (subject, name)`;
const work = {
  fold: [`CREATE OR REPLACE TEMP TABLE folded AS ${fold}`],
};
work.merge = [...work.fold, merge];

(async () => {
  const instance = await DuckDBInstance.create(':memory:', { threads: '2' });
  const duckdb = await instance.connect();
  const run = async (statements) => { for (const statement of statements) await duckdb.run(statement); };
  const csv = "header = false, nullstr = ''";
  await run([
    `CREATE TABLE day AS SELECT * FROM read_csv('${rows}', ${csv}, columns = {
      subject: 'VARCHAR', name: 'VARCHAR', ts: 'BIGINT', value_number: 'DOUBLE', value_string: 'VARCHAR',
      loc_lat: 'DOUBLE', loc_lon: 'DOUBLE', cloud_event_id: 'VARCHAR'})`,
    `CREATE TABLE before (${columns})`,
    `COPY before FROM '${before}' (HEADER false, NULLSTR '')`,
    `ATTACH '${database}' AS disk`,
  ]);
  const seen = new Set();
  for await (const what of readline.createInterface({ input: process.stdin })) {
    if (!(what in work)) break;
    await run(['CREATE OR REPLACE TABLE disk.live AS FROM before', 'CHECKPOINT disk']);
    const start = process.hrtime.bigint();
    await run(work[what]);
    const ms = Number(process.hrtime.bigint() - start) / 1e6;
    if (!seen.has(what)) await duckdb.run(`COPY ${what === 'fold' ? 'folded' : 'disk.live'} TO '${results}.${what}' (HEADER false)`);
    seen.add(what);
    console.log(ms.toFixed(3));
  }
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
