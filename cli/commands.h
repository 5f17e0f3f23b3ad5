// The functions behind the rows of table.c; one file a verb.
#ifndef HOLDFAST_CLI_COMMANDS_H
#define HOLDFAST_CLI_COMMANDS_H

struct invocation;

int command_up(struct invocation *inv);
int command_run(struct invocation *inv);
int command_migrate(struct invocation *inv);
int command_topics_apply(struct invocation *inv);
int command_topics_check(struct invocation *inv);
int command_submit(struct invocation *inv);
int command_tail(struct invocation *inv);
int command_show(struct invocation *inv);
int command_cancel(struct invocation *inv);
int command_retry(struct invocation *inv);
int command_signal(struct invocation *inv);
int command_op_list(struct invocation *inv);
int command_op_show(struct invocation *inv);
int command_op_resolve(struct invocation *inv);
int command_op_cancel(struct invocation *inv);
int command_op_raise(struct invocation *inv);
int command_op_compensate(struct invocation *inv);
int command_tool_check(struct invocation *inv);
int command_doctor(struct invocation *inv);
int command_config_print(struct invocation *inv);
int command_config_check(struct invocation *inv);
int command_config_docs(struct invocation *inv);
int command_config_sample(struct invocation *inv);
int command_failover_audit(struct invocation *inv);
int command_gate_status(struct invocation *inv);
int command_gate_open(struct invocation *inv);
int command_gate_close(struct invocation *inv);
int command_dlq_list(struct invocation *inv);
int command_docs(struct invocation *inv);
int command_completion(struct invocation *inv);

#endif
