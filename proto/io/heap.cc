#include "proto/io/heap.h"

#include <malloc.h>

namespace tusk::io {
namespace {

constexpr int kKeptBytes = 64 << 20;
// Beyond the largest block: mmap'd memory would go back at once. The C library takes no more than this.
constexpr int kMappedFromBytes = 32 << 20;

}  // namespace

void keep_freed_memory() {
  (void)::mallopt(M_MMAP_THRESHOLD, kMappedFromBytes);
  (void)::mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

void give_back_freed_memory() { (void)::malloc_trim(0); }

}  // namespace tusk::io
