#include <string.h>

#include "config/config_int.h"

/* "consumer.fetch.min.bytes" -> scope and "fetch.min.bytes" */
static struct config_kafka property_of(const struct setting *s)
{
    static const char consumer[] = "consumer.", producer[] = "producer.";
    if (strncmp(s->name, consumer, strlen(consumer)) == 0)
        return (struct config_kafka){s->name + strlen(consumer), s->value, KAFKA_CONSUMER};
    if (strncmp(s->name, producer, strlen(producer)) == 0)
        return (struct config_kafka){s->name + strlen(producer), s->value, KAFKA_PRODUCER};
    return (struct config_kafka){s->name, s->value, KAFKA_BOTH};
}

/* Names are not judged here: the client knows them, and says which one it does not know. */
void config_apply_kafka(struct loading *l)
{
    const struct config_origin *o = l->cfg->origins;
    struct config_kafka *list = arena_array(l->arena, o->n, sizeof(*list));
    size_t n = 0;
    for (size_t i = 0; i < o->n; i++) {
        const struct setting *s = &o->settings[i];
        if (strcmp(s->section, "kafka") == 0 && config_setting(l->cfg, "kafka", s->name) == s)
            list[n++] = property_of(s);
    }
    l->cfg->kafka = list;
    l->cfg->n_kafka = n;
}

const char *config_kafka_value(const struct config *cfg, const char *name,
                               enum config_kafka_scope scope)
{
    const char *wide = NULL;
    for (size_t i = 0; i < cfg->n_kafka; i++) {
        const struct config_kafka *k = &cfg->kafka[i];
        if (strcmp(k->name, name) != 0)
            continue;
        if (k->scope == scope)
            return k->value;
        if (k->scope == KAFKA_BOTH)
            wide = k->value;
    }
    return wide;
}
