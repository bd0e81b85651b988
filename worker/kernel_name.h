/* kernel_name: the symbol of a GPU kernel as a name to read: of a mangled C++ name (Itanium ABI,
 * 5.1.3) its identifiers, without arguments; anonymous namespaces are left out. Others as they are.
 *
 *     kernel_name("_ZN7cutlass13device_kernelI...", name, sizeof name); "cutlass::device_kernel"
 */
#pragma once
#include <stddef.h>

void kernel_name(const char *symbol, char *ret_name, size_t size); /* cut where it is longer */
