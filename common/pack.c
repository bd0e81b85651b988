/* pack: best fit decreasing. Examples are taken from the longest to the shortest (equal lengths:
 * the lower index first) and each goes into the sequence with the least room that still holds it
 * (equal rooms: the one that came to that room last); else it opens a sequence.
 *
 * Sequences with the same room form a stack, linked through `below`; `top[room]` is its head, plus
 * one, so that zeroed memory is empty. A tree of bit words over the rooms 0..seq_len, 64 ways at
 * each level, finds the smallest room >= length that has a stack in at most log64(seq_len) steps
 * up and down. Memory: 8 bytes a room (untouched pages cost nothing) and some 40 bytes an example.
 */
#include "common/pack.h"

#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"

enum { ROOMS_LEVELS = 5 }; /* 64^5 > LIMIT_SEQ_LEN */

struct rooms {
    int64_t *top;                  /* (rooms) sequence + 1 at the head of the stack, or 0 */
    int64_t *below;                /* (examples) next sequence + 1 of the same room, or 0 */
    uint64_t *words[ROOMS_LEVELS]; /* bit i of level 0: room i has a stack; of level l: word i of
                                      level l-1 is not zero */
    int64_t count[ROOMS_LEVELS];   /* bits in use */
};

static void rooms_done(struct rooms *rooms)
{
    mem_free(rooms->top);
    mem_free(rooms->below);
    for (int level = 0; level < ROOMS_LEVELS; level++)
        mem_free(rooms->words[level]);
}

static int rooms_init(struct rooms *rooms, int64_t seq_len, int64_t examples, struct err *err)
{
    *rooms = (struct rooms){0};
    rooms->top = mem_new((size_t)seq_len + 1, sizeof *rooms->top);
    rooms->below = mem_new((size_t)examples, sizeof *rooms->below);
    bool lost = rooms->top == NULL || rooms->below == NULL;
    int64_t bits = seq_len + 1;
    for (int level = 0; level < ROOMS_LEVELS; level++) {
        rooms->count[level] = bits;
        bits = (bits + 63) / 64;
        rooms->words[level] = mem_new((size_t)bits, sizeof *rooms->words[level]);
        lost = lost || rooms->words[level] == NULL;
    }
    must(bits == 1);
    return lost ? mem_fail(err, ((size_t)seq_len + (size_t)examples) * 8, "packing") : 0;
}

static void rooms_push(struct rooms *rooms, int64_t room, int64_t sequence)
{
    rooms->below[sequence] = rooms->top[room];
    rooms->top[room] = sequence + 1;
    for (int level = 0; level < ROOMS_LEVELS; level++) {
        rooms->words[level][room / 64] |= (uint64_t)1 << (room % 64);
        room /= 64;
    }
}

static int64_t rooms_pop(struct rooms *rooms, int64_t room)
{
    int64_t sequence = rooms->top[room] - 1;
    must(sequence >= 0);
    rooms->top[room] = rooms->below[sequence];
    if (rooms->top[room] != 0)
        return sequence;
    for (int level = 0; level < ROOMS_LEVELS; level++) {
        uint64_t *word = &rooms->words[level][room / 64];
        *word &= ~((uint64_t)1 << (room % 64));
        if (*word != 0)
            break;
        room /= 64;
    }
    return sequence;
}

/* Smallest room >= least that has a sequence, or -1. */
static int64_t rooms_find(const struct rooms *rooms, int64_t least)
{
    int64_t at = least;
    for (int level = 0; level < ROOMS_LEVELS && at < rooms->count[level]; level++) {
        uint64_t bits = rooms->words[level][at / 64] >> (at % 64);
        if (bits != 0) {
            at += __builtin_ctzll(bits);
            while (level-- > 0)
                at = at * 64 + __builtin_ctzll(rooms->words[level][at]);
            return at;
        }
        at = at / 64 + 1;
    }
    return -1;
}

/* order: the examples from the longest to the shortest, equal ones by their index (a counting
 * sort: lengths are below seq_len, and a million examples are many). */
static int pack_sort(const int64_t *lengths, int64_t examples, int64_t seq_len, int64_t *order,
                     struct err *err)
{
    CLEANUP(mem_free_ptr) int64_t *places = mem_new((size_t)seq_len + 1, sizeof *places);
    if (places == NULL)
        return mem_fail(err, (size_t)seq_len * sizeof *places, "packing");
    for (int64_t e = 0; e < examples; e++) {
        must(lengths[e] > 0 && lengths[e] <= seq_len);
        places[seq_len - lengths[e] + 1]++;
    }
    for (int64_t shorter = 0; shorter < seq_len; shorter++)
        places[shorter + 1] += places[shorter];
    for (int64_t e = 0; e < examples; e++)
        order[places[seq_len - lengths[e]]++] = e;
    return 0;
}

/* into[e] = a number for the sequence of example e; returns how many sequences. */
static int64_t pack_assign(const int64_t *lengths, const int64_t *order, int64_t examples,
                           int64_t seq_len, struct rooms *rooms, int64_t *into)
{
    int64_t sequences = 0;
    for (int64_t i = 0; i < examples; i++) {
        int64_t example = order[i];
        int64_t length = lengths[example];
        int64_t room = rooms_find(rooms, length);
        into[example] = room >= 0 ? rooms_pop(rooms, room) : sequences++;
        rooms_push(rooms, (room >= 0 ? room : seq_len) - length, into[example]);
    }
    return sequences;
}

/* Renumbers sequences by their lowest example and lists members in rising order. number: scratch
 * of zeros, one an example. */
static void pack_list(struct pack *pack, int64_t examples, int64_t *into, int64_t *number)
{
    int64_t next = 0;
    for (int64_t e = 0; e < examples; e++) {
        if (number[into[e]] == 0)
            number[into[e]] = ++next;
        into[e] = number[into[e]] - 1;
        pack->first[into[e] + 1]++;
    }
    must(next == pack->sequences);
    for (int64_t s = 0; s < pack->sequences; s++)
        pack->first[s + 1] += pack->first[s];
    for (int64_t e = examples - 1; e >= 0; e--) /* fill from the ends, leaving first[s+1] there */
        pack->members[--pack->first[into[e] + 1]] = e;
    for (int64_t s = 0; s < pack->sequences; s++) /* which moved each to its own start */
        pack->first[s] = pack->first[s + 1];
    pack->first[pack->sequences] = examples;
}

static int pack_fill(const int64_t *lengths, int64_t examples, int64_t seq_len, struct pack *pack,
                     struct err *err)
{
    size_t count = (size_t)examples;
    CLEANUP(rooms_done) struct rooms rooms;
    TRY(rooms_init(&rooms, seq_len, examples, err));
    CLEANUP(mem_free_ptr) int64_t *order = mem_new(count, sizeof *order);
    CLEANUP(mem_free_ptr) int64_t *into = mem_new(count, sizeof *into);
    CLEANUP(mem_free_ptr) int64_t *number = mem_new(count, sizeof *number);
    if (order == NULL || into == NULL || number == NULL)
        return mem_fail(err, count * sizeof *order, "packing");
    TRY(pack_sort(lengths, examples, seq_len, order, err));
    pack->sequences = pack_assign(lengths, order, examples, seq_len, &rooms, into);
    pack_list(pack, examples, into, number);
    return 0;
}

int pack_build(const int64_t *lengths, int64_t examples, int64_t seq_len, bool packing,
               struct pack *ret, struct err *err)
{
    must(examples >= 0 && seq_len > 0 && seq_len <= LIMIT_SEQ_LEN);
    struct pack pack = {.first = mem_new((size_t)examples + 1, sizeof *pack.first),
                        .members = mem_new((size_t)examples, sizeof *pack.members)};
    int rc = 0;
    if (pack.first == NULL || pack.members == NULL)
        rc = mem_fail(err, (size_t)examples * sizeof *pack.first, "packing");
    else if (packing)
        rc = pack_fill(lengths, examples, seq_len, &pack, err);
    else
        for (pack.sequences = 0; pack.sequences < examples; pack.sequences++) {
            must(lengths[pack.sequences] > 0 && lengths[pack.sequences] <= seq_len);
            pack.members[pack.sequences] = pack.sequences;
            pack.first[pack.sequences + 1] = pack.sequences + 1;
        }
    if (rc != 0) {
        pack_done(&pack);
        return rc;
    }
    *ret = pack;
    return 0;
}

void pack_done(struct pack *pack)
{
    mem_free(pack->first);
    mem_free(pack->members);
    *pack = (struct pack){0};
}

int pack_order_init(struct pack_order *order, uint64_t seed, int64_t sequences, struct err *err)
{
    must(sequences > 0);
    *order = (struct pack_order){.seed = seed, .sequences = sequences, .epoch = -1};
    order->order = mem_new((size_t)sequences, sizeof *order->order);
    return order->order != NULL ? 0 : mem_fail(err, (size_t)sequences * 8, "an epoch's order");
}

int64_t pack_order_at(struct pack_order *order, int64_t position)
{
    must(position >= 0);
    int64_t epoch = position / order->sequences;
    if (epoch != order->epoch) {
        rng_permutation(order->seed, RNG_STREAM_SHUFFLE + (uint64_t)epoch,
                        (uint64_t)order->sequences, order->order);
        order->epoch = epoch;
    }
    return (int64_t)order->order[position % order->sequences];
}

void pack_order_done(struct pack_order *order)
{
    mem_free(order->order);
    *order = (struct pack_order){.epoch = -1};
}
