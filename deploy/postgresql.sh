#!/bin/sh
# Creates the servers' account and database when PostgreSQL of compose.yaml starts for the first time. The account is no
# superuser, and owns this database alone.
set -eu
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username=postgres --dbname=postgres <<'END'
\getenv password DATABASE_PASSWORD
CREATE ROLE stoplist LOGIN PASSWORD :'password';
CREATE DATABASE stoplist OWNER stoplist ENCODING 'UTF8' TEMPLATE template0;
END
