-- The shard of a task's events. Part of the schema: every version that ever ran on this database must agree on it,
-- so it rests on md5 and not on a hash of the server that a major version may change.
CREATE OR REPLACE FUNCTION @schema@.shard_of(p_tenant text, p_task text, p_shards integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (('x' || substr(md5(p_tenant || '/' || p_task), 1, 8))::bit(32)::bigint % p_shards)::integer;
