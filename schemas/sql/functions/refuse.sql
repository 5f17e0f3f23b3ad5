-- Keeps what was refused: the first refusal per (run, epoch, reason, verb), and how many followed.
-- Items whose run or epoch is NULL are dropped; callers pass only runs that exist, or anybody could fill the table.
-- Written last and in key order, under the lease's, run's or operation's lock that decided.
CREATE OR REPLACE FUNCTION @schema@.refuse(p_t timestamptz, p_verb text, p_run_ids uuid[], p_epochs bigint[],
    p_reasons text[], p_owners text[], p_current_epochs bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF coalesce(cardinality(p_run_ids), 0) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO @schema@.refusals AS f (run_id, epoch, reason, verb, owner, current_epoch, refused, first_at, last_at)
    SELECT u.run_id, u.epoch, u.reason, p_verb, min(u.owner), max(u.current_epoch), count(*), p_t, p_t
    FROM unnest(p_run_ids, p_epochs, p_reasons, p_owners, p_current_epochs)
         AS u(run_id, epoch, reason, owner, current_epoch)
    WHERE u.run_id IS NOT NULL AND u.epoch IS NOT NULL
    GROUP BY u.run_id, u.epoch, u.reason
    ORDER BY u.run_id, u.epoch, u.reason
    ON CONFLICT (run_id, epoch, reason, verb)
    DO UPDATE SET refused = f.refused + excluded.refused, last_at = excluded.last_at;
END $$;
