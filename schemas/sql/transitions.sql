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
    ('unknown',     'resolve',          'succeeded',    'operator'),
    ('unknown',     'resolve',          'failed_final', 'operator'),
    ('prepared',    'gate_open',        'unknown',      'operator'),   -- lost_history
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
-- whether any verb makes this step. The WHEN keeps it away from every update that leaves the status alone.
CREATE OR REPLACE FUNCTION @schema@.guard_run_transition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    v_from text := CASE WHEN TG_OP = 'INSERT' THEN '' ELSE OLD.status END;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM @schema@.run_transition x WHERE x.from_status = v_from AND x.to_status = NEW.status) THEN
        RAISE EXCEPTION 'run %: no transition from % to %', NEW.run_id, v_from, NEW.status USING ERRCODE = '23514';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION @schema@.guard_operation_transition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    v_from text := CASE WHEN TG_OP = 'INSERT' THEN '' ELSE OLD.status END;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM @schema@.operation_transition x
                   WHERE x.from_status = v_from AND x.to_status = NEW.status) THEN
        RAISE EXCEPTION 'operation %: no transition from % to %', NEW.operation_id, v_from, NEW.status
            USING ERRCODE = '23514';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER guard_new BEFORE INSERT ON @schema@.agent_runs FOR EACH ROW
    WHEN (NEW.status <> 'pending') EXECUTE FUNCTION @schema@.guard_run_transition();
CREATE OR REPLACE TRIGGER guard_step BEFORE UPDATE OF status ON @schema@.agent_runs FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION @schema@.guard_run_transition();
CREATE OR REPLACE TRIGGER guard_new BEFORE INSERT ON @schema@.tool_operations FOR EACH ROW
    WHEN (NEW.status <> 'prepared') EXECUTE FUNCTION @schema@.guard_operation_transition();
CREATE OR REPLACE TRIGGER guard_step BEFORE UPDATE OF status ON @schema@.tool_operations FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION @schema@.guard_operation_transition();
