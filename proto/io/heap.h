// How the process's heap behaves towards the kernel.
#pragma once

namespace tusk::io {

// Blocks of file data come and go thousands of times a second. The C library would give their memory back to
// the kernel each time and fault it in again page by page, an eighth of all that a transfer costs. Called
// once, before threads start: up to 64 MiB that are free stay with the process.
void keep_freed_memory();
// Gives back what is free now, wherever it lies in the heap; takes milliseconds. Any thread.
void give_back_freed_memory();

}  // namespace tusk::io
