/* must: assertions about our own code. They stay on in release builds: a worker that continues
 * after a broken invariant trains garbage. A failed must() prints file, line and the expression,
 * calls the last-words hook (the worker writes them into its job folder, where they become the
 * job's failure reason), and aborts. Never used on outside input: that gets an error (err.h). */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Called once with the sentence just before abort(); NULL for none. Must not allocate. */
extern void (*must_last_words)(const char *sentence);

#if defined(__GNUC__)
__attribute__((noreturn, cold))
#endif
void must_fail(const char *file, int line, const char *expression);

#define must(expression) ((expression) ? (void)0 : must_fail(__FILE__, __LINE__, #expression))

#ifdef __cplusplus
}
#endif
