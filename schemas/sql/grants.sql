-- Who may call what: one table, applied by one loop; written to be run again, last of all files.
-- w worker, o operator, v viewer. An interface function that is missing here, or a row without its function, is an
-- error of the installation and not a function that nobody or everybody may call.

DO $$
DECLARE
    v_grants constant jsonb := '{
        "submit": "wo", "acquire": "w", "claim": "w", "renew": "w", "release": "w", "commit": "w",
        "cancel": "wo", "retry": "wo", "signal": "wo", "sweep": "w",

        "claim_operations": "w", "claim_unknown": "w", "claim_queries": "w", "record_query": "w",
        "record_result": "w", "record_not_sent": "w", "record_unknown": "w", "expire_claims": "w",
        "converge": "wo", "compensate": "wo", "undo_due": "wo",
        "resolve": "o", "cancel_operation": "o", "raise_capability": "o",

        "service_acquire": "w", "service_renew": "w", "service_release": "w",
        "events_read": "w", "events_delete": "w", "relay_position": "wov", "relay_checked": "w",
        "relay_share": "w", "barrier": "w",

        "gate_status": "wov", "gate_close": "wo", "gate_open": "o",
        "audit_runs": "ov", "audit_operations": "ov", "audit_adopt": "o",
        "register": "w", "known": "wov", "server_facts": "wov", "stats": "wov", "backlog": "wov", "story": "wov",
        "operation_story": "wov"
    }';
    v_function record;
    v_object   record;
    v_letter   text;
    v_role     text;
BEGIN
    -- Everything belongs to the owner, whoever ran the script.
    FOR v_object IN
        SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END AS kind,
               c.oid::regclass::text AS name
          FROM pg_catalog.pg_class c
         WHERE c.relnamespace IN ('@schema@'::regnamespace, '@iface@'::regnamespace)
           AND c.relkind IN ('r', 'p', 'v', 'S') AND c.relowner <> '@role@owner'::regrole
           -- a sequence of a column follows its table
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                            WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i'))
        UNION ALL
        SELECT 'ROUTINE', p.oid::regprocedure::text
          FROM pg_catalog.pg_proc p
         WHERE p.pronamespace IN ('@schema@'::regnamespace, '@iface@'::regnamespace)
           AND p.proowner <> '@role@owner'::regrole
    LOOP
        EXECUTE format('ALTER %s %s OWNER TO %I', v_object.kind, v_object.name, '@role@owner');
    END LOOP;

    REVOKE ALL ON ALL ROUTINES IN SCHEMA @schema@, @iface@ FROM PUBLIC, @role@worker, @role@operator, @role@viewer;
    REVOKE ALL ON ALL TABLES IN SCHEMA @schema@, @iface@ FROM PUBLIC, @role@worker, @role@operator, @role@viewer;
    REVOKE ALL ON ALL SEQUENCES IN SCHEMA @schema@, @iface@ FROM PUBLIC, @role@worker, @role@operator, @role@viewer;
    GRANT USAGE ON SCHEMA @iface@ TO @role@worker, @role@operator, @role@viewer;
    GRANT USAGE ON SCHEMA @schema@ TO @role@operator, @role@viewer;

    FOR v_function IN
        SELECT coalesce(p.proname, g.key) AS name, p.oid::regprocedure::text AS signature, g.value AS letters
          FROM jsonb_each_text(v_grants) g
          FULL JOIN (SELECT * FROM pg_catalog.pg_proc WHERE pronamespace = '@iface@'::regnamespace) p
            ON p.proname = g.key
    LOOP
        IF v_function.signature IS NULL THEN
            RAISE EXCEPTION 'grants: there is no function @iface@.%', v_function.name;
        END IF;
        IF v_function.letters IS NULL THEN
            RAISE EXCEPTION 'grants: nobody is named for @iface@.%', v_function.name;
        END IF;
        FOREACH v_letter IN ARRAY string_to_array(v_function.letters, NULL) LOOP
            v_role := CASE v_letter WHEN 'w' THEN '@role@worker' WHEN 'o' THEN '@role@operator'
                                    WHEN 'v' THEN '@role@viewer' END;
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', v_function.signature, v_role);
        END LOOP;
    END LOOP;

    -- The views of the tables' schema are for people; tables are for nobody.
    FOR v_object IN
        SELECT c.oid::regclass::text AS name FROM pg_catalog.pg_class c
         WHERE c.relnamespace = '@schema@'::regnamespace AND c.relkind = 'v'
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I, %I', v_object.name, '@role@operator', '@role@viewer');
    END LOOP;
END
$$;
