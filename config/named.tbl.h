/* NAMED(section, name, KIND, default, min, max, unit or words, flags, sentence): options of the sections that repeat,
 * [tool.NAME] and [handler.NAME]. Kinds as in options.tbl.h, and STATUSES: HTTP statuses as "400-404,410". */
/* clang-format off */

NAMED(tool, kind, CHOICE, "http", 0, 0, "http|mcp|exec", 0, "How the tool is called")
NAMED(tool, url, TEXT, "", 0, 0, "", REQUIRED, "Address; no message can change it")
NAMED(tool, method, CHOICE, "POST", 0, 0, "POST|PUT|PATCH|DELETE", 0, "HTTP method")
NAMED(tool, credential_env, TEXT, "", 0, 0, "", 0, "Environment variable that holds the credential")
NAMED(tool, credential_file, TEXT, "", 0, 0, "", 0, "File that holds the credential")
NAMED(tool, credential_header, TEXT, "Authorization", 0, 0, "", 0, "Header in which the credential is sent")
NAMED(tool, credential_prefix, TEXT, "Bearer", 0, 0, "", 0,
      "What stands before the credential in that header; a blank comes between when it ends with a letter or digit")
NAMED(tool, capability, CHOICE, "none", 0, 0, "none|idempotency_key|deterministic_id|query", 0,
      "What makes a second attempt safe when the outcome of the first is unknown. none: nothing does; a person decides")
NAMED(tool, retention_ms, INT, "0", 0, 31536000000, "ms", 0,
      "How long the remote remembers an idempotency key, counted from the first attempt that may have been sent")
NAMED(tool, key_scope, CHOICE, "run", 0, 0, "run|submission", 0,
      "submission: a retried run uses the key of the run it retries, so that it meets its own earlier effect")
NAMED(tool, idempotency_header, TEXT, "Idempotency-Key", 0, 0, "", 0, "Header in which the key is sent")
NAMED(tool, key_quoted, BOOL, "false", 0, 0, "", 0, "The key in double quotes, as the IETF draft has it")
NAMED(tool, timeout_ms, INT, "10000", 10, 600000, "ms", 0, "How long a request may take; then its outcome is unknown")
NAMED(tool, connect_timeout_ms, INT, "3000", 10, 600000, "ms", 0, "How long connecting may take; then nothing was sent")
NAMED(tool, max_response_bytes, INT, "262144", 1, 900000, "bytes", 0, "Largest answer that is read")
NAMED(tool, final_statuses, STATUSES, "400-407,410-417,422", 0, 0, "", 0, "Statuses that are a definite refusal: the operation failed")
NAMED(tool, not_acted_statuses, STATUSES, "429", 0, 0, "", 0,
      "Statuses that are the remote's word that it did not act: tried again later")
NAMED(tool, max_in_flight, INT, "100", 1, 100000, "", 0, "Requests to this tool in flight at most, per pod")
NAMED(tool, on_cancel, CHOICE, "finish", 0, 0, "finish|remote_cancel|compensate", 0,
      "What happens to an operation in flight when its run is cancelled")
NAMED(tool, allow_private, BOOL, "false", 0, 0, "", 0, "The address may be loopback, link-local or private")

NAMED(handler, kind, CHOICE, "exec", 0, 0, "plan|exec|http|plugin", 0, "What executes a step")
NAMED(handler, command, TEXT, "", 0, 0, "", 0, "Command line of the child processes, for /bin/sh")
NAMED(handler, processes, INT, "4", 1, 1000, "", 0, "Child processes; each works on one step at a time")
NAMED(handler, timeout_ms, INT, "300000", 10, 86400000, "ms", 0, "How long a step may take before the child is ended")
NAMED(handler, retry_ms, INT, "1000", 10, 86400000, "ms", 0,
      "First back-off after a failed attempt; doubles with every failure")
NAMED(handler, retry_max_ms, INT, "60000", 10, 86400000, "ms", 0, "Longest back-off")
