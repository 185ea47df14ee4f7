"""Stand-ins for the functions and the catalogue of Citus. They record calls and move nothing.

Each node of theirs is this server, asked with the synchronous_commit that the catalogue gives the node.
"""

from typing import Any

from stoplist.db import Database
from tests.builders import execute, sql

_MAKE = (
    """CREATE TABLE pg_dist_partition (logicalrelid regclass PRIMARY KEY, partmethod "char" NOT NULL,
        partkey text, colocationid integer NOT NULL, repmodel "char" NOT NULL DEFAULT 's')""",
    """CREATE TABLE recorded (number BIGINT GENERATED ALWAYS AS IDENTITY, what TEXT NOT NULL,
        in_transaction xid8 NOT NULL)""",
    """CREATE FUNCTION create_distributed_table(table_name regclass, distribution_column text,
        colocate_with text DEFAULT 'default') RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            its_group integer := 7;
        BEGIN
            IF colocate_with <> 'none' THEN
                SELECT colocationid INTO STRICT its_group FROM pg_dist_partition
                WHERE logicalrelid = CAST(colocate_with AS regclass);
            END IF;
            INSERT INTO pg_dist_partition VALUES (table_name, 'h', distribution_column, its_group)
            ON CONFLICT (logicalrelid) DO UPDATE SET partmethod = 'h', partkey = distribution_column,
                colocationid = its_group;
            INSERT INTO recorded (what, in_transaction)
            VALUES (concat_ws(' ', table_name, distribution_column, colocate_with), pg_current_xact_id());
        END $$""",
    """CREATE FUNCTION truncate_local_data_after_distributing_table(table_name regclass) RETURNS void
        LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM 1 FROM pg_dist_partition WHERE logicalrelid = table_name AND partmethod = 'h';
            IF NOT FOUND THEN
                RAISE EXCEPTION 'not a distributed table';
            END IF;
            INSERT INTO recorded (what, in_transaction)
            VALUES (concat_ws(' ', 'truncate', table_name), pg_current_xact_id());
        END $$""",
    """CREATE TABLE pg_dist_node (nodeid integer PRIMARY KEY, groupid integer NOT NULL, nodename text NOT NULL,
        nodeport integer NOT NULL DEFAULT 5432, isactive boolean NOT NULL DEFAULT true,
        noderole text NOT NULL DEFAULT 'primary', is_reached boolean NOT NULL DEFAULT true,
        synchronous_commit text NOT NULL DEFAULT 'on')""",
    """CREATE FUNCTION run_command_on_all_nodes(command text, parallel boolean DEFAULT true,
        give_warning_for_connection_errors boolean DEFAULT false, OUT nodeid integer, OUT success boolean,
        OUT result text) RETURNS SETOF record LANGUAGE plpgsql AS $$
        DECLARE
            node record;
        BEGIN
            FOR node IN SELECT * FROM pg_dist_node n WHERE n.isactive AND n.noderole = 'primary' LOOP
                nodeid := node.nodeid;
                success := node.is_reached;
                result := 'failed to connect';
                IF node.is_reached THEN
                    PERFORM set_config('synchronous_commit', node.synchronous_commit, true);
                    EXECUTE command INTO result;
                END IF;
                RETURN NEXT;
            END LOOP;
        END $$""",
)


async def install(database: Database) -> None:
    """Create the parts of Citus that Stoplist uses."""
    for statement in _MAKE:
        await execute(database, statement)


async def recorded_calls(database: Database) -> list[tuple[str, Any]]:
    """Return the recorded calls, each with its transaction."""
    rows = await database.all(sql("SELECT what, CAST(in_transaction AS text) AS xid FROM recorded ORDER BY number"))
    return [(row["what"], row["xid"]) for row in rows]
