/* The protocol as a model: one run with its lease and its ledger, workers and dispatch sessions that may stop at any
 * place and go on at any later one, answers that get lost, a remote that acts late, a cancel, and a promotion that
 * loses what was committed last. spin visits every state.
 *
 * Each SQL function is one indivisible step, as its row locks make it (tests/sql shows that they do). What time brings
 * about (a lease or a claim that runs out, a back-off that is over) may happen at any moment: no clock is trusted.
 * docs/MODEL.md says which SQL function each step stands for, and what is left out.
 *
 * Size, by -D:      WORKERS, CLAIMS, MAXREV, MAXTRIES
 * Parts, by -D:     LEDGER, GHOST (late copies and second writers), TOKENS (lost answers of claims), FAILOVER, VERSIONS,
 *                   PLAN (a handler with one plan), ONE (with one effect only)
 * Guards, by -DNO_…: each takes one guard out; spin must then find an error (tests/model/run.py).
 */
#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef CLAIMS
#define CLAIMS 2
#endif
#ifndef MAXREV
#define MAXREV 4            /* the last revision that is not an end; 1 is the start */
#endif
#ifndef MAXTRIES
#define MAXTRIES 2          /* agent_runs.max_attempts; 0: not counted */
#endif
#define RAISE 16            /* stands for 1,000,000: more than the lost history can have given out */
#ifndef CAP0
#define CAP0 NONE
#endif
#ifndef CAP1
#define CAP1 KEY
#endif
#define NONE 0
#define KEY  1
#define CAP(o) ((o) == 0 -> CAP0 : CAP1)

/* agent_runs.status */
#define PENDING   0
#define RUNNING   1
#define SUCCEEDED 2
#define FAILED    3
#define CANCELLED 4
#define ENDED     (db.status > RUNNING)
/* agent_runs.wait_…: nothing, the run's operations, a time (a wait, a back-off after a failure) */
#define W_OPS  1
#define W_TIME 2
/* tool_operations.status */
#define ABSENT      0
#define PREPARED    1
#define DISPATCHING 2
#define UNKNOWN     3
#define DONE        4       /* succeeded */
#define REFUSED     5       /* failed_final */
#define GONE        6       /* cancelled */
#define OPEN(o)     (db.o_st[o] == PREPARED || db.o_st[o] == DISPATCHING || db.o_st[o] == UNKNOWN)
#define UNSENT(o)   (db.o_st[o] == UNKNOWN && db.o_att[o] == db.o_ns[o])
#define IN_DOUBT(o) (db.o_st[o] == DISPATCHING || (db.o_st[o] == UNKNOWN && db.o_att[o] != db.o_ns[o]))

/* PostgreSQL: what a promotion may take back. */
typedef Db {
    byte status; byte rev; byte epoch; byte owner; bit lapsed;  /* lapsed: expires_at has passed */
    bit ready; byte wait; bit woke; byte tries;
    byte c_id; byte c_epoch; byte p_id; byte p_epoch;           /* commit_id …, prev_commit_id … */
    bit w_token[4];                                             /* claims: this token has taken the lease */
    byte o_st[2]; byte o_att[2]; byte o_ns[2]; byte o_rev[2]; byte o_crev[2];
    byte o_catt[2];                                             /* claimed_attempt */
    bit o_told[2];                                              /* evidence: not_sent, of the latest claim */
    bit o_det[2]; bit o_after[2];
    bit o_new[2];                                               /* dispatch_owner: of which history */
    bit d_token[4];                                             /* claims: this token has taken an operation */
    /* What the judge remembers of this history, written at the events, never read by a guard. */
    byte j_holder;                                              /* who may write now; 0: nobody */
    byte j_wrote;                                               /* bit r: somebody wrote with expected revision r */
    byte j_applied[4];                                          /* id of this worker's commit in doubt that was applied */
};
Db db;
#ifdef FAILOVER
Db sn;                      /* the standby */
bit snapped, promoted;
bit forked;                 /* the server's timeline is not the one that control knows: the gate is closed */
bit kafka[2];               /* a claim of this `none` operation is acknowledged on the intents topic */
bit orphan[2];              /* the judge's: it was claimed, and its registration is lost */
#define GATE (!forked)
#define MARK_HISTORY(o, d) db.o_new[o] = promoted; d_new[d] = promoted;
#else
#define GATE true
#define MARK_HISTORY(o, d) skip;
#endif

/* Worker sessions (an acquisition makes a new one: a worker that comes back is the next session). */
#define W_ASK      0
#define W_ASKED    1        /* acquire: no answer */
#define W_HOLD     2        /* believes that it holds the lease, for ever if it was paused */
#define W_COMMIT   3        /* commit: no answer */
#define W_GONE     4
byte w_st[4]; byte w_epoch[4]; byte w_rev[4]; byte w_kind[4];
byte asked = 1;             /* sessions start in order: they are alike */
byte j_top;                 /* the judge's: the highest epoch ever given out, in any history */

/* Kinds of commit. */
#define K_INTENT0 1
#define K_INTENT1 2
#define K_AFTER1  3         /* with after_settled */
#define K_PARK    4
#define K_SLEEP   5
#define K_GIVE    6
#define K_SUCCEED 7
#define K_DETACH  8         /* succeed, and detach what is in doubt */
#define K_FAIL    9
#define K_CHECKPOINT 11
#define LEAVES(k) (k >= K_PARK && k <= K_FAIL)
#define K_BOTH    10        /* both intents in one commit */

#ifdef GHOST
/* One late copy of a commit: of an earlier try of the write in doubt, or of a second writer in the same term. */
byte g_kind, g_by, g_epoch, g_rev, g_id;
bit g_dead;                 /* the judge's: its worker was told that it was not applied */
#endif

/* Dispatch sessions: one claim each. dispatch_owner is another for each claim; what the model needs of that is that it is
 * another for each history. */
#define D_FREE    0
#define D_ASKED   1         /* claim: no answer */
#define D_CLAIMED 2
#define D_MAYSEND 3         /* Kafka holds the claim */
#define D_SENT    4
#define D_NOTSENT 5         /* has said so, and will not send */
#define D_OVER    6
byte d_st[4]; byte d_op[4]; byte d_att[4]; byte d_crev[4];
byte d_req[4];              /* the request: 0 none, 1 on its way, then what the remote answered */
#define R_WAY 1
#define R_OK  2
#define R_NO  3
#define R_429 4
bit d_new[4];
byte claimed = 1;
byte effect[2];             /* the remote: how often it acted; by key at most once */

byte out;                   /* outcome of the last function, within one step */
#define OK         1
#define LEASE_LOST 2
#define SUPERSEDED 3
#define NOT_RUNNING 4
#define CONFLICT   5
#define NOT_YET    6        /* open_operations, effect_in_doubt, invalid */
#define BUSY       7
#define ENDS       8        /* attempts_exhausted */
#define USED       9        /* token_used */
#define CLOSED     10
byte i_;

/* ---- what must hold, after every step ---- */

/* I9 and the views stranded and orphans. */
inline judge() {
    if
    :: !ENDED ->
        assert((db.owner != 0) + db.ready + (db.wait != 0 && !db.woke) == 1);
        assert(!(db.wait == W_OPS && !db.woke && !OPEN(0) && !OPEN(1)))
    :: else ->
        assert(!db.ready && db.wait == 0);
        db.tries = 0;
        i_ = 0;
        do
        :: i_ < 2 -> assert(db.o_det[i_] || (db.o_st[i_] != PREPARED && !UNSENT(i_))); i_++
        :: else -> break
        od
    fi;
    /* What nobody will ask for again is forgotten, so that equal states are equal. */
    if
    :: w_st[1] != W_COMMIT && w_st[2] != W_COMMIT && w_st[3] != W_COMMIT ->
        db.c_id = 0; db.p_id = 0; db.c_epoch = 0; db.p_epoch = 0
    :: else
    fi;
    i_ = 0; out = 0
}

/* I8 */
inline set_status(s) { assert(!ENDED); db.status = s }

/* Within one history an attempt has one number: the revision tells claims of two histories apart. */
#ifdef FAILOVER
#define NEW_REVISION(o) db.o_rev[o]++
#else
#define NEW_REVISION(o) skip
#endif
/* I4: succeeded is said of what acted, failed_final and cancelled only of what has not and cannot. The step's table
 * is operation_transition. */
#ifdef FAILOVER
#define EXCUSED(o) (orphan[o] && CAP(o) == KEY)
#else
#define EXCUSED(o) false
#endif
inline set_op(o, s) {
    assert(db.o_st[o] < DONE);
    assert(s != PREPARED || db.o_st[o] == ABSENT);
    assert(s != DONE || effect[o] > 0);
    assert((s != REFUSED && s != GONE) || effect[o] == 0 || EXCUSED(o));
    db.o_st[o] = s; NEW_REVISION(o)
}

/* ---- internal functions ---- */

/* doubt_operations, lost_history: it may have been sent by an attempt that nobody remembers. A claim goes on. */
inline doubt(o) {
    if
    :: db.o_st[o] != DISPATCHING -> set_op(o, UNKNOWN)
    :: else
    fi;
    db.o_att[o]++
}

/* Between a promotion and the opening of the gate nothing may be taken for not sent: the lost history may have sent it. */
#if defined(FAILOVER) && !defined(NO_DOUBT_BEFORE_OPENING)
#define FORKED forked
#else
#define FORKED false
#endif
inline cancel_operation(o) {
    if
    :: FORKED -> doubt(o)
    :: else -> set_op(o, GONE)
    fi
}

/* cancel_open */
inline cancel_open() {
#ifndef NO_CANCEL_OPEN
    i_ = 0;
    do
    :: i_ < 2 ->
        if
        :: db.o_st[i_] == PREPARED || UNSENT(i_) -> cancel_operation(i_)
        :: else
        fi;
        i_++
    :: else -> break
    od
#endif
}

/* wake_runs */
inline wake_runs(time_is_up) {
    if
    :: !ENDED && db.wait != 0 && !db.woke &&
       ((db.wait == W_OPS && !OPEN(0) && !OPEN(1)) || (db.wait == W_TIME && time_is_up)) ->
        db.woke = 1; db.ready = 1
    :: else
    fi
}

/* fail_runs */
inline fail_runs() {
    if
    :: db.status == PENDING -> db.rev++
    :: else
    fi;
    set_status(FAILED); db.rev++;
    db.wait = 0; db.woke = 0; db.ready = 0; db.owner = 0; db.lapsed = 0; db.j_holder = 0;
    cancel_open()
}

/* ---- lease and run ---- */

#ifdef NO_GATE
#define GATE_FOR_CLAIMS true
#else
#define GATE_FOR_CLAIMS GATE
#endif

/* acquire; claim is acquire of a run in `ready`. */
inline acquire(s) {
    if
    :: db.w_token[s] -> /* take_again */
        if
        :: db.owner == s && !db.lapsed && db.epoch == w_epoch[s] && !ENDED -> out = OK
        :: else -> out = USED
        fi
    :: else ->
        if
        :: !GATE_FOR_CLAIMS -> out = CLOSED
        :: else ->
            if
#ifndef NO_TERMINAL_CHECK
            :: ENDED -> out = USED
#endif
            :: else ->
                if
                :: db.owner != 0 && !db.lapsed -> out = BUSY
                :: db.owner == 0 && !db.ready -> out = BUSY
                :: else ->
                    if
                    :: MAXTRIES != 0 && db.tries >= MAXTRIES -> fail_runs(); out = ENDS
                    :: else ->
                        db.epoch++; db.owner = s; db.lapsed = 0; db.j_holder = s;
                        assert(db.epoch > j_top); j_top = db.epoch;
                        if
                        :: db.status == PENDING -> set_status(RUNNING); db.rev++
                        :: else
                        fi;
#ifdef NO_TERMINAL_CHECK
                        assert(!ENDED);
#endif
                        db.tries = (MAXTRIES == 0 -> 0 : db.tries + 1);
#ifndef NO_PREVIOUS_COMMIT
                        db.p_id = db.c_id; db.p_epoch = db.c_epoch;
#endif
                        db.c_id = 0; db.c_epoch = db.epoch;
#ifndef NO_READY_DELETE
                        db.ready = 0;
#endif
                        db.w_token[s] = 1; w_epoch[s] = db.epoch; out = OK
                    fi
                fi
            fi
        fi
    fi
}

#ifdef NO_EXPIRY_CHECK_IN_RENEW
#define RENEWABLE true
#else
#define RENEWABLE !db.lapsed
#endif
/* renew: time is not counted, so that a renewal that counts changes nothing; it must never revive. */
inline renew(s) {
    if
    :: db.owner == s && db.epoch == w_epoch[s] && !ENDED && RENEWABLE -> db.lapsed = 0; assert(db.j_holder == s)
    :: else
    fi
}

/* release(graceful) */
inline release(s) {
    if
#ifndef NO_HOLDER_CHECK_IN_RELEASE
    :: db.owner == s && db.epoch == w_epoch[s] && !db.lapsed ->
        assert(db.j_holder == s);
#else
    :: db.owner != 0 -> assert(db.j_holder == s);
#endif
        db.owner = 0; db.j_holder = 0;
#ifdef NO_EPOCH_KEPT
        db.epoch = 0;
#endif
        if
        :: !ENDED -> db.tries = 0; db.ready = 1
        :: else
        fi
    :: else
    fi
}

/* commit_intents and its write, for operation o. */
inline register(o, after) {
    if
    :: db.o_st[o] != ABSENT -> skip /* same */
    :: else ->
#ifdef VERSIONS
        /* Operation 1 is version 2 of operation 0's step. */
        if
        :: o == 1 && (db.o_st[0] == PREPARED || UNSENT(0)) -> cancel_operation(0)
        :: else
        fi;
        db.o_after[o] = after && IN_DOUBT(0);
#endif
        set_op(o, PREPARED)
    fi
}
#ifdef VERSIONS
#ifdef NO_EFFECT_IN_DOUBT
#define REFUSES_INTENT(k) (k == K_INTENT0 && db.o_st[1] != ABSENT && db.o_st[0] == ABSENT)
#else
#define REFUSES_INTENT(k) ((k == K_INTENT1 && db.o_st[1] == ABSENT && IN_DOUBT(0)) \
                           || (k == K_INTENT0 && db.o_st[1] != ABSENT && db.o_st[0] == ABSENT))
#endif
#else
#define REFUSES_INTENT(k) false
#endif
#ifdef NO_OPEN_OPERATIONS
#define REFUSES_SUCCESS(k) false
#else
#define REFUSES_SUCCESS(k) ((k == K_SUCCEED && (OPEN(0) || OPEN(1))) \
    || (k == K_DETACH && (db.o_st[0] == PREPARED || UNSENT(0) || db.o_st[1] == PREPARED || UNSENT(1))))
#endif
/* A wait for no operation is invalid. */
#define REFUSES_WAIT(k) (k == K_PARK && db.o_st[0] == ABSENT && db.o_st[1] == ABSENT)

#if defined(NO_HOLDER_CHECK)
#define HOLDS(s, e) true
#elif defined(NO_EPOCH_CHECK)
#define HOLDS(s, e) (db.owner == s && !db.lapsed)
#elif defined(NO_EXPIRY_CHECK)
#define HOLDS(s, e) (db.owner == s && db.epoch == e)
#else
#define HOLDS(s, e) (db.owner == s && db.epoch == e && !db.lapsed)
#endif

/* commit. dead: its worker was told before that it was not applied. */
inline commit(s, e, r, id, k, dead) {
    if
#ifndef NO_COMMIT_ID
    :: db.c_id == id && db.c_epoch == e -> out = OK
    :: !(db.c_id == id && db.c_epoch == e) && db.p_id == id && db.p_epoch == e -> out = OK
#endif
    :: else ->
        if
        :: e < db.p_epoch -> out = SUPERSEDED
        :: e >= db.p_epoch && !HOLDS(s, e) -> out = LEASE_LOST
        :: else ->
            if
#ifndef NO_STATUS_CHECK
            :: db.status != RUNNING -> out = NOT_RUNNING
#endif
            :: else ->
                if
#ifndef NO_REVISION_CHECK
                :: r != db.rev -> out = CONFLICT
#endif
                :: else ->
                    if
                    :: REFUSES_INTENT(k) || REFUSES_SUCCESS(k) || REFUSES_WAIT(k) -> out = NOT_YET
                    :: else -> commit_write(s, e, r, id, k, dead); out = OK
                    fi
                fi
            fi
        fi
    fi
}

/* A commit_id is as good as the term and the revision that its worker expected: it makes no two with the same. */
#define ID(s)  (2 * w_rev[s] + 1)
#define ID2(s) (2 * w_rev[s] + 2)       /* of the second writer */
/* One intent, one identity. Without it the next epoch plans the same effect under a second name. */
#ifdef NO_STABLE_IDENTITY
#define REGISTER0 if :: db.o_st[0] == ABSENT -> register(0, 0) :: else -> register(1, 0) fi
#else
#define REGISTER0 register(0, 0)
#endif

inline commit_write(s, e, r, id, k, dead) {
    assert(db.j_holder == s);                       /* I1 */
    assert(!(db.j_wrote & (1 << r)));               /* I2 */
    assert(r == db.rev);
    assert(!dead);
    db.j_wrote = db.j_wrote | (1 << r);
    if
    :: w_st[s] == W_COMMIT && id == ID(s) -> db.j_applied[s] = id
    :: else
    fi;
    db.rev++; db.tries = 0; db.wait = 0; db.woke = 0; db.c_id = id; db.c_epoch = e;
    if
    :: k == K_INTENT0 -> REGISTER0
    :: k == K_INTENT1 -> register(1, 0)
    :: k == K_AFTER1 -> register(1, 1)
    :: k == K_BOTH -> REGISTER0; register(1, 0)
    :: k == K_PARK -> db.wait = W_OPS
    :: k == K_SLEEP -> db.wait = W_TIME
    :: k == K_GIVE || k == K_CHECKPOINT -> skip
    :: k == K_SUCCEED -> set_status(SUCCEEDED)
    :: k == K_DETACH ->
        set_status(SUCCEEDED);
        if
        :: IN_DOUBT(0) -> db.o_det[0] = 1
        :: else
        fi;
        if
        :: IN_DOUBT(1) -> db.o_det[1] = 1
        :: else
        fi
    :: k == K_FAIL -> set_status(FAILED); cancel_open()
    fi;
    if
    :: LEAVES(k) ->
        db.owner = 0; db.j_holder = 0;
        if
        :: k == K_GIVE -> db.ready = 1
#ifndef NO_WAKE_IN_COMMIT
        :: k == K_PARK -> wake_runs(false)
#endif
        :: else
        fi
    :: else
    fi
}
/* What a worker makes of the answer. */
inline commit_heard(s) {
    assert(!(out == LEASE_LOST || out == CONFLICT || out == NOT_RUNNING || out == NOT_YET) ||
           db.j_applied[s] != ID(s));
#ifdef GHOST
    if
    :: out != OK && out != SUPERSEDED && g_kind != 0 && g_by == s && g_id == ID(s) && g_epoch == w_epoch[s] ->
        g_dead = (out != NOT_YET)   /* refused for what the ledger said: it may be offered again */
    :: else
    fi;
#endif
    db.j_applied[s] = 0;
    if
    :: out == OK && !LEAVES(w_kind[s]) -> w_rev[s]++; w_st[s] = W_HOLD
    :: out == OK && LEAVES(w_kind[s]) -> w_st[s] = W_GONE
    :: out == CONFLICT -> w_rev[s] = db.rev; w_st[s] = W_HOLD
    :: out == NOT_YET -> w_st[s] = W_HOLD
    :: else -> w_st[s] = W_GONE
    fi;
    w_kind[s] = 0;
    worker_rests(s)
}
/* Who has lost its lease for ever need not know a revision, until it is told one. (A promotion may give it back.) */
inline stale(s) {
#ifndef FAILOVER
    if
    :: w_st[s] == W_HOLD -> w_rev[s] = 0
    :: else
    fi
#else
    skip
#endif
}
/* What nobody needs any more is forgotten, so that equal states are equal. */
inline worker_rests(s) {
    if
    :: w_st[s] == W_GONE -> w_epoch[s] = 0; w_rev[s] = 0
    :: else
    fi
}

/* cancel */
inline cancel() {
    set_status(CANCELLED); db.rev++;
    db.wait = 0; db.woke = 0; db.ready = 0;
    cancel_open()
}

/* sweep: a lease that ran out. */
inline sweep_lease() {
    if
    :: ENDED -> db.owner = 0; db.lapsed = 0
    :: !ENDED && (MAXTRIES == 0 || db.tries < MAXTRIES) -> db.owner = 0; db.lapsed = 0; db.ready = 1
    :: else -> fail_runs()
    fi
}

/* ---- ledger ---- */

/* Is this session's claim the latest one? dispatch_owner: of its own for each claim. */
#if defined(FAILOVER) && !defined(NO_SESSION_PER_HISTORY)
#define SAME_OWNER(d) (db.o_new[d_op[d]] == d_new[d])
#else
#define SAME_OWNER(d) true
#endif
#if defined(NO_CLAIM_IDENTITY)
#define LATEST(d) true
#elif defined(NO_DISPATCH_REVISION)
#define LATEST(d) (SAME_OWNER(d) && db.o_catt[d_op[d]] == d_att[d])
#else
#define LATEST(d) (SAME_OWNER(d) && db.o_crev[d_op[d]] == d_crev[d] && db.o_catt[d_op[d]] == d_att[d])
#endif

/* claim_operations, claim_unknown */
#ifdef NO_WAIT_FOR_PREDECESSOR
#define PREDECESSOR(o) true
#else
#define PREDECESSOR(o) (!db.o_after[o] || !OPEN(0))
#endif
#ifdef NO_UNSENT_RULE
#define MAY_FIRST(o) (db.o_st[o] == PREPARED || db.o_st[o] == UNKNOWN)
#else
#define MAY_FIRST(o) (db.o_st[o] == PREPARED || UNSENT(o))
#endif
#ifdef NO_CAPABILITY_CHECK
#define MAY_AGAIN(o) (db.o_st[o] == UNKNOWN && IN_DOUBT(o))
#else
#define MAY_AGAIN(o) (db.o_st[o] == UNKNOWN && IN_DOUBT(o) && CAP(o) == KEY)
#endif
#define CLAIMABLE(o) ((MAY_FIRST(o) && PREDECESSOR(o) && (!ENDED || db.o_det[o])) || MAY_AGAIN(o))

inline claim_take(d, o) {
    set_op(o, DISPATCHING);
    db.o_att[o]++; db.o_catt[o] = db.o_att[o]; db.o_crev[o] = db.o_rev[o]; db.o_told[o] = 0; db.d_token[d] = 1;
    MARK_HISTORY(o, d)
    d_op[d] = o; d_att[d] = db.o_att[o]; d_crev[d] = db.o_rev[o]
}

/* record_result */
inline record_result(d, good) {
    if
    :: db.o_st[d_op[d]] == DISPATCHING && LATEST(d) ->
        if
        :: good -> set_op(d_op[d], DONE)
#ifndef NO_DOUBT_RULE
        :: !good && (FORKED || db.o_att[d_op[d]] - db.o_ns[d_op[d]] > 1) ->
            if
            :: FORKED -> doubt(d_op[d])
            :: else
            fi;
            set_op(d_op[d], UNKNOWN)
#endif
        :: else -> set_op(d_op[d], REFUSED)
        fi;
#ifndef NO_WAKE_IN_RECORD
        wake_runs(false)
#endif
    :: else /* late: evidence */
    fi
}

/* record_not_sent: asked again, it is not counted again. */
#ifdef NO_TOLD_ONCE
#define TOLD(o) false
#else
#define TOLD(o) db.o_told[o]
#endif
inline record_not_sent(d) {
    if
    :: LATEST(d) && (db.o_st[d_op[d]] == DISPATCHING || db.o_st[d_op[d]] == UNKNOWN) && !TOLD(d_op[d]) ->
        db.o_ns[d_op[d]]++;
        if
        :: FORKED -> db.o_att[d_op[d]]++
        :: else
        fi;
        db.o_told[d_op[d]] = 1;
        if
#ifndef NO_CANCEL_UNSENT
        :: db.o_att[d_op[d]] == db.o_ns[d_op[d]] && ENDED && !db.o_det[d_op[d]] -> set_op(d_op[d], GONE)
#endif
        :: else -> set_op(d_op[d], UNKNOWN)
        fi
    :: else
    fi
}

/* record_unknown */
inline record_unknown(d) {
    if
    :: LATEST(d) && db.o_st[d_op[d]] == DISPATCHING -> set_op(d_op[d], UNKNOWN)
    :: else
    fi
}

/* expire_claims */
inline expire_claim(o) {
#ifdef NO_UNKNOWN_ON_EXPIRY
    db.o_st[o] = PREPARED; NEW_REVISION(o)
#else
    set_op(o, UNKNOWN)
#endif
}

/* The session of a claim that is over keeps only what a request on its way needs. */
inline dispatch_rests(d) {
    d_st[d] = D_OVER; d_att[d] = 0; d_crev[d] = 0; d_new[d] = 0;
    if
    :: d_req[d] != R_WAY -> d_req[d] = 0; d_op[d] = 0
    :: else
    fi
}

/* The remote acts, for the first time or, without a key, once more. */
inline act(d) {
    if
    :: CAP(d_op[d]) == NONE || effect[d_op[d]] == 0 ->
        effect[d_op[d]]++;
        assert(effect[d_op[d]] == 1);   /* I3, I4: at most one execution, whatever the tool can do */
        assert((db.o_st[d_op[d]] != REFUSED && db.o_st[d_op[d]] != GONE) || EXCUSED(d_op[d]));
#ifdef VERSIONS
        assert(d_op[d] == 1 || effect[1] == 0); /* never the old version's effect after the new one's */
#endif
#ifdef NO_STABLE_IDENTITY
        assert(effect[0] + effect[1] == 1)
#endif
    :: else
    fi
}

/* ---- the actors ---- */

/* What a handler may decide. PLAN: the usual life (plan both effects, wait for them, end), for the largest products. */
inline choose_kind(k, r) {
    if
#ifdef PLAN
#ifdef ONE
    :: r < 2 -> k = K_INTENT0
#else
    :: r < 2 -> k = K_BOTH
#endif
    :: r == 2 -> k = K_PARK
    :: r >= 2 -> k = K_DETACH
#else
#ifdef LEDGER
    :: r < MAXREV -> k = K_INTENT0
    :: r < MAXREV -> k = K_INTENT1
#ifdef VERSIONS
    :: r < MAXREV -> k = K_AFTER1
#endif
    :: r < MAXREV -> k = K_PARK
    :: k = K_DETACH
#else
    :: r < MAXREV -> k = K_CHECKPOINT
#endif
    :: r < MAXREV -> k = K_SLEEP
    :: r < MAXREV -> k = K_GIVE
#endif
    :: k = K_SUCCEED
    :: k = K_FAIL
    fi
}

proctype Worker(byte me) {
    byte k;
end:
    do
    /* acquire: answered, or the answer is lost, and asked again with the same token */
    :: atomic { (w_st[me] == W_ASK && asked == me && !ENDED) || w_st[me] == W_ASKED ->
        if
        :: w_st[me] == W_ASK -> asked++; w_st[me] = W_ASKED
        :: else
        fi;
        d_step { acquire(me) };
        if
#ifdef TOKENS
        :: d_step { judge() }
#endif
        :: d_step { out == OK -> w_st[me] = W_HOLD; w_rev[me] = db.rev; judge() }
        :: d_step { out == USED || out == ENDS -> w_st[me] = W_GONE; worker_rests(me); judge() }
        :: d_step { out == BUSY || out == CLOSED -> judge() }
        fi }
    :: atomic { w_st[me] == W_HOLD -> d_step { renew(me); judge() } }
    :: atomic { w_st[me] == W_HOLD -> d_step { release(me); w_st[me] = W_GONE; worker_rests(me); judge() } }
    /* commit: a next step, first tried now, or one in doubt tried again */
    :: atomic { w_st[me] == W_HOLD || w_st[me] == W_COMMIT ->
        if
        :: w_st[me] == W_HOLD ->
            choose_kind(k, w_rev[me]);
            w_kind[me] = k; k = 0; w_st[me] = W_COMMIT;
            if
            :: true
            :: goto sent /* the request is lost or late: not there yet */
            fi
        :: else
        fi;
        d_step { commit(me, w_epoch[me], w_rev[me], ID(me), w_kind[me], 0) };
        if
        :: d_step { commit_heard(me); judge() }
        :: d_step { judge() } /* the answer is lost */
        fi;
        goto heard
sent:
#ifdef GHOST
        if
        :: d_step { g_kind == 0 ->
            g_kind = w_kind[me]; g_by = me; g_epoch = w_epoch[me]; g_rev = w_rev[me]; g_id = ID(me) }
        :: true
        fi;
#endif
heard:  skip }
#ifdef GHOST
    /* a second writer of the same term, with the same expected revision */
    :: atomic { w_st[me] == W_HOLD && g_kind == 0 && w_rev[me] < MAXREV ->
        choose_kind(k, w_rev[me]);
        d_step { g_kind = k; k = 0; g_by = me; g_epoch = w_epoch[me]; g_rev = w_rev[me]; g_id = ID2(me) } }
#endif
    od
}

#ifdef LEDGER
#define ANSWERED if :: d_step { dispatch_rests(me) } :: true fi
#ifdef FAILOVER
#define READY_TO_SEND D_MAYSEND
#else
#define READY_TO_SEND D_CLAIMED
#endif
proctype Dispatcher(byte me) {
end:
    do
    :: atomic { GATE_FOR_CLAIMS && (CLAIMABLE(0) || CLAIMABLE(1)) &&
                ((d_st[me] == D_FREE && claimed == me) || (d_st[me] == D_ASKED && !db.d_token[me])) ->
        if
        :: d_st[me] == D_FREE -> claimed++
        :: else
        fi;
        if
        :: CLAIMABLE(0) -> d_step { claim_take(me, 0); d_st[me] = D_CLAIMED; judge() }
        :: CLAIMABLE(1) -> d_step { claim_take(me, 1); d_st[me] = D_CLAIMED; judge() }
        fi;
#ifdef TOKENS
        if
        :: true
        :: d_st[me] = D_ASKED /* the answer is lost */
        fi
#endif
        }
#ifdef TOKENS
    /* claim_again, at any time later; nothing is extended, so that it may be refused at any time, too */
    :: atomic { d_st[me] == D_ASKED && db.d_token[me] ->
        if
        :: db.o_st[d_op[me]] == DISPATCHING && db.o_crev[d_op[me]] == d_crev[me] &&
           db.o_catt[d_op[me]] == d_att[me] -> d_st[me] = D_CLAIMED
        :: d_step { dispatch_rests(me) }
        fi }
#endif
#ifdef FAILOVER
    /* async mode: a claim of a tool that nobody can ask is sent only once Kafka holds it */
    :: atomic { d_st[me] == D_CLAIMED -> d_st[me] = D_MAYSEND; kafka[d_op[me]] = (CAP(d_op[me]) == NONE) }
#endif
    /* the last hook: before the deadline */
    :: atomic { d_st[me] == READY_TO_SEND -> d_st[me] = D_SENT; d_req[me] = R_WAY }
    /* the remote: at any time, also long after its caller has given up */
    :: atomic { d_req[me] == R_WAY ->
        if
        :: d_step { act(me); d_req[me] = R_OK }
        :: CAP(d_op[me]) == NONE || effect[d_op[me]] == 0 -> d_req[me] = R_NO
        :: CAP(d_op[me]) == NONE || effect[d_op[me]] == 0 -> d_req[me] = R_429
        :: d_st[me] == D_OVER -> d_req[me] = R_NO /* it never arrives */
        fi;
        if
        :: d_st[me] == D_OVER -> d_step { d_req[me] = 0; d_op[me] = 0 }
        :: else
        fi }
    /* What the session knows, it records: at any time later, and again until it is answered. */
    :: atomic { d_st[me] == D_SENT && d_req[me] == R_OK -> d_step { record_result(me, true); judge() }; ANSWERED }
    :: atomic { d_st[me] == D_SENT && d_req[me] == R_NO -> d_step { record_result(me, false); judge() }; ANSWERED }
    :: atomic { d_st[me] == D_SENT && d_req[me] == R_429 -> d_step { record_not_sent(me); judge() }; ANSWERED }
    :: atomic { d_st[me] == D_SENT -> d_step { record_unknown(me); judge() }; ANSWERED } /* time-out */
    :: atomic { d_st[me] == D_CLAIMED || d_st[me] == D_MAYSEND || d_st[me] == D_NOTSENT ->
        d_step { d_st[me] = D_NOTSENT; record_not_sent(me); judge() }; ANSWERED }
    od
}
#endif
/* Cancel, time, and the sweep. */
proctype World() {
end:
    do
    :: atomic { !ENDED -> d_step { cancel(); judge() } }
    :: atomic { db.owner != 0 && !db.lapsed -> d_step { db.lapsed = 1; db.j_holder = 0; stale(db.owner) } }
    :: atomic { db.owner != 0 && db.lapsed -> d_step { sweep_lease(); judge() } }
    :: atomic { !ENDED && db.wait == W_TIME && !db.woke -> d_step { wake_runs(true); judge() } }
#ifdef LEDGER
    :: atomic { db.o_st[0] == DISPATCHING -> d_step { expire_claim(0); judge() } }
    :: atomic { db.o_st[1] == DISPATCHING -> d_step { expire_claim(1); judge() } }
#endif
#ifdef GHOST
    :: atomic { g_kind != 0 ->
        if
        :: d_step { commit(g_by, g_epoch, g_rev, g_id, g_kind, g_dead); judge() }
        :: true /* it never arrives */
        fi;
        d_step { g_kind = 0; g_by = 0; g_epoch = 0; g_rev = 0; g_id = 0; g_dead = 0 } }
#endif
    od
}

#ifdef FAILOVER
inline copy(to, from) {
    to.status = from.status; to.rev = from.rev; to.epoch = from.epoch; to.owner = from.owner; to.lapsed = from.lapsed;
    to.ready = from.ready; to.wait = from.wait; to.woke = from.woke; to.tries = from.tries;
    to.c_id = from.c_id; to.c_epoch = from.c_epoch; to.p_id = from.p_id; to.p_epoch = from.p_epoch;
    to.j_holder = from.j_holder; to.j_wrote = from.j_wrote;
    i_ = 0;
    do
    :: i_ < 4 ->
        to.w_token[i_] = from.w_token[i_]; to.d_token[i_] = from.d_token[i_]; to.j_applied[i_] = from.j_applied[i_];
        i_++
    :: else -> break
    od;
    i_ = 0;
    do
    :: i_ < 2 ->
        to.o_st[i_] = from.o_st[i_]; to.o_att[i_] = from.o_att[i_]; to.o_ns[i_] = from.o_ns[i_];
        to.o_rev[i_] = from.o_rev[i_]; to.o_crev[i_] = from.o_crev[i_]; to.o_catt[i_] = from.o_catt[i_]; to.o_told[i_] = from.o_told[i_];
        to.o_det[i_] = from.o_det[i_]; to.o_new[i_] = from.o_new[i_]; to.o_after[i_] = from.o_after[i_];
        i_++
    :: else -> break
    od;
    i_ = 0
}
inline forget() {
    sn.status = 0; sn.rev = 0; sn.epoch = 0; sn.owner = 0; sn.lapsed = 0; sn.ready = 0; sn.wait = 0; sn.woke = 0;
    sn.tries = 0; sn.c_id = 0; sn.c_epoch = 0; sn.p_id = 0; sn.p_epoch = 0; sn.j_holder = 0; sn.j_wrote = 0;
    i_ = 0;
    do
    :: i_ < 4 -> sn.w_token[i_] = 0; sn.d_token[i_] = 0; sn.j_applied[i_] = 0; i_++
    :: else -> break
    od;
    i_ = 0;
    do
    :: i_ < 2 ->
        sn.o_st[i_] = 0; sn.o_att[i_] = 0; sn.o_ns[i_] = 0; sn.o_rev[i_] = 0; sn.o_crev[i_] = 0; sn.o_catt[i_] = 0; sn.o_told[i_] = 0;
        sn.o_det[i_] = 0; sn.o_new[i_] = 0; sn.o_after[i_] = 0;
        i_++
    :: else -> break
    od;
    i_ = 0
}

/* gate_settle: whatever is not settled may have been sent once more than this history knows. A claim goes on, and its
 * success still counts. */
inline settle_ledger() {
    i_ = 0;
    do
    :: i_ < 2 ->
        if
        :: db.o_st[i_] == PREPARED || UNSENT(i_) -> doubt(i_)
#ifndef NO_DOUBT_OF_CLAIMS
        :: IN_DOUBT(i_) -> doubt(i_)
#endif
        :: else
        fi;
        i_++
    :: else -> break
    od;
    i_ = 0
}

#define LOST_CLAIM(d) ((d_st[d] == D_CLAIMED || d_st[d] == D_MAYSEND) && !db.d_token[d])
#ifdef NO_WAIT_FOR_LOST_CLAIMS
#define NO_LOST_CLAIM_CAN_SEND true
#else
#define NO_LOST_CLAIM_CAN_SEND (!LOST_CLAIM(1) && !LOST_CLAIM(2) && !LOST_CLAIM(3))
#endif

proctype Failover() {
    /* Asynchronous replication: the standby has what was committed up to some moment. */
end1:
    atomic { !promoted -> d_step { copy(sn, db); snapped = 1 } };
    /* The old primary is gone, with every request on its way to it. */
end2:
    atomic { snapped ->
        d_step {
            i_ = 0;
            do
            :: i_ < 2 -> orphan[i_] = (sn.o_st[i_] == ABSENT && db.o_att[i_] > 0); i_++
            :: else -> break
            od;
            i_ = 0;
            copy(db, sn); forget(); snapped = 0; promoted = 1; forked = 1;
#ifdef GHOST
            g_kind = 0; g_by = 0; g_epoch = 0; g_rev = 0; g_id = 0; g_dead = 0;
#endif
            judge()
        } };
    /* The audit, then gate_open. Claims of the lost history can no longer send; what Kafka knows to be claimed and the
     * ledger does not know is put into it before the run goes on. */
end3:
    atomic { forked && NO_LOST_CLAIM_CAN_SEND ->
        d_step {
#ifndef NO_EPOCH_RAISE
            if
            :: !ENDED -> db.epoch = db.epoch + RAISE; db.j_holder = 0
            :: else
            fi;
#endif
#ifndef NO_LOST_HISTORY
            settle_ledger();
#endif
#ifndef NO_AUDIT
            i_ = 0;
            do
            :: i_ < 2 ->
                if
                :: db.o_st[i_] == ABSENT && kafka[i_] -> db.o_st[i_] = UNKNOWN; db.o_att[i_] = 1; db.o_det[i_] = ENDED
                :: else
                fi;
                i_++
            :: else -> break
            od;
#endif
            forked = 0; kafka[0] = 0; kafka[1] = 0;
            judge()
        } }
}
#endif

init {
    atomic {
        db.ready = 1; /* submit, create_runs */
        run Worker(1);
#if WORKERS > 1
        run Worker(2);
#endif
#if WORKERS > 2
        run Worker(3);
#endif
#ifdef LEDGER
        run Dispatcher(1);
#if CLAIMS > 1
        run Dispatcher(2);
#endif
#if CLAIMS > 2
        run Dispatcher(3);
#endif
#endif
        run World();
#ifdef FAILOVER
        run Failover()
#endif
    }
}
