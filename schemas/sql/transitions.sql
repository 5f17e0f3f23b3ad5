-- The state machines of run and operation, once. The trigger below refuses what is not here; docs/ prints its diagrams
-- from these rows; a test walks every (status × verb) cell. from_status '' is the making of the row.
-- Replaced whole at every migration.
DELETE FROM @schema@.run_transition;
INSERT INTO @schema@.run_transition (from_status, verb, to_status, authority) VALUES
    ('',        'submit',  'pending',   'control'),
    ('',        'retry',   'pending',   'control'),
    ('pending', 'acquire', 'running',   'acquire'),
    ('pending', 'claim',   'running',   'acquire'),
    ('running', 'commit',  'succeeded', 'holder'),
    ('running', 'commit',  'failed',    'holder'),
    ('running', 'acquire', 'failed',    'acquire'), -- attempts_exhausted, deadline_exceeded
    ('running', 'claim',   'failed',    'acquire'),
    ('running', 'sweep',   'failed',    'control'), -- attempts_exhausted, found when the last lease ran out
    ('pending', 'cancel',  'cancelled', 'control'),
    ('running', 'cancel',  'cancelled', 'control'),
    ('pending', 'submit',  'cancelled', 'control'), -- on_active: cancel_previous
    ('running', 'submit',  'cancelled', 'control');

DELETE FROM @schema@.operation_transition;
INSERT INTO @schema@.operation_transition (from_status, verb, to_status, authority) VALUES
    ('',            'commit',           'prepared',     'holder'),
    ('',            'commit',           'succeeded',    'holder'),     -- adopted from an earlier run of the chain
    ('',            'compensate',       'prepared',     'control'),
    ('',            'audit',            'unknown',      'operator'),   -- an effect that Kafka knows and a lost history registered
    ('prepared',    'claim_operations', 'dispatching',  'claim'),
    ('unknown',     'claim_operations', 'dispatching',  'claim'),      -- unsent
    ('unknown',     'claim_unknown',    'dispatching',  'claim'),      -- same key, inside what the tool declared
    ('dispatching', 'record_result',    'succeeded',    'dispatcher'),
    ('dispatching', 'record_result',    'failed_final', 'dispatcher'),
    ('dispatching', 'record_result',    'unknown',      'dispatcher'), -- a refusal while another attempt may have acted
    ('dispatching', 'record_not_sent',  'unknown',      'dispatcher'),
    ('dispatching', 'record_not_sent',  'cancelled',    'dispatcher'), -- unsent of a terminal run
    ('unknown',     'record_not_sent',  'cancelled',    'dispatcher'), -- the same, said after the claim ran out
    ('dispatching', 'record_unknown',   'unknown',      'dispatcher'),
    ('dispatching', 'expire_claims',    'unknown',      'claim'),
    ('dispatching', 'sweep',            'unknown',      'claim'),
    ('dispatching', 'converge',         'succeeded',    'remote'),
    ('dispatching', 'converge',         'failed_final', 'remote'),
    ('unknown',     'converge',         'succeeded',    'remote'),
    ('unknown',     'converge',         'failed_final', 'remote'),
    ('unknown',     'converge',         'cancelled',    'remote'),     -- not found, for good, of a terminal run
    ('unknown',     'resolve',          'succeeded',    'operator'),
    ('unknown',     'resolve',          'failed_final', 'operator'),
    ('prepared',    'gate_open',        'unknown',      'operator'),   -- lost_history: here and in the next four
    ('prepared',    'commit',           'unknown',      'holder'),
    ('prepared',    'cancel',           'unknown',      'control'),
    ('prepared',    'submit',           'unknown',      'control'),
    ('prepared',    'sweep',            'unknown',      'control'),
    ('prepared',    'commit',           'cancelled',    'holder'),     -- failed run, or a higher effect_version
    ('unknown',     'commit',           'cancelled',    'holder'),     -- unsent
    ('prepared',    'cancel',           'cancelled',    'control'),
    ('unknown',     'cancel',           'cancelled',    'control'),    -- unsent
    ('prepared',    'submit',           'cancelled',    'control'),
    ('unknown',     'submit',           'cancelled',    'control'),    -- unsent
    ('prepared',    'acquire',          'cancelled',    'acquire'),
    ('unknown',     'acquire',          'cancelled',    'acquire'),    -- unsent
    ('prepared',    'claim',            'cancelled',    'acquire'),
    ('unknown',     'claim',            'cancelled',    'acquire'),    -- unsent
    ('prepared',    'sweep',            'cancelled',    'control'),
    ('unknown',     'sweep',            'cancelled',    'control'),    -- unsent
    ('prepared',    'cancel_operation', 'cancelled',    'operator'),
    ('unknown',     'cancel_operation', 'cancelled',    'operator');

-- The last line: whatever a function does wrong, a terminal state does not change. It cannot know the verb, so it asks
-- whether any verb makes this step. Asking the tables for every row of a batch would be felt in each claim and each answer,
-- so the steps are written, from the rows above, into the condition of the trigger: what it fires for is refused.
CREATE OR REPLACE FUNCTION @schema@.guard_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% %: no transition from % to %', TG_ARGV[0], to_jsonb(NEW) ->> TG_ARGV[1],
        CASE WHEN TG_OP = 'INSERT' THEN '' ELSE to_jsonb(OLD) ->> 'status' END, NEW.status USING ERRCODE = '23514';
END $$;

DO $$
DECLARE
    g       record;
    v_first text;
    v_steps text;
BEGIN
    FOR g IN SELECT * FROM (VALUES ('agent_runs', 'run_transition', 'run', 'run_id'),
                                   ('tool_operations', 'operation_transition', 'operation', 'operation_id'))
                           AS v(rows_of, steps, what, key)
    LOOP
        EXECUTE format($q$SELECT string_agg(DISTINCT quote_literal(x.to_status), ', ') FROM @schema@.%I x
                          WHERE x.from_status = ''$q$, g.steps) INTO STRICT v_first;
        EXECUTE format($q$SELECT string_agg(s.step, ' OR ') FROM (
                              SELECT format('(OLD.status = %%L AND NEW.status IN (%%s))', x.from_status,
                                            string_agg(DISTINCT quote_literal(x.to_status), ', ')) AS step
                              FROM @schema@.%I x WHERE x.from_status <> '' GROUP BY x.from_status) s$q$, g.steps)
        INTO STRICT v_steps;
        EXECUTE format('CREATE OR REPLACE TRIGGER guard_new BEFORE INSERT ON @schema@.%I FOR EACH ROW
            WHEN (NEW.status NOT IN (%s)) EXECUTE FUNCTION @schema@.guard_transition(%L, %L)',
            g.rows_of, v_first, g.what, g.key);
        EXECUTE format('CREATE OR REPLACE TRIGGER guard_step BEFORE UPDATE OF status ON @schema@.%I FOR EACH ROW
            WHEN (NEW.status IS DISTINCT FROM OLD.status AND NOT (%s)) EXECUTE FUNCTION @schema@.guard_transition(%L, %L)',
            g.rows_of, v_steps, g.what, g.key);
    END LOOP;
END $$;
DROP FUNCTION IF EXISTS @schema@.guard_run_transition(), @schema@.guard_operation_transition();
