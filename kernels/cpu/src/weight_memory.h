// Memory for a decoder's matrices: large pages where the system has them, given back all at once.
//
// A step reads every weight once, in 4 KiB pages that is a page walk for each 64 cache lines; in a virtual machine, where
// a walk is two, large pages made batch 1 1.1 times as fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "aligned.h"

namespace reprise {

class WeightMemory {
public:
    WeightMemory() = default;
    WeightMemory(const WeightMemory&) = delete;
    WeightMemory& operator=(const WeightMemory&) = delete;
    ~WeightMemory() {
        for (void* chunk : chunks_) std::free(chunk);
    }

    // That many zeros, on a cache line. Throws std::bad_alloc. May be called by several threads.
    uint8_t* take(size_t num_bytes) {
        num_bytes = round_up(num_bytes, kCacheLine);
        uint8_t* taken = cut(num_bytes);
        std::memset(taken, 0, num_bytes);
        return taken;
    }

private:
    static constexpr size_t kLargePage = 2u << 20;
    static constexpr size_t kChunk = 8 * kLargePage;

    uint8_t* cut(size_t num_bytes) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (num_bytes > left_) {
            const size_t size = round_up(num_bytes < kChunk ? kChunk : num_bytes, kLargePage);
            chunks_.reserve(chunks_.size() + 1);
            next_ = static_cast<uint8_t*>(std::aligned_alloc(kLargePage, size));
            left_ = 0;
            if (next_ == nullptr) throw std::bad_alloc();
            chunks_.push_back(next_);
            left_ = size;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
            (void)madvise(next_, size, MADV_HUGEPAGE);  // where refused, the pages are small
#endif
        }
        uint8_t* taken = next_;
        next_ += num_bytes;
        left_ -= num_bytes;
        return taken;
    }

    std::mutex mutex_;
    std::vector<void*> chunks_;
    uint8_t* next_ = nullptr;
    size_t left_ = 0;
};

}  // namespace reprise
