// Folds the rows of a CSV file as the benchmark's definition says, each time a
// line "fold" is read, and prints how many milliseconds that took.  The first
// result goes to a file.
const { DuckDBInstance } = require('@duckdb/node-api');
const readline = require('readline');
const [rows, result] = process.argv.slice(2);

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

(async () => {
  const instance = await DuckDBInstance.create(':memory:', { threads: '2' });
  const duckdb = await instance.connect();
  await duckdb.run(`CREATE TABLE day AS SELECT * FROM read_csv('${rows}', header = false, nullstr = '', columns = {
    subject: 'VARCHAR', name: 'VARCHAR', ts: 'BIGINT', value_number: 'DOUBLE', value_string: 'VARCHAR',
    loc_lat: 'DOUBLE', loc_lon: 'DOUBLE', cloud_event_id: 'VARCHAR'})`);
  let first = true;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line !== 'fold') break;
    const start = process.hrtime.bigint();
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE folded AS ${fold}`);
    const ms = Number(process.hrtime.bigint() - start) / 1e6;
    if (first) await duckdb.run(`COPY folded TO '${result}' (FORMAT csv, HEADER false)`);
    first = false;
    console.log(ms.toFixed(3));
  }
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
