// Making the topics of an installation, for `topics apply` and for `up`.
#ifndef HOLDFAST_CLI_TOPICS_H
#define HOLDFAST_CLI_TOPICS_H

#include "broker/broker.h"

// Makes what is missing and waits until the cluster shows it: a broker answers before all of it
// knows a new topic. replication <= 0: the broker's default. Thread: main.
MUST_CHECK enum broker_result topics_make(struct broker *broker,
                                          const struct broker_topic topics[BROKER_TOPIC_ROLES],
                                          int replication,
                                          struct broker_topic_state ret[BROKER_TOPIC_ROLES],
                                          struct broker_error *ret_error);

#endif
