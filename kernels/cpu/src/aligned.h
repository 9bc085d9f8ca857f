// Memory that starts on a cache line, zero at first; moved, never copied.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace reprise {

constexpr size_t kCacheLine = 64;

// Ask for a cache line that will be read soon, no nearer than the second-level cache: it can have many more on their way
// than the first. Any address may be given.
inline void fetch_line(const void* p) { __builtin_prefetch(p, 0, 2); }

inline size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

template <class T>
class Aligned {
public:
    Aligned() = default;
    explicit Aligned(size_t count) { reset(count); }
    Aligned(const Aligned&) = delete;
    Aligned& operator=(const Aligned&) = delete;
    Aligned(Aligned&& other) noexcept : data_(other.data_), count_(other.count_) {
        other.data_ = nullptr;
        other.count_ = 0;
    }
    Aligned& operator=(Aligned&& other) noexcept {
        if (this != &other) {
            std::free(data_);
            data_ = other.data_;
            count_ = other.count_;
            other.data_ = nullptr;
            other.count_ = 0;
        }
        return *this;
    }
    ~Aligned() { std::free(data_); }

    // `count` zeros in place of what was there. Throws std::bad_alloc.
    void reset(size_t count) {
        const size_t num_bytes = round_up((count ? count : 1) * sizeof(T), kCacheLine);
        void* fresh = std::aligned_alloc(kCacheLine, num_bytes);
        if (!fresh) throw std::bad_alloc();
        std::memset(fresh, 0, num_bytes);
        std::free(data_);
        data_ = static_cast<T*>(fresh);
        count_ = count;
    }
    T* data() { return data_; }
    const T* data() const { return data_; }
    size_t size() const { return count_; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }

private:
    T* data_ = nullptr;
    size_t count_ = 0;
};

}  // namespace reprise
