-- One row per status change, takeover and applied terminal commit. The caller holds the locks of the runs.
CREATE OR REPLACE FUNCTION @schema@.history(p_t timestamptz, p_run_ids uuid[], p_tenants text[], p_tasks text[],
    p_kinds text[], p_from text[], p_to text[], p_epochs bigint[], p_revisions bigint[], p_owners text[],
    p_commit_ids uuid[], p_details jsonb[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF coalesce(cardinality(p_run_ids), 0) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO @schema@.run_history (at, tenant_id, task_id, run_id, kind, from_status, to_status, epoch, revision,
                                      owner, commit_id, detail)
    SELECT p_t, u.tenant_id, u.task_id, u.run_id, u.kind, u.from_status, u.to_status, coalesce(u.epoch, 0), u.revision,
           u.owner, u.commit_id, u.detail
    FROM unnest(p_run_ids, p_tenants, p_tasks, p_kinds, p_from, p_to, p_epochs, p_revisions, p_owners, p_commit_ids,
                p_details) AS u(run_id, tenant_id, task_id, kind, from_status, to_status, epoch, revision, owner,
                                commit_id, detail);
END $$;
