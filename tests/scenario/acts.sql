-- One act of a worker each, for scenes that play a worker by hand: the interface functions with a batch of one.
-- SECURITY INVOKER: the session has no more rights than its role.
CREATE SCHEMA acts;
GRANT USAGE ON SCHEMA acts TO PUBLIC;
CREATE FUNCTION acts.acquire(run uuid, owner text, ttl_ms bigint) RETURNS text LANGUAGE sql AS $$
    SELECT outcome || ' epoch ' || coalesce(epoch, 0) || CASE WHEN takeover THEN ' takeover' ELSE '' END
      FROM holdfast_v1.acquire(p_owner => owner, p_token => gen_random_uuid(), p_run_ids => ARRAY[run],
                               p_ttl_ms => ttl_ms, p_handlers => NULL) $$;
CREATE FUNCTION acts.renew(run uuid, owner text, epoch bigint) RETURNS text LANGUAGE sql AS $$
    SELECT outcome FROM holdfast_v1.renew(p_run_ids => ARRAY[run], p_owners => ARRAY[owner], p_epochs => ARRAY[epoch],
                                          p_ttl_ms => 60000) $$;
CREATE FUNCTION acts.release(run uuid, owner text, epoch bigint) RETURNS text LANGUAGE sql AS $$
    SELECT outcome FROM holdfast_v1.release(p_run_ids => ARRAY[run], p_owners => ARRAY[owner],
                                            p_epochs => ARRAY[epoch], p_graceful => true) $$;
-- The protected write: with what it finishes, and whether it parks (a wait for a time).
CREATE FUNCTION acts.write(run uuid, owner text, epoch bigint, revision bigint, checkpoint jsonb, finish text,
                           park boolean) RETURNS text LANGUAGE sql AS $$
    SELECT outcome FROM holdfast_v1.commit(
        p_run_ids => ARRAY[run], p_owners => ARRAY[owner], p_epochs => ARRAY[epoch], p_revisions => ARRAY[revision],
        p_commit_ids => ARRAY[gen_random_uuid()], p_digests => ARRAY[md5(random()::text)],
        p_checkpoints => ARRAY[checkpoint], p_finish => ARRAY[finish],
        p_outputs => ARRAY[CASE WHEN finish IS NOT NULL THEN '{}'::jsonb END], p_release => ARRAY[park],
        p_wait_mode => ARRAY[CASE WHEN park THEN 'none' END], p_wait_signal => ARRAY[NULL::text],
        p_wait_until => ARRAY[CASE WHEN park THEN clock_timestamp() + interval '1 hour' END],
        p_retry_ms => ARRAY[NULL::bigint],
        p_i_item => '{}', p_i_operation_id => '{}', p_i_step => '{}', p_i_version => '{}', p_i_tool => '{}',
        p_i_digest => '{}', p_i_body => '{}', p_i_capability => '{}', p_i_declaration => '{}',
        p_i_external_key => '{}', p_i_after_settled => '{}', p_i_compensates => '{}',
        p_w_item => '{}', p_w_operation_id => '{}', p_e_item => '{}', p_e_type => '{}', p_e_body => '{}',
        p_d_item => '{}', p_d_operation_id => '{}', p_s_item => '{}', p_s_signal_id => '{}') $$;
CREATE FUNCTION acts.save(run uuid, owner text, epoch bigint, revision bigint, n integer) RETURNS text LANGUAGE sql AS $$
    SELECT acts.write(run, owner, epoch, revision, jsonb_build_object('saved', n), NULL, false) $$;
CREATE FUNCTION acts.finish(run uuid, owner text, epoch bigint, revision bigint, how text) RETURNS text LANGUAGE sql AS $$
    SELECT acts.write(run, owner, epoch, revision, NULL, how, false) $$;
CREATE FUNCTION acts.park(run uuid, owner text, epoch bigint, revision bigint) RETURNS text LANGUAGE sql AS $$
    SELECT acts.write(run, owner, epoch, revision, NULL, NULL, true) $$;
