-- Roles and schemas of an installation; written to be run again, first of all files.
--
--   @role@owner     owns every object; cannot log in, is no superuser: a SECURITY DEFINER function can do no more
--                       than the installation's own tables
--   @role@worker    pods: the protocol's verbs
--   @role@operator  people: the worker's verbs, what needs a person's decision, and the views
--   @role@viewer    people and monitoring that only look: the views
--
-- worker, operator and viewer are groups; nobody logs in as them. None has INSERT, UPDATE or DELETE on any table; what
-- each may call is one table in grants.sql. A login role is made by the house's own administrator, inherits from one
-- of them, and carries the limits itself, because settings of a group do not reach its members:
--
--     CREATE ROLE holdfast_pod LOGIN PASSWORD '…' IN ROLE @role@worker CONNECTION LIMIT 200;
--     ALTER ROLE holdfast_pod SET lock_timeout = '2s';                        -- functions set their own, too
--     ALTER ROLE holdfast_pod SET statement_timeout = '15s';
--     ALTER ROLE holdfast_pod SET idle_in_transaction_session_timeout = '5s'; -- no transaction of ours waits
--     ALTER ROLE holdfast_pod SET client_connection_check_interval = '2s';    -- a dead pod's waiting calls end
--
-- server_facts() shows a login role which of these it lacks; `holdfast doctor` asks for it.

DO $$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['@role@owner', '@role@worker', '@role@operator', '@role@viewer'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = v_role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        END IF;
    END LOOP;
    -- Several installations of one database server may share their roles. One that somebody widened is not accepted
    -- in silence: the promise that a pod cannot write past the functions rests on it.
    IF EXISTS (SELECT FROM pg_catalog.pg_roles
                WHERE rolname IN ('@role@owner', '@role@worker', '@role@operator', '@role@viewer')
                  AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication OR rolcanlogin)) THEN
        RAISE EXCEPTION 'a role @role@owner, …worker, …operator or …viewer can log in or is more than a plain role'
            USING ERRCODE = '42501', HINT = 'ALTER ROLE … NOLOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION';
    END IF;
    -- An administrator who is not a superuser hands the objects over as a member of the owner.
    IF NOT pg_catalog.pg_has_role(current_user, '@role@owner', 'MEMBER') THEN
        EXECUTE format('GRANT %I TO %I', '@role@owner', current_user);
    END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS @schema@;
CREATE SCHEMA IF NOT EXISTS @iface@;
ALTER SCHEMA @schema@ OWNER TO @role@owner;
ALTER SCHEMA @iface@ OWNER TO @role@owner;
REVOKE ALL ON SCHEMA @schema@, @iface@ FROM PUBLIC, @role@worker, @role@operator, @role@viewer;

-- Nobody makes objects in this database but its owner. TEMP above all: a temporary table is the tool with which a
-- stale worker can put a table of its own before ours (functions name pg_temp last, so that even this does nothing).
DO $$
BEGIN
    EXECUTE format('REVOKE CREATE, TEMPORARY ON DATABASE %I FROM PUBLIC, %I, %I, %I', pg_catalog.current_database(),
                   '@role@worker', '@role@operator', '@role@viewer');
    IF EXISTS (SELECT FROM pg_catalog.pg_namespace n
                WHERE n.nspname = 'public' AND pg_catalog.pg_has_role(current_user, n.nspowner, 'USAGE')) THEN
        REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    END IF;
END
$$;

-- Whatever the owner makes later is nobody's before grants.sql says so. (A default of one schema cannot take away what
-- PUBLIC has by the global default, so this one is global to the role.)
ALTER DEFAULT PRIVILEGES FOR ROLE @role@owner REVOKE ALL ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE @role@owner REVOKE ALL ON TABLES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE @role@owner REVOKE ALL ON SEQUENCES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE @role@owner REVOKE ALL ON TYPES FROM PUBLIC;
