/* mem_buffer: the tables' names; see mem_buffer.h. */
#include "common/mem_buffer.h"

#include "common/must.h"

#include <string.h>

const char *mem_category_name(enum mem_category category)
{
#define X(id, name) [MEM_CATEGORY_##id] = name,
    static const char *const names[MEM_CATEGORY_COUNT] = { MEM_CATEGORY_TABLE(X) };
#undef X
    must((unsigned)category < MEM_CATEGORY_COUNT);
    return names[category];
}

const char *mem_phase_name(enum mem_phase phase)
{
#define X(id, text) [MEM_PHASE_##id] = text,
    static const char *const names[MEM_PHASE_COUNT] = { MEM_PHASE_TABLE(X) };
#undef X
    must((unsigned)phase < MEM_PHASE_COUNT);
    return names[phase];
}

enum mem_phase mem_phase_find(const char *name)
{
    int phase = 0;
    while (phase < MEM_PHASE_COUNT && strcmp(mem_phase_name((enum mem_phase)phase), name) != 0)
        phase++;
    return (enum mem_phase)phase;
}

const char *mem_name_text(enum mem_name name)
{
#define X(id, text, category) [MEM_##id] = text,
    static const char *const names[MEM_NAME_COUNT] = { MEM_NAME_TABLE(X) };
#undef X
    must((unsigned)name < MEM_NAME_COUNT);
    return names[name];
}

enum mem_category mem_name_category(enum mem_name name)
{
#define X(id, text, category) [MEM_##id] = MEM_CATEGORY_##category,
    static const enum mem_category categories[MEM_NAME_COUNT] = { MEM_NAME_TABLE(X) };
#undef X
    must((unsigned)name < MEM_NAME_COUNT);
    return categories[name];
}

const char *mem_arena_name(enum mem_arena arena)
{
#define X(id, name) [MEM_ARENA_##id] = name,
    static const char *const names[MEM_ARENA_COUNT] = { MEM_ARENA_TABLE(X) };
#undef X
    must((unsigned)arena < MEM_ARENA_COUNT);
    return names[arena];
}

enum mem_phase mem_buffer_first(const struct mem_buffer *buffer)
{
    must(buffer->phases != 0);
    return (enum mem_phase)__builtin_ctzll(buffer->phases);
}

enum mem_phase mem_buffer_last(const struct mem_buffer *buffer)
{
    must(buffer->phases != 0);
    return (enum mem_phase)(63 - __builtin_clzll(buffer->phases));
}

int64_t mem_buffer_room(const struct mem_buffer *buffer)
{
    return (buffer->bytes + MEM_ALIGN_BYTES - 1) / MEM_ALIGN_BYTES * MEM_ALIGN_BYTES;
}

int64_t mem_file_bytes(int64_t bytes)
{
    return (bytes + MEM_FILE_ALIGN_BYTES - 1) / MEM_FILE_ALIGN_BYTES * MEM_FILE_ALIGN_BYTES;
}
