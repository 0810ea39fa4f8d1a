-- What each of the tests begins with.
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS dailyrollup;
SET timezone = 'UTC';
