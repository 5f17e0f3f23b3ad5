/* NAMED(section, name, KIND, default, min, max, unit or words, flags, sentence): options of the sections that repeat,
 * [tool.NAME] and [handler.NAME]. Kinds as in options.tbl.h, and STATUSES: numbers as "400-404,410". DECLARED: stored with
 * each operation of the tool, and decides about it whatever the file says later. */
/* clang-format off */

NAMED(tool, kind, CHOICE, "http", 0, 0, "http|mcp|exec", 0, "How the tool is called")
NAMED(tool, url, TEXT, "", 0, 0, "", 0, "Address of a tool of kind http, or of an MCP server (streamable HTTP); no message can change it")
NAMED(tool, method, CHOICE, "POST", 0, 0, "POST|PUT|PATCH|DELETE", 0, "HTTP method")
NAMED(tool, command, TEXT, "", 0, 0, "", 0,
      "kind = exec: the program that is run once an operation; kind = mcp without url: the MCP server (stdio). For /bin/sh")
NAMED(tool, credential_env, TEXT, "", 0, 0, "", 0, "Environment variable that holds the credential")
NAMED(tool, credential_file, TEXT, "", 0, 0, "", 0, "File that holds the credential")
NAMED(tool, credential_header, TEXT, "Authorization", 0, 0, "", 0, "Header in which the credential is sent")
NAMED(tool, credential_prefix, TEXT, "Bearer", 0, 0, "", 0,
      "What stands before the credential in that header; a blank comes between when it ends with a letter or digit")

NAMED(tool, capability, CHOICE, "none", 0, 0, "none|idempotency_key|deterministic_id|query", DECLARED,
      "What makes a second attempt safe when the outcome of the first is unknown. none: nothing does; a person decides")
NAMED(tool, retention_ms, INT, "0", 0, 31536000000, "ms", DECLARED,
      "How long the remote remembers an idempotency key, counted from the first attempt that may have been sent")
NAMED(tool, scope, CHOICE, "endpoint", 0, 0, "endpoint|account", DECLARED,
      "Within what the remote tells keys apart; recorded for people: our keys are unique within both")
NAMED(tool, key_scope, CHOICE, "run", 0, 0, "run|submission", DECLARED,
      "submission: a retried run uses the key of the run it retries, so that it meets its own earlier effect")
NAMED(tool, idempotency_header, TEXT, "Idempotency-Key", 0, 0, "", 0, "Header in which the key is sent. Empty: in none")
NAMED(tool, key_quoted, BOOL, "false", 0, 0, "", 0, "The key in double quotes, as the IETF draft has it")
NAMED(tool, key_field, TEXT, "", 0, 0, "", DECLARED,
      "JSON pointer to a member of the request in which the key is sent, too (/metadata/name); it must not be in the request yet")
NAMED(tool, replays_errors, BOOL, "false", 0, 0, "", DECLARED,
      "The remote answers a repeated key with its first answer even if that was an error: then an error is not asked for again soon")
NAMED(tool, conflict_statuses, STATUSES, "422", 100, 599, "", DECLARED,
      "What the remote answers to a known key with other parameters: on a repeated key an alarm, never a refusal")
NAMED(tool, in_progress_statuses, STATUSES, "409", 100, 599, "", DECLARED,
      "The remote still works on this key: wait, then the same key again")

NAMED(tool, query_url, TEXT, "", 0, 0, "", 0,
      "Where the remote is asked by GET what became of an operation; {operation_id} is the key it was sent under, {remote_id} the remote's own")
NAMED(tool, query, BOOL, "false", 0, 0, "", DECLARED, "A tool with idempotency keys is asked before a key is repeated")
NAMED(tool, query_found_statuses, STATUSES, "200-299", 100, 599, "", DECLARED, "Statuses of an answer that may have found it")
NAMED(tool, query_absent_statuses, STATUSES, "404,410", 100, 599, "", DECLARED, "Statuses that say that there is no such operation")
NAMED(tool, query_found, TEXT, "", 0, 0, "", DECLARED,
      "JSON pointer into a found answer to what was found, which is the result; null, false or an empty list: not found")
NAMED(tool, query_absent, TEXT, "", 0, 0, "", DECLARED,
      "JSON pointer that, when it leads to something else than null, false or an empty list, says that there is no such operation")
NAMED(tool, state, TEXT, "", 0, 0, "", DECLARED, "JSON pointer into what was found to its state. Empty: found is succeeded")
NAMED(tool, state_succeeded, TEXT, "succeeded,completed", 0, 0, "", DECLARED, "States that are a success")
NAMED(tool, state_failed, TEXT, "failed,rejected", 0, 0, "", DECLARED, "States that are a definite failure; any other state is asked again")
NAMED(tool, absent_is_final_after_ms, INT, "0", 0, 31536000000, "ms", DECLARED,
      "How long after an attempt could last arrive \"there is none\" is a fact, and the operation may be sent again. 0: it never is")
NAMED(tool, escalate_after_ms, INT, "0", 0, 31536000000, "ms", DECLARED,
      "How long an operation may be unknown before a person is called. 0: never")
NAMED(tool, tag, TEXT, "", 0, 0, "", DECLARED,
      "deterministic_id: JSON pointer into what was found to the key it was created under")
NAMED(tool, owner, TEXT, "", 0, 0, "", DECLARED, "deterministic_id: JSON pointer into what was found to its owner")
NAMED(tool, owner_is, TEXT, "", 0, 0, "", DECLARED, "What that owner must be")
NAMED(tool, spec, TEXT, "", 0, 0, "", DECLARED, "deterministic_id: JSON pointer into what was found to its specification")
NAMED(tool, spec_is, TEXT, "", 0, 0, "", DECLARED,
      "JSON pointer into the request to what that specification must contain. Empty: the whole request")

NAMED(tool, timeout_ms, INT, "10000", 10, 600000, "ms", 0, "How long a request may take; then its outcome is unknown")
NAMED(tool, connect_timeout_ms, INT, "3000", 10, 600000, "ms", 0, "How long connecting may take; then nothing was sent")
NAMED(tool, max_response_bytes, INT, "262144", 1, 900000, "bytes", 0, "Largest answer that is read")
NAMED(tool, final_statuses, STATUSES, "400-407,410-417,422", 100, 599, "", DECLARED,
      "Statuses that are a definite refusal: the operation failed")
NAMED(tool, not_acted_statuses, STATUSES, "429", 100, 599, "", DECLARED,
      "Statuses that are the remote's word that it did not act: tried again later")
NAMED(tool, final_exits, STATUSES, "64,65", 1, 255, "", DECLARED, "kind = exec: exit codes that are a definite refusal")
NAMED(tool, not_acted_exits, STATUSES, "75", 1, 255, "", DECLARED,
      "kind = exec: exit codes by which the program says that it did not act. Any other but 0: unknown")
NAMED(tool, max_in_flight, INT, "100", 1, 100000, "", 0, "Requests to this tool in flight at most, per pod")
NAMED(tool, max_in_flight_total, INT, "0", 0, 1000000, "", 0, "The same over all pods. 0: no limit")
NAMED(tool, rate_per_s, INT, "0", 0, 1000000, "/s", 0, "Requests per second over all pods. 0: no limit")
NAMED(tool, rate_burst, INT, "0", 0, 1000000, "", 0, "How many of them at once. 0: as many as a second's")
NAMED(tool, on_cancel, CHOICE, "finish", 0, 0, "finish|remote_cancel|compensate", DECLARED,
      "What happens to an operation in flight when its run is cancelled")
NAMED(tool, compensate_tool, TEXT, "", 0, 0, "", DECLARED, "The tool that undoes an effect of this one")
NAMED(tool, remote_id, TEXT, "/id", 0, 0, "", DECLARED, "Where the remote's answer has its own name for the effect: a JSON pointer (RFC 6901)")
NAMED(tool, remote_cancel_tool, TEXT, "", 0, 0, "", DECLARED, "The tool that asks this one's remote to stop")
NAMED(tool, allow_private, BOOL, "false", 0, 0, "", 0, "The address may be loopback, link-local or private")

NAMED(tool, mcp_tool, TEXT, "", 0, 0, "", 0, "kind = mcp: name of the tool at the server. Empty: as here")
NAMED(tool, operation_argument, TEXT, "", 0, 0, "", DECLARED,
      "kind = mcp: argument in which the key is sent; _meta has it always. It must not be in the request yet")
NAMED(tool, honest_errors, BOOL, "false", 0, 0, "", DECLARED,
      "kind = mcp: errors by which a server refuses before it executes (no such method, bad parameters) are its word that it did not act")

NAMED(handler, kind, CHOICE, "exec", 0, 0, "plan|exec|http|plugin", 0, "What executes a step")
NAMED(handler, command, TEXT, "", 0, 0, "", 0, "Command line of the child processes, for /bin/sh")
NAMED(handler, processes, INT, "4", 1, 1000, "", 0, "Child processes; each works on one step at a time")
NAMED(handler, timeout_ms, INT, "300000", 10, 86400000, "ms", 0, "How long a step may take before the child is ended")
NAMED(handler, retry_ms, INT, "1000", 10, 86400000, "ms", 0,
      "First back-off after a failed attempt; doubles with every failure")
NAMED(handler, retry_max_ms, INT, "60000", 10, 86400000, "ms", 0, "Longest back-off")
