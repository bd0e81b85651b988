/* cmocka, the headers that it wants before it, and calls that must work. */
#pragma once
#include "common/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Fails, with the error's sentence, unless the call returns 0. */
#define MUST_WORK(call, err)                        \
    do {                                            \
        if ((call) != 0)                            \
            fail_msg("%s: %s", #call, (err)->text); \
    } while (0)
/* The same of a call that leaves its error in the scene's err. */
#define OK(scene, call) MUST_WORK(call, &(scene)->err)
